"""What carries bytes between the processes of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

Completion = Callable[[], object]
"""Blocks until the result is there."""


@runtime_checkable
class Transport(Protocol):
    """The collectives that a backend has, on flat contiguous tensors; those that return a `Completion` only start.

    Attributes:
        processes: P.
        rank: of this process.
    """

    processes: int
    rank: int

    def all_reduce(self, x: Tensor, maximum: bool) -> Completion:
        """Sum or maximum over the processes, in place."""
        ...

    def all_to_all(self, received: Tensor, sent: Tensor) -> Completion:
        """The p-th of P equal blocks of ``sent`` goes to process p."""
        ...

    def all_gather(self, gathered: Tensor, sent: Tensor) -> Completion:
        """What all processes sent, end to end."""
        ...

    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        """What all processes sent, at the root alone; elsewhere ``parts`` is empty."""
        ...

    def broadcast(self, x: Tensor, root: int) -> None:
        """The root's tensor, in place."""
        ...
