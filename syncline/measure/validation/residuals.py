"""Bases of predictions of published measurements, from the nearest on, and the residuals of each.

A basis needs a number of measurements; a row whose nearest basis has too few falls back on a wider one.

Cross-validation of a cluster's constants: fitted to all measurements, and without a group that they then predict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.bases import kernels_basis, nccl_nvlink_basis, nvlink_basis
from syncline.costmodel.collectives.nccl import NUM_RINGS, node_times, nvlink_all_reduce_s
from syncline.costmodel.least_squares import relative_fit
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.presets import P3, P3Constants
from syncline.costmodel.numerics.uncertainty import Uncertainty, known_uncertainty, uncertainty_of
from syncline.measure.validation.cluster_files import (
    LONG_LINK,
    UNCHANGED,
    bandwidth_bytes_per_s,
    collective_link,
    collective_row_s,
    in_several_calls,
)
from syncline.measure.validation.measured_steps import error_of
from syncline.measure.validation.published import has_usual_network, model_of, source_of, step_bounds

MIN_POINTS = 4
"""Smallest number of measurements of a basis."""

MIN_POINTS_OF_COLLECTIVE = 9
"""Smallest number of measurements of the basis of one collective: with fewer, outliers cannot be recognised."""

SLOW_BYTES_PER_S = 1e9 / 8
"""The fastest link on which a measured step's time is determined by its bytes."""

MEAN_STEP_SUFFIX = ", mean step"
"""Suffix of the name of a basis of mean steps; the name without it is of the basis of steps that synchronise."""

CELL_COLUMNS = ("tensor parallelism", "micro batch", "hidden size")
"""The numbers that decide the time of a layer."""

MANY_REPLICAS, NODE_GPUS = 16, 8


