"""Runs: trained, timed, and each written to a separate folder, which exists only when it is complete."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from syncline.errors import SpecError, SynclineError
from syncline.runs.folders.manifest import write_manifest
from syncline.runs.folders.result_files import json_text
from syncline.runs.sweep.folder import SweptRun, read_run
from syncline.runs.training import train_and_time
from syncline.runs.training.records import run_records
from syncline.runs.training.tables import metrics_tables, watched_columns

OF_TORCH = "can't allocate memory"
"""Text of torch's error where NumPy raises a MemoryError; torch's error type has no special name."""


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
    first = runs[0].spec
    try:
        trained = train_and_time.train_method(first, first.method, on_step)
    except Exception as error:
        if len(runs) > 1 and isinstance(error, SpecError) and error.path.startswith("compute"):
            results: list[Outcome] = []
            for run in runs:  # fields of the clock are also checked before a training: each run trains by itself
                alone = outcomes([run], on_step)
                if alone is None:
                    return None
                results += alone
            return results
        return [_failure(run, error) for run in runs]
    if trained.history.interrupted:
        return None
    tables = {"metrics.parquet": pa.concat_tables(metrics_tables([trained]))}
    if watched := watched_columns([trained]):
        tables["watched.parquet"] = pa.table(watched)
    files = {}
    for name, table in tables.items():
        target = BytesIO()
        pq.write_table(table, target)
        files[name] = target.getvalue()
    results = []
    for run in runs:
        try:
            timed = train_and_time.time_with_bounds(run.spec, trained, run.spec.network, run.measured)
        except Exception as error:
            results.append(_failure(run, error))
            continue
        (record,) = run_records(trained, timed and timed.clock, run.spec.network, run.spec.workers)
        record |= timed.bounds() if timed else {}
        content = {
            "code": run.code, "wall_s": trained.wall_s, "problem": trained.facts, "row": record, "error": None,
        }  # fmt: skip
        results.append(Outcome(run.name, _described(run, content) | files))
    return results


def _failure(run: SweptRun, error: Exception) -> Outcome:
    """Return a failed run as finished, unless the machine caused the failure: a later sweep repeats such a run."""
    line = " ".join(str(error).split())
    if not isinstance(error, SynclineError):
        line = f"{type(error).__name__}: {line}".removesuffix(": ")
    if isinstance(error, MemoryError | OSError) or OF_TORCH in line:
        return Outcome(run.name, error=line)
    content: dict[str, Any] = {"code": run.code, "row": run.row_without_result(), "error": line}
    if not isinstance(error, SynclineError):
        content["traceback"] = "".join(traceback.format_exception(error))
    return Outcome(run.name, _described(run, content), line)


def _described(run: SweptRun, content: dict[str, Any]) -> dict[str, bytes]:
    """Return ``spec.yaml`` and ``run.json``; PyYAML's C dumper is four times as fast as its Python dumper."""
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    fields = run.spec.model_dump(mode="json")
    spec = str(yaml.dump(fields, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))
    return {"spec.yaml": spec.encode(), "run.json": json_text(content).encode()}


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
