"""Validation with step times that others measured: calibrate on a part of a table, predict the rest, report errors.

An error is ``predicted / measured - 1``; `error_of` returns statistics of several.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel import Hardware
from syncline.costmodel.layouts.transformer_time import (
    NUMBER_BYTES,
    STEP_FIELDS,
    TENSOR_FIELDS,
    Layouts,
    Node,
    StepConstants,
    step_s,
)
from syncline.costmodel.least_squares import Fit, relative_fit
from syncline.errors import SpecError, SynclineError
from syncline.seeds import generator
from syncline.specs import StepTimesSpec


def error_of(errors: ArrayLike) -> dict[str, Any]:
    """Return the number of errors, the mean, median and worst of their absolute values, and the signed mean."""
    errors = np.asarray(errors)
    absolute = np.abs(errors)
    return {
        "points": int(errors.size), "mape": float(absolute.mean()), "median": float(np.median(absolute)),
        "worst": float(absolute.max()), "bias": float(errors.mean()),
    }  # fmt: skip


def errors_by_group(
    rows: Sequence[Mapping[str, Any]],
    column: str,
    label: Callable[[Any], str] = str,
    order: Callable[[Any], Any] | None = None,
) -> dict[str, list[float]]:
    """Return the errors of rows by the label of a column's value, sorted by ``order``, for a panel of a figure."""
    groups = sorted({row[column] for row in rows}, key=order)
    return {label(group): [row["error"] for row in rows if row[column] == group] for group in groups}


EXPECTED_DATA = (
    "the folder of vTrain's measurements, as github.com/VIA-Research/vTrain has them in 'data': name it by --data, and "
    "its files by --set single_node=ground_truth_single.csv and --set multi_node=ground_truth_multi.csv"
)

COLUMNS = {
    "gpus": "# GPUs",
    "global_batch": "global batch",
    "micro_batch": "micro batch",
    "width": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "sequence": "sequence length",
    "tensor": "tensor parallelism",
    "data": "data parallelism",
    "stages": "pipeline parallelism",
}
"""The numbers of a configuration, and the names of their columns."""

TIME_COLUMN = "iteration time (ms)"

MAX_COUNT = 10**9
"""Largest number that a configuration may have."""

MOST_PASSES = 10**5
"""Largest product of stages and micro-batches of a step: each is a term of the pipeline's time."""


class Point(NamedTuple):
    """A configuration of a GPT's training, and the measured time of its step.

    The fields are the columns `COLUMNS` of a table; ``tensor``, ``data`` and ``stages`` are the sizes of the groups of
    tensor, data and pipeline parallelism.
    """

    gpus: int
    global_batch: int
    micro_batch: int
    width: int
    heads: int
    layers: int
    sequence: int
    tensor: int
    data: int
    stages: int
    measured_s: float

    @property
    def microbatches(self) -> int:
        """Return the number of micro-batches M of each replica."""
        return self.global_batch // (self.data * self.micro_batch)

    def part_index(self, num_parts: int) -> int:
        """Return the part that the point is in, from 0: a hash of its configuration decides, as if at random."""
        *configuration, _ = self  # all but the measured time
        digest = hashlib.sha256(",".join(map(str, configuration)).encode()).digest()
        return int.from_bytes(digest[:8], "big") % num_parts


def read_points(folder: str, name: str, field: str) -> list[Point]:
    """Return the points of the file ``name`` in a folder; errors name the spec's ``field`` and the file's source."""
    if not Path(folder).is_dir():
        raise SpecError("data", folder, EXPECTED_DATA)
    path = Path(folder) / name
    if not path.is_file():
        raise SpecError(field, name, f"the name of a file in {folder}; {EXPECTED_DATA}")
    points = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):  # the header is line 1
            try:
                numbers = {field_name: int(float(row[column])) for field_name, column in COLUMNS.items()}
                point = Point(**numbers, measured_s=float(row[TIME_COLUMN]) / 1e3)
                check_point(point)
            except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError, SpecError) as error:
                raise SynclineError(f"{field}: {path}, line {line} is no measured step: {error}") from None
            if not 0 < point.measured_s < float("inf"):
                raise SynclineError(f"{field}: {path}, line {line} is no measured step: it took {point.measured_s} s")
            points.append(point)
    if not points:
        raise SynclineError(f"{field}: {path} has no measured step")
    return points


