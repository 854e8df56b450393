"""The command ``syncline validate``: predict published measurements and trainings, compare, and write the folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.costmodel.network.presets import P3
from syncline.errors import SpecError
from syncline.measure.validation import cluster_files, residuals
from syncline.measure.validation.measured_steps import GROUPED_COLUMNS, error_of, errors_by_group, validate_step_times
from syncline.questions.processes import Validate
from syncline.runs.folders.folder import RunFolder, environment
from syncline.specs import VALIDATIONS, ClustersSpec, CompareSpec, Override, RunSpec, ValidationSpec, kind_of, load_spec

if TYPE_CHECKING:
    from rich.console import Group


def validations(question: Validate, say: Callable[[str], None]) -> Iterator[tuple[dict[str, Any], list[Group]]]:
    """Validate the specs of a question; yield the result and the tables of each validation.

    Each spec of published measurements is a validation; all specs of trainings together are the last one. ``say`` is
    called with lines about the progress of the trainings.

    Raises:
        SpecError: a spec is wrong, or ``out`` names one folder for several validations.
    """
    specs = []
    for name in question.specs:
        kind, changes = kind_of(name), dict[str, Any]()  # the fields of the spec that options change
        if question.measurements:
            changes["measurements"] = list(question.measurements)
        if question.data is not None and kind not in ("run", "compare"):  # trainings have no such field
            changes["data"] = str(question.data)
        if question.cluster is not None and kind == "clusters":
            changes["network"] = str(question.cluster)
        options = [Override.option(f"--{field}", field, value) for field, value in changes.items()]
        specs.append(load_spec(name, [*(question.fields or ()), *options], *VALIDATIONS, RunSpec, CompareSpec))
    trainings = [spec for spec in specs if isinstance(spec, RunSpec | CompareSpec)]
    published = [spec for spec in specs if isinstance(spec, VALIDATIONS)]
    is_exact = question.out is not None  # a folder that the user names gets no number
    num_folders = len(published) + bool(trainings)  # all trainings share one folder
    if is_exact and num_folders > 1:
        expected = "one spec, as this names the folder of one; without it each has its own"
        raise SpecError("--out", str(question.out), expected)
    # Torch is imported once the specs are read.
    from syncline.measure.validation.processes import validate_local
    from syncline.measure.validation.tables import validate_tables, validation_tables

    for spec in published:
        result = validate_published(spec, Path(question.out or f"runs/{spec.name}"), exact=is_exact)
        yield result, validate_tables(result, spec)
    if trainings:
        for training in trainings:
            for line in training.warnings():
                say(f"warning: {line}")
        target = Path(question.out or f"runs/{'-'.join(spec.name for spec in trainings)}")
        result = validate_local(
            trainings, question.workers, question.cluster, question.repeats, out=target, exact=is_exact, on_progress=say
        )
        yield result, validation_tables(result)


def validate_published(spec: ValidationSpec, out: Path, *, exact: bool = False) -> dict[str, Any]:
    """Validate published measurements, and write the folder: spec, ``points.parquet``, ``run.json``, figure.

    Returns:
        ``spec`` (its name), ``rows`` (predicted points), ``summary`` (errors of groups of points), ``constants``,
        ``folder``; for clusters ``cross_validation`` too.
    """
    from syncline.analysis import save
    from syncline.analysis.validation import predicted_against_measured

    if isinstance(spec, ClustersSpec):
        result = validate_clusters(spec)
        rows = result["rows"]
        columns: Iterable[str] = POINT_COLUMNS
        seconds, errors = seconds_by_file(rows), errors_by_panel(rows)
        title, measured = "errors", "times"
    else:
        result = validate_step_times(spec)
        rows = result["rows"]
        columns = rows[0].keys()
        one_node_rows = [row for row in rows if row["part"] == "single node" and row["tensor"] == 1]
        seconds = _seconds_by_kind(rows)
        errors = {COLUMN_TITLES[name]: errors_by_group(one_node_rows, name) for name in GROUPED_COLUMNS}
        title, measured = "errors on one node, no tensor parallelism", "step time"
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        folder.table("points", {name: [row[name] for row in rows] for name in columns})
        folder.json("run", environment() | result)
        if seconds:
            figure = predicted_against_measured(seconds, errors, title=title, measured=measured)
            save(figure, folder.figure("validation"))
    return {"spec": spec.name, **result, "folder": str(folder.path)}


POINT_COLUMNS = ("file", "regime", "predicted_ms", "low_ms", "high_ms", "basis", "error")
"""Columns that all files of measurements on clusters have."""

TRAINING_KINDS = (
    ("single node", False, "one node, no tensor parallelism"),
    ("single node", True, "one node, tensor parallelism"),
    ("several nodes", False, "several nodes, no tensor parallelism"),
    ("several nodes", True, "several nodes, tensor parallelism"),
)
"""Kinds of trainings: the part of the points, whether they have tensor parallelism, and the name in a figure."""

COLUMN_TITLES = {
    "micro_batch": "micro-batch (sequences)",
    "width": "hidden size",
    "stages": "pipeline stages",
    "data": "replicas",
    "layers": "layers",
    "microbatches": "micro-batches per step",
}


def _seconds_by_kind(rows: list[dict[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the measured and predicted seconds of each kind of training, for the markers of a figure."""
    seconds = {}
    for part, has_tensor_parallelism, name in TRAINING_KINDS:
        group = [row for row in rows if row["part"] == part and (row["tensor"] > 1) == has_tensor_parallelism]
        if group:
            seconds[name] = [row["measured_s"] for row in group], [row["predicted_s"] for row in group]
    return seconds


