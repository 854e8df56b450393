"""The command ``syncline validate clusters``: measurements against bundled constants, by source and regime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel.network.measured_links import P3
from syncline.measure.validation.cluster_files import BUNDLED, COLLECTIVES, DEFAULT, KNOWN, predicted_files, read_table
from syncline.measure.validation.cross_validation import collectives_left_out, nvlink_left_out
from syncline.measure.validation.errors import error_of, errors_by_group
from syncline.measure.validation.residuals import covered_by_others, with_uncertainty
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
    rows = [with_uncertainty(row) for row in predicted_files(files, spec.network)]
    if not spec.measurements:
        within = covered_by_others(rows)
    else:
        within = []
        for row in rows:
            error = row["error"]
            took_ms = None if error is None else row["predicted_ms"] / (1 + error)
            is_known = took_ms is not None and row["low_ms"] is not None
            within.append(bool(row["low_ms"] <= took_ms <= row["high_ms"]) if is_known else None)
    fits = []
    if spec.cross_validation and not spec.measurements:
        fits = collectives_left_out(read_table(COLLECTIVES)[1]) + nvlink_left_out()
    return {"rows": rows, "summary": cluster_summary(rows, within), "constants": asdict(P3), "cross_validation": fits}


def cluster_summary(rows: _Rows, within: Sequence[bool | None] = ()) -> list[dict[str, Any]]:
    """Return errors and coverage by file and regime; rows without a measurement are left out.

    Args:
        within: for each row, whether the measurement is between its bounds, if that is known.
    """
    summary = []
    covered = dict(zip(map(id, rows), within, strict=False))
    for name in dict.fromkeys(row["file"] for row in rows):
        file_rows = [row for row in rows if row["file"] == name and row["error"] is not None]
        regimes = [*sorted({row["regime"] for row in file_rows}), "all"]
        for regime in regimes if file_rows else []:
            group = [row for row in file_rows if regime in ("all", row["regime"])]
            hits = [hit for row in group if (hit := covered.get(id(row))) is not None]
            widths = [(row["high_ms"] - row["low_ms"]) / 2 / row["predicted_ms"] for row in group if row.get("low_ms")]
            summary.append(
                {"file": name, "regime": regime}
                | error_of([row["error"] for row in group])
                | {"coverage": float(np.mean(hits)) if hits else None}
                | {"half_width": float(np.median(widths)) if widths else None}
            )
    return summary


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
        if column_rows:
            errors[name] = errors_by_group(
                column_rows, column, lambda group: "own" if group == DEFAULT else group,
                lambda group: math.inf if group == DEFAULT else float(group),
            )  # fmt: skip
    return errors


def _has_out_of_sample_error(row: dict[str, Any]) -> bool:
    """Return whether a row was measured, and is not predicted from itself."""
    return row["error"] is not None and KNOWN not in row["regime"]
