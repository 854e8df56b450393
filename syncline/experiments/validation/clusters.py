"""``syncline validate clusters``: others' measurements against the constants that ship, by source and regime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group

from syncline.costmodel.clusters.p3 import P3
from syncline.experiments.columns import Column, count_of, table, text_of
from syncline.experiments.validation.cluster_files import BUNDLED, COLLECTIVES, KNOWN, predicted_rows, read_table
from syncline.experiments.validation.left_out import collectives_left_out, error_of, nvlink_left_out
from syncline.specs import ClustersSpec

_Rows = Sequence[dict[str, Any]]


def validate_clusters(spec: ClustersSpec) -> dict[str, Any]:
    """Predict every row of every file, and tell how far off.

    Args:
        spec: the files, or none for those that come with the package.

    Returns:
        ``rows``; ``summary``, one per file and regime and one per file; ``constants``; ``left_out``, errors of rows
        that constants were fitted without, of the bundled collectives alone.

    Raises:
        SynclineError: a file that is not there or cannot be predicted.
    """
    files = [Path(name) for name in spec.measurements] or list(BUNDLED)
    rows = [row for path in files for row in predicted_rows(path)]
    fits = []
    if spec.left_out and not spec.measurements:
        fits = collectives_left_out(read_table(COLLECTIVES)[1]) + nvlink_left_out()
    return {"rows": rows, "summary": cluster_summary(rows), "constants": asdict(P3), "left_out": fits}


def cluster_summary(rows: _Rows) -> list[dict[str, Any]]:
    """Errors by file and regime; rows that nothing was measured of are left out."""
    told = []
    for name in dict.fromkeys(row["file"] for row in rows):
        of = [row for row in rows if row["file"] == name and row["error"] is not None]
        for regime in sorted({row["regime"] for row in of}):
            errors = np.array([row["error"] for row in of if row["regime"] == regime])
            told.append({"file": name, "regime": regime} | error_of(errors))
        if of:
            told.append({"file": name, "regime": "all"} | error_of(np.array([row["error"] for row in of])))
    return told


def measured_and_predicted_s(rows: _Rows) -> dict[str, tuple[list[float], list[float]]]:
    """By file: seconds that were measured, and those that were predicted."""
    told: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if _told(row):
            predicted_s = row["predicted_ms"] / 1e3
            measured, predicted = told.setdefault(row["file"].removesuffix(".csv"), ([], []))
            measured.append(predicted_s / (1 + row["error"]))
            predicted.append(predicted_s)
    return told


def panels(rows: _Rows) -> dict[str, dict[str, list[float]]]:
    """Errors by what they may depend on: nodes and delays of collectives, GPUs."""
    told: dict[str, dict[str, list[float]]] = {}
    for column, name in (("nodes", "nodes"), ("delay_ms", "delay (ms)"), ("gpus", "GPUs of a node")):
        of = [row for row in rows if _told(row) and row.get(column)]
        groups = sorted({row[column] for row in of}, key=lambda text: (text == "default", _order(text)))
        if groups:
            told[name] = {
                "own" if group == "default" else group: [row["error"] for row in of if row[column] == group]
                for group in groups
            }
    return told


def _told(row: dict[str, Any]) -> bool:
    """Whether it was measured, and not predicted from itself."""
    return row["error"] is not None and KNOWN not in row["regime"]


def _order(text: str) -> float:
    return 0.0 if text == "default" else float(text)


NOTE = (
    "Absolute errors, |predicted / measured - 1|: median, mean, worst; bias: the mean with its sign, + is too slow. "
    "Constants were fitted to the collectives that come with the package; nothing was fitted to the steps but what "
    "they compute, and of NVLink the times themselves are known."
)
LEFT_OUT_NOTE = "Errors of the rows of a group when the constants are fitted to all rows but these."


def _percents(row: dict[str, Any], name: str, sign: str = "") -> str:
    return f"{100 * row[name]:{sign}.2f}%"


ERRORS: list[Column] = [
    count_of("points"),
    ("median", lambda row: _percents(row, "median")),
    ("mean", lambda row: _percents(row, "mape")),
    ("worst", lambda row: _percents(row, "worst")),
    ("bias", lambda row: _percents(row, "bias", "+")),
]


def cluster_tables(result: dict[str, Any], spec: ClustersSpec) -> list[Group]:
    """How wrong, by file and regime; and without what was left out."""
    columns: list[Column] = [text_of("file"), text_of("regime"), *ERRORS]
    shown = [table(f"{spec.name}: predicted against measured", columns, result["summary"], NOTE, (0, 1), "file")]
    if result["left_out"]:
        by: list[Column] = [
            text_of("stage"), ("left out", lambda row: f"{row['left_out']} {row['value']}"), *ERRORS
        ]  # fmt: skip
        shown.append(table("Constants fitted without a group", by, result["left_out"], LEFT_OUT_NOTE, (0, 1), "stage"))
    return shown
