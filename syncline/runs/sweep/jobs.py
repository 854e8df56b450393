"""The work of a sweep: jobs of runs that share a training, in processes of this machine or on a dask cluster.

Each run is trained, timed and written into a folder, which exists only when it is complete. Workers of a dask cluster
return their results, and this process writes the folders.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Outcome:
    """The files that a finished or failed run leaves.

    Args:
        name: name of the run's folder.
        files: content of each file; empty if a later sweep should repeat the run.
        error: one line with the reason of a failure; None without a failure.
    """

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    error: str | None = None


def outcomes(runs: Sequence[SweptRun], on_step: Callable[[int], None] | None = None) -> list[Outcome] | None:
    """Train once, time every run, and return the files of all runs; return None if the training was interrupted.

    Args:
        runs: runs that share one training.
        on_step: function that is called now and then with the number of completed steps; it may raise
            ``KeyboardInterrupt``.
    """
    first = runs[0].spec
    try:
        trained = train_and_time.train_method(first, first.method, on_step)
    except Exception as error:
        if len(runs) > 1 and isinstance(error, SpecError) and error.path.startswith("compute"):
            results: list[Outcome] = []
            for run in runs:  # the error is about fields of the clock, in which the runs differ: train each run alone
                run_outcomes = outcomes([run], on_step)
                if run_outcomes is None:
                    return None
                results += run_outcomes
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
        pq.write_table(table.cast(described(table.schema, name)), target)
        files[name] = target.getvalue()
    results = []
    for run in runs:
        try:
            timing = train_and_time.time_with_bounds(run.spec, trained, run.spec.network, run.measured)
        except Exception as error:
            results.append(_failure(run, error))
            continue
        (record,) = run_records(trained, timing and timing.clock, run.spec.network, run.spec.workers)
        record |= timing.bounds() if timing else {}
        content = {
            "code": run.code, "wall_s": trained.wall_s, "problem": trained.facts, "row": record, "error": None,
        }  # fmt: skip
        results.append(Outcome(run.name, _described(run, content) | files))
    return results


def _failure(run: SweptRun, error: Exception) -> Outcome:
    """Return the files of a failed run; without files if memory or disk caused the failure, so that it is repeated."""
    line = " ".join(str(error).split()) if isinstance(error, SynclineError) else error_text(error)
    if is_out_of_memory(error) or isinstance(error, OSError):
        return Outcome(run.name, error=line)
    content: dict[str, Any] = {"code": run.code, "row": run.row_without_result(), "error": line}
    if not isinstance(error, SynclineError):
        content["traceback"] = "".join(traceback.format_exception(error))
    return Outcome(run.name, _described(run, content), line)


def _described(run: SweptRun, content: dict[str, Any]) -> dict[str, bytes]:
    """Return the files ``spec.yaml`` and ``run.json``; PyYAML's C dumper is four times as fast as its Python dumper."""
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    spec_fields = run.spec.model_dump(mode="json")
    spec = str(yaml.dump(spec_fields, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))
    return {"spec.yaml": spec.encode(), "run.json": json_text(content).encode()}


def begin_run(runs: Path, name: str) -> Path:
    """Make an unfinished folder for a run, whose name has the id of this process, and return its path."""
    working = runs / f".{name}.partial-{os.getpid()}"
    working.mkdir(exist_ok=True)
    return working


def write_run(runs: Path, outcome: Outcome, working: Path | None = None) -> None:
    """Write the folder of a run into ``runs``, unless the outcome has no files.

    ``working`` is an unfinished folder that `begin_run` has made; without one, a new one is made.
    """
    if outcome.files:
        working = working or begin_run(runs, outcome.name)
        for name, content in outcome.files.items():
            (working / name).write_bytes(content)
        write_manifest(working)
        if read_run(runs, outcome.name) is None:
            shutil.rmtree(runs / outcome.name, ignore_errors=True)  # a user has deleted files in it
            working.rename(runs / outcome.name)
            return
    if working is not None:
        shutil.rmtree(working, ignore_errors=True)


DIED = "its process was ended from outside, as a system does that is out of memory; with fewer --jobs less is needed"


Job = tuple[SweptRun, ...]
"""Runs that share one training and differ only in fields of the clock."""

Done = tuple[int, dict[str, str]]
"""The index of a finished job, and the errors, by name, of its runs that left no folder."""


def run_jobs(jobs: Sequence[Job], folder: Path, processes: int | None, progress: SharedProgress) -> Iterator[Done]:
    """Run jobs in several processes of this machine, write their folders, and yield each job as it finishes.

    Jobs that did not start before a stop yield nothing. If a process is killed from outside, all running jobs end with
    it. These jobs are then repeated one by one, so that a job that kills its process is found, and counts as failed.

    Args:
        folder: folder of the runs' folders.
        processes: number of processes; one per core if None.
    """
    remaining = dict(enumerate(jobs))
    while remaining and not progress.stopped:
        calls = [partial(_carry_out, number, job, folder, progress) for number, job in remaining.items()]
        problems = [job[0].spec.problem for job in remaining.values()]
        try:
            for outcomes_of_job in stoppable_results(
                calls, min(processes or cpu_count(), len(calls)), progress, shared=problems
            ):
                del remaining[outcomes_of_job[0]]
                yield outcomes_of_job
            return
        except BrokenProcessPool:
            suspects = [number for number, job in remaining.items() if _was_begun(folder, job)]
        for number in suspects:
            if progress.stopped:
                return
            try:
                call = partial(_carry_out, number, remaining[number], folder, progress)
                yield from stoppable_results([call], 2, progress)
            except BrokenProcessPool:
                _was_begun(folder, remaining[number])
                yield number, {run.name: DIED for run in remaining[number]}
            del remaining[number]


