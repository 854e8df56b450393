"""Communicators in this process: workers as rows of tensors, which may leave and return, or as shapes alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from syncline.comm.base import Communicator, Details, Ledger, ReduceOp, check_count, reduce_along, repeat_for_workers
from syncline.comm.wire import WireFormat
from syncline.costmodel.traffic.call import Ranks
from syncline.errors import SpecError
from syncline.units import is_whole


@dataclass(frozen=True)
class Absence:
    """The absence of a worker, by its number from 0, in the steps from ``start`` to ``stop - 1``.

    A ``stop`` of None means that the worker does not come back.
    """

    worker: int
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.worker) or self.worker < 0:
            raise SpecError("absence.worker", self.worker, "a worker, from 0")
        if not is_whole(self.start) or self.start < 0:
            raise SpecError("absence.start", self.start, "a step, from 0")
        if self.stop is not None and (not is_whole(self.stop) or self.stop <= self.start):
            raise SpecError("absence.stop", self.stop, f"a step after start ({self.start}), or none")

    def covers(self, step: int) -> bool:
        """Return whether the worker is absent in this step."""
        return self.start <= step and (self.stop is None or step < self.stop)


class Membership:
    """The workers of a group of M that take part in each step.

    Args:
        workers: M, number of workers.
        absences: the absences of workers; overlapping absences of one worker merge.
        joined: by step, workers that start anew in that step, besides the workers that return from an absence.

    >>> membership = Membership(3, [Absence(2, 4, 6)])
    >>> membership.present(3), membership.present(5), membership.joining(6)
    ((0, 1, 2), (0, 1), (2,))
    """

    def __init__(
        self, workers: int, absences: Sequence[Absence] = (), joined: Mapping[int, Collection[int]] | None = None
    ) -> None:
        check_count("workers", workers)
        if not isinstance(absences, list | tuple) or not all(isinstance(item, Absence) for item in absences):
            raise SpecError("absences", absences, "a list of syncline.comm.Absence")
        self.workers, self.absences, self.joined = workers, tuple(absences), dict(joined or {})
        for absence in self.absences:
            if absence.worker >= workers:
                raise SpecError("absence.worker", absence.worker, f"a worker from 0 to {workers - 1}")
        for step in sorted({absence.start for absence in self.absences}):  # fewest are present when a worker leaves
            if not self.present(step):
                raise SpecError("absences", self.absences, f"at least one worker present in step {step}")

    def present(self, step: int) -> tuple[int, ...]:
        """Return the numbers of the workers that take part in a step."""
        absent = {absence.worker for absence in self.absences if absence.covers(step)}
        return tuple(worker for worker in range(self.workers) if worker not in absent)

    def away(self, step: int) -> tuple[int, ...]:
        """Return the numbers of the workers that are absent from a step."""
        return tuple(worker for worker in range(self.workers) if worker not in self.present(step))

    def joining(self, step: int) -> tuple[int, ...]:
        """Return the workers that begin in a step, after an absence or anew (``joined``); none in step 0."""
        if step == 0:
            return ()
        continuing = set(self.present(step - 1)) - set(self.joined.get(step, ()))
        return tuple(worker for worker in self.present(step) if worker not in continuing)

    def table(self, steps: int) -> NDArray[np.bool_]:
        """Return whether each worker takes part in each of the first ``steps`` steps, ``(steps, M)``."""
        present = np.ones((steps, self.workers), dtype=bool)
        for absence in self.absences:
            present[absence.start : absence.stop, absence.worker] = False
        return present


class SimulatedCommunicator(Communicator):
    """A group of ``workers`` simulated in one process, in ``replicas`` independent repetitions.

    Rows are in replica-major order: row ``r * workers + m`` is worker ``m`` of replica ``r``. Replicas never exchange
    anything: each is a run with its own seed, and all share the cost of the Python code.

    Args:
        workers: M, number of workers of a group.
        membership: the workers that take part in each step; all workers if None. Means and maxima are over the workers
            present in the ledger's step, and every row gets them; other collectives are refused.

    >>> import torch
    >>> comm = SimulatedCommunicator(2)
    >>> comm.all_reduce(torch.tensor([[1.0], [3.0]])).tolist()
    [[2.0], [2.0]]
    """

    def __init__(self, workers: int, replicas: int = 1, membership: Membership | None = None) -> None:
        check_count("workers", workers)
        check_count("replicas", replicas)
        if membership is not None and (not isinstance(membership, Membership) or membership.workers != workers):
            given_workers = getattr(membership, "workers", membership)
            raise SpecError("membership", given_workers, f"a membership of {workers} workers")
        self.ledger, self.world_size, self.replicas = Ledger(), workers, replicas
        self.local_workers = list(range(workers)) * replicas
        has_changes = membership is not None and (membership.absences or membership.joined)
        self.membership = membership if has_changes else None  # None, if all workers always take part

    def _by_replica(self, x: Tensor) -> Tensor:
        """Return ``(R, *s)`` as a view ``(replicas, M, *s)``."""
        return x.view(self.replicas, -1, *x.shape[1:])

    def _decode_received(self, x: Tensor, wire: WireFormat) -> Tensor:
        """Return the tensors that receivers decode, ``(replicas, M, *s)``."""
        return self._by_replica(wire.decode(wire.encode(x), x.dtype))

    @override
    def _participants(self, collective: str, op: ReduceOp | None) -> Ranks:
        """Return the workers present in this step; with absences, refuse collectives other than means and maxima."""
        if self.membership is None:
            return range(self.world_size)
        if op not in ("mean", "max"):  # absences would change the result's scale or shape
            collective_name = collective if op is None else f"{collective} ({op})"
            raise SpecError("membership", collective_name, "only means and maxima, if workers may be absent")
        return self.membership.present(self.ledger.step)

    @override
    def _record_subgroup_calls(
        self, collective: str, xs: Sequence[Tensor], wire: WireFormat, subgroup: range, label: str, details: Details
    ) -> None:
        """Record the collectives of all subgroups; raise a SpecError if workers may be absent."""
        if self.membership is not None:
            raise SpecError("membership", "parts of the workers", "means and maxima over all workers present")
        super()._record_subgroup_calls(collective, xs, wire, subgroup, label, details)

    @override
    def _reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> list[Tensor]:
        return [self._reduce_tensor(x, op, wire) for x in xs]

    def _reduce_tensor(self, x: Tensor, op: ReduceOp, wire: WireFormat) -> Tensor:
        """Return the reduction of a tensor over each replica's present workers, in all rows, ``(R, *s)``."""
        if wire.exact_dtype and self.replicas == 1 and self.membership is None:  # the common case, without copies
            return reduce_along(x, dim=0, op=op).expand(x.shape)
        received = self._by_replica(x) if wire.exact_dtype else self._decode_received(x, wire)  # (replicas, M, *s)
        if self.membership is not None:
            received = received[:, list(self.membership.present(self.ledger.step))]
        reduced = reduce_along(received, dim=1, op=op).squeeze(1)  # (replicas, *s)
        if not wire.exact_dtype:  # the result travels too, and is rounded as the tensors were
            reduced = wire.decode(wire.encode(reduced), x.dtype)
        return repeat_for_workers(reduced, num_rows=len(x))

    @override
    def _all_gather(self, x: Tensor, wire: WireFormat) -> Tensor:
        received = self._decode_received(x, wire)
        receivers = senders = received.shape[1]
        return received.unsqueeze(1).expand(self.replicas, receivers, senders, *x.shape[1:]).flatten(0, 1)

    @override
    def _gather_to_root(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        received = self._decode_received(x, wire)
        gathered = received.new_zeros(self.replicas, self.world_size, *received.shape[1:])
        gathered[:, root] = received
        return gathered.flatten(0, 1)

    @override
    def _send(self, x: Tensor, source: int, target: int, wire: WireFormat) -> Tensor:
        if self.membership is not None:
            raise SpecError("membership", "send", "only means and maxima, if workers may be absent")
        received = self._decode_received(x, wire)
        delivered = torch.zeros_like(received)
        delivered[:, target] = received[:, source]
        return delivered.flatten(0, 1)

    @override
    def _all_to_all(self, x: Tensor, wire: WireFormat) -> Tensor:
        sent = self._decode_received(x, wire)  # (replicas, senders, receivers, *s)
        return sent.transpose(1, 2).flatten(0, 1)

    @override
    def _reduce_scatter(self, x: Tensor, op: ReduceOp, wire: WireFormat) -> Tensor:
        # The blocks are (replicas, senders, receivers, *s), and 1 long in the senders after the reduction.
        return reduce_along(self._decode_received(x, wire), dim=1, op=op).flatten(0, 2)

    @override
    def _broadcast_from(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        received = self._decode_received(x, wire)
        return received[:, root : root + 1].expand(received.shape).flatten(0, 1)

    def _block_communicator(self, size: int) -> SimulatedCommunicator:
        """Return a communicator in which each block of ``size`` neighbouring workers is a group of its own."""
        return SimulatedCommunicator(size, self.replicas * (self.world_size // size))

    @override
    def _block_means(self, xs: Sequence[Tensor], size: int, wire: WireFormat) -> list[Tensor]:
        return self._block_communicator(size).all_reduce_coalesced(xs, wire=wire)

    @override
    def _gather_in_subgroups(self, x: Tensor, subgroup: range) -> Tensor:
        if subgroup.step == 1:  # a block of neighbours
            return self._block_communicator(len(subgroup)).all_gather(x)
        block_size = subgroup.step  # the subgroup has one worker of each block, at the same position
        by_block = self._by_replica(x).unflatten(1, (-1, block_size))
        by_position = by_block.transpose(1, 2)  # (replicas, block_size, number of blocks, *s)
        # The new axis is the receiver's block: at one position, workers of all blocks get the same tensors.
        return by_position.unsqueeze(1).expand(-1, len(subgroup), *by_position.shape[1:]).flatten(0, 2)


class ShapesCommunicator(Communicator):
    """A group of workers without values: a tensor has one worker's row, and only its shape and type are right.

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
    def _all_gather(self, x: Tensor, wire: WireFormat) -> Tensor:
        return self._gather_in_subgroups(x, range(self.world_size))

    @override
    def _gather_to_root(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        return x.new_empty(1, self.world_size, *x.shape[1:])

    @override
    def _send(self, x: Tensor, source: int, target: int, wire: WireFormat) -> Tensor:
        return torch.empty_like(x)

    @override
    def _all_to_all(self, x: Tensor, wire: WireFormat) -> Tensor:
        return torch.empty_like(x)

    @override
    def _broadcast_from(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        return torch.empty_like(x)

    @override
    def _block_means(self, xs: Sequence[Tensor], size: int, wire: WireFormat) -> list[Tensor]:
        return [torch.empty_like(x) for x in xs]

    @override
    def _gather_in_subgroups(self, x: Tensor, subgroup: range) -> Tensor:
        return x.unsqueeze(1).expand(1, len(subgroup), *x.shape[1:])
