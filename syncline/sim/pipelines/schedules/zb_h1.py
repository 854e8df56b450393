"""The ZB-H1 schedule, which has hardly a bubble."""

from __future__ import annotations

import numpy as np

from syncline.sim.pipelines.schedules.base import Schedule, ScheduleKind
from syncline.sim.pipelines.schedules.one_f_one_b import one_f_one_b
from syncline.sim.pipelines.schedules.orders import Numbering, Orders


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """1F1B whose backward is split: stage k's weight gradients follow k backwards late, into what would be the bubble.

    No stage holds more micro-batches than the first one of 1F1B does.

    Source: P. Qi, X. Wan, G. Huang, M. Lin, "Zero Bubble Pipeline Parallelism" (2023), section 2.2 (ZB-H1).
    """
    tasks, orders = Numbering(microbatches), []
    weights, first_backward = tasks.all("weight"), tasks.all("backward")[0]
    for stage, order in enumerate(Orders.from_lists(one_f_one_b(stages, microbatches).orders, tasks).numbers):
        followed = np.flatnonzero(order >= first_backward + stage)  # by the weight gradient of an earlier backward
        split = np.insert(order, followed + 1, weights[: len(followed)])
        orders.append(np.concatenate([split, weights[len(followed) :]]))
    return Schedule("zb-h1", Orders(np.stack(orders), tasks), microbatches, splits_backward=True)


ZB_H1 = ScheduleKind(zb_h1)