def check_point(point: Point) -> None:
    """Refuse a configuration that no training can have, such as more stages than layers."""
    for name, column in COLUMNS.items():
        if getattr(point, name) > MAX_COUNT:
            raise SpecError(column, getattr(point, name), f"at most {MAX_COUNT:,}")
    if point.stages * point.microbatches > MOST_PASSES:
        counts = f"{point.stages} stages, {point.microbatches} micro-batches"
        raise SpecError("global batch", counts, f"at most {MOST_PASSES:,} micro-batches in all stages")
    layouts([point])  # raises the errors of the cost model


def recomputes(points: list[Point], memory_bytes: float) -> bool:
    """Return whether a table's trainings recompute activations: all do if any would not fit into memory otherwise."""
    return bool(points) and bool(np.any(layouts(points).memory_bytes > memory_bytes))


def layouts(points: list[Point], recomputed: bool = False) -> Layouts:
    """Return the configurations of points as arrays for the cost model."""
    # The cost model has micro-batches instead of a global batch; the GPUs are the product of the three parallelisms.
    names = [name for name in COLUMNS if name not in ("gpus", "global_batch")]
    columns = {name: np.array([getattr(point, name) for point in points]) for name in names}
    microbatches = np.array([point.microbatches for point in points])
    return Layouts(microbatches=microbatches, recomputed=recomputed, **columns)


def measured_s(points: list[Point]) -> NDArray[np.float64]:
    """Return the measured seconds of the points, ``(N,)``."""
    return np.array([point.measured_s for point in points])


START_CONSTANTS = StepConstants(
    serial_s=1e-3,
    launch_s=1e-3,
    matmul_flops=2e14,
    memory_bytes_per_s=1e12,
    head_s=1e-3,
    head_flops=1e14,
    step_s=1e-3,
    link_bytes_per_s=1e11,
    tensor_call_s=1e-5,
    tensor_bytes_per_s=1e11,
)
"""Start values of fits: round numbers of the order of magnitude of such machines."""

MATMUL_CEILING = 0.87
"""Largest part of the vendor's peak: 271 of 312 TFLOP/s is the most that a search over bf16 products found on an A100.

Source: S. Bekman, "Machine Learning Engineering", on accelerators (maximum achievable matmul FLOPS).
"""

LAUNCHES_S = (1e-3, 1.5e-3, 2e-3, 3e-3)
"""Start values of ``launch_s``, on which it depends in which local minimum a fit ends."""

GROUPED_COLUMNS = ("micro_batch", "width", "stages", "data", "layers", "microbatches")
"""Fields by which errors are grouped."""

WIDTH_AND_MICRO_BATCH = "width, micro_batch"
"""A group by these two fields together, which decide the time of a layer."""

LEFT_OUT = "left out"
"""The role of the points of a cell from which the calibration takes no point."""


def validate_step_times(spec: StepTimesSpec) -> dict[str, Any]:
    """Calibrate constants on a part of measured steps, predict the others, and return their errors.

    Returns:
        ``rows``: one per point outside the calibration. ``summary``: the errors of groups of points, and of repeated
        calibrations on random points. ``constants``: name, value and ceiling of each, and its spread if it was fitted.
    """
    single_node_points = read_points(spec.data, spec.single_node, "single_node")
    several_node_points = read_points(spec.data, spec.multi_node, "multi_node") if spec.multi_node else []
    machine = spec.hardware
    memory_bytes = machine.memory_bytes or np.inf
    are_recomputed = recomputes(single_node_points, memory_bytes)
    # The points that known constants were fitted to cannot validate them.
    calibrated_on = spec.constants.calibrated_on if spec.constants else (spec.folds, spec.fold)
    calibration_points = []
    if calibrated_on is not None:
        num_parts, calibrated_part = calibrated_on
        calibration_points = [point for point in single_node_points if point.part_index(num_parts) == calibrated_part]
    validation_points = [point for point in single_node_points if point not in calibration_points]
    if spec.constants:
        constants, spread = spec.constants, dict[str, float]()
    else:
        constants, spread = fitted_to(calibration_points, machine, are_recomputed)
    constants = _with_network_constants(constants, spec, calibration_points)
    rows = []
    for part, role, points, recomputed in (
        ("single node", "calibration", calibration_points, are_recomputed),
        ("single node", "validation", validation_points, are_recomputed),
        ("several nodes", "extrapolation", several_node_points, recomputes(several_node_points, memory_bytes)),
    ):
        if points:
            rows += _point_rows(part, role, layouts(points, recomputed), points, constants)
    summary = error_summary(rows)
    if not spec.constants:
        summary += errors_of_cells_left_out(spec, single_node_points, are_recomputed)
        summary += errors_of_random_calibrations(spec, single_node_points, are_recomputed)
    return {
        "rows": [row for row in rows if row["role"] != "calibration"],
        "summary": summary,
        "constants": [
            {"name": name, "value": getattr(constants, name), "spread": spread.get(name),
             "ceiling": _ceiling(name, machine)}
            for name in (*STEP_FIELDS, *TENSOR_FIELDS)
        ],
    }  # fmt: skip


