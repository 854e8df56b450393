"""Runs: trained, timed, and each written to a separate folder, which exists only when it is complete."""

from __future__ import annotations

import json
import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.errors import SpecError, SynclineError
from syncline.files import read_json
from syncline.runs.folders.json_values import plain
from syncline.runs.folders.manifest import write_manifest
from syncline.runs.folders.result_files import ROWS, TEXT_OR_NONE, is_row
from syncline.specs import RunSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.runs.training.trained import Trained

OF_TORCH = "can't allocate memory"
"""Text of torch's error where NumPy raises a MemoryError; torch's error type has no special name."""


@dataclass(frozen=True)
class SweptRun:
    """One configuration and seed.

    Args:
        name: name of its folder.
        spec: the spec with that single seed.
        code: version of the code that trains.
        measured: whether its computing time was measured.
    """

    name: str
    spec: RunSpec
    code: str
    measured: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Args:
        name: name of the run's folder.
        files: files of the folder; empty if a later sweep should repeat the run.
        error: one line that says why there is no result.
    """

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    error: str | None = None


def outcomes(runs: Sequence[SweptRun], on_step: Callable[[int], None] | None = None) -> list[Outcome] | None:
    """Train once and time every run; return None if it was interrupted.

    Args:
        runs: runs that share one training.
        on_step: function that is sometimes called with the number of completed steps; it may raise
            ``KeyboardInterrupt``.
    """
    from syncline.runs.training.train_and_time import train_method

    first = runs[0].spec
    try:
        trained = train_method(first, first.method, on_step)
    except Exception as error:
        if len(runs) > 1 and isinstance(error, SpecError) and error.path.startswith("compute"):
            return _each_alone(runs, on_step)  # fields of the clock are also checked before a training
        return [_failure(run, error) for run in runs]
    if trained.history.interrupted:
        return None
    tables = _tables(trained)
    return [_outcome(run, trained, tables) for run in runs]


def _each_alone(runs: Sequence[SweptRun], on_step: Callable[[int], None] | None) -> list[Outcome] | None:
    results: list[Outcome] = []
    for run in runs:
        run_results = outcomes([run], on_step)
        if run_results is None:
            return None
        results += run_results
    return results


def _outcome(run: SweptRun, trained: Trained, tables: dict[str, bytes]) -> Outcome:
    from syncline.runs.training.clock_bounds import bounds_record, clock_bounds
    from syncline.runs.training.records import run_records
    from syncline.runs.training.train_and_time import time_method

    spec, bounds = run.spec, dict[str, Any]()
    time_again = partial(time_method, spec, trained, spec.network)
    try:
        timed = time_again()
        if timed:
            bounds = bounds_record(timed, *clock_bounds(spec, spec.network, timed, time_again, run.measured))
    except Exception as error:
        return _failure(run, error)
    (record,) = run_records(trained, timed, spec.network, spec.workers)
    record |= bounds
    content = {
        "code": run.code, "wall_s": trained.wall_s, "problem": trained.facts, "row": record, "error": None,
    }  # fmt: skip
    return Outcome(run.name, {"spec.yaml": _yaml(run.spec), "run.json": _json(content), **tables})


def _failure(run: SweptRun, error: Exception) -> Outcome:
    """Return a failed run as finished, unless the machine caused the failure: a later sweep repeats such a run."""
    spec, line = run.spec, one_line(error)
    if isinstance(error, MemoryError | OSError) or OF_TORCH in line:
        return Outcome(run.name, error=line)
    record = failed_record(spec)
    content: dict[str, Any] = {"code": run.code, "row": record, "error": line}
    if not isinstance(error, SynclineError):
        content["traceback"] = "".join(traceback.format_exception(error))
    return Outcome(run.name, {"spec.yaml": _yaml(spec), "run.json": _json(content)}, line)


def failed_record(spec: RunSpec) -> dict[str, Any]:
    """Return the row of a run without a result."""
    return {
        "method": spec.method.name,
        "network": spec.network.name,
        "workers": spec.workers,
        "seed": spec.seeds[0],
    }


def one_line(error: BaseException) -> str:
    """Return an error in one line, with its type if it is not an error of Syncline."""
    message = " ".join(str(error).split())
    return message if isinstance(error, SynclineError) else f"{type(error).__name__}: {message}".removesuffix(": ")


def begin(runs: Path, name: str) -> Path:
    """Make a working folder for a run; its name has the id of the writing process."""
    working = runs / f".{name}.partial-{os.getpid()}"
    working.mkdir(exist_ok=True)
    return working


def write(runs: Path, outcome: Outcome, working: Path | None = None) -> None:
    """Write a run's folder, if the outcome has files."""
    if outcome.files:
        working = working or begin(runs, outcome.name)
        for name, content in outcome.files.items():
            (working / name).write_bytes(content)
        write_manifest(working)
        if read_run(runs, outcome.name) is None:
            shutil.rmtree(runs / outcome.name, ignore_errors=True)  # a user has deleted files in it
            working.rename(runs / outcome.name)
            return
    if working is not None:
        shutil.rmtree(working, ignore_errors=True)


def read_run(runs: Path, name: str) -> dict[str, Any] | None:
    """Return the content of ``run.json`` of a finished run; None if damaged or missing, or if ``name`` is a path."""
    if name == ".." or Path(name).name != name:
        return None
    try:
        content = read_json(runs / name / "run.json")
    except (OSError, ValueError):
        return None
    is_whole = (
        isinstance(content, dict)
        and is_row(content.get("row"), ROWS["sweep"])
        and TEXT_OR_NONE.accepts(content.get("error"))
    )
    return content if is_whole else None


def _tables(trained: Trained) -> dict[str, bytes]:
    """Return the tables that all runs of a training share, by file name."""
    import pyarrow as pa

    from syncline.runs.training.tables import metrics_tables, watched_columns

    tables = {"metrics.parquet": pa.concat_tables(metrics_tables([trained]))}
    if watched := watched_columns([trained]):
        tables["watched.parquet"] = pa.table(watched)
    return {name: _parquet(table) for name, table in tables.items()}


def _parquet(table: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    content = BytesIO()
    pq.write_table(table, content)
    return content.getvalue()


def _json(value: Any) -> bytes:
    return (json.dumps(plain(value), indent=1) + "\n").encode()


def _yaml(spec: RunSpec) -> bytes:
    import yaml

    text = yaml.dump(spec.model_dump(mode="json"), Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
    return str(text).encode()


@cache
def _dumper() -> Any:
    """Return PyYAML's C dumper, which is four times as fast, or else its Python dumper."""
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
