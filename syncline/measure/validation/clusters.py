"""The command ``syncline validate clusters``: measurements against bundled constants, by source and regime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group

from syncline.costmodel.network.measured_links import P3
from syncline.measure.validation.cluster_files import BUNDLED, COLLECTIVES, KNOWN, predicted_rows, read_table
from syncline.measure.validation.cross_validation import collectives_left_out, error_of, nvlink_left_out
from syncline.measure.validation.residuals import covered_by_others, with_uncertainty
from syncline.planner.tables.columns import Column, count_of, table, text_of
from syncline.specs import ClustersSpec

_Rows = Sequence[dict[str, Any]]


def validate_clusters(spec: ClustersSpec) -> dict[str, Any]:
    """Predict every row of every file, and return the errors.

    Args:
        spec: the files, or none for those that come with the package.

    Returns:
        ``rows``, with the bounds between which nine of ten measured times are expected, and their ``basis``;
        ``summary``, one per file and regime and one per file: errors, ``coverage``, the part of the measured times that
        is between the bounds (for bundled measurements, between the bounds from all others), and ``half_width``, the
        median half width of the bounds; ``constants``; ``cross_validation``, errors of rows that constants were fitted
        without, for the bundled collectives only.

    Raises:
        SynclineError: a file does not exist or cannot be predicted.
    """
    files = [Path(name) for name in spec.measurements] or list(BUNDLED)
    rows = [with_uncertainty(row) for path in files for row in predicted_rows(path)]
    within = [_within(row) for row in rows] if spec.measurements else covered_by_others(rows)
    fits = []
    if spec.cross_validation and not spec.measurements:
        fits = collectives_left_out(read_table(COLLECTIVES)[1]) + nvlink_left_out()
    return {"rows": rows, "summary": cluster_summary(rows, within), "constants": asdict(P3), "cross_validation": fits}


def cluster_summary(rows: _Rows, within: Sequence[bool | None] = ()) -> list[dict[str, Any]]:
    """Return errors and coverage by file and regime; rows without a measurement are left out.

    Args:
        rows: the predicted rows.
        within: for each row, whether the measurement is between its bounds, if that is known.
    """
    summary = []
    covered = dict(zip(map(id, rows), within, strict=False))
    for name in dict.fromkeys(row["file"] for row in rows):
        file_rows = [row for row in rows if row["file"] == name and row["error"] is not None]
        groups = [
            (regime, [row for row in file_rows if row["regime"] == regime])
            for regime in sorted({r["regime"] for r in file_rows})
        ]
        for regime, some in [*groups, ("all", file_rows)] if file_rows else []:
            hits = [hit for row in some if (hit := covered.get(id(row))) is not None]
            widths = [(row["high_ms"] - row["low_ms"]) / 2 / row["predicted_ms"] for row in some if "low_ms" in row]
            summary.append(
                {"file": name, "regime": regime}
                | error_of(np.array([row["error"] for row in some]))
                | {"coverage": float(np.mean(hits)) if hits else None}
                | {"half_width": float(np.median(widths)) if widths else None}
            )
    return summary


def _within(row: dict[str, Any]) -> bool | None:
    if row["error"] is None:
        return None
    return bool(row["low_ms"] <= row["predicted_ms"] / (1 + row["error"]) <= row["high_ms"])


def measured_and_predicted_s(rows: _Rows) -> dict[str, tuple[list[float], list[float]]]:
    """Return the measured and the predicted seconds of each file."""
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if _has_out_of_sample_error(row):
            predicted_s = row["predicted_ms"] / 1e3
            measured, predicted = seconds.setdefault(row["file"].removesuffix(".csv"), ([], []))
            measured.append(predicted_s / (1 + row["error"]))
            predicted.append(predicted_s)
    return seconds


def panels(rows: _Rows) -> dict[str, dict[str, list[float]]]:
    """Return the errors grouped by nodes and delays of collectives, and by GPUs."""
    errors: dict[str, dict[str, list[float]]] = {}
    for column, name in (("nodes", "nodes"), ("delay_ms", "delay (ms)"), ("gpus", "GPUs of a node")):
        column_rows = [row for row in rows if _has_out_of_sample_error(row) and row.get(column)]
        groups = sorted({row[column] for row in column_rows}, key=lambda text: (text == "default", _order(text)))
        if groups:
            errors[name] = {
                "own" if group == "default" else group: [row["error"] for row in column_rows if row[column] == group]
                for group in groups
            }
    return errors


def _has_out_of_sample_error(row: dict[str, Any]) -> bool:
    """Return whether a row was measured, and is not predicted from itself."""
    return row["error"] is not None and KNOWN not in row["regime"]


def _order(text: str) -> float:
    return 0.0 if text == "default" else float(text)


NOTE = (
    "Absolute errors, |predicted / measured - 1|: median, worst; bias: the mean with its sign, + is too slow. "
    "Constants were fitted to the collectives that come with the package; nothing was fitted to the steps but what "
    "they compute, and of NVLink the times themselves are known. +-: half of the interval in which nine of ten are "
    "expected, the median; within: how many are (of what comes with the package, in the interval that the others give)."
)
LEFT_OUT_NOTE = "Errors of the rows of a group when the constants are fitted to all rows but these."


def _percents(row: dict[str, Any], name: str, sign: str = "", digits: int = 2) -> str:
    return "" if row[name] is None else f"{100 * row[name]:{sign}.{digits}f}%"


ERRORS: list[Column] = [
    count_of("points"),
    ("median", lambda row: _percents(row, "median")),
    ("mean", lambda row: _percents(row, "mape")),
    ("worst", lambda row: _percents(row, "worst")),
    ("bias", lambda row: _percents(row, "bias", "+")),
]


SURE: list[Column] = [
    ("+-", lambda row: _percents(row, "half_width", digits=1)),
    ("within", lambda row: _percents(row, "coverage", digits=0)),
]


def _heading(row: dict[str, Any]) -> str:
    return f"all of {row['file']}" if row["regime"] == "all" else str(row["regime"])


def cluster_tables(result: dict[str, Any], spec: ClustersSpec) -> list[Group]:
    """Return tables of the errors by file and regime, and of the errors after fits without a group."""
    columns: list[Column] = [("", _heading), *(column for column in ERRORS if column[0] != "mean"), *SURE]
    shown = [table(f"{spec.name}: predicted against measured", columns, result["summary"], NOTE, (0,), "file")]
    if result["cross_validation"]:
        left_out_columns: list[Column] = [
            text_of("stage"), ("left out", lambda row: f"{row['held_out']} {row['value']}"), *ERRORS
        ]  # fmt: skip
        shown.append(
            table(
                "Constants fitted without a group",
                left_out_columns,
                result["cross_validation"],
                LEFT_OUT_NOTE,
                (0, 1),
                "stage",
            )
        )
    return shown
