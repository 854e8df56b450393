"""Seconds and bytes of gloo's collectives as torch.distributed calls them, with the costs of the software.

gloo's sends are **receiver-driven**: the receiver posts its buffer and sends a notice to the sender, and the sender
waits for the notice before it sends the data. A lone message takes ``2 alpha + n / R``. Rings keep two messages posted
ahead: the notice of a message leaves when the one two before it has arrived. K messages of s bytes through one hop of
such a ring take, with ``x = s / R``,

    W(K, s) = 2 alpha + 2x + (K/2 - 1) y            for K even,   y = max(2x, 2 alpha + x)
              2 alpha +  x + (K - 1)/2 y            for K odd

With two workers notices and data share one connection. A notice that is written while data leave waits behind them,
so that ``y = 2 alpha + 2x`` there, once messages take longer than the latency (x >= alpha).

| collective       | algorithm         | what it does                              | time                              |
|------------------|-------------------|-------------------------------------------|-----------------------------------|
| `all_reduce`     | `gloo-ring`       | two rings of k (P - 1) segments each      | 2 W(k (P - 1), n/(kP)) - 2u alpha |
| `reduce_scatter` | `gloo-all-reduce` | a copy, the all-reduce, a copy            | the same                          |
| `all_gather`     | `gloo-ring`       | a ring, each part in two halves           | W(2 (P - 1), n/2)                 |
| `all_to_all`     | `gloo-posted`     | all messages posted at once               | 2 alpha + n (P - 1)/(P R)         |
| `broadcast`      | `gloo-tree`       | a tree; children share their parent's link| (d + 1) alpha + n d (d + 1)/(2R)  |
| `gather`         | `gloo-posted`     | all workers to worker 0, posted at once   | 2 alpha + n (P - 1)/R             |
| `reduce`         | `gloo-reduce`     | a ring, then each chunk to worker 0       | see below                         |

n has the meaning that `syncline.costmodel.collectives.cost` gives it; ``d = log2 P``, and for other P the slowest path
down the tree counts. An all-reduce has ``k P = max(ceil(n / 1 MiB), 2 P)`` segments, rounded up to a multiple of P,
each rounded up to whole elements. Segments beyond the end of a short tensor are not sent: with c of P chunks in use the
ring pays only ``min(4 (P - 1), max(2 P - 2 + c, P - 2 + 3 c))`` latencies, 2u fewer than 4 (P - 1); a tensor of one
element 2 P - 1.

A **reduce** is a ring like the all-reduce's first half that continues to the end of the tensor's segments, beyond those
that a worker needs: it has ``k P - 2`` messages, not ``k (P - 1)``. Then all workers send n/P bytes to the root at
once, each on its own link, over idle connections,

    W(k P - 2, n/(k P)) + 2 alpha + max(after idling n/P bytes, n (P - 1)/(P D)),

with D the download bandwidth of the root's link.

gloo has one connection for each pair of workers. If ``GlooCosts.connection`` limits it, a ring, a message to one child
of a tree and a chunk of a reduce have at most this rate; children of a parent together have its link's.

The software costs are added to these times, see `syncline.costmodel.network.software_costs`.

Source: pytorch/gloo: gloo/allreduce.cc, reduce.cc (``i < numSegments - 2``), allgather.cc, alltoall.cc, broadcast.cc,
gather.cc, and transport/tcp/pair.cc for the notices; torch's ProcessGroupGloo for the reduce-scatter.
docs/validation.md compares it with measurements.

**On the wire**, as a device counts them, the bytes of each message of s payload bytes (`gloo_messages`) are

    sender to receiver:     a notice of 48 bytes, and s + 48 bytes (header) in ceil((s + 48) / MSS) segments
    receiver to sender:     a notice of 48 bytes, and an acknowledgement for every second segment,

with 52 bytes of IP, TCP and time stamps in front of every segment and acknowledgement. Each notice is a separate
segment. The data that the receiver's notice requests acknowledge this notice.

Source: pytorch/gloo, gloo/transport/tcp/pair.cc, pair.h; RFC 1122, 4.2.3.2 (every second segment); RFC 7323 (stamps).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.software_costs import FREE, GLOO, GlooCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require, require_call
from syncline.errors import SpecError, one_of

SEGMENT_BYTES = 1 << 20
"""The longest message of an all-reduce. Source: gloo/allreduce.h, kMaxSegmentSize."""

ELEMENT_BYTES = 4
"""Bytes of a tensor's element: fp32."""

