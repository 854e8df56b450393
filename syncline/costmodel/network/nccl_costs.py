"""What NCCL cuts tensors into, and how far ahead its workers may be; which algorithm it runs for each collective.

A channel's buffer has ``STEPS`` steps. A *piece* of a ring is half a buffer of every channel; it goes in *slices*, each
sent on while the next one comes in. A piece of a chain is one step, and goes as one.

A `Link` can carry these costs (``Link.nccl``): then whatever times collectives on it takes them without being told, and
NCCL's algorithms where none is named.

Source: NVIDIA NCCL 2.10.3: src/include/devcomm.h (NCCL_STEPS = 8), src/init.cc (4 MiB of buffer for protocol Simple),
src/include/collectives.h (ALLREDUCE_, ALLGATHER_ and REDUCESCATTER_CHUNKSTEPS = NCCL_STEPS / 2 and SLICESTEPS =
NCCL_STEPS / 4: two slices in a piece; BROADCAST_CHUNKSTEPS = SLICESTEPS = 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.numerics.arrays import FloatOrArray, require

STEPS = 8
"""Parts of a channel's buffer."""

NCCL_RUNS = {
    "all_reduce": "nccl-ring",
    "all_gather": "nccl-ring",
    "reduce_scatter": "nccl-ring",
    "all_to_all": "nccl-posted",
    "broadcast": "nccl-chain",
    "gather": "nccl-posted",
}
"""What NCCL runs for each collective, large ones of an all-reduce."""


@dataclass(frozen=True)
class NcclCosts:
    """What NCCL's pieces are, and what a call takes beside them.

    Args:
        buffer_bytes: b, of a channel; positive.
        channels: k, at least 1; NCCL has two between nodes with one card.
        slices: S, of a ring's piece; at least 1. With one a piece has arrived before it is sent on.
        call_s: beside its messages, of each call.

    Raises:
        SpecError: a field out of range.
    """

    buffer_bytes: float = 4 * 2**20
    channels: int = 2
    slices: int = 2
    call_s: float = 0.0

    def __post_init__(self) -> None:
        buffer, call = self.buffer_bytes, self.call_s
        require(np.isfinite(buffer) & (buffer > 0), "nccl.buffer", buffer, "bytes, positive")
        require(self.channels >= 1, "nccl.channels", self.channels, "a number of channels, at least 1")
        require(self.slices >= 1, "nccl.slices", self.slices, "a number of slices, at least 1")
        require(np.isfinite(call) & (call >= 0), "nccl.call", call, "seconds, at least 0")

    @property
    def ring_piece_bytes(self) -> float:
        """C: what a ring's worker sends in a step, ``k b / 2``."""
        return self.channels * self.buffer_bytes / 2

    @property
    def chain_piece_bytes(self) -> float:
        """c: what a chain's worker sends at once, ``k b / 8``."""
        return self.channels * self.buffer_bytes / STEPS

    def ring_steps(self, block_bytes: FloatOrArray) -> tuple[FloatOrArray, FloatOrArray]:
        """How many whole pieces a worker's block has, and the bytes of the shorter one behind them."""
        whole = np.floor(np.divide(block_bytes, self.ring_piece_bytes))
        return whole, np.maximum(block_bytes - whole * self.ring_piece_bytes, 0.0)

    def rounds_ahead(self, algorithm: str) -> int | None:
        """Rounds before the one that a worker comes to up to which all must have arrived; None: it waits for none."""
        return {"nccl-ring": self.slices, "nccl-chain": 1}.get(algorithm)


DEFAULT = NcclCosts()
