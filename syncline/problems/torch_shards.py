"""Assignment of items to workers and steps, the same in every world and process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.base import Rows
from syncline.problems.torch_batches import stacked, to_device
from syncline.problems.torch_sources import Reading
from syncline.randomness import GlobalState, seed_all


class Shards(Protocol):
    """The batches of the rows. All is for inside of `preserved`, as transforms draw from global generators."""

    def of_row(self, row: int, step: int) -> list[Any]:
        """Return the micro-batches of a row in a step, leaves ``(batch, ...)``."""
        ...

    def of_all(self, step: int) -> list[Any] | None:
        """Return the batches of all rows, leaves ``(R, batch, ...)``; None where they cannot be stacked."""
        ...


def sharded(
    reading: Reading, rows: Rows, accumulate: int, *, device: torch.device, dtype: torch.dtype
) -> MapShards | StreamShards:
    """Return the batches of ``rows``: ``accumulate`` in a step.

    Raises:
        SpecError: there are too few items for the workers, or for a batch.
    """
    if reading.is_stream:
        return StreamShards(reading, rows, accumulate, device=device, dtype=dtype)
    return MapShards(reading, rows, accumulate, device=device, dtype=dtype)


def replica_and_worker(rows: Rows, row: int) -> tuple[int, int]:
    """Return the seed and the worker of a row."""
    replica, index = divmod(row, len(rows.workers))
    return rows.seeds[replica], rows.workers[index]


def _too_few(reading: Reading, items: int, world_size: int) -> SpecError:
    if items < world_size:
        return SpecError("workers", world_size, f"at most {items}, one per item of the data")
    expected = f"at most {items // world_size}, the items of a worker's shard ({items} items, {world_size} workers)"
    return SpecError("problem.batch_size", reading.batch_size, expected)


class MapShards:
    """Batches of a data set whose items have numbers.

    Each epoch has a new random order, which is the same for all workers. Worker ``w`` of ``M`` takes the items at the
    places ``w, w + M, ...``, so that in each step M workers with batches of B items see together the same items as one
    worker with batches of ``M B`` items. If M does not divide the number of items, the last items are left out.

    Raises:
        SpecError: more workers than items, or a batch that is larger than a shard and must be full.
    """

    def __init__(
        self, reading: Reading, rows: Rows, accumulate: int, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._reading, self._rows, self._accumulate = reading, rows, accumulate
        self._device, self._dtype = device, dtype
        items = len(reading.data if reading.sampler is None else reading.sampler)
        self._size, size = items // rows.world_size, reading.batch_size
        self._per_epoch = self._size // size if reading.drop_last else -(-self._size // size)
        if not self._per_epoch:
            raise _too_few(reading, items, rows.world_size)
        tensors = reading.tensors
        self._tensors = None if tensors is None else to_device(list(tensors), device, dtype)
        self._orders: OrderedDict[tuple[int, int], Tensor] = OrderedDict()

    def of_row(self, row: int, step: int) -> list[Any]:
        """Return the micro-batches of a row in a step."""
        seed, worker = replica_and_worker(self._rows, row)
        numbers = [self._numbers(seed, worker, batch) for batch in self._batches(step)]
        if self._tensors is not None:
            return [self._slices(indices) for indices in numbers]
        seed_all(self._device, seed, "items", worker, step)
        return [to_device(self._reading.fetch(indices.tolist()), self._device, self._dtype) for indices in numbers]

    def of_all(self, step: int) -> list[Any] | None:
        """Return the batches of all rows."""
        if self._tensors is None:
            return stack_rows([self.of_row(row, step) for row in range(len(self._rows))])
        places = [replica_and_worker(self._rows, row) for row in range(len(self._rows))]
        return [
            self._slices(torch.stack([self._numbers(*place, batch) for place in places]))
            for batch in self._batches(step)
        ]

    def _batches(self, step: int) -> range:
        return range(step * self._accumulate, (step + 1) * self._accumulate)

    def _slices(self, numbers: Tensor) -> list[Tensor]:
        assert self._tensors is not None
        places = numbers.to(self._device)
        return [tensor[places] for tensor in self._tensors]

    def _numbers(self, seed: int, worker: int, batch: int) -> Tensor:
        """Return the indices of the items in the worker's ``batch``-th batch."""
        epoch, place = divmod(batch, self._per_epoch)
        begin = place * self._reading.batch_size
        end = min(begin + self._reading.batch_size, self._size)
        every = self._rows.world_size
        return self._order(seed, epoch)[worker + begin * every : worker + (end - 1) * every + 1 : every]

    def _order(self, seed: int, epoch: int) -> Tensor:
        if (seed, epoch) not in self._orders:
            self._orders[seed, epoch] = self._reading.order(self._device, seed, "epoch", epoch)
            if len(self._orders) > 2 * len(self._rows.seeds):  # micro-batches of a step can be of two epochs
                self._orders.popitem(last=False)
        return self._orders[seed, epoch]


