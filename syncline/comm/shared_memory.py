"""Processes of one machine that exchange through memory: the software's part of a training, with no network in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm.transport import Completion, Transport
from syncline.errors import SpecError

CAPACITY_BYTES = 2**28
"""Of the largest tensor that can be exchanged; memory is used only as far as tensors reach."""

LINE_BYTES = 64
"""Of a cache line, so that no two processes count in the same one."""

LOOK_S = 2e-4
"""Seconds between looks at whether the others have come: seldom enough to leave them the cores."""


class Carried(NamedTuple):
    """A collective that a transport was asked for.

    Attributes:
        collective: its name in `syncline.costmodel.collectives.table.COLLECTIVES`.
        nbytes: n, as the cost model counts it.
    """

    collective: str
    nbytes: int


class SharedMemory(Transport):
    """A group of processes of one machine, joined by a file that all of them map.

    What is exchanged is what any other transport would exchange, so the training is the same. What stands in for the
    network, copies and waiting for the others, is timed by itself: taken off a step, it leaves what encoding, decoding,
    local reduction and everything else take, in the rhythm of the training: processes that share a core compute when
    they would, and after standing idle for as long as they would, if ``idle_s`` says so, with caches as cold.

    Args:
        file: the same for all, in a folder where no other group is. Rank 0 makes it, others wait for it.
        processes: P, at least 1.
        rank: of this process.
        capacity_bytes: of the largest tensor.
        timeout_s: for how long to wait for the others.
        idle_s: seconds that a network would take for a collective.

    Raises:
        SpecError: no process, or a rank that is none of theirs.
    """

    def __init__(
        self,
        file: Path,
        processes: int,
        rank: int,
        capacity_bytes: int = CAPACITY_BYTES,
        timeout_s: float = 120.0,
        idle_s: Callable[[Carried], float] = lambda _: 0.0,
    ) -> None:
        if processes < 1:
            raise SpecError("processes", processes, "at least 1")
        if not 0 <= rank < processes:
            raise SpecError("rank", rank, f"a number from 0 to {processes - 1}")
        self.processes, self.rank = processes, rank
        self.stood_in_ns = 0
        self._capacity_bytes, self._timeout_s, self._turn = capacity_bytes, timeout_s, 0
        self._idle_s = idle_s
        self._carried: list[Carried] = []
        head_bytes = processes * LINE_BYTES
        whole_bytes = head_bytes + 2 * processes * capacity_bytes
        if rank == 0:
            made = file.with_name(file.name + ".making")
            with made.open("wb") as empty:
                empty.truncate(whole_bytes)
            made.rename(file)
        self._until(file.exists, "rank 0 did not begin")
        mapped = np.memmap(file, dtype=np.uint8, mode="r+", shape=(whole_bytes,))
        self._turns = mapped[:head_bytes].view(np.int64)[:: LINE_BYTES // 8]
        self._buffers = torch.from_numpy(mapped[head_bytes:]).view(2, processes, capacity_bytes)

    def taken(self) -> list[Carried]:
        """What was asked for since the last time."""
        carried, self._carried = self._carried, []
        return carried

    def _until(self, come: Callable[[], object], otherwise: str) -> None:
        end_s = time.monotonic() + self._timeout_s
        while not come():
            if time.monotonic() > end_s:
                raise TimeoutError(f"{otherwise} within {self._timeout_s:g} s")
            time.sleep(LOOK_S)

    def meet(self) -> None:
        """Wait for all processes."""
        self._turn += 1
        self._turns[self.rank] = self._turn
        self._until(lambda: self._turns.min() >= self._turn, "another process did not come")

    def _exchanged(self, x: Tensor) -> list[Tensor]:
        """Everybody's tensor of this size and type. What is seen stays until the exchange after the next."""
        nbytes = x.numel() * x.element_size()
        if nbytes > self._capacity_bytes:
            raise SpecError("tensor", f"{nbytes} bytes", f"at most {self._capacity_bytes}")
        buffers = self._buffers[self._turn % 2, :, :nbytes]
        buffers[self.rank].copy_(x.reshape(-1).view(torch.uint8))
        self.meet()
        return [buffer.view(x.dtype).view(x.shape) for buffer in buffers]

    def _carry(self, collective: str, x: Tensor, read: Callable[[list[Tensor]], object]) -> Completion:
        asked = Carried(collective, x.numel() * x.element_size())
        self._carried.append(asked)
        start_ns = time.perf_counter_ns()
        read(self._exchanged(x))
        time.sleep(self._idle_s(asked))
        self.stood_in_ns += time.perf_counter_ns() - start_ns
        return lambda: None

    @override
    def all_reduce(self, x: Tensor, maximum: bool) -> Completion:
        # Sums are in order of ranks.

        def read(everyone: list[Tensor]) -> None:
            x.copy_(everyone[0])
            for other in everyone[1:]:
                torch.maximum(x, other, out=x) if maximum else x.add_(other)

        return self._carry("all_reduce", x, read)

    @override
    def all_to_all(self, received: Tensor, sent: Tensor) -> Completion:

        def read(everyone: list[Tensor]) -> None:
            for block, other in zip(received.view(self.processes, -1), everyone, strict=True):
                block.copy_(other.view(self.processes, -1)[self.rank])

        return self._carry("all_to_all", sent, read)

    @override
    def all_gather(self, gathered: Tensor, sent: Tensor) -> Completion:

        def read(everyone: list[Tensor]) -> None:
            for part, other in zip(gathered.view(self.processes, -1), everyone, strict=True):
                part.copy_(other.view(-1))

        return self._carry("all_gather", sent, read)

    @override
    def gather(self, sent: Tensor, parts: Sequence[Tensor], root: int) -> None:
        self._carry("gather", sent, lambda all_: [part.copy_(one) for part, one in zip(parts, all_, strict=False)])

    @override
    def broadcast(self, x: Tensor, root: int) -> None:
        self._carry("broadcast", x, lambda everyone: x.copy_(everyone[root]))
