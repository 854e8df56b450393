"""Bars of the parts of a step's time, and ranges of times, speedups and losses, for the page of a result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from syncline.columns import Column, column_of
from syncline.units import format_seconds

STEP_PARTS = {
    "compute": ("compute_s", "computing"),
    "encode": ("encode_s", "encoding"),
    "trigger": ("trigger_s", "asking whether to send"),
    "optimizer": ("optimizer_s", "updating"),
    "inside": ("inside_s", "waiting inside a replica"),
    "exposed": ("exposed_communication_s", "exposed: waiting for the network"),
}
"""Parts of a step: (column, name on the page) by kind; the kind decides the colour."""

HIDDEN = "hidden: on the network beside computing"
REST = "the rest"
SMALLEST_SHARE = 0.0005
"""Smallest share of a step at which a part is drawn."""

LOGARITHMIC_RATIO = 5.0
"""Ratio of a group's numbers above which they are drawn on a logarithmic axis."""


def time_shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return bars with the parts of each method's step and its hidden communication, grouped by network.

    Returns:
        ``kinds`` of the parts that are drawn, and ``groups`` with a ``title`` and ``bars``; None if no row has a time.
        Rows of several seeds are one bar, because all seeds have the same clock.
    """
    timed_rows = [row for row in rows if row.get("step_time_s") and row.get("exposed_communication_s") is not None]
    if not timed_rows:
        return None
    groups = []
    drawn_kinds: set[str] = set()
    for title, rows_by_name in _first_rows_by_network(timed_rows):
        bars = [_bar(name, row) for name, row in rows_by_name.items()]
        groups.append({"title": title, "bars": bars})
        for bar in bars:
            drawn_kinds |= {part["kind"] for part in bar["parts"]}
            if bar["hidden"] is not None:
                drawn_kinds.add("hidden")
    names = {kind: name for kind, (_, name) in STEP_PARTS.items()} | {"rest": REST, "hidden": HIDDEN}
    kinds = [{"kind": kind, "name": name} for kind, name in names.items() if kind in drawn_kinds]
    return {"kinds": kinds, "groups": groups}


def _bar(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bar of a row: the parts of its step in percent, and the communication that computing hides."""
    step_s = row["step_time_s"]
    # Without a column, or with None in it, the part takes no time.
    seconds_by_kind = {kind: row.get(column) or 0.0 for kind, (column, _) in STEP_PARTS.items()}
    seconds_by_kind["rest"] = step_s - sum(seconds_by_kind.values())
    parts = []
    for kind, seconds in seconds_by_kind.items():
        if seconds > SMALLEST_SHARE * step_s:
            text = f"{format_seconds(seconds)} ({seconds / step_s:.0%})"
            parts.append({"kind": kind, "share": 100 * seconds / step_s, "text": text})
    hidden_s = max(0.0, (row.get("communication_s") or 0.0) - row["exposed_communication_s"])
    hidden = None
    if hidden_s > SMALLEST_SHARE * step_s:  # cut to 100 %, because collectives may overlap
        hidden = {"share": min(100.0, 100 * hidden_s / step_s), "text": format_seconds(hidden_s)}
    return {"name": name, "step": format_seconds(step_s), "parts": parts, "hidden": hidden}


class ValueRange(NamedTuple):
    """A predicted value with its lower and upper bound."""

    low: float
    value: float
    high: float


RANGES = {"step_time_s": None, "speedup": 1.0, "loss": None, "difference": 0.0}
"""Columns whose ranges are drawn, each with the value that a line marks, because it means no difference."""


def ranges_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranges of `RANGES` for each method, grouped by network.

    A group has its ``title``, the ``names`` of the methods, and the ``columns`` in which any row has a range.
    """
    groups = []
    for title, rows_by_name in _first_rows_by_network(rows):
        columns = []
        for name, marked_value in RANGES.items():
            ranges = [_range(row, name) for row in rows_by_name.values()]
            column = _drawn_column(column_of(name), ranges, marked_value)
            if column is not None:
                columns.append(column)
        if columns:
            groups.append({"title": title, "names": list(rows_by_name), "columns": columns})
    return groups


def _range(row: Mapping[str, Any], column: str) -> ValueRange | None:
    """Return the range of a row's column, over the seeds or between bounds; None without one of its three numbers."""
    unit = "_s" if column.endswith("_s") else ""  # the bounds of step_time_s are step_time_low_s and step_time_high_s
    stem = column.removesuffix(unit)
    has_range_of_seeds = f"{stem}_min{unit}" in row
    lowest, highest = ("min", "max") if has_range_of_seeds else ("low", "high")
    numbers = []
    for number_column in (f"{stem}_{lowest}{unit}", column, f"{stem}_{highest}{unit}"):
        number = row.get(number_column)
        if not isinstance(number, int | float) or not math.isfinite(number):
            return None
        numbers.append(float(number))
    return ValueRange(*numbers)


def _drawn_column(
    column: Column, ranges: Sequence[ValueRange | None], marked_value: float | None
) -> dict[str, Any] | None:
    """Return a column of ranges with positions in percent of the span from the lowest to the highest of all numbers.

    Args:
        marked_value: a value at which a line is drawn, such as a speedup of 1.

    Returns:
        None if the bounds of each range are equal.
    """
    known_ranges = [value_range for value_range in ranges if value_range is not None]
    if all(value_range.low == value_range.high for value_range in known_ranges):
        return None
    numbers = [number for value_range in known_ranges for number in value_range]
    if marked_value is not None:
        numbers.append(marked_value)
    lowest, highest = min(numbers), max(numbers)
    is_log = lowest > 0 and highest > LOGARITHMIC_RATIO * lowest

    def percent(value: float) -> float:
        if is_log:
            return round(100 * math.log(value / lowest) / math.log(highest / lowest), 3)
        return round(100 * (value - lowest) / (highest - lowest), 3)

    cells: list[dict[str, Any] | None] = []
    for value_range in ranges:
        if value_range is None:
            cells.append(None)
            continue
        low, value, high = value_range
        cells.append({
            "low": percent(low), "at": percent(value), "high": percent(high),
            "text": column.text(value), "ends": f"{column.text(low)} to {column.text(high)}",
        })  # fmt: skip
    return {
        "title": f"{column.header} (logarithmic)" if is_log else column.header,
        "mark": None if marked_value is None else percent(marked_value), "cells": cells,
    }  # fmt: skip


def _first_rows_by_network(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, dict[str, Mapping[str, Any]]]]:
    """Return the groups of consecutive rows with the same model, hardware and network.

    Returns:
        A pair for each group: its title, and the first row of each method (comparison, schedule) by name.
    """
    groups: list[tuple[str, dict[str, Mapping[str, Any]]]] = []
    for row in rows:
        title = ", ".join(str(row[column]) for column in ("model", "hardware", "network") if row.get(column))
        if not groups or groups[-1][0] != title:
            groups.append((title, {}))
        _, rows_by_name = groups[-1]
        rows_by_name.setdefault(str(row.get("method") or row.get("comparison") or row.get("schedule") or ""), row)
    return groups
