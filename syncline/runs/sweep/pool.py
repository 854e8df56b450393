"""Trainings of a sweep in this process or in several of this machine, and the limit on how many start.

Results are on disk before any listener receives them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from joblib import cpu_count

from syncline.errors import SpecError
from syncline.runs.processes.shared_progress import SharedProgress, stoppable_results
from syncline.runs.sweep.folder import SweptRun
from syncline.runs.sweep.runs import Outcome, begin, outcomes, write

DIED = "its process was ended from outside, as a system does that is out of memory; with fewer --jobs less is needed"


Job = tuple[SweptRun, ...]
"""Runs that share one training and differ only in fields of the clock."""

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
        problems = [job[0].spec.problem for job in remaining.values()]
        try:
            for done in stoppable_results(calls, min(processes or cpu_count(), len(calls)), progress, problems):
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
                yield from stoppable_results([call], 2, progress)
            except BrokenProcessPool:
                _was_begun(folder, remaining[number])
                yield number, {run.name: DIED for run in remaining[number]}
            del remaining[number]


def _carry_out(number: int, job: Job, folder: Path, progress: SharedProgress) -> Done | None:
    """Train, time and write a job. If this process dies, the first run's working folder shows that it ran."""
    working = begin(folder, job[0].name)
    try:
        results = outcomes(job, progress.reporter(number))
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
    own_name = f".{job[0].name}.partial-{os.getpid()}"
    leftovers = [path for path in folder.glob(f".{job[0].name}.partial-*") if path.name != own_name]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return bool(leftovers)


class Allowance:
    """A limit on the trainings that may still start; without a limit all may.

    A training that has started is finished. Under a time limit no training starts that would end after the limit if it
    took as long as the longest so far; the first one always starts.

    Args:
        max_trainings: number of trainings.
        time_s: seconds of this process, from now on.
        now: function that gives the seconds of a monotonic clock.

    Attributes:
        spent: whether a request was refused.

    Raises:
        SpecError: the limit allows no training.
    """

    def __init__(
        self, max_trainings: int | None = None, time_s: float | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        if max_trainings is not None and max_trainings < 1:
            raise SpecError("--most", max_trainings, "at least 1 training")
        if time_s is not None and not time_s > 0:
            raise SpecError("--for", time_s, "a time above 0, as in 10min")
        self._left, self._now, self._end_s = max_trainings, now, None if time_s is None else now() + time_s
        self._begun_s: float | None = None
        self._longest_s = 0.0
        self.spent = False

    def grant(self, requested: int, side_by_side: int) -> int:
        """Return how many of the requested trainings may start now; call it again when they are done."""
        number = requested if self._left is None else min(requested, self._left)
        if self._end_s is not None:
            now_s = self._now()
            if self._begun_s is not None:
                self._longest_s = max(self._longest_s, now_s - self._begun_s)
            fits = self._begun_s is None or now_s + self._longest_s <= self._end_s
            number, self._begun_s = min(number, side_by_side) if fits else 0, now_s
        if self._left is not None:
            self._left -= number
        self.spent = self.spent or (requested > 0 and number == 0)
        return number
