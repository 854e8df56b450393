"""The schedules 1F1B, which flushes, and PipeDream, which does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.sim.pipelines.schedules.base import Schedule, ScheduleKind, alternating, usual_limits
from syncline.sim.pipelines.schedules.orders import Numbering, Orders


def one_f_one_b(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """n - 1 forwards at a stage with the limit n, then a forward and a backward in turn, then the remaining backwards.

    At most n micro-batches are in flight: K - k at stage k, unless ``max_in_flight`` gives the limit of each stage.

    Source: D. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (2021), PipeDream-Flush.

    >>> [f"{task.kind[0]}{task.microbatch}" for task in one_f_one_b(2, 3).orders[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    tasks = Numbering(microbatches)
    forwards, backwards = tasks.all("forward"), tasks.all("backward")
    limits = usual_limits(stages) if max_in_flight is None else max_in_flight
    orders = [alternating(forwards, backwards, limit - 1) for limit in limits]
    return Schedule("1f1b", Orders(np.stack(orders), tasks), microbatches)


def async_one_f_one_b(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """1F1B that never flushes: each stage updates its weights after each backward, and goes on with the next forward.

    Source: D. Narayanan et al., "PipeDream" (2019), section 3.2.
    """
    return one_f_one_b(stages, microbatches, max_in_flight)._replace(name="async-1f1b", updates="every")


ONE_F_ONE_B = ScheduleKind(one_f_one_b, takes_limits=True)
ASYNC_ONE_F_ONE_B = ScheduleKind(async_one_f_one_b, takes_limits=True)
