"""TCP as a user describes it on a link: how many connections, their windows, what they lose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SpecError
from syncline.fields import parsed
from syncline.specs.cluster.reading import Bandwidth, Described, Number, counted
from syncline.units import parse_bytes

TCP_EXAMPLE = "true (one connection with Linux's buffers), or fields, as in {connections: 16, window: 3 MiB}"


class TcpDescribed(Described):
    """``window`` of one, ``connections`` side by side, ``slow_start`` after idling, ``loss``, ``segment``, ``flow``."""

    needs: ClassVar[str] = TCP_EXAMPLE

    window: Annotated[float, parsed(parse_bytes)] | None = None
    connections: Annotated[int | None, counted("TCP connections")] = None
    slow_start: bool | None = None
    loss: Number | None = None
    segment: Annotated[int | None, counted("bytes")] = None
    flow: Bandwidth | None = None


def tcp_of(value: Any, path: str = "tcp") -> Tcp | None:
    """The TCP that a user means.

    Args:
        value: ``true``, Linux's defaults; ``false``, none: windows bound nothing, as with RDMA; or a mapping, see
            `TcpDescribed`. Or ``Tcp``.
        path: the field's name, for the error line.

    Raises:
        SpecError: what is unknown or cannot be used, and what would be accepted.

    >>> tcp_of({"window": "1 MiB", "connections": 4})
    Tcp(window_bytes=1048576.0, connections=4, slow_start=True, loss=0.0, segment_bytes=1460, flow_bytes_per_s=inf)
    """
    if value is None or isinstance(value, Tcp):
        return value
    if isinstance(value, bool):
        return Tcp() if value else None
    if not isinstance(value, Mapping):
        raise SpecError(path, value, TCP_EXAMPLE)
    given = TcpDescribed.read(value, path)
    fields: dict[str, Any] = {
        "window_bytes": given.window,
        "connections": given.connections,
        "slow_start": given.slow_start,
        "loss": given.loss,
        "segment_bytes": given.segment,
        "flow_bytes_per_s": given.flow,
    }
    try:
        return Tcp(**{name: one for name, one in fields.items() if one is not None})
    except SpecError as error:
        raise SpecError(f"{path}.{error.path.removeprefix('tcp.')}", error.value, error.expected) from None


def tcp_fields(tcp: Tcp) -> dict[str, Any]:
    """The mapping that describes it: ``tcp_of`` makes the same one of it."""
    fields = {
        "window": float(tcp.window_bytes),
        "connections": tcp.connections,
        "slow_start": tcp.slow_start,
        "loss": float(tcp.loss) or None,
        "segment": tcp.segment_bytes,
        "flow": float(tcp.flow_bytes_per_s) if math.isfinite(tcp.flow_bytes_per_s) else None,
    }
    return {name: value for name, value in fields.items() if value is not None}
