"""Bytes of gloo's collectives on the wire, as a device counts them: payload, headers, notices, acknowledgements.

For each message of s payload bytes (`gloo_messages` returns their number), the bytes are

    sender to receiver:     a notice of 48 bytes, and s + 48 bytes (header) in ceil((s + 48) / MSS) segments
    receiver to sender:     a notice of 48 bytes, and an acknowledgement for every second segment,

with 52 bytes of IP, TCP and time stamps in front of every segment and acknowledgement. Each notice is a separate
segment. The data that the receiver's notice requests acknowledge this notice.

Source: pytorch/gloo, gloo/transport/tcp/pair.cc and pair.h; RFC 1122, section 4.2.3.2 (every second segment); RFC 7323
(time stamps).
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.gloo.times import GLOO, HEADER_BYTES, gloo_sent_bytes, segments
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError, one_of

PACKET_HEADER_BYTES = 52
"""Header bytes of a packet: IP 20, TCP 20, time stamps 12."""

ETHERNET_MSS = 1448
"""Payload of a segment in a frame of 1,500 bytes, with time stamps."""


class WireBytes(NamedTuple):
    """Bytes that a worker sends in a call by their purpose, mean over workers.

    Attributes:
        payload_bytes: bytes of the tensors.
        gloo_bytes: bytes of message headers and of notices.
        packet_bytes: header bytes of the segments that carry payload, message headers or notices.
        acknowledgement_bytes: bytes of packets that carry only an acknowledgement.
    """

    payload_bytes: float
    gloo_bytes: float
    packet_bytes: float
    acknowledgement_bytes: float

    @property
    def total_bytes(self) -> float:
        """Return the bytes that a device counts as sent."""
        return float(sum(self))

    def __add__(self, other: object) -> WireBytes:
        """Return the sums of the bytes for each purpose."""
        if not isinstance(other, WireBytes):
            return NotImplemented
        return WireBytes(*(number + other_number for number, other_number in zip(self, other, strict=True)))


def gloo_messages(kind: str, workers: int, nbytes: float, element_bytes: int = 4) -> tuple[float, float]:
    """Return the number of messages that a worker sends in a call, mean over workers, and a message's payload bytes.

    The arguments are those of `gloo_s`.

    Raises:
        SpecError: an argument out of range.
    """
    if kind not in GLOO:
        raise SpecError("collective", kind, one_of(GLOO, kind))
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")
    others = workers - 1
    if not others or not nbytes:
        return 0.0, 0.0
    if kind in ("all_reduce", "reduce_scatter"):
        segment_bytes = float(segments(workers, nbytes, element_bytes)[1])
        return 2 * others * ceil(nbytes / segment_bytes) / workers, segment_bytes
    if kind == "reduce":
        messages = float(segments(workers, nbytes, element_bytes)[0]) - 2 + others / workers
        return messages, float(gloo_sent_bytes(kind, workers, nbytes)) / messages
    messages_and_size = {
        "all_gather": (2.0 * others, nbytes / 2),
        "all_to_all": (float(others), nbytes / workers),
        "broadcast": (others / workers, nbytes),
        "gather": (others / workers, nbytes),
    }
    return messages_and_size[kind]


def gloo_wire(
    kind: str, workers: int, nbytes: float, segment_bytes: int = ETHERNET_MSS, element_bytes: int = 4
) -> WireBytes:
    """Return the bytes that a worker's device counts as sent in a call, mean over workers.

    The arguments and errors are those of `gloo_messages`; ``segment_bytes`` is the MSS, the payload bytes of a segment,
    or of several segments together if the device receives them at once.

    >>> wire = gloo_wire("all_reduce", 4, 64 * 2**20)
    >>> f"{wire.total_bytes / wire.payload_bytes:.3f}"
    '1.054'
    """
    require(segment_bytes >= 1, "segment_bytes", segment_bytes, "at least 1")
    messages, size = gloo_messages(kind, workers, nbytes, element_bytes)
    segment_count = ceil((size + HEADER_BYTES) / segment_bytes) + 1  # segments of the sender: data and a notice
    return WireBytes(
        float(gloo_sent_bytes(kind, workers, nbytes)),
        3 * messages * HEADER_BYTES,
        messages * (segment_count + 1) * PACKET_HEADER_BYTES,
        messages * segment_count / 2 * PACKET_HEADER_BYTES,
    )
