"""Tables that commands print, as cells for a page."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.text import Text

from syncline.planner.tables.columns import RowsTable
from syncline.planner.tables.layout import Sheet

TEXT_WIDTH = 120
"""Characters per line of an output that is not a table of rows, for example a tree."""


def drawn_table(table: Group) -> dict[str, Any]:
    """Return the title, the headings, the rows and the notes; for an output that is not a table of rows its text."""
    if not isinstance(table, RowsTable):
        written = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None, markup=False, highlight=False)
        written.print(table)
        return {"title": "", "text": written.file.getvalue().strip("\n")}  # type: ignore[attr-defined]
    content: dict[str, Any] = {"title": table.title, "headings": [], "rows": [], "left": (), "notes": []}
    for part in table.renderables:
        if isinstance(part, Sheet):
            content |= {
                "headings": [heading.replace("\n", " ") for heading in part.headings],
                "rows": [list(row) for row in part.cells],
                "left": tuple(part.left),
            }
        elif isinstance(part, Constrain) and isinstance(part.renderable, Text):
            content["notes"] += [line for line in part.renderable.plain.split("\n") if line and not _of_the_shell(line)]
    return content


def _of_the_shell(line: str) -> bool:
    """Return whether a note mentions an option of the command, which a page does not have."""
    return line.startswith(("More: --columns", "Everything about them: syncline"))
