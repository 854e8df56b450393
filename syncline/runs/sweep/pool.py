"""Jobs in this process or in several of this machine. Results are on disk before any listener receives them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from joblib import cpu_count

from syncline.runs.processes.shared_progress import SharedProgress, in_processes, run_stoppable
from syncline.runs.sweep.runs import Outcome, SweptRun, begin, outcomes, write

if TYPE_CHECKING:
    from syncline.problems import Problem

DIED = "its process was ended from outside, as a system does that is out of memory; with fewer --jobs less is needed"


@dataclass(frozen=True)
class Job:
    """Runs that share one training and differ only in fields of the clock."""

    runs: tuple[SweptRun, ...]

    @property
    def steps(self) -> int:
        """Return the number of steps of the training."""
        return self.runs[0].spec.steps


Done = tuple[int, dict[str, str]]
"""The number of a finished job, and by name the errors of its runs that a later sweep should repeat."""


def run_jobs(jobs: Sequence[Job], folder: Path, processes: int | None, progress: SharedProgress) -> Iterator[Done]:
    """Yield jobs as they finish, each written to ``folder``; jobs that were not started before a stop are left out.

    If a process is killed from outside, all running jobs end with it. These jobs are then repeated one by one, each in
    a separate process, so that a job that kills its process is identified and reported as failed.
    """
    remaining = dict(enumerate(jobs))
    while remaining and not progress.stopped:
        calls = [partial(_carry_out, number, job, folder, progress) for number, job in remaining.items()]
        problems = [job.runs[0].spec.problem for job in remaining.values()]
        try:
            for done in _as_finished(calls, problems, min(processes or cpu_count(), len(calls)), progress):
                del remaining[done[0]]
                yield done
            return
        except BrokenProcessPool:
            suspects = [number for number, job in remaining.items() if _was_begun(folder, job)]
        for number in suspects:
            if progress.stopped:
                return
            try:
                call = partial(_carry_out, number, remaining[number], folder, progress)
                yield from _as_finished([call], (), 2, progress)
            except BrokenProcessPool:
                _was_begun(folder, remaining[number])
                yield number, {run.name: DIED for run in remaining[number].runs}
            del remaining[number]


def _as_finished(
    calls: Sequence[Callable[[], Done | None]], problems: Sequence[Problem], processes: int, progress: SharedProgress
) -> Iterator[Done]:
    try:
        if processes == 1:
            for call in calls:
                done = run_stoppable(call, progress)
                if done is not None:
                    yield done
            return
        results = in_processes(calls, processes, progress, problems)
        yield from (done for done in results if done is not None)
    except BrokenProcessPool:
        raise
    except BaseException:
        progress.stop()
        raise


def _carry_out(number: int, job: Job, folder: Path, progress: SharedProgress) -> Done | None:
    """Train, time and write a job. If this process dies, the first run's working folder shows that it ran."""
    working = begin(folder, job.runs[0].name)
    try:
        results = outcomes(job.runs, progress.reporter(number))
        for outcome in results or ():
            write(folder, outcome, working if outcome is results[0] else None)  # type: ignore[index]
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return None if results is None else (number, errors_of(results))


def errors_of(results: Sequence[Outcome]) -> dict[str, str]:
    """Return the errors of the results without a folder."""
    return {outcome.name: outcome.error for outcome in results if outcome.error and not outcome.files}


def _was_begun(folder: Path, job: Job) -> bool:
    """Return whether a dead process was running the job, and remove the files that it left."""
    own_name = f".{job.runs[0].name}.partial-{os.getpid()}"
    leftovers = [path for path in folder.glob(f".{job.runs[0].name}.partial-*") if path.name != own_name]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return bool(leftovers)
