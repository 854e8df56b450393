"""1F1B over stages that differ, for many pipelines at once: the recurrence of its order.

    start(task) = max(end of the stage's task before, end of the task that it takes its input from + send)

This is what `syncline.sim.run_pipeline` plays where a message takes a time of its own and blocks nobody.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.errors import SpecError


class _Task(NamedTuple):
    backward: bool
    stage: int
    microbatch: int

    def source(self, stages: int) -> _Task | None:
        """Whose output it takes; of the last stage's backward, which follows its forward, nobody else's."""
        stage = self.stage + (1 if self.backward else -1)
        return self._replace(stage=stage) if 0 <= stage < stages else None


def one_f_one_b_s(
    forward_s: ArrayLike, backward_s: ArrayLike, microbatches: int, send_s: FloatOrArray = 0.0
) -> NDArray[np.float64]:
    """When each stage is through with its last backward, in seconds, ``(K, ...)``.

    Args:
        forward_s: of a micro-batch at each stage, ``(K, ...)``; what follows the stages are pipelines side by side.
        backward_s: likewise.
        microbatches: M, at least 1.
        send_s: that a micro-batch, or its gradient, is under way to the next stage; broadcasts to ``(...)``.

    Raises:
        SpecError: no stage, no micro-batch, shapes that differ, or a negative time.

    Source: as in `syncline.sim.pipelines.schedules.one_f_one_b`.

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
    through = np.zeros(forward.shape)
    ends: dict[_Task, NDArray[Any]] = {}
    for task in _order(forward.shape[0], microbatches):
        source = task.source(forward.shape[0])
        free = through[task.stage]
        start = free if source is None else np.maximum(free, ends.pop(source) + send_s)
        end = start + (backward if task.backward else forward)[task.stage]
        through[task.stage] = ends[task] = end
    return through


@lru_cache(maxsize=256)
def _order(stages: int, microbatches: int) -> tuple[_Task, ...]:
    """All tasks in an order in which each follows the one before it at its stage, and the one that it depends on."""
    todo = [_of_stage(stage, stages, microbatches) for stage in range(stages)]
    at, done = [0] * stages, set[_Task]()
    out: list[_Task] = []
    while len(out) < 2 * stages * microbatches:
        for stage in range(stages):
            while at[stage] < len(todo[stage]):
                task = todo[stage][at[stage]]
                source = task.source(stages)
                if source is not None and source not in done:
                    break
                done.add(task)
                out.append(task)
                at[stage] += 1
    return tuple(out)


def _of_stage(stage: int, stages: int, microbatches: int) -> list[_Task]:
    ahead = min(microbatches, stages - 1 - stage)
    order = [_Task(False, stage, i) for i in range(ahead)]
    for i in range(microbatches):
        if ahead + i < microbatches:
            order.append(_Task(False, stage, ahead + i))
        order.append(_Task(True, stage, i))
    return order
