"""What predictions of others' measurements rest on: bases, from the nearest on, and the residuals of each.

A basis is used from so many measurements on; a row that has none of its own falls back on a wider one. Of NVLink the
measured numbers of GPUs are told from the others, of shapes of GPTs that nobody measured the cells of the measured grid
from points outside of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel.collectives.nccl.nvlink import nvlink_all_reduce_s
from syncline.costmodel.compute.hardware import HARDWARE
from syncline.costmodel.compute.transformer_time import STEP_TIMES
from syncline.costmodel.uncertainty import Uncertainty, known_uncertainty, uncertainty_of
from syncline.experiments.validation.cluster_files import (
    BUNDLED,
    GPT_STEPS,
    LONG_LINK,
    bandwidth_bytes_per_s,
    collective_link,
    in_pieces,
    nvlink_times,
    predicted_rows,
)
from syncline.experiments.validation.measured_steps import read_points, recomputes
from syncline.experiments.validation.projected import projected_residuals
from syncline.experiments.validation.vtrain import errors_by_cell

LEAST = 4
"""Measurements of a basis."""

LEAST_COLLECTIVES = 9
"""Of a collective by itself: below, outliers are not told apart."""

SLOW_BYTES_PER_S = 1e9 / 8
"""The fastest line on which a step was measured whose time is its bytes."""

MEAN = ", mean step"
"""A mean step's, beside the one that synchronises."""

GRID = ("tensor parallelism", "micro batch", "hidden size")
"""What decides how long a layer takes."""

MANY_REPLICAS, WHOLE_NODE = 16, 8

SMALL_BYTES = 8 * 2**20
"""NVLink: below, protocols and bumps of latency show."""


def bases_of(row: Mapping[str, Any]) -> list[str]:
    """What a predicted row rests on, from the nearest on; the last is always known."""
    if "collective" in row:
        link = collective_link(row)
        alone = row["regime"]
        if in_pieces(row) and link != LONG_LINK:  # what makes single ones slow shows on all such links
            alone = f"{row['backend']} in pieces, below 50 ms"
        return [alone, f"{row['backend']}, {link}", f"{row['backend']}, all links"]
    if "algorithm" in row:
        rate = bandwidth_bytes_per_s(row["bw"])
        slow = rate is not None and rate <= SLOW_BYTES_PER_S and int(float(row["n_sync"])) != 1
        return ["steps over TCP shaped to 1 Gbit/s and less", STEPS] if slow else [STEPS]
    if "gpu" in row:
        return [nvlink_basis(row["gpu"], int(row["gpus"]), float(row["bytes"]))]
    return gpt_bases(row)


STEPS = "steps of DDP and DiLoCo, all lines"


def nvlink_basis(gpu: str, gpus: int, nbytes: float) -> str:
    """Of an all-reduce inside a node."""
    known = sorted(nvlink_times()[gpu])
    size = "below 8 MiB" if nbytes < SMALL_BYTES else "8 MiB and more"
    if gpus in known:
        return f"NVLink, {gpu}, times that are known"
    where = "between" if known[0] < gpus < known[-1] else "beyond"
    return f"NVLink, {gpu}, {size}, {where} the numbers of GPUs that were measured"


def gpt_bases(row: Mapping[str, Any]) -> list[str]:
    """Of a step of a GPT."""
    regime, tensor, data = row["regime"], int(float(row[GRID[0]])), int(float(row["data parallelism"]))
    if "one node" in regime:
        cell = ", ".join(f"{name} {int(float(row[name]))}" for name in GRID)
        return [f"A100, one node, {cell}", f"{regime}{ANOTHER_SHAPE}", regime]
    if tensor == 1:
        return [regime, SEVERAL]
    how = f"{WHOLE_NODE} and more" if tensor >= WHOLE_NODE else f"below {WHOLE_NODE}"
    many = "and more" if data >= MANY_REPLICAS else "not reached"
    return [f"A100, several nodes, tensor parallelism {how}, {MANY_REPLICAS} replicas {many}", SEVERAL]


