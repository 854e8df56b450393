"""Readers of options: each makes the value of a field of the option's text, or of its texts if it is repeatable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncline.errors import SpecError, one_of


def yaml(flag: str, written: str) -> Any:
    """Return a value as YAML reads it."""
    return _parsed(flag, written, written, "a value in YAML")


def values(flag: str, written: str) -> Any:
    """Return a list of values in YAML with commas between."""
    return _parsed(flag, written, f"[{written}]", "values with commas between")


def number_or_text(flag: str, written: str) -> str | float:
    """Return the number of a text without a unit; any other text is unchanged."""
    from syncline.units import number_or_text as number_of

    return number_of(written)


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

    found = []
    for part in written:
        names = [name.strip() for name in part.split(",")]
        found += names if all(name.lower() in BY_NAME for name in names) else [part.strip()]
    return found


def process_counts(flag: str, written: str) -> list[int]:
    """Return the numbers of processes in a text, with commas between."""
    from syncline.measure.calibration.plan import numbers_of

    return numbers_of(written)


def grids(flag: str, written: list[str]) -> Any:
    """Return the values of fields that are combined."""
    from syncline.specs.grid import Grid

    return [Grid.parse(part) for part in written]


def ranges(flag: str, written: list[str]) -> Any:
    """Return the ranges of fields that are searched."""
    from syncline.runs.sweep.search import Tuned

    return [Tuned.parse(part) for part in written]


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
    "number_or_text": number_or_text,
    "on_or_off": on_or_off,
    "networks": networks,
    "process_counts": process_counts,
    "grids": grids,
    "ranges": ranges,
}
"""The readers by the names that fields of questions have: functions of the option's name and text."""