def _carry_out(number: int, job: Job, folder: Path, progress: SharedProgress) -> Done | None:
    """Train, time and write the runs of a job; return None if it was interrupted.

    If this process dies meanwhile, the unfinished folder of the first run shows that the job was running.
    """
    working = begin_run(folder, job[0].name)
    try:
        results = outcomes(job, progress.reporter(number))
        for outcome in results or ():
            write_run(folder, outcome, working if outcome is results[0] else None)  # type: ignore[index]
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return None if results is None else (number, errors_of(results))


def errors_of(results: Sequence[Outcome]) -> dict[str, str]:
    """Return the errors, by name, of runs that left no folder."""
    return {outcome.name: outcome.error for outcome in results if outcome.error and not outcome.files}


def _was_begun(folder: Path, job: Job) -> bool:
    """Return whether another process began a job and did not finish it; remove the unfinished folders."""
    own_name = f".{job[0].name}.partial-{os.getpid()}"
    leftovers = [path for path in folder.glob(f".{job[0].name}.partial-*") if path.name != own_name]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return bool(leftovers)


class Allowance:
    """A limit on the trainings of a sweep that may still start, by their number or by time.

    Trainings that have started are finished. Under a time limit no training starts that would end too late if it took
    as long as the longest so far; the first one always starts.

    Args:
        max_trainings: largest number of trainings; no limit if None.
        time_s: seconds from now on in which trainings may run; no limit if None.
        now: function that returns the seconds of a monotonic clock.

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
        self._left, self._now, self._end_s = max_trainings, now, None if time_s is None else now() + time_s
        self._begun_s: float | None = None
        self._longest_s = 0.0
        self.spent = False

    def grant(self, requested: int, side_by_side: int) -> int:
        """Return how many of the requested trainings may start now, with ``side_by_side`` of them at a time.

        The next call must come when these trainings have ended.
        """
        number = requested if self._left is None else min(requested, self._left)
        if self._end_s is not None:  # start what runs at once, if it is over in time even if it takes the longest yet
            now_s = self._now()
            if self._begun_s is not None:
                self._longest_s = max(self._longest_s, now_s - self._begun_s)
            fits = self._begun_s is None or now_s + self._longest_s <= self._end_s
            number = min(number, side_by_side) if fits else 0
            self._begun_s = now_s
        if self._left is not None:
            self._left -= number
        self.spent = self.spent or (requested > 0 and number == 0)
        return number

    def grant_one(self, longest_s: float) -> bool:
        """Return whether one training may start now beside others, if a training takes ``longest_s`` seconds."""
        ends_too_late = self._end_s is not None and self._now() + longest_s > self._end_s
        if ends_too_late or self._left == 0:
            self.spent = True
            return False
        self._left = None if self._left is None else self._left - 1
        return True


POLL_S = 0.2
"""Seconds between checks for a stop."""

PATIENCE_S = 30.0
"""Seconds to wait for a scheduler's answer."""

_ONE_AT_A_TIME = threading.Lock()
"""Lock that lets a dask worker of several threads train in one of them.

Torch's threads, on which the bits of a result depend, belong to the whole process.
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
    except (OSError, ValueError, TimeoutError, AssertionError) as error:  # AssertionError: its thread started too late
        message = " ".join(str(error).split()) or "no answer"
        raise SpecError("--dask", address, f"the address of a scheduler, as tcp://127.0.0.1:8786 ({message})") from None


def run_jobs_on_dask(jobs: Sequence[Job], folder: Path, client: Any, progress: SharedProgress) -> Iterator[Done]:
    """Run jobs on the workers of a dask cluster, write their folders here, and yield each job as it finishes.

    If a worker dies, dask starts its job on another worker.

    Raises:
        SynclineError: a worker has another version of the code.
    """
    from distributed import wait

    sweep_id = uuid.uuid4().hex  # so that the same job of another sweep is a different task
    futures = {
        client.submit(_train, job, pure=False, key=f"syncline-{job[0].name}-{sweep_id}"): number
        for number, job in enumerate(jobs)
    }
    try:
        while futures and not progress.stopped:
            try:
                with client.as_current():
                    finished = wait(list(futures), timeout=POLL_S, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                continue
            for future in finished:
                number = futures.pop(future)
                yield number, _written(future, jobs[number], folder)
    finally:
        client.cancel(list(futures), force=True)


def _train(job: Job) -> list[Outcome]:
    """Train the runs of a job on a dask worker."""
    code = code_version()
    if code != job[0].code:
        raise SynclineError(f"a dask worker has another version of the code: {code}; here it is {job[0].code}")
    with _ONE_AT_A_TIME:
        results = outcomes(job)
    assert results is not None  # no user interrupts it
    return results


def _written(future: Any, job: Job, folder: Path) -> dict[str, str]:
    """Write the result folders of a job that has ended on dask; return the error of each run without one, by name."""
    error = future.exception()
    if isinstance(error, SynclineError):
        raise error
    if error is not None:
        message = DIED if type(error).__name__ == "KilledWorker" else f"dask: {' '.join(str(error).split())}"
        return {run.name: message for run in job}
    results = future.result()
    for outcome in results:
        write_run(folder, outcome)
    return errors_of(results)
