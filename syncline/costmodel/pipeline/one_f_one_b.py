"""1F1B over unequal stages, for many pipelines at once, by a recurrence over its tasks.

    start(task) = max(end of the stage's previous task, end of the task that makes its input + send)

`syncline.sim.run_pipeline` simulates the same if a message takes a fixed time and blocks no other message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.errors import SpecError


class _Task(NamedTuple):
    """A forward or backward pass of a micro-batch at a stage."""

    backward: bool
    stage: int
    microbatch: int

    def source(self, stages: int) -> _Task | None:
        """Return the task whose output this task takes, or None for the first forward and the last stage's backward."""
        stage = self.stage + (1 if self.backward else -1)
        return self._replace(stage=stage) if 0 <= stage < stages else None


def one_f_one_b_s(
    forward_s: ArrayLike, backward_s: ArrayLike, microbatches: int, send_s: FloatOrArray = 0.0
) -> NDArray[np.float64]:
    """Return the end of the last backward pass of each of K stages, in seconds, ``(K, ...)``.

    Args:
        forward_s: forward seconds of a micro-batch at each stage, ``(K, ...)``; further axes are independent pipelines.
        backward_s: backward seconds of a micro-batch at each stage, ``(K, ...)``.
        microbatches: number of micro-batches, at least 1.
        send_s: seconds in which an activation or a gradient travels to the next stage; broadcasts to ``(...)``.

    Raises:
        SpecError: no stage, no micro-batch, different shapes, or a negative time.

    Source: see `syncline.sim.pipelines.schedules.kinds.one_f_one_b`.

    >>> one_f_one_b_s([1.0, 1.0], [2.0, 2.0], microbatches=3)  # the first stage ends at (M + K - 1)(F + B)
    array([12., 10.])
    >>> one_f_one_b_s([1.0, 3.0], [2.0, 4.0], microbatches=3, send_s=0.5)
    array([25. , 22.5])
    """
    forward, backward = np.asarray(forward_s, dtype=float), np.asarray(backward_s, dtype=float)
    if forward.ndim == 0 or forward.shape != backward.shape or not forward.shape[0]:
        raise SpecError("backward_s", backward.shape, "the shape of forward_s, with one stage at least in front")
    require(np.greater_equal(microbatches, 1), "microbatches", microbatches, "at least 1")
    for name, value in (("forward_s", forward), ("backward_s", backward), ("send_s", np.asarray(send_s))):
        require(np.asarray(value) >= 0, name, value, "seconds, at least 0")
    stage_end_s = np.zeros(forward.shape)
    task_end_s: dict[_Task, NDArray[Any]] = {}
    for task in _task_order(forward.shape[0], microbatches):
        source = task.source(forward.shape[0])
        start_s = stage_end_s[task.stage]
        if source is not None:
            start_s = np.maximum(start_s, task_end_s.pop(source) + send_s)
        stage_end_s[task.stage] = task_end_s[task] = start_s + (backward if task.backward else forward)[task.stage]
    return stage_end_s


@lru_cache(maxsize=256)
def _task_order(stages: int, microbatches: int) -> tuple[_Task, ...]:
    """Return all tasks in an order where each follows its stage's previous task and the task that makes its input."""
    stage_tasks = [_stage_tasks(stage, stages, microbatches) for stage in range(stages)]
    position, done = [0] * stages, set[_Task]()
    order: list[_Task] = []
    while len(order) < 2 * stages * microbatches:
        for stage in range(stages):
            while position[stage] < len(stage_tasks[stage]):
                task = stage_tasks[stage][position[stage]]
                source = task.source(stages)
                if source is not None and source not in done:
                    break
                done.add(task)
                order.append(task)
                position[stage] += 1
    return tuple(order)


def _stage_tasks(stage: int, stages: int, microbatches: int) -> list[_Task]:
    """Return the tasks of a stage in 1F1B's order: forwards to warm up, then a forward and a backward in turn."""
    warmup = min(microbatches, stages - 1 - stage)
    tasks = [_Task(False, stage, number) for number in range(warmup)]
    for number in range(microbatches):
        if warmup + number < microbatches:
            tasks.append(_Task(False, stage, warmup + number))
        tasks.append(_Task(True, stage, number))
    return tasks
