"""TCP on a link: windows, slow start after idling, parallel connections, losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from syncline.costmodel.numerics.arrays import FloatOrArray, require

SEGMENT_BYTES = 1460
"""Payload of a TCP segment in an Ethernet frame of 1,500 bytes: less 20 bytes of IP and 20 of TCP."""


def goodput_fraction(loss: FloatOrArray) -> FloatOrArray:
    """Return the fraction of a busy link's bandwidth that carries new data if lost packets are sent again.

    It is ``1 - p`` with the loss probability p: each packet is sent ``1 / (1 - p)`` times on average. This holds for
    protocols that repeat single packets and do not slow down for losses: RDMA with selective repeat, TCP with BBR.
    """
    require_loss(loss)
    return 1 - loss


def require_loss(loss: FloatOrArray) -> None:
    """Raise ``SpecError`` unless a fraction of lost packets is at least 0 and below 1."""
    require((loss >= 0) & (loss < 1), "loss", loss, "a fraction of the packets, at least 0 and below 1")


def tcp_bytes_per_s(
    loss: FloatOrArray, round_trip_s: FloatOrArray, streams: int = 1, segment_bytes: int = SEGMENT_BYTES
) -> FloatOrArray:
    """Return the most bytes per second of TCP streams with window halving: ``S (MSS / RTT) sqrt(3/2) / sqrt(p)``.

    Args:
        loss: p, the probability that a packet is lost; from 0 (no bound: infinite) to below 1.
        round_trip_s: RTT, in seconds; above 0.
        streams: S, parallel connections; at least 1.
        segment_bytes: MSS, payload of a segment in bytes; at least 1.

    Source: M. Mathis, J. Semke, J. Mahdavi, T. Ott, "The macroscopic behavior of the TCP congestion avoidance
    algorithm", ACM SIGCOMM Computer Communication Review 27(3) (1997), equation 3: periodic losses and an
    acknowledgement of every segment.
    """
    require_loss(loss)
    require(round_trip_s > 0, "latency", round_trip_s, "above 0, as TCP's bound depends on the round trip")
    require(streams >= 1, "streams", streams, "a number of TCP connections, at least 1")
    require(segment_bytes >= 1, "segment", segment_bytes, "bytes of a segment, at least 1")
    if loss == 0:  # no bound
        return math.inf
    return streams * segment_bytes / round_trip_s * math.sqrt(1.5 / loss)


WINDOW_BYTES = 3.0 * 2**20
"""Most bytes that a connection has in flight: half of the 6 MiB that Linux lets a receiver's buffer grow to.

