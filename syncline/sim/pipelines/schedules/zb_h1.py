"""A schedule with hardly a bubble: ZB-H1."""

from __future__ import annotations

from syncline.sim.pipelines.schedules.base import Order, PipelineTask, Schedule, ScheduleKind
from syncline.sim.pipelines.schedules.one_f_one_b import one_f_one_b


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """1F1B whose backward is split: stage k's weight gradients follow k backwards late, into what would be the bubble.

    No stage holds more micro-batches than the first one of 1F1B does.

    Source: P. Qi, X. Wan, G. Huang, M. Lin, "Zero Bubble Pipeline Parallelism" (2023), section 2.2 (ZB-H1).
    """
    orders = []
    for stage, order in enumerate(one_f_one_b(stages, microbatches).orders):
        split: Order = []
        for task in order:
            split.append(task)
            if task.kind == "backward" and task.microbatch >= stage:
                split.append(PipelineTask("weight", task.microbatch - stage))
        late = range(max(0, microbatches - stage), microbatches)
        orders.append(split + [PipelineTask("weight", i) for i in late])
    return Schedule("zb-h1", orders, microbatches, splits_backward=True)


ZB_H1 = ScheduleKind(zb_h1)
