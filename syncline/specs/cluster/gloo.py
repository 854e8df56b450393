"""Costs of gloo's software from a user's description, and descriptions of such costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, InstanceOf

from syncline.costmodel.network.gloo_costs import GLOO, GlooCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SpecError, one_of
from syncline.fields import Seconds, parsed
from syncline.specs.cluster.reading import Description, Number
from syncline.specs.cluster.tcp import parse_tcp, tcp_fields
from syncline.units import parse_seconds

EXAMPLE = "{message_overhead: 0.1 ms, call_overhead: {2: 0.2 ms}, byte_overhead: {all_reduce: 0.05 ns}}"


def _workers(key: Any, path: str, _: Any) -> int:
    """Return a number of workers from a key, which may be text, because JSON has text keys only."""
    if isinstance(key, str) and key.isdecimal():
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int) or key < 1:
        raise SpecError(path, key, "a number of workers, at least 1")
    return key


def _workers_or_collective(key: Any, path: str, value: Any) -> int | str:
    return key if key in GLOO else _workers(key, path, value)


def _collective(key: Any, path: str, value: Any) -> str:
    if key not in GLOO:
        raise SpecError(path, value, f"no such field here, but {one_of(GLOO, key)}")
    return str(key)


def _times_by(key_of: Callable[[Any, str, Any], Any], example: str) -> BeforeValidator:
    return parsed(lambda value, path: _times({} if value is None else value, path, key_of, example))


def _times(value: Any, path: str, key_of: Callable[[Any, str, Any], Any], example: str) -> tuple[tuple[Any, Any], ...]:
    """Return pairs of a key and seconds; the seconds of a collective may be pairs of workers and seconds."""
    if not isinstance(value, Mapping):
        raise SpecError(path, value, f"fields, as in {example}")
    keys = {key: key_of(key, f"{path}.{key}", seconds) for key, seconds in value.items()}
    return tuple(
        (
            keys[key],
            _times(seconds, f"{path}.{key}", _workers, "{2: 0.2 ms}, times by the number of workers")
            if key_of is _workers_or_collective and isinstance(keys[key], str)
            else parse_seconds(seconds, f"{path}.{key}"),
        )
        for key, seconds in value.items()
    )


class GlooDescription(Description):
    """The costs of gloo's software.

    ``message_overhead``: time per message. ``call_overhead``: times per call by number of workers, or by collective and
    number of workers. ``byte_overhead``: times per byte by collective. ``latency_part``: part of the latency by which
    messages wait longer. ``connection``: the TCP connection to each peer, see `syncline.specs.cluster.tcp`.
    """

    needs: ClassVar[str] = f"fields, as in {EXAMPLE}"

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

    Raises:
        SpecError: a field is unknown or unusable; the error line says what would be accepted.

    >>> costs = gloo_costs({"message_overhead": "0.1 ms", "call_overhead": {2: "0.2 ms"}})
    >>> costs == GlooCosts(message_s=0.0001, call_s=((2, 0.0002),))
    True
    """
    if isinstance(value, GlooCosts):
        return value
    if not isinstance(value, Mapping):
        raise SpecError(path, value, f"fields, as in {EXAMPLE}")
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
