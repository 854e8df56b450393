"""The command ``syncline validate``: predict, compare with measurements, and write the folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from syncline.measure.validation.clusters import measured_and_predicted_s, panels, validate_clusters
from syncline.measure.validation.errors import errors_by_group
from syncline.measure.validation.vtrain import GROUPS, validate_step_times
from syncline.runs.folders.folder import RunFolder, environment
from syncline.specs import ClustersSpec, ValidationSpec


def validate_published(spec: ValidationSpec, out: Path, *, exact: bool = False) -> dict[str, Any]:
    """Validate published measurements, and write the folder: spec, ``points.parquet``, ``run.json``, figure.

    Args:
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
        result = validate_clusters(spec)
        rows = result["rows"]
        columns: Iterable[str] = POINT_COLUMNS
        points, groups, title, measured = measured_and_predicted_s(rows), panels(rows), "errors", "times"
    else:
        result = validate_step_times(spec)
        rows = result["rows"]
        columns, points = rows[0], _kinds(rows)
        alone = [row for row in rows if row["part"] == "single node" and row["tensor"] == 1]
        groups = {NAMES[name]: errors_by_group(alone, name) for name in GROUPS}
        title, measured = "errors on one node, no tensor parallelism", "step time"
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        folder.table("points", {name: [row[name] for row in rows] for name in columns})
        folder.json("run", environment() | result)
        if points:
            figure = predicted_against_measured(points, groups, title=title, measured=measured)
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
