"""Sync policies, which decide when states of workers are averaged, and the synchronisation of a module's buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, flatten_rows
from syncline.errors import SpecError, require_one_of
from syncline.optim.base import SyncPolicy
from syncline.seeds import seed64


def _check_names(names: Iterable[str], available: tuple[str, ...]) -> None:
    """Raise a SpecError for the first name that is not available."""
    for name in names:
        require_one_of("sync", name, available)


@dataclass(frozen=True)
class EveryStep(SyncPolicy):
    """A sync policy that averages the gradient in every step, as in data parallelism."""

    def states_due(self, t: int) -> tuple[str, ...]:
        """Return ``gradient``: this policy averages gradients in every step ``t``, and nothing else."""
        return ("gradient",)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(("gradient",), available)


@dataclass(frozen=True)
class Periodic(SyncPolicy):
    """A sync policy that averages state ``s`` after step ``t`` (from 0) if ``(t + 1 - offset_s) % K_s == 0``.

    With offset 0, the default, a state is averaged at the end of its period, so that states with equal periods are sent
    together. MT-DAO's Algorithms 2 and 3 average momenta if ``t % K_j == 0``, which is offset 1.

    Args:
        periods: K per state name (``params`` or a state of the update rule), number of steps between averages.
        offsets: offset per state name, in steps; by default 0.

    Raises:
        SpecError: a period is below 1, or a state does not exist.
    """

    periods: Mapping[str, int]
    offsets: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        for name, period in self.periods.items():
            if period < 1:
                raise SpecError(f"periods.{name}", period, "an integer >= 1")

    def states_due(self, t: int) -> tuple[str, ...]:
        """Return the names of the states that workers average after step ``t``, because their periods end there."""
        due = []
        for name, period in self.periods.items():
            offset = self.offsets.get(name, 0) if self.offsets else 0
            if (t + 1 - offset) % period == 0:
                due.append(name)
        return tuple(due)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(self.periods, available)
        _check_names(self.offsets or {}, tuple(self.periods))


@dataclass(frozen=True)
class Random(SyncPolicy):
    """A sync policy that averages state ``s`` after each step with probability ``1 / K_s``, independently of others.

    The random numbers depend on state and step only, so that all workers draw the same.

    Args:
        periods: K per state name, the mean number of steps between averages.

    Raises:
        SpecError: a period is below 1, or a state does not exist.

    Source: MT-DAO, Algorithm 4.
    """

    periods: Mapping[str, int]

    def __post_init__(self) -> None:
        Periodic(self.periods)  # raises an error for a wrong period

    def states_due(self, t: int) -> tuple[str, ...]:
        """Return the names of the states that the random numbers of step ``t`` select."""
        due = []
        for name, period in self.periods.items():
            random_integer = seed64(0, "average", name, t)  # from 0 to 2^63 - 1, the same on all workers
            if random_integer * period < 2**63:  # with probability 1 / K_s
                due.append(name)
        return tuple(due)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(self.periods, available)


BufferSync = Literal["broadcast", "mean", "none"]
"""How buffers are synchronised after a step: all workers get worker 0's, or the mean of all, or keep their own."""


class Buffers:
    """The buffers of a module on all workers, such as the running statistics of batch norm.

    Args:
        tensors: buffers ``(R, *s)`` by name, which are changed in place.
        comm: the group of workers.
    """

    def __init__(self, tensors: Mapping[str, Tensor], comm: Communicator) -> None:
        self._tensors, self._comm = list(tensors.values()), comm

    @torch.no_grad()
    def synchronise(self, mode: BufferSync) -> None:
        """Set all buffers to worker 0's ("broadcast"), floating-point ones to their "mean", or do nothing ("none")."""
        if mode == "broadcast":
            buffers_by_dtype: dict[torch.dtype, list[Tensor]] = {}
            for x in self._tensors:
                if x.numel():
                    buffers_by_dtype.setdefault(x.dtype, []).append(x)
            for xs in buffers_by_dtype.values():  # tensors of one dtype are joined to one message
                vectors = [flatten_rows(x) for x in xs]
                received = self._comm.broadcast(torch.cat(vectors, 1), label="buffers")
                for x, part in zip(xs, received.split([vector.shape[1] for vector in vectors], 1), strict=True):
                    x.copy_(part.view_as(x))
        elif mode == "mean":
            floats = [x for x in self._tensors if x.is_floating_point() and x.numel()]
            if floats:
                means = self._comm.all_reduce_coalesced(floats, label="buffers")
                for x, mean in zip(floats, means, strict=True):
                    x.copy_(mean)


def mean_buffers(tensors: Mapping[str, Tensor], comm: Communicator) -> dict[str, Tensor]:
    """Return the means ``(R, *s)`` of floating-point buffers over the workers, and worker 0's other buffers, by name.

    The ledger does not record these calls, because they serve an evaluation.
    """
    floats = {name: x for name, x in tensors.items() if x.is_floating_point()}
    buffers: dict[str, Tensor] = {}
    with torch.no_grad(), comm.ledger.paused():
        if floats:
            means = comm.all_reduce_coalesced(list(floats.values()))
            buffers |= zip(floats, means, strict=True)
        for name, x in tensors.items():
            if name not in floats:
                buffers[name] = comm.broadcast(x)
    return buffers
