"""Runs: trained, timed, and each written to a folder of its own, which is there when it is whole."""

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
from syncline.experiments.manifest import write_manifest
from syncline.experiments.plain import plain
from syncline.experiments.result_files import ROWS, TEXT_OR_NONE, is_row
from syncline.files import read_json
from syncline.specs import RunSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.experiments.trained import Trained

OF_TORCH = "can't allocate memory"
"""What torch says where NumPy raises a MemoryError; of a kind that has no name of its own."""


@dataclass(frozen=True)
class SweptRun:
    """One configuration and seed.

    Args:
        name: of its folder.
        spec: with that one seed.
        code: the version of what computes.
        measured: whether its seconds of computing were.
    """

    name: str
    spec: RunSpec
    code: str
    measured: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run left.

    Args:
        name: of its folder.
        files: to be written there; none of a run that is to be tried again another time.
        error: why there is no result, in one line.
    """

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    error: str | None = None


def outcomes(runs: Sequence[SweptRun], on_step: Callable[[int], None] | None = None) -> list[Outcome] | None:
    """Train once and time every run; None if it was interrupted.

    Args:
        runs: of one training.
        on_step: called with the number of completed steps now and then; it may raise ``KeyboardInterrupt``.
    """
    from syncline.experiments.trained import train_method

    first = runs[0].spec
    try:
        trained = train_method(first, first.method, on_step)
    except Exception as error:
        if len(runs) > 1 and isinstance(error, SpecError) and error.path.startswith("compute"):
            return _each_alone(runs, on_step)  # what only the clock minds is looked at before a training, too
        return [_failure(run, error) for run in runs]
    if trained.history.interrupted:
        return None
    tables = _tables(trained)
    return [_outcome(run, trained, tables) for run in runs]


def _each_alone(runs: Sequence[SweptRun], on_step: Callable[[int], None] | None) -> list[Outcome] | None:
    made: list[Outcome] = []
    for run in runs:
        one = outcomes([run], on_step)
        if one is None:
            return None
        made += one
    return made


def _outcome(run: SweptRun, trained: Trained, tables: dict[str, bytes]) -> Outcome:
    from syncline.experiments.clock_bounds import bounds_record, clock_bounds
    from syncline.experiments.records import run_records
    from syncline.experiments.trained import time_method

    spec, bounds = run.spec, dict[str, Any]()
    again = partial(time_method, spec, trained, spec.network)
    try:
        timed = again()
        if timed:
            bounds = bounds_record(timed, *clock_bounds(spec, spec.network, timed, again, run.measured))
    except Exception as error:
        return _failure(run, error)
    (record,) = run_records(trained, timed, spec.network, spec.workers)
    record |= bounds
    told = {
        "code": run.code, "wall_s": trained.wall_s, "problem": trained.facts, "row": record, "error": None,
    }  # fmt: skip
    return Outcome(run.name, {"spec.yaml": _yaml(run.spec), "run.json": _json(told), **tables})


def _failure(run: SweptRun, error: Exception) -> Outcome:
    """A run that failed is finished, too, unless the machine was to blame: that one is tried again another time."""
    spec, line = run.spec, one_line(error)
    if isinstance(error, MemoryError | OSError) or OF_TORCH in line:
        return Outcome(run.name, error=line)
    record = failed_record(spec)
    told: dict[str, Any] = {"code": run.code, "row": record, "error": line}
    if not isinstance(error, SynclineError):
        told["traceback"] = "".join(traceback.format_exception(error))
    return Outcome(run.name, {"spec.yaml": _yaml(spec), "run.json": _json(told)}, line)


def failed_record(spec: RunSpec) -> dict[str, Any]:
    """What can be said of a run that has no result."""
    return {
        "method": spec.method.name,
        "network": spec.network.name,
        "workers": spec.workers,
        "seed": spec.seeds[0],
    }


def one_line(error: BaseException) -> str:
    """An error in one line, with its kind where it is not one of ours."""
    said = " ".join(str(error).split())
    return said if isinstance(error, SynclineError) else f"{type(error).__name__}: {said}".removesuffix(": ")


def begin(runs: Path, name: str) -> Path:
    """A working folder for a run; what it is called says who writes it."""
    working = runs / f".{name}.partial-{os.getpid()}"
    working.mkdir(exist_ok=True)
    return working


def write(runs: Path, outcome: Outcome, working: Path | None = None) -> None:
    """Write a run's folder, if there is anything in it."""
    if outcome.files:
        working = working or begin(runs, outcome.name)
        for name, content in outcome.files.items():
            (working / name).write_bytes(content)
        write_manifest(working)
        if read_run(runs, outcome.name) is None:
            shutil.rmtree(runs / outcome.name, ignore_errors=True)  # in which somebody has deleted files
            working.rename(runs / outcome.name)
            return
    if working is not None:
        shutil.rmtree(working, ignore_errors=True)


def read_run(runs: Path, name: str) -> dict[str, Any] | None:
    """Return what ``run.json`` of a finished run says; None if it is damaged or not there, or the name leads out."""
    if name == ".." or Path(name).name != name:
        return None
    try:
        told = read_json(runs / name / "run.json")
    except (OSError, ValueError):
        return None
    is_whole = (
        isinstance(told, dict) and is_row(told.get("row"), ROWS["sweep"]) and TEXT_OR_NONE.accepts(told.get("error"))
    )
    return told if is_whole else None


def _tables(trained: Trained) -> dict[str, bytes]:
    """What is the same for all runs of a training, by file."""
    import pyarrow as pa

    from syncline.experiments.tables import metrics_tables, watched_columns

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
    """The one in C, where PyYAML has it, is four times as fast."""
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
