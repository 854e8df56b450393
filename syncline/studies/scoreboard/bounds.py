"""What DeMo's, MT-DAO's and Lion Cub's bounds and closed forms say, beside draws and runs that try to break them."""

from __future__ import annotations

import numpy as np

from syncline.analysis.statistics.curves import FloatArray
from syncline.analysis.theory import (
    beta_omega,
    coin_mean_bias,
    equal_sizes_bias,
    flat_drift,
    kept_momentum_bound,
    signum_bound,
    signum_step,
    sparse_mean_bias_bound,
    speedup_limit,
    top_k_error_bound_l1,
)
from syncline.seeds import generator

SIZE = 64
"""Coefficients of a chunk in what is drawn here."""


def _largest_of(x: FloatArray, k: int) -> FloatArray:
    """Of the last axis its k largest entries, the others zero."""
    kept = np.zeros_like(x)
    at = np.argsort(-np.abs(x), axis=-1)[..., :k]
    np.put_along_axis(kept, at, np.take_along_axis(x, at, -1), -1)
    return kept


def kept_over_bound(alpha: float, k: int, beta: float = 0.99, steps: int = 600) -> float:
    """The largest norm of a momentum kept back over Lemma 1's bound, under gradients along it."""
    m, most = np.zeros(SIZE), 0.0
    for _ in range(steps):
        g = m if m.any() else np.ones(SIZE)
        momentum = beta * m + g / np.linalg.norm(g)
        m = momentum - alpha * _largest_of(momentum, k)
        most = max(most, float(np.linalg.norm(m)))
    return most / float(kept_momentum_bound(beta, k, SIZE, alpha=alpha))


def bias_exponent(law: str, k: int = 16) -> float:
    """The power of n with which the bias of a mean over all n workers' largest entries falls: 16 to 1,024 workers."""
    rng, found = generator(0, "scoreboard", "bias", law), []
    for workers in (16, 1024):
        shape = (60, workers, SIZE)
        x = 2.0 * rng.integers(2, size=shape) - 1 if law == "signs" else rng.integers(2, size=shape).astype(float)
        x += 1e-9 * rng.uniform(-1, 1, size=shape)  # ties at random
        found.append(np.abs(_largest_of(x, k).mean(1) - x.mean(1)).mean())
    return float(np.log(found[1] / found[0]) / np.log(64))


def needed_by_more(workers: int, fewer: int, dimension: int) -> float:
    """How much larger Lemma 2's constant has to be for more workers, who send all but one of d entries.

    For n well below d a coordinate is left out by one worker or by none, and its mean misses 1 / n with a chance of n /
    d: less than that is the bias of exactly one who leaves it out, which is counted here.
    """

    def needed(n: int) -> float:
        missed = (1 - 1 / dimension) ** (n - 1) / dimension
        return missed / float(sparse_mean_bias_bound(n, dimension - 1, dimension, form="printed"))

    return needed(workers) / needed(fewer)


def lasting_bias(average: str) -> float:
    """The bias of coins with any number of workers, 16 of 64 entries sent."""
    return abs(coin_mean_bias(16, SIZE, 0.5, "senders" if average == "senders" else "all"))


def bias_over_symmetric_bound(workers: int = 64, k: int = 16) -> float:
    """The exact root mean square of signs over the mended bound, which they reach."""
    return equal_sizes_bias(workers, k, SIZE, "all") / float(sparse_mean_bias_bound(workers, k, SIZE, form="symmetric"))


def signum_exponent(k: int, beta: float, noise: float = 0.0) -> float:
    """The power of T with which the bound of DeMo's rate falls from 10^4 to 10^6 steps, at its best step size."""
    problem = {"gap": 32.0, "smoothness": 1.0, "dimension": SIZE}
    kept = kept_momentum_bound(beta, k, SIZE, 10.0)
    short, long = (
        float(signum_bound(signum_step(t, **problem), t, **problem, noise=noise, workers=4, beta=beta, kept=kept).whole)
        for t in (1e4, 1e6)
    )
    return float(np.log(long / short) / np.log(100))


