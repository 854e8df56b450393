"""Published times of NCCL over NVLink: how far off the constants are, and where they come from."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from replication.nvlink_fit import (
    FITTED,
    errors_of,
    errors_of_machines_left_out,
    fitted_costs,
    nvlink_collectives,
)
from syncline.costmodel.collectives.nccl import GpuNodes, node_times, nvlink_s
from syncline.costmodel.network.software_costs import nvlink_costs
from syncline.measure.validation.published import BUNDLED_COSTS
from tests.reference import REFERENCE, needs_reference

ROWS = nvlink_collectives()
BYTES = np.array([float(row["bytes"]) for row in ROWS])
BANDS = {
    "small": (BYTES < 2**20, 0.15),
    "middle": ((BYTES >= 2**23) & (BYTES < 2**28), 0.08),
    "large": (BYTES >= 2**28, 0.03),
}


@pytest.mark.parametrize("band", BANDS)
def test_median_errors(band) -> None:
    chosen, most = BANDS[band]
    assert np.median(np.abs(errors_of(ROWS)[chosen])) < most


def test_the_constants_are_those_of_the_fit() -> None:
    fit = fitted_costs(ROWS)
    for name in FITTED:
        assert getattr(BUNDLED_COSTS, name) == pytest.approx(getattr(fit, name), rel=0.03), name


def test_machines_left_out() -> None:
    """The bounds rest on these errors: a machine whose rows no constant saw."""
    by_machine = {machine: iter(errors) for machine, errors in errors_of_machines_left_out(ROWS).items()}
    errors = np.abs([next(by_machine[row["machine"]]) for row in ROWS])
    for band, most in {"small": 0.3, "middle": 0.15, "large": 0.05}.items():
        assert np.median(errors[BANDS[band][0]]) < most, band
    assert np.quantile(errors, 0.9) < 0.3


def test_all_reduces_of_a100_that_no_constant_saw() -> None:
    """vTrain's times among 8 and 4 A100, which are not among the rows of the fit."""
    for gpus in (8, 4):
        sizes, seconds = (np.asarray(values) for values in node_times("a100")[gpus])
        nodes = GpuNodes(gpus, 1, 300e9, np.inf, 0.0, nvlink_costs(3))
        errors = np.abs(nvlink_s("all_reduce", sizes, nodes) / seconds - 1)
        assert np.median(errors[sizes >= 2**28]) < 0.03
        assert np.median(errors[(sizes >= 2**23) & (sizes < 2**28)]) < 0.05


@needs_reference
def test_the_rows_are_the_published_ones() -> None:
    with (REFERENCE / "modern" / "nccl_modern.csv").open() as file:
        published = [(row["collective"], float(row["bytes"]), float(row["time_us"])) for row in csv.DictReader(file)]
    assert published == [(row["collective"], float(row["bytes"]), float(row["time_us"])) for row in ROWS]