_Rows = Sequence[dict[str, Any]]


def validate_clusters(spec: ClustersSpec) -> dict[str, Any]:
    """Predict the measurements of every file, and return the predictions and their errors.

    Args:
        spec: the files; without files, the measurements that come with the package.

    Returns:
        ``rows``: the predictions, with bounds for nine of ten measured times, and the ``basis`` of the bounds.
        ``summary``: for each file, and each regime in it, the errors, ``coverage`` (the share of measured times within
        bounds; bundled files are tested with bounds from the others), and ``half_width`` (the median half width of the
        bounds). ``constants``: those of the cluster of p3.2xlarge machines. ``cross_validation``: the errors of each
        group of bundled collectives, with constants fitted to the other groups.
    """
    files = [Path(name) for name in spec.measurements] or list(cluster_files.BUNDLED_FILES)
    rows = [residuals.with_uncertainty(row) for row in cluster_files.predicted_files(files, spec.network)]
    are_covered = [_is_within_bounds(row) for row in rows] if spec.measurements else residuals.covered_by_others(rows)
    fits = []
    if spec.cross_validation and not spec.measurements:
        _, collective_rows = cluster_files.read_table(cluster_files.COLLECTIVES)
        fits = residuals.collectives_left_out(collective_rows) + residuals.nvlink_left_out()
    summary = cluster_summary(rows, are_covered)
    return {"rows": rows, "summary": summary, "constants": asdict(P3), "cross_validation": fits}


def _is_within_bounds(row: dict[str, Any]) -> bool | None:
    """Return whether the measured time of a row is within its bounds; None without a measurement or bounds."""
    if row["error"] is None or row["low_ms"] is None:
        return None
    return bool(row["low_ms"] <= _measured_ms(row) <= row["high_ms"])


def _measured_ms(row: dict[str, Any]) -> float:
    """Return the measured milliseconds of a row, which follow from its error ``predicted / measured - 1``."""
    return float(row["predicted_ms"] / (1 + row["error"]))


def cluster_summary(rows: _Rows, are_covered: Sequence[bool | None] | None = None) -> list[dict[str, Any]]:
    """Return errors and coverage by file and regime; rows without a measurement are left out.

    ``are_covered``: for each row, whether the measurement is between its bounds, or None if that is unknown.
    """
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}  # measured rows by file and regime
    for row, is_covered in zip(rows, are_covered or [None] * len(rows), strict=True):
        if row["error"] is not None:
            by_regime = groups.setdefault(row["file"], {})
            for regime in (row["regime"], "all"):
                by_regime.setdefault(regime, []).append(row | {"covered": is_covered})
    summary = []
    for name, by_regime in groups.items():
        for regime in (*sorted(by_regime.keys() - {"all"}), "all"):
            group = by_regime[regime]
            coverage = [row["covered"] for row in group if row["covered"] is not None]
            bounded_rows = [row for row in group if row.get("low_ms")]
            half_widths = [(row["high_ms"] - row["low_ms"]) / 2 / row["predicted_ms"] for row in bounded_rows]
            summary.append({
                "file": name, "regime": regime, **error_of([row["error"] for row in group]),
                "coverage": float(np.mean(coverage)) if coverage else None,
                "half_width": float(np.median(half_widths)) if half_widths else None,
            })  # fmt: skip
    return summary


def seconds_by_file(rows: _Rows) -> dict[str, tuple[list[float], list[float]]]:
    """Return the measured and predicted seconds by file, without rows that the constants were fitted to."""
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if _has_out_of_sample_error(row):
            measured_s, predicted_s = seconds.setdefault(row["file"].removesuffix(".csv"), ([], []))
            measured_s.append(_measured_ms(row) / 1e3)
            predicted_s.append(row["predicted_ms"] / 1e3)
    return seconds


def errors_by_panel(rows: _Rows) -> dict[str, dict[str, list[float]]]:
    """Return the errors by number of nodes, by delay and by number of GPUs, for the errors_by_panel of a figure.

    An `UNCHANGED` delay, the network's own, comes last.
    """
    errors: dict[str, dict[str, list[float]]] = {}
    for column, name in (("nodes", "nodes"), ("delay_ms", "delay (ms)"), ("gpus", "GPUs of a node")):
        column_rows = [row for row in rows if _has_out_of_sample_error(row) and row.get(column)]
        if column_rows:
            errors[name] = errors_by_group(
                column_rows, column, label=lambda group: "own" if group == cluster_files.UNCHANGED else group,
                order=lambda group: math.inf if group == cluster_files.UNCHANGED else float(group),
            )  # fmt: skip
    return errors


def _has_out_of_sample_error(row: dict[str, Any]) -> bool:
    """Return whether a row was measured, and is not predicted from itself."""
    return row["error"] is not None and cluster_files.BUNDLED_TIMES not in row["regime"]
