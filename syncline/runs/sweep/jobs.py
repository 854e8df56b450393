"""The work of a sweep: jobs of runs that share a training, in processes of this machine or on a dask cluster.

Each run is trained, timed and written into a folder, which exists only when it is complete. Workers of a dask cluster
return their results, and this process writes the folders.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from joblib import cpu_count

from syncline.columns import described
from syncline.errors import SpecError, SynclineError, error_text, is_out_of_memory
from syncline.runs.folders.result_files import json_text, write_manifest
from syncline.runs.processes.shared_progress import SharedProgress, stoppable_results
from syncline.runs.sweep.folder import SweptRun, read_run
from syncline.runs.sweep.identity import code_version
from syncline.runs.training import train_and_time
from syncline.runs.training.results import run_records
from syncline.runs.training.tables import metrics_tables, watched_columns
from syncline.runs.training.trained import Trained


@dataclass(frozen=True)
class Outcome:
    """The files that a finished or failed run leaves.

    Args:
        files: content of each file; empty if a later sweep should repeat the run.
        error: one line with the reason of a failure; None without a failure.
    """

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    error: str | None = None


def train_and_time_runs(runs: Sequence[SweptRun], on_step: Callable[[int], None] | None = None) -> list[Outcome] | None:
    """Train once, time every run, and return the files of all runs; return None if the training was interrupted.

    Args:
        runs: runs that share one training.
        on_step: function that is called now and then with the number of completed steps; it may raise
            ``KeyboardInterrupt``.
    """
    first_spec = runs[0].spec
    try:
        trained = train_and_time.train_method(first_spec, first_spec.method, on_step)
    except Exception as error:
        is_about_clock = isinstance(error, SpecError) and error.path.startswith("compute")
        if len(runs) == 1 or not is_about_clock:
            return [_failure(run, error) for run in runs]
        outcomes: list[Outcome] = []
        for run in runs:  # the clock's fields may be valid in some runs alone
            outcomes_of_run = train_and_time_runs([run], on_step)
            if outcomes_of_run is None:
                return None
            outcomes += outcomes_of_run
        return outcomes
    if trained.history.interrupted:
        return None
    metrics, watched = pa.concat_tables(metrics_tables([trained])), watched_columns([trained])
    table_files = {"metrics.parquet": _parquet_bytes(metrics, "metrics.parquet")}
    if watched:
        table_files["watched.parquet"] = _parquet_bytes(pa.table(watched), "watched.parquet")
    return [_timed_outcome(run, trained, table_files) for run in runs]


def _parquet_bytes(table: pa.Table, name: str) -> bytes:
    """Return the content of a Parquet file ``name`` with a table whose columns have their units and meanings."""
    buffer = BytesIO()
    pq.write_table(table.cast(described(table.schema, name)), buffer)
    return buffer.getvalue()


def _timed_outcome(run: SweptRun, trained: Trained, table_files: dict[str, bytes]) -> Outcome:
    """Return the files of a trained run with its time on its network, or its failure."""
    try:
        timing = train_and_time.time_with_bounds(run.spec, trained, run.spec.network, run.measured)
    except Exception as error:
        return _failure(run, error)
    clock, bounds = None, {}
    if timing is not None:  # else no step was completed
        clock, bounds = timing.clock, timing.bounds()
    (record,) = run_records(trained, clock, run.spec.network, run.spec.workers)
    content = {
        "code": run.code, "wall_s": trained.wall_s, "problem": trained.facts, "row": record | bounds, "error": None,
    }  # fmt: skip
    return Outcome(run.name, _spec_and_record(run, content) | table_files)


def _failure(run: SweptRun, error: Exception) -> Outcome:
    """Return the files of a failed run, with the error.

    If memory or disk caused the failure, there are no files, so that a later sweep repeats the run.
    """
    message = " ".join(str(error).split()) if isinstance(error, SynclineError) else error_text(error)
    if is_out_of_memory(error) or isinstance(error, OSError):
        return Outcome(run.name, error=message)
    record: dict[str, Any] = {"code": run.code, "row": run.row_without_result(), "error": message}
    if not isinstance(error, SynclineError):  # an error of the code, and not of the user
        record["traceback"] = "".join(traceback.format_exception(error))
    return Outcome(run.name, _spec_and_record(run, record), error=message)


def _spec_and_record(run: SweptRun, record: dict[str, Any]) -> dict[str, bytes]:
    """Return the content of ``spec.yaml`` and of ``run.json``, which has the record."""
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C it is four times as fast as in Python
    spec_fields = run.spec.model_dump(mode="json")
    spec_text = str(yaml.dump(spec_fields, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))
    return {"spec.yaml": spec_text.encode(), "run.json": json_text(record).encode()}


def begin_run(runs: Path, name: str) -> Path:
    """Make an unfinished folder for a run, with this process's id in its name, and return its path."""
    working = runs / f".{name}.partial-{os.getpid()}"
    working.mkdir(exist_ok=True)
    return working


