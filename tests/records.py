"""The tables of ``docs/records.md``, written anew from the declared columns: ``python -m tests.records``."""

from __future__ import annotations

import re
from pathlib import Path

from syncline.columns import column_of, records

FILE = Path(__file__).parents[1] / "docs" / "records.md"

TABLE = re.compile(r"^\| (?:name|heading) \| (?:unit \| )?meaning \|\n(?:\|.*\n)+", re.MULTILINE)

TERMINAL = "terminal"
"""The record of columns that only tables in the terminal have; the page has their headings."""


def table_of(record: str) -> str:
    """Return the table of a record in Markdown: a row per column."""
    if record == TERMINAL:
        lines = [f"| {column_of(name).header} | {meaning} |" for name, meaning in records()[record].items()]
        return "\n".join(["| heading | meaning |", "|---|---|", *lines, ""])
    rows = [(name, column_of(name).unit, meaning) for name, meaning in records()[record].items()]
    lines = [f"| `{name}` | {unit} | {meaning} |".replace("|  |", "| |") for name, unit, meaning in rows]
    return "\n".join(["| name | unit | meaning |", "|---|---|---|", *lines, ""])


def written_anew(text: str) -> str:
    """Return the page with the table of each section whose title begins with a record's name and a colon."""
    parts = re.split(r"(?m)^(?=## )", text)
    for number, part in enumerate(parts):
        record = re.split(r":|\n", part.removeprefix("## "), maxsplit=1)[0]
        if record in records():
            table = table_of(record)
            parts[number], count = TABLE.subn(lambda _: table, part, count=1)  # noqa: B023
            assert count == 1, f"no table for the columns of {record!r}"
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(written_anew(FILE.read_text(encoding="utf-8")), encoding="utf-8")
