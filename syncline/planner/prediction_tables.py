"""The lines around the tables of a prediction in the terminal: what is transferred before them, and its assumptions.

Answers as JSON do not import this module, which imports rich.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from syncline.planner.assumptions import Assumption
from syncline.planner.tables.table import NOTE_WIDTH
from syncline.planner.transfer import Transfer


def assumptions_block(assumptions: Sequence[Assumption]) -> Group:
    """Return a heading and a line per assumption: its name, its value, and the origin in parentheses."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for assumption in assumptions:
        grid.add_row(f" {assumption.name}", Text(f"{assumption.text} ({assumption.origin})"))
    return Group(Text("Assumptions", style="bold"), Constrain(grid, NOTE_WIDTH), Text(""))


def tables_after(transfers: Sequence[Transfer], tables: Callable[[], Sequence[Group]]) -> list[Group]:
    """Return a line for each transferred part, followed by the tables."""
    lines = [Constrain(Text(transfer.line), NOTE_WIDTH) for transfer in transfers]
    groups = [Group(*lines, Text(""))] if lines else []
    return [*groups, *tables()]