def write_run(runs: Path, outcome: Outcome, working: Path | None = None) -> None:
    """Write a run's folder into ``runs``, unless the outcome has no files or the folder exists.

    ``working``: the unfinished folder from `begin_run`; by default a new one.
    """
    if outcome.files:
        if working is None:
            working = begin_run(runs, outcome.name)
        for name, content in outcome.files.items():
            (working / name).write_bytes(content)
        write_manifest(working)
        if read_run(runs, outcome.name) is None:
            shutil.rmtree(runs / outcome.name, ignore_errors=True)  # a folder without all files
            working.rename(runs / outcome.name)
    if working is not None:
        shutil.rmtree(working, ignore_errors=True)  # unless it was renamed


PROCESS_DIED = "its process was killed, perhaps because memory ran out; fewer --jobs need less memory"


Job = tuple[SweptRun, ...]
"""Runs that share one training and differ only in fields of the clock."""

FinishedJob = tuple[int, dict[str, str]]
"""The index of a finished job, and the errors, by name, of its runs that left no folder."""


def run_jobs(
    jobs: Sequence[Job], folder: Path, processes: int | None, progress: SharedProgress
) -> Iterator[FinishedJob]:
    """Run jobs in several processes of this machine, write their folders, and yield each job as it finishes.

    Jobs that did not start before a stop yield nothing. If a process is killed from outside, all running jobs end with
    it. These jobs are then repeated one by one, so that a job that kills its process is found, and counts as failed.

    Args:
        processes: number of processes; one per core if None.
    """
    remaining = dict(enumerate(jobs))  # by index
    while remaining and not progress.stopped:
        calls = [partial(_run_job, index, job, folder, progress) for index, job in remaining.items()]
        problems = [job[0].spec.problem for job in remaining.values()]
        num_processes = min(processes or cpu_count(), len(calls))
        try:
            for index, errors in stoppable_results(calls, num_processes, progress, shared=problems):
                del remaining[index]
                yield index, errors
            return
        except BrokenProcessPool:
            suspects = []  # indices of jobs that were running
            for index, job in remaining.items():
                was_running = _remove_unfinished(folder, job)
                if was_running:
                    suspects.append(index)
        for index in suspects:
            if progress.stopped:
                return
            job = remaining.pop(index)
            try:
                call = partial(_run_job, index, job, folder, progress)
                yield from stoppable_results([call], jobs=2, progress=progress)  # jobs=1 would run it in this process
            except BrokenProcessPool:
                _remove_unfinished(folder, job)
                yield index, {run.name: PROCESS_DIED for run in job}


def _run_job(index: int, job: Job, folder: Path, progress: SharedProgress) -> FinishedJob | None:
    """Train, time and write the runs of a job; return None if it was interrupted.

    If this process dies meanwhile, the unfinished folder of the first run shows that the job was running.
    """
    working = begin_run(folder, job[0].name)
    try:
        outcomes = train_and_time_runs(job, progress.reporter(index))
        if outcomes is None:
            return None
        first, *others = outcomes
        write_run(folder, first, working)
        for outcome in others:
            write_run(folder, outcome)
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return index, errors_without_folder(outcomes)


