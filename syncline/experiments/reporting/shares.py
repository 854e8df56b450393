"""Where a step's time goes, and between which ends numbers are expected or were found: bars and ranges of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from syncline.experiments.columns import four_digits
from syncline.units import format_seconds

PARTS = {
    "compute": ("compute_s", "computing"),
    "encode": ("encode_s", "encoding"),
    "trigger": ("trigger_s", "asking whether to send"),
    "optimizer": ("optimizer_s", "updating"),
    "inside": ("inside_s", "waiting inside a replica"),
    "exposed": ("exposed_communication_s", "exposed: waiting for the network"),
}
"""What a step is made of: its colour, its field of the rows, what it is called."""

HIDDEN = "hidden: on the network beside computing"
REST = "the rest"
LEAST = 0.0005
"""A share of a step below which a part is not drawn."""

FAR = 5.0
"""ValueRange of a group's ranges further apart than by this factor are on a logarithmic track."""


def time_shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Of each network, per method: the parts of its step, and what of its communication is hidden by computing.

    Rows of several seeds are one, as the clock is the same for all of them.

    Returns:
        ``kinds`` that are there, and ``groups``; None where no row has a time.
    """
    timed = [row for row in rows if row.get("step_time_s") and row.get("exposed_communication_s") is not None]
    if not timed:
        return None
    groups: list[dict[str, Any]] = [
        {"title": title, "bars": [_bar(name, row) for name, row in bars]} for title, bars in _grouped(timed)
    ]
    drawn = {part["kind"] for group in groups for bar in group["bars"] for part in bar["parts"]}
    kinds = [{"kind": kind, "name": name} for kind, (_, name) in PARTS.items() if kind in drawn]
    kinds += [{"kind": "rest", "name": REST}] if "rest" in drawn else []
    if any(bar["hidden"] for group in groups for bar in group["bars"]):
        kinds.append({"kind": "hidden", "name": HIDDEN})
    return {"kinds": kinds, "groups": groups}


def _bar(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    step_s = row["step_time_s"]
    seconds = {kind: row.get(field) or 0.0 for kind, (field, _) in PARTS.items()}
    rest = step_s - sum(seconds.values())
    seconds |= {"rest": rest} if rest > LEAST * step_s else {}
    hidden = max(0.0, (row.get("communication_s") or 0.0) - row["exposed_communication_s"])
    return {
        "name": name,
        "step": format_seconds(step_s),
        "parts": [
            {"kind": kind, "share": 100 * value / step_s, "text": f"{format_seconds(value)} ({value / step_s:.0%})"}
            for kind, value in seconds.items()
            if value > LEAST * step_s
        ],
        "hidden": {"share": min(100.0, 100 * hidden / step_s), "text": format_seconds(hidden)}
        if hidden > LEAST * step_s
        else None,
    }


class ValueRange(NamedTuple):
    """Between which ends a number is."""

    low: float
    at: float
    high: float


def ranges_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per network, of each method: step time and speedup with their bounds, loss and difference with their range.

    A column is there if any row has two ends that differ.
    """
    made = []
    for title, named in _grouped(rows):
        columns = [
            _column("step time", _ranges(named, "step_time{}_s", "_low", "_high"), format_seconds),
            _column("speedup", _ranges(named, "speedup{}", "_low", "_high"), lambda value: f"{value:.3g}x", mark=1.0),
            _column("loss over the seeds", _ranges(named, "loss{}", "_min", "_max"), four_digits),
            _column(
                "difference", _ranges(named, "difference{}", "_min", "_max"), lambda value: f"{value:+.3g}", mark=0.0
            ),
        ]
        known = [column for column in columns if column is not None]
        if known:
            made.append({"title": title, "names": [name for name, _ in named], "columns": known})
    return made


def _ranges(named: Sequence[tuple[str, Mapping[str, Any]]], field: str, low: str, high: str) -> list[ValueRange | None]:
    """Of each row; None where it lacks one of the three."""
    found = []
    for _, row in named:
        values = [row.get(field.format(end)) for end in (low, "", high)]
        known = [float(one) for one in values if isinstance(one, int | float) and math.isfinite(one)]
        found.append(ValueRange(*known) if len(known) == 3 else None)
    return found


def _column(
    title: str, cells: Sequence[ValueRange | None], show: Callable[[float], str], mark: float | None = None
) -> dict[str, Any] | None:
    """One track per row: where its value and its ends are, in percent of what all of them span."""
    known = [cell for cell in cells if cell is not None]
    if all(cell.low == cell.high for cell in known):
        return None
    ends = [value for cell in known for value in cell] + ([] if mark is None else [mark])
    first, last = min(ends), max(ends)
    far = first > 0 and last > FAR * first

    def place(value: float) -> float:
        span = math.log(last / first) if far else last - first
        return round(100 * (math.log(value / first) if far else value - first) / span, 3)

    return {
        "title": title + (" (logarithmic)" if far else ""),
        "mark": None if mark is None else place(mark),
        "cells": [
            cell
            and {
                "low": place(cell.low), "at": place(cell.at), "high": place(cell.high),
                "text": show(cell.at), "ends": f"{show(cell.low)} to {show(cell.high)}",
            }
            for cell in cells
        ],
    }  # fmt: skip


def _grouped(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    """Rows by their network, and what else they are told apart by; each with its name, once."""
    made = []
    for title, group in groupby(rows, key=_title):
        named: dict[str, Mapping[str, Any]] = {}
        for row in group:
            named.setdefault(str(row.get("method") or row.get("comparison") or row.get("schedule") or ""), row)
        made.append((title, list(named.items())))
    return made


def _title(row: Mapping[str, Any]) -> str:
    parts = [row.get("model"), row.get("hardware"), row.get("network")]
    return ", ".join(str(part) for part in parts if part)
