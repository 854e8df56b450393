"""Constants of a cluster, fitted to its measurements, and without a group of them: how far the others are told then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.clusters.p3 import P3, P3Constants
from syncline.costmodel.collectives.nccl.nvlink import nvlink_all_reduce_s
from syncline.costmodel.fitting.least_squares import relative_fit
from syncline.costmodel.network.paths import Floats
from syncline.experiments.validation.cluster_files import DEFAULT, collective_row_s, in_pieces, nvlink_times

_Rows = Sequence[Mapping[str, str]]

SCALE = 0.02
"""Relative error from which a point counts less than squared."""


class Stage(NamedTuple):
    """Constants that some rows say, with those of earlier stages held.

    Attributes:
        name: for people.
        constants: names.
        fits: whether a row is fitted.
        judged: whether it is among those that errors are told of.
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
"""In this order."""

GROUPS_LEFT_OUT = ("nodes", "delay_ms", "megabytes")
"""Columns whose values are left out one by one."""


def fitted_p3(rows: _Rows) -> P3Constants:
    """Constants from rows of ``collectives.csv``; what too few rows tell stays what ships."""
    constants = P3
    for stage in STAGES:
        of = [row for row in rows if stage.fits(row)]
        if len(of) > len(stage.constants):
            constants = _fitted(of, stage.constants, constants)
    return constants


def _fitted(rows: _Rows, names: tuple[str, ...], held: P3Constants) -> P3Constants:
    def predict(values: Floats) -> Floats:
        of = replace(held, **dict(zip(names, values, strict=True)))
        return np.concatenate([np.broadcast_to(collective_row_s(row, of), values[0].shape) for row in rows], axis=-1)

    measured = [float(row["time_ms"]) / 1e3 for row in rows]
    start = [getattr(P3, name) for name in names]
    most = [1.0 if name in ("efficiency", "stored_part", "pieces_part") else np.inf for name in names]
    fit = relative_fit(predict, measured, start, most=most, scale=SCALE)
    return replace(held, **dict(zip(names, fit.constants.tolist(), strict=True)))


def collectives_left_out(rows: _Rows) -> list[dict[str, Any]]:
    """Errors of each stage's rows: of all when fitted to all, and of those that were left out.

    A data centre's own delay is no value to leave out, as no other rows tell it.
    """
    told = _errors(rows, fitted_p3(rows), "nothing", "fit")
    for column in GROUPS_LEFT_OUT:
        for value in sorted({row[column] for row in rows} - {DEFAULT}, key=float):
            without = fitted_p3([row for row in rows if row[column] != value])
            told += _errors([row for row in rows if row[column] == value], without, column, value)
    order = [stage.name for stage in STAGES]
    return sorted(told, key=lambda row: order.index(row["stage"]))


def _errors(rows: _Rows, constants: P3Constants, column: str, value: str) -> list[dict[str, Any]]:
    told = []
    for stage in STAGES:
        of = [row for row in rows if stage.judged(row)]
        if of:
            errors = np.array([1e3 * float(collective_row_s(row, constants)) / float(row["time_ms"]) - 1 for row in of])
            told.append({"stage": stage.name, "left_out": column, "value": value} | error_of(errors))
    return told


def nvlink_left_out() -> list[dict[str, Any]]:
    """Errors of the measured times of each number of GPUs between two others, told from these."""
    told = []
    for gpu, known in nvlink_times().items():
        for gpus in sorted(known)[1:-1]:
            others = {count: times for count, times in known.items() if count != gpus}
            sizes, measured = known[gpus]
            predicted = np.array([nvlink_all_reduce_s(gpu, gpus, size, others) for size in sizes])
            row = {"stage": f"NVLink all-reduce, {gpu}", "left_out": "gpus", "value": str(gpus)}
            told.append(row | error_of(predicted / measured - 1))
    return told


def error_of(errors: Floats) -> dict[str, Any]:
    """Of several: how many, mean and median and worst of their absolute values, and the mean with its sign."""
    absolute = np.abs(errors)
    return {
        "points": int(errors.size),
        "mape": float(absolute.mean()),
        "median": float(np.median(absolute)),
        "worst": float(absolute.max()),
        "bias": float(errors.mean()),
    }
