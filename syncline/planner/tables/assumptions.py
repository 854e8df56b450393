"""The first block of an answer: its assumptions, with the origin of each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from syncline.planner.assumptions import Assumption
from syncline.planner.tables.columns import NOTE_WIDTH


def assumptions_block(assumptions: Sequence[Assumption]) -> Group:
    """Return a line per assumption: its name, its value, and the origin in parentheses."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for assumption in assumptions:
        grid.add_row(f" {assumption.name}", Text(f"{assumption.text} ({assumption.origin})"))
    return Group(Text("Assumptions", style="bold"), Constrain(grid, NOTE_WIDTH), Text(""))
