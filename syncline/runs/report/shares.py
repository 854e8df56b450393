"""Bars of the parts of a step's time, and ranges of times, speedups and losses, for the page of a result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from syncline.columns import Column, column_of
from syncline.units import format_seconds

PARTS = {
    "compute": ("compute_s", "computing"),
    "encode": ("encode_s", "encoding"),
    "trigger": ("trigger_s", "asking whether to send"),
    "optimizer": ("optimizer_s", "updating"),
    "inside": ("inside_s", "waiting inside a replica"),
    "exposed": ("exposed_communication_s", "exposed: waiting for the network"),
}
"""Parts of a step: by kind, which decides the colour, the column of the rows and the name."""

HIDDEN = "hidden: on the network beside computing"
REST = "the rest"
LEAST = 0.0005
"""Smallest share of a step at which a part is drawn."""

FAR = 5.0
"""Ratio of a group's numbers above which its track is logarithmic."""


def time_shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return bars with the parts of each method's step, grouped by network, and with the hidden communication.

    Returns:
        ``kinds`` of the parts that are drawn, and ``groups`` with a ``title`` and ``bars``; None if no row has a time.
        Rows of several seeds are one bar, because all seeds have the same clock.
    """
    timed_rows = [row for row in rows if row.get("step_time_s") and row.get("exposed_communication_s") is not None]
    if not timed_rows:
        return None
    groups = []
    drawn_kinds: set[str] = set()
    for title, rows_by_name in _grouped(timed_rows):
        bars = [_bar(name, row) for name, row in rows_by_name]
        groups.append({"title": title, "bars": bars})
        for bar in bars:
            drawn_kinds |= {part["kind"] for part in bar["parts"]} | ({"hidden"} if bar["hidden"] else set())
    names = {kind: name for kind, (_, name) in PARTS.items()} | {"rest": REST, "hidden": HIDDEN}
    return {"kinds": [{"kind": kind, "name": names[kind]} for kind in names if kind in drawn_kinds], "groups": groups}


def _bar(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bar of a row: the parts of its step in percent, and the communication that computing hides."""
    step_s = row["step_time_s"]
    seconds = {kind: row.get(field) or 0.0 for kind, (field, _) in PARTS.items()}
    remaining_s = step_s - sum(seconds.values())
    seconds |= {"rest": remaining_s} if remaining_s > LEAST * step_s else {}
    hidden_s = max(0.0, (row.get("communication_s") or 0.0) - row["exposed_communication_s"])
    hidden = {"share": min(100.0, 100 * hidden_s / step_s), "text": format_seconds(hidden_s)}
    return {
        "name": name,
        "step": format_seconds(step_s),
        "parts": [
            {"kind": kind, "share": 100 * value / step_s, "text": f"{format_seconds(value)} ({value / step_s:.0%})"}
            for kind, value in seconds.items()
            if value > LEAST * step_s
        ],
        "hidden": hidden if hidden_s > LEAST * step_s else None,
    }


class ValueRange(NamedTuple):
    """A predicted number with its lower and upper bound."""

    low: float
    at: float
    high: float


RANGES = {"step_time_s": None, "speedup": 1.0, "loss": None, "difference": 0.0}
"""Columns whose ranges are drawn, with a value to mark."""


def ranges_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranges of `RANGES` for each method, grouped by network.

    A group has its ``title``, the ``names`` of the methods, and the ``columns`` in which any row has a range.
    """
    groups = []
    for title, named in _grouped(rows):
        drawn = (
            _column(column_of(name), [_range(row, name) for _, row in named], mark=RANGES[name]) for name in RANGES
        )
        if columns := [column for column in drawn if column is not None]:
            groups.append({"title": title, "names": [name for name, _ in named], "columns": columns})
    return groups


def _range(row: Mapping[str, Any], name: str) -> ValueRange | None:
    """Return the range of a row, over the seeds or between its bounds; None if it lacks one of the three numbers."""
    stem, ending = (name.removesuffix("_s"), "_s") if name.endswith("_s") else (name, "")
    ends = ("_min", "", "_max") if f"{stem}_min{ending}" in row else ("_low", "", "_high")
    values = [row.get(f"{stem}{end}{ending}") for end in ends]
    finite = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return ValueRange(*finite) if len(finite) == 3 else None


def _column(column: Column, cells: Sequence[ValueRange | None], *, mark: float | None) -> dict[str, Any] | None:
    """Return a column of ranges with positions in percent of the span of all ranges; None without different ends.

    Args:
        column: the column whose ranges are drawn.
        cells: range of each row, or None.
        mark: a value that is marked, such as a speedup of 1.
    """
    present = [cell for cell in cells if cell is not None]
    if all(cell.low == cell.high for cell in present):
        return None
    ends = [value for cell in present for value in cell] + ([] if mark is None else [mark])
    first, last = min(ends), max(ends)
    is_log = first > 0 and last > FAR * first

    def place(value: float) -> float:
        span = math.log(last / first) if is_log else last - first
        return round(100 * (math.log(value / first) if is_log else value - first) / span, 3)

    return {
        "title": column.header + (" (logarithmic)" if is_log else ""),
        "mark": None if mark is None else place(mark),
        "cells": [
            cell
            and {
                "low": place(cell.low), "at": place(cell.at), "high": place(cell.high),
                "text": column.text(cell.at), "ends": f"{column.text(cell.low)} to {column.text(cell.high)}",
            }
            for cell in cells
        ],
    }  # fmt: skip


def _grouped(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    """Return groups of neighbouring rows with the same model, hardware and network.

    Returns:
        For each group its title, and pairs of a method's name and its first row.
    """
    groups = []
    for title, group in groupby(
        rows, key=lambda row: ", ".join(str(row[part]) for part in ("model", "hardware", "network") if row.get(part))
    ):
        rows_by_name: dict[str, Mapping[str, Any]] = {}
        for row in group:
            rows_by_name.setdefault(str(row.get("method") or row.get("comparison") or row.get("schedule") or ""), row)
        groups.append((title, list(rows_by_name.items())))
    return groups
