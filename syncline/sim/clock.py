"""The clock of a training: when each step ends, and what the time went into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.link import Link
from syncline.errors import SpecError, one_of
from syncline.sim.events import run_events
from syncline.sim.lockstep import Wave, timeline_of, waves
from syncline.sim.programs import Call, compute_times, data_parallel
from syncline.sim.timeline import Timeline
from syncline.sim.uplinks import Floats

EVALUATORS = ("auto", "events", "lockstep")


@dataclass(frozen=True, eq=False)
class Clock:
    """When the steps of a training end, and what the time went into.

    Args:
        step_end_s: when the last worker is through with each step, ``(T,)`` seconds.
        step_time_s: the mean, ``wall_s / T``.
        compute_s: seconds of computing, mean per step and worker.
        communication_s: seconds in a collective, mean per step and worker.
        exposed_communication_s: seconds waiting for the network with nothing to compute, mean per step and worker.
        bytes_per_worker: payload bytes that a worker hands to collectives, mean per step.
        wall_s: when the last worker is through with the last step.
        evaluator: ``events`` or ``lockstep``, whichever was used.
        timeline: the spans of the first steps.
    """

    step_end_s: Floats
    step_time_s: float
    compute_s: float
    communication_s: float
    exposed_communication_s: float
    bytes_per_worker: float
    wall_s: float
    evaluator: str
    timeline: Timeline


def clock(
    calls: Iterable[Call],
    compute_s: ArrayLike,
    links: Link | Sequence[Link],
    workers: int,
    steps: int,
    *,
    starts_s: ArrayLike | None = None,
    evaluator: str = "auto",
    keep_steps: int = 50,
) -> Clock:
    """The clock of data-parallel training without overlap.

    Args:
        calls: the collectives of the training.
        compute_s: seconds that each worker computes in each step, anything that broadcasts to ``(steps, workers)``.
        links: the link that every worker has, or one per worker.
        workers: P, at least 1.
        steps: T, at least 1.
        starts_s: when each worker begins, ``(P,)`` seconds; at 0 unless given.
        evaluator: ``events``; ``lockstep``; or ``auto``, which is lockstep, since such a training has no contention.
        keep_steps: of how many steps to keep the timeline.

    Raises:
        SpecError: an argument that cannot be used.
    """
    if evaluator not in EVALUATORS:
        raise SpecError("clock.evaluator", evaluator, one_of(EVALUATORS, str(evaluator)))
    for name, count in (("workers", workers), ("steps", steps)):
        if count < 1:
            raise SpecError(f"clock.{name}", count, "at least 1")
    try:
        times = compute_times(np.broadcast_to(np.asarray(compute_s, dtype=np.float64), (steps, workers)))
    except ValueError:
        raise SpecError("compute_s", np.shape(compute_s), f"a shape that broadcasts to ({steps}, {workers})") from None
    calls = list(calls)
    if evaluator == "events":
        tally = _tally_timeline(run_events(data_parallel(times, calls), links, starts_s), keep_steps)
    else:
        tally = _tally_waves(waves(times, calls, links, starts_s), steps, workers, keep_steps)
    wall_s = float(tally.step_end_s[-1])
    return Clock(
        step_end_s=tally.step_end_s,
        step_time_s=wall_s / steps,
        compute_s=tally.compute_s / (steps * workers),
        communication_s=tally.communication_s / (steps * workers),
        exposed_communication_s=tally.exposed_s / (steps * workers),
        bytes_per_worker=sum(call.nbytes for call in calls) / steps,
        wall_s=wall_s,
        evaluator="events" if evaluator == "events" else "lockstep",
        timeline=tally.timeline,
    )


class _Tally(NamedTuple):
    """What a clock needs to know of a history: sums over steps and workers, in seconds."""

    step_end_s: Floats
    compute_s: float
    communication_s: float
    exposed_s: float
    timeline: Timeline


def _tally_timeline(timeline: Timeline, keep_steps: int) -> _Tally:
    return _Tally(
        np.nanmax(timeline.step_end_s, axis=1),
        float(timeline.compute_s().sum()),
        float(timeline.communication_s().sum()),
        float(timeline.exposed_communication_s().sum()),
        timeline.head(keep_steps),
    )


def _tally_waves(history: Iterable[Wave], steps: int, workers: int, keep_steps: int) -> _Tally:
    """The same of a history that is not kept, but for its beginning. No overlap: all communication is exposed."""
    step_end_s, total_s = np.zeros(steps), {"compute": 0.0, "wait": 0.0}
    kept: list[Wave] = []
    for wave in history:
        if wave.step < keep_steps:
            kept.append(wave)
        if wave.stream == "compute":
            total_s[wave.what] += float((wave.end_s - wave.start_s).sum())
            step_end_s[wave.step] = wave.end_s.max()
    return _Tally(step_end_s, total_s["compute"], total_s["wait"], total_s["wait"], timeline_of(kept, workers))
