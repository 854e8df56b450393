"""Communicators on shapes: tensors on torch's ``meta`` device count traffic without memory or arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm.base import Communicator, ReduceOp, check_count
from syncline.comm.ledger import Ledger
from syncline.comm.wire import WireFormat


class ShapesCommunicator(Communicator):
    """One worker of a group of ``workers``, as shapes: results have the right shape and type, and no values.

    A method stepped on ``meta`` parameters with this communicator leaves the same ledger as a real run.

    >>> comm = ShapesCommunicator(8)
    >>> comm.all_gather(torch.empty(1, 5, device="meta"), label="x").shape
    torch.Size([1, 8, 5])
    >>> comm.ledger.payload_bytes()
    20
    """

    def __init__(self, workers: int) -> None:
        check_count("workers", workers)
        self.ledger, self.world_size, self.local_workers = Ledger(), workers, range(1)

    @override
    def _reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> list[Tensor]:
        return [torch.empty_like(x) for x in xs]

    @override
    def _gather_all(self, x: Tensor, wire: WireFormat) -> Tensor:
        return self._gather_parts(x, range(self.world_size))

    @override
    def _gather_on(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        return x.new_empty(1, self.world_size, *x.shape[1:])

    @override
    def _carry(self, x: Tensor, source: int, target: int, wire: WireFormat) -> Tensor:
        return torch.empty_like(x)

    @override
    def _exchange(self, x: Tensor, wire: WireFormat) -> Tensor:
        return torch.empty_like(x)

    @override
    def _copy_from(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        return torch.empty_like(x)

    @override
    def _mean_of_blocks(self, xs: Sequence[Tensor], size: int, wire: WireFormat) -> list[Tensor]:
        return [torch.empty_like(x) for x in xs]

    @override
    def _gather_parts(self, x: Tensor, part: range) -> Tensor:
        return x.unsqueeze(1).expand(1, len(part), *x.shape[1:])
