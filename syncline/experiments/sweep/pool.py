"""Jobs in this process or in several of this machine. What is finished is on disk before anybody is told of it."""

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

from syncline.experiments.overseen import overseen
from syncline.experiments.shared_progress import SharedProgress, in_processes
from syncline.experiments.sweep.runs import Outcome, SweptRun, begin, outcomes, write

if TYPE_CHECKING:
    from syncline.problems import Problem

DIED = "its process was ended from outside, as a system does that is out of memory; with fewer --jobs less is needed"


@dataclass(frozen=True)
class Job:
    """Runs of one training, which differ in what the clock sees alone."""

    runs: tuple[SweptRun, ...]

    @property
    def steps(self) -> int:
        """Of the training."""
        return self.runs[0].spec.steps


Done = tuple[int, dict[str, str]]
"""The number of a job that is done, and the errors of those of its runs that are to be tried again, by name."""


def carried_out(jobs: Sequence[Job], folder: Path, processes: int | None, progress: SharedProgress) -> Iterator[Done]:
    """Jobs as they are finished, each written to ``folder``; those that a stop came before are left out.

    If a process is ended from outside, all that were at work end with it. What they were at is then begun again one by
    one, each in a process of its own, so that one that takes its process along is found and told as failed.
    """
    left = dict(enumerate(jobs))
    while left and not progress.stopped:
        calls = [partial(_carry_out, number, job, folder, progress) for number, job in left.items()]
        problems = [job.runs[0].spec.problem for job in left.values()]
        try:
            for done in _as_finished(calls, problems, min(processes or cpu_count(), len(calls)), progress):
                del left[done[0]]
                yield done
            return
        except BrokenProcessPool:
            suspects = [number for number, job in left.items() if _was_begun(folder, job)]
        for number in suspects:
            if progress.stopped:
                return
            try:
                call = partial(_carry_out, number, left[number], folder, progress)
                yield from _as_finished([call], (), 2, progress)
            except BrokenProcessPool:
                _was_begun(folder, left[number])
                yield number, {run.name: DIED for run in left[number].runs}
            del left[number]


def _as_finished(
    calls: Sequence[Callable[[], Done | None]], problems: Sequence[Problem], processes: int, progress: SharedProgress
) -> Iterator[Done]:
    try:
        if processes == 1:
            for call in calls:
                done = overseen(call, progress)
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
    """Train, time, write. The first run's working folder tells what was under way, should this process die."""
    working = begin(folder, job.runs[0].name)
    try:
        made = outcomes(job.runs, progress.reporter(number))
        for outcome in made or ():
            write(folder, outcome, working if outcome is made[0] else None)  # type: ignore[index]
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return None if made is None else (number, errors_of(made))


def errors_of(made: Sequence[Outcome]) -> dict[str, str]:
    """Errors of what left no folder."""
    return {one.name: one.error for one in made if one.error and not one.files}


def _was_begun(folder: Path, job: Job) -> bool:
    """Whether a process that is dead was at it; what it left is removed."""
    here = f".{job.runs[0].name}.partial-{os.getpid()}"
    left = [path for path in folder.glob(f".{job.runs[0].name}.partial-*") if path.name != here]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return bool(left)
