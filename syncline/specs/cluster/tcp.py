"""TCP on a link from a user's description: number of connections, windows, losses; and its description."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from syncline.costmodel.network.tcp import Tcp
from syncline.fields import parsed
from syncline.specs.cluster.reading import Bandwidth, Description, Number, count_validator, described_costs
from syncline.units import parse_bytes

TCP_EXAMPLE = "true (one connection with Linux's buffers), or fields, as in {connections: 16, window: 3 MiB}"


class TcpDescription(Description):
    """The TCP connections of a link.

    ``window``: bytes in flight of one connection. ``connections``: number of parallel connections. ``slow_start``:
    whether windows begin small after idling. ``loss``: share of lost packets. ``mss``: maximum segment size, the
    payload of a segment in bytes. ``max_flow_rate``: largest rate of one connection in the network. ``queue``: bytes of
    the queue before the line, as of a token bucket, if it is so short that windows overflow it.
    """

    needs: ClassVar[str] = TCP_EXAMPLE
    attributes: ClassVar[Mapping[str, str]] = {
        "window": "window_bytes", "connections": "connections", "slow_start": "slow_start", "loss": "loss",
        "mss": "segment_bytes", "max_flow_rate": "flow_bytes_per_s", "queue": "queue_bytes",
    }  # fmt: skip

    window: Annotated[float, parsed(parse_bytes)] | None = None
    connections: Annotated[int | None, count_validator("TCP connections")] = None
    slow_start: bool | None = None
    loss: Number | None = None
    mss: Annotated[int | None, count_validator("bytes")] = None
    max_flow_rate: Bandwidth | None = None
    queue: Annotated[float, parsed(parse_bytes)] | None = None


def parse_tcp(value: Any, path: str = "tcp") -> Tcp | None:
    """Return the TCP settings that a user describes.

    Args:
        value: ``true`` for Linux's defaults; ``false`` for none, so that no window limits the bandwidth, as with RDMA;
            a mapping, see `TcpDescription`; or ``Tcp``.
        path: the field's name, for the error line.

    Raises:
        SpecError: a field is unknown or unusable; the error line says what would be accepted.

    >>> parse_tcp({"window": "1 MiB", "connections": 4}) == Tcp(window_bytes=1048576.0, connections=4)
    True
    """
    return described_costs(value, path, Tcp, TcpDescription)


def tcp_fields(tcp: Tcp) -> dict[str, Any]:
    """Return the mapping of fields from which ``tcp_of`` builds the same settings again."""
    fields = {
        "window": float(tcp.window_bytes),
        "connections": tcp.connections,
        "slow_start": tcp.slow_start,
        "loss": float(tcp.loss) or None,
        "mss": tcp.segment_bytes,
        "max_flow_rate": float(tcp.flow_bytes_per_s) if math.isfinite(tcp.flow_bytes_per_s) else None,
        "queue": float(tcp.queue_bytes) if math.isfinite(tcp.queue_bytes) else None,
    }
    return {name: value for name, value in fields.items() if value is not None}