Source: Linux, Documentation/networking/ip-sysctl: tcp_rmem (4096, 131072, 6291456) and tcp_adv_win_scale (1: half).
"""

LEAST_TIMEOUT_S = 0.2
"""Least seconds of a retransmission timeout on top of the round trip. Source: Linux, TCP_RTO_MIN (HZ / 5)."""

INITIAL_SEGMENTS = 10
"""Segments in a window at the start of a connection and after idling. Source: RFC 6928; RFC 2861, section 3.2."""

DOUBLINGS = 48
"""Most doublings and halvings of a window; fewer suffice for every window."""

GROWTH = 2
"""Ratio of a grown window to the bytes in flight. Source: Linux, tcp_is_cwnd_limited."""

TIMEOUT_TOLERANCE = 1e-9
"""Tolerance for rounding, as a fraction of a timeout, when idle time is divided by timeouts."""


@dataclass(frozen=True)
class Tcp:
    """TCP connections from one worker to another: by default a connection with Linux's buffers.

    With a round trip r and the line's R bytes per second, c connections carry at most

        rate = min(R, c window / r, c flow, Mathis's bound for a loss p).

    New windows have 10 segments each and double every round trip. Once all together hold ``rate r`` bytes, they no
    longer limit the rate; they grow to ``2 rate r`` bytes. Each retransmission timeout of ``r + 0.2 s`` without sending
    halves them, down to 10 segments.

    A token bucket or a router before the line has a queue of Q bytes. If the line limits c connections, all their
    windows must fit into this queue: ``w = Q / (c MSS)`` segments each. TCP loses the part ``3/2 / w^2`` of the
    segments (Mathis's equation, solved for the loss) and sends this part again, so that the line carries
    ``R / (1 + 3/2 / w^2)``.

    Args:
        window_bytes: most bytes that a connection has in flight; positive.
        connections: c, number of parallel connections over which a transfer is spread; at least 1.
        slow_start: whether windows begin small after idling (Linux: net.ipv4.tcp_slow_start_after_idle = 1, the
            default; tcp_cwnd_restart in net/ipv4/tcp_output.c).
        loss: p, the part of the packets that is lost; from 0 to below 1.
        segment_bytes: MSS, payload of a segment; positive.
        flow_bytes_per_s: limit of the network on the rate of a connection with any window; positive.
        queue_bytes: Q, bytes of the queue; positive, and infinite if the queue never limits windows.
    """

    window_bytes: float = WINDOW_BYTES
    connections: int = 1
    slow_start: bool = True
    loss: float = 0.0
    segment_bytes: int = SEGMENT_BYTES
    flow_bytes_per_s: float = math.inf
    queue_bytes: float = math.inf

    def __post_init__(self) -> None:
        require_loss(self.loss)
        require(self.window_bytes > 0, "tcp.window", self.window_bytes, "bytes, positive")
        require(self.connections >= 1, "tcp.connections", self.connections, "a number of connections, at least 1")
        require(self.segment_bytes > 0, "tcp.mss", self.segment_bytes, "bytes of a segment, positive")
        require(self.queue_bytes > 0, "tcp.queue", self.queue_bytes, "bytes, positive")
        require(self.flow_bytes_per_s > 0, "tcp.max_flow_rate", self.flow_bytes_per_s, "bytes per second, positive")

    @property
    def resent_part(self) -> float:
        """Return the part of the bytes that TCP resends after losses in the queue: ``3/2 (c MSS / Q)^2``, at most 1.

        >>> queues = [50e-3 * rate / 8 + 32_768 for rate in (50e6, 200e6, 1e9)]
        >>> [f"{Tcp(connections=16, segment_bytes=8949, queue_bytes=queue).resent_part:.4f}" for queue in queues]
        ['0.2580', '0.0187', '0.0008']
        """
        return min(1.0, 1.5 * (self.connections * self.segment_bytes / self.queue_bytes) ** 2)

    def rate_bytes_per_s(self, line_bytes_per_s: FloatOrArray, round_trip_s: FloatOrArray) -> FloatOrArray:
        """Return the bytes per second that the connections carry once their windows have grown.

        Args:
            line_bytes_per_s: rate of the line.
            round_trip_s: seconds of a round trip; with 0 s, the windows do not limit the rate.
        """
        with np.errstate(divide="ignore", over="ignore"):
            window_limit = np.divide(self.connections * self.window_bytes, round_trip_s)
        limit = np.minimum(window_limit, self.connections * self.flow_bytes_per_s)
        if self.loss:
            loss_limit = tcp_bytes_per_s(self.loss, round_trip_s, self.connections, self.segment_bytes)
            limit = np.minimum(limit, loss_limit)
        return np.minimum(np.divide(line_bytes_per_s, 1 + self.resent_part), limit)

    def transfer_after_idling_s(
        self, nbytes: FloatOrArray, line_bytes_per_s: FloatOrArray, round_trip_s: FloatOrArray
    ) -> FloatOrArray:
        """Return the seconds until all bytes have left, if windows begin small after idling or on new connections.

        Without ``slow_start`` the seconds are ``nbytes / rate``. For the line's arguments see `rate_bytes_per_s`.

        >>> mib = 2**20
        >>> tcp = Tcp(segment_bytes=8949)  # 64 MiB over 20 ms there and back: 6 round trips, then 3 MiB in each
        >>> f"{tcp.transfer_after_idling_s(64 * mib, 620e6, 20e-3):.3f} s, {tcp.rate_bytes_per_s(620e6, 20e-3):.0f} B/s"
        '0.511 s, 157286400 B/s'
        """
        rate = self.rate_bytes_per_s(line_bytes_per_s, round_trip_s)
        slow_start_s, remaining_bytes = self._slow_start(nbytes, rate, round_trip_s, timeouts=np.inf)
        return np.asarray(slow_start_s + remaining_bytes / rate)[()]

    def opening_s(
        self, nbytes: FloatOrArray, line_bytes_per_s: FloatOrArray, round_trip_s: FloatOrArray, idle_s: FloatOrArray
    ) -> FloatOrArray:
        """Return the seconds by which ``idle_s`` idle seconds prolong a transfer, compared with open windows.

        Idling for less than a retransmission timeout costs nothing. For the line's arguments see `rate_bytes_per_s`.

        >>> tcp = Tcp(segment_bytes=8949)
        >>> [f"{tcp.opening_s(64 * 2**20, 620e6, 20e-3, idle_s):.3f}" for idle_s in (0.1, 0.5, 60.0)]
        ['0.000', '0.010', '0.084']
        """
        rate = self.rate_bytes_per_s(line_bytes_per_s, round_trip_s)
        timeouts = np.floor(np.divide(idle_s, self.timeout_s(round_trip_s)) + TIMEOUT_TOLERANCE)
        slow_start_s, remaining_bytes = self._slow_start(nbytes, rate, round_trip_s, timeouts)
        # Open windows would have sent the other bytes in (nbytes - remaining_bytes) / rate seconds.
        return np.asarray(slow_start_s + (remaining_bytes - nbytes) / rate)[()]

    def timeout_s(self, round_trip_s: FloatOrArray) -> FloatOrArray:
        """Return the retransmission timeout in seconds, after which TCP halves an idle window."""
        return np.add(round_trip_s, LEAST_TIMEOUT_S)

    def halvings(self, line_bytes_per_s: float, round_trip_s: float) -> int:
        """Return the number of timeouts after which an idle window is as small as that of a new connection."""
        ratio = GROWTH * self.rate_bytes_per_s(line_bytes_per_s, round_trip_s) * round_trip_s / self._initial_bytes
        return math.ceil(math.log2(ratio)) if self.slow_start and ratio > 1 else 0

    @property
    def _initial_bytes(self) -> float:
        """Return the bytes of the windows of all connections at their start."""
        return float(self.connections * INITIAL_SEGMENTS * self.segment_bytes)

    def _slow_start(
        self, nbytes: FloatOrArray, rate: FloatOrArray, round_trip_s: FloatOrArray, timeouts: FloatOrArray
    ) -> tuple[FloatOrArray, FloatOrArray]:
        """Return the seconds of the round trips in which windows open, and the bytes that remain after them.

        Args:
            nbytes: bytes of the transfer.
            rate: bytes per second with open windows.
            round_trip_s: seconds of a round trip.
            timeouts: number of timeouts for which the windows were idle; infinity stands for new connections.
        """
        remaining_bytes = np.asarray(nbytes, dtype=np.float64)
        slow_start_s: FloatOrArray = 0.0
        if self.slow_start:
            grown_window = GROWTH * rate * round_trip_s  # bytes of all windows together
            # Each timeout halves the windows, down to those of new connections.
            window = np.maximum(grown_window * np.exp2(-np.minimum(timeouts, DOUBLINGS)), self._initial_bytes)
            for _ in range(DOUBLINGS):
                is_opening = (window < rate * round_trip_s) & (remaining_bytes > window)
                if not np.any(is_opening):
                    break
                remaining_bytes = np.where(is_opening, remaining_bytes - window, remaining_bytes)
                slow_start_s = slow_start_s + np.where(is_opening, round_trip_s, 0.0)
                window = 2 * window
        return slow_start_s, remaining_bytes
