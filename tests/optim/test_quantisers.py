"""Quantisers: means between the geometric one and the maximum, integers in their range, unbiasedness where claimed."""

import math

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from replication.studies.quantisers.logarithms import log_quantise, log_restore, without_zeros
from syncline.costmodel.traffic.packing import sum_levels
from syncline.errors import SpecError
from syncline.optim import (
    power_mean,
    qsgd,
    quantise_lp,
    quantise_max,
    sign_agreement,
)

ROWS = arrays.arrays(np.float64, (3, 7), elements=st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-30))
EXPONENTS = st.sampled_from([0.01, 0.5, 1.0, 2.0, 10.0, math.inf])
LEVELS = st.integers(1, 127)

X = torch.tensor([[0.3, -1.0, 0.0, 2.5], [4.0, -0.1, 0.2, 1e-3]], dtype=torch.float64)

QUANTISERS = {
    "geometric": lambda x, s, u: quantise_lp(x, s, 0.0),
    "mean": lambda x, s, u: quantise_lp(x, s, 1.0),
    "half of the maximum": lambda x, s, u: quantise_lp(x, s, math.inf),
    "stochastic": quantise_max,
    "octaves": lambda x, s, u: log_quantise(x, s),
    "euclidean": lambda x, s, u: qsgd(x, s, u)[0],
    "ternary": lambda x, s, u: x.sign(),
}
SYMMETRIC = [name for name in QUANTISERS if name not in ("stochastic", "euclidean")]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8, 125])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_levels_are_the_largest_whose_sum_fits(bits, workers):
    s = sum_levels(bits, workers)
    assert 2 * workers * s <= 2**bits - 1 < 2 * workers * (s + 1)


def test_too_many_workers_for_the_width_are_told_which_would_do():
    assert sum_levels(8, 127) == 1
    with pytest.raises(SpecError, match="at least 9 for sums over 128 workers"):
        sum_levels(8, 128)
    assert sum_levels(9, 128) == 1


def test_power_means_of_two_numbers():
    x = torch.tensor([[1.0, -4.0]], dtype=torch.float64)
    expected = {0.0: 2.0, 0.5: 2.25, 1.0: 2.5, 2.0: math.sqrt(8.5), math.inf: 4.0}
    for p, mean in expected.items():
        assert power_mean(x, p).item() == pytest.approx(mean, rel=1e-12)


