"""Buffers of a module over the workers: what a normalisation has seen of its data, and all else that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from syncline.comm import Communicator

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
