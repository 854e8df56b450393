"""Data sources and their reading options: a data set, an iterable, or a DataLoader of either.

Assignment of items to workers and steps, the same in every world and process.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import (
    Any,
    Protocol,
)

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from syncline.errors import SpecError
from syncline.problems.base import Rows
from syncline.problems.random_draws import torch_generator
from syncline.problems.torch_modules import error_clause, stacked, to_device, type_name
from syncline.randomness import (
    GlobalState,
    seed_all,
)


@dataclass(frozen=True)
class Reading:
    """The way to read data.

    Args:
        data: a data set whose items have indices, or an iterable of items.
        field: name of the data in errors.
        batch_size: number of items in a batch.
        shuffle: whether each epoch has a new random order.
        drop_last: whether a batch that is not full is left out.
        sampler: sampler that gives the order instead; None for none.
        collate: function that makes a batch from a list of items.
        notes: settings of a DataLoader that replaced arguments, one line each.
    """

    data: Any
    field: str
    batch_size: int
    shuffle: bool
    drop_last: bool
    sampler: Any = None
    collate: Callable[[list[Any]], Any] = default_collate
    notes: tuple[str, ...] = ()

    @property
    def is_stream(self) -> bool:
        """Return whether items come in sequence, without indices."""
        return isinstance(self.data, IterableDataset) or not hasattr(type(self.data), "__getitem__")

    @property
    def tensors(self) -> tuple[Tensor, ...] | None:
        """Return the tensors that items are slices of, where a batch is a slice of them too."""
        plain = type(self.data) is TensorDataset and self.collate is default_collate
        return tuple(self.data.tensors) if plain else None

    def order(self, device: torch.device, seed: int, *names: str | int) -> Tensor:
        """Return the item indices of an epoch, in order; draws under ``names``. Call it inside `preserved`."""
        if self.sampler is not None:
            seed_all(device, seed, *names)
            sampler = copy.copy(self.sampler)
            if getattr(sampler, "generator", None) is not None:
                sampler.generator = torch_generator(seed, *names)
            return torch.tensor(list(sampler), dtype=torch.int64)
        count = len(self.data)
        return torch.randperm(count, generator=torch_generator(seed, *names)) if self.shuffle else torch.arange(count)

    def fetch(self, numbers: list[int]) -> Any:
        """Return the batch of these items.

        Raises:
            SpecError: they make none.
        """
        try:
            together = getattr(self.data, "__getitems__", None)
            items = together(numbers) if together else [self.data[number] for number in numbers]
        except Exception as error:
            raise SpecError(
                self.field, type_name(self.data), f"data whose items can be had; {error_clause(error)}"
            ) from error
        return self.batch_of(items)

    def batch_of(self, items: list[Any]) -> Any:
        """Return items as a batch.

        Raises:
            SpecError: they make none.
        """
        try:
            return self.collate(items)
        except Exception as error:
            expected = f"items that make a batch, or a DataLoader with a collate_fn; {error_clause(error)}"
            raise SpecError(self.field, type_name(self.data), expected) from error

    def run(self, epoch: int) -> Iterator[Any]:
        """Return the items of a stream, from the first."""
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)
        return iter(self.data)


def reading_of(data: Any, field: str, batch_size: int, shuffle: bool, drop_last: bool) -> Reading:
    """Return the way to read ``data``; a DataLoader's settings replace the arguments.

    Raises:
        SpecError: the value is not data, can be read only once, or is a DataLoader whose batches cannot be rebuilt.
    """
    if isinstance(data, DataLoader):
        return _of_loader(data, field, batch_size, shuffle, drop_last)
    if isinstance(data, tuple) and data and all(isinstance(part, Tensor) for part in data):
        data = _tensors(data, field)
    reading = Reading(data, field, batch_size, shuffle, drop_last)
    if isinstance(data, Iterator):
        expected = "data that can be gone through again: a data set, an IterableDataset, an object with __iter__"
        raise SpecError(field, type_name(data), expected)
    if isinstance(data, dict) or not hasattr(type(data), "__iter__" if reading.is_stream else "__len__"):
        raise SpecError(
            field, type_name(data), "a data set with a length, an iterable, a DataLoader or a tuple of tensors"
        )
    return reading


def _tensors(data: Sequence[Tensor], field: str) -> TensorDataset:
    lengths = [len(part) if part.dim() else 0 for part in data]
    if len(set(lengths)) > 1:
        raise SpecError(field, lengths, "tensors of one length, an item being a slice of each")
    return TensorDataset(*data)


def _of_loader(loader: DataLoader[Any], field: str, batch_size: int, shuffle: bool, drop_last: bool) -> Reading:
    sampler = getattr(loader, "sampler", None)
    if loader.batch_size is None or type(loader.batch_sampler) not in (BatchSampler, type(None)):
        batching = type_name(loader.batch_sampler) if loader.batch_sampler is not None else "batch_size=None"
        expected = "a DataLoader with a batch_size and no batch_sampler: each worker gets batches of its own shard"
        raise SpecError(field, batching, expected)
    if isinstance(sampler, DistributedSampler):
        raise SpecError(field, type_name(sampler), "a DataLoader without it: workers get their shards here")
    plain = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None
    )
    inner = reading_of(loader.dataset, field, loader.batch_size, type(sampler) is RandomSampler, loader.drop_last)
    own_order = not plain and not inner.is_stream
    notes = [
        f"{field} is a DataLoader: its {name} {theirs} holds, not {ours}"
        for name, theirs, ours in (
            ("batch_size", loader.batch_size, batch_size),
            *(() if own_order or inner.is_stream else (("shuffle", inner.shuffle, shuffle),)),
            ("drop_last", loader.drop_last, drop_last),
        )
        if theirs != ours
    ]
    if own_order:
        notes.append(f"{field} is a DataLoader: its {type_name(sampler)} gives the order that is cut into shards")
    if loader.num_workers:
        notes.append(f"{field} is a DataLoader: its num_workers {loader.num_workers} has no effect: one process reads")
    return Reading(
        inner.data, field, loader.batch_size, inner.shuffle, loader.drop_last,
        sampler if own_order else None, loader.collate_fn or default_collate, tuple(notes),
    )  # fmt: skip


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