@given(ROWS, st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_power_means_rise_with_p(x, p, q):
    x = torch.from_numpy(np.where(x == 0, 1.0, x))
    low, high = power_mean(x, min(p, q)), power_mean(x, max(p, q))
    assert (low <= high * (1 + 1e-9)).all()
    assert (high <= x.abs().amax(1, keepdim=True) * (1 + 1e-12)).all()


@given(ROWS)
def test_power_means_tend_to_the_geometric_mean_and_to_the_maximum(x):
    x = torch.from_numpy(np.where(x == 0, 1.0, x))
    # To first order in p the mean is off by p / 2 times the variance of the logarithms, here below 70^2.
    assert_close(power_mean(x, 1e-9), power_mean(x, 0.0), rtol=1e-5, atol=0)
    assert_close(power_mean(x, 1e9), x.abs().amax(1, keepdim=True), rtol=1e-8, atol=0)


def test_zeros_count_for_every_p_but_the_geometric_mean():
    x = torch.tensor([[0.0, 0.0, 9.0, 1.0]], dtype=torch.float64)
    assert power_mean(x, 0.0).item() == pytest.approx(3.0)
    assert power_mean(x, 1.0).item() == pytest.approx(2.5)
    assert power_mean(x, 0.01).item() == pytest.approx(((9**0.01 + 1) / 4) ** 100)


@pytest.mark.parametrize("p", [1e-6, 0.01, 1.0, 10.0])
def test_power_means_of_huge_and_tiny_numbers_in_single_precision(p):
    x = torch.tensor([[3e38, 3e38, 3e38], [1e-37, 1e-37, 1e-37]])
    assert_close(power_mean(x, p), x[:, :1], rtol=1e-4, atol=0)


@pytest.mark.parametrize("p", [-1.0, math.nan])
def test_no_mean_without_an_exponent(p):
    with pytest.raises(SpecError, match="p"):
        power_mean(X, p)


def test_lp_of_a_row_by_hand():
    # The mean of [1, 2, 9] is 4: 15 / 8 of each is 1.875, 3.75, 16.875.
    assert quantise_lp(torch.tensor([[1.0, -2.0, 9.0]]), 15, 1.0).tolist() == [[2.0, -4.0, 15.0]]
    # Their geometric mean is the cube root of 18.
    scaled = [15 * v / (2 * 18 ** (1 / 3)) for v in (1, 2, 9)]
    assert quantise_lp(torch.tensor([[1.0, -2.0, 9.0]]), 15, 0.0).tolist() == [
        [round(scaled[0]), -round(scaled[1]), 15]
    ]
    # Equation 1 at p = inf leaves half of the range: the maximum becomes 7.5, rounded to even.
    assert quantise_lp(torch.tensor([[1.0, -2.0, 9.0]]), 15, math.inf).tolist() == [[1.0, -2.0, 8.0]]


@given(ROWS, LEVELS, EXPONENTS, st.floats(0, 1, exclude_max=True))
def test_integers_stay_in_the_range_and_zero_stays_zero(x, levels, p, u):
    x = torch.from_numpy(x)
    for quantise in (lambda x, s, u: quantise_lp(x, s, p), *QUANTISERS.values()):
        q = quantise(x, levels, torch.full_like(x, u))
        assert (q == q.round()).all() and (q.abs() <= levels).all() and (q[x == 0] == 0).all()
        assert (q * x.sign() >= 0).all()


@pytest.mark.parametrize("name", QUANTISERS)
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_largest_single_precision_number_below_one_does_not_leave_the_range(name, uniform):
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    q = QUANTISERS[name](x, 127, torch.full_like(x, uniform))
    assert q.abs().max() <= 127 and (q == q.round()).all()


@pytest.mark.parametrize("name", SYMMETRIC)
@given(x=ROWS, levels=LEVELS)
def test_a_mirrored_tensor_gives_mirrored_integers(name, x, levels):
    x = torch.from_numpy(x)
    assert torch.equal(QUANTISERS[name](-x, levels, None), -QUANTISERS[name](x, levels, None))


@given(ROWS, LEVELS, st.integers(-40, 40))
def test_a_power_of_two_changes_nothing(x, levels, octaves):
    x, u = torch.from_numpy(x), torch.full((3, 7), 0.37, dtype=torch.float64)
    for name in ("half of the maximum", "stochastic", "ternary"):
        assert torch.equal(QUANTISERS[name](x * 2.0**octaves, levels, u), QUANTISERS[name](x, levels, u))


@pytest.mark.parametrize("name", QUANTISERS)
def test_neither_does_any_other_scale_nor_another_row(name):
    x = torch.randn(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u = torch.rand(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    q = QUANTISERS[name](x, 15, u)
    assert torch.equal(QUANTISERS[name](x * torch.tensor([[0.3], [7e-9], [1e12]]), 15, u), q)
    assert torch.equal(QUANTISERS[name](x[1:2], 15, u[1:2]), q[1:2])


@given(arrays.arrays(np.float64, 9, elements=st.floats(-1e6, 1e6)), EXPONENTS)
def test_larger_entries_get_no_smaller_integers(x, p):
    x = torch.from_numpy(np.sort(x)).unsqueeze(0)
    for q in (quantise_lp(x, 15, p), quantise_max(x, 15, torch.full_like(x, 0.5)), log_quantise(x, 15)):
        assert (q.diff() >= 0).all()


def test_a_smaller_p_leaves_fewer_zeros_and_cuts_off_more():
    x = torch.randn(1, 4096, generator=torch.Generator().manual_seed(3)) ** 3
    zeros, full = [], []
    for p in (0.0, 0.5, 1.0, 2.0, math.inf):
        q = quantise_lp(x, 15, p)
        zeros.append(int((q == 0).sum()))
        full.append(int((q.abs() == 15).sum()))
    assert zeros == sorted(zeros) and full == sorted(full, reverse=True)
    assert zeros[0] < zeros[-1] and full[0] > full[-1] == 0


@pytest.mark.parametrize(("quantise", "scale"), [
    (quantise_max, lambda x: 15 / x.abs().amax(1, keepdim=True)),
    (lambda x, s, u: qsgd(x, s, u)[0], lambda x: 15 / x.norm(dim=1, keepdim=True)),
])  # fmt: skip
def test_stochastic_rounding_is_unbiased(quantise, scale):
    # One of the two neighbours: the upper one for the share of the uniforms that the fraction is.
    grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    wanted = X * scale(X)
    assert_close(_mean_over(quantise, grid.repeat_interleave(4).reshape(-1, 1, 4)), wanted, rtol=0, atol=1 / 4000)
    low, high = quantise(X, 15, torch.zeros_like(X)), quantise(X, 15, torch.full_like(X, 1 - 1e-12))
    assert torch.equal(low, wanted.floor())
    assert torch.equal(high - low, (wanted % 1 > 1e-9).double())
    # The same with random numbers, within five standard errors of 1 / (2 sqrt(n)) each at most.
    u = torch.rand(20_000, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    assert_close(_mean_over(quantise, u), wanted, rtol=0, atol=2.5 / math.sqrt(20_000))


def _mean_over(quantise, uniform):
    """The mean of what X becomes, over uniforms ``(n, 1 or 2, 4)``."""
    n = uniform.shape[0]
    return quantise(X.repeat(n, 1), 15, uniform.expand(n, 2, 4).reshape(-1, 4)).reshape(n, 2, 4).mean(0)


def test_qsgd_has_the_norm_beside_its_integers():
    integers, norm = qsgd(torch.tensor([[3.0, -4.0, 0.0]]), 5, torch.full((1, 3), 0.5))
    assert integers.tolist() == [[3.0, -4.0, 0.0]]
    assert norm.shape == (1, 1) and norm.item() == pytest.approx(5.0)


def test_octaves_and_what_they_stand_for():
    x = torch.tensor([[8.0, -4.0, 2.2, 1.0, 0.1, 0.0]])
    q = log_quantise(x, 4)
    assert q.tolist() == [[4.0, -3.0, 2.0, 1.0, 0.0, 0.0]]
    assert (8 * log_restore(q, 4)).tolist() == [[8.0, -4.0, 2.0, 1.0, 0.0, 0.0]]


@given(ROWS)
def test_octaves_are_off_by_half_of_one_at_most(x):
    x = torch.from_numpy(x)
    q = log_quantise(x, 15)
    back = log_restore(q, 15) * x.abs().amax(1, keepdim=True)
    ratio = (back / x)[q != 0]
    assert (ratio >= 2**-0.5 - 1e-9).all() and (ratio <= 2**0.5 + 1e-9).all()


def test_small_values_can_be_kept_from_becoming_zero():
    x = torch.tensor([[9.0, -0.1, 0.1, 0.0, 3.0]])
    assert without_zeros(quantise_lp(x, 3, math.inf), x).tolist() == [[2.0, -1.0, 1.0, 0.0, 1.0]]


@pytest.mark.parametrize("name", QUANTISERS)
def test_half_precision_and_shapes_without_values(name):
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = torch.tensor([[1.0, -2.0, 0.5, 0.0]], dtype=dtype)
        q = QUANTISERS[name](x, 15, torch.full((1, 4), 0.25))
        assert q.dtype == dtype
        assert torch.equal(q.double(), QUANTISERS[name](x.double(), 15, torch.full((1, 4), 0.25)))
    meta = torch.empty(2, 3, 4, device="meta")
    assert QUANTISERS[name](meta, 15, meta).shape == (2, 3, 4)


@pytest.mark.parametrize("name", QUANTISERS)
def test_scalars_are_rows_of_one(name):
    x = torch.tensor([2.0, -3.0, 0.0])
    assert QUANTISERS[name](x, 2, torch.full((3,), 0.5)).sign().tolist() == [1.0, -1.0, 0.0]


def test_integers_beyond_what_the_type_counts_to_are_refused():
    assert quantise_lp(torch.ones(1, 2, dtype=torch.bfloat16), 256, 0.0).tolist() == [[128.0, 128.0]]
    with pytest.raises(SpecError, match="from 1 to 256"):
        quantise_lp(torch.ones(1, 2, dtype=torch.bfloat16), 257, 0.0)
    with pytest.raises(SpecError, match="levels"):
        quantise_max(torch.ones(1, 2), 0, torch.zeros(1, 2))


def test_agreement_by_hand():
    exact = torch.tensor([1.0, 1.0, -1.0, -1.0, 0.0])
    sent = torch.tensor([3.0, 0.0, -2.0, 1.0, 1.0])
    assert [rate.item() for rate in sign_agreement(sent, exact)] == [0.5, 0.25, 0.25]
    rates = sign_agreement(torch.stack([sent, exact]), torch.stack([exact, exact]))
    assert rates.match.tolist() == [0.5, 1.0] and rates.flip.tolist() == [0.25, 0.0]
    assert sign_agreement(sent, torch.zeros(5)).match.isnan()


def test_the_signs_of_four_and_eight_gaussian_votes():
    # Closed form for the pair of a sign and its sum would be an integral; ties alone are binomial, and fair.
    g = torch.Generator().manual_seed(5)
    for workers in (4, 8):
        x = torch.randn(workers, 200_000, generator=g)
        rates = sign_agreement(x.sign().sum(0), x.sum(0))
        tie = math.comb(workers, workers // 2) / 2**workers
        assert rates.zero.item() == pytest.approx(tie, abs=5 * math.sqrt(tie * (1 - tie) / 200_000))
        assert sum(rates).item() == pytest.approx(1.0)