STEADY = Tcp(window_bytes=np.inf, slow_start=False)
"""TCP whose windows are open and limit nothing."""

HEADER_BYTES = 48
"""Size of a message's header and of a notice: six numbers of 8 bytes. Source: gloo/transport/tcp/pair.h, Op."""


class GlooAlgorithm(NamedTuple):
    """An algorithm of gloo, in which each message waits until its receiver has posted a buffer.

    Attributes:
        form: function ``(workers, nbytes, alpha_s, link)`` that returns the seconds of the closed form, without those
            of `GlooCosts.software_s`. ``alpha_s`` is the latency with the overheads of a message; ``link.tcp``
            describes the TCP connections that carry gloo's messages.
    """

    form: Callable[[IntOrArray, FloatOrArray, FloatOrArray, Link], FloatOrArray]


def gloo_s(
    kind: str, workers: IntOrArray, nbytes: FloatOrArray, link: Link, costs: GlooCosts | None = None
) -> FloatOrArray:
    """Return the seconds of a collective of gloo if all workers start at the same time.

    Args:
        kind: one of ``COLLECTIVES``.
        workers: number of workers, at least 1; it broadcasts with ``nbytes`` and the fields of the link.
        nbytes: bytes of the collective, at least 0, by the table of `syncline.costmodel.collectives.cost`.
        link: each worker's link; its overhead counts per message, as ``message_s`` does.
        costs: costs of the software; None for those of the link, or no costs if it has none.

    Raises:
        SpecError: an unknown collective, no worker, or a negative size.
        NoClosedForm: a half-duplex link.

    >>> link = Link(5e-3, 125e6)
    >>> f"{gloo_s('all_reduce', 4, 2**20, link):.4f}", f"{gloo_s('all_reduce', 4, 4, link):.4f}"
    ('0.0684', '0.0350')
    """
    if kind not in GLOO_ALGORITHMS:
        raise SpecError("collective", kind, one_of(GLOO_ALGORITHMS, kind))
    require_call(workers, nbytes)
    if link.duplex == "half":
        raise NoClosedForm(f"{kind}.algorithm", GLOO[kind], "a full-duplex link")
    costs = costs or link.gloo or FREE
    form, gloo_link = GLOO_ALGORITHMS[kind].form, replace(link, tcp=costs.connection)  # gloo has its own connections
    form_s = form(np.asarray(workers), np.asarray(nbytes, dtype=np.float64), _alpha_s(link, costs), gloo_link)
    seconds = form_s + costs.software_s(kind, workers, nbytes)
    return np.where(np.greater(workers, 1), seconds, 0.0)[()]


def _alpha_s(link: Link, costs: GlooCosts) -> FloatOrArray:
    """Return alpha, the seconds of a message of gloo on a link without the seconds of its bytes."""
    return link.latency_s * (1 + costs.latency_part) + link.overhead_s + costs.message_s


def gloo_message_s(nbytes: FloatOrArray, link: Link, costs: GlooCosts | None = None) -> FloatOrArray:
    """Return the seconds of a lone message of n bytes if sender and receiver start together: ``2 alpha + n / R``."""
    costs = costs or link.gloo or FREE
    return 2 * _alpha_s(link, costs) + nbytes / connection_bytes_per_s(replace(link, tcp=costs.connection))


def connection_bytes_per_s(link: Link) -> FloatOrArray:
    """Return the payload bytes per second of a single TCP connection between two workers on a link."""
    rate = link.goodput_bytes_per_s
    return rate if link.tcp is None else np.minimum(rate, link.efficiency * link.tcp.flow_bytes_per_s)


