"""Communicators on shapes: tensors on torch's ``meta`` device count traffic without memory or arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm.base import (
    Communicator,
    PerPeer,
    PerWorker,
    ReduceOp,
    check_blocks,
    check_count,
    check_op,
    check_root,
    note,
    note_parts,
)
from syncline.comm.ledger import PLAIN, Details, Ledger
from syncline.comm.wire import DENSE, WireFormat


class ShapesCommunicator(Communicator):
    """One worker of a group of ``workers``, as shapes: results have the right shape and type, and no values.

    A method stepped on ``meta`` parameters with this communicator leaves the same ledger as a real run.

    >>> comm = ShapesCommunicator(8)
    >>> comm.all_gather(torch.empty(1, 5, device="meta"), label="x").shape
    torch.Size([1, 8, 5])
    >>> comm.ledger.payload_bytes()
    20
    """

    replicas = 1
    local_workers = range(1)

    def __init__(self, workers: int) -> None:
        check_count("workers", workers)
        self.ledger = Ledger()
        self._group = range(workers)

    @property
    @override
    def world_size(self) -> int:
        return len(self._group)

    def _note(self, collective: str, xs: Sequence[Tensor], wire: WireFormat, label: str, details: Details) -> None:
        note(self.ledger, collective, xs, wire, self._group, label, details)

    @override
    def all_reduce_coalesced(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> list[Tensor]:
        check_op(op, xs)
        self._note("all_reduce", xs, wire, label, details)
        return [torch.empty_like(x) for x in xs]

    @override
    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        self._note("all_gather", [x], wire, label, details)
        return x.unsqueeze(1).expand(1, self.world_size, *x.shape[1:])

    @override
    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        check_blocks(size, self.world_size)
        note_parts(self.ledger, "all_reduce", xs, wire, range(size), self.world_size, label, details)
        return [torch.empty_like(x) for x in xs]

    @override
    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        check_blocks(size, self.world_size)
        places = range(0, self.world_size, size)
        note_parts(self.ledger, "all_gather", [x], DENSE, places, self.world_size, label, details)
        return x.unsqueeze(1).expand(1, len(places), *x.shape[1:])

    @override
    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        check_blocks(size, self.world_size)
        note_parts(self.ledger, "all_gather", [x], DENSE, range(size), self.world_size, label, details)
        return x.unsqueeze(1).expand(1, size, *x.shape[1:])

    @override
    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        check_root(root, self.world_size)
        self._note("gather", [x], wire, label, details)
        return x.new_empty(1, self.world_size, *x.shape[1:])

    @override
    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        self._note("all_to_all", [x], wire, label, details)
        return torch.empty_like(x)

    @override
    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        check_op(op, [x])
        self._note("reduce_scatter", [x], wire, label, details)
        return torch.empty_like(x[:, 0])

    @override
    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        check_root(root, self.world_size)
        self._note("broadcast", [x], wire, label, details)
        return torch.empty_like(x)
