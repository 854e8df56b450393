"""The index of run folders: the kind and state of each, the table of ``syncline runs``, and the removal of folders."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Group

from syncline.columns import first_of
from syncline.errors import SpecError, one_of
from syncline.planner.tables.table import table
from syncline.questions.results import Same
from syncline.runs.folders.path_lock import PathLock, is_alive, is_locked
from syncline.runs.folders.result_files import object_or_none, read_run_record
from syncline.runs.processes.progress import rough_duration

State = Literal["whole", "interrupted", "failed", "killed", "partial", "running"]
"""States of a run folder.

``partial``: a dead process left it under a temporary name. ``killed``: such a folder that was renamed to
``NAME-killed``. ``running``: a process is writing it.
"""

UNFINISHED = ("killed", "partial")
"""States of folders that no process will finish."""

REPLICATION_FILES = ("README.md", "search.parquet")
"""Files of a replication's folder once its search is complete; the first one names the command that made it."""

PARTIAL_NAME = re.compile(r"\.(.+)\.partial-(\d+)")
"""Temporary name of a folder: the final name, and the id of the process."""

KILLED_NAME = re.compile(r".+-killed(-\d+)?")

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class RunEntry:
    """The description of a run folder.

    Attributes:
        kind: kind of the spec, or the command that wrote the folder: ``compare``, ``launch``, ``sweep``.
        state: see `State`.
        written_s: time at which the folder was finished or last changed; seconds since 1970.
        methods: methods of the rows, or of the spec if there are no rows; schedules of a pipeline.
        networks: networks of the spec, or of the rows if the spec names none.
        workers: number of workers; None if it differs between rows or is unknown.
    """

    path: Path
    kind: str
    state: State
    written_s: float
    methods: tuple[str, ...]
    networks: tuple[str, ...]
    workers: int | None
    rows: int
    files: int
    nbytes: int

    def record(self) -> dict[str, Any]:
        """Return the entry of a run folder as ``syncline runs --json`` prints it."""
        return {
            "name": self.path.name, "kind": self.kind, "state": self.state,
            "written": datetime.fromtimestamp(self.written_s).astimezone().isoformat(timespec="seconds"),
            "methods": list(self.methods), "networks": list(self.networks), "workers": self.workers, "rows": self.rows,
            "files": self.files, "size_bytes": self.nbytes, "folder": str(self.path),
        }  # fmt: skip


def run_entries(folder: Path) -> list[RunEntry]:
    """Return the run folders in a folder, the latest first."""
    try:
        paths = list(folder.iterdir())
    except OSError as error:  # no folder, or one that must not be read
        raise SpecError("folder", str(folder), f"a folder that has run folders ({error.strerror})") from None
    entries = [entry for entry in map(run_entry, paths) if entry is not None]
    return sorted(entries, key=lambda entry: (-entry.written_s, entry.path.name))


