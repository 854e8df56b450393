"""The definition of a schedule, a list of tasks per stage, and functions that several schedules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from syncline.costmodel.network.paths import Ints

Kind = Literal["forward", "backward", "weight"]
"""Forward; backward (complete, or only the gradient of the input if split); gradient of the weights."""

TASK_KINDS: tuple[Kind, ...] = ("forward", "backward", "weight")


class PipelineTask(NamedTuple):
    """The forward, backward or weight gradient of one micro-batch in one chunk of a stage."""

    kind: Kind
    microbatch: int
    chunk: int = 0


Order = list[PipelineTask]
"""The tasks of a stage, first to last."""


class Schedule(NamedTuple):
    """The order of tasks of a pipeline's stages.

    Attributes:
        name: usual name in the literature.
        orders: the tasks of each stage in order, as lists or as `Orders`; empty for a schedule whose order depends on
            timing.
        microbatches: M, number of micro-batches.
        chunks: v, parts of the model per stage.
        splits_backward: whether weight gradients are tasks of their own.
        updates: ``flush``: one update after the last micro-batch; ``every``: one per micro-batch, at once.
        limits: per stage, the largest number of micro-batches between forward and backward; only if the order depends
            on timing.
    """

    name: str
    orders: Sequence[Order]
    microbatches: int
    chunks: int = 1
    splits_backward: bool = False
    updates: Literal["flush", "every"] = "flush"
    limits: tuple[int, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of tasks of each micro-batch at each stage, in order."""
        return TASK_KINDS if self.splits_backward else TASK_KINDS[:2]

    @property
    def flushes(self) -> bool:
        """Return whether the pipeline runs empty after the last micro-batch, before an update."""
        return self.updates == "flush" and len(self.orders) > 0

    @property
    def released_by(self) -> Kind:
        """Return the last kind of task, after which an activation is not needed any more."""
        return self.kinds[-1]


@dataclass(frozen=True)
class ScheduleKind:
    """A schedule that a spec can name.

    Args:
        build: function of ``(stages, microbatches)``, and of ``chunks`` or ``max_in_flight`` if the schedule takes
            them.
        takes_chunks: whether a stage has several parts of the model, by default two.
        takes_limits: whether an in-flight limit changes the schedule.
        fixed_order: whether the orders are known before the simulation; a limit above the usual limit then changes
            nothing.
    """

    build: Callable[..., Schedule]
    takes_chunks: bool = False
    takes_limits: bool = False
    fixed_order: bool = True


def usual_limits(stages: int) -> range:
    """Return the usual in-flight limit of each of K stages: K - k for stage k, from 0.

    This is the smallest limit with which stage k stays busy while its first micro-batch goes to the end and back.
    """
    return range(stages, 0, -1)


def alternating(forwards: Ints, backwards: Ints, ahead: int) -> Ints:
    """Return task numbers: ``ahead`` forwards, then a forward and a backward in turn, then the remaining backwards."""
    count = len(forwards)
    ahead = min(ahead, count)
    pairs = np.stack([forwards[ahead:], backwards[: count - ahead]], axis=1)
    return np.concatenate([forwards[:ahead], pairs.ravel(), backwards[count - ahead :]])


def source_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """Return the stage whose output a task of ``stage`` waits for; None if its input is not from another stage."""
    return _neighbour_stage(task, stage, stages, chunks, {"forward": -1, "backward": 1})


def target_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """Return the stage that waits for the output of a task of ``stage``; None if no other stage does."""
    return _neighbour_stage(task, stage, stages, chunks, {"forward": 1, "backward": -1})


def _neighbour_stage(
    task: PipelineTask, stage: int, stages: int, chunks: int, directions: dict[Kind, int]
) -> int | None:
    """Return the stage of the neighbouring part of the model; None for weight gradients and at the model's ends.

    ``directions`` has 1 for the part after or -1 for the part before, by kind of task.
    """
    part = task.chunk * stages + stage + directions.get(task.kind, 0)
    is_part = 0 <= part < chunks * stages
    return part % stages if task.kind in directions and is_part and stages > 1 else None
