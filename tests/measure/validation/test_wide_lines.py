"""Bounds of times on lines between places: what they rest on, and how many measurements of other groups they cover."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from syncline.costmodel import HivemindCosts
from syncline.costmodel.bases import WIDE_LINES, communication_uncertainty
from syncline.costmodel.numerics.uncertainty import uncertainties, uncertainty_of
from syncline.specs.cluster.networks import network
from tests.measure.validation.wide_lines import (
    averaging_errors,
    covered,
    pair_errors,
    read,
    stream_errors,
    wide_line_errors,
    zone_costs,
)
from tests.reference import REFERENCE, needs_reference


def median(errors):
    return float(np.median([abs(error.error) for error in errors]))


def test_medians_of_each_group_by_constants_of_the_others():
    averagings = averaging_errors()
    zone = [error for error in averagings if error.group.startswith("A")]
    between = [error for error in averagings if error.group.startswith("B")]
    assert (len(zone), len(between), len(stream_errors())) == (10, 8, 5)
    assert median(zone) < 0.05 and median(between) < 0.08
    assert median(stream_errors()) < 0.015 and median(pair_errors()) < 0.10
    assert max(abs(error.error) for error in zone) < 0.12 and max(abs(error.error) for error in between) < 0.28


def test_the_costs_of_hivemind_are_fitted_to_the_zone():
    fitted, kept = zone_costs([row for row in read("seconds") if row["id"].startswith("A")]), HivemindCosts()
    for name in ("call_s", "peer_s", "byte_s"):
        assert getattr(kept, name) == pytest.approx(getattr(fitted, name), rel=0.02)


def test_bounds_cover_groups_that_they_do_not_come_from():
    errors = wide_line_errors()
    assert 0.80 <= covered(errors, uncertainty_of) <= 0.97


def test_the_table_has_the_bounds_of_these_errors():
    computed, kept = uncertainty_of([error.error for error in wide_line_errors()]), uncertainties()[WIDE_LINES]
    assert (kept.points, kept.low, kept.high) == (
        computed.points, pytest.approx(computed.low, abs=1e-4), pytest.approx(computed.high, abs=1e-4)
    )  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"hivemind": True}])
def test_times_on_a_matrix_have_these_bounds(fields):
    places = {"kind": "matrix", "places": ["a", "b"], "bandwidth": [[None, 1e7], [1e7, None]]}
    made = network({**places, "rtt": [[None, "90 ms"], ["90 ms", None]], **fields})
    for algorithm in ("auto", None, "ordered-ring", "direct"):
        assert communication_uncertainty(made, algorithm).basis == WIDE_LINES


@needs_reference
def test_the_rows_are_those_of_the_extract():
    with (REFERENCE / "wan" / "rows.csv").open(encoding="utf-8", newline="") as file:
        shared = {row["id"]: row for row in csv.DictReader(file)}
    for row in read("seconds"):
        assert shared[f"hmc-{row['id']}-avg"]["value"] == row["value"]
    for row in read("gbit_s"):
        assert shared[f"hmc-{row['id']}"]["value"] == row["value"]
