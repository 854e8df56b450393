"""Data sources and their reading options: a data set, an iterable, or a DataLoader of either."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from syncline.problems.streams import torch_generator
from syncline.problems.torch_modules import error_clause, type_name
from syncline.randomness import seed_all


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
