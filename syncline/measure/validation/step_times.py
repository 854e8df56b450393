"""The command ``syncline validate``: predict, compare with measurements, and write the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.measure.validation.vtrain import GROUPS, validate_step_times
from syncline.runs.folders.folder import RunFolder, environment
from syncline.specs import ClustersSpec, ValidationSpec


def validate_published(spec: ValidationSpec, out: Path, *, exact: bool = False) -> dict[str, Any]:
    """Validate published measurements, and write the folder: spec, ``points.parquet``, ``run.json``, figure.

    Args:
        spec: the measurements and the constants to compare.
        out: the folder to write; see ``RunFolder`` for ``exact``.

    Returns:
        ``spec`` (its name), ``rows`` (predicted points), ``summary`` (errors of groups of them), ``constants``,
        ``folder``; for clusters ``cross_validation`` too.

    Raises:
        SynclineError: measurements do not exist or cannot be read.
    """
    from syncline.analysis import save
    from syncline.analysis.figures.validation import predicted_against_measured

    if isinstance(spec, ClustersSpec):
        return _validate_clusters(spec, out, exact)
    result = validate_step_times(spec)
    rows = result["rows"]
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        folder.table("points", {name: [row[name] for row in rows] for name in rows[0]})
        folder.json("run", environment() | result)
        figure = predicted_against_measured(
            _kinds(rows), _panels(rows), title="errors on one node, no tensor parallelism"
        )
        save(figure, folder.figure("validation"))
    return {"spec": spec.name, **result, "folder": str(folder.path)}


def _validate_clusters(spec: ClustersSpec, out: Path, exact: bool) -> dict[str, Any]:
    from syncline.analysis import save
    from syncline.analysis.figures.validation import predicted_against_measured
    from syncline.measure.validation.clusters import measured_and_predicted_s, panels, validate_clusters

    result = validate_clusters(spec)
    rows = result["rows"]
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        folder.table("points", {name: [row[name] for row in rows] for name in POINT_COLUMNS})
        folder.json("run", environment() | result)
        points = measured_and_predicted_s(rows)
        if points:
            figure = predicted_against_measured(points, panels(rows), title="errors", measured="times")
            save(figure, folder.figure("validation"))
    return {"spec": spec.name, **result, "folder": str(folder.path)}


POINT_COLUMNS = ("file", "regime", "predicted_ms", "low_ms", "high_ms", "basis", "error")
"""Columns that all files of measurements on clusters have."""

KINDS = (
    ("single node", 1, "one node, no tensor parallelism"),
    ("single node", 2, "one node, tensor parallelism"),
    ("several nodes", 1, "several nodes, no tensor parallelism"),
    ("several nodes", 2, "several nodes, tensor parallelism"),
)
"""Parts of the points, least tensor parallelism, and their names."""

NAMES = {
    "micro_batch": "micro-batch (sequences)",
    "width": "hidden size",
    "stages": "pipeline stages",
    "data": "replicas",
    "layers": "layers",
    "microbatches": "micro-batches per step",
}


def _kinds(rows: list[dict[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the measured and predicted seconds of each group that has its own marker."""
    out = {}
    for part, tensor, name in KINDS:
        group = [row for row in rows if row["part"] == part and (row["tensor"] > 1) == (tensor > 1)]
        if group:
            out[name] = [row["measured_s"] for row in group], [row["predicted_s"] for row in group]
    return out


def _panels(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return the errors by groups, for points on one node without tensor parallelism."""
    alone = [row for row in rows if row["part"] == "single node" and row["tensor"] == 1]
    return {
        NAMES[name]: {
            f"{value}": [row["error"] for row in alone if row[name] == value]
            for value in sorted({row[name] for row in alone})
        }
        for name in GROUPS
    }
