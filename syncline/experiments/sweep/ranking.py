"""Which configuration is best, how far its seeds are apart, and how much effort each method got."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from syncline.errors import SpecError, one_of

NO_MEASURE = {"configuration", "seed", "workers", "steps", "diverged_at"}
"""Numbers of a row by which nothing is better."""


def ranked(rows: Sequence[Mapping[str, Any]], by: str = "loss") -> list[dict[str, Any]]:
    """One record per configuration, the best first: the median, lowest and highest of a number over the seeds.

    A seed that diverged or failed counts as infinite. Of equal configurations the one with the lower ``wall_clock_s``
    is first, else the earlier one.

    Args:
        rows: of runs, those of a configuration one after another.
        by: a field that is a number; less is better.

    Raises:
        SpecError: no row has such a number.
    """
    known = _measures(rows)
    if rows and by not in known and any(not row["error"] for row in rows):
        raise SpecError("--by", by, one_of(known, by))
    records = [_record(list(group), by) for _, group in groupby(rows, key=lambda row: row["configuration"])]
    best_first = sorted(records, key=lambda one: (one[by], one["wall_clock_s"], one["configuration"]))
    return [{"rank": rank} | record for rank, record in enumerate(best_first, 1)]


def _record(rows: list[Mapping[str, Any]], by: str) -> dict[str, Any]:
    known = set(_measures(rows))
    shared = {
        name: value
        for name, value in rows[0].items()
        if name not in known and name not in ("seed", "steps", "diverged_at", "error", "run", "basis")
    }
    counts = {
        "seeds": len(rows),
        "failed": sum(row["error"] is not None for row in rows),
        "diverged": sum(row.get("diverged_at") is not None for row in rows),
    }
    spread: dict[str, Any] = {}
    for name in dict.fromkeys([by, "loss"]):
        values = [_or_lost(row, name) for row in rows]
        spread |= {name: median(values), f"{name}_min": min(values), f"{name}_max": max(values)}
    times = {
        name: median(_or_lost(row, name, even_if_diverged=True) for row in rows)
        for name in ("step_time_s", "wall_clock_s")
    }
    return shared | counts | times | spread


def loss_or_infinite(row: Mapping[str, Any]) -> float:
    """The last loss of a run; infinite if it diverged or failed."""
    return _or_lost(row, "loss")


def _or_lost(row: Mapping[str, Any], name: str, even_if_diverged: bool = False) -> float:
    value = row.get(name)
    lost = row["error"] is not None or (row.get("diverged_at") is not None and not even_if_diverged)
    return math.inf if lost or value is None else float(value)


def _measures(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Fields that runs measured: those that stand behind what every row has, and are numbers."""
    found: dict[str, None] = {}
    for row in rows:
        names = list(row)
        for name in names[names.index("seed") + 1 :]:
            if name not in NO_MEASURE and isinstance(row[name], int | float) and not isinstance(row[name], bool):
                found[name] = None
    return list(found)


def effort(asked: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many configurations each method is tuned over; what differs on the clock alone counts once.

    Args:
        asked: method and training of each run.
    """
    found: dict[str, set[str]] = {}
    for method, training in asked:
        found.setdefault(method, set()).add(training)
    return {method: len(trainings) for method, trainings in found.items()}


def is_equal(tuned: Mapping[str, int]) -> bool:
    """Whether every method got the same effort."""
    return len(set(tuned.values())) <= 1


def with_equal_effort(rows: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of as many configurations of each method as the least tuned one has, in the order of the sweep."""
    training_of = {one["run"]: (one["method"], one["training"]) for one in asked}
    least = min(effort(training_of.values()).values(), default=0)
    kept: dict[str, dict[str, None]] = {}
    for method, training in training_of.values():
        of_method = kept.setdefault(method, {})
        if len(of_method) < least:
            of_method[training] = None
    return [row for row in rows if training_of[row["run"]][1] in kept[training_of[row["run"]][0]]]
