"""Rows of the scoreboard: printed values of papers, the functions that compute ours, and tolerances."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from replication.claims import PAPERS, Claim, claims_of
from replication.scoreboard.trained import HEADLINE, comparisons_of, page_of
from replication.scoreboard.verdicts import RESAMPLED
from syncline import SpecError
from syncline.errors import one_of
from syncline.registry import import_reference

TARGETS = ("", "ours", "reconstructed", "identity")
"""Origins of a row's target: the paper, a threshold of ours, a formula that the text lacks, or an identity."""

KINDS_OF_ROWS = ("formula", "table", "figure", "claim")

_PACKAGE = "replication.scoreboard"
MEASURED = "measured"
"""Keyword in place of a function; the name after it is looked up in ``measured/PAPER.csv``."""


@dataclass(frozen=True)
class PaperRow:
    """A cell of a table, a plotted point, a formula at a stated point, or a claim.

    Args:
        paper: name of the paper.
        where: table, figure, equation or section of the paper.
        quantity: the compared quantity.
        printed: the paper's value as it prints it, or an order; see ``verdict_of``.
        ours: a function and its arguments as in a shell, such as ``speedup_from wan sync_rate=0.01``, or
            ``measured NAME``. The function is in the paper's module of this package, in another module of this package
            (``triggers:trigger_wins``), or in any module (``package.module:name``). Empty if nothing can be computed.
        unit: unit of both values; empty for a pure number.
        kind: formula, table, figure or claim.
        tolerance: tolerance of the comparison; see ``verdict_of``.
        finding: page of docs/ and its anchor that explains the difference.
        command: command that prints our value; ``syncline reproduce PAPER`` by default.
        reason: reason why nothing can be computed.
        target: origin of ``printed`` if it is not the paper: ``ours`` (a threshold that we set), ``reconstructed`` (a
            formula that the text lacks), or ``identity`` (two forms of one formula). Such rows are counted apart.
        follows: reason why the row is not an independent test, for example another row's number over a power of two.
        covers: items of the paper's inventory that the row answers.
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
    target: str = ""
    follows: str = ""
    covers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        row_name = f"{self.paper}, {self.where}, {self.quantity}"
        if self.kind not in KINDS_OF_ROWS:
            raise SpecError(f"{row_name}: kind", self.kind, one_of(KINDS_OF_ROWS, self.kind))
        if self.target not in TARGETS:
            raise SpecError(f"{row_name}: target", self.target, one_of(TARGETS, self.target))
        if bool(self.ours) == bool(self.reason):
            raise SpecError(f"{row_name}: ours", self.ours, "a function, or a reason why there is none")

    def value(self) -> Any:
        """Return our value: a number, a text, a number for each name of an order, or None if it cannot be computed."""
        if not self.ours:
            return None
        line = self.stored_line()
        return _read(line["value"]) if line else computed(self.paper, self.ours)

    def stored_line(self) -> dict[str, str]:
        """Return the row's line of ``measured/``; empty if our value is not stored."""
        name, _, stored_name = self.ours.partition(" ")
        return stored(self.paper)[stored_name] if name == MEASURED else {}

    def printing_command(self) -> str:
        """Return the command that prints our value."""
        line = self.stored_line()
        if line and not self.command:
            return line["command"] or AGAIN.format(paper=self.paper, by=line["by"])
        return self.command or f"syncline reproduce {self.paper}"


AGAIN = """python -c "from replication.scoreboard import computed; print(computed('{paper}', '{by}'))\""""
"""Command that recomputes a stored value."""


def computed(paper: str, call: str) -> Any:
    """Return the value of a row's ``ours``: a function and its arguments as in a shell.

    >>> round(computed("curvadion", "speedup_from wan sync_rate=0.01"), 3)
    4.361
    """
    name, *words = shlex.split(call)
    arguments, options = [], {}
    for word in words:
        if "=" in word:
            key, _, text = word.partition("=")
            options[key] = _read(text)
        else:
            arguments.append(_read(word))
    value = function_named(paper, name)(*arguments, **options)
    return value.item() if hasattr(value, "item") else value  # a number of NumPy's becomes one of Python's


def function_named(paper: str, name: str) -> Callable[..., Any]:
    """Return the function that computes a value, by its name in a row.

    The name is that of a function in the paper's module, or ``module:name`` for another module of this package or any
    other package.
    """
    module, _, attribute = name.rpartition(":")
    module = module or paper.replace("-", "_")
    where = module if "." in module else f"{_PACKAGE}.{module}"
    # A package, because only Syncline's own files name functions.
    function: Callable[..., Any] = import_reference(f"{where}:{attribute}", installed=True)
    return function


