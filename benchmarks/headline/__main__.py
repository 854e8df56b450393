"""The headline's commands: see ``benchmarks.headline``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import benchmarks.headline
from benchmarks.headline.demo import demo
from benchmarks.headline.figures import figures
from benchmarks.headline.finals import finals
from benchmarks.headline.sizes import sizes
from benchmarks.headline.tables import by_network, by_size, losses
from benchmarks.headline.words import short_words, words


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one of the commands, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headline", description=benchmarks.headline.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("words", help="print the sentences of the README and of docs/headline.md")
    parts.add_parser("tables", help="print the tables of docs/findings.md")
    part = parts.add_parser("figures", help="draw the three pictures")
    part.add_argument("folder", type=Path)
    parts.add_parser("demo", help="print a table, draw the pictures, and train the small form of four methods again")
    options = parser.parse_args(argv)
    if options.part == "words":
        print(short_words(finals()), words(finals()), sep="\n\n")
    elif options.part == "tables":
        print(losses(finals()), by_network(finals()), by_size(sizes(finals())), sep="\n")
    elif options.part == "figures":
        figures(finals(), options.folder)
    else:
        demo()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
