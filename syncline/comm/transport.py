"""The protocol of transports, which carry bytes between the processes of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

Completion = Callable[[], object]
"""A function that blocks until the result is available."""


@runtime_checkable
class Transport(Protocol):
    """The collectives of a backend, on flat contiguous tensors; methods that return a `Completion` only start them.

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
        """Start an exchange that concatenates the ``sent`` of all processes in ``gathered``."""
        ...

    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        """Fill ``parts`` with the tensors of all processes on the root; on other processes ``parts`` is empty."""
        ...

    def broadcast(self, x: Tensor, root: int) -> None:
        """Copy the root's tensor to all processes, in place."""
        ...
