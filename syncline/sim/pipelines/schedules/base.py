"""What a schedule is: a list of tasks per stage; and what several of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from syncline.costmodel.network.paths import Ints

Kind = Literal["forward", "backward", "weight"]
"""Forward; backward (the whole of it, or in a split one the gradient of the input); gradient of the weights."""
TASK_KINDS: tuple[Kind, ...] = ("forward", "backward", "weight")


class PipelineTask(NamedTuple):
    """One micro-batch through one chunk of one stage, one way."""

    kind: Kind
    microbatch: int
    chunk: int = 0


Order = list[PipelineTask]
"""What a stage runs, first to last."""


class Schedule(NamedTuple):
    """How the stages of a pipeline take turns.

    Attributes:
        name: how the field calls it.
        orders: per stage, from the first to the last: lists of tasks, or `Orders`; empty for one whose order depends
            on timing.
        microbatches: M.
        chunks: v, parts of the model per stage.
        splits_backward: whether weight gradients are tasks of their own.
        updates: ``flush``: one update after the last micro-batch; ``every``: one per micro-batch, at once.
        limits: per stage, the most micro-batches that may be between forward and backward; only where the order
            depends on timing.
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
        """What each micro-batch passes at each stage, in this order."""
        return TASK_KINDS if self.splits_backward else TASK_KINDS[:2]

    @property
    def released_by(self) -> Kind:
        """The last of them, after which an activation is not needed any more."""
        return self.kinds[-1]


@dataclass(frozen=True)
class ScheduleKind:
    """A schedule that can be named.

    Args:
        build: of ``(stages, microbatches)``, and of ``chunks`` or ``in_flight`` where it takes them.
        takes_chunks: whether a stage has several parts of the model, 2 unless more are given.
        takes_limits: whether an in-flight limit makes another schedule of it.
        fixed_order: whether its orders are known before; a limit ahead of its usual place only waits then.
    """

    build: Callable[..., Schedule]
    takes_chunks: bool = False
    takes_limits: bool = False
    fixed_order: bool = True


def usual_limits(stages: int) -> range:
    """K - k at stage k from 0: no less lets stage k be busy while its first micro-batch goes to the end and back."""
    return range(stages, 0, -1)


def alternating(forwards: Ints, backwards: Ints, ahead: int) -> Ints:
    """``ahead`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    count = len(forwards)
    ahead = min(ahead, count)
    pairs = np.stack([forwards[ahead:], backwards[: count - ahead]], axis=1)
    return np.concatenate([forwards[:ahead], pairs.ravel(), backwards[count - ahead :]])


def source_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """The stage whose output a task waits for; None if it needs none from another stage."""
    return _beside(task, stage, stages, chunks, {"forward": -1, "backward": 1})


def target_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """The stage that waits for a task's output; None if no other does."""
    return _beside(task, stage, stages, chunks, {"forward": 1, "backward": -1})


def _beside(task: PipelineTask, stage: int, stages: int, chunks: int, ways: dict[Kind, int]) -> int | None:
    """The stage of the model's part that lies a step away, by kind; weight gradients stay where they are."""
    part = task.chunk * stages + stage + ways.get(task.kind, 0)
    inside = 0 <= part < chunks * stages
    return part % stages if task.kind in ways and inside and stages > 1 else None
