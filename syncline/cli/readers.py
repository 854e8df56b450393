"""Readers of options: each makes the value of a field of the option's text, or of its texts if it is repeatable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncline.errors import SpecError, one_of
from syncline.registry import lazy_function


def yaml(flag: str, written: str) -> Any:
    """Return a value as YAML reads it."""
    return _parsed(flag, written, written, "a value in YAML")


def values(flag: str, written: str) -> Any:
    """Return a list of values in YAML with commas between."""
    return _parsed(flag, written, f"[{written}]", "values with commas between")


def on_or_off(flag: str, written: str) -> bool:
    """Return whether the text is ``on``."""
    if written not in ("on", "off"):
        raise SpecError(flag, written, one_of(("on", "off"), written))
    return written == "on"


def networks(flag: str, written: list[str]) -> list[str]:
    """Return the networks in several texts; commas separate names in a text."""
    if not any("," in part for part in written):
        return written
    from syncline.specs.cluster.links import BY_NAME

    separate = []
    for part in written:
        names = [name.strip() for name in part.split(",")]
        separate += names if all(name.lower() in BY_NAME for name in names) else [part.strip()]
    return separate


def _parsed(flag: str, written: str, as_yaml: str, expected: str) -> Any:
    from syncline.yamls import parse_yaml

    try:
        return parse_yaml(as_yaml)
    except ValueError:
        raise SpecError(flag, written, expected) from None


READERS: dict[str, Callable[[str, Any], Any]] = {
    "text": lambda flag, written: written,  # the answer reads it
    "yaml": yaml,
    "values": values,
    "many_values": lambda flag, written: values(flag, ",".join(written)) if written else None,
    "words": lambda flag, written: [part.strip() for part in written.split(",")],
    "on_or_off": on_or_off,
    "networks": networks,
    "number_or_text": lambda flag, written: lazy_function("syncline.units:number_or_text")(written),
    "process_counts": lambda flag, written: lazy_function("syncline.measure.calibration.plan:numbers_of")(written),
    "grids": lambda flag, written: list(map(lazy_function("syncline.specs.grid:Grid.parse"), written)),
    "ranges": lambda flag, written: list(map(lazy_function("syncline.runs.sweep.search:Tuned.parse"), written)),
}
"""The readers by the names that fields of questions have: functions of the option's name and text."""
