"""The tasks of pipelines: what a schedule is, and the orders of all stages as one array of task numbers.

With M micro-batches in v chunks, the task of micro-batch i has the number

    (kind v + chunk) M + i,    kind 0 for a forward, 1 for a backward, 2 for a weight gradient.

Code that reads a task from such an array gets a `PipelineTask`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Ints
from syncline.errors import SpecError

Kind = Literal["forward", "backward", "weight"]
"""Forward; backward (complete, or only the gradient of the input if split); gradient of the weights."""

TASK_KINDS: tuple[Kind, ...] = ("forward", "backward", "weight")


class PipelineTask(NamedTuple):
    """A forward, backward or weight-gradient task of a micro-batch in a chunk of a stage."""

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
        """Return the kinds of tasks of the schedule, in order: forward, backward, and weight gradients if split off."""
        return TASK_KINDS if self.splits_backward else TASK_KINDS[:2]

    @property
    def flushes(self) -> bool:
        """Return whether the pipeline runs empty after the last micro-batch, before an update."""
        return self.updates == "flush" and len(self.orders) > 0

    @property
    def released_by(self) -> Kind:
        """Return the kind of task after which an activation is not needed any more: the last of `kinds`."""
        return self.kinds[-1]


@dataclass(frozen=True)
class ScheduleKind:
    """A kind of schedule that specs can name: the function that builds the schedule, and the arguments it takes.

    Args:
        build: function of ``(stages, microbatches)``, and of ``chunks`` or ``max_in_flight`` if the schedule takes
            them.
        takes_chunks: whether a stage has several parts of the model, by default two.
        takes_limits: whether the schedule takes a limit on micro-batches in flight.
        fixed_order: whether the orders are known before the simulation; then a limit above the usual one is lowered.
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


def part_of(task: PipelineTask, stage: int, stages: int) -> int:
    """Return the index of the part of the model in which a task works: ``chunk * K + k`` at stage k of K."""
    return task.chunk * stages + stage


def source_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """Return the stage whose output a task of ``stage`` needs; None if the task needs no other stage's output."""
    return _neighbour(task, stage, stages, chunks, directions={"forward": -1, "backward": 1})


def target_stage(task: PipelineTask, stage: int, stages: int, chunks: int) -> int | None:
    """Return the stage that waits for the output of a task of ``stage``; None if no other stage does."""
    return _neighbour(task, stage, stages, chunks, directions={"forward": 1, "backward": -1})


def _neighbour(task: PipelineTask, stage: int, stages: int, chunks: int, directions: dict[Kind, int]) -> int | None:
    """Return the stage of the next or the previous part of the model; None if there is none, or for weight gradients.

    The model has ``chunks * stages`` parts; stage ``k`` holds the parts ``k``, ``k + stages``, and so on.
    ``directions`` has, by kind of task, 1 for the next part or -1 for the previous one.
    """
    if task.kind not in directions or stages == 1:
        return None
    neighbour_part = part_of(task, stage, stages) + directions[task.kind]
    return neighbour_part % stages if 0 <= neighbour_part < chunks * stages else None


class TaskNumbering(NamedTuple):
    """The numbers of the tasks of a stage: by kind, then chunk, then micro-batch, see the module."""

    microbatches: int
    chunks: int = 1

    def of_kind(self, kind: Kind, chunk: int = 0) -> Ints:
        """Return the numbers of a kind of task in a chunk for all M micro-batches, ``(M,)``."""
        block = TASK_KINDS.index(kind) * self.chunks + chunk
        return np.arange(block * self.microbatches, (block + 1) * self.microbatches, dtype=np.int32)

    def number(self, task: PipelineTask) -> int:
        """Return the number of a task."""
        block = TASK_KINDS.index(task.kind) * self.chunks + task.chunk
        return block * self.microbatches + task.microbatch

    def task(self, number: int) -> PipelineTask:
        """Return the task with this number."""
        block, microbatch = divmod(number, self.microbatches)
        kind, chunk = divmod(block, self.chunks)
        return PipelineTask(TASK_KINDS[kind], microbatch, chunk)


