"""Communicators on real processes: collectives of ``torch.distributed``, with any number of workers per process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from syncline.comm.base import (
    Communicator,
    Handle,
    PerPeer,
    PerWorker,
    ReduceOp,
    check_blocks,
    check_count,
    check_op,
    check_root,
    check_tensors,
    elements_per_row,
    flat,
    note,
    note_parts,
    reduce_rows,
)
from syncline.comm.ledger import PLAIN, Details, Ledger
from syncline.comm.membership import Membership
from syncline.comm.transport import Completion, Transport
from syncline.comm.wire import DENSE, WireFormat
from syncline.costmodel.traffic.call import groups_like
from syncline.errors import SpecError, SynclineError


class ProcessGroupCommunicator(Communicator):
    """A group of ``P * workers_per_process`` workers on the ``P`` processes of a ``torch.distributed`` group.

    Process ``p`` holds workers ``p * R`` to ``(p + 1) * R - 1``. An exact format is reduced by one all-reduce of the
    process's partial reduction. A format that rounds travels encoded: an all-to-all of blocks, a local reduction in
    full precision and an all-gather. This moves the bytes of a ring all-reduce and rounds once in each direction,
    whatever the number of workers.

    Args:
        workers_per_process: R, the rows of each process's tensors.
        group: a process group; the default group if None.
        reproducible: reduce exact formats by blocks too, as formats that round. A backend's all-reduce adds in its own
            order, which differs from the simulator's in the last bit, and a long training can amplify that bit. The
            block-wise reduction adds in the simulator's order, so all bits agree, for the same bytes on the wire.
        membership: must be None, see `SimulatedCommunicator`.
        transport: carries the bytes in place of ``torch.distributed``; `SharedMemory` between processes of one machine.

    Raises:
        SpecError: a membership.
        SynclineError: if ``torch.distributed`` is not initialised.
    """

    replicas = 1

    def __init__(
        self,
        workers_per_process: int = 1,
        group: dist.ProcessGroup | None = None,
        *,
        reproducible: bool = False,
        membership: Membership | None = None,
        transport: Transport | None = None,
    ) -> None:
        if membership is not None:
            raise SpecError(
                "membership", "given", "none: only the simulated world has workers that leave and come back"
            )
        check_count("workers_per_process", workers_per_process)
        self.ledger = Ledger()
        self._transport = transport or TorchTransport(group)
        self._reproducible = reproducible
        self._rows = workers_per_process
        self._processes, self._rank = self._transport.processes, self._transport.rank
        self._group = range(self.world_size)
        self._parts: dict[range, ProcessGroupCommunicator] = {}

    @property
    def world_size(self) -> int:
        """Return M, the number of workers in the group."""
        return self._processes * self._rows

    @property
    def local_workers(self) -> Sequence[int]:
        """Return the worker of each row."""
        return range(self._rank * self._rows, (self._rank + 1) * self._rows)

    def _check(self, xs: Sequence[Tensor]) -> None:
        check_tensors(xs)
        for x in xs:
            if x.dim() == 0 or x.shape[0] != self._rows:
                raise SpecError("worker axis", tuple(x.shape), f"{self._rows} rows in the first dimension")

    def _note(self, collective: str, xs: Sequence[Tensor], wire: WireFormat, label: str, details: Details) -> None:
        note(self.ledger, collective, xs, wire, self._group, label, details)

    # Tensors travel as bytes, so that every element type passes through every backend.

    def _start_exchange(self, blocks: Tensor) -> Callable[[], Tensor]:
        """Start an all-to-all of ``(R, M, *s)``; return the function that waits for the result ``(R, M, *s)``."""
        rows, processes, rest = self._rows, self._processes, blocks.shape[2:]
        by_process = blocks.unflatten(1, (processes, rows)).transpose(0, 1).contiguous()  # (P, R from, R to, *s)
        received = torch.empty_like(by_process)
        wait = self._transport.all_to_all(_bytes(received), _bytes(by_process))

        def finish() -> Tensor:
            wait()
            return received.movedim(2, 0).reshape(rows, processes * rows, *rest)

        return finish

    def _start_gather(self, x: Tensor) -> Callable[[], Tensor]:
        """Start an all-gather of ``(R, *s)``; return the function that waits for a view ``(R, M, *s)``."""
        sent = x.contiguous()
        gathered = torch.empty(self.world_size, *x.shape[1:], dtype=x.dtype, device=x.device)
        wait = self._transport.all_gather(_bytes(gathered), _bytes(sent))

        def finish() -> Tensor:
            wait()
            return gathered.unsqueeze(0).expand(self._rows, *gathered.shape)

        return finish

    def _start_exact(self, xs: Sequence[Tensor], op: ReduceOp) -> Callable[[], list[Tensor]]:
        """Start one all-reduce per element type of the concatenated local partial reductions."""
        partial: ReduceOp = "max" if op == "max" else "sum"
        pending = []
        for _, run in groupby(xs, key=lambda x: x.dtype):
            tensors = list(run)
            flat = torch.cat([reduce_rows(x, 0, partial).flatten() for x in tensors])
            pending.append((tensors, flat, self._transport.all_reduce(flat, op == "max")))

        def finish() -> list[Tensor]:
            out: list[Tensor] = []
            for tensors, flat, wait in pending:
                wait()
                reduced = flat / self.world_size if op == "mean" else flat
                parts = reduced.split([elements_per_row(x) for x in tensors])
                out += [part.view(1, *x.shape[1:]).expand_as(x) for part, x in zip(parts, tensors, strict=True)]
            return out

        return finish

    def _start_end_to_end(self, xs: Sequence[Tensor], op: ReduceOp) -> Callable[[], list[Tensor]]:
        """Start one block-wise reduction per element type of the concatenated tensors."""
        pending = []
        for _, run in groupby(xs, key=lambda x: x.dtype):
            tensors = list(run)
            pending.append((tensors, self._start_encoded(torch.cat([flat(x) for x in tensors], 1), op, DENSE)))

        def finish() -> list[Tensor]:
            out: list[Tensor] = []
            for tensors, reduced in pending:
                parts = reduced().split([elements_per_row(x) for x in tensors], dim=1)
                out += [part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True)]
            return out

        return finish

    def _start_encoded(self, x: Tensor, op: ReduceOp, wire: WireFormat) -> Callable[[], Tensor]:
        """Start a block-wise reduction: send encoded blocks to their owners, reduce them there, gather the results."""
        encoded = flat(wire.encode(x))
        elements = encoded.shape[1]
        block = -(-elements // self.world_size)
        padded = torch.nn.functional.pad(encoded, (0, block * self.world_size - elements))
        exchange = self._start_exchange(padded.unflatten(1, (self.world_size, block)))

        def finish() -> Tensor:
            owned = reduce_rows(wire.decode(exchange(), x.dtype), 1, op).squeeze(1)
            gathered = self._start_gather(wire.encode(owned))()
            return wire.decode(gathered.flatten(1)[:, :elements], x.dtype).view(x.shape)

        return finish

    def _start_reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> Callable[[], list[Tensor]]:
        check_op(op, xs)
        self._check(xs)
        if wire.exact_dtype and not self._reproducible:
            return self._start_exact(xs, op)
        if wire.exact_dtype:
            return self._start_end_to_end(xs, op)
        started = [self._start_encoded(x, op, wire) for x in xs]
        return lambda: [finish() for finish in started]

    # The protocol.

    @override
    def all_reduce_coalesced(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> list[Tensor]:
        return self.start_all_reduce(xs, op, wire, label, details).wait()

    @override
    def start_all_reduce(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> Handle:
        finish = self._start_reduce(xs, op, wire)
        self._note("all_reduce", xs, wire, label, details)
        return Handle(finish)

    @override
    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        return self.start_all_gather(x, wire, label, details).wait()[0]

    @override
    def start_all_gather(
        self, x: Tensor, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> Handle:
        self._check([x])
        self._note("all_gather", [x], wire, label, details)
        gather = self._start_gather(wire.encode(x))
        return Handle(lambda: [wire.decode(gather(), x.dtype)])

    @override
    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        check_blocks(size, self.world_size)
        self._check(xs)
        note_parts(self.ledger, "all_reduce", xs, wire, range(size), self.world_size, label, details)
        if size == 1:
            return list(xs)
        part = self._part(range(size))
        if part is not None:
            return part.all_reduce_coalesced(xs, wire=wire)
        return [self._own_block(x, size, wire) for x in xs]

    def _own_block(self, x: Tensor, size: int, wire: WireFormat) -> Tensor:
        """Return the mean of each row's block from an all-gather of all rows, for blocks that are no process groups."""
        gathered = wire.decode(self._start_gather(wire.encode(x))(), x.dtype)[0].unflatten(0, (-1, size))
        means = wire.decode(wire.encode(reduce_rows(gathered, 1, "mean").squeeze(1)), x.dtype)
        return means[[worker // size for worker in self.local_workers]]

    @override
    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        check_blocks(size, self.world_size)
        self._check([x])
        places = range(0, self.world_size, size)
        note_parts(self.ledger, "all_gather", [x], DENSE, places, self.world_size, label, details)
        if len(places) == 1:
            return x.unsqueeze(1)
        part = self._part(places)
        if part is not None:
            return part.all_gather(x)
        by_place = self._start_gather(x)()[0].unflatten(0, (-1, size)).transpose(0, 1)
        return by_place[[worker % size for worker in self.local_workers]]

    @override
    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        check_blocks(size, self.world_size)
        self._check([x])
        note_parts(self.ledger, "all_gather", [x], DENSE, range(size), self.world_size, label, details)
        if size == 1:
            return x.unsqueeze(1)
        part = self._part(range(size))
        if part is not None:
            return part.all_gather(x)
        return self._start_gather(x)()[0].unflatten(0, (-1, size))[[worker // size for worker in self.local_workers]]

    def _part(self, part: range) -> ProcessGroupCommunicator | None:
        """Return the communicator of this process's part, among the parts of the group that are like ``part``.

        Return None if several workers share a process or another transport carries the bytes. All processes create all
        groups.
        """
        if self._rows > 1 or not isinstance(self._transport, TorchTransport):
            return None
        if part not in self._parts:
            for ranks in groups_like(part, self.world_size):
                group = self._transport.part(ranks)
                if self._rank in ranks:
                    self._parts[part] = ProcessGroupCommunicator(1, group, reproducible=self._reproducible)
        return self._parts[part]

    @override
    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        check_root(root, self.world_size)
        self._check([x])
        self._note("gather", [x], wire, label, details)
        process, row = divmod(root, self._rows)
        sent = wire.encode(x).contiguous()
        gathered = x.new_zeros(self._rows, self.world_size, *x.shape[1:])
        parts = [torch.empty_like(sent) for _ in range(self._processes)] if process == self._rank else []
        self._transport.gather(_bytes(sent), [_bytes(part) for part in parts], process)
        if parts:
            gathered[row] = wire.decode(torch.cat(parts), x.dtype)
        return gathered

    @override
    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        self._check([x])
        self._note("all_to_all", [x], wire, label, details)
        return wire.decode(self._start_exchange(wire.encode(x))(), x.dtype)

    @override
    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        # An all-to-all of blocks and a local reduction move the bytes of a ring.
        check_op(op, [x])
        self._check([x])
        self._note("reduce_scatter", [x], wire, label, details)
        return reduce_rows(wire.decode(self._start_exchange(wire.encode(x))(), x.dtype), 1, op).squeeze(1)

    @override
    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        check_root(root, self.world_size)
        self._check([x])
        self._note("broadcast", [x], wire, label, details)
        process, row = divmod(root, self._rows)
        sent = wire.encode(x)[row].contiguous().clone()
        self._transport.broadcast(_bytes(sent), process)
        return wire.decode(sent, x.dtype).unsqueeze(0).expand_as(x)


def global_rank(group: dist.ProcessGroup | None, rank: int) -> int:
    """Return the rank in the default group of a rank in ``group``; torch takes ranks of a group since 2.6 only."""
    return rank if group is None else dist.get_global_rank(group, rank)


class TorchTransport(Transport):
    """The collectives of a ``torch.distributed`` group.

    Args:
        group: the default group if none.

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


# torch 2.13 renamed all_gather_into_tensor; older versions have only the old name.
_all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _bytes(x: Tensor) -> Tensor:
    """Return a contiguous tensor as its bytes, without a copy."""
    return x.view(-1).view(torch.uint8)
