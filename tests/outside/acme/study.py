"""How often a die shows its highest side."""

from __future__ import annotations

from typing import Any, Literal

from syncline.columns import Column
from syncline.planner.tables.table import table
from syncline.specs import Experiment, Study


class DiceSpec(Experiment):
    """Acme's dice: the chance of the highest side, for dice with several numbers of sides."""

    kind: Literal["acme-dice"] = "acme-dice"
    sides: tuple[int, ...] = (6, 20)


def rows(spec: Any, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each die."""
    return [{"sides": sides, "chance": 1 / sides} for sides in spec.sides]


def tables(found: list[dict[str, Any]], spec: Any) -> list[Any]:
    """For people."""
    return [table(spec.name, ["sides", Column("chance", "chance", format=".2%")], found)]


STUDY = Study(DiceSpec, rows, tables)
