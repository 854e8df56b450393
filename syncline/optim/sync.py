"""Sync policies: when which state is averaged over the workers.

Buffers of a module over the workers: what a normalisation has seen of its data, and all else that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator
from syncline.errors import SpecError, one_of
from syncline.optim.base import SyncPolicy
from syncline.seeds import seed64


def _check_names(names: Mapping[str, int] | tuple[str, ...], available: tuple[str, ...]) -> None:
    for name in names:
        if name not in available:
            raise SpecError("sync", name, one_of(available, name))


@dataclass(frozen=True)
class EveryStep(SyncPolicy):
    """The gradient is averaged in every step: data parallelism."""

    def due(self, t: int) -> tuple[str, ...]:
        """Return the gradient in every step."""
        return ("gradient",)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(("gradient",), available)


@dataclass(frozen=True)
class Periodic(SyncPolicy):
    """Each state has its own period: state ``s`` is averaged after step ``t`` when ``(t + 1 - offset_s) % K_s == 0``.

    ``t`` counts from 0. With the default offset 0 each state is due at the end of its period, so that states with equal
    periods travel together. MT-DAO's Algorithms 2 and 3 average parameters when ``(t + 1) % K_x == 0`` but momenta when
    ``t % K_j == 0``: offset 1 for the momenta.

    Args:
        periods: K per state name (``params`` or a state of the update rule), number of steps between averages.
        offsets: offset per state name, in steps; by default 0.

    Raises:
        SpecError: for a period below 1 or a state that does not exist.
    """

    periods: Mapping[str, int]
    offsets: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        for name, period in self.periods.items():
            if period < 1:
                raise SpecError(f"periods.{name}", period, "an integer >= 1")

    def due(self, t: int) -> tuple[str, ...]:
        """Return states whose period ends with step ``t``."""
        offsets = self.offsets or {}
        return tuple(s for s, period in self.periods.items() if (t + 1 - offsets.get(s, 0)) % period == 0)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(self.periods, available)
        _check_names(self.offsets or {}, tuple(self.periods))


@dataclass(frozen=True)
class Random(SyncPolicy):
    """Each state is averaged with probability ``1 / K_s`` after every step, whatever happens to the others.

    Draws are functions of state and step, the same on all workers and for every seed of a training.

    Args:
        periods: K per state name, the mean number of steps from one average to the next.

    Raises:
        SpecError: for a period below 1 or a state that does not exist.

    Source: MT-DAO, Algorithm 4.
    """

    periods: Mapping[str, int]

    def __post_init__(self) -> None:
        Periodic(self.periods)

    def due(self, t: int) -> tuple[str, ...]:
        """Return states whose draw of step ``t`` is below ``1 / K_s``."""
        return tuple(s for s, period in self.periods.items() if seed64(0, "average", s, t) * period < 2**63)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(self.periods, available)


BufferSync = Literal["broadcast", "mean", "none"]
"""What becomes of buffers after a step: all have worker 0's, or the mean of all; or each keeps its own."""


class Buffers:
    """The buffers of all rows, and the communication that makes them equal on all workers.

    Args:
        tensors: buffers ``(R, *s)`` by name, which are changed in place.
        comm: the group of workers.
    """

    def __init__(self, tensors: Mapping[str, Tensor], comm: Communicator) -> None:
        self._tensors, self._comm = list(tensors.values()), comm

    @torch.no_grad()
    def synchronise(self, mode: BufferSync) -> None:
        """Send and adopt: a broadcast of each number format, or one all-reduce of what is floating-point."""
        if mode == "broadcast":
            for dtype in dict.fromkeys(x.dtype for x in self._tensors):
                self._broadcast([x for x in self._tensors if x.dtype == dtype and x.numel()])
        elif mode == "mean":
            floats = [x for x in self._tensors if x.is_floating_point() and x.numel()]
            if floats:
                means = self._comm.all_reduce_coalesced(floats, label="buffers")
                for x, mean in zip(floats, means, strict=True):
                    x.copy_(mean)

    def _broadcast(self, xs: list[Tensor]) -> None:
        if not xs:
            return
        flat = [x.reshape(len(x), -1) for x in xs]
        sent = self._comm.broadcast(torch.cat(flat, 1), label="buffers")
        for x, part in zip(xs, sent.split([vector.shape[1] for vector in flat], 1), strict=True):
            x.copy_(part.view_as(x))


def mean_buffers(tensors: Mapping[str, Tensor], comm: Communicator) -> dict[str, Tensor]:
    """Return the means ``(R, *s)`` of floating-point buffers over the workers, and worker 0's of the others.

    The ledger does not note it.
    """
    floats = {name: x for name, x in tensors.items() if x.is_floating_point()}
    with torch.no_grad(), comm.ledger.paused():
        out = dict(zip(floats, comm.all_reduce_coalesced(list(floats.values())), strict=True)) if floats else {}
        return out | {name: comm.broadcast(x) for name, x in tensors.items() if name not in floats}