def gloo_sent_bytes(kind: str, workers: IntOrArray, nbytes: FloatOrArray) -> FloatOrArray:
    """Return the payload bytes that each worker sends in a collective of gloo, mean over workers, without headers."""
    peers = np.subtract(workers, 1)
    if kind == "all_gather":
        return nbytes * peers
    if kind == "reduce":  # k P - 2 segments around the ring, then n/P bytes from all workers but the root
        num_segments, segment_bytes = segments(workers, nbytes)
        sent_bytes = (num_segments - 2) * segment_bytes + nbytes * (peers / np.square(workers))
        return np.where(np.greater(peers, 0) & np.greater(nbytes, 0), sent_bytes, 0.0)[()]
    laps = 2 if kind in ("all_reduce", "reduce_scatter") else 1  # gloo's reduce-scatter is an all-reduce
    return nbytes * (laps * peers / workers)


def segments(workers: IntOrArray, nbytes: FloatOrArray) -> tuple[IntOrArray, FloatOrArray]:
    """Return the number of segments into which gloo cuts the tensor of an all-reduce, k P, and the bytes of a segment.

    ``k P = max(ceil(n / 1 MiB), 2 P)``, rounded up to a multiple of P, the workers. A segment has whole fp32 elements.
    """
    num_segments = np.maximum(np.ceil(np.divide(nbytes, SEGMENT_BYTES)), 2 * workers)
    num_segments = np.ceil(num_segments / workers) * workers
    segment_bytes = np.ceil(np.ceil(nbytes / num_segments) / ELEMENT_BYTES) * ELEMENT_BYTES
    return num_segments.astype(np.int64), np.minimum(segment_bytes, nbytes)  # a tensor may be shorter than an element