def _read(text: str) -> Any:
    """Return an argument or a stored value: a number, numbers (``1, 2``), a dictionary (``a=1; b=2``), or a text."""
    if "=" in text:
        numbers = {}
        for part in text.split(";"):
            name, _, number = part.rpartition("=")
            numbers[name.strip()] = float(number)
        return numbers
    if "," in text:
        parts = tuple(_read(part) for part in text.split(","))
        if not any(isinstance(part, str) for part in parts):
            return parts
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@cache
def stored(paper: str) -> dict[str, dict[str, str]]:
    """Return the stored measurements of a paper, by name.

    A measurement has its value, the date and versions (``measured``), and the call ``by`` which it is computed, or its
    ``command``. If the call takes more than two CPU minutes, ``cpu_s`` and ``commit`` stand beside it. A value that
    changes with the processor's rounding has an ``interval``, whose ``basis`` is the runs that it covers.
    """
    file = resources.files(_PACKAGE) / MEASURED / f"{paper.replace('-', '_')}.csv"
    with file.open(encoding="utf-8") as lines:
        return {line["name"]: line for line in csv.DictReader(lines)}


@cache
def paper_rows(paper: str) -> tuple[PaperRow, ...]:
    """Return the rows of a paper, in the order of its file, and a row per run that tests a claim of the register.

    A file is a list of groups. The fields of a group apply to each of its ``rows``, which may override them. A table
    has ``columns`` and ``cells`` in place of rows; ``cells`` maps a row's name to a value per column, with ``-`` for no
    value. In the texts of such a group ``{row}`` and ``{column}`` stand for the names of the row and column, and
    ``{0}``, ``{1}``, ... for the words of the row's name.

    Raises:
        SpecError: there is no such paper.
    """
    if paper not in PAPERS:
        raise SpecError("paper", paper, one_of(PAPERS, paper))
    text = (resources.files(_PACKAGE) / f"{paper.replace('-', '_')}.yaml").read_text(encoding="utf-8")
    rows: list[PaperRow] = []
    for group in _groups(text):
        rows += [_row(paper, fields_of_row) for fields_of_row in _ungrouped(group)]
    for claim in claims_of(paper):
        rows += run_rows(claim).values()
    return tuple(rows)


def runs_of(claim: Claim) -> tuple[str, ...]:
    """Return the runs that test a claim, the headline's last."""
    return (*claim.runs, *([HEADLINE] if claim.headline else []))


def run_rows(claim: Claim) -> dict[str, PaperRow]:
    """Return a row per run that tests a claim: the probability that the run's comparisons are as claimed."""
    rows = {}
    for run in runs_of(claim):
        rows[run] = PaperRow(
            claim.paper, claim.where, quantity=f"{claim.claim} ({run})", kind="claim", tolerance=RESAMPLED,
            printed="; ".join(map(str, comparisons_of(claim.key, run))),
            ours=shlex.join(["trained:probability", claim.key, run]), finding=page_of(run),
            command=f"python -m replication.scoreboard  # {page_of(run)}", covers=claim.covers,
        )  # fmt: skip
    return rows


def _ungrouped(group: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each row of a group, with the fields that the group's rows share, see `paper_rows`."""
    shared = {key: value for key, value in group.items() if key not in ("rows", "columns", "cells")}
    for row in group.get("rows", ()):
        yield shared | row
    for name, values in group.get("cells", {}).items():
        for column, value in zip(group["columns"], values, strict=True):
            if value == "-":
                continue
            row_fields = {"quantity": f"{name}, {column}"}
            for key, text in shared.items():
                row_fields[key] = text.format(*name.split(), row=name, column=column) if isinstance(text, str) else text
            yield row_fields | {"paper_value": value}


def _groups(text: str) -> list[dict[str, Any]]:
    """Return the groups of a YAML file with every value as text, so that 1.020 keeps its digits."""
    import yaml

    reader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)  # reads values as text and builds no objects
    groups: list[dict[str, Any]] = reader.get_single_data()
    return groups


def _row(paper: str, values: Mapping[str, Any]) -> PaperRow:
    names = {field.name for field in fields(PaperRow)} - {"paper", "printed"} | {"paper_value"}
    for name in values:
        if name not in names:
            raise SpecError(f"{paper}, {values.get('where')}: {name}", values[name], one_of(names, name))
    row_fields = dict(values)
    printed, covers = row_fields.pop("paper_value"), row_fields.pop("covers", ())
    covered_items = (covers,) if isinstance(covers, str) else tuple(covers)
    return PaperRow(paper, printed=printed, covers=covered_items, **row_fields)
