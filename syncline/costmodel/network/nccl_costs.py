"""Pieces into which NCCL cuts tensors, and the algorithm that it runs for each collective.

A channel's buffer has ``STEPS`` steps. A *piece* of a ring is half a buffer of every channel. A worker sends a piece in
*slices*, and forwards each slice while the next slice arrives. A piece of a chain is one step, in a single slice.

A `Link` can carry these costs (``Link.nccl``): then every estimate of a collective on this link includes the costs, and
uses NCCL's algorithms unless the user names an algorithm.

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
    "reduce": "nccl-chain",
}
"""The algorithm that NCCL runs for each collective; for an all-reduce, that of large tensors."""


@dataclass(frozen=True)
class NcclCosts:
    """The sizes of NCCL's pieces, and the seconds of a call on top of its messages.

    Args:
        buffer_bytes: b, bytes of a channel's buffer; positive.
        channels: k, number of channels, at least 1; NCCL has two between nodes with one card.
        slices: S, number of slices in a ring's piece; at least 1. With one slice, a worker forwards whole pieces.
        call_s: seconds of each call on top of its messages.
        ring_latencies: latencies of the link that each call of a ring takes on top of its messages: starting together,
            windows that open.
        chain_latencies: the same for every other algorithm.
        stored_part: part of a ring's piece that a worker must receive before it forwards the piece, from ``1 / S`` to
            1; None: ``1 / S``. The first slice of a piece has this part.

    Raises:
        SpecError: a field out of range.
    """

    buffer_bytes: float = 4 * 2**20
    channels: int = 2
    slices: int = 2
    call_s: float = 0.0
    ring_latencies: FloatOrArray = 0.0
    chain_latencies: FloatOrArray = 0.0
    stored_part: FloatOrArray | None = None

    def __post_init__(self) -> None:
        buffer, call = self.buffer_bytes, self.call_s
        require(np.isfinite(buffer) & (buffer > 0), "nccl.buffer_size", buffer, "bytes, positive")
        require(self.channels >= 1, "nccl.channels", self.channels, "a number of channels, at least 1")
        require(self.slices >= 1, "nccl.slices", self.slices, "a number of slices, at least 1")
        require(np.isfinite(call) & (call >= 0), "nccl.call_overhead", call, "seconds, at least 0")
        for name in ("ring_latencies", "chain_latencies"):
            count = getattr(self, name)
            require(np.isfinite(count) & np.greater_equal(count, 0), f"nccl.{name}", count, "a number, at least 0")
        part = self.forwarded_part
        require(np.greater_equal(part, 0) & np.less_equal(part, 1), "nccl.stored_part", part, "from 0 to 1")

    @property
    def forwarded_part(self) -> FloatOrArray:
        """Return the part of a piece that a worker must receive before it forwards the piece."""
        return 1 / self.slices if self.stored_part is None else self.stored_part

    @property
    def slice_parts(self) -> tuple[FloatOrArray, ...]:
        """Return the part of a ring's piece in each of its S slices, ``(S,)``."""
        first = self.forwarded_part
        return (first, *[(1 - first) / (self.slices - 1)] * (self.slices - 1)) if self.slices > 1 else (1.0,)

    def fixed_s(self, algorithm: str, latency_s: FloatOrArray) -> FloatOrArray:
        """Return the seconds of a call on top of its messages: ``call_s`` and a number of latencies."""
        latencies = self.ring_latencies if algorithm == "nccl-ring" else self.chain_latencies
        return self.call_s + latencies * latency_s

    @property
    def ring_piece_bytes(self) -> float:
        """Return C, the bytes that a worker of a ring sends in a step: ``k b / 2``."""
        return self.channels * self.buffer_bytes / 2

    @property
    def chain_piece_bytes(self) -> float:
        """Return c, the bytes that a worker of a chain sends at a time: ``k b / 8``."""
        return self.channels * self.buffer_bytes / STEPS

    def ring_steps(self, block_bytes: FloatOrArray) -> tuple[FloatOrArray, FloatOrArray]:
        """Return the number of full pieces in a worker's block, and the bytes of the shorter last piece."""
        pieces = np.floor(np.divide(block_bytes, self.ring_piece_bytes))
        return pieces, np.maximum(block_bytes - pieces * self.ring_piece_bytes, 0.0)

    def rounds_ahead(self, algorithm: str) -> int | None:
        """Return d: a worker starts a round once all messages up to d rounds before have arrived; None: no limit."""
        return {"nccl-ring": self.slices, "nccl-chain": 1}.get(algorithm)


DEFAULT = NcclCosts()
"""NCCL's default pieces, without seconds of calls."""

MESSAGES_AHEAD = 2
"""Most messages that travel with the message before them: one in the sender's buffers, one in the receiver's."""


def bytes_ahead(network: object) -> float:
    """Return the bytes that NCCL's buffers hold between two workers: ``2 k b``, for k channels at both ends.

    Returns:
        Bytes; 0.0 if the network or topology carries no costs of NCCL.

    >>> bytes_ahead(None)
    0.0
    """
    costs: NcclCosts | None = getattr(network, "nccl", None)
    return 0.0 if costs is None else 2 * costs.channels * costs.buffer_bytes


def messages_ahead(network: object, nbytes: float) -> int:
    """Return the number of messages of n bytes that travel with the message before them on a line that is always busy.

    NCCL sends a message over several connections, and takes the next message as soon as its buffers have room. On a
    busy line the messages then share the line, and a message is complete with its slowest connection. So a message
    arrives once the following messages that fit into the buffers have left, at most ``MESSAGES_AHEAD``, or once no
    message is queued behind. Throughput stays the same, and a pipeline takes longer to fill.

    Source: fitted to published times of GPipe with 8 stages, 32 to 108 micro-batches and messages of 8 MiB on lines of
    1 to 5 Gbit/s (DT-FM's repository, 2022). With 2 messages the median error falls from 10 % to 3 %; 1 and 3 messages
    leave about 7 and 5 %. The cause is our explanation, not a measurement.
    """
    ahead_bytes = bytes_ahead(network)
    if not nbytes:
        return MESSAGES_AHEAD if ahead_bytes else 0
    return min(int(ahead_bytes // nbytes), MESSAGES_AHEAD)
