"""The folder of a sweep: a folder for each finished run, and a list of all requested runs with their rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from syncline.errors import SpecError
from syncline.questions.trainings import Best
from syncline.runs.folders import result_files
from syncline.runs.folders.path_lock import PathLock, lock_path
from syncline.runs.sweep.ranking import effort, ranked, ranking_table, with_equal_effort
from syncline.specs import RunSpec

SWEEP_FILE = "sweep.json"
"""Name of the file that lists the runs of a sweep."""


@dataclass(frozen=True)
class SweptRun:
    """A run that a sweep requests: a configuration with a seed.

    Args:
        name: name of the run's folder, see `syncline.runs.sweep.identity`.
        configuration: number of the configuration, from 1.
        values: values of the swept fields by their paths, as tables show them.
        training: hash that names the training; configurations that differ only in the clock's fields share one.
        code: version of the code that trains, see `syncline.runs.sweep.identity.code_version`.
        measured: whether the seconds of a step were measured.
    """

    name: str
    configuration: int
    values: Mapping[str, Any]
    spec: RunSpec
    training: str
    code: str
    measured: bool = False

    def request(self) -> dict[str, Any]:
        """Return the run's entry in the list ``runs`` of ``sweep.json``."""
        return {
            "run": self.name, "configuration": self.configuration, "training": self.training,
            "method": self.spec.method.name, "values": self.values,
        }  # fmt: skip

    def row_without_result(self) -> dict[str, Any]:
        """Return the row of a failed run, which has no results."""
        method, network = self.spec.method.name, self.spec.network.name
        return {"method": method, "network": network, "workers": self.spec.workers, "seed": self.spec.seeds[0]}


@dataclass(frozen=True)
class Swept:
    """The state of a sweep: the runs that it requests, and the rows of those that are finished or have failed.

    Attributes:
        requests: the requested runs, see `SweptRun.request`.
        rows: one row per finished or failed run, in the order of the request.
        repeated: number of requested runs that were finished before.
        interrupted: whether the sweep was stopped; a second call continues it.
    """

    name: str
    requests: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    folder: str
    repeated: int
    interrupted: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the fields that the sweep varies, such as ``method.lr``."""
        return tuple(dict.fromkeys(path for run in self.requests for path in run["values"]))

    @property
    def effort(self) -> dict[str, int]:
        """Return the number of configurations of each method; those that differ only on the clock count once."""
        return effort(self.requests)

    def json(self) -> dict[str, Any]:
        """Return the sweep's rows and state as the object that ``--json`` prints."""
        return {
            "rows": self.rows, "folder": self.folder, "runs": len(self.requests), "repeated": self.repeated,
            "effort": self.effort, "interrupted": self.interrupted,
        }  # fmt: skip


class SweepFolder:
    """The folder of a sweep. One sweep at a time writes it, and a later one can continue it.

    ``runs/`` has a folder per finished run. ``sweep.json`` has the runs that were requested last and their rows, and
    ``sweep.parquet`` has the same rows. Both files are made from the run folders. The manifest is written at the end,
    and does not exist while a sweep writes.

    Args:
        path: the folder.
        exact: whether the user named the folder. An existing folder is then continued, and must be a sweep's or empty;
            otherwise a number is added to an existing name.

    Raises:
        SpecError: the folder is not a sweep's, another sweep is writing it, or it cannot be written.
    """

    def __init__(self, path: Path, exact: bool) -> None:
        """Lock the folder, create it if needed, and remove what dead processes left unfinished."""
        if exact and os.path.lexists(path):
            self.path, self._lock = path, _lock_existing(path)
        else:
            self._lock = lock_path(path, exact=exact, kind="folder")
            self.path = self._lock.path
        self.runs = self.path / "runs"
        self._lock.on_abandon = self._remove_unfinished
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished()  # of dead processes, because no other one writes here
            result_files.remove_manifest(self.path)
        except OSError as error:
            self._lock.release()
            raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
        self.errors: dict[str, str] = {}  # errors, by name, of runs that failed without a folder
        self._results: dict[str, dict[str, Any]] = {}  # row and error in each run's folder

    def __enter__(self) -> SweepFolder:
        return self

    def __exit__(self, *error: object) -> None:
        """Write the manifest, and release the folder's lock."""
        try:
            if (self.path / SWEEP_FILE).is_file():
                result_files.write_manifest(self.path)
        finally:
            self._lock.release()

    def _remove_unfinished(self) -> str:
        """Remove files of unfinished runs, and return a line for the user about the finished ones."""
        for path in [*self.runs.glob(".*.partial-*"), self.path / f".{SWEEP_FILE}.partial"]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return f"what was finished until then is in {self.path}"

    def previous_record(self) -> dict[str, Any]:
        """Return the content of the ``sweep.json`` that the previous sweep in this folder wrote; empty without one."""
        return result_files.object_or_none(self.path / SWEEP_FILE) or {}

    def unfinished(self, requests: Sequence[SweptRun]) -> list[SweptRun]:
        """Return the requested runs that are not finished, each once."""
        by_name = {run.name: run for run in requests}
        return [run for run in by_name.values() if self._stored_result(run.name) is None]

    def rows(self, requests: Sequence[SweptRun]) -> list[dict[str, Any]]:
        """Return one row for each requested run that is finished or has failed, in the order of the request."""
        rows = [self.row(run) for run in requests]
        return [row for row in rows if row is not None]

    def row(self, run: SweptRun) -> dict[str, Any] | None:
        """Return the table row of a run, or None if the run has no result yet."""
        result = self._stored_result(run.name)
        if result is None and run.name in self.errors:
            result = {"row": run.row_without_result(), "error": self.errors[run.name]}
        return None if result is None else _row(run.request(), result)

    def _stored_result(self, name: str) -> dict[str, Any] | None:
        """Return the row and the error of a finished run, or None; each file is read once, as no other sweep writes."""
        if name not in self._results:
            content = read_run(self.runs, name)
            if content is None:
                return None
            self._results[name] = {"row": content["row"], "error": content.get("error")}
        return self._results[name]

    def write(self, facts: Mapping[str, Any], requests: Sequence[SweptRun]) -> list[dict[str, Any]]:
        """Write ``sweep.json`` and ``sweep.parquet``, each under a temporary name first, and return the rows."""
        rows = self.rows(requests)
        content = {**facts, "runs": [run.request() for run in requests], "rows": rows}
        working = self.path / f".{SWEEP_FILE}.partial"
        working.write_text(result_files.json_text(content), encoding="utf-8")
        if rows:
            _write_table(rows, self.path / "sweep.parquet")
        working.replace(self.path / SWEEP_FILE)
        return rows


