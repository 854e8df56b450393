"""Bounds and closed forms of DeMo, MT-DAO and Lion Cub, beside random draws and runs that test them."""

from __future__ import annotations

import numpy as np

from replication.theory import (
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
from syncline.analysis.curves import FloatArray
from syncline.seeds import generator

SIZE = 64
"""Number of coefficients of a chunk in the random draws."""


def _largest_of(x: FloatArray, k: int) -> FloatArray:
    """Return ``x`` with all but the k largest magnitudes of the last axis set to zero."""
    largest = np.zeros_like(x)
    index = np.argsort(-np.abs(x), axis=-1)[..., :k]
    np.put_along_axis(largest, index, np.take_along_axis(x, index, -1), -1)
    return largest


def kept_over_bound(alpha: float, k: int, beta: float = 0.99, steps: int = 600) -> float:
    """Return the largest norm of the momentum that a worker keeps, over Lemma 1's bound.

    Gradients point along the momentum.
    """
    m, largest_norm = np.zeros(SIZE), 0.0
    for _ in range(steps):
        g = m if m.any() else np.ones(SIZE)
        momentum = beta * m + g / np.linalg.norm(g)
        m = momentum - alpha * _largest_of(momentum, k)
        largest_norm = max(largest_norm, float(np.linalg.norm(m)))
    return largest_norm / float(kept_momentum_bound(beta, k, SIZE, alpha=alpha))


def bias_exponent(law: str, k: int = 16) -> float:
    """Return the power of n with which the bias of a mean over n workers' largest entries falls.

    The power is fitted between 16 and 1,024 workers.
    """
    rng, biases = generator(0, "scoreboard", "bias", law), []
    for workers in (16, 1024):
        shape = (60, workers, SIZE)
        x = 2.0 * rng.integers(2, size=shape) - 1 if law == "signs" else rng.integers(2, size=shape).astype(float)
        x += 1e-9 * rng.uniform(-1, 1, size=shape)  # breaks ties at random
        biases.append(np.abs(_largest_of(x, k).mean(1) - x.mean(1)).mean())
    return float(np.log(biases[1] / biases[0]) / np.log(64))


def constant_ratio(workers: int, fewer: int, dimension: int) -> float:
    """Return the constant that Lemma 2 needs for more workers, over the constant for fewer workers.

    Each worker sends all but one of d entries. For n well below d, at most one worker omits a coordinate, and the mean
    then misses 1 / n with a probability of n / d. We count only the bias of exactly one omission, which is a lower
    bound.
    """

    def needed(n: int) -> float:
        missed = (1 - 1 / dimension) ** (n - 1) / dimension
        return missed / float(sparse_mean_bias_bound(n, dimension - 1, dimension, form="printed"))

    return needed(workers) / needed(fewer)


def lasting_bias(average: str) -> float:
    """Return the bias of fair coin entries that no number of workers removes, with 16 of 64 entries sent."""
    return abs(coin_mean_bias(16, SIZE, 0.5, "senders" if average == "senders" else "all"))


def bias_over_symmetric_bound(workers: int = 64, k: int = 16) -> float:
    """Return the exact root mean square bias of sign entries over the corrected bound; the result is 1."""
    return equal_sizes_bias(workers, k, SIZE, "all") / float(sparse_mean_bias_bound(workers, k, SIZE, form="symmetric"))


def signum_exponent(k: int, beta: float, noise: float = 0.0) -> float:
    """Return the power of T with which the bound of DeMo's rate falls from 10^4 to 10^6 steps.

    The step size is the best one for each number of steps.
    """
    problem = {"gap": 32.0, "smoothness": 1.0, "dimension": SIZE}
    momentum_bound = kept_momentum_bound(beta, k, SIZE, 10.0)
    short, long = (
        float(
            signum_bound(
                signum_step(t, **problem), t, **problem, noise=noise, workers=4, beta=beta, kept_momentum=momentum_bound
            ).total
        )
        for t in (1e4, 1e6)
    )
    return float(np.log(long / short) / np.log(100))


def missed_l1_over_bound(draws: int = 2000) -> float:
    """Return the largest share of the 1-norm that the 16 largest of 64 entries miss, over Remark 3's bound.

    The vectors are heavy-tailed random draws.
    """
    x = generator(0, "scoreboard", "remark 3").standard_cauchy(size=(draws, SIZE))
    missed = np.abs(x - _largest_of(x, 16)).sum(1) / np.abs(x).sum(1)
    return float(missed.max() / top_k_error_bound_l1(16, SIZE))


def sign_inequality() -> float:
    """Return the largest ``(|x| - x sign y) / (2 |x - y|)`` of 100,000 random pairs."""
    x, y = generator(0, "scoreboard", "signs").normal(size=(2, 100_000))
    return float(((np.abs(x) - x * np.sign(y)) / (2 * np.abs(x - y))).max())


def lead_over_lemma_2(kind: str) -> float:
    """Return ``sum ||z - x||^2`` of MT-DAO's virtual iterates over Lemma 2's bound.

    The gradients are noise if ``kind`` is ``noise``, otherwise constant.
    """
    betas, omegas, eta = np.array([0.5, 0.9]), np.array([0.4, 0.6]), 0.1
    rng = generator(0, "scoreboard", "lemma 2")
    gradients = rng.normal(size=(400, 3)) if kind == "noise" else np.ones((400, 3))
    x, u, lead = np.zeros((2, 3)), np.zeros((2, 3)), 0.0
    for g in gradients:
        u = betas[:, None] * u + (1 - betas[:, None]) * g
        old_x, x = x, x - eta * u
        z = omegas @ ((x - betas[:, None] * old_x) / (1 - betas[:, None]))
        lead += float(np.square(z - omegas @ x).sum())
    return lead / (eta**2 * float(beta_omega(betas, omegas)) ** 2 * float(np.square(gradients).sum()))


def coins_over_periods(beta: float, period: int = 32, workers: int = 4) -> float:
    """Return the mean square drift of workers on a flat loss with random averaging, over that with fixed periods."""
    rng, shape = generator(0, "scoreboard", "periods", str(beta)), (50, workers, 20)
    x, u, square_drifts = np.zeros(shape), np.zeros(shape), []
    for step in range(1, 60 * period + 1):
        u = beta * u + (1 - beta) * rng.normal(size=shape)
        x = x - u
        if step % period == 0:
            u[:], x[:] = u.mean(1, keepdims=True), x.mean(1, keepdims=True)
        if step > 30 * period:
            square_drifts.append(np.square(x - x.mean(1, keepdims=True)).mean())
    return float(flat_drift(1 / period, beta, 1.0, 1 / period)) * (1 - 1 / workers) / float(np.mean(square_drifts))


def largest_speedup() -> float:
    """Return the largest of Lion Cub's projected speedups, over models, bits and Table 4's bandwidths."""
    from replication.studies.papers.packing import GPT_BATCHES, PRECISIONS, packed_speedup

    return max(
        packed_speedup(model, bits, bandwidth)
        for model in GPT_BATCHES
        for bits in PRECISIONS
        for bandwidth in (1e9, 1e10, 2e11)
    )


def free_communication(percent: float) -> float:
    """Return the speedup of a step if its communication, a share in percent, became free."""
    return float(speedup_limit(percent / 100))


def step_by_bits(model: str, bandwidth_bits_per_s: float) -> dict[str, float]:
    """Return the seconds of Lion Cub's projected step, by bits per parameter."""
    from replication.studies.papers.packing import PRECISIONS, packed_step

    return {str(bits): sum(packed_step(model, bits, bandwidth_bits_per_s)) for bits in PRECISIONS}


def saved_by_eight_bits(bandwidth_bits_per_s: float) -> dict[str, float]:
    """Return the seconds of a step that 8 bits save against 32, by model size."""
    models = {"774M": "gpt2-large", "1558M": "gpt2-xl"}
    steps = {name: step_by_bits(model, bandwidth_bits_per_s) for name, model in models.items()}
    return {name: by_bits["32"] - by_bits["8"] for name, by_bits in steps.items()}


def value_rounded_to_zero(largest: float, bits: int) -> float:
    """Return the value below which equation 1 with infinite p gives 0: ``max / (2^(bits - 1) - 1)``, half a step."""
    return largest / (2 ** (bits - 1) - 1)
