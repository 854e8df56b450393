"""DeMo's bounds, against vectors and gradients that try to break them, and all outcomes there are."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.theory import (
    coin_mean_bias,
    compaction_gain,
    dct_variances,
    equal_sizes_bias,
    gaussian_top_share,
    kept_momentum_bound,
    signum_bound,
    signum_step,
    sparse_mean_bias_bound,
    top_k_error_bound,
    top_k_error_bound_l1,
)
from syncline.errors import SpecError
from syncline.optim.demo import dct_matrix


def top_k(x, k):
    """Of each row its k largest, the others zero."""
    kept = np.zeros_like(x)
    at = np.argsort(-np.abs(x), axis=-1)[..., :k]
    np.put_along_axis(kept, at, np.take_along_axis(x, at, -1), -1)
    return kept


@given(st.integers(1, 30), st.integers(0, 2**31))
def test_top_k_error_is_within_its_bound(k, seed):
    x = np.random.default_rng(seed).standard_cauchy(30)
    missed = np.sort(np.abs(x))[: 30 - k]
    assert np.sqrt((missed**2).sum() / (x**2).sum()) <= top_k_error_bound(k, 30) + 1e-12
    assert missed.sum() / np.abs(x).sum() <= top_k_error_bound_l1(k, 30) + 1e-12


@pytest.mark.parametrize("k", [0, 1, 7, 30])
def test_top_k_bound_is_reached_by_equal_entries(k):
    assert top_k_error_bound(k, 30) == pytest.approx(np.sqrt((30 - k) / 30))
    assert top_k_error_bound_l1(k, 30) == pytest.approx((30 - k) / 30)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("k", "beta"), [(1, 0.9), (4, 0.99), (16, 0.5), (4, 0.0)])
@pytest.mark.parametrize("kind", ["random", "same", "along"])
def test_no_gradients_keep_more_momentum_back(alpha, k, beta, kind):
    """Gradients of norm 2 at random, the same in each step, and along what was kept, which lengthens it the most."""
    rng, d, m, most = np.random.default_rng(0), 16, np.zeros(16), 0.0
    same = np.ones(d)
    for _ in range(300):
        g = {"random": rng.normal(size=d), "same": same, "along": m if m.any() else same}[kind]
        momentum = beta * m + 2 * g / np.linalg.norm(g)
        m = momentum - alpha * top_k(momentum, k)
        most = max(most, np.linalg.norm(m))
    bound = float(kept_momentum_bound(beta, k, d, 2.0, alpha))
    assert most <= bound * (1 + 1e-9)
    if kind == "same" and (alpha == 0 or beta == 0):  # equal entries at the first step, or always
        assert most == pytest.approx(bound, rel=0.06)


def test_what_is_sent_whole_leaves_nothing():
    assert kept_momentum_bound(0.9, 64, 64) == 0
    with pytest.raises(SpecError, match="beta: got 1"):
        kept_momentum_bound(1.0, 1, 64)
    with pytest.raises(SpecError, match="alpha: got 2"):
        kept_momentum_bound(0.9, 1, 64, alpha=2.0)


@pytest.mark.parametrize(("n", "d", "k"), [(2, 3, 1), (3, 2, 1), (2, 3, 2), (2, 2, 2)])
@pytest.mark.parametrize("average", ["senders", "all"])
def test_bias_of_equal_sizes_over_all_outcomes(n, d, k, average):
    """Every choice of signs and of what each worker sends; the bias of the first coordinate."""
    squares = []
    for x in product((1, -1), repeat=n):
        for sent in product([0 in chosen for chosen in combinations(range(d), k)], repeat=n):
            total = sum(v for v, s in zip(x, sent, strict=True) if s)
            mean = total / max(sum(sent), 1) if average == "senders" else total / n
            squares.append((mean - sum(x) / n) ** 2)
    assert equal_sizes_bias(n, k, d, average) == pytest.approx(np.mean(squares) ** 0.5)


def test_the_bound_of_symmetric_laws_is_reached_and_kept():
    rng, n, d, k = np.random.default_rng(0), 32, 16, 4
    assert sparse_mean_bias_bound(n, k, d, form="symmetric") == pytest.approx(equal_sizes_bias(n, k, d, "all"))
    for x in (rng.uniform(-1, 1, size=(1000, n, d)), rng.uniform(0, 1, size=(1000, n, d))):
        bias = np.abs(top_k(x, k).mean(1) - x.mean(1)).mean()
        assert bias <= sparse_mean_bias_bound(n, k, d, form="symmetric" if x.min() < 0 else "any")
    assert bias > sparse_mean_bias_bound(n, k, d, form="symmetric")  # of what is not symmetric it is no bound


def test_lemma_2_as_printed_has_no_universal_constant():
    """Averages of nearly everything miss by 1 / d if at all, and the bound shrinks by sqrt(n); coins never improve."""
    n, d = 400, 4000
    seldom = np.mean(np.random.default_rng(0).random((4000, n)) < 1 / d, axis=1)  # of n signs so many are not sent
    assert seldom.mean() == pytest.approx(1 / d, rel=0.1)
    printed = float(sparse_mean_bias_bound(n, d - 1, d, form="printed"))
    assert seldom.mean() / printed == pytest.approx(n**0.5, rel=0.1)
    assert abs(coin_mean_bias(32, 64, 0.5)) > 100 * float(sparse_mean_bias_bound(1e5, 32, 64, form="printed"))


@pytest.mark.parametrize("average", ["senders", "all"])
def test_coins_keep_their_bias_with_many_workers(average):
    rng, d, k, p = np.random.default_rng(0), 8, 3, 0.4
    x = (rng.random((200_000, d)) < p) + rng.uniform(-1e-9, 1e-9, size=(200_000, d))  # ties at random
    sent = top_k(x, k)
    mean = sent.sum() / (k if average == "senders" else d) / len(x)
    assert mean - p == pytest.approx(coin_mean_bias(k, d, p, average), abs=0.005)


def test_the_knobs_of_the_bias_are_checked():
    with pytest.raises(SpecError, match="form: got 'exact'"):
        sparse_mean_bias_bound(4, 1, 8, form="exact")
    with pytest.raises(SpecError, match="average: got 'none'"):
        equal_sizes_bias(4, 1, 8, "none")
    with pytest.raises(SpecError, match="average: got 'none'"):
        coin_mean_bias(1, 8, 0.5, "none")


@given(st.floats(-5, 5), st.floats(-5, 5))
def test_a_sign_costs_at_most_twice_the_difference(x, y):
    """The inequality under the bound: |x| - x sign(y) <= 2 |x - y|."""
    assert abs(x) - x * np.sign(y) <= 2 * abs(x - y) + 1e-12


@pytest.mark.parametrize("k", [2, 8])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_sign_updates_are_within_their_bound(k, beta):
    """On a bowl of eight coordinates, four workers, gradients clipped to a norm of 3: their mean is the bowl's."""
    rng, d, workers, steps, sigma, largest = np.random.default_rng(0), 8, 4, 400, 0.5, 10.0
    x = np.full(d, 1.0)
    eta, gap = float(signum_step(steps, 0.5 * d, 1.0, d)), 0.5 * d
    m, norms = np.zeros((workers, d)), []
    for _ in range(steps):
        norms.append(np.abs(x).sum())
        direction = rng.normal(size=(workers, d))
        g = x + sigma * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        assert np.linalg.norm(g, axis=-1).max() < largest
        momentum = beta * m + g
        sent = top_k(momentum, k)
        m = momentum - sent
        x = x - eta * np.sign(sent.mean(0))
    kept = kept_momentum_bound(beta, k, d, largest)
    bound = signum_bound(
        eta, steps, gap=gap, smoothness=1.0, dimension=d, noise=sigma, workers=workers, beta=beta, kept_momentum=kept
    )
    assert np.mean(norms) <= bound.total
    assert (bound.left_out == 0) == (k == d)
    if k == d and beta == 0:
        assert np.mean(norms) <= bound.descent + bound.noise


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(1, 100), st.integers(1, 1000), st.floats(0.5, 2))
def test_no_other_step_has_a_smaller_descent_part(gap, smoothness, d, steps, factor):
    def descent(eta):
        none = {"noise": 0.0, "workers": 1, "beta": 0.0, "kept_momentum": 0.0}
        return signum_bound(eta, steps, gap=gap, smoothness=smoothness, dimension=d, **none).descent

    best = signum_step(steps, gap, smoothness, d)
    assert descent(best) <= descent(best * factor) * (1 + 1e-12)
    assert descent(best) == pytest.approx((2 * gap * smoothness * d / steps) ** 0.5)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
