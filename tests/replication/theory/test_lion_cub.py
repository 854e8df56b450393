"""Lion Cub's votes and quantisers, against enumerations, draws and the quantisers themselves."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from replication.theory import (
    mean_size,
    packed_vote_s,
    packing_break_even,
    quantiser_error,
    speedup_limit,
    vote_against_sum,
    vote_shares,
)
from replication.theory.votes import vote_bits_per_parameter, vote_s
from syncline.costmodel import Link
from syncline.errors import SpecError
from syncline.optim import quantise_lp

LAWS = ("laplace", "gaussian")


def draws(law, shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.laplace(size=shape) if law == "laplace" else rng.normal(size=shape)


@given(st.integers(1, 9), st.floats(0, 1))
def test_shares_are_those_of_all_votes_there_can_be(workers, right):
    found = {1: 0.0, -1: 0.0, 0: 0.0}
    for votes in product((1, -1), repeat=workers):
        found[int(np.sign(sum(votes)))] += np.prod([right if vote == 1 else 1 - right for vote in votes])
    assert vote_shares(workers, right) == pytest.approx((found[1], found[-1], found[0]), abs=1e-12)


@cache
def first_to(many, few):
    """The race behind exponential sizes: which of two Poisson streams, with coins, has so many first; exactly.

    ``few`` sizes end before ``many`` do where their stream gets ``few`` coins before the other gets ``many``.
    """
    if few == 0:
        return Fraction(1)
    if many == 0:
        return Fraction(0)
    return (first_to(many - 1, few) + first_to(many, few - 1)) / 2


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8, 15])
def test_laplace_votes_are_a_race_of_coins(workers):
    pluses = [Fraction(comb(workers, k), 2**workers) for k in range(workers + 1)]
    kept = sum(2 * pluses[k] * first_to(k, workers - k) for k in range(workers // 2 + 1, workers + 1))
    shares = vote_against_sum(workers, "laplace")
    assert float(shares.kept) == pytest.approx(float(kept), rel=1e-12)
    assert float(sum(shares)) == pytest.approx(1)
    assert shares.tied == pytest.approx(float(vote_shares(workers).tied), abs=1e-9)


def test_three_gaussian_votes_are_a_solid_angle():
    """One size outweighs two others where a direction of the octant lies beyond the plane z = x + y.

    That is a spherical triangle with corners at the z axis and halfway from it to the two others.
    """
    corners = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1]]) / np.sqrt([[1], [2], [2]])
    a, b, c = corners
    angle = 2 * np.arctan2(abs(np.linalg.det(corners)), 1 + a @ b + b @ c + c @ a)
    lost = 3 / 4 * angle / (np.pi / 2)  # of three votes two to one, and that the one outweighs
    assert vote_against_sum(3, "gaussian").flipped == pytest.approx(lost, abs=1e-9)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_majorities_of_draws(law, workers):
    """Within five standard errors of a share."""
    x = draws(law, (workers, 200_000))
    agreed = np.sign(np.sign(x).sum(0)) * np.sign(x.sum(0))
    shares = vote_against_sum(workers, law)
    for share, sign in zip(shares, (1, -1, 0), strict=True):
        assert (agreed == sign).mean() == pytest.approx(float(share), abs=5 * 0.5 / 200_000**0.5)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 1.0, 2.0, 4.0])
def test_mean_sizes_of_draws(law, p):
    size = np.abs(draws(law, 400_000))
    found = np.exp(np.log(size).mean()) if p == 0 else (size**p).mean() ** (1 / p)
    assert mean_size(p, law) == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize("law", LAWS)
def test_the_largest_of_many_draws(law):
    """The mean of 2,000 maxima, within five standard errors; of one entry it is the mean size."""
    largest = np.abs(draws(law, (2000, 500))).max(1)
    assert mean_size(np.inf, law, 500) == pytest.approx(largest.mean(), abs=5 * largest.std() / 2000**0.5)
    assert mean_size(np.inf, law, 1) == pytest.approx(mean_size(1, law), rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_small_p_is_the_geometric_mean(law):
    assert mean_size(1e-6, law) == pytest.approx(mean_size(0, law), rel=1e-5)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("p", [0.5, 1.0, 2.0])
def test_errors_are_those_of_the_quantiser_that_trainings_use(law, p):
    """Equation 1 on a tensor whose own M_p is its law's, to a percent of a draw of 400,000."""
    x = torch.from_numpy(draws(law, (1, 400_000)))
    levels, step = 15, 2 * mean_size(p, law) / 15
    integers = quantise_lp(x, levels, p).double()
    error = quantiser_error(levels, step, law)
    assert float((integers == 0).double().mean()) == pytest.approx(float(error.zero), rel=0.03)
    assert float((x.abs() > (levels + 0.5) * step).double().mean()) == pytest.approx(float(error.clipped), rel=0.03)
    squared = (x - step * integers).square().mean() / x.square().mean()
    assert float(squared) == pytest.approx(float(error.squared), rel=0.03)


