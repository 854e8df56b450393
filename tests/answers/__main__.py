"""Keep the answers of the commands, or hold them against those that are kept.

python -m tests.answers keep [FILE]
python -m tests.answers compare [FILE] [--renamed OLD=NEW ...]

Another processor rounds otherwise: keep the answers of the old code in a FILE on the same machine, and compare with it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.answers.answers import KEPT, answers, differences, read_answers, renamed, write_answers, write_files


def command(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process."""
    from syncline.cli.application import main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["syncline", *arguments]
    begun_s = time.process_time()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    print(f"{time.process_time() - begun_s:6.1f} CPU s  {' '.join(arguments)}", file=sys.stderr, flush=True)
    return code, out.getvalue(), err.getvalue()


def main() -> None:
    """Keep or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["keep", "compare"])
    parser.add_argument("file", nargs="?", type=Path, default=KEPT)
    parser.add_argument("--renamed", metavar="OLD=NEW", nargs="*", default=[], help="names that differ")
    options = parser.parse_args()
    file, names = options.file.resolve(), dict(pair.split("=") for pair in options.renamed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_files(Path(folder))
        found = dict(answers(command))
    if options.what == "keep":
        write_answers(file, found)
        return
    kept = {renamed(line, names): renamed(answer, names) for line, answer in read_answers(file).items()}
    lines = [f"{line}{text}" for line in kept if line in found for text in differences(kept[line], found[line])]
    lines += [f"{line}: only in one of both" for line in kept.keys() ^ found.keys()]
    print("\n".join(lines) or f"{len(found)} answers are equal")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