def window_s(
    messages: IntOrArray, message_s: FloatOrArray, alpha_s: FloatOrArray, one_socket: FloatOrArray
) -> FloatOrArray:
    """Return W, the seconds of K messages through one hop of a gloo ring, with two messages posted ahead.

    The module's docstring has the formula.

    Args:
        messages: K, number of messages.
        message_s: x, seconds of a message on the link.
        alpha_s: alpha, latency of the link in seconds, with the overheads of a message.
        one_socket: whether the receivers' notices and the data share a connection, as with two workers.
    """
    # On a shared connection a notice that is written while data leave waits behind the data.
    notice_waits = np.greater_equal(message_s, alpha_s)
    one_socket_pair_s = np.where(notice_waits, 2 * alpha_s + 2 * message_s, 2 * alpha_s + message_s)
    pair_s = np.where(one_socket, one_socket_pair_s, np.maximum(2 * message_s, 2 * alpha_s + message_s))  # y
    odd = np.mod(messages, 2)  # 1 if K is odd, else 0
    return 2 * alpha_s + (2 - odd) * message_s + ((messages + odd) // 2 - 1) * pair_s


def _all_reduce(workers: IntOrArray, nbytes: FloatOrArray, alpha_s: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of gloo's all-reduce: two rings of segments, with fewer latencies if the tensor is short."""
    num_segments, segment_bytes = segments(workers, nbytes)
    segments_per_chunk = num_segments // workers
    message_s = segment_bytes / connection_bytes_per_s(link)
    one_socket = np.equal(workers, 2)
    rings_s = 2 * window_s(segments_per_chunk * (workers - 1), message_s, alpha_s, one_socket=one_socket)
    # Segments beyond the end of a short tensor are not sent, which saves latencies (see the module's docstring).
    used_chunks = np.ceil(np.ceil(nbytes / np.maximum(segment_bytes, 1)) / segments_per_chunk)  # c
    all_latencies = 4 * (workers - 1)
    latencies = np.minimum(all_latencies, np.maximum(2 * workers - 2 + used_chunks, workers - 2 + 3 * used_chunks))
    return np.where(nbytes > 0, rings_s - (all_latencies - latencies) * alpha_s, 0.0)


def _all_gather(workers: IntOrArray, nbytes: FloatOrArray, alpha_s: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of gloo's all-gather: a ring with each part in two halves."""
    message_s = nbytes / 2 / connection_bytes_per_s(link)
    ring_s = window_s(2 * (workers - 1), message_s, alpha_s, one_socket=np.equal(workers, 2))
    return np.where(nbytes > 0, ring_s, 0.0)


def _all_to_all(workers: IntOrArray, nbytes: FloatOrArray, alpha_s: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of gloo's all-to-all; a worker posts all messages at once, and they share its link."""
    link_s = nbytes * ((workers - 1) / workers) / link.goodput_bytes_per_s
    connection_s = nbytes / workers / connection_bytes_per_s(link)
    return 2 * alpha_s + np.maximum(link_s, connection_s)


def _gather(workers: IntOrArray, nbytes: FloatOrArray, alpha_s: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of gloo's gather; all messages share the root's link."""
    receiving_s = (workers - 1) * nbytes / link.down_bytes_per_s
    sending_s = nbytes / np.minimum(link.up_bytes_per_s, connection_bytes_per_s(link))
    return 2 * alpha_s + np.maximum(receiving_s, sending_s)  # the root's notice travels, then the message


def _reduce(workers: IntOrArray, nbytes: FloatOrArray, alpha_s: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of gloo's reduce: a ring, and then a chunk from each worker to the root."""
    tcp = link.tcp or STEADY
    up_bytes_per_s = np.minimum(link.up_bytes_per_s, link.efficiency * tcp.flow_bytes_per_s)
    rate = tcp.rate_bytes_per_s(np.minimum(up_bytes_per_s, link.down_bytes_per_s), 2 * alpha_s)
    num_segments, segment_bytes = segments(workers, nbytes)
    # gloo's ring goes on to the end of all segments; a reduce-scatter would need fewer messages.
    messages = np.maximum(num_segments - 2, 1)  # a single worker has two segments, and its result is not used
    ring_s = window_s(messages, segment_bytes / rate, alpha_s, one_socket=np.equal(workers, 2))
    # Each worker's connection to the root was idle, so that its window is small; all chunks share the root's download.
    sending_s = tcp.transfer_after_idling_s(nbytes / workers, up_bytes_per_s, 2 * alpha_s)
    receiving_s = nbytes * ((workers - 1) / workers) / link.down_bytes_per_s
    return np.where(nbytes > 0, ring_s + 2 * alpha_s + np.maximum(sending_s, receiving_s), 0.0)


def _broadcast(workers: IntOrArray, nbytes: FloatOrArray, alpha_s: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of gloo's broadcast down a tree, in which the children of a parent share the parent's link."""
    seconds: FloatOrArray = 0.0
    rate, connection_rate = link.goodput_bytes_per_s, connection_bytes_per_s(link)
    # Each number of workers has a tree of its own.
    for num_workers in sorted(set(np.ravel(workers).tolist())):  # np.unique would load masked arrays, which takes 10 ms
        paths_s = []
        for path in slowest_tree_paths(num_workers):
            hops_s = sum(nbytes * np.maximum(num_children / rate, 1 / connection_rate) for num_children in path)
            paths_s.append((1 + len(path)) * alpha_s + hops_s)  # a receiver's notice, then a message per hop
        slowest_s = np.max(np.broadcast_arrays(*paths_s), axis=0)
        seconds = seconds + np.where(np.equal(workers, num_workers), slowest_s, 0.0)
    return seconds


@lru_cache(maxsize=256)
def slowest_tree_paths(workers: int) -> tuple[tuple[int, ...], ...]:
    """Return the paths down gloo's broadcast tree that may be the slowest, each as its parents' numbers of children.

    Worker v, with highest binary digit 2^j, sends to v + 2^i for all i > j at once. The order of the parents on a path
    does not matter, so the numbers are sorted and equal paths are returned once.
    """
    paths: dict[int, tuple[int, ...]] = {0: ()}  # by worker
    leaf_paths = set()
    for worker in range(workers):
        first_bit = worker.bit_length()
        end_bit = (workers - 1 - worker).bit_length()  # worker + 2^end_bit is no worker
        children = [worker + (1 << bit) for bit in range(first_bit, end_bit)]
        for child in children:
            paths[child] = (*paths[worker], len(children))
        if not children:
            leaf_paths.add(tuple(sorted(paths[worker])))
    return tuple(sorted(leaf_paths))


GLOO_ALGORITHMS: dict[str, GlooAlgorithm] = {
    "all_reduce": GlooAlgorithm(_all_reduce),
    "all_gather": GlooAlgorithm(_all_gather),
    "reduce_scatter": GlooAlgorithm(_all_reduce),
    "all_to_all": GlooAlgorithm(_all_to_all),
    "broadcast": GlooAlgorithm(_broadcast),
    "gather": GlooAlgorithm(_gather),
    "reduce": GlooAlgorithm(_reduce),
}
"""The algorithm of gloo for each collective."""

PACKET_HEADER_BYTES = 52
"""Header bytes of a packet: IP 20, TCP 20, time stamps 12."""

ETHERNET_MSS = 1448
"""Payload of a segment in a frame of 1,500 bytes, with time stamps."""


class WireBytes(NamedTuple):
    """Bytes that a worker sends in a call, mean over workers, by purpose: payload, gloo's messages, packet headers.

    Attributes:
        payload_bytes: bytes of the tensors.
        gloo_bytes: bytes of message headers, and of notices by which a receiver asks for a message.
        packet_bytes: header bytes of the segments that carry payload, message headers or notices.
        acknowledgement_bytes: bytes of packets that carry only an acknowledgement.
    """

    payload_bytes: float
    gloo_bytes: float
    packet_bytes: float
    acknowledgement_bytes: float

    @property
    def total_bytes(self) -> float:
        """Return the bytes that a network device counts as sent for a collective."""
        return float(sum(self))

    def __add__(self, other: object) -> WireBytes:
        """Return the sum of the bytes of two collectives for each purpose."""
        if not isinstance(other, WireBytes):
            return NotImplemented
        return WireBytes(*(number + other_number for number, other_number in zip(self, other, strict=True)))


def gloo_messages(kind: str, workers: int, nbytes: float) -> tuple[float, float]:
    """Return the number of messages that a worker sends in a collective, mean over workers, and the bytes of a message.

    The arguments are those of `gloo_s`.
    """
    if kind not in GLOO:
        raise SpecError("collective", kind, one_of(GLOO, kind))
    require_call(workers, nbytes)
    peers = workers - 1
    if not peers or not nbytes:  # nothing is sent
        return 0.0, 0.0
    if kind in ("all_reduce", "reduce_scatter"):
        _, segment_bytes = segments(workers, nbytes)
        return 2 * peers * ceil(nbytes / float(segment_bytes)) / workers, float(segment_bytes)
    if kind == "reduce":
        num_segments, _ = segments(workers, nbytes)
        messages = float(num_segments) - 2 + peers / workers  # k P - 2 in the ring, then one from each peer to the root
        return messages, float(gloo_sent_bytes(kind, workers, nbytes)) / messages
    if kind == "all_gather":  # each part in two halves
        return 2.0 * peers, nbytes / 2
    if kind == "all_to_all":
        return float(peers), nbytes / workers
    return peers / workers, nbytes  # broadcast and gather: one message for each worker but the root


def gloo_wire_bytes(kind: str, workers: int, nbytes: float, segment_bytes: int = ETHERNET_MSS) -> WireBytes:
    """Return the bytes that a worker's device counts as sent in a call, mean over workers.

    The arguments and errors are those of `gloo_messages`; ``segment_bytes`` is the MSS, or the bytes of several
    segments that the device receives at once.

    >>> wire = gloo_wire_bytes("all_reduce", 4, 64 * 2**20)
    >>> f"{wire.total_bytes / wire.payload_bytes:.3f}"
    '1.054'
    """
    require(segment_bytes >= 1, "segment_bytes", segment_bytes, "at least 1")
    messages, message_bytes = gloo_messages(kind, workers, nbytes)
    sender_segments = ceil((message_bytes + HEADER_BYTES) / segment_bytes) + 1  # the data, and a notice
    return WireBytes(
        payload_bytes=float(gloo_sent_bytes(kind, workers, nbytes)),
        gloo_bytes=3 * messages * HEADER_BYTES,  # a message has a header, and a notice each way
        # The receiver's notice is one segment more; every second segment of the sender gets an acknowledgement.
        packet_bytes=messages * (sender_segments + 1) * PACKET_HEADER_BYTES,
        acknowledgement_bytes=messages * sender_segments / 2 * PACKET_HEADER_BYTES,
    )
