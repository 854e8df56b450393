"""The fit of NCCL's constants among GPUs with NVLink to published times of collectives.

`fitted_costs` fits `NvlinkCosts` to the rows. `errors_of_machines_left_out` predicts each machine with constants fitted
to all other machines; the bounds of predictions rest on these errors.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel.network.software_costs import NvlinkCosts
from syncline.measure.validation.published import BUNDLED_COSTS, NVLINK_COLLECTIVES, Row, nvlink_row_s

START = NvlinkCosts(
    3,
    call_s=30e-6,
    network_call_s=30e-6,
    lap_s=25e-6,
    switch_gpu_s=5e-6,
    half_bytes=8e6,
    link_part=0.9,
)
"""Constants from which a fit starts; those that no row determines keep these values."""

FITTED = "call_s", "network_call_s", "lap_s", "switch_gpu_s", "half_bytes", "link_part"
"""The fitted fields of `NvlinkCosts`."""

NEAR_START = 0.03
"""Weight of the logarithm of a constant's distance from its start, which decides where no row does."""

FAR = 0.3
"""Logarithm of an error's ratio above which a row counts little in a fit."""


def nvlink_collectives() -> list[dict[str, str]]:
    """Return the published times that come with the package."""
    with NVLINK_COLLECTIVES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def errors_of(rows: Sequence[Row], costs: NvlinkCosts = BUNDLED_COSTS) -> np.ndarray:
    """Return ``predicted / measured - 1`` of each row of NCCL's collectives, ``(N,)``."""
    return np.array([1e6 * nvlink_row_s(row, costs) / float(row["time_us"]) - 1 for row in rows])


def fitted_costs(rows: Sequence[Row]) -> NvlinkCosts:
    """Return the constants with the least errors on these rows, by robust least squares of the logarithms."""
    from scipy.optimize import least_squares  # scipy takes long to import

    def costs_at(factors: np.ndarray) -> NvlinkCosts:
        """Return the start values times these factors."""
        fitted: dict[str, Any] = {}
        for name, factor in zip(FITTED, factors, strict=True):
            fitted[name] = factor * getattr(START, name)
        return replace(START, **fitted)

    def distances(factors: np.ndarray) -> np.ndarray:
        """Return the bounded errors of the rows, and the weighted distances of the factors from 1."""
        row_errors = np.tanh(np.log1p(errors_of(rows, costs_at(factors))) / FAR)
        return np.concatenate([row_errors, NEAR_START * np.log(factors)])

    return costs_at(least_squares(distances, np.ones(len(FITTED)), bounds=(0.1, 10.0)).x)


def errors_of_machines_left_out(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the errors of each machine's rows, with constants fitted to the rows of all others."""
    errors = {}
    for machine in dict.fromkeys(row["machine"] for row in rows):
        costs = fitted_costs([row for row in rows if row["machine"] != machine])
        errors[machine] = errors_of([row for row in rows if row["machine"] == machine], costs)
    return errors
