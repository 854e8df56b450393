"""The folder of a sweep: the folders of its runs, and the list of requested runs."""

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
from syncline.files import read_json
from syncline.runs.folders.json_values import plain
from syncline.runs.folders.manifest import remove_manifest, write_manifest
from syncline.runs.folders.path_lock import PathLock, lock_path
from syncline.runs.folders.result_files import ROWS, SWEEP_RUNS, check_rows, read_noted
from syncline.runs.sweep.ranking import effort
from syncline.runs.sweep.runs import failed_record, read_run
from syncline.runs.sweep.swept import Swept
from syncline.specs import RunSpec

NAME = "sweep.json"


@dataclass(frozen=True)
class RequestedRun:
    """A run that a sweep requests.

    Args:
        name: name of its folder.
        configuration: number of the configuration, from 1.
        values: values of the fields of the grids, as tables show them.
        spec: the spec with its single seed.
        training: name of the training; configurations that differ only in the clock's fields share one.
    """

    name: str
    configuration: int
    values: Mapping[str, Any]
    spec: RunSpec
    training: str


class SweepFolder:
    """A folder that one sweep at a time writes; the same sweep, or another, may continue in it later.

    ``runs/`` has a folder per finished run, ``sweep.json`` the runs requested last and their rows; ``sweep.parquet``
    the same rows. Both files are rebuilt from the run folders. The manifest is written at the end, and removed while a
    sweep writes.

    Args:
        path: the folder. An existing folder must be a sweep's, or empty.
        exact: whether the user named the folder; otherwise a number is appended if it exists.

    Raises:
        SpecError: the folder has something else, another sweep is writing it, or it cannot be written.
    """

    def __init__(self, path: Path, exact: bool) -> None:
        is_there = exact and os.path.lexists(path)
        self._claim = _lock_existing(path) if is_there else lock_path(path, exact=exact, kind="folder")
        self.path = path if is_there else self._claim.path
        self.runs = self.path / "runs"
        self._claim.on_abandon = self._remove_unfinished
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished()  # from processes that died: no other process writes here
            remove_manifest(self.path)
        except OSError as error:
            self._claim.release()
            raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
        self._errors: dict[str, str] = {}

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if (self.path / NAME).is_file():
                write_manifest(self.path)
        finally:
            self._claim.release()

    def _remove_unfinished(self) -> str:
        for path in [*self.runs.glob(".*.partial-*"), self.path / f".{NAME}.partial"]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return f"what was finished until then is in {self.path}"

    def about(self) -> dict[str, Any]:
        """Return the content of ``sweep.json`` from the previous sweep in this folder; empty if there was none."""
        try:
            content = read_json(self.path / NAME)
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def failed(self, errors: Mapping[str, str]) -> None:
        """Store the errors of runs that left no folder."""
        self._errors |= errors

    def missing(self, requests: Sequence[RequestedRun]) -> list[RequestedRun]:
        """Return the requested runs that are not finished, each once."""
        by_name = {run.name: run for run in requests}
        return [run for run in by_name.values() if read_run(self.runs, run.name) is None]

    def rows(self, requests: Sequence[RequestedRun]) -> list[dict[str, Any]]:
        """Return one row for each requested run that is finished or has failed, in the order of the request."""
        maybe_rows = (self.row(run) for run in requests)
        return [row for row in maybe_rows if row is not None]

    def row(self, request: RequestedRun) -> dict[str, Any] | None:
        """Return the row of one run; None if it has no result yet."""
        result = read_run(self.runs, request.name)
        if result is None and request.name in self._errors:
            result = {"row": failed_record(request.spec), "error": self._errors[request.name]}
        return result and _row(request.configuration, request.values, request.name, result)

    def write(self, about: Mapping[str, Any], requests: Sequence[RequestedRun]) -> list[dict[str, Any]]:
        """Write ``sweep.json`` and ``sweep.parquet``, and return the rows."""
        rows = self.rows(requests)
        listed = [
            {
                "run": run.name, "configuration": run.configuration, "training": run.training,
                "method": run.spec.method.name, "values": run.values,
            }
            for run in requests
        ]  # fmt: skip
        content = {**about, "runs": listed, "rows": rows}
        working = self.path / f".{NAME}.partial"
        working.write_text(json.dumps(plain(content), indent=1) + "\n", encoding="utf-8")
        if rows:
            _write_table(rows, self.path / "sweep.parquet")
        working.replace(self.path / NAME)
        return rows


@dataclass(frozen=True)
class StoredSweep:
    """A sweep as its folder stores it.

    Attributes:
        about: the spec, the grids and so on.
        asked: the runs requested last: ``run``, ``configuration``, ``training``, ``method``, ``values`` of each.
        rows: rows of the runs that are finished.
    """

    about: dict[str, Any]
    asked: list[dict[str, Any]]
    rows: list[dict[str, Any]]

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the swept fields."""
        return tuple(dict.fromkeys(path for run in self.asked for path in run["values"]))

    def swept(self, folder: Path) -> Swept:
        """Return the stored sweep as the result of a sweep, which is interrupted if runs are not finished."""
        return Swept(
            name=self.about["name"],
            paths=self.paths,
            rows=self.rows,
            folder=str(folder),
            asked=len(self.asked),
            repeated=len(self.rows),
            effort=effort((run["method"], run["training"]) for run in self.asked),
            interrupted=len(self.rows) < len(self.asked),
        )


def read_sweep(path: Path) -> StoredSweep:
    """Return the content of a sweep's folder, also if the sweep is still running or was killed.

    Raises:
        SpecError: the folder is not a sweep's.
    """
    if not os.path.lexists(path / NAME):
        raise SpecError("folder", str(path), "a sweep's folder, as 'syncline sweep --out FOLDER' writes it")
    about = read_noted(path / NAME)
    requested, stored = about.pop("runs", None), {row.get("run"): row for row in about.pop("rows")}
    if not isinstance(requested, list) or not isinstance(about.get("name"), str):
        raise SpecError("folder", str(path / NAME), "the name of a sweep, and a list of its 'runs'")
    check_rows(requested, path / NAME, SWEEP_RUNS, "runs")
    plain_rows = [{name: value for name, value in row.items() if "." not in name} for row in stored.values()]
    check_rows(plain_rows, path / NAME, ROWS["sweep"])  # without the swept fields, whose values are the user's
    rows = []
    for request in requested:
        run = read_run(path / "runs", request["run"])
        row = (
            _row(request["configuration"], request["values"], request["run"], run)
            if run
            else stored.get(request["run"])
        )
        if row is not None:
            rows.append(row)
    return StoredSweep(about, requested, rows)


def _row(configuration: int, values: Mapping[str, Any], name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row; fields of the run's result replace the requested values (a network's name replaces its fields)."""
    return {"configuration": configuration, **values, **result["row"], "error": result.get("error"), "run": name}


def _lock_existing(path: Path) -> PathLock:
    """Return the lock on an existing sweep's folder, to continue in it."""
    if not path.is_dir() or not ((path / NAME).is_file() or _is_bare(path)):
        raise SpecError("--out", str(path), "a sweep's folder, or one that does not exist yet")
    try:
        claim = PathLock.acquire(path.resolve())
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    if claim is None:
        raise SpecError("--out", str(path), "a folder in which no other sweep is at work")
    return claim


def _is_bare(path: Path) -> bool:
    """Return whether a folder is empty or has only the files that a sweep writes before its first run."""
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
    """Return values of one type: numbers if all values are numbers, otherwise text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return [value if value is None or kinds == {int} else float(value) for value in values]
    if len(kinds) == 1:
        return values
    return [None if value is None else str(value) for value in values]
