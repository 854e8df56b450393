"""TCP on a link from a user's description: number of connections, windows, losses; and its description.

Costs of gloo's software from a user's description, and descriptions of such costs.

Costs of NCCL, with the pieces into which it cuts tensors, from a user's description, and their descriptions.

Costs of hivemind's averaging from a user's description, and descriptions of such costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, InstanceOf, model_validator

from syncline.costmodel.network.software_costs import GLOO, GlooCosts, HivemindCosts, NcclCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SpecError, one_of
from syncline.fields import Seconds, parsed, refusal
from syncline.specs.cluster.reading import Bandwidth, Description, Number, count_validator, described_costs
from syncline.units import parse_bytes, parse_seconds

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


GLOO_EXAMPLE = "{message_overhead: 0.1 ms, call_overhead: {2: 0.2 ms}, byte_overhead: {all_reduce: 0.05 ns}}"


def _worker_count(key: Any, path: str, _: Any) -> int:
    """Return a number of workers from a key, which may be text, because JSON has text keys only."""
    if isinstance(key, str) and key.isdecimal():
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int) or key < 1:
        raise SpecError(path, key, "a number of workers, at least 1")
    return key


def _workers_or_collective(key: Any, path: str, value: Any) -> int | str:
    return key if key in GLOO else _worker_count(key, path, value)


def _collective(key: Any, path: str, value: Any) -> str:
    if key not in GLOO:
        raise SpecError(path, value, f"no such field here, but {one_of(GLOO, key)}")
    return str(key)


def _times_by(key_of: Callable[[Any, str, Any], Any], example: str) -> BeforeValidator:
    return parsed(lambda value, path: _parse_times({} if value is None else value, path, key_of, example))


def _parse_times(
    value: Any, path: str, key_of: Callable[[Any, str, Any], Any], example: str
) -> tuple[tuple[Any, Any], ...]:
    """Return pairs of a key and seconds; the seconds of a collective may be pairs of workers and seconds."""
    if not isinstance(value, Mapping):
        raise SpecError(path, value, f"fields, as in {example}")
    keys = {key: key_of(key, f"{path}.{key}", seconds) for key, seconds in value.items()}
    return tuple(
        (
            keys[key],
            _parse_times(seconds, f"{path}.{key}", _worker_count, "{2: 0.2 ms}, times by the number of workers")
            if key_of is _workers_or_collective and isinstance(keys[key], str)
            else parse_seconds(seconds, f"{path}.{key}"),
        )
        for key, seconds in value.items()
    )


class GlooDescription(Description):
    """The costs of gloo's software.

    ``message_overhead``: time per message. ``call_overhead``: times per call by number of workers, or by collective and
    number of workers. ``byte_overhead``: times per byte by collective. ``latency_part``: part of the latency by which
    messages wait longer. ``connection``: the TCP connection to each peer, see `syncline.specs.cluster.library_costs`.
    """

    needs: ClassVar[str] = f"fields, as in {GLOO_EXAMPLE}"

    message_overhead: Seconds | None = None
    latency_part: Number = 0.0
    connection: Annotated[InstanceOf[Tcp] | bool | None, parsed(parse_tcp)] = None
    call_overhead: Annotated[
        tuple[tuple[int | str, float | tuple[tuple[int, float], ...]], ...],
        _times_by(_workers_or_collective, "{2: 0.2 ms, 4: 0.5 ms}, times by the number of workers"),
    ] = ()
    byte_overhead: Annotated[
        tuple[tuple[str, float], ...], _times_by(_collective, "{all_reduce: 0.05 ns}, times per byte by collective")
    ] = ()


def gloo_costs(value: Any, path: str = "gloo") -> GlooCosts:
    """Return the costs that a user describes.

    Args:
        value: a mapping, see `GlooDescription`, where a missing field costs nothing; or ``GlooCosts``.
        path: the field's name, for the error line.

    >>> costs = gloo_costs({"message_overhead": "0.1 ms", "call_overhead": {2: "0.2 ms"}})
    >>> costs == GlooCosts(message_s=0.0001, call_s=((2, 0.0002),))
    True
    """
    if isinstance(value, GlooCosts):
        return value
    if not isinstance(value, Mapping):
        raise SpecError(path, value, f"fields, as in {GLOO_EXAMPLE}")
    described = GlooDescription.read(value, path)
    call: dict[Any, Any] = dict(described.call_overhead)
    call_by_collective = tuple(
        (kind, tuple(sorted(dict(times).items()))) for kind, times in call.items() if isinstance(kind, str)
    )
    call_by_workers = tuple(
        sorted((workers, seconds) for workers, seconds in call.items() if not isinstance(workers, str))
    )
    connection = described.connection if isinstance(described.connection, Tcp) else None
    try:
        return GlooCosts(
            described.message_overhead or 0.0, call_by_workers, described.byte_overhead, call_by_collective,
            described.latency_part, connection,
        )  # fmt: skip
    except SpecError as error:
        raise SpecError(f"{path}.{error.path.removeprefix('gloo.')}", error.value, error.expected) from None


def gloo_fields(costs: GlooCosts) -> dict[str, Any]:
    """Return the mapping of fields from which ``gloo_costs`` builds the same costs again."""
    call: dict[Any, Any] = {int(workers): float(seconds) for workers, seconds in costs.call_s}
    call |= {kind: {int(workers): float(s) for workers, s in times} for kind, times in costs.call_of_s}
    byte = {kind: float(seconds) for kind, seconds in costs.byte_s}
    fields = {"message_overhead": float(costs.message_s), "call_overhead": call, "byte_overhead": byte}
    fields |= {"latency_part": float(costs.latency_part)}
    if costs.connection is not None:
        fields["connection"] = tcp_fields(costs.connection)
    return {key: value for key, value in fields.items() if value}


NCCL_EXAMPLE = "true (NCCL's defaults over sockets), or fields, as in {channels: 2, buffer_size: 4 MiB}"


class NcclDescription(Description):
    """Costs of NCCL: ``buffer_size`` of a channel, ``channels``, ``slices`` of a ring's piece, ``call_overhead``.

    ``ring_latencies``, ``chain_latencies``: latencies of the link that a call takes besides its messages. ``stored``:
    the part of a ring's piece that a worker receives before it forwards the piece.
    """

    needs: ClassVar[str] = NCCL_EXAMPLE
    attributes: ClassVar[Mapping[str, str]] = {
        "buffer_size": "buffer_bytes", "channels": "channels", "slices": "slices", "call_overhead": "call_s",
        "ring_latencies": "ring_latencies", "chain_latencies": "chain_latencies", "stored": "stored_part",
    }  # fmt: skip

    buffer_size: Annotated[float, parsed(parse_bytes)] | None = None
    channels: Annotated[int | None, count_validator("channels")] = None
    slices: Annotated[int | None, count_validator("slices")] = None
    call_overhead: Seconds | None = None
    ring_latencies: Number | None = None
    chain_latencies: Number | None = None
    stored: Number | None = None

    @model_validator(mode="after")
    def _stores_a_slice(self) -> Self:
        slices = self.slices or NcclCosts.slices
        if self.stored is not None and not 1 / slices <= self.stored <= 1:
            raise refusal("stored", self.stored, f"a part from {1 / slices:g} (1 / slices) to 1")
        return self


def nccl_costs(value: Any, path: str = "nccl") -> NcclCosts | None:
    """Return the costs that a user describes.

    Args:
        value: ``true`` for NCCL's defaults; ``false`` for none, with textbook collectives; a mapping, see
            `NcclDescription`; or ``NcclCosts``.
        path: the field's name, for the error line.

    >>> nccl_costs({"channels": 4, "call_overhead": "20 us"}) == NcclCosts(channels=4, call_s=2e-05)
    True
    """
    return described_costs(value, path, NcclCosts, NcclDescription)


def nccl_fields(costs: NcclCosts) -> dict[str, Any]:
    """Return the mapping of fields from which ``nccl_costs`` builds the same costs again."""
    fields = {"buffer_size": float(costs.buffer_bytes), "channels": costs.channels, "slices": costs.slices}
    more = {
        "call_overhead": costs.call_s,
        "ring_latencies": costs.ring_latencies,
        "chain_latencies": costs.chain_latencies,
        "stored": costs.stored_part,
    }
    return fields | {name: float(value) for name, value in more.items() if value}


HIVEMIND_EXAMPLE = "true (as measured), or fields, as in {call_overhead: 6 s, byte_overhead: 6 ns}"


class HivemindDescription(Description):
    """The costs of hivemind: ``call_overhead``, ``peer_overhead`` and ``byte_overhead``, see `HivemindCosts`."""

    needs: ClassVar[str] = HIVEMIND_EXAMPLE
    attributes: ClassVar[Mapping[str, str]] = {
        "call_overhead": "call_s", "peer_overhead": "peer_s", "byte_overhead": "byte_s",
    }  # fmt: skip

    call_overhead: Seconds | None = None
    peer_overhead: Seconds | None = None
    byte_overhead: Seconds | None = None


def hivemind_costs(value: Any, path: str = "hivemind") -> HivemindCosts | None:
    """Return the costs that a user describes: ``true`` for the measured ones, a mapping, or ``HivemindCosts``."""
    return described_costs(value, path, HivemindCosts, HivemindDescription)


def hivemind_fields(costs: HivemindCosts) -> dict[str, float]:
    """Return the mapping of fields from which ``hivemind_costs`` builds the same costs again."""
    return {name: getattr(costs, attribute) for name, attribute in HivemindDescription.attributes.items()}


HivemindField = Annotated[InstanceOf[HivemindCosts] | bool | None, parsed(hivemind_costs)]
"""Costs of hivemind's averaging; ``true`` for the measured ones."""
