"""Tables of sweeps for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group

from syncline.planner.tables.columns import Column, four_digits, seconds_of, table
from syncline.runs.sweep.ranking import is_equal
from syncline.units import format_seconds

SHOWN = 20
"""Number of configurations in a table, unless the user asks for more."""


def ranking_table(
    records: Sequence[dict[str, Any]], measure: str, paths: Sequence[str], limit: int = SHOWN, name: str = ""
) -> Group:
    """Return the table of the best configurations: the swept fields, and the spread over the seeds."""
    shown = list(records[:limit])
    columns: list[Column] = [("rank", lambda row: str(row["rank"]))]
    for path in _told_apart(records, paths):
        columns.append((path, lambda row, path=path: _value(row.get(path))))  # type: ignore[misc]
    columns += [
        (f"{measure.replace('_', ' ')}: median\n(lowest to highest)", lambda row: _median(row, measure)),
        ("seeds", _seeds),
        ("step\ntime", seconds_of("step_time_s")),
    ]
    total = len(records)
    title = f"{name}: {total:,} configuration{'s' * (total != 1)} by {measure}"
    title += f", the best {len(shown)}" if len(shown) < total else ""
    text = range(1, len(columns) - 3)
    return table(title, columns, shown, text_columns=text, keys=("rank", *_told_apart(records, paths)))


def effort_line(effort: Mapping[str, int]) -> str:
    """Return a line about the tuning effort of each method; empty for a single method."""
    if len(effort) < 2:
        return ""
    if is_equal(effort):
        count = next(iter(effort.values()))
        return f"tuning effort: equal, {count:,} configuration{'s' * (count != 1)} of each of {len(effort)} methods"
    return "tuning effort: not equal; configurations: " + ", ".join(f"{name} {n:,}" for name, n in effort.items())


def _told_apart(records: Sequence[Mapping[str, Any]], paths: Sequence[str]) -> list[str]:
    """Return the paths of the swept fields with several values; the first path if no field has several."""
    several = [path for path in paths if len({str(record.get(path)) for record in records}) > 1]
    return several or list(paths[:1])


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


def _number(value: float, field: str, row: Mapping[str, Any]) -> str:
    if not math.isfinite(value):
        return "failed" if row["failed"] else "diverged"
    return format_seconds(value) if field.endswith("_s") else four_digits(value)


def _median(row: Mapping[str, Any], field: str) -> str:
    middle, *ends = (_number(row[name], field, row) for name in (field, f"{field}_min", f"{field}_max"))
    return middle if row["seeds"] == 1 else f"{middle} ({' to '.join(dict.fromkeys(ends))})"


def _seeds(row: Mapping[str, Any]) -> str:
    lost = [f"{row[kind]} {kind}" for kind in ("diverged", "failed") if row[kind]]
    return "\n".join([str(row["seeds"]), *lost])
