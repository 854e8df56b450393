"""The costs of gloo's software as a user describes them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.costmodel.collectives.gloo.costs import GLOO, GlooCosts
from syncline.errors import SpecError, one_of
from syncline.units import parse_seconds

FIELDS = ("message", "call", "byte")


def gloo_costs(value: Any, path: str = "gloo") -> GlooCosts:
    """The costs that a user means.

    Args:
        value: a mapping: ``message``, a time per message; ``call``, times per call by the number of workers; ``byte``,
            times per byte by collective. What is left out costs nothing. Or ``GlooCosts``.
        path: the field's name, for the error line.

    Raises:
        SpecError: what is unknown or cannot be used, and what would be accepted.

    >>> gloo_costs({"message": "0.1 ms", "call": {2: "0.2 ms"}, "byte": {"all_reduce": "0.05 ns"}})
    GlooCosts(message_s=0.0001, call_s=((2, 0.0002),), byte_s=(('all_reduce', 5e-11),))
    """
    if isinstance(value, GlooCosts):
        return value
    for key, given in _mapping(
        value, path, "{message: 0.1 ms, call: {2: 0.2 ms}, byte: {all_reduce: 0.05 ns}}"
    ).items():
        if key not in FIELDS:
            raise SpecError(f"{path}.{key}", given, f"no such field here, but {one_of(FIELDS, str(key))}")
    calls = _mapping(value.get("call") or {}, f"{path}.call", "{2: 0.2 ms, 4: 0.5 ms}, times by the number of workers")
    nbytes = _mapping(value.get("byte") or {}, f"{path}.byte", "{all_reduce: 0.05 ns}, times per byte by collective")
    for kind in nbytes:
        if kind not in GLOO:
            raise SpecError(f"{path}.byte.{kind}", nbytes[kind], f"no such field here, but {one_of(GLOO, str(kind))}")
    call_s = {_workers(key, f"{path}.call.{key}"): parse_seconds(s, f"{path}.call.{key}") for key, s in calls.items()}
    message = value.get("message")
    return GlooCosts(
        0.0 if message is None else parse_seconds(message, f"{path}.message"),
        tuple(sorted(call_s.items())),
        tuple((kind, parse_seconds(seconds, f"{path}.byte.{kind}")) for kind, seconds in nbytes.items()),
    )


def gloo_fields(costs: GlooCosts) -> dict[str, Any]:
    """The mapping that describes them: ``gloo_costs`` makes the same ones of it."""
    call = {int(workers): float(seconds) for workers, seconds in costs.call_s}
    byte = {kind: float(seconds) for kind, seconds in costs.byte_s}
    fields = {"message": float(costs.message_s), "call": call, "byte": byte}
    return {key: value for key, value in fields.items() if value}


def _mapping(value: Any, path: str, example: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(path, value, f"fields, as in {example}")
    return value


def _workers(key: Any, path: str) -> int:
    """A number of workers; as text, too, which is what JSON makes of a key."""
    if isinstance(key, str) and key.isdecimal():
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int) or key < 1:
        raise SpecError(path, key, "a number of workers, at least 1")
    return key
