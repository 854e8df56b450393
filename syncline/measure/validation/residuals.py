"""Bases of predictions of published measurements, from the nearest on, and the residuals of each.

A basis needs a number of measurements; a row whose nearest basis has too few falls back on a wider one. For NVLink,
each measured number of GPUs is predicted from the others; for shapes of GPTs that were not measured, each cell of the
measured grid is predicted from points outside of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel.bases import nccl_nvlink_basis, nvlink_basis
from syncline.costmodel.collectives.nccl.nvlink import nvlink_all_reduce_s
from syncline.costmodel.compute.hardware import HARDWARE
from syncline.costmodel.compute.transformer_time import STEP_TIMES
from syncline.costmodel.numerics.uncertainty import Uncertainty, known_uncertainty, uncertainty_of
from syncline.measure.validation.cluster_files import (
    BUNDLED,
    GPT_STEPS,
    LONG_LINK,
    bandwidth_bytes_per_s,
    collective_link,
    in_pieces,
    nvlink_times,
    predicted_rows,
)
from syncline.measure.validation.measured_steps import read_points, recomputes
from syncline.measure.validation.nvlink import errors_of_machines_left_out, nvlink_collectives
from syncline.measure.validation.projected import projected_residuals
from syncline.measure.validation.vtrain import errors_by_cell

LEAST = 4
"""Smallest number of measurements of a basis."""

LEAST_COLLECTIVES = 9
"""Smallest number for a collective by itself: with fewer, outliers cannot be recognised."""

SLOW_BYTES_PER_S = 1e9 / 8
"""The fastest link on which a measured step's time is determined by its bytes."""

MEAN = ", mean step"
"""Suffix of the basis of a mean step, which exists next to that of the step that synchronises."""

GRID = ("tensor parallelism", "micro batch", "hidden size")
"""The numbers that decide the time of a layer."""

MANY_REPLICAS, WHOLE_NODE = 16, 8


def bases_of(row: Mapping[str, Any]) -> list[str]:
    """Return the bases of a predicted row, the nearest first; the last always has enough measurements."""
    if "switches" in row:
        return [nccl_nvlink_basis(float(row["bytes"]))]
    if "collective" in row:
        link = collective_link(row)
        nearest = row["regime"]
        if in_pieces(row) and link != LONG_LINK:  # the cause of single slow rows shows on all such links
            nearest = f"{row['backend']} in pieces, below 50 ms"
        return [nearest, f"{row['backend']}, {link}", f"{row['backend']}, all links"]
    if "algorithm" in row:
        rate = bandwidth_bytes_per_s(row["bw"])
        slow = rate is not None and rate <= SLOW_BYTES_PER_S and int(float(row["n_sync"])) != 1
        return ["steps over TCP shaped to 1 Gbit/s and less", STEPS] if slow else [STEPS]
    if "gpu" in row:
        return [nvlink_basis(row["gpu"], int(row["gpus"]), float(row["bytes"]))]
    return gpt_bases(row)


STEPS = "steps of DDP and DiLoCo, all lines"


def gpt_bases(row: Mapping[str, Any]) -> list[str]:
    """Return the bases of a step of a GPT."""
    regime, tensor, data = row["regime"], int(float(row[GRID[0]])), int(float(row["data parallelism"]))
    if "one node" in regime:
        cell = ", ".join(f"{name} {int(float(row[name]))}" for name in GRID)
        return [f"A100, one node, {cell}", f"{regime}{ANOTHER_SHAPE}", regime]
    if tensor == 1:
        return [regime, SEVERAL]
    tensor_size = f"{WHOLE_NODE} and more" if tensor >= WHOLE_NODE else f"below {WHOLE_NODE}"
    many = "and more" if data >= MANY_REPLICAS else "not reached"
    return [f"A100, several nodes, tensor parallelism {tensor_size}, {MANY_REPLICAS} replicas {many}", SEVERAL]


NO_TENSOR = "A100, one node, no tensor parallelism"
SEVERAL, ANOTHER_SHAPE = "A100, several nodes", ", another shape"


def with_uncertainty(row: dict[str, Any]) -> dict[str, Any]:
    """Return a predicted row with ``low_ms``, ``high_ms`` (``low_mean_ms``, ``high_mean_ms``), and their ``basis``."""
    uncertainty = known_uncertainty(bases_of(row))
    out = row | {"low_ms": uncertainty.low * row["predicted_ms"], "high_ms": uncertainty.high * row["predicted_ms"]}
    if "predicted_mean_ms" in row:
        mean = known_uncertainty([name + MEAN for name in bases_of(row)])
        out |= {
            "low_mean_ms": mean.low * row["predicted_mean_ms"],
            "high_mean_ms": mean.high * row["predicted_mean_ms"],
        }
    return out | {"basis": f"{uncertainty.points} residuals of {uncertainty.basis}"}


