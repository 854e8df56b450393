"""The folder of a sweep: its runs' folders, and what was asked for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from syncline.errors import SpecError
from syncline.experiments.claims import Claim, claimed
from syncline.experiments.manifest import remove_manifest, write_manifest
from syncline.experiments.plain import plain
from syncline.experiments.result_files import ROWS, SWEEP_RUNS, check_rows, read_noted
from syncline.experiments.sweep.runs import failed_record, read_run
from syncline.files import read_json
from syncline.specs import RunSpec

NAME = "sweep.json"


@dataclass(frozen=True)
class AskedRun:
    """A run that a sweep asks for.

    Args:
        name: of its folder.
        configuration: its number, from 1.
        values: of the fields of the grids, as tables show them.
        spec: with its one seed.
        training: the same for configurations that share trainings, as they differ in the clock's fields alone.
    """

    name: str
    configuration: int
    values: Mapping[str, Any]
    spec: RunSpec
    training: str


class SweepFolder:
    """A folder that one sweep writes at a time; the same sweep, or another, goes on in it later.

    ``runs/`` has a folder per finished run, ``sweep.json`` what was asked for last, and its rows; ``sweep.parquet`` the
    same rows. Both are made anew of the run folders. The manifest is written at the end, and removed while a sweep
    writes.

    Args:
        path: the folder. One that exists must be a sweep's, or empty.
        exact: whether it was asked for by name; else a number is added to one that exists.

    Raises:
        SpecError: it is something else, another sweep is writing it, or it cannot be written.
    """

    def __init__(self, path: Path, exact: bool) -> None:
        is_there = exact and os.path.lexists(path)
        self._claim = _going_on(path) if is_there else claimed(path, exact=exact, what="folder")
        self.path = path if is_there else self._claim.path
        self.runs = self.path / "runs"
        self._claim.on_abandon = self._remove_unfinished
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished()  # of processes that died: nobody else writes here
            remove_manifest(self.path)
        except OSError as error:
            self._claim.release()
            raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
        self._errors: dict[str, str] = {}

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if (self.path / NAME).is_file():
                write_manifest(self.path)
        finally:
            self._claim.release()

    def _remove_unfinished(self) -> str:
        for left in [*self.runs.glob(".*.partial-*"), self.path / f".{NAME}.partial"]:
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        return f"what was finished until then is in {self.path}"

    def about(self) -> dict[str, Any]:
        """What ``sweep.json`` says of the sweep that was here last; nothing if there was none."""
        try:
            told = read_json(self.path / NAME)
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def failed(self, errors: Mapping[str, str]) -> None:
        """Runs that left no folder, and why."""
        self._errors |= errors

    def missing(self, asked: Sequence[AskedRun]) -> list[AskedRun]:
        """Those that are not finished, each once."""
        each = {one.name: one for one in asked}
        return [one for one in each.values() if read_run(self.runs, one.name) is None]

    def rows(self, asked: Sequence[AskedRun]) -> list[dict[str, Any]]:
        """One row for each that is finished or has failed, in the order asked for."""
        made = (self.row(one) for one in asked)
        return [row for row in made if row is not None]

    def row(self, one: AskedRun) -> dict[str, Any] | None:
        """The row of one run; None if there is no result yet."""
        told = read_run(self.runs, one.name)
        if told is None and one.name in self._errors:
            told = {"row": failed_record(one.spec), "error": self._errors[one.name]}
        return told and _row(one.configuration, one.values, one.name, told)

    def write(self, about: Mapping[str, Any], asked: Sequence[AskedRun]) -> list[dict[str, Any]]:
        """Write ``sweep.json`` and ``sweep.parquet``; returns the rows."""
        rows = self.rows(asked)
        listed = [
            {
                "run": one.name, "configuration": one.configuration, "training": one.training,
                "method": one.spec.method.name, "values": one.values,
            }
            for one in asked
        ]  # fmt: skip
        told = {**about, "runs": listed, "rows": rows}
        working = self.path / f".{NAME}.partial"
        working.write_text(json.dumps(plain(told), indent=1) + "\n", encoding="utf-8")
        if rows:
            _write_table(rows, self.path / "sweep.parquet")
        working.replace(self.path / NAME)
        return rows


@dataclass(frozen=True)
class Kept:
    """A sweep as its folder has it.

    Attributes:
        about: the spec, the grids and so on.
        asked: what was asked for last: ``run``, ``configuration``, ``training``, ``method``, ``values`` of each run.
        rows: of those that are finished by now.
    """

    about: dict[str, Any]
    asked: list[dict[str, Any]]
    rows: list[dict[str, Any]]

    @property
    def paths(self) -> tuple[str, ...]:
        """The fields that are swept."""
        return tuple(dict.fromkeys(path for one in self.asked for path in one["values"]))


def read_sweep(path: Path) -> Kept:
    """A sweep's folder, also of one that goes on or was killed.

    Raises:
        SpecError: it is none.
    """
    if not os.path.lexists(path / NAME):
        raise SpecError("folder", str(path), "a sweep's folder, as 'syncline sweep --out FOLDER' writes it")
    about = read_noted(path / NAME)
    asked, told = about.pop("runs", None), {row.get("run"): row for row in about.pop("rows")}
    if not isinstance(asked, list) or not isinstance(about.get("name"), str):
        raise SpecError("folder", str(path / NAME), "the name of a sweep, and a list of its 'runs'")
    check_rows(asked, path / NAME, SWEEP_RUNS, "runs")
    own = [{name: value for name, value in row.items() if "." not in name} for row in told.values()]
    check_rows(own, path / NAME, ROWS["sweep"])  # without the swept fields, whose values are as somebody wrote them
    rows = []
    for one in asked:
        run = read_run(path / "runs", one["run"])
        row = _row(one["configuration"], one["values"], one["run"], run) if run else told.get(one["run"])
        if row is not None:
            rows.append(row)
    return Kept(about, asked, rows)


def _row(configuration: int, values: Mapping[str, Any], name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """A row; what a run knows itself stands for what was asked of it (a network's name for its fields)."""
    return {"configuration": configuration, **values, **told["row"], "error": told.get("error"), "run": name}


def _going_on(path: Path) -> Claim:
    """The claim on a sweep's folder, to go on in it."""
    if not path.is_dir() or not ((path / NAME).is_file() or _is_bare(path)):
        raise SpecError("--out", str(path), "a sweep's folder, or one that does not exist yet")
    try:
        claim = Claim.of(path.resolve())
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    if claim is None:
        raise SpecError("--out", str(path), "a folder in which no other sweep is at work")
    return claim


def _is_bare(path: Path) -> bool:
    """Whether nothing is in a folder, or what a sweep has before its first run."""
    return not [inside for inside in path.rglob("*") if inside not in (path / "runs", path / f".{NAME}.partial")]


def _write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    working = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns), working)
    working.replace(path)


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: numbers where all are, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return [value if value is None or kinds == {int} else float(value) for value in values]
    if len(kinds) == 1:
        return values
    return [None if value is None else str(value) for value in values]