def _with_network_constants(
    constants: StepConstants, spec: StepTimesSpec, calibration_points: list[Point]
) -> StepConstants:
    """Return constants with the measured all-reduce times of the hardware and the network between nodes."""
    node = constants.node
    if node is None and spec.node is not None:
        node = Node(spec.node.devices, spec.node.nic_bandwidth)
    all_reduce_bytes = [
        NUMBER_BYTES * point.micro_batch * point.sequence * point.width  # a layer's output, summed by the tensor group
        for point in calibration_points
        if point.tensor > 1
    ]
    return replace(
        constants,
        tensor_times=constants.tensor_times or spec.hardware.measured("all_reduce"),
        tensor_calibrated_bytes=max(all_reduce_bytes, default=constants.tensor_calibrated_bytes),
        node=node,
    )


def fitted_to(
    points: list[Point], machine: Hardware, recomputed: bool = False
) -> tuple[StepConstants, dict[str, float]]:
    """Return constants fitted to measured points, and the relative standard error of each fitted constant.

    The constants of tensor parallelism are fitted last, to the points that have it; without such points they keep their
    values in `START_CONSTANTS`.

    Args:
        machine: hardware that bounds the constants, by its memory bandwidth and by `MATMUL_CEILING` times its peak.
    """
    constants = START_CONSTANTS
    spread: dict[str, float] = {}
    tensor_points = [point for point in points if point.tensor > 1]
    fits: list[tuple[Sequence[str], list[Point]]] = [(STEP_FIELDS, [point for point in points if point.tensor == 1])]
    if tensor_points:
        fits.append((TENSOR_FIELDS, tensor_points))
    for names, fit_points in fits:
        fit = _fit(layouts(fit_points, recomputed), measured_s(fit_points), constants, names, machine)
        constants = replace(constants, **dict(zip(names, fit.constants.tolist(), strict=True)))
        spread |= dict(zip(names, fit.spread.tolist(), strict=True))
    return constants, spread


def _ceiling(name: str, machine: Hardware) -> float | None:
    """Return the largest value that a fitted constant may have on a machine; None if there is no limit."""
    ceilings = {"matmul_flops": MATMUL_CEILING * machine.peak_flops, "memory_bytes_per_s": machine.memory_bytes_per_s}
    return ceilings.get(name)


