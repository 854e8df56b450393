"""Transports, which carry bytes between the processes of a group: ``torch.distributed``, and one machine's memory.

Memory in place of a network times a training's software alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError, SynclineError

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

    def all_to_all(self, received: Tensor, sent: Tensor) -> Completion:
        """Start an exchange that sends the p-th of P equal blocks of ``sent`` to process p."""

    def all_gather(self, gathered: Tensor, sent: Tensor) -> Completion:
        """Start an exchange that concatenates the tensors ``sent`` of all processes in ``gathered``."""

    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        """Fill ``parts`` with the tensors of all processes on the root; on other processes ``parts`` is empty."""

    def broadcast(self, x: Tensor, root: int) -> None:
        """Copy the root's tensor to all processes, in place."""

    def send(self, x: Tensor, source: int, target: int) -> None:
        """Copy the source's tensor to the target, in place; all processes call this method."""


def global_rank(group: dist.ProcessGroup | None, rank: int) -> int:
    """Return the default group's rank for a rank in ``group``, because all versions of torch accept it."""
    return rank if group is None else dist.get_global_rank(group, rank)


class TorchTransport(Transport):
    """The collectives of a ``torch.distributed`` group.

    Raises:
        SynclineError: if ``torch.distributed`` is not initialised.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise SynclineError("torch.distributed is not initialised; call init_process_group first (or use torchrun)")
        self._group = group
        self.processes, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this transport itself, because the copy of an optimizer belongs to the same processes."""
        return self

    def new_group(self, ranks: Sequence[int]) -> Any:
        """Create and return the group of the processes with these ranks; all processes must call this method."""
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
        gather_list = list(parts) if parts else None  # torch wants None on all processes but the root
        dist.gather(sent, gather_list, global_rank(self._group, root), group=self._group)

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


CAPACITY_BYTES = 2**28
"""Bytes of the largest tensor that can be exchanged; memory is used only as far as tensors reach."""

LINE_BYTES = 64
"""Bytes of a cache line; each process counts in a line of its own."""

POLL_S = 2e-4
"""Seconds between checks whether the other processes have arrived: rare enough to leave the cores to them."""


class CarriedCollective(NamedTuple):
    """A collective that a transport has carried: its name, and its bytes as the cost model counts them."""

    collective: str
    nbytes: int


