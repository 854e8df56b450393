from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replication.studies.draws import log_normal
from syncline.errors import SpecError
from syncline.problems.random_draws import gaussian, laplace, stable, torch_generator

NUMBER = 100_000
LAWS = {
    "gaussian": gaussian(1.0),
    "laplace": laplace(1.0),
    "log-normal": log_normal(1.5),
    "stable 2": stable(2.0),
    "stable 1.5": stable(1.5),
    "cauchy": stable(1.0),
    "stable 0.5": stable(0.5),
}
by_law = pytest.mark.parametrize("law", LAWS)

# The value that a draw is below with the probability q above one half, by the formula of each distribution function.
QUANTILES = {
    "gaussian": lambda q: NormalDist().inv_cdf(q),
    "laplace": lambda q: -math.log(2 * (1 - q)),
    "log-normal": lambda q: math.exp(1.5 * NormalDist().inv_cdf(2 * q - 1)),  # of the magnitude: half of the rest
    "stable 2": lambda q: math.sqrt(2) * NormalDist().inv_cdf(q),
    "cauchy": lambda q: math.tan(math.pi * (q - 0.5)),
}


def draws(law, seed=0):
    return LAWS[law](torch_generator(seed, "draws"), (NUMBER,))


@pytest.mark.parametrize("law", QUANTILES)
@pytest.mark.parametrize("probability", [0.55, 0.75, 0.9, 0.99, 0.999])
def test_as_many_draws_are_below_a_quantile_as_should_be(law, probability):
    quantile, x = QUANTILES[law](probability), draws(law)
    standard_error = math.sqrt(probability * (1 - probability) / NUMBER)
    assert abs((x < quantile).double().mean() - probability) < 4.5 * standard_error
    assert abs((x > -quantile).double().mean() - probability) < 4.5 * standard_error


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.9, 1.0, 1.1, 1.5, 1.9, 2.0])
@pytest.mark.parametrize("t", [0.1, 0.7, 1.0, 2.5])
def test_stable_draws_have_their_characteristic_function(alpha, t):
    def expected(t):
        return math.exp(-(t**alpha))

    x = stable(alpha)(torch_generator(1, "draws"), (NUMBER,))
    real, imaginary = torch.cos(t * x).mean(), torch.sin(t * x).mean()
    # cos^2 = (1 + cos 2tx) / 2 and sin^2 = (1 - cos 2tx) / 2
    variance = (1 + expected(2 * t)) / 2 - expected(t) ** 2
    assert abs(real - expected(t)) < 4.5 * math.sqrt(variance / NUMBER)
    assert abs(imaginary) < 4.5 * math.sqrt((1 - expected(2 * t)) / 2 / NUMBER)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
def test_stable_tails_fall_by_their_power(alpha):
    # P(|S| > x) approaches 2 Gamma(alpha) sin(pi alpha / 2) / pi * x^-alpha; here about one draw in 1000 is larger.
    constant = 2 * math.gamma(alpha) * math.sin(math.pi * alpha / 2) / math.pi
    beyond = (constant / 1e-3) ** (1 / alpha)
    counted = (stable(alpha)(torch_generator(2, "draws"), (NUMBER,)).abs() > beyond).sum()
    assert abs(counted - 1e-3 * NUMBER) < 4.5 * math.sqrt(1e-3 * NUMBER) + 0.05 * 1e-3 * NUMBER


@by_law
def test_a_stream_gives_the_same_bits_again_and_another_one_others(law):
    assert torch.equal(draws(law), draws(law))
    assert (draws(law) != draws(law, seed=1)).double().mean() > 0.999
    assert draws(law).dtype == torch.float64
    assert LAWS[law](torch_generator(0, "draws"), (2, 3, 4)).shape == (2, 3, 4)


@pytest.mark.parametrize("make", [laplace, lambda s: log_normal(1.0, s), lambda s: stable(1.5, s)])
def test_the_scale_multiplies(make):
    one, three = (make(scale)(torch_generator(0, "draws"), (100,)) for scale in (1.0, 3.0))
    torch.testing.assert_close(three, 3 * one, rtol=1e-15, atol=0)


@given(alpha=st.floats(0.1, 2.0), seed=st.integers(0, 2**32))
def test_stable_draws_are_finite(alpha, seed):
    assert stable(alpha)(torch.Generator().manual_seed(seed), (1000,)).isfinite().all()


def test_indices_near_one_go_over_into_cauchy():
    near, cauchy = (stable(alpha)(torch_generator(0, "draws"), (1000,)) for alpha in (1 + 1e-9, 1.0))
    torch.testing.assert_close(near, cauchy, rtol=1e-6, atol=0)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 2.1, math.nan])
def test_an_index_that_cannot_be_is_refused(alpha):
    with pytest.raises(SpecError, match=r"^alpha: got .*; expected a number above 0"):
        stable(alpha)
