"""What NCCL's collectives take over sockets: rings and chains whose pieces follow one another.

NCCL cuts a tensor into pieces of its buffers' size, and a worker sends a piece on while the next comes in. So a large
collective pays latencies once, not at every step, unless a step's bytes leave sooner than the piece that the next step
needs arrives. With P workers, latency alpha, R payload bytes per second, pieces of C bytes per worker and step, of
which a part phi must be there before the next step sends on,

| collective       | algorithm | time                                                                        |
|------------------|-----------|-----------------------------------------------------------------------------|
| `all_reduce`     | ring      | 2 (P - 1) n/(P C) max(C/R, alpha + phi C/R) + l alpha                       |
| `all_gather`     | ring      | (P - 1) n/C max(C/R, alpha + phi C/R) + l alpha                             |
| `reduce_scatter` | ring      | (P - 1) n/(P C) max(C/R, alpha + phi C/R) + l alpha                         |
| `broadcast`      | chain     | n/R + (P - 1)(alpha + c/R) + m alpha                                        |
| `reduce`         | chain     | the same, towards its root                                                  |
| `all_to_all`     | posted    | n (P - 1)/(P R) + m alpha                                                   |

with ``C = min(k b / 2, bytes of a block)``, ``c = k b / 8``: k channels have a buffer of b bytes each, in 8 steps, of
which a ring's piece takes four and a chain's one. l and m are latencies that measurements show and this description
does not explain: starting together, windows that open.

Trees, the protocols LL and LL128 (small messages), PAT and NVLS are not in here.

Source: NVIDIA NCCL 2.10.3: src/include/collectives.h (ALLREDUCE_CHUNKSTEPS = NCCL_STEPS / 2, two slices in it;
BROADCAST_CHUNKSTEPS = 1), src/include/devcomm.h (NCCL_STEPS = 8), src/init.cc (4 MiB of buffer for protocol Simple),
src/transport/net_socket.cc (on AWS 2 threads with 8 sockets each for every channel and peer).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, IntOrArray, require
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError, one_of

STEPS = 8
"""Parts of a channel's buffer."""

SOCKETS_ON_AWS = 16
"""Of every channel and peer: 2 threads with 8 each."""

NCCL_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")


@dataclass(frozen=True)
class NcclCosts:
    """What NCCL's pieces are, and what it takes beside them.

    Args:
        buffer_bytes: b, of a channel.
        channels: k; NCCL has two between nodes with one card.
        stored_part: phi, from 0 to 1: what of a step's bytes must be there before they are sent on.
        ring_latencies: l, once per ring.
        chain_latencies: m, once per chain or exchange.

    Raises:
        SpecError: a field out of range.
    """

    buffer_bytes: float = 4 * 2**20
    channels: int = 2
    stored_part: FloatOrArray = 0.5
    ring_latencies: FloatOrArray = 1.0
    chain_latencies: FloatOrArray = 1.0

    def __post_init__(self) -> None:
        require(self.buffer_bytes > 0, "nccl.buffer", self.buffer_bytes, "bytes, positive")
        require(self.channels >= 1, "nccl.channels", self.channels, "a number of channels, at least 1")
        for name in ("ring_latencies", "chain_latencies"):
            require(np.greater_equal(getattr(self, name), 0), f"nccl.{name}", getattr(self, name), "at least 0")
        part = self.stored_part
        require(np.greater_equal(part, 0) & np.less_equal(part, 1), "nccl.stored_part", part, "from 0 to 1")

    def piece_bytes(self, block_bytes: FloatOrArray) -> FloatOrArray:
        """C, of a ring's step whose block has so many bytes."""
        return np.minimum(self.channels * self.buffer_bytes / 2, block_bytes)


def nccl_sockets_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: NcclCosts | None = None
) -> FloatOrArray:
    """Seconds that NCCL takes over sockets for a collective of workers that start together.

    Args:
        kind: one of ``NCCL_KINDS``.
        workers: P, at least 1; it, n and the fields of the link broadcast.
        nbytes: n, at least 0, with the meaning that `syncline.costmodel.collectives.cost` gives it.
        link: each worker's link to the others.
        costs: of the software.

    Raises:
        SpecError: an unknown collective, no worker, or a negative size.

    >>> link = Link(10e-3, 125e6)
    >>> f"{nccl_sockets_s('all_reduce', 32, 2**28, link):.2f} s, not {2 * 31 * (10e-3 + 2**23 / 125e6):.2f} s"
    '4.17 s, not 4.78 s'
    """
    if kind not in NCCL_KINDS:
        raise SpecError("collective", kind, one_of(NCCL_KINDS, str(kind)))
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")
    costs = costs or NcclCosts()
    alpha, rate, others = link.latency_s + link.overhead_s, link.goodput_bytes_per_s, np.subtract(workers, 1)
    if kind in ("broadcast", "reduce"):
        first = np.minimum(costs.channels * costs.buffer_bytes / STEPS, nbytes)
        seconds = nbytes / rate + others * (alpha + first / rate) + costs.chain_latencies * alpha
    elif kind == "all_to_all":
        seconds = nbytes * (others / workers) / rate + costs.chain_latencies * alpha
    else:
        block = nbytes if kind == "all_gather" else np.divide(nbytes, workers)
        laps = 2 if kind == "all_reduce" else 1
        seconds = laps * others * ring_step_s(block, alpha, rate, costs) + costs.ring_latencies * alpha
    return np.where(np.greater(workers, 1) & np.greater(nbytes, 0), seconds, 0.0)[()]


def ring_step_s(block: FloatOrArray, alpha: FloatOrArray, rate: FloatOrArray, costs: NcclCosts) -> FloatOrArray:
    """Seconds that a block takes from one worker to the next in the middle of a ring, in pieces."""
    piece = np.maximum(costs.piece_bytes(block), 1e-9)
    return block / piece * np.maximum(piece / rate, alpha + costs.stored_part * piece / rate)
