"""The GPipe schedule: all forwards, then all backwards."""

from __future__ import annotations

import numpy as np

from syncline.sim.pipelines.schedules.base import Schedule, ScheduleKind
from syncline.sim.pipelines.schedules.orders import Numbering, Orders


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards, in the same order of micro-batches.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3.
    """
    tasks = Numbering(microbatches)
    order = np.concatenate([tasks.all("forward"), tasks.all("backward")])
    return Schedule("gpipe", Orders(np.broadcast_to(order, (stages, len(order))), tasks), microbatches)


GPIPE = ScheduleKind(gpipe)
