"""Transports, which carry bytes between the processes of a group: the protocol, and ``torch.distributed``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from syncline.errors import SynclineError

Completion = Callable[[], object]
"""A function that blocks until the result is available."""


@runtime_checkable
class Transport(Protocol):
    """The collectives of a backend, on flat contiguous tensors; a method that returns a `Completion` only starts one.

    Attributes:
        processes: P, the number of processes.
        rank: rank of this process.
    """

    processes: int
    rank: int

    def all_reduce(self, x: Tensor, maximum: bool) -> Completion:
        """Start the sum or maximum over the processes, in place."""
        ...

    def all_to_all(self, received: Tensor, sent: Tensor) -> Completion:
        """Start an exchange that sends the p-th of P equal blocks of ``sent`` to process p."""
        ...

    def all_gather(self, gathered: Tensor, sent: Tensor) -> Completion:
        """Start an exchange that concatenates the tensors ``sent`` of all processes in ``gathered``."""
        ...

    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        """Fill ``parts`` with the tensors of all processes on the root; on other processes ``parts`` is empty."""
        ...

    def broadcast(self, x: Tensor, root: int) -> None:
        """Copy the root's tensor to all processes, in place."""
        ...

    def send(self, x: Tensor, source: int, target: int) -> None:
        """Copy the source's tensor to the target, in place; all processes call this method."""
        ...


def global_rank(group: dist.ProcessGroup | None, rank: int) -> int:
    """Return the rank in the default group of a rank in ``group``; torch takes ranks of a group since 2.6 only."""
    return rank if group is None else dist.get_global_rank(group, rank)


class TorchTransport(Transport):
    """The collectives of a ``torch.distributed`` group.

    Args:
        group: the process group; the default group if None.

    Raises:
        SynclineError: if ``torch.distributed`` is not initialised.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise SynclineError("torch.distributed is not initialised; call init_process_group first (or use torchrun)")
        self._group = group
        self.processes, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def part(self, ranks: Sequence[int]) -> Any:
        """Create a group of some of the processes, by their ranks in this group; every process must call this."""
        return dist.new_group([global_rank(self._group, rank) for rank in ranks])

    @override
    def all_reduce(self, x: Tensor, maximum: bool) -> Completion:
        op = dist.ReduceOp.MAX if maximum else dist.ReduceOp.SUM
        return dist.all_reduce(x, op, group=self._group, async_op=True).wait

    @override
    def all_to_all(self, received: Tensor, sent: Tensor) -> Completion:
        return dist.all_to_all_single(received, sent, group=self._group, async_op=True).wait

    @override
    def all_gather(self, gathered: Tensor, sent: Tensor) -> Completion:
        return _all_gather_single(gathered, sent, group=self._group, async_op=True).wait

    @override
    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        dist.gather(sent, list(parts) or None, global_rank(self._group, root), group=self._group)

    @override
    def broadcast(self, x: Tensor, root: int) -> None:
        dist.broadcast(x, global_rank(self._group, root), group=self._group)

    @override
    def send(self, x: Tensor, source: int, target: int) -> None:
        if self.rank == source:
            dist.send(x, global_rank(self._group, target), group=self._group)
        elif self.rank == target:
            dist.recv(x, global_rank(self._group, source), group=self._group)


# torch 2.13 renamed all_gather_into_tensor; older versions have only the old name.
_all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
