"""Carry out a replication within a fixed time, such as that of a lent machine.

    python -m replication.replications protocol-2 --scale gpu --jobs 14 --search-for 6min --for 9min --out FOLDER

`syncline replicate` does the same without ``--search-for``: its searches have all their trials, in as many calls as
that takes. Here a search one by one ends after ``--search-for`` with as many trials for each method as the slowest has,
so that the rest of the time is left for the finals.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from replication.replications.reading import claim_texts
from replication.replications.replicate import command_of, default_folder, replicate
from replication.replications.spec import load_replication
from syncline.runs.sweep.jobs import Allowance
from syncline.units import parse_seconds


def main(arguments: list[str] | None = None) -> int:
    """Train what fits into the time, and print how far it came."""
    parser = argparse.ArgumentParser(prog="python -m replication.replications", description=__doc__)
    parser.add_argument("name", help="bundled replication or YAML file")
    parser.add_argument("--scale", help="one of the file's scales")
    parser.add_argument("--jobs", type=int, help="processes side by side")
    parser.add_argument("--for", dest="duration", help="time in which trainings run")
    parser.add_argument("--search-for", help="time in which trials of the search start")
    parser.add_argument("--out", type=Path, help="the folder")
    options = parser.parse_args(arguments)
    spec, begun_s = load_replication(options.name, options.scale), time.monotonic()
    result = replicate(
        spec, options.out or default_folder(spec, options.scale),
        command=command_of(options.name, options.scale, None), claims=claim_texts(spec), jobs=options.jobs,
        allowance=Allowance(time_s=parse_seconds(options.duration, "--for") if options.duration else None),
        search_s=parse_seconds(options.search_for, "--search-for") if options.search_for else None,
    )  # fmt: skip
    counts = (f"{stage} {result.finished.get(stage, 0)} of {number}" for stage, number in result.planned.items())
    print(f"{time.monotonic() - begun_s:.0f} s: {', '.join(counts)}; trials {result.effort}")
    print("\n".join(result.notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