class SharedMemory(Transport):
    """A group of processes of one machine that exchange through a file which all processes map.

    This transport exchanges the same values as any other, so the training is the same. It separately times its copies
    and its waits for other processes, which stand in for the network. The rest of a step is computing, encoding,
    decoding and local reduction. If ``idle_s`` returns the seconds that a network would take, the processes also idle
    for these seconds. Other processes compute meanwhile, and caches are cold afterwards, as with this network.

    Args:
        file: the same file for all processes, in a folder that no other group uses. Rank 0 creates it; the others wait
            for it.
        capacity_bytes: bytes of the largest tensor.
        timeout_s: seconds to wait for the other processes.
        idle_s: function of a collective that returns the seconds that a network would take for it; 0 by default.

    Attributes:
        stood_in_ns: nanoseconds of copies, waiting and idling so far, which stand in for the network.
    """

    def __init__(
        self,
        file: Path,
        processes: int,
        rank: int,
        capacity_bytes: int = CAPACITY_BYTES,
        timeout_s: float = 120.0,
        idle_s: Callable[[CarriedCollective], float] = lambda _: 0.0,
    ) -> None:
        """Map the shared file, which rank 0 creates while all other ranks wait."""
        if processes < 1:
            raise SpecError("processes", processes, "at least 1")
        if not 0 <= rank < processes:
            raise SpecError("rank", rank, f"a number from 0 to {processes - 1}")
        self.processes, self.rank = processes, rank
        self.stood_in_ns = 0  # see `SharedMemory`
        self._capacity_bytes, self._timeout_s, self._barrier = capacity_bytes, timeout_s, 0
        self._idle_s = idle_s
        self._carried: list[CarriedCollective] = []
        counter_bytes = processes * LINE_BYTES
        # Exchanges use two sets of buffers in turn, so that a fast process does not overwrite what a slow one reads.
        total_bytes = counter_bytes + 2 * processes * capacity_bytes
        if rank == 0:  # the file gets its name when it is complete, because the others wait for this name
            unfinished = file.with_name(file.name + ".making")
            with unfinished.open("wb") as empty:
                empty.truncate(total_bytes)
            unfinished.rename(file)
        self._wait_until(file.exists, "rank 0 did not begin")
        mapped = np.memmap(file, dtype=np.uint8, mode="r+", shape=(total_bytes,))
        # Each rank counts the barriers that it has reached, in the first number of its cache line.
        self._barriers = mapped[:counter_bytes].view(np.int64)[:: LINE_BYTES // np.dtype(np.int64).itemsize]
        self._buffers = torch.from_numpy(mapped[counter_bytes:]).view(2, processes, capacity_bytes)

    def take_carried(self) -> list[CarriedCollective]:
        """Return the collectives carried since the last call of this method, and clear the list."""
        collectives, self._carried = self._carried, []
        return collectives

    def _wait_until(self, condition: Callable[[], object], failure: str) -> None:
        """Sleep until the condition holds; raise a TimeoutError that begins with ``failure`` after the timeout."""
        end_s = time.monotonic() + self._timeout_s
        while not condition():
            if time.monotonic() > end_s:
                raise TimeoutError(f"{failure} within {self._timeout_s:g} s")
            time.sleep(POLL_S)

    def barrier(self) -> None:
        """Wait until all processes have called this method as often as this process."""
        self._barrier += 1
        self._barriers[self.rank] = self._barrier
        self._wait_until(lambda: self._barriers.min() >= self._barrier, "another process did not join")

    def _share_tensor(self, x: Tensor) -> list[Tensor]:
        """Return views of the shared memory with the tensors ``x`` of all processes, all of one size and type.

        The views are valid until the exchange after the next.
        """
        nbytes = x.numel() * x.element_size()
        if nbytes > self._capacity_bytes:
            raise SpecError("tensor", f"{nbytes} bytes", f"at most {self._capacity_bytes}")
        # Each exchange counts one barrier more, so that the two sets of buffers take turns.
        buffers = self._buffers[self._barrier % 2, :, :nbytes]
        buffers[self.rank].copy_(x.reshape(-1).view(torch.uint8))
        self.barrier()
        return [buffer.view(x.dtype).view(x.shape) for buffer in buffers]

    def _exchange_and_wait(self, collective: str, x: Tensor, read: Callable[[list[Tensor]], object]) -> Completion:
        """Exchange ``x``, call ``read`` with the tensors of all processes, and sleep as long as ``idle_s`` says.

        Return a function that returns at once, because the exchange is over.
        """
        call = CarriedCollective(collective, x.numel() * x.element_size())
        self._carried.append(call)
        start_ns = time.perf_counter_ns()
        read(self._share_tensor(x))
        time.sleep(self._idle_s(call))
        self.stood_in_ns += time.perf_counter_ns() - start_ns
        return lambda: None

    @override
    def all_reduce(self, x: Tensor, maximum: bool) -> Completion:
        """Replace ``x`` by the sum or the maximum over processes, taken in the order of ranks."""

        def read(tensors: list[Tensor]) -> None:
            combine = torch.maximum if maximum else torch.add
            x.copy_(tensors[0])
            for tensor in tensors[1:]:
                combine(x, tensor, out=x)

        return self._exchange_and_wait("all_reduce", x, read)

    @override
    def all_to_all(self, received: Tensor, sent: Tensor) -> Completion:
        def read(tensors: list[Tensor]) -> None:
            for block, sent_block in zip(received.view(self.processes, -1), tensors, strict=True):
                block.copy_(sent_block.view(self.processes, -1)[self.rank])

        return self._exchange_and_wait("all_to_all", sent, read)

    @override
    def all_gather(self, gathered: Tensor, sent: Tensor) -> Completion:
        def read(tensors: list[Tensor]) -> None:
            for part, other in zip(gathered.view(self.processes, -1), tensors, strict=True):
                part.copy_(other.view(-1))

        return self._exchange_and_wait("all_gather", sent, read)

    @override
    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        def read(tensors: list[Tensor]) -> None:
            for part, tensor in zip(parts, tensors, strict=False):  # only the root has parts
                part.copy_(tensor)

        self._exchange_and_wait("gather", sent, read)

    @override
    def broadcast(self, x: Tensor, root: int) -> None:
        self._exchange_and_wait("broadcast", x, lambda tensors: x.copy_(tensors[root]))

    @override
    def send(self, x: Tensor, source: int, target: int) -> None:
        def read(tensors: list[Tensor]) -> None:
            if self.rank == target:
                x.copy_(tensors[source])

        self._exchange_and_wait("send", x, read)
