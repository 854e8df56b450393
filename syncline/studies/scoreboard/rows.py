"""Rows as they stand in files: what a paper prints where, which function has ours, and by which tolerance."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from syncline.errors import SpecError, one_of
from syncline.registry import imported

PAPERS = ("curvadion", "demo", "mt-dao", "basis-rotation", "lion-cub")
KINDS_OF_ROWS = ("formula", "table", "figure", "claim")

_PACKAGE = "syncline.studies.scoreboard"
MEASURED = "measured"
"""In place of a function: the name that follows is looked up in ``measured/PAPER.csv``."""


@dataclass(frozen=True)
class PaperRow:
    """A cell of a table, a plotted point, a formula at a stated point, or a claim.

    Args:
        paper: whose.
        where: table, figure, equation or section.
        quantity: what is compared.
        printed: the paper's value as it prints it, or an order; see ``verdict_of``.
        ours: a function and its arguments as in a shell, ``speedup_from wan sync_rate=0.01``: of the paper's module
            here, of another here (``triggers:trigger_wins``), of any by ``package.module:name``; or ``measured NAME``.
            Empty where nothing can be computed.
        unit: of both values; empty of a pure number.
        kind: formula, table, figure or claim.
        tolerance: see ``verdict_of``.
        finding: where it is told why they differ: a page of docs/ and its anchor.
        command: prints our value; ``syncline reproduce PAPER`` unless another does.
        reason: why nothing can be computed.
        follows: why it is no test of its own: another row's number over a power of two, for one.
        covers: the items of the paper's inventory that the row answers.
    """

    paper: str
    where: str
    quantity: str
    printed: str
    ours: str = ""
    unit: str = ""
    kind: str = "table"
    tolerance: str = ""
    finding: str = ""
    command: str = ""
    reason: str = ""
    follows: str = ""
    covers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        at = f"{self.paper}, {self.where}, {self.quantity}"
        if self.kind not in KINDS_OF_ROWS:
            raise SpecError(f"{at}: kind", self.kind, one_of(KINDS_OF_ROWS, self.kind))
        if bool(self.ours) == bool(self.reason):
            raise SpecError(f"{at}: ours", self.ours, "a function, or a reason why there is none")

    def value(self) -> Any:
        """Ours: a number, a text, or a number for each name of an order; None where there is none."""
        if not self.ours:
            return None
        name, *arguments = shlex.split(self.ours)
        return _read(stored(self.paper)[arguments[0]]["value"]) if name == MEASURED else computed(self.paper, self.ours)

    def told_command(self) -> str:
        """The command that prints our value."""
        name, *arguments = shlex.split(self.ours) or [""]
        if name == MEASURED and not self.command:
            line = stored(self.paper)[arguments[0]]
            return line["command"] or AGAIN.format(paper=self.paper, by=line["by"])
        return self.command or f"syncline reproduce {self.paper}"


AGAIN = """python -c "from syncline.studies.scoreboard import computed; print(computed('{paper}', '{by}'))\""""
"""Computes a stored value again."""


def computed(paper: str, call: str) -> Any:
    """What a row's ``ours`` comes to: the function and its arguments, as in a shell.

    >>> round(computed("curvadion", "speedup_from wan sync_rate=0.01"), 3)
    4.361
    """
    name, *arguments = shlex.split(call)
    named = {key: _read(text) for key, _, text in (one.partition("=") for one in arguments if "=" in one)}
    found = function_named(paper, name)(*(_read(one) for one in arguments if "=" not in one), **named)
    return found.item() if hasattr(found, "item") else found


def function_named(paper: str, name: str) -> Callable[..., Any]:
    """The function that computes a value: of the paper's module, of another one here, or of any by ``module:name``."""
    module, _, attribute = name.rpartition(":")
    module = module or paper.replace("-", "_")
    where = module if "." in module else f"{_PACKAGE}.{module}"
    function: Callable[..., Any] = imported(f"{where}:{attribute}", installed=True)  # the register is Syncline's own
    return function


def _read(text: str) -> Any:
    """An argument or a stored value: a number, several with commas, a text; ``a=1; b=2``: a number for each name."""
    if "=" in text:
        return {name.strip(): float(value) for name, _, value in (part.rpartition("=") for part in text.split(";"))}
    if "," in text:
        return tuple(_read(part) for part in text.split(","))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@cache
def stored(paper: str) -> dict[str, dict[str, str]]:
    """What was measured once, by name: value, when and with what, and the command, or ``by`` which function."""
    file = resources.files(_PACKAGE) / MEASURED / f"{paper.replace('-', '_')}.csv"
    with file.open(encoding="utf-8") as lines:
        return {line["name"]: line for line in csv.DictReader(lines)}


@cache
def paper_rows(paper: str) -> tuple[PaperRow, ...]:
    """The rows of a paper, in the order of its file.

    A file is a list of groups: the fields of a group hold for each of its ``rows``, which may say otherwise. A table
    has ``columns`` and ``cells`` in the place of rows, by name a value per column (``-``: none); in the group's texts
    ``{row}`` and ``{column}`` then stand for these names, ``{0}``, ``{1}``, ... for the words of the row's.

    Raises:
        SpecError: no such paper.
    """
    if paper not in PAPERS:
        raise SpecError("paper", paper, one_of(PAPERS, paper))
    text = (resources.files(_PACKAGE) / f"{paper.replace('-', '_')}.yaml").read_text(encoding="utf-8")
    return tuple(_row(paper, row) for group in _texts(text) for row in _ungrouped(group))


def _ungrouped(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    shared = {key: value for key, value in group.items() if key not in ("rows", "columns", "cells")}
    for row in group.get("rows", ()):
        yield shared | row
    for name, values in group.get("cells", {}).items():
        for column, value in zip(group["columns"], values, strict=True):
            if value != "-":
                told = {key: _filled(one, name, column) for key, one in shared.items()}
                yield {"quantity": f"{name}, {column}"} | told | {"paper_value": value}


def _filled(text: Any, row: str, column: str) -> Any:
    return text.format(*row.split(), row=row, column=column) if isinstance(text, str) else text


def _texts(text: str) -> list[dict[str, Any]]:
    """YAML in which every value is a text: 1.020 keeps its digits."""
    import yaml

    reader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)  # of plain text alone, which nothing is made of
    groups: list[dict[str, Any]] = reader.get_single_data()
    return groups


def _row(paper: str, given: Mapping[str, Any]) -> PaperRow:
    known = {field.name for field in fields(PaperRow)} - {"paper", "printed"} | {"paper_value"}
    for name in given:
        if name not in known:
            raise SpecError(f"{paper}, {given.get('where')}: {name}", given[name], one_of(known, name))
    covers = given.get("covers", ())
    told = {name: value for name, value in given.items() if name not in ("paper_value", "covers")}
    return PaperRow(
        paper, printed=given["paper_value"], covers=(covers,) if isinstance(covers, str) else tuple(covers), **told
    )