@pytest.mark.parametrize("law", LAWS)
def test_limits_of_the_step(law):
    """Steps that are wide round everything to zero, those without number of levels err by a twelfth of their square."""
    variance = {"laplace": 2.0, "gaussian": 1.0}[law]
    assert quantiser_error(1, 1e3, law) == pytest.approx((1.0, 0.0, 1.0))
    fine = quantiser_error(2000, 0.02, law)
    assert fine.squared == pytest.approx(0.02**2 / 12 / variance, rel=1e-3)
    assert quantiser_error(3, 1e-9, law).squared == pytest.approx(1, rel=1e-6)  # all is cut off


def test_a_quantiser_s_knobs_are_checked():
    with pytest.raises(SpecError, match="law: got 'cauchy'"):
        quantiser_error(15, 0.1, "cauchy")
    with pytest.raises(SpecError, match="step: got 0"):
        quantiser_error(15, 0.0, "laplace")
    with pytest.raises(SpecError, match="levels: got 0"):
        quantiser_error(0, 0.1, "laplace")
    with pytest.raises(SpecError, match="p: got -1"):
        mean_size(-1, "laplace")
    with pytest.raises(SpecError, match="entries: got 0"):
        mean_size(1, "laplace", 0)
    with pytest.raises(SpecError, match="workers: got 0"):
        vote_shares(0)
    with pytest.raises(SpecError, match="right: got 2"):
        vote_shares(3, 2)


def test_the_time_of_a_vote_is_table_1_s_without_latency_and_packing():
    link = Link(0.0, 1e9)
    for how in ("direct", "one-bit"):
        bits = vote_bits_per_parameter(how, 8)
        assert packed_vote_s(bits, 1e8, 8e9) == pytest.approx(float(vote_s(how, 8, 1e8, link)))
    with pytest.raises(SpecError, match="bits_per_s: got 0"):
        packed_vote_s(1, 1, 0.0)


@given(st.floats(2, 60), st.floats(0.5, 1.9), st.floats(0, 1e-9), st.floats(1e-12, 1e-9))
def test_both_take_as_long_at_the_break_even(more, fewer, packing, extra):
    at = packing_break_even(more, fewer, packing, packing + extra)
    times = [packed_vote_s(w, 1e8, at, h) for w, h in ((more, packing), (fewer, packing + extra))]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert packed_vote_s(fewer, 1, at / 2, packing + extra) < packed_vote_s(more, 1, at / 2, packing)
    assert np.isinf(packing_break_even(more, fewer, packing, packing))


def test_a_step_s_speedup_has_its_communication_s_limit():
    """Communication that takes three quarters leaves one: four times."""
    assert speedup_limit(0.75) == 4
    assert speedup_limit(0.0) == 1
    with pytest.raises(SpecError, match="communication_share: got 1"):
        speedup_limit(1.0)
