"""The ranking of a sweep's configurations, its table, and the number of configurations tried for each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

from rich.console import Group

from syncline.columns import Column, column_of, distinct_by_key
from syncline.errors import SpecError, one_of
from syncline.planner.tables.table import table

NOT_MEASURES = {"configuration", "seed", "workers", "steps", "diverged_at"}
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
    has_results = any(not row["error"] for row in rows)
    if has_results and measure not in measures:
        raise SpecError("--by", measure, one_of(measures, measure))
    records = []
    for _, rows_of_seeds in groupby(rows, key=lambda row: row["configuration"]):
        records.append(_configuration_record(list(rows_of_seeds), measure))
    records.sort(key=lambda record: (record[measure], record["wall_clock_s"], record["configuration"]))
    return [{"rank": rank} | record for rank, record in enumerate(records, 1)]


def _configuration_record(rows: list[Mapping[str, Any]], measure: str) -> dict[str, Any]:
    """Return the row of a configuration from the rows of its seeds: shared columns, counts, medians and ranges."""
    columns_of_seeds = {*_measures(rows), "seed", "steps", "diverged_at", "error", "run", "basis"}
    record = {name: value for name, value in rows[0].items() if name not in columns_of_seeds}
    record["seeds"] = len(rows)
    record["failed"] = sum(row["error"] is not None for row in rows)
    record["diverged"] = sum(row.get("diverged_at") is not None for row in rows)
    for name in ("step_time_s", "wall_clock_s"):
        record[name] = median(value_or_infinite(row, name, even_if_diverged=True) for row in rows)
    for name in dict.fromkeys((measure, "loss")):  # each once, in this order
        values = [value_or_infinite(row, name) for row in rows]
        record |= {name: median(values), f"{name}_min": min(values), f"{name}_max": max(values)}
    return record


def value_or_infinite(row: Mapping[str, Any], name: str, even_if_diverged: bool = False) -> float:
    """Return a number in a run's row; infinite if the run failed or diverged.

    With ``even_if_diverged`` only failed runs are infinite: the times of a diverged run, for example, are valid.
    """
    value = row.get(name)
    has_diverged = row.get("diverged_at") is not None
    if value is None or row["error"] is not None or (has_diverged and not even_if_diverged):
        return math.inf
    return float(value)


def _measures(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the numeric columns of results; results follow the column ``seed`` in a row."""
    measures = []
    for row in rows:
        names = list(row)
        names_of_results = names[names.index("seed") + 1 :]
        for name in names_of_results:
            is_number = isinstance(row[name], int | float) and not isinstance(row[name], bool)
            if is_number and name not in NOT_MEASURES:
                measures.append(name)
    return list(dict.fromkeys(measures))


def effort(requests: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return by method the number of configurations tried; those that differ only in simulated time count once.

    Args:
        requests: ``method`` and ``training`` of each run.
    """
    trainings_by_method = distinct_by_key((run["method"], run["training"]) for run in requests)
    return {method: len(trainings) for method, trainings in trainings_by_method.items()}


def with_equal_effort(
    rows: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the rows of the first n configurations of each method; n is the smallest number that any method has.

    Configurations that share a training, because they differ only in simulated time, count as one.
    """
    smallest_effort = min(effort(requests).values(), default=0)
    chosen_trainings: dict[str, list[str]] = {}  # by method
    for run in requests:
        trainings = chosen_trainings.setdefault(run["method"], [])
        if run["training"] not in trainings and len(trainings) < smallest_effort:
            trainings.append(run["training"])
    chosen_runs = {run["run"] for run in requests if run["training"] in chosen_trainings[run["method"]]}
    return [row for row in rows if row["run"] in chosen_runs]


DEFAULT_LIMIT = 20
"""Default number of configurations in a table."""


def ranking_table(
    records: Sequence[dict[str, Any]], measure: str, paths: Sequence[str], limit: int = DEFAULT_LIMIT, name: str = ""
) -> Group:
    """Return the table of the best configurations, with the fields that vary and the spread over the seeds.

    Args:
        records: rows of `ranked`.
    """
    shown_records = list(records[:limit])
    varied_paths = [path for path in paths if len({str(record.get(path)) for record in records}) > 1]
    if not varied_paths:  # a single configuration, which the first field names
        varied_paths = list(paths[:1])
    title = f"{name}: {_count_of_configurations(len(records))} by {measure}"
    if len(shown_records) < len(records):
        title += f", the best {len(shown_records)}"
    swept_columns = [Column(path, path, type="text") for path in varied_paths]
    columns: list[str | Column] = ["rank", *swept_columns, measure, "lost_and_seeds", "step_time_s"]
    cell_texts: dict[str, Any] = {measure: partial(_median_text, column_of(measure)), "lost_and_seeds": _seeds_text}
    note = f"{column_of(measure).header.capitalize()}: median over the seeds (lowest to highest)."
    return table(title, columns, shown_records, note=note, keys=("rank", *varied_paths), values=cell_texts)


def _count_of_configurations(count: int) -> str:
    """Return a number of configurations as text."""
    return "1 configuration" if count == 1 else f"{count:,} configurations"


def effort_line(effort: Mapping[str, int]) -> str:
    """Return a line about the numbers of configurations tried for each method; empty for a single method."""
    if len(effort) < 2:
        return ""
    counts = list(effort.values())
    if len(set(counts)) == 1:
        return f"tuning effort: equal, {_count_of_configurations(counts[0])} of each of {len(effort)} methods"
    texts = [f"{method} {count:,}" for method, count in effort.items()]
    return f"tuning effort: not equal; configurations: {', '.join(texts)}"


def _median_text(column: Column, row: Mapping[str, Any]) -> str:
    """Return the median of a configuration's number over the seeds as text, with its range if there are several."""

    def text_of(value: float) -> str:
        """Return a value as text; a value that is not finite comes from seeds that failed or diverged."""
        if math.isfinite(value):
            return column.text(value)
        return "failed" if row["failed"] else "diverged"

    median_text = text_of(row[column.name])
    if row["seeds"] == 1:
        return median_text
    lowest, highest = text_of(row[f"{column.name}_min"]), text_of(row[f"{column.name}_max"])
    return f"{median_text} ({lowest})" if lowest == highest else f"{median_text} ({lowest} to {highest})"


def _seeds_text(row: Mapping[str, Any]) -> str:
    """Return the number of seeds, and below it the numbers of those that diverged or failed."""
    lost_seeds = [f"{row[kind]} {kind}" for kind in ("diverged", "failed") if row[kind]]
    return "\n".join([str(row["seeds"]), *lost_seeds])
