"""NCCL's collectives among GPUs with NVLink: published times, their predictions, and the fit of the constants.

The file `measured/nvlink_collectives.csv` has a row per measurement: generation of NVLink, whether switches may reduce,
GPUs per node, nodes, the rate of a GPU's share of its node's network cards, collective, bytes of the whole, time.

`fitted_constants` fits `syncline.costmodel.network.nvlink_costs` to such rows. `errors_of_machines_left_out` predicts
each machine with constants fitted to all other machines; the bounds of predictions rest on these errors.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.collectives.nccl.nodes import GpuNodes, nvlink_s
from syncline.costmodel.network.nvlink_costs import GENERATIONS, SWITCHES, NvlinkCosts, Switches

Row = Mapping[str, str]

NVLINK_COLLECTIVES = Path(__file__).parent / "measured" / "nvlink_collectives.csv"
"""The published times that come with the package."""

COLUMNS = "nvlink", "switches", "gpus", "nodes", "card_gbit_s", "collective", "bytes"
"""The columns that a prediction needs."""

START = NvlinkCosts(
    3,
    call_s=30e-6,
    network_call_s=30e-6,
    lap_s=25e-6,
    switch_gpu_s=5e-6,
    half_bytes=8e6,
    ring_part=0.9,
    tree_part=0.45,
)
"""Constants from which a fit starts; those that no row determines keep these values."""

START_SWITCHES = {4: Switches(0.55, 5), 5: Switches(0.55, 6)}
"""Switches that reduce, from which a fit starts."""

FITTED = "call_s", "network_call_s", "lap_s", "switch_gpu_s", "half_bytes", "ring_part", "tree_part"
"""The fitted fields of `NvlinkCosts`; the part of the rate that switches reach is fitted for each generation, too."""

NEAR_START = 0.03
"""Weight of the logarithm of a constant's distance from its start, which decides where no row does."""

FAR = 0.3
"""Logarithm of an error's ratio above which a row counts little in a fit."""


class Constants(NamedTuple):
    """Constants of NCCL on NVLink.

    Attributes:
        costs: the constants of all generations.
        switches: the switches of each generation that has them.
    """

    costs: NvlinkCosts
    switches: Mapping[int, Switches]


BUNDLED_CONSTANTS = Constants(NvlinkCosts(3), SWITCHES)
"""The constants of the package."""


def nvlink_collectives() -> list[dict[str, str]]:
    """Return the published times that come with the package."""
    with NVLINK_COLLECTIVES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def nvlink_row_s(row: Row, constants: Constants = BUNDLED_CONSTANTS) -> float:
    """Return the predicted seconds of a row."""
    generation, gpus, nodes = int(row["nvlink"]), int(row["gpus"]), int(row["nodes"])
    switches = constants.switches.get(generation) if int(row["switches"]) else None
    costs = replace(constants.costs, generation=generation, switches=switches)
    card = float(row["card_gbit_s"] or np.inf) * 1e9 / 8
    nbytes = float(row["bytes"]) / (gpus * nodes if row["collective"] == "all_gather" else 1)
    return float(nvlink_s(row["collective"], nbytes, GpuNodes(gpus, nodes, GENERATIONS[generation], card, 0.0, costs)))


def errors_of(rows: Sequence[Row], constants: Constants = BUNDLED_CONSTANTS) -> np.ndarray:
    """Return ``predicted / measured - 1`` of each row."""
    return np.array([1e6 * nvlink_row_s(row, constants) / float(row["time_us"]) - 1 for row in rows])


def fitted_constants(rows: Sequence[Row]) -> Constants:
    """Return the constants with the least errors on these rows, by robust least squares of the logarithms.

    A generation of switches without rows takes the fitted part of the other.
    """
    from scipy.optimize import least_squares  # scipy takes long to import

    reduced = {int(row["nvlink"]) for row in rows if int(row["switches"]) and int(row["nodes"]) == 1}

    def constants_at(factors: np.ndarray) -> Constants:
        fields: dict[str, Any] = {
            name: factor * getattr(START, name) for name, factor in zip(FITTED, factors, strict=False)
        }
        parts = dict(zip(START_SWITCHES, factors[len(FITTED) :], strict=True))
        fitted = {generation: part for generation, part in parts.items() if generation in reduced}
        return Constants(
            replace(START, **fields),
            {
                generation: switches._replace(
                    rate_part=switches.rate_part * parts[generation if generation in reduced else next(iter(fitted))]
                )
                for generation, switches in START_SWITCHES.items()
            },
        )

    def distances(factors: np.ndarray) -> np.ndarray:
        of_rows = np.tanh(np.log1p(errors_of(rows, constants_at(factors))) / FAR)
        return np.concatenate([of_rows, NEAR_START * np.log(factors)])

    start = np.ones(len(FITTED) + len(START_SWITCHES))
    return constants_at(least_squares(distances, start, bounds=(0.1, 10.0)).x)


def errors_of_machines_left_out(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the errors of each machine's rows, with constants fitted to the rows of all others."""
    return {
        machine: errors_of(
            [row for row in rows if row["machine"] == machine],
            fitted_constants([row for row in rows if row["machine"] != machine]),
        )
        for machine in dict.fromkeys(row["machine"] for row in rows)
    }
