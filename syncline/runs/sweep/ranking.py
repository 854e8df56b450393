"""The ranking of configurations, the spread over their seeds, and the tuning effort of each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from syncline.errors import SpecError, one_of

NO_MEASURE = {"configuration", "seed", "workers", "steps", "diverged_at"}
"""Numeric fields of a row that do not measure quality."""


def ranked(rows: Sequence[Mapping[str, Any]], measure: str = "loss") -> list[dict[str, Any]]:
    """Return one record per configuration, the best first: the median, lowest and highest of a number over the seeds.

    A seed that diverged or failed counts as infinite. Ties are ordered by ``wall_clock_s``, then by configuration
    number.

    Args:
        rows: rows of runs, those of a configuration one after another.
        measure: name of a numeric field; less is better.

    Raises:
        SpecError: no row has such a number.
    """
    measures = _measures(rows)
    if rows and measure not in measures and any(not row["error"] for row in rows):
        raise SpecError("--by", measure, one_of(measures, measure))
    records = [_record(list(group), measure) for _, group in groupby(rows, key=lambda row: row["configuration"])]
    best_first = sorted(records, key=lambda entry: (entry[measure], entry["wall_clock_s"], entry["configuration"]))
    return [{"rank": rank} | record for rank, record in enumerate(best_first, 1)]


def _record(rows: list[Mapping[str, Any]], field: str) -> dict[str, Any]:
    measures = set(_measures(rows))
    shared = {
        name: value
        for name, value in rows[0].items()
        if name not in measures and name not in ("seed", "steps", "diverged_at", "error", "run", "basis")
    }
    counts = {
        "seeds": len(rows),
        "failed": sum(row["error"] is not None for row in rows),
        "diverged": sum(row.get("diverged_at") is not None for row in rows),
    }
    spread: dict[str, Any] = {}
    for name in dict.fromkeys([field, "loss"]):
        values = [_or_lost(row, name) for row in rows]
        spread |= {name: median(values), f"{name}_min": min(values), f"{name}_max": max(values)}
    times = {
        name: median(_or_lost(row, name, even_if_diverged=True) for row in rows)
        for name in ("step_time_s", "wall_clock_s")
    }
    return shared | counts | times | spread


def loss_or_infinite(row: Mapping[str, Any]) -> float:
    """Return the last loss of a run; infinite if it diverged or failed."""
    return _or_lost(row, "loss")


def _or_lost(row: Mapping[str, Any], name: str, even_if_diverged: bool = False) -> float:
    value = row.get(name)
    lost = row["error"] is not None or (row.get("diverged_at") is not None and not even_if_diverged)
    return math.inf if lost or value is None else float(value)


def _measures(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fields that runs measured: the numeric fields behind the fields that every row has."""
    measures: dict[str, None] = {}
    for row in rows:
        names = list(row)
        for name in names[names.index("seed") + 1 :]:
            if name not in NO_MEASURE and isinstance(row[name], int | float) and not isinstance(row[name], bool):
                measures[name] = None
    return list(measures)


def effort(runs: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the number of configurations each method is tuned over; those that differ only on the clock count once.

    Args:
        runs: method and training of each run.
    """
    trainings_of: dict[str, set[str]] = {}
    for method, training in runs:
        trainings_of.setdefault(method, set()).add(training)
    return {method: len(names) for method, names in trainings_of.items()}


def is_equal(tuned: Mapping[str, int]) -> bool:
    """Return whether every method got the same effort."""
    return len(set(tuned.values())) <= 1


def with_equal_effort(rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows of equally many configurations of each method, as many as the least tuned one has, in sweep order."""
    training_of = {run["run"]: (run["method"], run["training"]) for run in runs}
    smallest_effort = min(effort(training_of.values()).values(), default=0)
    chosen: dict[str, dict[str, None]] = {}
    for method, training in training_of.values():
        of_method = chosen.setdefault(method, {})
        if len(of_method) < smallest_effort:
            of_method[training] = None
    return [row for row in rows if training_of[row["run"]][1] in chosen[training_of[row["run"]][0]]]
