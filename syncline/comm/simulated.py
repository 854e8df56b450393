"""The simulated communicator: all workers of the group are rows of tensors in this process."""

from __future__ import annotations

from collections.abc import Sequence

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
    reduce_rows,
)
from syncline.comm.ledger import PLAIN, Details, Ledger
from syncline.comm.membership import Membership
from syncline.comm.wire import DENSE, WireFormat
from syncline.costmodel.traffic.call import Ranks
from syncline.errors import SpecError


class SimulatedCommunicator(Communicator):
    """A group of ``workers`` that live in one process, ``replicas`` times side by side.

    Rows are in replica-major order: row ``r * workers + m`` is worker ``m`` of replica ``r``. Replicas never exchange
    anything: they are independent runs (one seed each) that share Python's cost.

    Args:
        workers: M.
        replicas: number of groups.
        membership: the workers of each step; all workers if None. Means and maxima are over the workers present in
            the ledger's step, and every row gets them; other collectives are refused.

    Raises:
        SpecError: a number below 1, or a membership of another number of workers.

    >>> import torch
    >>> comm = SimulatedCommunicator(2)
    >>> comm.all_reduce(torch.tensor([[1.0], [3.0]])).tolist()
    [[2.0], [2.0]]
    """

    def __init__(self, workers: int, replicas: int = 1, membership: Membership | None = None) -> None:
        check_count("workers", workers)
        check_count("replicas", replicas)
        if membership is not None and (not isinstance(membership, Membership) or membership.workers != workers):
            raise SpecError(
                "membership", getattr(membership, "workers", membership), f"a membership of {workers} workers"
            )
        self.ledger = Ledger()
        self.membership = membership if membership is not None and (membership.absences or membership.joined) else None
        self._workers, self._replicas, self._group = workers, replicas, range(workers)

    @property
    def world_size(self) -> int:
        """Return M, the number of workers in the group."""
        return self._workers

    @property
    def replicas(self) -> int:
        """Return the number of independent repetitions of the group."""
        return self._replicas

    @property
    def local_workers(self) -> Sequence[int]:
        """Return the worker of each row."""
        return list(range(self._workers)) * self._replicas

    def _grouped(self, x: Tensor) -> Tensor:
        """View ``(R, *s)`` as ``(replicas, M, *s)``; refuse a wrong worker axis."""
        if x.dim() == 0 or x.shape[0] != self._workers * self._replicas:
            raise SpecError(
                "worker axis", tuple(x.shape), f"{self._workers * self._replicas} rows ({self._workers} workers x "
                f"{self._replicas} replicas) in the first dimension"
            )  # fmt: skip
        return x.view(self._replicas, self._workers, *x.shape[1:])

    def _present(self, x: Tensor) -> Tensor:
        """Return the rows of the workers present, ``(R, *s)`` as ``(replicas, present, *s)``."""
        grouped = self._grouped(x)
        return grouped if self.membership is None else grouped[:, list(self.membership.present(self.ledger.step))]

    def _note(
        self,
        collective: str,
        xs: Sequence[Tensor],
        wire: WireFormat,
        label: str,
        details: Details,
        op: ReduceOp | None = None,
    ) -> None:
        """Note a collective among the workers present; refuse one that absences would change into another."""
        group: Ranks = self._group
        if self.membership is not None:
            group = self.membership.present(self.ledger.step)
            if op not in ("mean", "max"):
                refused = collective if op is None else f"{collective} ({op})"
                raise SpecError("membership", refused, "means and maxima alone, where workers may be absent")
        note(self.ledger, collective, xs, wire, group, label, details)

    def _reduced(self, x: Tensor, op: ReduceOp, wire: WireFormat) -> Tensor:
        if wire.exact_dtype and self._replicas == 1 and self.membership is None:
            self._grouped(x)
            return reduce_rows(x, 0, op).expand(x.shape)
        if wire.exact_dtype:
            reduced = reduce_rows(self._present(x), 1, op)
        else:
            arrived = wire.decode(wire.encode(x), x.dtype)
            owned = reduce_rows(self._present(arrived), 1, op).flatten(0, 1)
            reduced = wire.decode(wire.encode(owned), x.dtype).unflatten(0, (self._replicas, 1))
        return reduced.expand(self._replicas, self._workers, *x.shape[1:]).flatten(0, 1)

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
        self._note("all_reduce", xs, wire, label, details, op)
        return [self._reduced(x, op, wire) for x in xs]

    @override
    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        self._note("all_gather", [x], wire, label, details)
        gathered = self._grouped(wire.decode(wire.encode(x), x.dtype)).unsqueeze(1)
        return gathered.expand(self._replicas, self._workers, self._workers, *x.shape[1:]).flatten(0, 1)

    @override
    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        self._check_parts(size)
        note_parts(self.ledger, "all_reduce", xs, wire, range(size), self._workers, label, details)
        # Each block acts as a separate group, like a replica.
        blocks = SimulatedCommunicator(size, self._replicas * (self._workers // size))
        return blocks.all_reduce_coalesced(xs, wire=wire) if size > 1 else list(xs)

    @override
    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        self._check_parts(size)
        note_parts(self.ledger, "all_gather", [x], DENSE, range(0, self._workers, size), self._workers, label, details)
        by_place = self._grouped(x).unflatten(1, (-1, size)).transpose(1, 2)  # (replicas, size, M/size, *s)
        count = self._workers // size
        return by_place.unsqueeze(1).expand(-1, count, *by_place.shape[1:]).flatten(0, 2)

    @override
    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        self._check_parts(size)
        note_parts(self.ledger, "all_gather", [x], DENSE, range(size), self._workers, label, details)
        return SimulatedCommunicator(size, self._replicas * (self._workers // size)).all_gather(x)

    def _check_parts(self, size: int) -> None:
        check_blocks(size, self._workers)
        if self.membership is not None:
            raise SpecError("membership", "parts of the workers", "means and maxima of all who are there")

    @override
    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        check_root(root, self._workers)
        self._note("gather", [x], wire, label, details)
        arrived = self._grouped(wire.decode(wire.encode(x), x.dtype))
        gathered = arrived.new_zeros(self._replicas, self._workers, *arrived.shape[1:])
        gathered[:, root] = arrived
        return gathered.flatten(0, 1)

    @override
    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        self._note("all_to_all", [x], wire, label, details)
        return self._grouped(wire.decode(wire.encode(x), x.dtype)).transpose(1, 2).flatten(0, 1)

    @override
    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        check_op(op, [x])
        self._note("reduce_scatter", [x], wire, label, details)
        return reduce_rows(self._grouped(wire.decode(wire.encode(x), x.dtype)), 1, op).flatten(0, 2)

    @override
    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        check_root(root, self._workers)
        self._note("broadcast", [x], wire, label, details)
        sent = self._grouped(wire.decode(wire.encode(x), x.dtype))[:, root : root + 1]
        return sent.expand(self._replicas, self._workers, *x.shape[1:]).flatten(0, 1)


def stack(x: Tensor, rows: int) -> Tensor:
    """Repeat a tensor for ``rows`` equal workers, ``(*s) -> (rows, *s)``, with separate memory for each."""
    return x.detach().unsqueeze(0).repeat(rows, *[1] * x.dim())