def _fit(
    layout: Layouts, measured: NDArray[np.float64], constants: StepConstants, names: Sequence[str], machine: Hardware
) -> Fit:
    """Fit the constants with these names to measured seconds, from several starts; the other constants stay."""

    def predict_s(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return step_s(layout, replace(constants, **dict(zip(names, values, strict=True))))

    # All starts are equal if `launch_s` is not fitted.
    starts = [[getattr(replace(constants, launch_s=launch_s), name) for name in names] for launch_s in LAUNCHES_S]
    return relative_fit(predict_s, measured, starts, upper=[_ceiling(name, machine) or np.inf for name in names])


def errors_of_cells_left_out(
    spec: StepTimesSpec, one_node_points: list[Point], recomputed: bool = False
) -> list[dict[str, Any]]:
    """Return the errors of predicted step times for cells that the calibration leaves out, one row per cell.

    A cell is the set of points with one width of the model and one micro-batch, without tensor parallelism. For each
    cell, the constants are fitted to the calibration points outside of it. The first row has the errors of all cells.
    """
    errors = errors_by_cell(one_node_points, (spec.folds, spec.fold), machine=spec.hardware, recomputed=recomputed)
    if not errors:
        return []
    rows = [_summary_row(LEFT_OUT, "tensor", value="1", errors=np.concatenate(list(errors.values())))]
    for (width, micro_batch), cell_errors in errors.items():
        value = f"{width}, {micro_batch}"
        rows.append(_summary_row(LEFT_OUT, WIDTH_AND_MICRO_BATCH, value, errors=cell_errors))
    return rows


def errors_by_cell(
    one_node_points: list[Point], calibration_part: tuple[int, int], machine: Hardware, recomputed: bool = False
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Return errors by width and micro-batch, with constants fitted to the calibration points outside of each cell.

    ``calibration_part``: number of parts of the points, and the index of the part for calibration.
    """
    num_parts, part_index = calibration_part
    points = [point for point in one_node_points if point.tensor == 1]
    cells = sorted({(point.width, point.micro_batch) for point in points})
    if len(cells) < 3:  # a fit needs two cells besides the one left out
        return {}
    errors = {}
    for cell in cells:
        cell_points = [point for point in points if (point.width, point.micro_batch) == cell]
        fitted_points = [
            point for point in points if point not in cell_points and point.part_index(num_parts) == part_index
        ]
        if fitted_points:
            constants, _ = fitted_to(fitted_points, machine, recomputed)
            errors[cell] = step_s(layouts(cell_points, recomputed), constants) / measured_s(cell_points) - 1
    return errors


def errors_of_random_calibrations(
    spec: StepTimesSpec, one_node_points: list[Point], recomputed: bool = False
) -> list[dict[str, Any]]:
    """Return a row with the errors of predictions after calibrations on random points, without tensor parallelism."""
    points = [point for point in one_node_points if point.tensor == 1]
    size = round(len(points) / spec.folds)
    absolute_errors = []
    for repeat in range(spec.repeats):
        order = generator(spec.seed, "calibrated on", repeat).permutation(len(points))
        calibration_points = [points[i] for i in order[:size]]
        other_points = [points[i] for i in order[size:]]
        constants, _ = fitted_to(calibration_points, spec.hardware, recomputed)
        errors = step_s(layouts(other_points, recomputed), constants) / measured_s(other_points) - 1
        absolute_errors.append(np.abs(errors))
    if not absolute_errors:
        return []
    means = [float(errors.mean()) for errors in absolute_errors]
    row = _summary_row("repeats", "tensor", value="1", errors=np.concatenate(absolute_errors))
    row |= {"points": len(points) - size, "calibrated": size, "mape_worst": max(means), "mape_best": min(means)}
    return [row | {"bias": None}]  # absolute errors have no sign


def _point_rows(
    part: str, role: str, layout: Layouts, points: list[Point], constants: StepConstants
) -> list[dict[str, Any]]:
    """Return a row for each measured point: configuration, predicted seconds, and error of the prediction.

    ``part`` names the table of the points; ``role`` says whether the constants were fitted to them.
    """
    rows = []
    for point, is_recomputed, predicted_s in zip(points, layout.recomputed, step_s(layout, constants), strict=True):
        rows.append({
            "part": part, "role": role, **point._asdict(), "microbatches": point.microbatches,
            "recomputed": bool(is_recomputed), "predicted_s": float(predicted_s),
            "error": float(predicted_s) / point.measured_s - 1,
        })  # fmt: skip
    return rows


def error_summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return statistics of the errors of groups of rows.

    The groups are by role and tensor parallelism. Points predicted on one node without tensor parallelism are also
    grouped by each of ``GROUPED_COLUMNS`` and by `WIDTH_AND_MICRO_BATCH`.
    """
    summary = []
    for role in ("calibration", "validation", "extrapolation"):
        role_rows = [row for row in rows if row["role"] == role]
        errors = {
            "1": [row["error"] for row in role_rows if row["tensor"] == 1],
            "above 1": [row["error"] for row in role_rows if row["tensor"] > 1],
        }
        if role != "calibration":  # separate constants were fitted to the two groups of calibration points
            errors["all"] = [row["error"] for row in role_rows]
        for tensor, group_errors in errors.items():
            if group_errors:
                summary.append(_summary_row(role, "tensor", value=tensor, errors=group_errors))
    one_node_rows = []
    for row in rows:
        if row["role"] == "validation" and row["tensor"] == 1:
            one_node_rows.append(row | {WIDTH_AND_MICRO_BATCH: (row["width"], row["micro_batch"])})
    for name in (*GROUPED_COLUMNS, WIDTH_AND_MICRO_BATCH):
        for value, group_errors in errors_by_group(one_node_rows, name).items():
            value_text = value.removeprefix("(").removesuffix(")")  # width and micro-batch are a tuple
            summary.append(_summary_row("validation", name, value_text, errors=group_errors))
    return summary


def _summary_row(role: str, field: str, value: str, errors: ArrayLike) -> dict[str, Any]:
    """Return a row with the statistics of the errors of points that have a role and this value of a field."""
    return {"role": role, "by": field, "value": value} | error_of(errors)
