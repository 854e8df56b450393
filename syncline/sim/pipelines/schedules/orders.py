"""The orders of all stages as one array of task numbers; a task becomes an object only when it is read.

With M micro-batches in v chunks, the task of micro-batch i has the number

    (kind v + chunk) M + i,    kind 0 for a forward, 1 for a backward, 2 for a weight gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Ints
from syncline.sim.pipelines.schedules.base import TASK_KINDS, Kind, Order, PipelineTask


class Numbering(NamedTuple):
    """The numbering of a schedule's tasks.

    Attributes:
        microbatches: M, number of micro-batches.
        chunks: v, number of chunks per stage.
    """

    microbatches: int
    chunks: int = 1

    def all(self, kind: Kind, chunk: int = 0) -> Ints:
        """Return the task numbers of a kind and chunk, by micro-batch, ``(M,)``."""
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
    """The tasks of each stage, first to last: a sequence of lists of tasks, kept as their numbers.

    Args:
        numbers: ``(K, N)``.
        numbering: the numbering of the tasks.
    """

    def __init__(self, numbers: NDArray[np.integer[Any]], numbering: Numbering) -> None:
        self.numbers, self.numbering = numbers, numbering

    @classmethod
    def from_lists(cls, orders: Sequence[Order], numbering: Numbering) -> Orders:
        """Return the `Orders` of lists of tasks with equal lengths."""
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

    def __iter__(self) -> Iterator[Order]:
        return (self[stage] for stage in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Orders):
            return self.numbering == other.numbering and np.array_equal(self.numbers, other.numbers)
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def are_whole(self, kinds: int) -> bool:
        """Return whether each stage has each task once, and after the same task of the kind before."""
        count = kinds * self.numbering.microbatches * self.numbering.chunks
        if self.numbers.shape[1] != count:
            return False
        place = np.full(self.numbers.shape, -1, dtype=np.int32)
        np.put_along_axis(
            place, np.asarray(self.numbers, dtype=np.intp), np.arange(count, dtype=np.int32)[None], axis=1
        )
        by_kind = place.reshape(len(place), kinds, -1)
        return bool((place >= 0).all() and (by_kind[:, 1:] > by_kind[:, :-1]).all())
