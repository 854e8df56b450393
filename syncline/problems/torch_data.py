"""A user's training data: its source (a data set, an iterable or a DataLoader), and each worker's batches of it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

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
from syncline.randomness import GlobalState, seed_all


@dataclass(frozen=True)
class DataReader:
    """A data source with the options by which it is read.

    Args:
        data: a data set whose items have indices, or an iterable of items.
        field: name of the data in errors.
        shuffle: whether each epoch has a new random order.
        drop_last: whether a batch that is not full is left out.
        sampler: sampler that gives the order of an epoch; None for the order by ``shuffle``.
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
        """Return the tensors whose slices are the items and batches, or None for any other data."""
        is_plain = type(self.data) is TensorDataset and self.collate is default_collate
        return tuple(self.data.tensors) if is_plain else None

    def order(self, device: torch.device, seed: int, *names: str | int) -> Tensor:
        """Return the item indices of an epoch, in order, drawn from the random stream ``names``.

        Call this method inside `preserved`, because a sampler may draw from global generators.
        """
        if self.sampler is not None:
            seed_all(device, seed, *names)
            sampler = copy.copy(self.sampler)  # the user's sampler keeps its generator
            if getattr(sampler, "generator", None) is not None:
                sampler.generator = torch_generator(seed, *names)
            return torch.tensor(list(sampler), dtype=torch.int64)
        if self.shuffle:
            return torch.randperm(len(self.data), generator=torch_generator(seed, *names))
        return torch.arange(len(self.data))

    def fetch(self, indices: list[int]) -> Any:
        """Return the batch of the items with these indices."""
        try:
            read_all = getattr(self.data, "__getitems__", None)
            items = read_all(indices) if read_all else [self.data[index] for index in indices]
        except Exception as error:
            expected = f"data whose items can be read; {error_clause(error)}"
            raise SpecError(self.field, type_name(self.data), expected) from error
        return self.collate_items(items)

    def collate_items(self, items: list[Any]) -> Any:
        """Return a batch that contains these items, joined as the DataLoader would."""
        try:
            return self.collate(items)
        except Exception as error:
            expected = f"items that make a batch, or a DataLoader with a collate_fn; {error_clause(error)}"
            raise SpecError(self.field, type_name(self.data), expected) from error

    def items_of_epoch(self, epoch: int) -> Iterator[Any]:
        """Return the items of a stream in an epoch, from the first."""
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)
        return iter(self.data)


def data_reader(data: Any, field: str, batch_size: int, shuffle: bool, drop_last: bool) -> DataReader:
    """Return a reader of ``data``; the settings of a DataLoader replace the arguments."""
    if isinstance(data, DataLoader):
        return _loader_reader(data, field, batch_size, shuffle, drop_last)
    if isinstance(data, tuple) and data and all(isinstance(part, Tensor) for part in data):
        lengths = [len(part) if part.dim() else 0 for part in data]
        if len(set(lengths)) > 1:
            raise SpecError(field, lengths, "tensors of one length, where an item is a slice of each")
        data = TensorDataset(*data)
    reader = DataReader(data, field, batch_size, shuffle, drop_last)
    if isinstance(data, Iterator):
        expected = "data that can be read more than once: a data set, an IterableDataset, an object with __iter__"
        raise SpecError(field, type_name(data), expected)
    needed_method = "__iter__" if reader.is_stream else "__len__"
    if isinstance(data, dict) or not hasattr(type(data), needed_method):
        expected = "a data set with a length, an iterable, a DataLoader or a tuple of tensors"
        raise SpecError(field, type_name(data), expected)
    return reader


def _loader_reader(loader: DataLoader[Any], field: str, batch_size: int, shuffle: bool, drop_last: bool) -> DataReader:
    """Return a reader of a DataLoader's data with the loader's settings; note where they replace arguments."""
    sampler: Any = getattr(loader, "sampler", None)
    if loader.batch_size is None or type(loader.batch_sampler) not in (BatchSampler, type(None)):
        batching = "batch_size=None" if loader.batch_sampler is None else type_name(loader.batch_sampler)
        expected = "a DataLoader with a batch_size and no batch_sampler: each worker gets batches of its own shard"
        raise SpecError(field, batching, expected)
    if isinstance(sampler, DistributedSampler):
        raise SpecError(field, type_name(sampler), "a DataLoader without it: workers get their shards here")
    is_random = type(sampler) is RandomSampler
    draws_each_item_once = is_random and not sampler.replacement and sampler._num_samples is None
    # The reader can draw these orders by itself; any other sampler is kept.
    has_default_order = type(sampler) is SequentialSampler or draws_each_item_once
    inner = data_reader(loader.dataset, field, loader.batch_size, shuffle=is_random, drop_last=loader.drop_last)
    keeps_sampler = not has_default_order and not inner.is_stream

    settings = {"batch_size": (loader.batch_size, batch_size)}  # the loader's value, and the argument
    if has_default_order and not inner.is_stream:
        settings["shuffle"] = (inner.shuffle, shuffle)
    settings["drop_last"] = (loader.drop_last, drop_last)
    notes = []
    for name, (loader_value, argument) in settings.items():
        if loader_value != argument:
            notes.append(f"{field} is a DataLoader: its {name} {loader_value} holds, not {argument}")
    if keeps_sampler:
        notes.append(f"{field} is a DataLoader: its {type_name(sampler)} gives the order that is cut into shards")
    if loader.num_workers:
        notes.append(f"{field} is a DataLoader: its num_workers {loader.num_workers} has no effect: one process reads")
    return DataReader(
        inner.data, field, loader.batch_size, inner.shuffle, loader.drop_last,
        sampler=sampler if keeps_sampler else None, collate=loader.collate_fn or default_collate, notes=tuple(notes),
    )  # fmt: skip


