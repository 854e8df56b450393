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


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 21, 200])
def test_its_reach_is_students_quantile(count: int) -> None:
    residuals = np.where(np.arange(count) < 1, 1.0, 0.0) / 100
    told = uncertainty_of(np.exp(residuals) - 1, "", [str(number) for number in range(count)])
    degrees = count if count > 2 else residuals.size
    reach = stats.t.ppf(0.95, degrees - 1) * residuals.std(ddof=1) * np.sqrt(1 + 1 / count)
    assert np.log(told.low) == pytest.approx(-residuals.mean() - reach, rel=1e-12)


def test_a_bias_widens_it_to_the_prediction_itself() -> None:
    told = uncertainty_of([0.3, 0.31, 0.29, 0.3])  # too slow, all of them
    assert told.high == 1 and 1 / 1.33 < told.low < 1 / 1.3


def test_rows_of_one_source_count_as_one() -> None:
    """K sources without spread within: Student's interval of their means, however many rows each has."""
    means = np.array([0.1, -0.2, 0.05, 0.3])
    few = uncertainty_of(np.exp(-np.repeat(means, 2)) - 1, "few", np.repeat(list("abcd"), 2).tolist())
    counts = [2, 40, 3, 7]
    many = uncertainty_of(np.exp(-np.repeat(means, counts)) - 1, "many", np.repeat(list("abcd"), counts).tolist())
    reach = stats.t.ppf(0.95, 3) * means.std(ddof=1) * np.sqrt(1 + 1 / 4)
    expected = np.exp(means.mean() + reach * np.array([-1, 1]))
    assert (few.low, few.high) == pytest.approx(tuple(expected)) == (many.low, many.high)
    assert (few.sources, few.points) == (4, 8)


def test_the_spread_within_sources_widens() -> None:
    residuals, names = [-0.1, 0.1, -0.3, 0.3, 0.0, 0.0], list("aabbcc")
    bounds = uncertainty_of(np.exp(-np.array(residuals)) - 1, "equal means", names)
    reach = stats.t.ppf(0.95, 2) * np.sqrt((0.01 + 0.09 + 0) / 3)
    assert bounds.high == pytest.approx(np.exp(reach)) == pytest.approx(1 / bounds.low)


@pytest.mark.parametrize("sources", [3, 5, 8])
def test_nine_of_ten_rows_of_another_source_are_within(sources: int) -> None:
    random = np.random.default_rng(sources)
    hits = []
    for _ in range(400):
        means = random.normal(0.1, 0.3, sources + 1)
        rows = np.exp(random.normal(means[:-1, None], 0.1, (sources, 10)))
        bounds = uncertainty_of(1 / rows.ravel() - 1, "", np.repeat(range(sources), 10).astype(str).tolist())
        new = np.exp(random.normal(means[-1], 0.1, 5))
        hits.append(np.mean((bounds.low <= new) & (new <= bounds.high)))
    assert 0.86 < np.mean(hits) < 0.97


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
