"""Costs of communication libraries (gloo, NCCL, hivemind) on top of a link or a network, which carries them.

Costs belong to a machine and its libraries. A `Link` can carry those of gloo (``Link.gloo``) or NCCL (``Link.nccl``),
a `Matrix` those of hivemind: then every estimate of a collective on it includes the costs, and uses the library's
algorithms unless the user names an algorithm.

**NCCL** cuts tensors into *pieces* and a ring's pieces into *slices*, see `syncline.costmodel.collectives.nccl`.
Source of the sizes: NVIDIA NCCL 2.10.3: src/include/devcomm.h (NCCL_STEPS = 8), src/init.cc (4 MiB of buffer for
protocol Simple), src/include/collectives.h (ALLREDUCE_, ALLGATHER_ and REDUCESCATTER_CHUNKSTEPS = NCCL_STEPS / 2 and
SLICESTEPS = NCCL_STEPS / 4: two slices in a piece; BROADCAST_CHUNKSTEPS = SLICESTEPS = 1).

**hivemind** averages by direct exchanges between all peers. The program of each of P peers handles the P parts of its n
bytes one after another. The peer handles its own part and the last part while the slowest line carries the last part.
So on top of a direct exchange the software takes

    call_s + (P - 2) (peer_s + byte_s n / P),        and a connection carries at most 1 / byte_s,

which makes ``call_s + (P - 2) peer_s + byte_s n`` on a fast network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require, require_finite
from syncline.errors import SpecError, one_of

GLOO = {
    "all_reduce": "gloo-ring",
    "all_gather": "gloo-ring",
    "reduce_scatter": "gloo-all-reduce",
    "all_to_all": "gloo-posted",
    "broadcast": "gloo-tree",
    "gather": "gloo-posted",
    "reduce": "gloo-reduce",
}
"""The algorithm that gloo runs for each collective, at every size."""

Calls: TypeAlias = tuple[tuple[int, float], ...]
"""Costs of a call, as pairs of a number of workers and seconds."""


def connections(kind: str, workers: IntOrArray) -> FloatOrArray:
    """Return c, the number of peers of the busiest of P workers in one of gloo's collectives.

    c is P - 1 if messages go to all or have one root, ceil(log2 P) at the root of a tree, 2 in a ring (1 if P = 2).
    """
    algorithm = GLOO[kind]
    if algorithm in ("gloo-posted", "gloo-reduce"):
        return np.subtract(workers, 1.0)
    if algorithm == "gloo-tree":
        return np.ceil(np.log2(np.maximum(workers, 1)))
    return np.minimum(2.0, np.subtract(workers, 1.0))


@dataclass(frozen=True)
class GlooCosts:
    """Software costs of gloo in seconds; each is 0 by default.

    A collective of P workers takes ``T(alpha (1 + latency_part) + message_s) + call_s(P) + byte_s N``. Here T(alpha) is
    the closed form on a link of latency alpha, and N the bytes of the largest tensor on a worker, see `tensor_bytes`.

    The cost of a call is measured at some numbers of workers P_1 < ... < P_k. Between them it is linear in P. Below
    the first it is constant. Beyond the last it grows with c(P), the connections of the busiest worker, at the slope of
    the last interval, and does not fall:

        call_s(P) = call_s(P_k) + max(0, slope) (c(P) - c(P_k)),   slope between P_(k - 1) and P_k

    Args:
        message_s: seconds per message, and per notice of a receiver that it is ready, on top of the latency.
        call_s: seconds per call, as pairs of a number of workers and seconds, by increasing P.
        byte_s: seconds per byte of N, as pairs of a collective and seconds; collectives without a pair cost nothing.
        call_of_s: pairs of a collective and the ``call_s`` that it has instead of that of all collectives.
        latency_part: additional wait of messages and notices, as a part of the link's latency.
        connection: the TCP connection that gloo has to each peer. Its rate limits each message. In a reduce, its
            windows must open first. None: a connection carries as much as the link.
    """

    message_s: FloatOrArray = 0.0
    call_s: Calls = ()
    byte_s: tuple[tuple[str, float], ...] = ()
    call_of_s: tuple[tuple[str, Calls], ...] = ()
    latency_part: FloatOrArray = 0.0
    connection: Tcp | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("message_s", self.message_s), *self.byte_s):  # a collective is a name in `byte_s`
            require_finite(f"gloo.{name}", seconds, "seconds, at least 0")
        require_finite("gloo.latency_part", self.latency_part, "a part, at least 0")
        for field, costs in (("byte_s", self.byte_s), ("call_of_s", self.call_of_s)):
            for kind, _ in costs:
                if kind not in GLOO:
                    raise SpecError(f"gloo.{field}", kind, one_of(GLOO, kind))
        calls_by_field = {"call_s": self.call_s} | {f"call_of_s.{kind}": calls for kind, calls in self.call_of_s}
        for field, calls in calls_by_field.items():
            for count, seconds in calls:
                require_finite(f"gloo.{field}.{count}", seconds, "seconds, at least 0")
            workers = [count for count, _ in calls]
            if workers != sorted(set(workers)):
                raise SpecError(f"gloo.{field}", workers, "numbers of workers that increase")

    @property
    def flow_bytes_per_s(self) -> float:
        """Return the largest rate of a connection, in bytes per second; infinite if only the link limits it."""
        return np.inf if self.connection is None else self.connection.flow_bytes_per_s

    def seconds_per_call(self, kind: str, workers: IntOrArray) -> FloatOrArray:
        """Return ``call_s(P)``, the seconds that each call of a collective costs among P workers."""
        measured = dict(self.call_of_s).get(kind, self.call_s)
        if not measured:
            return 0.0
        measured_workers, seconds = np.array(measured).T
        most_workers = measured_workers[-1]
        interpolated_s = np.interp(workers, measured_workers, seconds)
        if len(seconds) == 1 or not np.any(np.greater(workers, most_workers)):  # one point has no slope
            return interpolated_s

        # Beyond the largest measured number of workers, the seconds grow with the connections of the busiest worker.
        previous, last = np.asarray(connections(kind, measured_workers[-2:])).tolist()
        slope_s = max(0.0, (seconds[-1] - seconds[-2]) / (last - previous)) if last > previous else 0.0
        further_connections = connections(kind, np.maximum(workers, most_workers)) - last
        return interpolated_s + slope_s * np.maximum(0.0, further_connections)

    def seconds_per_byte(self, kind: str) -> float:
        """Return the seconds that gloo's software takes per byte of a collective, ``byte_s``."""
        return dict(self.byte_s).get(kind, 0.0)

    def software_s(self, kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
        """Return the seconds of gloo's software in a collective: ``call_s(P) + byte_s N``."""
        return self.seconds_per_call(kind, workers) + self.seconds_per_byte(kind) * tensor_bytes(kind, workers, nbytes)


FREE = GlooCosts()
"""No software costs."""


def tensor_bytes(kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return N, the bytes of a worker's largest tensor in a collective: P n for a gather or all-gather, else n."""
    return nbytes * workers if kind in ("all_gather", "gather") else nbytes


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
    """The sizes of the pieces into which NCCL cuts tensors, and the seconds of a call on top of its messages.

    Args:
        buffer_bytes: b, bytes of a channel's buffer; positive.
        channels: k, number of channels, at least 1; NCCL has two between nodes with one card.
        slices: S, number of slices in a ring's piece; at least 1. With one slice, a worker forwards whole pieces.
        call_s: seconds of each call on top of its messages.
        ring_latencies: number of link latencies that a ring's call takes on top of its messages, while workers
            synchronise and TCP's windows open.
        chain_latencies: number of link latencies that a call of any other algorithm takes on top of its messages.
        stored_part: size of a piece's first slice as a part of the piece, from 0 to 1; None: ``1 / S``. A worker of a
            ring must receive this slice before it forwards the piece.
    """

    buffer_bytes: float = 4.0 * 2**20
    channels: int = 2
    slices: int = 2
    call_s: float = 0.0
    ring_latencies: FloatOrArray = 0.0
    chain_latencies: FloatOrArray = 0.0
    stored_part: FloatOrArray | None = None

    def __post_init__(self) -> None:
        require_finite("nccl.buffer_size", self.buffer_bytes, "bytes, positive", positive=True)
        require(self.channels >= 1, "nccl.channels", self.channels, "a number of channels, at least 1")
        require(self.slices >= 1, "nccl.slices", self.slices, "a number of slices, at least 1")
        require_finite("nccl.call_overhead", self.call_s, "seconds, at least 0")
        for name in ("ring_latencies", "chain_latencies"):
            require_finite(f"nccl.{name}", getattr(self, name), "a number, at least 0")
        part = self.first_slice_part
        require(np.greater_equal(part, 0) & np.less_equal(part, 1), "nccl.stored_part", part, "from 0 to 1")

    @property
    def first_slice_part(self) -> FloatOrArray:
        """Return the fraction of a ring's piece in its first slice, after which a worker forwards the piece."""
        return 1 / self.slices if self.stored_part is None else self.stored_part

    @property
    def slice_parts(self) -> tuple[FloatOrArray, ...]:
        """Return the fraction of a ring's piece that each of the piece's S slices has, ``(S,)``."""
        if self.slices == 1:
            return (1.0,)
        first_part = self.first_slice_part
        other_part = (1 - first_part) / (self.slices - 1)
        return (first_part, *[other_part] * (self.slices - 1))

    def fixed_s(self, algorithm: str, latency_s: FloatOrArray) -> FloatOrArray:
        """Return the seconds of a call beside its messages: ``call_s``, and more latencies of the ring or the chain."""
        latencies = self.ring_latencies if algorithm == "nccl-ring" else self.chain_latencies
        return self.call_s + latencies * latency_s

    @property
    def ring_piece_bytes(self) -> float:
        """Return C, the bytes that a worker of a ring sends in a step: half of the k buffers of b bytes."""
        return self.channels * self.buffer_bytes / 2

    @property
    def chain_piece_bytes(self) -> float:
        """Return c, the bytes that a worker of a chain sends at a time: one of 8 steps of the k buffers of b bytes."""
        return self.channels * self.buffer_bytes / STEPS

    def ring_pieces(self, block_bytes: FloatOrArray) -> tuple[FloatOrArray, FloatOrArray]:
        """Return the number of full pieces in a worker's block, and the bytes of the shorter last piece."""
        num_pieces = np.floor(np.divide(block_bytes, self.ring_piece_bytes))
        return num_pieces, np.maximum(block_bytes - num_pieces * self.ring_piece_bytes, 0.0)

    def rounds_ahead(self, algorithm: str) -> int | None:
        """Return d, such that a worker starts round r once the messages of round r - d have arrived; None: no wait."""
        if algorithm == "nccl-ring":  # a round sends a slice that arrived S rounds before
            return self.slices
        return 1 if algorithm == "nccl-chain" else None


NCCL_DEFAULT = NcclCosts()
"""NCCL's default pieces, without seconds of calls."""

MESSAGES_AHEAD = 2
"""Most messages that travel with the message before them: one in the sender's buffers, one in the receiver's."""


def bytes_ahead(network: object) -> float:
    """Return the bytes that NCCL's buffers hold between two workers; 0 if the network carries no costs of NCCL.

    They are ``2 k b``: the sender and the receiver have a buffer of b bytes for each of k channels.
    """
    costs: NcclCosts | None = getattr(network, "nccl", None)
    return 0.0 if costs is None else 2 * costs.channels * costs.buffer_bytes


def messages_ahead(network: object, nbytes: float) -> int:
    """Return the number of following messages of n bytes that share a busy line with a message.

    NCCL sends a message over several connections, and takes the next message as soon as its buffers have room. A
    message has arrived when its slowest connection is done: after the following messages that fit into the buffers
    have left, at most ``MESSAGES_AHEAD``, or earlier if no message follows. Throughput stays the same, and a pipeline
    takes longer to fill.

    Source: fitted to published times of GPipe with 8 stages, 32 to 108 micro-batches and messages of 8 MiB on lines of
    1 to 5 Gbit/s (DT-FM's repository, 2022). With 2 messages the median error falls from 10 % to 3 %; 1 and 3 messages
    leave about 7 and 5 %. The cause is our explanation, not a measurement.
    """
    ahead_bytes = bytes_ahead(network)
    if not nbytes:  # any number of empty messages fits into buffers
        return MESSAGES_AHEAD if ahead_bytes else 0
    return min(int(ahead_bytes // nbytes), MESSAGES_AHEAD)


class Switches(NamedTuple):
    """NVLink switches that sum tensors themselves (NCCL's algorithm NVLS).

    Attributes:
        efficiency: part of NVLink's rate that NCCL counts on.
        fewest_gpus: smallest number of GPUs for which NCCL uses the switches.
    """

    efficiency: float
    fewest_gpus: int


SWITCHES: dict[int, Switches] = {4: Switches(0.85, 5), 5: Switches(0.74, 6)}
"""Switches that reduce, by generation of NVLink. Source of the efficiencies: NCCL 2.30, src/graph/tuning.cc."""

LINK_PARTS = {2: 20.0 / 25, 3: 20.0 / 25, 4: 20.6 / 25, 5: 40.1 / 50}
"""Part of a link's rate that NCCL counts on, by generation of NVLink. Source: NCCL 2.30, src/graph/topo.h."""

GENERATIONS = {2: 150e9, 3: 300e9, 4: 450e9, 5: 900e9}
"""Bytes per second of a GPU in one direction, by generation of NVLink through switches (data sheets of V100,
A100, H100, B200). Most nodes of V100 have no switches: pairs of GPUs have one link, two or none."""


def generation_of(bytes_per_s: float) -> int | None:
    """Return the newest generation of NVLink that a GPU with these bytes per second each way can have, or None.

    Generation 2 is never returned: few of its nodes have switches, so that a user must name it.

    >>> [generation_of(rate) for rate in (150e9, 300e9, 400e9, 450e9, 900e9)]
    [None, 3, 3, 4, 5]
    """
    possible = [generation for generation, rate in GENERATIONS.items() if generation > 2 and rate <= bytes_per_s]
    return max(possible, default=None)


@dataclass(frozen=True)
class NvlinkCosts:
    """NCCL's constants among GPUs with NVLink; `syncline.costmodel.collectives.nccl` has the formulas and the sources.

    Args:
        generation: generation of NVLink.
        switches: NVLink switches that sum tensors; None if there are none.
        factor: factor on all seconds; 1 unless the network is slowed down.
        call_s: t, seconds of a call inside a node.
        network_call_s: additional seconds of a call between nodes.
        lap_s: t_l, seconds that a lap of a ring or tree of large tensors takes on top of its steps.
        switch_gpu_s: t_s, seconds that an all-reduce of large tensors by switches takes for each GPU of a node.
        half_bytes: S_h, bytes of a tensor for which half of ``lap_s`` and ``switch_gpu_s`` count.
        link_part: fitted factor on `LINK_PARTS`, the part of NVLink's rate that NCCL counts on.
        card_part: b_c, part of the rate of a node's network cards that the algorithms reach.
    """

    generation: int
    switches: Switches | None = None
    factor: float = 1.0
    call_s: float = 28.7e-6
    network_call_s: float = 29.5e-6
    lap_s: float = 106e-6
    switch_gpu_s: float = 16.9e-6
    half_bytes: float = 79.7e6
    link_part: float = 0.980
    card_part: float = 0.93

    @property
    def nvlink_part(self) -> float:
        """Return b, the part of a GPU's NVLink rate that NCCL's algorithms reach: NCCL's own, times a fitted factor."""
        return self.link_part * LINK_PARTS[self.generation]


def nvlink_costs(generation: int | None) -> NvlinkCosts | None:
    """Return NCCL's constants for a generation of NVLink, or None without NVLink."""
    return None if generation is None else NvlinkCosts(generation, SWITCHES.get(generation))


@dataclass(frozen=True)
class NodeTimes:
    """NCCL's measured all-reduces among the GPUs of a node, see `syncline.costmodel.collectives.nccl`.

    Args:
        gpu: GPU of the node, ``a100`` or ``v100``.
        factor: factor on the measured times; 1 unless the network is slowed down.
    """

    gpu: str
    factor: float = 1.0


@dataclass(frozen=True)
class HivemindCosts:
    """The seconds of an averaging by hivemind on top of its messages.

    The defaults are fitted to averagings of 560 and 198 million parameters in half precision among 2 to 8 machines with
    a T4 in one zone (see docs/wide_area.md); they contain the wait for the group to form.

    Args:
        call_s: seconds of each averaging, for the group to form and the parts to be prepared.
        peer_s: seconds for each worker beyond two.
        byte_s: seconds for each byte of a part; positive.

    Source: GitHub cirquit/hivemind-multi-cloud 654cc02 (A. Erben, R. Mayer, H.-A. Jacobsen, PVLDB 17, 2024), MIT.
    """

    call_s: float = 2.55
    peer_s: float = 0.95
    byte_s: float = 10.9e-9

    def __post_init__(self) -> None:
        for name in ("call_s", "peer_s"):
            require_finite(f"hivemind.{name}", getattr(self, name), "seconds, at least 0")
        require_finite("hivemind.byte_s", self.byte_s, "seconds, positive", positive=True)

    def slowed(self, factor: float) -> HivemindCosts:
        """Return the costs with ``factor`` times all seconds."""
        return HivemindCosts(factor * self.call_s, factor * self.peer_s, factor * self.byte_s)

    @property
    def connection_bytes_per_s(self) -> float:
        """Return the bytes per second that the library's software can send to or receive from a single peer."""
        return 1 / self.byte_s

    def before_s(self, workers: int, nbytes: float) -> float:
        """Return the seconds that the software adds to a direct exchange of n bytes among P workers."""
        if workers < 2:
            return 0.0
        return self.call_s + (workers - 2) * (self.peer_s + self.byte_s * nbytes / workers)