class Orders(Sequence[Order]):
    """The tasks of each stage, first to last: a sequence of lists of tasks, stored as numbers.

    Args:
        numbers: number of each task, ``(stages, tasks)``.
    """

    def __init__(self, numbers: NDArray[np.integer[Any]], numbering: TaskNumbering) -> None:
        self.numbers, self.numbering = numbers, numbering

    @classmethod
    def from_lists(cls, orders: Sequence[Order], numbering: TaskNumbering) -> Orders:
        """Return `Orders` from lists of each stage's tasks, all of the same length."""
        if isinstance(orders, Orders):
            return orders
        numbers = [[numbering.number(task) for task in order] for order in orders]
        return cls(np.array(numbers, dtype=np.int32), numbering)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, stage: int) -> Order: ...
    @overload
    def __getitem__(self, stage: slice) -> list[Order]: ...
    def __getitem__(self, stage: int | slice) -> Order | list[Order]:
        if isinstance(stage, slice):
            return [self[k] for k in range(*stage.indices(len(self)))]
        return [self.numbering.task(number) for number in self.numbers[stage].tolist()]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Orders):
            return self.numbering == other.numbering and np.array_equal(self.numbers, other.numbers)
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def repeated(self, times: int) -> Orders:
        """Return the orders of ``times`` flushes one after another, each with the next M micro-batches."""
        count = self.numbering.microbatches
        block, microbatch = np.divmod(self.numbers, count)  # the tasks of a kind and chunk are a block of numbers
        numbering = TaskNumbering(times * count, self.numbering.chunks)
        flushes = [block * numbering.microbatches + flush * count + microbatch for flush in range(times)]
        return Orders(np.concatenate(flushes, axis=1).astype(np.int32), numbering)

    def are_complete(self, num_kinds: int) -> bool:
        """Return whether each stage runs each task of the first ``num_kinds`` kinds once, in an order that can work.

        A forward comes before its backward, and this before its weight gradient.
        """
        count = num_kinds * self.numbering.microbatches * self.numbering.chunks
        if self.numbers.shape[1] != count:  # a task is missing, or comes twice
            return False
        position = np.full(self.numbers.shape, -1, dtype=np.int32)  # by task; -1: missing
        numbers = np.asarray(self.numbers, dtype=np.intp)
        np.put_along_axis(position, numbers, np.arange(count, dtype=np.int32)[None], axis=1)
        # By stage and kind: the positions of the tasks of this kind. They are numbered by kind first.
        by_kind = position.reshape(len(position), num_kinds, -1)
        return bool((position >= 0).all() and (by_kind[:, 1:] > by_kind[:, :-1]).all())


def repeated(schedule: Schedule, flushes: int) -> Schedule:
    """Return a schedule that runs ``flushes`` times and then makes one update, by the gradients of all runs.

    Raises:
        SpecError: a schedule without flushes.

    >>> from syncline.sim.pipelines.schedules import gpipe
    >>> [f"{task.kind[0]}{task.microbatch}" for task in repeated(gpipe(1, 2), 2).orders[0]]
    ['f0', 'f1', 'b0', 'b1', 'f2', 'f3', 'b2', 'b3']
    """
    if flushes == 1:
        return schedule
    if not schedule.flushes:
        raise SpecError("flushes", flushes, f"1 with {schedule.name}, which updates after each micro-batch")
    if len({len(order) for order in schedule.orders}) > 1:
        raise SpecError("flushes", flushes, f"1 with {schedule.name}, whose stages have different numbers of tasks")
    orders = Orders.from_lists(schedule.orders, TaskNumbering(schedule.microbatches, schedule.chunks)).repeated(flushes)
    return schedule._replace(orders=orders, microbatches=flushes * schedule.microbatches)