def run_entry(path: Path) -> RunEntry | None:
    """Return the description of a run folder; None for any other path."""
    if os.path.islink(path) or not os.path.isdir(path):  # Path's methods raise if a name is too long
        return None
    run_record = object_or_none(path / "run.json")
    sweep_record = object_or_none(path / "sweep.json")
    state = _state(path, run_record, sweep_record)
    if state is None:
        return None
    spec = object_or_none(path / "spec.yaml") or {}
    rows = [row for row in _rows(run_record or sweep_record) if isinstance(row, dict)]
    workers = spec.get("workers")
    if rows:  # compared as text, because a changed file may have any values
        are_equal = len({repr(row.get("workers", workers)) for row in rows}) == 1
        workers = rows[0].get("workers", workers) if are_equal else None
    stats = [file.stat() for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    # A finished folder is as old as its record; an unfinished one as its latest file.
    times_s = [record.stat().st_mtime for record in (path / "run.json", path / "sweep.json") if record.is_file()]
    if not times_s:
        times_s = [stat.st_mtime for stat in stats] or [path.stat().st_mtime]
    return RunEntry(
        path=path, kind="sweep" if sweep_record is not None else _kind_of_run(spec, run_record or {}), state=state,
        written_s=max(times_s),
        # A spec has the names of networks; rows may have descriptions instead.
        methods=_values(rows, "method") or _values(rows, "schedule") or _names_in_spec(spec, "method", "schedule"),
        networks=_names_in_spec(spec, "network") or _values(rows, "network"),
        workers=workers if isinstance(workers, int) else None, rows=len(rows), files=len(stats),
        nbytes=sum(stat.st_size for stat in stats),
    )  # fmt: skip


def _kind_of_run(spec: JsonObject, run_record: JsonObject) -> str:
    """Return the kind of a run as `RunEntry` has it, ``-`` if neither its spec nor its record tells."""
    if "launch" in run_record:
        return "launch"
    if "specs" in run_record and "summary" in run_record:
        return "validate"
    return str(spec.get("kind") or run_record.get("command") or "-")


MOST_NAMES = 3
"""Largest number of methods or networks that the table shows by name."""

NOTE = (
    "Whole: finished. Interrupted: by Ctrl-C, with what it had. Failed: a real process died. Killed, partial: left "
    "by a process that was killed. Running: being written.\nTables again: syncline show NAME"
)


def runs_table(entries: Sequence[RunEntry], folder: Path) -> Group:
    """Return the table that ``syncline runs`` prints: a row for each run folder."""
    now_s = time.time()
    rows = []
    for entry in entries:
        trained = first_of(entry.methods, MOST_NAMES) or "-"
        if entry.networks:
            trained += f" on {first_of(entry.networks, MOST_NAMES)}"
        rows.append(entry.record() | {"age_text": rough_duration(now_s - entry.written_s), "trained": trained})
    return table(f"{folder}/", "name kind state age_text trained size_bytes", rows, note=NOTE)


def find_run(name: str, folder: Path) -> RunEntry:
    """Return the run that a user names by a path, or by a name in the folder of run folders.

    Raises:
        SpecError: there is no such run, or its record cannot be read.
    """
    paths = (Path(name), folder / name)
    for path in paths:
        entry = run_entry(Path(os.path.normpath(path)))
        if entry is not None:
            return entry
    for path in paths:
        for record_path in (path / "run.json", path / "sweep.json"):
            if os.path.lexists(record_path):
                read_run_record(record_path)  # only for its error, which says why this is no record of a run
    if any(os.path.lexists(path) for path in paths):
        raise SpecError("run", name, "a run folder, with a run.json; see 'syncline runs'")
    names = [entry.path.name for entry in run_entries(folder)] if os.path.isdir(folder) else []
    expected = one_of(names, name) if names else "a run folder"
    raise SpecError("run", name, f"{expected}; see 'syncline runs'")


def finished_run(run: str, folder: Path) -> RunEntry:
    """Return the run that a user names, see `find_run`; refuse an unfinished run that is not a sweep.

    Raises:
        SpecError: there is no such run, a process is writing it, or it was killed.
    """
    entry = find_run(run, folder)
    if entry.kind != "sweep" and entry.state == "running":
        raise SpecError("run", run, "a run that is finished; this one is being written")
    if entry.kind != "sweep" and entry.state in UNFINISHED:
        expected = f"a run that was finished; this one was killed, and what it left is in {entry.path}/"
        raise SpecError("run", run, expected)
    return entry


def finished_folder(run: str, folder: Path) -> Path:
    """Return the folder of a finished run, a sweep or a replication that a user names; see `finished_run`."""
    return Path(run) if is_replication(Path(run)) else finished_run(run, folder).path


def is_replication(folder: Path) -> bool:
    """Return whether a folder has the files of a replication whose search is complete."""
    return all((folder / name).is_file() for name in REPLICATION_FILES)


def remove_run(entry: RunEntry) -> None:
    """Remove a run folder; it is renamed first, so that no half-removed folder keeps the run's name.

    Raises:
        SpecError: a process is writing the folder, the current folder is inside, or the folder cannot be removed.
    """
    path = entry.path
    current = Path.cwd()
    if path.resolve() in (current, *current.parents):
        raise SpecError("run", str(path), "a folder other than the current one")
    final_name, writer_pid = path.name, None  # a complete folder has no writer
    partial_name = PARTIAL_NAME.fullmatch(path.name)
    if partial_name is not None:
        final_name, writer_pid = partial_name[1], int(partial_name[2])
    try:
        lock = PathLock.acquire(path.with_name(final_name))
        if lock is None:
            raise SpecError("run", str(path), "a folder that no process is writing")
        try:
            has_locks = lock.excludes_others  # without locks only the writer's id tells if it runs
            if writer_pid is not None and not has_locks and is_alive(writer_pid):
                raise SpecError("run", str(path), "a folder that no process is writing")
            shutil.rmtree(path.rename(lock.partial_path()) if writer_pid is None else path)
        finally:
            lock.release()
    except OSError as error:
        raise SpecError("run", str(path), f"a folder that can be removed ({error.strerror})") from None


def _state(path: Path, run_record: JsonObject | None, sweep_record: JsonObject | None) -> State | None:
    """Return the state of a folder from its name and its record; None if it is not a run folder."""
    partial_name = PARTIAL_NAME.fullmatch(path.name)
    if partial_name is not None:
        if not _is_unfinished_run(path):
            return None
        final_name, writer_pid = partial_name.groups()
        return "running" if is_locked(path.with_name(final_name), int(writer_pid)) else "partial"
    if sweep_record is not None and isinstance(sweep_record.get("runs"), list):
        if is_locked(path):
            return "running"
        return "whole" if len(_rows(sweep_record)) == len(sweep_record["runs"]) else "interrupted"
    has_rows = run_record is not None and (isinstance(run_record.get("rows"), list) or "row" in run_record)
    if run_record is not None and has_rows and "syncline" in run_record:
        state: State = "interrupted" if run_record.get("interrupted") else "whole"
        return "failed" if run_record.get("failed") else state
    return "killed" if KILLED_NAME.fullmatch(path.name) and _is_unfinished_run(path) else None


def _is_unfinished_run(path: Path) -> bool:
    """Return whether a folder without a record is a `RunFolder`: it is empty or has a folder for figures."""
    return (path / "figures").is_dir() or not any(path.iterdir())


def _rows(record: JsonObject | None) -> Sequence[Any]:
    """Return the rows of the object in a ``run.json`` or ``sweep.json``; a run of a sweep has a single ``row``."""
    if record is None:
        return ()
    if "rows" in record:
        return record["rows"] if isinstance(record["rows"], list) else ()
    return [record["row"]] if "row" in record else ()


def _values(rows: Iterable[JsonObject], column: str) -> tuple[str, ...]:
    """Return the distinct values of a column of rows, in their order."""
    return tuple(dict.fromkeys(str(row[column]) for row in rows if row.get(column) is not None))


def _names_in_spec(spec: JsonObject, *fields: str) -> tuple[str, ...]:
    """Return the names of the methods or networks in fields of a spec.

    Args:
        fields: names of fields in the singular, such as ``method``; a spec's list is in the plural, ``methods``.
    """
    names: list[str] = []
    for field in fields:
        values = spec.get(f"{field}s")
        if not isinstance(values, list):
            values = [spec.get(field)]
        for value in values:
            if isinstance(value, str):
                names.append(value)
            elif isinstance(value, dict):  # the first of these fields that it has is its name
                possible_names = [str(value[key]) for key in ("label", "name", "preset", "kind") if value.get(key)]
                names += possible_names[:1]
    return tuple(name for name in names if name)


def folders_of_one_kind(question: Same) -> tuple[Path, Path]:
    """Return the two folders that a question compares.

    Raises:
        SpecError: a folder cannot be shown, or the folders are of different kinds.
    """
    first, second = finished_folder(question.a, question.folder), finished_folder(question.b, question.folder)
    first_kind, second_kind = _kind(first), _kind(second)
    if first_kind != second_kind:
        expected = f"a folder of kind {first_kind}, as {question.a} is; this is one of kind {second_kind}"
        raise SpecError("run", question.b, expected)
    return first, second


def _kind(folder: Path) -> str:
    """Return the kind of a run folder; ``replication`` for any other folder of results."""
    entry = run_entry(folder)
    return "replication" if entry is None else entry.kind
