"""Descriptions of TCP and of the costs of gloo, NCCL and hivemind on a link: from a user's fields, and to fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from syncline.costmodel.network.software_costs import GLOO, GlooCosts, HivemindCosts, NcclCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SpecError, one_of
from syncline.fields import INSTANCE, Seconds, parsed, refusal
from syncline.specs.cluster.reading import Bandwidth, Bytes, Description, Number, count_validator, whole_number
from syncline.units import parse_seconds


class CostsDescription(Description):
    """A description of costs: ``true`` for the defaults, ``false`` for none, or fields."""

    makes: ClassVar[type]
    """The dataclass of the costs."""

    attributes: ClassVar[Mapping[str, str]]
    """The attribute of the costs that each field of the description sets."""

    @classmethod
    def parse(cls, value: Any, path: str = "") -> Any:
        """Return the costs that a user describes, None for none; a value that is costs already stays as it is."""
        if value is None or isinstance(value, cls.makes):
            return value
        if isinstance(value, bool):
            return cls.makes() if value else None
        if not isinstance(value, Mapping):
            raise SpecError(path, value, cls.needs)
        description = cls.read(value, path)
        values = {attribute: getattr(description, field) for field, attribute in cls.attributes.items()}
        try:
            return cls.makes(**{attribute: value for attribute, value in values.items() if value is not None})
        except SpecError as error:  # it names an attribute, but users know the field
            _, _, wrong_attribute = error.path.rpartition(".")
            field_names = {attribute: field for field, attribute in cls.attributes.items()}
            field_path = f"{path}.{field_names.get(wrong_attribute, wrong_attribute)}"
            raise SpecError(field_path, error.value, error.expected) from None

    @classmethod
    def fields_of(cls, costs: Any) -> dict[str, Any]:
        """Return the fields from which ``parse`` builds the same costs.

        A field that has its default is left out if the default is 0, None or infinity, which mean no cost or no limit.
        """
        fields: dict[str, Any] = {}
        for field, attribute in cls.attributes.items():
            value, default = getattr(costs, attribute), getattr(cls.makes, attribute)
            is_left_out = value == default and default in (0, None, math.inf)
            if not is_left_out:
                fields[field] = value if isinstance(value, int) else float(value)
        return fields


class TcpDescription(CostsDescription):
    """The TCP connections of a link.

    ``window``: bytes in flight of one connection. ``connections``: number of parallel connections. ``slow_start``:
    whether windows begin small after idling. ``loss``: share of lost packets. ``mss``: maximum segment size, the
    payload of a segment in bytes. ``max_flow_rate``: largest rate of one connection in the network. ``queue``: bytes of
    the queue before the line, if windows overflow it (a token bucket's, for example).

    >>> TcpDescription.parse({"window": "1 MiB", "connections": 4}) == Tcp(window_bytes=1048576.0, connections=4)
    True
    """

    makes = Tcp
    needs = "true (one connection with Linux's buffers), or fields, as in {connections: 16, window: 3 MiB}"
    attributes: ClassVar[Mapping[str, str]] = {
        "window": "window_bytes", "connections": "connections", "slow_start": "slow_start", "loss": "loss",
        "mss": "segment_bytes", "max_flow_rate": "flow_bytes_per_s", "queue": "queue_bytes",
    }  # fmt: skip

    window: Bytes | None = None
    connections: Annotated[int | None, count_validator("TCP connections")] = None
    slow_start: bool | None = None
    loss: Number | None = None
    mss: Annotated[int | None, count_validator("bytes")] = None
    max_flow_rate: Bandwidth | None = None
    queue: Bytes | None = None


class NcclDescription(CostsDescription):
    """Costs of NCCL: ``buffer_size`` of a channel, ``channels``, ``slices`` of a ring's piece, ``call_overhead``.

    ``ring_latencies``, ``chain_latencies``: number of link latencies that a call adds to its messages. ``stored``: the
    part of a ring's piece that a worker receives before it forwards the piece.

    >>> NcclDescription.parse({"channels": 4, "call_overhead": "20 us"}) == NcclCosts(channels=4, call_s=2e-05)
    True
    """

    makes = NcclCosts
    needs = "true (NCCL's defaults over sockets), or fields, as in {channels: 2, buffer_size: 4 MiB}"
    attributes: ClassVar[Mapping[str, str]] = {
        "buffer_size": "buffer_bytes", "channels": "channels", "slices": "slices", "call_overhead": "call_s",
        "ring_latencies": "ring_latencies", "chain_latencies": "chain_latencies", "stored": "stored_part",
    }  # fmt: skip

    buffer_size: Bytes | None = None
    channels: Annotated[int | None, count_validator("channels")] = None
    slices: Annotated[int | None, count_validator("slices")] = None
    call_overhead: Seconds | None = None
    ring_latencies: Number | None = None
    chain_latencies: Number | None = None
    stored: Number | None = None

    @model_validator(mode="after")
    def _check_stored_part(self) -> Self:
        """Refuse a ``stored`` part that is smaller than a slice or larger than the whole piece."""
        slices = self.slices or NcclCosts.slices
        if self.stored is not None and not 1 / slices <= self.stored <= 1:
            raise refusal("stored", self.stored, f"a part from {1 / slices:g} (1 / slices) to 1")
        return self


class HivemindDescription(CostsDescription):
    """The costs of hivemind: ``call_overhead``, ``peer_overhead`` and ``byte_overhead``, see `HivemindCosts`."""

    makes = HivemindCosts
    needs = "true (as measured), or fields, as in {call_overhead: 6 s, byte_overhead: 6 ns}"
    attributes: ClassVar[Mapping[str, str]] = {
        "call_overhead": "call_s", "peer_overhead": "peer_s", "byte_overhead": "byte_s",
    }  # fmt: skip

    call_overhead: Seconds | None = None
    peer_overhead: Seconds | None = None
    byte_overhead: Seconds | None = None


TcpField = Annotated[Annotated[Tcp, INSTANCE] | bool | None, parsed(TcpDescription.parse)]
"""TCP connections; ``true`` for Linux's defaults, ``false`` for no windows that limit the bandwidth, as with RDMA."""

NcclField = Annotated[Annotated[NcclCosts, INSTANCE] | bool | None, parsed(NcclDescription.parse)]
"""Costs of NCCL; ``true`` for its defaults, ``false`` for none, with textbook collectives."""

HivemindField = Annotated[Annotated[HivemindCosts, INSTANCE] | bool | None, parsed(HivemindDescription.parse)]
"""Costs of hivemind's averaging; ``true`` for the measured ones."""


def _mapping_of_times(value: Any, path: str, example: str) -> Mapping[Any, Any]:
    """Return a mapping of times, empty if the spec has none; refuse other values."""
    if value is not None and not isinstance(value, Mapping):
        raise SpecError(path, value, f"fields, as in {example}")
    return value or {}


def _times_by_workers(times: Mapping[Any, Any], path: str) -> tuple[tuple[int, float], ...]:
    """Return pairs of a number of workers and seconds."""
    pairs = []
    for key, time in times.items():
        workers = int(key) if isinstance(key, str) and key.isdecimal() else key  # JSON has text keys only
        pairs.append((whole_number(workers, f"{path}.{key}"), parse_seconds(time, f"{path}.{key}")))
    return tuple(pairs)


def _parse_call_times(value: Any, path: str) -> tuple[tuple[Any, Any], ...]:
    """Return the seconds of gloo's software per call, as pairs (number of workers, seconds).

    A collective with its own times is a pair of its name and such pairs.
    """
    pairs: list[tuple[Any, Any]] = []
    times = _mapping_of_times(value, path, "{2: 0.2 ms, 4: 0.5 ms}, times by the number of workers")
    for workers_or_collective, time_or_times in times.items():
        if workers_or_collective in GLOO:
            own_path = f"{path}.{workers_or_collective}"
            own_times = _mapping_of_times(time_or_times, own_path, "{2: 0.2 ms}, times by the number of workers")
            pairs.append((workers_or_collective, _times_by_workers(own_times, own_path)))
        else:
            pairs += _times_by_workers({workers_or_collective: time_or_times}, path)
    return tuple(pairs)


def _parse_byte_times(value: Any, path: str) -> tuple[tuple[str, float], ...]:
    """Return pairs of a collective's name and the seconds that gloo's software takes per byte."""
    times = _mapping_of_times(value, path, "{all_reduce: 0.05 ns}, times per byte by collective")
    for collective, seconds in times.items():
        if collective not in GLOO:
            raise SpecError(f"{path}.{collective}", seconds, f"no such field here, but {one_of(GLOO, collective)}")
    return tuple((str(name), parse_seconds(seconds, f"{path}.{name}")) for name, seconds in times.items())


GLOO_EXAMPLE = "{message_overhead: 0.1 ms, call_overhead: {2: 0.2 ms}, byte_overhead: {all_reduce: 0.05 ns}}"


class GlooDescription(Description):
    """The costs of gloo's software.

    ``message_overhead``: time per message. ``call_overhead``: times per call by number of workers, or by collective and
    number of workers. ``byte_overhead``: times per byte by collective. ``latency_part``: share of the latency that each
    message waits in addition. ``connection``: the TCP connection to each peer, see `TcpDescription`.
    """

    needs = f"fields, as in {GLOO_EXAMPLE}"

    message_overhead: Seconds | None = None
    latency_part: Number = 0.0
    connection: TcpField = None
    call_overhead: Annotated[
        tuple[tuple[int | str, float | tuple[tuple[int, float], ...]], ...], parsed(_parse_call_times)
    ] = ()
    byte_overhead: Annotated[tuple[tuple[str, float], ...], parsed(_parse_byte_times)] = ()


def gloo_costs(value: Any, path: str = "gloo") -> GlooCosts:
    """Return the costs of gloo's software that a user describes.

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
        raise SpecError(path, value, GlooDescription.needs)
    description = GlooDescription.read(value, path)
    times_of_any_collective: list[Any] = []  # (number of workers, seconds)
    times_by_collective: list[Any] = []  # (collective, such pairs)
    for workers_or_collective, time_or_times in dict(description.call_overhead).items():
        if isinstance(workers_or_collective, str):
            times_by_collective.append((workers_or_collective, tuple(sorted(time_or_times))))  # type: ignore[arg-type]
        else:
            times_of_any_collective.append((workers_or_collective, time_or_times))
    try:
        return GlooCosts(
            description.message_overhead or 0.0, tuple(sorted(times_of_any_collective)), description.byte_overhead,
            call_of_s=tuple(times_by_collective), latency_part=description.latency_part,
            connection=description.connection if isinstance(description.connection, Tcp) else None,
        )  # fmt: skip
    except SpecError as error:
        raise SpecError(f"{path}.{error.path.removeprefix('gloo.')}", error.value, error.expected) from None


def gloo_fields(costs: GlooCosts) -> dict[str, Any]:
    """Return the mapping of fields from which `gloo_costs` builds the same costs again."""
    call_overhead: dict[Any, Any] = {int(workers): float(seconds) for workers, seconds in costs.call_s}
    for collective, times in costs.call_of_s:
        call_overhead[collective] = {int(workers): float(seconds) for workers, seconds in times}
    fields = {
        "message_overhead": float(costs.message_s), "call_overhead": call_overhead,
        "byte_overhead": {collective: float(seconds) for collective, seconds in costs.byte_s},
        "latency_part": float(costs.latency_part),
        "connection": None if costs.connection is None else TcpDescription.fields_of(costs.connection),
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value}


GlooField = Annotated[GlooCosts, INSTANCE, parsed(gloo_costs)]
"""Costs of gloo's software, see `GlooDescription`."""
