"""Placement of communication: the collectives of each method's first steps, from its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from syncline.runs.folders.result_files import LEDGER, read_parquet

LEAST_STEPS, MOST_STEPS = 32, 256
"""Limits of the number of steps shown, which are otherwise two rounds of the method that sends least often."""


def placement_chart(path: Path, styles: Sequence[str]) -> dict[str, Any] | None:
    """Return for each method the collectives of its first steps, with the bytes that a worker sends in each.

    Args:
        path: a ``ledger.parquet``.
        styles: the page's methods, in the order of their colours.
    """
    table = read_parquet(path, LEDGER, LEDGER)
    if not len(table):
        return None
    last = int(pc.max(table["step"]).as_py()) + 1
    gaps = []
    methods = table["method"].unique().to_pylist()
    for method in methods:
        steps = np.unique(table.filter(pc.equal(table["method"], method))["step"].to_numpy())
        gaps.append(int(np.diff(steps).max()) if len(steps) > 1 else int(steps[0]) + 1)
    count = min(last, max(LEAST_STEPS, min(2 * max(gaps) + 1, MOST_STEPS)))
    shown = table.filter(pc.less(table["step"], count))
    words: dict[str, int] = {}
    lanes = []
    for method in methods:
        by_step: dict[int, dict[str, list[float]]] = {}
        for row in shown.filter(pc.equal(shown["method"], method)).to_pylist():
            sizes = by_step.setdefault(row["step"], {}).setdefault(f"{row['collective']} of {row['label']}", [])
            sizes.append(row["payload_bytes"])
        lanes.append({
            "name": method,
            "style": styles.index(method),
            "steps": list(by_step),
            "bytes": [round(sum(map(sum, calls.values()))) for calls in by_step.values()],
            "words": [words.setdefault(_calls_text(calls), len(words)) for calls in by_step.values()],
        })  # fmt: skip
    return {"kind": "placement", "steps": count, "all": last, "lanes": lanes, "words": list(words)}


MOST_NAMED = 4
"""Largest number of kinds of calls of a step that are named."""


def _calls_text(calls: dict[str, list[float]]) -> str:
    named = [name + (f", {len(sizes)} times" if len(sizes) > 1 else "") for name, sizes in calls.items()]
    more = len(named) - MOST_NAMED
    return "; ".join([*named[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