def test_dct_variances_are_those_of_the_transform_in_use(rho):
    """The covariance by the matrix that DeMo multiplies with, and all variances add up to the chunk's."""
    c = dct_matrix(16).numpy()
    r = np.array([[rho ** abs(i - j) for j in range(16)] for i in range(16)])
    found = dct_variances(16, rho)
    assert found == pytest.approx(np.diag(c @ r @ c.T))
    assert found.sum() == pytest.approx(16)
    # No basis compacts more than the eigenvectors, of which the determinant (1 - rho^2)^(s - 1) is known.
    best = (1 - rho**2) ** (-15 / 16)
    assert 1 - 1e-12 <= compaction_gain(found) <= best * (1 + 1e-12)
    assert compaction_gain(np.linalg.eigvalsh(r)) == pytest.approx(best)


def test_a_correlation_is_below_one():
    with pytest.raises(SpecError, match="correlation: got 1"):
        dct_variances(4, 1.0)


@pytest.mark.parametrize("fraction", [0.01, 0.25, 1.0])
def test_share_of_the_largest_gaussians(fraction):
    """Of a million sorted draws, to a percent; a chi-squared sum's own error is a third of that at most."""
    energy = np.sort(np.random.default_rng(0).normal(size=1_000_000) ** 2)[::-1]
    found = energy[: int(fraction * 1e6)].sum() / energy.sum()
    assert gaussian_top_share(fraction) == pytest.approx(found, rel=0.01)
    with pytest.raises(SpecError, match="fraction: got 0"):
        gaussian_top_share(0.0)
