"""Crossings: the step from which on a method's loss is below another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from replication.replications.spec import Cell, Crossing, cells_of

Evaluations = Mapping[Cell, Mapping[int, Mapping[int, float]]]
"""Losses by cell, seed and step."""


def below_from(losses: Mapping[int, float], other: Mapping[int, float]) -> int | None:
    """Return the first common evaluation step from which ``losses`` stays below ``other``; None if there is none.

    >>> below_from({10: 3.0, 20: 2.0, 30: 1.0}, {10: 2.5, 20: 2.1, 30: 1.2})
    20
    """
    first = None
    for step in sorted(losses.keys() & other.keys(), reverse=True):
        if not losses[step] < other[step]:
            break
        first = step
    return first


def crossing_rows(crossings: Sequence[Crossing], losses: Evaluations) -> list[dict[str, Any]]:
    """Return a row for each pair whose methods are both trained: ``lower``, ``higher``, the ``steps`` by seed."""
    rows = []
    for crossing in crossings:
        (lower,), (higher,) = cells_of(crossing.lower), cells_of(crossing.higher)
        if lower in losses and higher in losses:
            seeds = sorted(losses[lower].keys() & losses[higher].keys())
            steps = {seed: below_from(losses[lower][seed], losses[higher][seed]) for seed in seeds}
            last = max(max(losses[lower][seed]) for seed in seeds)
            rows.append({"lower": crossing.lower, "higher": crossing.higher, "steps": steps, "last": last})
    return rows


def crossings_page(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table with a line for each pair."""
    yield "## From which step\n"
    yield "The first evaluation from which on the loss stays below the other's, on the same seed.\n"
    yield "| below | of steps | from step: median (lowest to highest) | seeds that end below |\n|---|---|---|---|"
    for row in rows:
        crossed = sorted(step for step in row["steps"].values() if step is not None)
        shown = f"{median(crossed):g} ({crossed[0]} to {crossed[-1]})" if crossed else "never"
        pair, seeds = f"{row['lower']} < {row['higher']}", len(row["steps"])
        yield f"| {pair} | {row['last']:,} | {shown} | {len(crossed)} of {seeds} |"
    yield ""