def make_shards(reader: DataReader, rows: Rows, accumulate: int, *, device: torch.device, dtype: torch.dtype) -> Shards:
    """Return the source of the batches of the workers of ``rows``, with ``accumulate`` micro-batches in a step.

    Call its methods inside `preserved`, because the data's transforms may draw from the global random generators.

    Raises:
        SpecError: there are too few items for the workers, or for a batch.
    """
    shards_class = StreamShards if reader.is_stream else MapShards
    return shards_class(reader, rows, accumulate, device, dtype)


def seed_and_worker(rows: Rows, row: int) -> tuple[int, int]:
    """Return the seed of a row's replica, and the number of the row's worker."""
    replica, index = divmod(row, len(rows.workers))
    return rows.seeds[replica], rows.workers[index]


def _too_few_items_error(reader: DataReader, items: int, world_size: int) -> SpecError:
    """Return the error for data with too few items for the workers, or for a batch per worker."""
    if items < world_size:
        return SpecError("workers", world_size, f"at most {items}, one per item of the data")
    expected = f"at most {items // world_size}, the items of a worker's shard ({items} items, {world_size} workers)"
    return SpecError("problem.batch_size", reader.batch_size, expected)


class MapShards:
    """Batches of a data set whose items have indices.

    Each epoch has a new random order, which is the same for all workers. Worker ``w`` of ``M`` takes the items at the
    positions ``w, w + M, ...``, so that in each step M workers with batches of B items see together the same items as
    one worker with batches of ``M B`` items. If M does not divide the number of items, the last items are left out.
    """

    def __init__(
        self, reader: DataReader, rows: Rows, accumulate: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Compute the size of each worker's shard; raise an error if it has no batch.

        ``accumulate`` is the number of micro-batches of a worker in a step.
        """
        self._reader, self._rows, self._accumulate = reader, rows, accumulate
        self._device, self._dtype = device, dtype
        items = len(reader.data if reader.sampler is None else reader.sampler)
        self._shard_size = items // rows.world_size
        self._batches_per_epoch, remainder = divmod(self._shard_size, reader.batch_size)
        if remainder and not reader.drop_last:  # the last batch is not full
            self._batches_per_epoch += 1
        if not self._batches_per_epoch:
            raise _too_few_items_error(reader, items, rows.world_size)
        self._tensors = None if reader.tensors is None else to_device(list(reader.tensors), device, dtype)
        self._orders: OrderedDict[tuple[int, int], Tensor] = OrderedDict()  # by seed and epoch

    def row_batches(self, row: int, step: int) -> list[Any]:
        """Return the micro-batches of one worker in a step, each with leaves ``(batch, ...)``."""
        seed, worker = seed_and_worker(self._rows, row)
        indices_of_batches = [self._indices(seed, worker, batch) for batch in self._batch_numbers(step)]
        if self._tensors is not None:
            return [self._items_at(indices) for indices in indices_of_batches]
        seed_all(self._device, seed, "items", worker, step)  # transforms of the items may draw
        batches = []
        for indices in indices_of_batches:
            batch = self._reader.fetch(indices.tolist())
            batches.append(to_device(batch, self._device, self._dtype))
        return batches

    def stacked_batches(self, step: int) -> list[Any] | None:
        """Return the micro-batches of all workers with leaves ``(R, batch, ...)``; None if they cannot be stacked."""
        rows = range(len(self._rows))
        if self._tensors is None:
            return stack_batches([self.row_batches(row, step) for row in rows])
        seeds_and_workers = [seed_and_worker(self._rows, row) for row in rows]
        batches = []
        for batch in self._batch_numbers(step):
            indices = [self._indices(seed, worker, batch) for seed, worker in seeds_and_workers]
            batches.append(self._items_at(torch.stack(indices)))
        return batches

    def _batch_numbers(self, step: int) -> range:
        """Return the numbers of the micro-batches of a step, counted over the whole training."""
        return range(step * self._accumulate, (step + 1) * self._accumulate)

    def _items_at(self, indices: Tensor) -> list[Tensor]:
        """Return the slices of the data's tensors at these indices."""
        assert self._tensors is not None
        indices = indices.to(self._device)
        return [tensor[indices] for tensor in self._tensors]

    def _indices(self, seed: int, worker: int, batch: int) -> Tensor:
        """Return the indices of the items in a worker's micro-batch; ``batch`` counts them over the whole training."""
        epoch, batch_in_epoch = divmod(batch, self._batches_per_epoch)
        begin = batch_in_epoch * self._reader.batch_size  # in the worker's shard
        end = min(begin + self._reader.batch_size, self._shard_size)
        shard = self._order(seed, epoch)[worker :: self._rows.world_size]
        return shard[begin:end]

    def _order(self, seed: int, epoch: int) -> Tensor:
        """Return the item indices of an epoch in order, from the cache if possible."""
        if (seed, epoch) not in self._orders:
            self._orders[seed, epoch] = self._reader.order(self._device, seed, "epoch", epoch)
            if len(self._orders) > 2 * len(self._rows.seeds):  # a step can reach into the next epoch
                self._orders.popitem(last=False)  # the oldest
        return self._orders[seed, epoch]


class StreamShards:
    """Batches of a stream: worker ``w`` of ``M`` takes the items number ``w``, ``w + M``, and so on.

    A process reads the whole stream and keeps the items of its workers. If a run resumes at a later step, the process
    first reads all items before this step.
    """

    def __init__(
        self, reader: DataReader, rows: Rows, accumulate: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._reader, self._rows, self._device, self._dtype = reader, rows, device, dtype
        self._streams = {seed: _Stream(reader, seed, rows.world_size, accumulate, device) for seed in rows.seeds}

    def row_batches(self, row: int, step: int) -> list[Any]:
        """Return the micro-batches of one worker in a step, each with leaves ``(batch, ...)``."""
        seed, worker = seed_and_worker(self._rows, row)
        blocks = self._streams[seed].blocks(step)  # the items of all workers
        seed_all(self._device, seed, "items", worker, step)  # a collate function may draw
        batches = []
        for block in blocks:
            worker_items = block[worker :: self._rows.world_size]
            batches.append(to_device(self._reader.collate_items(worker_items), self._device, self._dtype))
        return batches

    def stacked_batches(self, step: int) -> list[Any] | None:
        """Return the micro-batches of all workers with leaves ``(R, batch, ...)``; None if they cannot be stacked."""
        return stack_batches([self.row_batches(row, step) for row in range(len(self._rows))])


Shards = MapShards | StreamShards
"""The batches of all workers."""


class _Stream:
    """The items of a stream under one seed, epoch after epoch, in blocks of one batch per worker.

    Both a stream and a module may draw random numbers. Therefore the state of the generators after a block is kept, and
    restored before the next block is read.
    """

    def __init__(self, reader: DataReader, seed: int, world_size: int, accumulate: int, device: torch.device) -> None:
        self._reader, self._seed, self._world_size, self._device = reader, seed, world_size, device
        self._accumulate = accumulate
        self._blocks: list[list[Any]] = []
        self._random_state = GlobalState.capture(device)  # replaced when an epoch begins
        self._restart()

    def blocks(self, step: int) -> list[list[Any]]:
        """Return the blocks of a step, one for each micro-batch; first read the blocks of earlier steps."""
        if step < self._step:
            self._restart()
        while self._step < step:
            self._random_state.restore(self._device)
            self._blocks = [self._next_block() for _ in range(self._accumulate)]
            self._random_state = GlobalState.capture(self._device)
            self._step += 1
        return self._blocks

    def _restart(self) -> None:
        """Go back to the first item of the first epoch."""
        self._step, self._epoch = -1, -1
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Go to the first item of the next epoch; its random numbers depend only on the seed and the epoch."""
        self._epoch += 1
        seed_all(self._device, self._seed, "stream", self._epoch)
        self._items: Iterator[Any] = self._reader.items_of_epoch(self._epoch)
        self._random_state = GlobalState.capture(self._device)

    def _next_block(self) -> list[Any]:
        """Return the items of the next block, from the next epoch if this one has too few."""
        full_size = self._world_size * self._reader.batch_size
        for _ in ("this epoch", "next epoch"):
            items = list(islice(self._items, full_size))
            even_size = len(items) - len(items) % self._world_size  # equally many for each worker
            if len(items) == full_size or (even_size and not self._reader.drop_last):
                return items[:even_size]
            self._begin_epoch()
        raise _too_few_items_error(self._reader, len(items), self._world_size)


def stack_batches(rows: list[list[Any]]) -> list[Any] | None:
    """Return the micro-batches of R rows with leaves stacked to ``(R, ...)``; None if they cannot be stacked."""
    stacked_batches = []
    for micro_batch_of_rows in zip(*rows, strict=True):
        batch = stacked(micro_batch_of_rows)
        if batch is None:
            return None
        stacked_batches.append(batch)
    return stacked_batches