def missed_l1_over_bound(draws: int = 2000) -> float:
    """The largest share of the 1-norm that the 16 largest of 64 miss over Remark 3's bound, of heavy-tailed draws."""
    x = generator(0, "scoreboard", "remark 3").standard_cauchy(size=(draws, SIZE))
    missed = np.abs(x - _largest_of(x, 16)).sum(1) / np.abs(x).sum(1)
    return float(missed.max() / top_k_error_bound_l1(16, SIZE))


def sign_inequality() -> float:
    """The largest of ``(|x| - x sign y) / (2 |x - y|)`` of 100,000 pairs."""
    x, y = generator(0, "scoreboard", "signs").normal(size=(2, 100_000))
    return float(((np.abs(x) - x * np.sign(y)) / (2 * np.abs(x - y))).max())


def lead_over_lemma_2(kind: str) -> float:
    """MT-DAO's virtual iterates: ``sum ||z - x||^2`` over Lemma 2's bound, of noise or of gradients all alike."""
    betas, omegas, eta = np.array([0.5, 0.9]), np.array([0.4, 0.6]), 0.1
    rng = generator(0, "scoreboard", "lemma 2")
    gradients = rng.normal(size=(400, 3)) if kind == "noise" else np.ones((400, 3))
    x, u, lead = np.zeros((2, 3)), np.zeros((2, 3)), 0.0
    for g in gradients:
        u = betas[:, None] * u + (1 - betas[:, None]) * g
        before, x = x, x - eta * u
        z = omegas @ ((x - betas[:, None] * before) / (1 - betas[:, None]))
        lead += float(np.square(z - omegas @ x).sum())
    return lead / (eta**2 * float(beta_omega(betas, omegas)) ** 2 * float(np.square(gradients).sum()))


def coins_over_periods(beta: float, period: int = 32, workers: int = 4) -> float:
    """Mean square drift of workers on flat ground if coins decide when they average, over that with periods."""
    rng, shape = generator(0, "scoreboard", "periods", str(beta)), (50, workers, 20)
    x, u, found = np.zeros(shape), np.zeros(shape), []
    for step in range(1, 60 * period + 1):
        u = beta * u + (1 - beta) * rng.normal(size=shape)
        x = x - u
        if step % period == 0:
            u[:], x[:] = u.mean(1, keepdims=True), x.mean(1, keepdims=True)
        if step > 30 * period:
            found.append(np.square(x - x.mean(1, keepdims=True)).mean())
    return float(flat_drift(1 / period, beta, 1.0, 1 / period)) * (1 - 1 / workers) / float(np.mean(found))


def largest_speedup() -> float:
    """The largest of Lion Cub's projected speedups, over sizes, bits and Table 4's bandwidths."""
    from syncline.studies.papers.packing import GPT_BATCHES, PRECISIONS, packed_speedup

    return max(packed_speedup(m, b, of) for m in GPT_BATCHES for b in PRECISIONS for of in (1e9, 1e10, 2e11))


def free_communication(percent: float) -> float:
    """The speedup if a share of communication were free."""
    return float(speedup_limit(percent / 100))


def step_by_bits(model: str, bandwidth_bits_per_s: float) -> dict[str, float]:
    """Seconds of Lion Cub's projected step by bits per parameter."""
    from syncline.studies.papers.packing import PRECISIONS, packed_step

    return {str(bits): sum(packed_step(model, bits, bandwidth_bits_per_s)) for bits in PRECISIONS}


def value_rounded_to_zero(largest: float, bits: int) -> float:
    """Below which equation 1 with p infinite gives 0: half a step, ``max / (2^(bits - 1) - 1)``."""
    return largest / (2 ** (bits - 1) - 1)
