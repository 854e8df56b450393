"""``python -m tests.measure.validation.uncertainties`` writes what predictions rest on, from what was measured.

For NVLink, each measured number of GPUs is predicted from the others; for shapes of GPTs that were not measured, each
cell of the measured grid is predicted from points outside of it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from benchmarks.wide_area_pipelines import predictions
from syncline.costmodel import HARDWARE, Link, ModelShape, collective_s, gloo_s
from syncline.costmodel.bases import (
    DATA_SHEET_LINKS,
    GLOO_FORMS,
    GLOO_MEASURED,
    LARGE_PRESETS,
    LARGE_WIDTH,
    MEASURED_STEPS,
    PIPELINES_ON_LINES,
    SET_LINKS,
    SMALL_PRESETS,
    WIDE_LINES,
    nccl_nvlink_basis,
    nvlink_basis,
)
from syncline.costmodel.collectives.nccl.nvlink import nvlink_all_reduce_s
from syncline.costmodel.compute.transformer_time import STEP_TIMES
from syncline.costmodel.network.measured_links import CARD_BYTES_PER_S, G6E_BYTES_PER_S, P3
from syncline.costmodel.numerics.uncertainty import FILE, Uncertainty, uncertainty_of
from syncline.measure.validation.cluster_files import (
    BUNDLED,
    COLLECTIVES,
    DEFAULT,
    GPT_STEPS,
    MIB,
    in_pieces,
    nvlink_times,
    predicted_rows,
    read_table,
)
from syncline.measure.validation.measured_steps import read_points, recomputes
from syncline.measure.validation.nvlink import errors_of_machines_left_out, nvlink_collectives
from syncline.measure.validation.residuals import ANOTHER_SHAPE, least_of, residuals
from syncline.measure.validation.vtrain import errors_by_cell
from tests.measure.validation.wide_lines import wide_line_errors

NO_TENSOR = "A100, one node, no tensor parallelism"

DATA_CENTRE_S = float(np.asarray(P3.gloo_delay_s))
"""Seconds one way between nodes of a region, from measured messages between them."""

G6E_CARD_BYTES_PER_S = 20e9 / 8
"""Bytes per second of a g6e.2xlarge. Source: AWS, EC2 instance types (up to 20 Gbit/s)."""


def measured_uncertainties() -> dict[str, Uncertainty]:
    """Return the uncertainty of each basis, from the bundled measurements; `shape_uncertainty` is separate."""
    errors = residuals(row for path in BUNDLED for row in predicted_rows(path)) | nvlink_residuals()
    errors |= left_out_residuals()
    errors |= projected_residuals()
    errors[WIDE_LINES] = [error.error for error in wide_line_errors()]
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


def pipelines_uncertainty() -> Uncertainty:
    """Return the uncertainty of pipelines on lines, from measurements that are not in the package.

    No number of the prediction is fitted to them but the time of computing, which comes from other rows.
    """
    return uncertainty_of([row.error for row in predictions()], PIPELINES_ON_LINES)


def left_out_residuals() -> dict[str, list[float]]:
    """Return errors of NCCL's collectives over NVLink by basis, of each machine by constants of all others."""
    rows, errors = nvlink_collectives(), defaultdict(list)
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


def projected_residuals() -> dict[str, list[float]]:
    """Return ``predicted / measured - 1`` of collectives and steps that are timed in the way of a projection, by basis.

    | basis                            | measured                                  | predicted                       |
    |----------------------------------|-------------------------------------------|---------------------------------|
    | `DATA_SHEET_LINKS`               | NCCL's all-reduces on AWS, links as are   | a ring on the data sheet's link |
    | `SET_LINKS`                      | NCCL's all-reduces on AWS, of a set rate  | a ring on that link             |
    | `GLOO_FORMS`                     | gloo's all-reduces and broadcasts on AWS  | its forms, software for nothing |
    | `GLOO_MEASURED`                  | gloo's collectives over our shaped links  | forms and costs of one setting  |
    | `LARGE_PRESETS`, `SMALL_PRESETS` | steps of GPTs on A100 in one node         | FLOPs at the preset's use       |
    | `MEASURED_STEPS`                 | our own trainings over shaped links       | as `validate` predicts them     |
    """
    residuals: dict[str, list[float]] = {}
    for row in read_table(COLLECTIVES)[1]:
        if row["collective"] in ("all_reduce", "broadcast") and not in_pieces(row):
            basis, predicted_s = _collective(row)
            if basis:
                residuals.setdefault(basis, []).append(1e3 * predicted_s / float(row["time_ms"]) - 1)
    residuals[DATA_SHEET_LINKS].append(G6E_BYTES_PER_S / G6E_CARD_BYTES_PER_S - 1)
    for basis, name in ((GLOO_MEASURED, "own_collectives.csv"), (MEASURED_STEPS, "own_steps.csv")):
        with COLLECTIVES.with_name(name).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        residuals[basis] = [float(row["predicted_ms"]) / float(row["measured_ms"]) - 1 for row in rows]
    return residuals | _computing()


def _collective(row: Mapping[str, str]) -> tuple[str, float]:
    """Return the basis of a measured collective, empty if a projection has no form of it, and its predicted seconds."""
    kind, workers, nbytes = row["collective"], int(row["nodes"]), float(row["megabytes"]) * MIB
    is_default = DEFAULT in (row["delay_ms"], row["gbit_s"])
    link = Link(DATA_CENTRE_S, CARD_BYTES_PER_S)
    if not is_default:
        link = Link(float(row["delay_ms"]) / 1e3, float(row["gbit_s"]) * 1e9 / 8)
    if row["backend"] == "gloo":
        return GLOO_FORMS, float(gloo_s(kind, workers, nbytes, link))
    if kind == "all_reduce":
        return (DATA_SHEET_LINKS if is_default else SET_LINKS), float(collective_s(kind, workers, nbytes, link))
    return "", 0.0  # this module has no form of NCCL's chain


def _computing() -> dict[str, list[float]]:
    """Return residuals of steps without tensor parallelism and pipelines, by width; exchange in a node is small."""
    machine = HARDWARE["a100"]
    residuals: dict[str, list[float]] = {}
    for point in read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node"):
        if point.tensor == 1 and point.stages == 1:
            shape = ModelShape("gpt", point.layers, point.width, point.heads, vocabulary=51200, sequence=point.sequence)
            tokens = point.global_batch / point.gpus * point.sequence
            seconds = shape.flops_per_token * tokens / (machine.mfu * machine.peak_flops)
            basis = LARGE_PRESETS if point.width >= LARGE_WIDTH else SMALL_PRESETS
            residuals.setdefault(basis, []).append(seconds / point.measured_s - 1)
    return residuals


if __name__ == "__main__":
    apart = [shape_uncertainty(), pipelines_uncertainty()]
    rows = sorted([*measured_uncertainties().items(), *((row.basis, row) for row in apart)])
    with FILE.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["basis", "points", "low", "high"])
        for basis, row in rows:
            out.writerow([basis, row.points, f"{row.low:.4f}", f"{row.high:.4f}"])
