"""The protocols of problems and tasks, and what all problems share.

A `Problem` is a configuration that builds a `Task`, which gives gradients for the workers of `Rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from syncline.errors import SpecError


class DrawnBlocks:
    """A cache of random draws for all workers of a group.

    Tasks that train different workers of the group share it.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._capacity = capacity
        self._blocks: dict[tuple[object, ...], Tensor] = {}

    def get(self, key: tuple[object, ...], draw: Callable[[], Tensor]) -> Tensor:
        """Return the block of a key; draw it if it is not cached, and drop the least recently used block."""
        block = self._blocks.pop(key, None)  # it is inserted last below: the first is the least recently used
        if block is None:
            block = draw()
            while len(self._blocks) >= self._capacity:
                del self._blocks[next(iter(self._blocks))]
        self._blocks[key] = block
        return block


LARGEST_SIZE = 10**8
"""Largest size of a layer or a batch; the bytes of a product of two larger ones overflow a tensor's count."""


def check_sizes(problem: object, *fields: str, largest: int = LARGEST_SIZE) -> None:
    """Raise a SpecError if one of a problem's named sizes is below 1 or above ``largest``."""
    for name in fields:
        size = getattr(problem, name)
        if not 1 <= size <= largest:
            expected = "an integer of at least 1" if size < 1 else f"an integer of at most {largest}"
            raise SpecError(f"problem.{name}", size, expected)


@dataclass(frozen=True)
class Rows:
    """The workers that this process computes, one row for each worker of each replica.

    A *replica* is a whole training run with its own seed; its ``world_size`` workers are numbered from 0. Tensors of
    all rows have a first axis of R = S W rows, with ``row = replica * W + index of the worker``.

    Args:
        seeds: seed of each of S replicas.
        workers: numbers of the W workers in this process: all workers in the simulator, else the process's own ranks.
        world_size: M, number of workers in the group.
        drawn: cache of random draws, shared with tasks of other rows; None for no shared cache.
    """

    seeds: tuple[int, ...]
    workers: tuple[int, ...]
    world_size: int
    drawn: DrawnBlocks | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.seeds:
            raise SpecError("rows.seeds", self.seeds, "at least one seed")
        distinct_workers = set(self.workers)
        has_repeats = len(distinct_workers) < len(self.workers)
        if not distinct_workers or has_repeats or not distinct_workers <= set(range(self.world_size)):
            raise SpecError("rows.workers", self.workers, f"distinct workers from 0 to {self.world_size - 1}")

    @classmethod
    def whole_group(cls, world_size: int, seeds: tuple[int, ...] = (0,)) -> Rows:
        """Return rows of all workers of each replica, as a simulator has them."""
        return cls(seeds, tuple(range(world_size)), world_size)

    def __len__(self) -> int:
        return len(self.seeds) * len(self.workers)

    def by_replica(self, x: Tensor) -> Tensor:
        """Return a tensor of all workers ``(R, *s)`` as ``(S, W, *s)``."""
        return x.unflatten(0, (len(self.seeds), len(self.workers)))

    def parameters(
        self, initial: Callable[[int], Mapping[str, Tensor]], dtype: torch.dtype, device: torch.device | str
    ) -> dict[str, torch.nn.Parameter]:
        """Return parameters of all workers, ``(R, *s)``; all workers of a replica start from ``initial(seed)``."""
        initial_by_replica = [initial(seed) for seed in self.seeds]
        params = {}
        for name in initial_by_replica[0]:
            by_replica = torch.stack([initial_params[name] for initial_params in initial_by_replica]).to(device, dtype)
            params[name] = torch.nn.Parameter(by_replica.repeat_interleave(len(self.workers), 0))
        return params


class Task(Protocol):
    """The training of one model per row: parameters, their gradients and their losses.

    A task whose module has buffers also has ``buffers``, tensors ``(R, *s)`` by name. ``step_gradients`` and the method
    change them in place, and ``evaluate`` gets their means. If ``shares_buffers`` is false, workers keep their own.
    """

    params: dict[str, torch.nn.Parameter]
    """Parameters of all workers by name, ``(R, *s)``; at the start equal across the workers of a replica."""

    matrices: tuple[str, ...]
    """Names of the parameters that update rules for matrices apply to: hidden layers without embeddings and heads."""

    flops_per_step: float | None
    """FLOPs of one worker in one ``step_gradients``; None if they say nothing about a real model."""

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses of all workers, ``(R,)``, and set each parameter's ``.grad`` to a new tensor ``(R, *s)``.

        Random draws depend only on the seed, the worker and ``step``, so that a resumed run sees the same data.
        """
        ...

    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return metrics ``(S,)`` by name, among them ``loss``, of each replica's mean parameters ``(S, *s)``."""
        ...

    def trace(self) -> dict[str, Tensor]:
        """Return diagnostics ``(S, ...)`` by name of the workers in this process, cheap enough for every step."""
        ...

    def describe(self) -> dict[str, object]:
        """Return facts to record with a result, such as the number of parameters and the checksum of the data."""
        ...


@runtime_checkable
class Problem(Protocol):
    """The configuration of a task: a frozen dataclass, whose fields a spec sets.

    An optional class attribute ``loss_label`` names the loss in figures.
    """

    name: ClassVar[str]

    def build(self, rows: Rows, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Task:
        """Build the task that trains one copy of the model for each row."""
        ...


def check_skew(skew: float, sites: int | None, full_skew: str) -> None:
    """Raise a SpecError for a skew outside [0, 1], or an invalid number of sites.

    Args:
        skew: share of a worker's data that is from its own part of the data.
        sites: number of sites, whose workers share a part of the data; None if each worker has its own part.
        full_skew: description of a skew of 1, for the error line.
    """
    if not 0 <= skew <= 1:
        raise SpecError("problem.skew", skew, f"a number from 0 (alike) to 1 ({full_skew})")
    if sites is None:
        return
    if isinstance(sites, bool) or sites < 1:
        raise SpecError("problem.sites", sites, "a number of sites, at least 1")
    if not skew:
        raise SpecError("problem.sites", sites, "none without a skew, as all sites then see the same")


def site_part(worker: int, workers: int, sites: int | None) -> tuple[int, int]:
    """Return the part of the data that a worker prefers, as (number of the part, number of parts).

    Args:
        worker: number of the worker, from 0.
        sites: number of sites, whose workers share a part; a site has ``ceil(M / sites)`` workers, the last sites may
            have fewer or none. None if each worker has its own part.

    >>> [site_part(worker, 5, 2) for worker in range(5)]
    [(0, 2), (0, 2), (0, 2), (1, 2), (1, 2)]
    """
    if sites is None:
        return worker, workers
    if sites > workers:
        raise SpecError("problem.sites", sites, f"at most {workers}, the workers")
    site_workers = math.ceil(workers / sites)  # some of the last sites may have no workers
    return worker // site_workers, math.ceil(workers / site_workers)


def select_half(data: Tensor, part: str) -> Tensor:
    """Return the ``whole``, the ``first-half`` or the ``second-half`` of a tensor along its first dimension."""
    middle = len(data) // 2
    if part == "first-half":
        return data[:middle]
    if part == "second-half":
        return data[middle:]
    return data
