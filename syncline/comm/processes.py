"""Communicators on real processes: collectives of ``torch.distributed``, with any number of workers per process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from syncline.comm.base import Communicator, Ledger, ReduceOp, check_count, elements_per_row, flatten_rows, reduce_along
from syncline.comm.simulated import Membership
from syncline.comm.transport import TorchTransport, Transport
from syncline.comm.wire import DENSE, WireFormat
from syncline.costmodel.traffic.call import groups_like
from syncline.errors import SpecError


class ProcessGroupCommunicator(Communicator):
    """A group of ``P * workers_per_process`` workers on the ``P`` processes of a ``torch.distributed`` group.

    With R workers per process, process p has the workers ``p R`` to ``(p + 1) R - 1``. For an exact format each process
    reduces its own rows, and one all-reduce combines the processes. A format that rounds needs an all-to-all of encoded
    blocks, a local reduction in full precision and an all-gather. This moves the bytes of a ring all-reduce and rounds
    once in each direction, whatever the number of workers.

    Args:
        workers_per_process: R, the rows of each process's tensors.
        reproducible: whether exact formats are reduced by blocks too, as formats that round. A backend's all-reduce
            adds in its own order, which differs from the simulator's in the last bit, and a long training can amplify
            that bit. The block-wise reduction adds in the simulator's order, so all bits agree, for the same bytes on
            the wire.
        membership: must be None, see `SimulatedCommunicator`.
        transport: carries the bytes in place of ``torch.distributed``; `SharedMemory` between processes of one machine.

    Raises:
        SpecError: a membership.
        SynclineError: if ``torch.distributed`` is not initialised.
    """

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
            raise SpecError("membership", "given", "none: only simulated workers leave and come back")
        check_count("workers_per_process", workers_per_process)
        self.ledger = Ledger()
        self._transport = transport or TorchTransport(group)
        self._reproducible = reproducible
        self._rows = workers_per_process  # R
        self._processes, self._rank = self._transport.processes, self._transport.rank
        self.world_size = self._processes * workers_per_process
        self.local_workers = range(self._rank * workers_per_process, (self._rank + 1) * workers_per_process)
        self._subgroups: dict[range, ProcessGroupCommunicator] = {}

    # Tensors travel as bytes, so that every element type passes through every backend.

    def _start_exchange(self, blocks: Tensor) -> Callable[[], Tensor]:
        """Start an all-to-all of ``(R, M, *s)`` of M workers; return the function that waits for the same shape."""
        rows, processes = self._rows, self._processes
        sent = blocks.unflatten(1, (processes, rows)).transpose(0, 1).contiguous()  # (P, R senders, R receivers, *s)
        received = torch.empty_like(sent)
        wait = self._transport.all_to_all(_bytes(received), _bytes(sent))

        def finish() -> Tensor:
            wait()
            by_receiver = received.movedim(2, 0)  # from (P, R senders, R receivers, *s)
            return by_receiver.reshape(rows, processes * rows, *blocks.shape[2:])

        return finish

    def _start_gather(self, x: Tensor) -> Callable[[], Tensor]:
        """Start an all-gather of ``(R, *s)``; return the function that waits for a view ``(R, M, *s)``."""
        gathered = torch.empty(self.world_size, *x.shape[1:], dtype=x.dtype, device=x.device)
        wait = self._transport.all_gather(_bytes(gathered), sent=_bytes(x.contiguous()))

        def finish() -> Tensor:
            wait()
            return gathered.unsqueeze(0).expand(self._rows, *gathered.shape)

        return finish

    def _start_by_type(self, xs: Sequence[Tensor], op: ReduceOp) -> Callable[[], list[Tensor]]:
        """Start an exact reduction for each run of tensors of equal type; return the function that awaits all."""
        pending: list[tuple[list[Tensor], Callable[[], Tensor]]] = []
        for _, same_type in groupby(xs, key=lambda x: x.dtype):  # only neighbours, so that the order stays
            tensors = list(same_type)
            joined = torch.cat([flatten_rows(x) for x in tensors], 1)
            if self._reproducible:
                pending.append((tensors, self._start_encoded(joined, op, DENSE)))
            else:
                pending.append((tensors, self._start_exact(joined, op)))

        def finish() -> list[Tensor]:
            """Wait for the reductions, and return them in the tensors' order and shapes."""
            reductions: list[Tensor] = []
            for tensors, finish_joined in pending:
                parts = finish_joined().split([elements_per_row(x) for x in tensors], dim=1)
                reductions += [part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True)]
            return reductions

        return finish

    def _start_exact(self, x: Tensor, op: ReduceOp) -> Callable[[], Tensor]:
        """Start an all-reduce of the processes' partial reductions of ``x``, ``(R, n)``; ``x`` may be overwritten."""
        is_maximum = op == "max"
        reduced = reduce_along(x, dim=0, op="max" if is_maximum else "sum").flatten()
        wait = self._transport.all_reduce(reduced, maximum=is_maximum)

        def finish() -> Tensor:
            wait()
            result = reduced / self.world_size if op == "mean" else reduced
            return result.expand_as(x)

        return finish

    def _start_encoded(self, x: Tensor, op: ReduceOp, wire: WireFormat) -> Callable[[], Tensor]:
        """Start to reduce encoded tensors by blocks: each worker reduces a block, and sends it to all workers."""
        encoded = flatten_rows(wire.encode(x))  # (R, n)
        elements = encoded.shape[1]
        block_size = math.ceil(elements / self.world_size)
        padded = torch.nn.functional.pad(encoded, (0, block_size * self.world_size - elements))
        exchange = self._start_exchange(padded.unflatten(1, (self.world_size, block_size)))

        def finish() -> Tensor:
            received_blocks = wire.decode(exchange(), x.dtype)  # (R, M senders, block_size)
            reduced_blocks = reduce_along(received_blocks, dim=1, op=op).squeeze(1)
            gather = self._start_gather(wire.encode(reduced_blocks))
            all_blocks = gather().flatten(1)[:, :elements]  # without the padding
            return wire.decode(all_blocks, x.dtype).view(x.shape)

        return finish

    @override
    def _start_reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> Callable[[], list[Tensor]]:
        if wire.exact_dtype:
            return self._start_by_type(xs, op)
        handles = [self._start_encoded(x, op, wire) for x in xs]
        return lambda: [finish() for finish in handles]

    @override
    def _reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> list[Tensor]:
        return self._start_reduce(xs, op, wire)()

    @override
    def _start_all_gather(self, x: Tensor, wire: WireFormat) -> Callable[[], Tensor]:
        gather = self._start_gather(wire.encode(x))
        return lambda: wire.decode(gather(), x.dtype)

    @override
    def _all_gather(self, x: Tensor, wire: WireFormat) -> Tensor:
        return self._start_all_gather(x, wire)()

    @override
    def _gather_to_root(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        root_process, root_row = divmod(root, self._rows)
        encoded = wire.encode(x).contiguous()
        gathered = x.new_zeros(self._rows, self.world_size, *x.shape[1:])
        parts: list[Tensor] = []  # a part from each process, on the root only
        if self._rank == root_process:
            parts = [torch.empty_like(encoded) for _ in range(self._processes)]
        self._transport.gather(_bytes(encoded), [_bytes(part) for part in parts], root_process)
        if parts:
            gathered[root_row] = wire.decode(torch.cat(parts), x.dtype)
        return gathered

    @override
    def _send(self, x: Tensor, source: int, target: int, wire: WireFormat) -> Tensor:
        source_process, source_row = divmod(source, self._rows)
        target_process, target_row = divmod(target, self._rows)
        # The encoded row, ``(1, *s)``; in the target's process the transport overwrites it.
        message = wire.encode(x)[source_row : source_row + 1].contiguous().clone()
        if source_process != target_process:
            self._transport.send(_bytes(message), source_process, target_process)
        received = torch.zeros_like(x)
        if self._rank == target_process:
            received[target_row] = wire.decode(message, x.dtype)[0]
        return received

    @override
    def _all_to_all(self, x: Tensor, wire: WireFormat) -> Tensor:
        exchange = self._start_exchange(wire.encode(x))
        return wire.decode(exchange(), x.dtype)

    @override
    def _broadcast_from(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        root_process, root_row = divmod(root, self._rows)
        message = wire.encode(x)[root_row].contiguous().clone()  # the transport writes into it on other processes
        self._transport.broadcast(_bytes(message), root_process)
        return wire.decode(message, x.dtype).unsqueeze(0).expand_as(x)

    @override
    def _block_means(self, xs: Sequence[Tensor], size: int, wire: WireFormat) -> list[Tensor]:
        subgroup_comm = self._subgroup_communicator(range(size))
        if subgroup_comm is not None:
            return subgroup_comm.all_reduce_coalesced(xs, wire=wire)
        own_blocks = [worker // size for worker in self.local_workers]
        means = []
        for x in xs:  # blocks are no process groups: gather the rows of all workers
            by_block = self._all_gather(x, wire)[0].unflatten(0, (-1, size))
            block_means = reduce_along(by_block, dim=1, op="mean").squeeze(1)
            means.append(wire.decode(wire.encode(block_means), x.dtype)[own_blocks])  # the result is rounded, too
        return means

    @override
    def _gather_in_subgroups(self, x: Tensor, subgroup: range) -> Tensor:
        subgroup_comm = self._subgroup_communicator(subgroup)
        if subgroup_comm is not None:
            return subgroup_comm.all_gather(x)
        gather = self._start_gather(x)
        gathered = gather()[0]  # (M, *s); all rows are equal
        if subgroup.step == 1:  # a block of neighbours
            size = len(subgroup)
            return gathered.unflatten(0, (-1, size))[[worker // size for worker in self.local_workers]]
        # The workers at one position of all blocks, (positions, blocks, *s).
        by_position = gathered.unflatten(0, (-1, subgroup.step)).transpose(0, 1)
        return by_position[[worker % subgroup.step for worker in self.local_workers]]

    def _subgroup_communicator(self, subgroup: range) -> ProcessGroupCommunicator | None:
        """Return the communicator of this process's subgroup; ``subgroup`` is the subgroup of worker 0.

        Return None if several workers share a process or if the transport is not ``torch.distributed``. All processes
        create the groups of all subgroups, as torch demands.
        """
        if self._rows > 1 or not isinstance(self._transport, TorchTransport):
            return None
        if subgroup not in self._subgroups:
            for ranks in groups_like(subgroup, self.world_size):
                group = self._transport.new_group(ranks)
                if self._rank in ranks:
                    self._subgroups[subgroup] = ProcessGroupCommunicator(
                        workers_per_process=1, group=group, reproducible=self._reproducible
                    )
        return self._subgroups[subgroup]


def _bytes(x: Tensor) -> Tensor:
    """Return a view of a contiguous tensor as its bytes."""
    return x.view(-1).view(torch.uint8)