def residuals(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the relative errors ``predicted / measured - 1`` of measured rows, by basis.

    A basis is a set of measurements from whose errors the uncertainty of a prediction follows. A row can belong to
    several bases. Rows without an error are left out.

    The times of NVLink are the measurements themselves, so that their prediction has no error. In their place, such a
    row has the relative difference between the times of the same all-reduce out of place and in place.
    """
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["error"] is None:
            continue
        error = row["error"]
        if "gpu" in row:
            error = float(row["out_of_place_ns"]) / float(row["in_place_ns"]) - 1
        for basis in bases_of(row):
            errors[basis].append(error)
            if row.get("mean_wall_ms"):
                errors[basis + MEAN].append(row["predicted_mean_ms"] / float(row["mean_wall_ms"]) - 1)
    return errors


def measured_uncertainties(files: Sequence[Path] = BUNDLED) -> dict[str, Uncertainty]:
    """Return the uncertainty of each basis, from the bundled measurements; `shape_uncertainty` is separate.

    Args:
        files: the measurements.
    """
    errors = residuals(row for path in files for row in predicted_rows(path)) | nvlink_residuals()
    errors |= projected_residuals() | left_out_residuals(nvlink_collectives())
    return {
        basis: uncertainty_of(basis_errors, basis)
        for basis, basis_errors in errors.items()
        if len(basis_errors) >= least_of(basis) and basis != NO_TENSOR + ANOTHER_SHAPE
    }


def shape_uncertainty() -> Uncertainty:
    """Return the uncertainty of GPTs on one node without tensor parallelism, of a width and micro-batch not measured.

    Each cell of the measured grid is predicted by constants fitted to a fifth of the points outside of it. This takes
    half a minute.
    """
    single = read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node")
    machine = HARDWARE["a100"]
    recomputed = recomputes(single, machine.memory_bytes or np.inf)
    errors = errors_by_cell(single, STEP_TIMES["a100-megatron-deepspeed"].calibrated_on or (1, 0), machine, recomputed)
    return uncertainty_of(
        np.concatenate(list(errors.values())), "A100, one node, no tensor parallelism" + ANOTHER_SHAPE
    )


def least_of(basis: str) -> int:
    """Return the number of measurements that a basis needs."""
    alone = basis.startswith(("gloo ", "nccl "))  # a basis of one collective
    return LEAST_COLLECTIVES if alone else LEAST


def covered_by_others(rows: Sequence[Mapping[str, Any]]) -> list[bool | None]:
    """Return whether each bundled row is within the bounds from the other rows of its basis; None if not measured."""
    errors = residuals(rows)
    covered: list[bool | None] = []
    for row in rows:
        basis = next((name for name in bases_of(row) if len(errors[name]) > least_of(name)), None)
        if row["error"] is None or basis is None or "gpu" in row:
            covered.append(None)
            continue
        others = errors[basis].copy()
        others.remove(row["error"])
        covered.append(is_within(row["error"], uncertainty_of(others)))
    return covered


def is_within(error: float, uncertainty: Uncertainty) -> bool:
    """Return whether a measurement is between the bounds, from the error of its prediction."""
    return uncertainty.low <= 1 / (1 + error) <= uncertainty.high


def left_out_residuals(rows: Sequence[Mapping[str, str]]) -> dict[str, list[float]]:
    """Return errors of NCCL's collectives over NVLink by basis, of each machine by constants of all others."""
    errors: dict[str, list[float]] = defaultdict(list)
    for machine, machine_errors in errors_of_machines_left_out(rows).items():
        machine_rows = [row for row in rows if row["machine"] == machine]
        for row, error in zip(machine_rows, machine_errors.tolist(), strict=True):
            errors[nccl_nvlink_basis(float(row["bytes"]))].append(error)
    return errors


def nvlink_residuals() -> dict[str, list[float]]:
    """Return errors of measured numbers of GPUs predicted from the others: between two of them, and beyond the last."""
    errors: dict[str, list[float]] = defaultdict(list)
    for gpu, times_of in nvlink_times().items():
        for gpus in times_of:
            others = {count: times for count, times in times_of.items() if count != gpus}
            where = "between" if min(times_of) < gpus < max(times_of) else "beyond"
            for size, measured_s in zip(*times_of[gpus], strict=True):
                basis = nvlink_basis(gpu, 3 if where == "between" else max(times_of) + 1, float(size))
                errors[basis].append(nvlink_all_reduce_s(gpu, gpus, float(size), others) / measured_s - 1)
    return {basis: np.asarray(basis_errors).tolist() for basis, basis_errors in errors.items()}
