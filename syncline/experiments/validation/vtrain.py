"""``syncline validate`` of measured step times: calibrate on a part, predict the rest, tell where it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Hardware
from syncline.costmodel.compute.transformer_time import (
    STEP_FIELDS,
    TENSOR_FIELDS,
    WORD_BYTES,
    Layouts,
    Node,
    StepConstants,
    step_s,
)
from syncline.costmodel.fitting.least_squares import Fit, relative_fit
from syncline.experiments.validation.measured_steps import Point, layouts, measured_s, read_points, recomputes
from syncline.seeds import generator
from syncline.specs import StepTimesSpec

START = StepConstants(
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
"""Where fits begin: round numbers of the order that such machines have."""

MATMUL_CEILING = 0.87
"""Of the vendor's peak: 271 of 312 TFLOP/s is the most that a search over sizes of bf16 products found on an A100.

Source: S. Bekman, "Machine Learning Engineering", on accelerators (maximum achievable matmul FLOPS).
"""

LAUNCHES_S = (1e-3, 1.5e-3, 2e-3, 3e-3)
"""Fits begin from each of these too: which points the host limits decides the valley that a fit ends in."""

GROUPS = ("micro_batch", "width", "stages", "data", "layers", "microbatches")
"""What errors are grouped by."""

BOTH = "width, micro_batch"
"""And by these two together, which decide how long a layer takes."""

LEFT_OUT = "left out"
"""The role of points of a cell that no point was calibrated on in."""

MeasuredPoints = list[Point]


def validate_step_times(spec: StepTimesSpec) -> dict[str, Any]:
    """Calibrate, predict, compare.

    Args:
        spec: what is held against what.

    Returns:
        ``rows``, one per point that was not calibrated on; ``summary``, one per group of them, of calibrated points
        and of the repeats; ``constants``, by name, with the spread of those that were fitted.

    Raises:
        SynclineError: measurements that are not there or cannot be read.
    """
    single = read_points(spec.data, spec.single_node, "single_node")
    multi = read_points(spec.data, spec.multi_node, "multi_node") if spec.multi_node else []
    machine, memory_bytes = spec.hardware, spec.hardware.memory_bytes or np.inf
    again = recomputes(single, memory_bytes)
    # Of constants that are known, the points that they were once fitted to are no test of them, either.
    fold = spec.constants.calibrated_on if spec.constants else (spec.folds, spec.fold)
    chosen = [point for point in single if fold and point.part(fold[0]) == fold[1]]
    constants, spread = (spec.constants, {}) if spec.constants else fitted_to(chosen, machine, again)
    constants = _beyond(constants, spec, chosen)
    rows = []
    for part, role, points, recomputed in (
        ("single node", "calibration", chosen, again),
        ("single node", "validation", [point for point in single if point not in chosen], again),
        ("several nodes", "extrapolation", multi, recomputes(multi, memory_bytes)),
    ):
        rows += _rows(part, role, layouts(points, recomputed), points, constants) if points else []
    return {
        "rows": [row for row in rows if row["role"] != "calibration"],
        "summary": error_summary(rows)
        + ([] if spec.constants else without_its_cell(spec, single, again) + repeats(spec, single, again)),
        "constants": [
            {
                "name": name,
                "value": getattr(constants, name),
                "spread": spread.get(name),
                "ceiling": _ceiling(name, machine),
            }
            for name in (*STEP_FIELDS, *TENSOR_FIELDS)
        ],
    }


def _beyond(constants: StepConstants, spec: StepTimesSpec, calibrated: MeasuredPoints) -> StepConstants:
    """With what is known beyond a calibration: larger sums, other nodes."""
    sums = [WORD_BYTES * point.micro_batch * point.sequence * point.width for point in calibrated if point.tensor > 1]
    return replace(
        constants,
        tensor_times=constants.tensor_times or spec.hardware.measured("all_reduce"),
        tensor_calibrated_bytes=max(sums, default=constants.tensor_calibrated_bytes),
        node=constants.node or (Node(spec.node.devices, spec.node.bandwidth) if spec.node else None),
    )


def fitted_to(
    points: MeasuredPoints, machine: Hardware, recomputed: bool = False
) -> tuple[StepConstants, dict[str, float]]:
    """Constants from points without tensor parallelism; then, all else as it is, its own two from the others.

    Args:
        points: measured; without any that shares layers, those two stay where fits begin.
        machine: whose memory's bandwidth nothing exceeds, nor `MATMUL_CEILING` of its peak.
        recomputed: whether activations were computed again.

    Returns:
        the constants, and the relative spread of each that was fitted.
    """
    constants, spread = START, dict[str, float]()
    for names, shared in ((STEP_FIELDS, False), (TENSOR_FIELDS, True)):
        of = [point for point in points if (point.tensor > 1) == shared]
        if of or not shared:
            fit = _fit(layouts(of, recomputed), measured_s(of), constants, names, machine)
            constants = replace(constants, **dict(zip(names, fit.constants.tolist(), strict=True)))
            spread |= dict(zip(names, fit.spread.tolist(), strict=True))
    return constants, spread


def _ceiling(name: str, machine: Hardware) -> float | None:
    ceilings = {"matmul_flops": MATMUL_CEILING * machine.peak_flops, "memory_bytes_per_s": machine.memory_bytes_per_s}
    return ceilings.get(name)


def _fit(
    of: Layouts, measured: NDArray[np.float64], constants: StepConstants, names: Sequence[str], machine: Hardware
) -> Fit:
    def predict(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return step_s(of, replace(constants, **dict(zip(names, values, strict=True))))

    starts = [replace(constants, launch_s=launch_s) if "launch_s" in names else constants for launch_s in LAUNCHES_S]
    begin = [[getattr(start, name) for name in names] for start in starts]
    return relative_fit(predict, measured, begin, most=[_ceiling(name, machine) or np.inf for name in names])


def without_its_cell(spec: StepTimesSpec, single: MeasuredPoints, recomputed: bool = False) -> list[dict[str, Any]]:
    """Each cell of width and micro-batch, without tensor parallelism, predicted from calibration points outside of it.

    A cell of the grid whose neighbours were calibrated on is easier than one that nobody measured.
    """
    errors = errors_by_cell(single, (spec.folds, spec.fold), spec.hardware, recomputed)
    if not errors:
        return []
    rows = [_summary_row(LEFT_OUT, BOTH, f"{cell[0]}, {cell[1]}", of) for cell, of in errors.items()]
    return [_summary_row(LEFT_OUT, "tensor", "1", np.concatenate(list(errors.values()))), *rows]


def errors_by_cell(
    single: MeasuredPoints, calibrated: tuple[int, int], machine: Hardware, recomputed: bool = False
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """By width and micro-batch: errors where constants are fitted to the calibration points outside.

    Args:
        single: measured on one node.
        calibrated: of so many parts of the points, the one that is calibrated on.
        machine: whose ceilings hold.
        recomputed: whether activations were computed again.
    """
    points = [point for point in single if point.tensor == 1]
    cells = sorted({(point.width, point.micro_batch) for point in points})
    errors = {}
    for cell in cells if len(cells) >= 3 else []:
        inside = [point for point in points if (point.width, point.micro_batch) == cell]
        outside = [p for p in points if p not in inside and p.part(calibrated[0]) == calibrated[1]]
        if outside:
            fitted, _ = fitted_to(outside, machine, recomputed)
            errors[cell] = step_s(layouts(inside, recomputed), fitted) / measured_s(inside) - 1
    return errors


def repeats(spec: StepTimesSpec, single: MeasuredPoints, recomputed: bool = False) -> list[dict[str, Any]]:
    """The same with random parts of one size, without tensor parallelism: mean and worst of what they predict."""
    points = [point for point in single if point.tensor == 1]
    size = round(len(points) / spec.folds)
    measured, errors = [], []
    for number in range(spec.repeats):
        order = generator(spec.seed, "calibrated on", number).permutation(len(points))
        fitted, _ = fitted_to([points[i] for i in order[:size]], spec.hardware, recomputed)
        others = [points[i] for i in order[size:]]
        measured.append(len(others))
        errors.append(np.abs(step_s(layouts(others, recomputed), fitted) / measured_s(others) - 1))
    if not errors:
        return []
    means = [float(of.mean()) for of in errors]
    row = _summary_row("repeats", "tensor", "1", np.concatenate(errors))
    return [
        row
        | {"points": measured[0], "calibrated": size, "mape_worst": max(means), "mape_best": min(means), "bias": None}
    ]


def _rows(part: str, role: str, of: Layouts, points: MeasuredPoints, constants: StepConstants) -> list[dict[str, Any]]:
    predicted_s = step_s(of, constants)
    return [
        {"part": part, "role": role, **point._asdict(), "microbatches": point.microbatches, "recomputed": bool(again)}
        | {"predicted_s": float(seconds), "error": float(seconds) / point.measured_s - 1}
        for point, again, seconds in zip(points, of.recomputed, predicted_s, strict=True)
    ]


def error_summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean, median, worst and mean signed error of groups of rows.

    By role and tensor parallelism; and of what was predicted on one node without any by each of ``GROUPS`` and `BOTH`.
    """
    out = []
    for role in ("calibration", "validation", "extrapolation"):
        for tensor in ("1", "above 1"):
            of = [row for row in rows if row["role"] == role and (row["tensor"] == 1) == (tensor == "1")]
            if of:
                out.append(_summary_row(role, "tensor", tensor, _errors(of)))
        of = [row for row in rows if row["role"] == role]
        if of and role != "calibration":
            out.append(_summary_row(role, "tensor", "all", _errors(of)))
    alone = [row for row in rows if row["role"] == "validation" and row["tensor"] == 1]
    for name in GROUPS:
        for value in sorted({row[name] for row in alone}):
            of = [row for row in alone if row[name] == value]
            out.append(_summary_row("validation", name, str(value), _errors(of)))
    for pair in sorted({(row["width"], row["micro_batch"]) for row in alone}):
        of = [row for row in alone if (row["width"], row["micro_batch"]) == pair]
        out.append(_summary_row("validation", BOTH, f"{pair[0]}, {pair[1]}", _errors(of)))
    return out


def _errors(rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    return np.array([row["error"] for row in rows])


def _summary_row(role: str, by: str, value: str, errors: NDArray[np.float64]) -> dict[str, Any]:
    absolute = np.abs(errors)
    return {
        "role": role,
        "by": by,
        "value": value,
        "points": int(errors.size),
        "mape": float(absolute.mean()),
        "median": float(np.median(absolute)),
        "worst": float(absolute.max()),
        "bias": float(errors.mean()),
    }
