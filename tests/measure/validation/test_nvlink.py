"""Published times of NCCL over NVLink: how far off the constants are, and where they come from."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from syncline.measure.validation.published import (
    BUNDLED_CONSTANTS,
    FITTED,
    errors_of,
    errors_of_machines_left_out,
    fitted_constants,
    nvlink_collectives,
)
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
    fit = fitted_constants(ROWS)
    for name in FITTED:
        assert getattr(BUNDLED_CONSTANTS.costs, name) == pytest.approx(getattr(fit.costs, name), rel=0.03), name
    for generation, switches in BUNDLED_CONSTANTS.switches.items():
        assert switches.rate_part == pytest.approx(fit.switches[generation].rate_part, rel=0.02)


def test_machines_left_out() -> None:
    """The bounds rest on these errors: a machine whose rows no constant saw."""
    errors = errors_of_machines_left_out(ROWS)
    together = np.abs(np.concatenate(list(errors.values())))
    assert np.median(together) < 0.15 and np.quantile(together, 0.9) < 0.45


@needs_reference
def test_the_rows_are_the_published_ones() -> None:
    with (REFERENCE / "modern" / "nccl_modern.csv").open() as file:
        published = [(row["collective"], float(row["bytes"]), float(row["time_us"])) for row in csv.DictReader(file)]
    assert published == [(row["collective"], float(row["bytes"]), float(row["time_us"])) for row in ROWS]