def is_training(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a table of published trainings, from its columns."""
    return "micro_batch" in row


def is_nvlink_all_reduce(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a table of all-reduces over NVLink, from which the preset of NVLink is made."""
    return "gpu" in row


def bases_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names of sets of measurements whose errors bound a prediction, the most similar set first.

    The last set always has enough measurements.
    """
    if is_training(row):
        return [kernels_basis(model_of(row).experts)]
    if "switches" in row:  # a collective of NCCL over NVLink; the table of collectives over TCP has no such column
        return [nccl_nvlink_basis(float(row["bytes"]))]
    if "collective" in row:  # a collective over TCP
        link = collective_link(row)
        nearest = row["regime"]
        if in_several_calls(row) and link != LONG_LINK:  # one basis, as on each such link a few of these rows are slow
            nearest = f"{row['backend']} in pieces, below 50 ms"
        return [nearest, f"{row['backend']}, {link}", f"{row['backend']}, all links"]
    if "algorithm" in row:  # a step of DDP or DiLoCo
        rate = bandwidth_bytes_per_s(row["bw"])
        is_slow_link = rate is not None and rate <= SLOW_BYTES_PER_S
        is_only_sync = int(float(row["n_sync"])) == 1  # the first synchronisation is slow on any link
        slow_bases = ["steps over TCP shaped to 1 Gbit/s and less"] if is_slow_link and not is_only_sync else []
        return [*slow_bases, STEPS_BASIS]
    if is_nvlink_all_reduce(row):
        return [nvlink_basis(row["gpu"], int(row["gpus"]), float(row["bytes"]))]
    return gpt_bases(row)


STEPS_BASIS = "steps of DDP and DiLoCo, all lines"


def gpt_bases(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the sets of measurements that bound the step of a GPT, the most similar set first.

    In one node, that is the set of steps with equal numbers in ``CELL_COLUMNS``.
    """
    regime = row["regime"]
    tensor = int(float(row["tensor parallelism"]))  # tables may write 8 as 8.0
    data = int(float(row["data parallelism"]))
    if "one node" in regime:
        cell = ", ".join(f"{name} {int(float(row[name]))}" for name in CELL_COLUMNS)
        return [f"A100, one node, {cell}", f"{regime}{ANOTHER_SHAPE}", regime]
    if tensor == 1:
        return [regime, SEVERAL_NODES]
    tensor_size = f"{NODE_GPUS} and more" if tensor >= NODE_GPUS else f"below {NODE_GPUS}"
    many_replicas = "and more" if data >= MANY_REPLICAS else "not reached"
    nearest = f"A100, several nodes, tensor parallelism {tensor_size}, {MANY_REPLICAS} replicas {many_replicas}"
    return [nearest, SEVERAL_NODES]


SEVERAL_NODES, ANOTHER_SHAPE = "A100, several nodes", ", another shape"


def with_uncertainty(row: dict[str, Any]) -> dict[str, Any]:
    """Return a predicted row with the bounds of its step, of its mean step if it predicts one, and their ``basis``."""
    if "basis" in row:
        return row  # a log's rows have the bounds of the commands that predict them
    predicted_ms = row["predicted_ms"]
    if is_training(row) and not has_usual_network(row):  # no measured training has another network
        low, high, basis = step_bounds(row)
        return row | {"low_ms": low * predicted_ms, "high_ms": high * predicted_ms, "basis": basis}
    step = known_uncertainty(bases_of(row))
    bounds = {"low_ms": step.low * predicted_ms, "high_ms": step.high * predicted_ms}
    mean_ms = row.get("predicted_mean_ms")
    if mean_ms is not None:
        mean = known_uncertainty([basis + MEAN_STEP_SUFFIX for basis in bases_of(row)])
        bounds |= {"low_mean_ms": mean.low * mean_ms, "high_mean_ms": mean.high * mean_ms}
    return row | bounds | {"basis": f"{step.points} residuals of {step.basis}"}


def residuals(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the relative errors ``predicted / measured - 1`` of measured rows, by basis.

    A basis is a set of measurements from whose errors the uncertainty of a prediction follows. A row can belong to
    several bases. Rows without an error are left out.

    The preset of NVLink consists of the measured times, so its predictions have no error. In place of the error, the
    residual is the relative difference between the times of the same all-reduce out of place and in place.
    """
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        error = row["error"]
        if error is None:
            continue
        if is_nvlink_all_reduce(row):
            error = float(row["out_of_place_ns"]) / float(row["in_place_ns"]) - 1
        for basis in bases_of(row):
            errors[basis].append(error)
            if row.get("mean_wall_ms"):
                errors[basis + MEAN_STEP_SUFFIX].append(row["predicted_mean_ms"] / float(row["mean_wall_ms"]) - 1)
    return errors


def min_measurements(basis: str) -> int:
    """Return the number of measurements that a basis needs before their errors give bounds."""
    is_single_collective = basis.startswith(("gloo ", "nccl "))  # the library and the collective, see `bases_of`
    return MIN_POINTS_OF_COLLECTIVE if is_single_collective else MIN_POINTS


def covered_by_others(rows: Sequence[Mapping[str, Any]]) -> list[bool | None]:
    """Return whether each bundled row is within the bounds that other rows give; None if there are too few of them.

    The bounds follow from the errors of the other rows of the row's first basis that is large enough. For a published
    training, the rows of its own source are left out, too. The result is also None for a row without a measurement, and
    for NVLink's all-reduces, whose predictions are the measurements themselves.
    """
    errors = residuals(rows)
    errors_of_source: dict[tuple[str, str], list[float]] = defaultdict(list)  # of trainings, by basis and source
    for row in rows:
        if is_training(row) and row["error"] is not None:
            (basis,) = bases_of(row)
            errors_of_source[basis, source_of(row)].append(row["error"])

    def is_covered(row: Mapping[str, Any]) -> bool | None:
        # More rows than a basis needs, because the row itself is left out.
        usable_bases = [basis for basis in bases_of(row) if len(errors[basis]) > min_measurements(basis)]
        if row["error"] is None or not usable_bases or is_nvlink_all_reduce(row):
            return None
        basis, *_ = usable_bases
        other_errors = errors[basis].copy()
        for left_out_error in errors_of_source.get((basis, source_of(row)), [row["error"]]):
            other_errors.remove(left_out_error)
        if len(other_errors) < MIN_POINTS:
            return None
        return is_within(row["error"], uncertainty_of(other_errors))

    return [is_covered(row) for row in rows]


def is_within(error: float, uncertainty: Uncertainty) -> bool:
    """Return whether a measurement lies within the factors of an uncertainty times its prediction.

    ``error`` is ``predicted / measured - 1``, so that ``1 / (1 + error)`` is ``measured / predicted``.
    """
    return uncertainty.low <= 1 / (1 + error) <= uncertainty.high


_Rows = Sequence[Mapping[str, str]]

ERROR_SCALE = 0.02
"""Relative error of a point from which the fit counts the error less than squared."""


class Stage(NamedTuple):
    """A step of a fit: constants that some rows determine, with the constants of earlier steps fixed.

    Attributes:
        is_fitted: function that returns whether a row is used in the fit.
        is_reported: function that returns whether a row counts in the reported errors; None: all fitted rows do.
    """

    name: str
    constants: tuple[str, ...]
    is_fitted: Callable[[Mapping[str, str]], bool]
    is_reported: Callable[[Mapping[str, str]], bool] | None = None


def _is_nccl_ring(row: Mapping[str, str]) -> bool:
    """Return whether a row is an all-reduce of NCCL in one call."""
    return row["backend"] == "nccl" and row["collective"] == "all_reduce" and not in_several_calls(row)


def _is_nccl_ring_on_shaped_link(row: Mapping[str, str]) -> bool:
    """Return whether a row is an all-reduce of NCCL in one call, on a link whose delay and rate were set."""
    return _is_nccl_ring(row) and UNCHANGED not in (row["delay_ms"], row["gbit_s"])


def _is_nccl_chain(row: Mapping[str, str]) -> bool:
    """Return whether a row is a broadcast or reduce of NCCL, which sends along a chain."""
    return row["backend"] == "nccl" and row["collective"] in ("broadcast", "reduce")


FIT_STAGES = (
    Stage("NCCL all-reduce, 1 to 5 Gbit/s", ("efficiency", "ring_latencies"), _is_nccl_ring_on_shaped_link),
    Stage(
        "NCCL broadcast and reduce", ("chain_latencies", "nccl_bytes_per_s", "nccl_delay_s"),
        lambda row: _is_nccl_chain(row) or (_is_nccl_ring(row) and not _is_nccl_ring_on_shaped_link(row)),
        _is_nccl_chain,
    ),
    Stage(
        "gloo, all collectives", ("gloo_message_s", "gloo_delay_part", "gloo_delay_s"),
        lambda row: row["backend"] == "gloo" and row["collective"] != "send",
    ),
    Stage("NCCL in pieces", ("pieces_part", "stored_part"), in_several_calls),
)  # fmt: skip
"""Stages in the order of the fits."""

FRACTIONS = ("efficiency", "stored_part", "pieces_part")
"""Constants that are at most 1."""

GROUPS_LEFT_OUT = ("nodes", "delay_ms", "megabytes")
"""Columns whose values are left out one by one."""


def fitted_p3_constants(rows: _Rows) -> P3Constants:
    """Return constants of the cluster of p3.2xlarge machines, fitted to rows of ``collectives.csv`` stage by stage.

    A stage with too few rows keeps the bundled constants.
    """
    constants = P3
    for stage in FIT_STAGES:
        stage_rows = [row for row in rows if stage.is_fitted(row)]
        if len(stage_rows) > len(stage.constants):
            constants = _fit_stage(stage_rows, stage.constants, constants)
    return constants


def _fit_stage(rows: _Rows, names: tuple[str, ...], fixed: P3Constants) -> P3Constants:
    """Fit the constants with these names to rows, and return them with the other constants of ``fixed``."""

    def predict_s(values: Floats) -> Floats:
        """Return the seconds ``(..., N)`` of the rows for constants ``(len(names), ..., 1)``."""
        constants = replace(fixed, **dict(zip(names, values, strict=True)))
        predicted_s = [np.broadcast_to(collective_row_s(row, constants), values[0].shape) for row in rows]
        return np.concatenate(predicted_s, axis=-1)

    measured_s = [float(row["time_ms"]) / 1e3 for row in rows]
    start = [getattr(P3, name) for name in names]
    upper_limits = [1.0 if name in FRACTIONS else np.inf for name in names]
    fit = relative_fit(predict_s, measured_s, start, upper=upper_limits, scale=ERROR_SCALE)
    return replace(fixed, **dict(zip(names, fit.constants.tolist(), strict=True)))


def collectives_left_out(rows: _Rows) -> list[dict[str, Any]]:
    """Return errors of each stage's rows: of all rows after a fit to all, and of each group after a fit without it.

    A group has one value in one of the columns ``GROUPS_LEFT_OUT``. Rows with an `UNCHANGED` delay, the data centre's
    own, are never left out, because no other rows determine that delay.
    """
    error_rows = _stage_errors(rows, fitted_p3_constants(rows), held_out="nothing", value="fit")
    for column in GROUPS_LEFT_OUT:
        for value in sorted({row[column] for row in rows} - {UNCHANGED}, key=float):
            left_out = [row for row in rows if row[column] == value]
            constants = fitted_p3_constants([row for row in rows if row[column] != value])
            error_rows += _stage_errors(left_out, constants, held_out=column, value=value)
    stage_names = [stage.name for stage in FIT_STAGES]
    return sorted(error_rows, key=lambda row: stage_names.index(row["stage"]))


def _stage_errors(rows: _Rows, constants: P3Constants, held_out: str, value: str) -> list[dict[str, Any]]:
    """Return statistics of the errors on rows, by stage; ``held_out`` and ``value`` label those left out of the fit."""
    error_rows = []
    for stage in FIT_STAGES:
        is_reported = stage.is_reported or stage.is_fitted  # by default, a stage reports all fitted rows
        stage_rows = [row for row in rows if is_reported(row)]
        if stage_rows:
            errors = [1e3 * float(collective_row_s(row, constants)) / float(row["time_ms"]) - 1 for row in stage_rows]
            error_rows.append({"stage": stage.name, "held_out": held_out, "value": value} | error_of(errors))
    return error_rows


def nvlink_left_out() -> list[dict[str, Any]]:
    """Return the errors for each number of GPUs but the smallest and the largest, predicted from the other numbers."""
    rows = []
    for gpu in NUM_RINGS:
        times_by_count = node_times(gpu)
        for num_gpus in sorted(times_by_count)[1:-1]:
            sizes, measured_s = times_by_count[num_gpus]
            other_times = {count: times for count, times in times_by_count.items() if count != num_gpus}
            predicted_s = np.array([nvlink_all_reduce_s(gpu, num_gpus, size, measured=other_times) for size in sizes])
            row = {"stage": f"NVLink all-reduce, {gpu}", "held_out": "gpus", "value": str(num_gpus)}
            rows.append(row | error_of(predicted_s / measured_s - 1))
    return rows
