"""Tables that commands print, as cells for a page."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.text import Text

from syncline.experiments.columns import RowsTable
from syncline.experiments.layout import Sheet

TEXT_WIDTH = 120
"""Characters of a line of what is no table of rows, as a tree."""


def drawn_table(table: Group) -> dict[str, Any]:
    """The title, the headings, the rows and what stands below; of what is no table of rows its text."""
    if not isinstance(table, RowsTable):
        written = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None, markup=False, highlight=False)
        written.print(table)
        return {"title": "", "text": written.file.getvalue().strip("\n")}  # type: ignore[attr-defined]
    told: dict[str, Any] = {"title": table.title, "headings": [], "rows": [], "left": (), "notes": []}
    for part in table.renderables:
        if isinstance(part, Sheet):
            told |= {
                "headings": [heading.replace("\n", " ") for heading in part.headings],
                "rows": [list(row) for row in part.cells],
                "left": tuple(part.left),
            }
        elif isinstance(part, Constrain) and isinstance(part.renderable, Text):
            told["notes"] += [line for line in part.renderable.plain.split("\n") if line and not _of_the_shell(line)]
    return told


def _of_the_shell(line: str) -> bool:
    """Whether a note speaks of an option of the command, which a page does not have."""
    return line.startswith(("More: --columns", "Everything about them: syncline"))
