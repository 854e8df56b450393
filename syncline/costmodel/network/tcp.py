"""Packets that are lost: what is left of a link's bandwidth."""

from __future__ import annotations

import math

from syncline.costmodel.arrays import FloatOrArray, require

SEGMENT_BYTES = 1460
"""Payload of a TCP segment in an Ethernet frame of 1,500 bytes: less 20 bytes of IP and 20 of TCP."""


def repeated_part(loss: FloatOrArray) -> FloatOrArray:
    """The part of a link that is left where every lost packet is sent again, and the link is kept full: ``1 - p``.

    Each packet is sent ``1 / (1 - p)`` times on average. This holds for protocols that repeat single packets and do
    not slow down for losses: RDMA with selective repeat, TCP with a congestion control like BBR.

    Args:
        loss: p, the probability that a packet is lost; at least 0, below 1.

    Raises:
        SpecError: out of range.
    """
    require((loss >= 0) & (loss < 1), "loss", loss, "a fraction of the packets, at least 0 and below 1")
    return 1 - loss


def tcp_bytes_per_s(
    loss: FloatOrArray, round_trip_s: FloatOrArray, streams: int = 1, segment_bytes: int = SEGMENT_BYTES
) -> FloatOrArray:
    """What TCP streams that halve their window at a loss carry at most: ``S (MSS / RTT) sqrt(3/2) / sqrt(p)``.

    Args:
        loss: p, the probability that a packet is lost; from 0 (no bound: infinite) to below 1.
        round_trip_s: RTT, in seconds; above 0.
        streams: S, parallel connections; at least 1.
        segment_bytes: MSS, payload of a segment in bytes; at least 1.

    Raises:
        SpecError: an argument out of range.

    Source: M. Mathis, J. Semke, J. Mahdavi, T. Ott, "The macroscopic behavior of the TCP congestion avoidance
    algorithm", ACM SIGCOMM Computer Communication Review 27(3) (1997), equation 3: periodic losses and an
    acknowledgement of every segment.
    """
    repeated_part(loss)
    require(round_trip_s > 0, "latency", round_trip_s, "above 0, as TCP's bound depends on the round trip")
    require(streams >= 1, "streams", streams, "a number of TCP connections, at least 1")
    require(segment_bytes >= 1, "segment", segment_bytes, "bytes of a segment, at least 1")
    if loss == 0:
        return math.inf
    return streams * segment_bytes / round_trip_s * math.sqrt(1.5 / loss)
