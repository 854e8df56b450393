"""Intervals of one more measurement: closed form, outliers, coverage, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from syncline.costmodel.numerics.uncertainty import Uncertainty, known_uncertainty, uncertainties, uncertainty_of
from syncline.errors import SpecError


def test_it_is_students_interval_of_one_more() -> None:
    ratios = np.array([0.98, 1.03, 1.01, 0.97, 1.02])  # measured / predicted
    logs = np.log(ratios)
    reach = stats.t.ppf(0.95, 4) * logs.std(ddof=1) * np.sqrt(1 + 1 / 5)
    told = uncertainty_of(1 / ratios - 1, "five")
    assert (told.low, told.high) == pytest.approx(tuple(np.exp(logs.mean() + reach * np.array([-1, 1]))))
    assert (told.points, told.basis) == (5, "five")
    assert told.half_width == (told.high - told.low) / 2


def test_a_bias_widens_it_to_the_prediction_itself() -> None:
    told = uncertainty_of([0.3, 0.31, 0.29, 0.3])  # too slow, all of them
    assert told.high == 1 and 1 / 1.33 < told.low < 1 / 1.3


def test_an_outlier_among_many_does_not_decide() -> None:
    calm = [0.01, -0.01, 0.02, -0.02, 0.0, 0.015, -0.015, 0.005, -0.005]
    assert uncertainty_of([*calm, 3.0]).half_width < 2.5 * uncertainty_of(calm).half_width
    assert uncertainty_of([0.0] * 9).half_width == 0


@pytest.mark.parametrize("points", [4, 8, 12, 40])
def test_nine_of_ten_are_within(points: int) -> None:
    random = np.random.default_rng(points)
    hits = []
    for _ in range(400):
        *known, new = np.exp(random.normal(0.02, 0.05, points + 1))
        told = uncertainty_of(1 / np.array(known) - 1)
        hits.append(told.low <= new <= told.high)
    assert 0.86 < np.mean(hits) < 0.97


@given(st.lists(st.floats(-0.9, 9), min_size=2, max_size=30))
def test_a_prediction_is_always_within(errors: list[float]) -> None:
    told = uncertainty_of(errors)
    assert 0 < told.low <= 1 <= told.high


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: uncertainty_of([0.1]), "residuals: got 1; expected at least two"),
        (lambda: uncertainty_of([0.1, -1.0]), "residuals: got -1"),
        (lambda: Uncertainty(1.1, 1.2), r"uncertainty.low: got 1\.1; expected a factor above 0, at most 1"),
        (lambda: Uncertainty(0.9, 0.95), r"uncertainty.high: got 0\.95; expected a factor, at least 1"),
    ],
)
def test_what_cannot_be(call, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=f"^{said}"):
        call()


def test_the_nearest_basis_that_is_known_is_taken() -> None:
    basis = "nccl all_reduce, shaped"
    assert known_uncertainty(["nobody knows", basis, "nccl, all links"]) is uncertainties()[basis]


def test_a_basis_that_nobody_knows() -> None:
    with pytest.raises(KeyError, match="nobody knows"):
        known_uncertainty(["unheard of", "nobody knows"])
