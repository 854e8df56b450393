"""Protocols of problems: rows of workers, a configuration that builds a task, a task that gives gradients.

Blocks of random draws that the tasks of one problem share.

Data that differ from site to site, or from worker to worker: who sees the same part.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Mapping,
)
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from syncline.errors import SpecError


class DrawnBlocks:
    """A cache of random draws of the whole group, which tasks of one problem share if each has some of the workers.

    Args:
        capacity: largest number of blocks that are kept.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._kept = capacity
        self._blocks: dict[tuple[object, ...], Tensor] = {}

    def get(self, key: tuple[object, ...], draw: Callable[[], Tensor]) -> Tensor:
        """Return the block of a stream; draw it if it is not cached, and drop the least recently used block."""
        drawn = self._blocks.pop(key, None)
        if drawn is None:
            drawn = draw()
            while len(self._blocks) >= self._kept:
                del self._blocks[next(iter(self._blocks))]
        self._blocks[key] = drawn
        return drawn


LARGEST_SIZE = 10**8
"""Of a layer or a batch: beyond it the product of two, four times over, is more than a tensor can count in bytes."""


def check_sizes(problem: object, *fields: str, largest: int = LARGEST_SIZE) -> None:
    """Refuse sizes that a tensor cannot have, before torch allocates the tensor.

    Raises:
        SpecError: a size is below 1 or above ``largest``.
    """
    for name in fields:
        size = getattr(problem, name)
        if not 1 <= size <= largest:
            expected = "an integer of at least 1" if size < 1 else f"an integer of at most {largest}"
            raise SpecError(f"problem.{name}", size, expected)


@dataclass(frozen=True)
class Rows:
    """The workers that live in this process, one row for each worker of each replica.

    A *replica* is a whole training run with its own seed; its ``world_size`` workers are numbered from 0. Rows are
    ordered by replica: ``row = replica * len(workers) + index of the worker``.

    Args:
        seeds: seed of each replica (S seeds).
        workers: numbers of the W workers in this process: all workers in the simulator, else the process's own ranks.
        world_size: M, number of workers in the group.
        drawn: cache of the whole group's random draws, which tasks with other rows share; None for no shared cache.

    Raises:
        SpecError: there is no seed or no worker, or a worker is repeated or outside the group.
    """

    seeds: tuple[int, ...]
    workers: tuple[int, ...]
    world_size: int
    drawn: DrawnBlocks | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.seeds:
            raise SpecError("rows.seeds", self.seeds, "at least one seed")
        distinct = set(self.workers)
        if not distinct or len(distinct) < len(self.workers) or not distinct <= set(range(self.world_size)):
            raise SpecError("rows.workers", self.workers, f"distinct workers from 0 to {self.world_size - 1}")

    @classmethod
    def whole_group(cls, world_size: int, seeds: tuple[int, ...] = (0,)) -> Rows:
        """Return the rows of a simulator: every worker of every replica."""
        return cls(seeds, tuple(range(world_size)), world_size)

    def __len__(self) -> int:
        return len(self.seeds) * len(self.workers)

    def by_replica(self, x: Tensor) -> Tensor:
        """Return ``(R, *s)`` seen as ``(S, W, *s)``."""
        return x.unflatten(0, (len(self.seeds), len(self.workers)))

    def parameters(
        self, initial: Callable[[int], Mapping[str, Tensor]], dtype: torch.dtype, device: torch.device | str
    ) -> dict[str, torch.nn.Parameter]:
        """Return stacked parameters ``(R, *s)``; all workers of a replica start from ``initial(seed)``."""
        replicas = [initial(seed) for seed in self.seeds]
        return {
            name: torch.nn.Parameter(
                torch.stack([replica[name] for replica in replicas])
                .to(device, dtype)
                .repeat_interleave(len(self.workers), 0)
            )
            for name in replicas[0]
        }


class Task(Protocol):
    """A problem at work: the parameters of R rows, their gradients and their losses.

    A module's buffers, where it has some, are ``buffers``: tensors ``(R, *s)`` by name, which ``step_gradients`` and
    the method change in place; ``evaluate`` gets their means too. Workers share them unless ``shares_buffers`` says no.
    """

    params: dict[str, torch.nn.Parameter]
    """Stacked parameters ``(R, *s)``; at the start equal across the workers of a replica."""

    matrices: tuple[str, ...]
    """Names of the parameters that rules for matrices take: hidden layers, not embeddings or output heads."""

    flops_per_step: float | None
    """Arithmetic of one worker in one ``step_gradients``; None where it says nothing about a real machine."""

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` of the current parameters, and set each ``.grad`` to a new ``(R, *s)`` tensor.

        Random draws depend only on the seed, the worker and ``step``, so that a resumed run sees the same data.
        """
        ...

    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the metrics ``(S,)`` of the replicas' mean parameters ``(S, *s)``; always ``loss``."""
        ...

    def trace(self) -> dict[str, Tensor]:
        """Return diagnostics ``(S, ...)`` over the local workers that are cheap enough for every step."""
        ...

    def describe(self) -> dict[str, object]:
        """Return facts to record with a result: the number of parameters of one worker, the checksum of the data."""
        ...


@runtime_checkable
class Problem(Protocol):
    """The configuration of a task: a frozen dataclass, which is one of the values of a spec.

    ``loss_label``, if it has that, names its loss in figures.
    """

    name: ClassVar[str]

    def build(self, rows: Rows, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Task:
        """Build the task that trains one copy of the model for each row.

        Args:
            rows: the replicas and workers whose copies the task has; a row is one worker of one replica.
            dtype: data type of the parameters.
            device: device of the parameters and the data.
        """
        ...


def check_skew(skew: float, sites: int | None, full_skew: str) -> None:
    """Refuse a skew outside [0, 1], and an invalid number of sites.

    Args:
        skew: share of a worker's data that is from its own part of the data.
        sites: number of sites, whose workers share a part of the data; None if each worker has its own part.
        full_skew: description of a skew of 1, for the error line.

    Raises:
        SpecError: names the wrong value, and what would be accepted.
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
    """Return the number of a worker's part, and how many there are: equal parts of the workers in their order.

    Args:
        worker: number of the worker, from 0.
        workers: M, number of workers.
        sites: number of sites, whose workers share a part. All sites but the last have equally many workers. None if
            each worker has its own part.

    Raises:
        SpecError: more sites than workers.

    >>> [site_part(worker, 5, 2) for worker in range(5)]
    [(0, 2), (0, 2), (0, 2), (1, 2), (1, 2)]
    """
    if sites is None:
        return worker, workers
    if sites > workers:
        raise SpecError("problem.sites", sites, f"at most {workers}, the workers")
    size = -(-workers // sites)
    return worker // size, -(-workers // size)
