"""Commands whose output a page shows: run, held against the page, or written into it.

A block ``console`` begins with ``$ `` and a command; below it is what that prints in a terminal of 80 characters, where
a line ``...`` stands for any number of lines. A block ``yaml`` or ``python`` that begins with ``# NAME.yaml`` or
``# NAME.py`` is a file beside the commands. ``python -m tests.doc_outputs PAGE`` writes the outputs anew, those with
``...`` excepted.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from syncline.cli.application import app

WIDTH = 80
LEFT_OUT = "..."
BLOCK = re.compile(r"^```console\n\$ (?P<command>.*)\n(?P<shown>(?:.*\n)*?)```$", re.MULTILINE)
FILE = re.compile(r"^```(?:yaml|python)\n# (?P<name>\S+\.(?:yaml|py))\n(?P<text>(?:.*\n)*?)```$", re.MULTILINE)


def write_files(text: str, folder: Path) -> None:
    """The files that a page shows."""
    for one in FILE.finditer(text):
        first = f"# {one['name']}\n"  # as on the page, so that a script's lines have the numbers that a reader counts
        (folder / one["name"]).write_text(first + one["text"], encoding="utf-8")


def printed(command: str) -> list[str]:
    """The lines that a command prints, without space at their ends and empty lines at its end."""
    program, *arguments = shlex.split(command)
    assert program == "syncline", command
    with patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, f"{command}: {done.output}{done.exception}"
    return [line.rstrip() for line in done.output.rstrip().splitlines()]


def is_as_shown(shown: list[str], lines: list[str]) -> bool:
    """Whether lines are those of a page, which may leave some out."""
    pattern = "".join(r"(?:.*\n)*" if line == LEFT_OUT else re.escape(line) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a page, and what stands below it."""
    for one in BLOCK.finditer(text):
        yield one["command"], one["shown"].splitlines()


def written_anew(text: str) -> str:
    """The page with what its commands print today."""

    def anew(one: re.Match[str]) -> str:
        if LEFT_OUT in one["shown"].splitlines():
            return one[0]
        lines = "".join(f"{line}\n" for line in printed(one["command"]))
        return f"```console\n$ {one['command']}\n{lines}```"

    return BLOCK.sub(anew, text)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            write_files(before, Path(folder))
            with chdir(folder):
                after = written_anew(before)
        page.write_text(after, encoding="utf-8")