NO_TENSOR = "A100, one node, no tensor parallelism"
SEVERAL, ANOTHER_SHAPE = "A100, several nodes", ", another shape"


def with_uncertainty(row: dict[str, Any]) -> dict[str, Any]:
    """A predicted row with ``low_ms`` and ``high_ms`` (``low_mean_ms``, ``high_mean_ms``), and their ``basis``."""
    told = known_uncertainty(bases_of(row))
    out = row | {"low_ms": told.low * row["predicted_ms"], "high_ms": told.high * row["predicted_ms"]}
    if "predicted_mean_ms" in row:
        mean = known_uncertainty([name + MEAN for name in bases_of(row)])
        out |= {
            "low_mean_ms": mean.low * row["predicted_mean_ms"],
            "high_mean_ms": mean.high * row["predicted_mean_ms"],
        }
    return out | {"basis": f"{told.points} residuals of {told.basis}"}


def residuals(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """``predicted / measured - 1`` of measured rows, by each basis that they count for.

    Of NVLink they are those of the same all-reduce once more, out of place: what is known is told from itself.
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
    """By basis, of the measurements that come with the package; `shape_uncertainty` comes beside them.

    Args:
        files: the measurements.
    """
    errors = residuals(row for path in files for row in predicted_rows(path)) | nvlink_residuals()
    errors |= projected_residuals()
    return {
        basis: uncertainty_of(of, basis)
        for basis, of in errors.items()
        if len(of) >= least_of(basis) and basis != NO_TENSOR + ANOTHER_SHAPE
    }


def shape_uncertainty() -> Uncertainty:
    """Of GPTs on one node without tensor parallelism, whose width and micro-batch nobody measured: each cell of the
    measured grid is told by constants that were fitted to a fifth of the points outside of it. It takes half a minute.
    """
    single = read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node")
    machine = HARDWARE["a100"]
    again = recomputes(single, machine.memory_bytes or np.inf)
    errors = errors_by_cell(single, STEP_TIMES["a100-megatron-deepspeed"].calibrated_on or (1, 0), machine, again)
    return uncertainty_of(
        np.concatenate(list(errors.values())), "A100, one node, no tensor parallelism" + ANOTHER_SHAPE
    )


def least_of(basis: str) -> int:
    """So many measurements a basis needs."""
    alone = basis.startswith(("gloo ", "nccl "))  # a collective by itself
    return LEAST_COLLECTIVES if alone else LEAST


def covered_by_others(rows: Sequence[Mapping[str, Any]]) -> list[bool | None]:
    """Whether each row that comes with the package is within what the others of its basis say; None: not measured."""
    known = residuals(rows)
    told: list[bool | None] = []
    for row in rows:
        basis = next((name for name in bases_of(row) if len(known[name]) > least_of(name)), None)
        if row["error"] is None or basis is None or "gpu" in row:
            told.append(None)
            continue
        others = known[basis].copy()
        others.remove(row["error"])
        told.append(is_within(row["error"], uncertainty_of(others)))
    return told


def is_within(error: float, of: Uncertainty) -> bool:
    """Whether what was measured, of which a prediction is off by so much, is between the bounds."""
    return of.low <= 1 / (1 + error) <= of.high


def nvlink_residuals() -> dict[str, list[float]]:
    """Errors of measured numbers of GPUs that are told from the others: between two of them, and beyond the last."""
    told: dict[str, list[float]] = defaultdict(list)
    for gpu, known in nvlink_times().items():
        for gpus in known:
            others = {count: times for count, times in known.items() if count != gpus}
            where = "between" if min(known) < gpus < max(known) else "beyond"
            for size, measured_s in zip(*known[gpus], strict=True):
                basis = nvlink_basis(gpu, 3 if where == "between" else max(known) + 1, float(size))
                told[basis].append(nvlink_all_reduce_s(gpu, gpus, float(size), others) / measured_s - 1)
    return {basis: np.asarray(of).tolist() for basis, of in told.items()}
