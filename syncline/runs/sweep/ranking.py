"""The ranking of a sweep's configurations, its table, and the number of configurations tried for each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

from rich.console import Group

from syncline.columns import Column, column_of
from syncline.errors import SpecError, one_of
from syncline.planner.tables.table import table

NO_MEASURE = {"configuration", "seed", "workers", "steps", "diverged_at"}
"""Numeric columns that do not measure the quality of a run."""


def ranked(rows: Sequence[Mapping[str, Any]], measure: str = "loss") -> list[dict[str, Any]]:
    """Return one row per configuration, the best first, with the median, lowest and highest value over its seeds.

    A seed that diverged or failed counts as infinite. Ties are ordered by ``wall_clock_s``, then by configuration
    number.

    Args:
        rows: rows of runs; the rows of a configuration follow each other.
        measure: column to rank by; smaller is better.
    """
    measures = _measures(rows)
    if rows and measure not in measures and any(not row["error"] for row in rows):
        raise SpecError("--by", measure, one_of(measures, measure))
    records = [_record(list(group), measure) for _, group in groupby(rows, key=lambda row: row["configuration"])]
    best_first = sorted(records, key=lambda entry: (entry[measure], entry["wall_clock_s"], entry["configuration"]))
    return [{"rank": rank} | record for rank, record in enumerate(best_first, 1)]


def _record(rows: list[Mapping[str, Any]], field: str) -> dict[str, Any]:
    """Return the row of a configuration from the rows of its seeds: shared columns, counts, medians and ranges."""
    seed_columns = {*_measures(rows), "seed", "steps", "diverged_at", "error", "run", "basis"}
    shared = {name: value for name, value in rows[0].items() if name not in seed_columns}
    counts = {
        "seeds": len(rows),
        "failed": sum(row["error"] is not None for row in rows),
        "diverged": sum(row.get("diverged_at") is not None for row in rows),
    }
    spread: dict[str, Any] = {}
    for name in dict.fromkeys([field, "loss"]):
        values = [value_or_infinite(row, name) for row in rows]
        spread |= {name: median(values), f"{name}_min": min(values), f"{name}_max": max(values)}
    times = {}
    for name in ("step_time_s", "wall_clock_s"):
        times[name] = median(value_or_infinite(row, name, even_if_diverged=True) for row in rows)
    return shared | counts | times | spread


def value_or_infinite(row: Mapping[str, Any], name: str = "loss", even_if_diverged: bool = False) -> float:
    """Return a number in a run's row; infinite if the run failed, or if it diverged, unless ``even_if_diverged``."""
    value = row.get(name)
    is_lost = row["error"] is not None or (row.get("diverged_at") is not None and not even_if_diverged)
    return math.inf if is_lost or value is None else float(value)


def _measures(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of numeric columns that runs have measured; they are behind the column ``seed``."""
    measures: dict[str, None] = {}
    for row in rows:
        names = list(row)
        for name in names[names.index("seed") + 1 :]:
            if name not in NO_MEASURE and isinstance(row[name], int | float) and not isinstance(row[name], bool):
                measures[name] = None
    return list(measures)


def effort(requests: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return by method the number of configurations tried; those that differ only on the clock count once.

    Args:
        requests: ``method`` and ``training`` of each run.
    """
    trainings_of: dict[str, set[str]] = {}
    for run in requests:
        trainings_of.setdefault(run["method"], set()).add(run["training"])
    return {method: len(names) for method, names in trainings_of.items()}


def with_equal_effort(
    rows: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the rows of the first n configurations of each method; n is the smallest number that any method has."""
    smallest_effort = min(effort(requests).values(), default=0)
    chosen_names: dict[str, list[str]] = {}
    for run in requests:
        trainings = chosen_names.setdefault(run["method"], [])
        if run["training"] not in trainings and len(trainings) < smallest_effort:
            trainings.append(run["training"])
    names = {run["run"] for run in requests if run["training"] in chosen_names[run["method"]]}
    return [row for row in rows if row["run"] in names]


SHOWN = 20
"""Default number of configurations in a table."""


def ranking_table(
    records: Sequence[dict[str, Any]], measure: str, paths: Sequence[str], limit: int = SHOWN, name: str = ""
) -> Group:
    """Return the table of the best configurations: swept fields that have several values, and the spread over seeds.

    Args:
        records: rows of `ranked`.
        measure: column by which they are ranked.
        paths: paths of the swept fields.
        limit: largest number of rows of the table.
    """
    shown_records = list(records[:limit])
    distinct = [path for path in paths if len({str(record.get(path)) for record in records}) > 1] or list(paths[:1])
    total = len(records)
    title = f"{name}: {total:,} configuration{'s' * (total != 1)} by {measure}"
    title += f", the best {len(shown_records)}" if len(shown_records) < total else ""
    columns: list[str | Column] = ["rank", *map(_swept, distinct), measure, "lost_and_seeds", "step_time_s"]
    values: dict[str, Any] = {measure: partial(_median, column_of(measure)), "lost_and_seeds": _seeds}
    note = f"{column_of(measure).header.capitalize()}: median over the seeds (lowest to highest)."
    return table(title, columns, shown_records, note=note, keys=("rank", *distinct), values=values)


def effort_line(effort: Mapping[str, int]) -> str:
    """Return a line about the numbers of configurations tried for each method; empty for a single method."""
    if len(effort) < 2:
        return ""
    if len(set(effort.values())) == 1:
        count = next(iter(effort.values()))
        return f"tuning effort: equal, {count:,} configuration{'s' * (count != 1)} of each of {len(effort)} methods"
    return "tuning effort: not equal; configurations: " + ", ".join(f"{name} {n:,}" for name, n in effort.items())


def _swept(path: str) -> Column:
    """Return the column of a swept field, with the field's path as heading."""
    return Column(path, path, type="text")


def _median(column: Column, row: Mapping[str, Any]) -> str:
    """Return the median of a number over the seeds, and its range if there are several."""

    def text(value: float) -> str:
        return column.text(value) if math.isfinite(value) else "failed" if row["failed"] else "diverged"

    middle, *ends = (text(row[f"{column.name}{end}"]) for end in ("", "_min", "_max"))
    return middle if row["seeds"] == 1 else f"{middle} ({' to '.join(dict.fromkeys(ends))})"


def _seeds(row: Mapping[str, Any]) -> str:
    """Return the number of seeds, and of those that are lost."""
    lost_seeds = [f"{row[kind]} {kind}" for kind in ("diverged", "failed") if row[kind]]
    return "\n".join([str(row["seeds"]), *lost_seeds])