def errors_without_folder(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the errors, by name, of runs that left no folder."""
    return {outcome.name: outcome.error for outcome in outcomes if outcome.error and not outcome.files}


def _remove_unfinished(folder: Path, job: Job) -> bool:
    """Remove the folders of a job that a dead process began and did not finish; return whether there were any."""
    own_name = f".{job[0].name}.partial-{os.getpid()}"  # this process may be writing it
    leftovers = [path for path in folder.glob(f".{job[0].name}.partial-*") if path.name != own_name]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return bool(leftovers)


class Allowance:
    """A limit on the trainings of a sweep that may still start, by their number or by time.

    Trainings that have started are finished. Under a time limit a training starts only if it ends in time when it takes
    as long as the longest so far; the first one always starts.

    Args:
        max_trainings: largest number of trainings; no limit if None.
        time_s: seconds from now on in which trainings may run; no limit if None.

    Attributes:
        spent: whether a request was refused.
    """

    def __init__(
        self, max_trainings: int | None = None, time_s: float | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Refuse a limit that allows nothing; the time runs from now."""
        if max_trainings is not None and max_trainings < 1:
            raise SpecError("--most", max_trainings, "at least 1 training")
        if time_s is not None and not time_s > 0:
            raise SpecError("--for", time_s, "a time above 0, as in 10min")
        self._remaining = math.inf if max_trainings is None else max_trainings
        self._now, self._end_s = now, math.inf if time_s is None else now() + time_s
        self._last_grant_s: float | None = None
        self._longest_s = 0.0  # longest time from a grant to the next, in which the granted trainings run
        self.spent = False

    def grant(self, requested: int, side_by_side: int) -> int:
        """Return how many of the requested trainings may start now, with ``side_by_side`` of them at a time.

        The next call must come when these trainings have ended.
        """
        granted = int(min(requested, self._remaining))
        has_time_limit = self._end_s < math.inf
        if has_time_limit:  # grant those of one round, and check the time again after it
            now_s = self._now()
            granted = min(granted, side_by_side)
            if self._last_grant_s is not None:
                self._longest_s = max(self._longest_s, now_s - self._last_grant_s)
                if now_s + self._longest_s > self._end_s:
                    granted = 0
            self._last_grant_s = now_s
        self._remaining -= granted
        self.spent = self.spent or (requested > 0 and granted == 0)
        return granted

    def grant_one(self, longest_s: float) -> bool:
        """Return whether one more training may start while others run, and count it.

        ``longest_s``: seconds of the longest training so far.
        """
        if self._now() + longest_s > self._end_s or self._remaining == 0:
            self.spent = True
            return False
        self._remaining -= 1
        return True


POLL_S = 0.2
"""Seconds between checks for a stop."""

PATIENCE_S = 30.0
"""Seconds to wait for a scheduler's answer."""

_TRAINING_LOCK = threading.Lock()
"""Lock that lets only one thread of a dask worker train.

The bits of a result depend on torch's threads, which belong to the whole process.
"""


def client_of(address: str) -> Any:
    """Return a client of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    Raises:
        SynclineError: dask.distributed is not installed, or no scheduler answers at the address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SynclineError("--dask needs dask.distributed: pip install 'syncline[dask]'") from None
    try:
        return Client(address, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError, AssertionError) as error:  # AssertionError: dask's thread started late
        message = " ".join(str(error).split()) or "no answer"
        raise SpecError("--dask", address, f"the address of a scheduler, as tcp://127.0.0.1:8786 ({message})") from None


def run_jobs_on_dask(jobs: Sequence[Job], folder: Path, client: Any, progress: SharedProgress) -> Iterator[FinishedJob]:
    """Run jobs on the workers of a dask cluster, write their folders here, and yield each job as it finishes.

    If a worker dies, dask starts its job on another worker.

    Raises:
        SynclineError: a worker has another version of the code.
    """
    from distributed import wait

    sweep_id = uuid.uuid4().hex  # so that the same job of another sweep is a different task
    job_indices = {}
    for index, job in enumerate(jobs):
        future = client.submit(_train_on_dask, job, pure=False, key=f"syncline-{job[0].name}-{sweep_id}")
        job_indices[future] = index
    try:
        while job_indices and not progress.stopped:
            try:
                with client.as_current():
                    finished = wait(list(job_indices), timeout=POLL_S, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                continue
            for future in finished:
                index = job_indices.pop(future)
                yield index, _write_finished_job(future, jobs[index], folder)
    finally:
        client.cancel(list(job_indices), force=True)


def _train_on_dask(job: Job) -> list[Outcome]:
    """Train the runs of a job on a dask worker."""
    code = code_version()
    if code != job[0].code:
        raise SynclineError(f"a dask worker has another version of the code: {code}; here it is {job[0].code}")
    with _TRAINING_LOCK:
        outcomes = train_and_time_runs(job)
    assert outcomes is not None  # only a user's interrupt makes it None
    return outcomes


def _write_finished_job(future: Any, job: Job, folder: Path) -> dict[str, str]:
    """Write the folders of a job's runs that ended on dask; return the errors, by name, of runs without a folder."""
    error = future.exception()
    if isinstance(error, SynclineError):
        raise error
    if error is not None:
        has_killed_workers = type(error).__name__ == "KilledWorker"  # dask has tried it on several workers
        message = PROCESS_DIED if has_killed_workers else f"dask: {' '.join(str(error).split())}"
        return {run.name: message for run in job}
    outcomes = future.result()
    for outcome in outcomes:
        write_run(folder, outcome)
    return errors_without_folder(outcomes)
