"""Cross-validation of a cluster's constants: fitted to all measurements, and without a group that they then predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.nccl.nvlink import nvlink_all_reduce_s
from syncline.costmodel.fitting.least_squares import relative_fit
from syncline.costmodel.network.measured_links import P3, P3Constants
from syncline.costmodel.network.paths import Floats
from syncline.measure.validation.cluster_files import DEFAULT, collective_row_s, in_pieces, nvlink_times
from syncline.measure.validation.errors import error_of

_Rows = Sequence[Mapping[str, str]]

SCALE = 0.02
"""Relative error from which a point counts less than squared."""


class Stage(NamedTuple):
    """Constants that some rows determine, with those of earlier stages fixed.

    Attributes:
        name: name for people.
        constants: names of the constants.
        fits: whether a row is used in the fit.
        judged: whether a row counts in the reported errors.
    """

    name: str
    constants: tuple[str, ...]
    fits: Callable[[Mapping[str, str]], bool]
    judged: Callable[[Mapping[str, str]], bool]


def _nccl_ring(row: Mapping[str, str]) -> bool:
    return row["backend"] == "nccl" and row["collective"] == "all_reduce" and not in_pieces(row)


def _set(row: Mapping[str, str]) -> bool:
    return DEFAULT not in (row["delay_ms"], row["gbit_s"])


def _nccl_chain(row: Mapping[str, str]) -> bool:
    return row["backend"] == "nccl" and row["collective"] in ("broadcast", "reduce")


def _gloo(row: Mapping[str, str]) -> bool:
    return row["backend"] == "gloo" and row["collective"] != "send"


STAGES = (
    Stage(
        "NCCL all-reduce, 1 to 5 Gbit/s", ("efficiency", "ring_latencies"),
        lambda row: _nccl_ring(row) and _set(row), lambda row: _nccl_ring(row) and _set(row),
    ),
    Stage(
        "NCCL broadcast and reduce", ("chain_latencies", "nccl_bytes_per_s", "nccl_delay_s"),
        lambda row: _nccl_chain(row) or (_nccl_ring(row) and not _set(row)), _nccl_chain,
    ),
    Stage("gloo, all collectives", ("gloo_message_s", "gloo_delay_part", "gloo_delay_s"), _gloo, _gloo),
    Stage("NCCL in pieces", ("pieces_part", "stored_part"), in_pieces, in_pieces),
)  # fmt: skip
"""Stages in the order of the fits."""

GROUPS_LEFT_OUT = ("nodes", "delay_ms", "megabytes")
"""Columns whose values are left out one by one."""


def fitted_p3(rows: _Rows) -> P3Constants:
    """Return constants fitted to rows of ``collectives.csv``; a stage with too few rows keeps the bundled constants."""
    constants = P3
    for stage in STAGES:
        stage_rows = [row for row in rows if stage.fits(row)]
        if len(stage_rows) > len(stage.constants):
            constants = _fitted(stage_rows, stage.constants, constants)
    return constants


def _fitted(rows: _Rows, names: tuple[str, ...], fixed: P3Constants) -> P3Constants:
    """Return constants of which those with the names are fitted to the rows, and the others are fixed."""

    def predict(values: Floats) -> Floats:
        constants = replace(fixed, **dict(zip(names, values, strict=True)))
        return np.concatenate(
            [np.broadcast_to(collective_row_s(row, constants), values[0].shape) for row in rows], axis=-1
        )

    measured = [float(row["time_ms"]) / 1e3 for row in rows]
    start = [getattr(P3, name) for name in names]
    ceilings = [1.0 if name in ("efficiency", "stored_part", "pieces_part") else np.inf for name in names]
    fit = relative_fit(predict, measured, start, upper=ceilings, scale=SCALE)
    return replace(fixed, **dict(zip(names, fit.constants.tolist(), strict=True)))


def collectives_left_out(rows: _Rows) -> list[dict[str, Any]]:
    """Return errors of each stage's rows: of all rows after a fit to all, and of each group after a fit without it.

    A data centre's own delay is never left out, because no other rows determine it.
    """
    errors = _errors(rows, fitted_p3(rows), "nothing", "fit")
    for column in GROUPS_LEFT_OUT:
        for value in sorted({row[column] for row in rows} - {DEFAULT}, key=float):
            without = fitted_p3([row for row in rows if row[column] != value])
            errors += _errors([row for row in rows if row[column] == value], without, column, value)
    return [row for stage in STAGES for row in errors if row["stage"] == stage.name]


def _errors(rows: _Rows, constants: P3Constants, column: str, value: str) -> list[dict[str, Any]]:
    """Return the errors of each stage with these constants; ``column`` and ``value`` say what was left out."""
    errors_by_stage = []
    for stage in STAGES:
        stage_rows = [row for row in rows if stage.judged(row)]
        if stage_rows:
            errors = [1e3 * float(collective_row_s(row, constants)) / float(row["time_ms"]) - 1 for row in stage_rows]
            errors_by_stage.append({"stage": stage.name, "held_out": column, "value": value} | error_of(errors))
    return errors_by_stage


def nvlink_left_out() -> list[dict[str, Any]]:
    """Return errors of the times of each number of GPUs that lies between two others, predicted from the others."""
    rows = []
    for gpu, times_of in nvlink_times().items():
        for gpus in sorted(times_of)[1:-1]:
            others = {count: times for count, times in times_of.items() if count != gpus}
            sizes, measured = times_of[gpus]
            predicted = np.array([nvlink_all_reduce_s(gpu, gpus, size, others) for size in sizes])
            row = {"stage": f"NVLink all-reduce, {gpu}", "held_out": "gpus", "value": str(gpus)}
            rows.append(row | error_of(predicted / measured - 1))
    return rows