class StreamShards:
    """Batches of a stream: of the items, worker ``w`` of ``M`` takes number ``w``, ``w + M``, and so on.

    A process reads the whole stream and keeps its own part. If a run resumes at a later step, the process first reads
    all items before this step.
    """

    def __init__(
        self, reading: Reading, rows: Rows, accumulate: int, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._reading, self._rows, self._accumulate = reading, rows, accumulate
        self._device, self._dtype = device, dtype
        self._streams = {seed: _Stream(reading, seed, rows.world_size, accumulate, device) for seed in rows.seeds}

    def of_row(self, row: int, step: int) -> list[Any]:
        """Return the micro-batches of a row in a step."""
        seed, worker = replica_and_worker(self._rows, row)
        blocks = self._streams[seed].blocks(step)
        seed_all(self._device, seed, "items", worker, step)
        worker_items = [block[worker :: self._rows.world_size] for block in blocks]
        return [to_device(self._reading.batch_of(items), self._device, self._dtype) for items in worker_items]

    def of_all(self, step: int) -> list[Any] | None:
        """Return the batches of all rows."""
        return stack_rows([self.of_row(row, step) for row in range(len(self._rows))])


class _Stream:
    """The items of a stream under one seed, epoch after epoch, in blocks: a batch of every worker each."""

    def __init__(self, reading: Reading, seed: int, world_size: int, accumulate: int, device: torch.device) -> None:
        self._reading, self._seed, self._workers, self._device = reading, seed, world_size, device
        self._accumulate = accumulate
        self._step = -1
        self._blocks: list[list[Any]] = []
        self._state = GlobalState.capture(device)
        self._restart()

    def blocks(self, step: int) -> list[list[Any]]:
        """Return the blocks of a step."""
        if step < self._step:
            self._restart()
        while self._step < step:
            self._state.restore(self._device)  # what the stream draws goes on where it stopped
            self._blocks = [self._next() for _ in range(self._accumulate)]
            self._state = GlobalState.capture(self._device)
            self._step += 1
        return self._blocks

    def _restart(self) -> None:
        self._step, self._epoch = -1, -1
        self._begin()

    def _begin(self) -> None:
        self._epoch += 1
        seed_all(self._device, self._seed, "stream", self._epoch)
        self._items: Iterator[Any] = self._reading.run(self._epoch)
        self._state = GlobalState.capture(self._device)

    def _next(self) -> list[Any]:
        full = self._workers * self._reading.batch_size
        for _ in range(2):
            items = list(islice(self._items, full))
            even = len(items) - len(items) % self._workers
            if len(items) == full or (even and not self._reading.drop_last):
                return items[:even]
            self._begin()
        raise _too_few(self._reading, len(items), self._workers)


def stack_rows(rows: list[list[Any]]) -> list[Any] | None:
    """Return the micro-batches of the rows, each as one."""
    joined = [stacked(batches) for batches in zip(*rows, strict=True)]
    return None if any(batch is None for batch in joined) else joined
