"""The greedy schedule: each stage runs the first task that can run."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.sim.pipelines.schedules.base import Schedule, ScheduleKind, usual_limits


def greedy(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Whatever can run first: a backward if its input is there, else a forward unless as many as may are in flight.

    At most K - k are at stage k, unless ``max_in_flight`` says otherwise. Each backward is followed by an update, as in
    `async_one_f_one_b`, whose order this is if stages are even and links take no time.
    """
    limits = tuple(usual_limits(stages) if max_in_flight is None else max_in_flight)
    return Schedule("greedy", [], microbatches, updates="every", limits=limits)


GREEDY = ScheduleKind(greedy, takes_limits=True, fixed_order=False)
