"""The measured end of a curve of ratios limits gains; bounds grow with the distance as the data say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.growth import growth_exponent
from syncline.costmodel.scaling.measured_end import (
    CURVES,
    ExtrapolationError,
    end_of,
    fitted_curve,
    measured_end,
    measured_ratios,
)
from syncline.costmodel.scaling.predict import TrainingAtScale, predicted_loss, tokens_for_loss
from syncline.costmodel.scaling.relative import law_factors, relative_loss, token_factor, tokens_for_equal_loss


def ratio(method: str, parameters: float, replicas: float, period: float) -> float:
    trained = TrainingAtScale(method, parameters, 20 * parameters, replicas, period)
    return relative_loss(trained, extrapolate=True).ratio


def test_the_end_is_the_mean_of_the_two_largest_models() -> None:
    """Table 5 of Charles et al.: 2.220 over 2.224 at 4B and 2.086 over 2.090 at 10B with two replicas."""
    by_hand = np.sqrt(2.220 / 2.224 * 2.086 / 2.090)
    assert ratio("diloco", 10e9, 2, 30) == pytest.approx(by_hand)
    assert ratio("diloco", 100e9, 2, 30) == pytest.approx(by_hand)
    made_up = law_factors(by_hand, 4e9, 80e9)
    assert made_up is not None and made_up[0] == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize(("family", "method"), CURVES)
@given(st.floats(7.5, 12.0), st.floats(1.0, 16.0), st.floats(5.0, 400.0))
def test_no_setting_gains_more_than_the_most_that_was_measured(
    family: str, method: str, log_size: float, replicas: float, period: float
) -> None:
    end = measured_end(family, method)
    assert end is not None
    assert ratio(method, 10**log_size, replicas, period) >= np.exp(end.logs.min()) * (1 - 1e-12)


@given(st.floats(1e8, 1e11), st.floats(1.001, 2.0), st.sampled_from([1, 2, 3, 4, 8]))
def test_losses_fall_as_models_grow_although_gains_end(parameters: float, factor: float, replicas: int) -> None:
    """The limit of the gain is continuous and keeps the loss monotonic, which inverse questions rely on."""
    small, large = (
        predicted_loss(TrainingAtScale("diloco", size, replicas=replicas), extrapolate=True).loss
        for size in (parameters, parameters * factor)
    )
    assert large < small


def test_the_end_is_between_its_neighbours_and_costs_as_the_law_says_above() -> None:
    end = end_of(measured_ratios("charles-2025", "diloco"))
    at = [end.ratio({"replicas": m, "period": 30.0}, {"replicas": 0.0116}) for m in (0.5, 1, 2, 3, 4, 8, 16)]
    assert at[0] == at[1] < at[2] < at[3] < at[4] < at[5]
    assert at[6] / at[5] == pytest.approx(2**0.0116)
    streaming = end_of(measured_ratios("douillard-2025", "streaming-diloco"))
    periods = [streaming.ratio({"replicas": 2.0, "period": h}, {"period": 0.0074}) for h in (10, 30, 60, 100, 1000)]
    assert periods[0] == periods[1] < periods[2] < periods[3]
    assert periods[4] / periods[3] == pytest.approx(10**0.0074)


def test_small_models_are_as_the_law_says() -> None:
    answer = predicted_loss(TrainingAtScale("diloco", 550e6, replicas=4))
    assert answer.gain_limit is None
    assert answer.loss == pytest.approx(19.226 * 550e6**-0.0985 * 4**0.0116)
    large = predicted_loss(TrainingAtScale("diloco", 10e9, replicas=2), extrapolate=True)
    assert large.gain_limit is not None and "Charles et al., Table 4 and Table 5" in large.gain_limit
    assert large.gain_limit in large.basis


def test_bounds_of_ratios_widen_with_the_distance() -> None:
    trainings = (TrainingAtScale("diloco", size, replicas=2) for size in (2e9, 4e9, 10e9, 100e9))
    estimates = [relative_loss(trained, extrapolate=True) for trained in trainings]
    widths = [estimate.high / estimate.low for estimate in estimates if estimate.low and estimate.high]
    assert len(widths) == 4 and all(a < b for a, b in pairwise(widths))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_power_of_growing_errors_is_found(power: float) -> None:
    draws = np.random.default_rng(0)
    folds = draws.uniform(0.3, 4.0, 4000)
    errors = [
        ExtrapolationError(float(e * d**power), float(d)) for e, d in zip(draws.normal(size=4000), folds, strict=True)
    ]
    found, less_likely = growth_exponent(errors)
    assert found == pytest.approx(power, abs=0.05)
    assert min(less_likely, key=less_likely.__getitem__) == power


def test_fits_to_small_models_see_no_large_ones() -> None:
    curve = fitted_curve("charles-2025", "diloco", 1.3e9)
    assert curve.ratio({"parameters": 1e12, "replicas": 2.0, "period": 30.0}) == pytest.approx(
        np.sqrt(2.657 / 2.653 * 2.464 / 2.460)
    )


@given(st.floats(1e9, 1e11), st.sampled_from([2, 4, 8]), st.floats(10.0, 60.0))
def test_the_token_factor_leads_to_the_loss_of_data_parallelism(
    parameters: float, replicas: int, per_parameter: float
) -> None:
    tokens = per_parameter * parameters
    needed = token_factor(TrainingAtScale("diloco", parameters, tokens, replicas), extrapolate=True)
    base = predicted_loss(TrainingAtScale("ddp-adam", parameters, tokens), extrapolate=True)
    assert needed is not None
    trained = TrainingAtScale("diloco", parameters, tokens * needed.factor, replicas)
    assert predicted_loss(trained, extrapolate=True).loss == pytest.approx(base.loss, rel=1e-9)


def test_a_target_takes_the_same_factor_whatever_asks() -> None:
    """On the scale of data parallelism's fit: also for methods whose fits are of another paper."""
    asked = TrainingAtScale("streaming-diloco", 7e9, None, 2, 100)
    reached, needed = tokens_for_equal_loss(2.1, asked, extrapolate=True)
    base = tokens_for_loss(2.1, TrainingAtScale("ddp-adam", 7e9), extrapolate=True)
    assert reached.value == pytest.approx(base.value * needed.factor)
    same = token_factor(TrainingAtScale("streaming-diloco", 7e9, base.value, 2, 100), extrapolate=True)
    assert same is not None and same.factor == needed.factor
    assert reached.low is not None and reached.high is not None
    assert reached.low / base.value < needed.factor < reached.high / base.value
    alone, one = tokens_for_equal_loss(2.1, TrainingAtScale("ddp-adam", 7e9), extrapolate=True)
    assert (alone.value, alone.low, one.factor) == (base.value, pytest.approx(base.low), 1.0)