def read_sweep(path: Path) -> Swept:
    """Return the sweep in a folder, also if the sweep is still running or was killed."""
    if not os.path.lexists(path / SWEEP_FILE):
        raise SpecError("folder", str(path), "a sweep's folder, as 'syncline sweep --out FOLDER' writes it")
    file = path / SWEEP_FILE
    record = result_files.read_run_record(file)
    requests = record.get("runs")
    if not isinstance(requests, list) or not isinstance(record.get("name"), str):
        raise SpecError("folder", str(file), "the name of a sweep, and a list of its 'runs'")
    result_files.check_rows(requests, file, columns=result_files.SWEEP_RUNS, name="runs")
    stored_rows = {row.get("run"): row for row in record["rows"]}
    rows_without_swept_fields = []  # a swept field, whose name is a path with dots, can have any value
    for row in stored_rows.values():
        rows_without_swept_fields.append({name: value for name, value in row.items() if "." not in name})
    result_files.check_rows(rows_without_swept_fields, file, result_files.ROWS["sweep"])
    rows = []
    for request in requests:
        result = read_run(path / "runs", request["run"])  # newer than ``sweep.json`` while the sweep runs
        row = stored_rows.get(request["run"]) if result is None else _row(request, result)
        if row is not None:
            rows.append(row)
    return Swept(record["name"], requests, rows, str(path), repeated=len(rows), interrupted=len(rows) < len(requests))


def read_run(runs: Path, name: str) -> dict[str, Any] | None:
    """Return the content of the ``run.json`` of the run ``name`` in ``runs``; None if it is damaged or missing."""
    if name == ".." or Path(name).name != name:  # a changed sweep.json must not lead out of the folder
        return None
    content = result_files.object_or_none(runs / name / "run.json")
    if content is None:
        return None
    is_valid = result_files.is_row(
        content.get("row"), result_files.ROWS["sweep"]
    ) and result_files.TEXT_OR_NONE.accepts(content.get("error"))
    return content if is_valid else None


def _row(request: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run; columns of its result replace swept fields with the same name.

    The column ``network``, for example, has the network's name and not the swept text.
    """
    return {
        "configuration": request["configuration"], **request["values"], **result["row"],
        "error": result.get("error"), "run": request["run"],
    }  # fmt: skip


def _lock_existing(path: Path) -> PathLock:
    """Return the lock on an existing folder in which a sweep can continue.

    The folder must have a ``sweep.json``, or nothing but the files that a sweep writes before its first run.
    """
    is_sweep = (path / SWEEP_FILE).is_file()
    if not is_sweep and path.is_dir():
        files_before_first_run = {path / "runs", path / f".{SWEEP_FILE}.partial"}
        is_sweep = set(path.rglob("*")) <= files_before_first_run
    if not is_sweep:
        raise SpecError("--out", str(path), "a sweep's folder, or one that does not exist yet")
    try:
        lock = PathLock.acquire(path.resolve())
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    if lock is None:
        raise SpecError("--out", str(path), "a folder that no other sweep is writing")
    return lock


def stored_ranking(question: Best) -> tuple[dict[str, Any], list[Group]]:
    """Return the object that ``syncline best --json`` prints, and the table of the ranking in a sweep's folder."""
    stored = read_sweep(question.folder)
    rows = with_equal_effort(stored.rows, stored.requests) if question.equal_effort else stored.rows
    records = ranked(rows, question.by)
    ranked_runs = {row["run"] for row in rows}
    ranked_requests = [request for request in stored.requests if request["run"] in ranked_runs]
    output = {
        "rows": records, "effort": effort(ranked_requests), "runs": len(stored.requests), "finished": len(stored.rows),
    }  # fmt: skip
    return output, [ranking_table(records, question.by, stored.paths, limit=question.top, name=stored.name)]


def _write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as Parquet; a column with several types becomes floats if all values are numbers, otherwise text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        types = {type(value) for value in values if value is not None}
        if len(types) > 1:
            common_type = float if types == {int, float} else str
            values = [None if value is None else common_type(value) for value in values]
        columns[name] = values
    working = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns), working)
    working.replace(path)
