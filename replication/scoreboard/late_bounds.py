"""Basis Rotation's bounds and appendices, beside delayed Adam on a rotated quadratic and random draws."""

from __future__ import annotations

import numpy as np

from replication.theory import (
    constant_gradient_step,
    delay_deviation,
    delayed_adam_bound,
    delayed_adam_step,
    momentum_adam_bound,
)
from syncline.analysis.curves import FloatArray
from syncline.seeds import generator

SPECTRUM, START, NOISE, REPLICAS = (20.0, 1.0), (-20.0, 30.0), 200.0, 100
"""The quadratic of Figure 3, its start in the eigenbasis, Gaussian noise per coordinate, and number of replicas."""

GAP = 0.5 * float(np.dot(SPECTRUM, np.square(START)))


def _turned(degrees: float) -> tuple[FloatArray, FloatArray]:
    """Return the Hessian ``(2, 2)`` and the start ``(2,)`` of the quadratic, rotated by an angle."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    basis = np.array([[cos, -sin], [sin, cos]])
    return basis @ np.diag(SPECTRUM) @ basis.T, basis @ np.array(START)


def _least_gradient(steps: int, delay: int, degrees: float = 45.0) -> float:
    """Return the least 1-norm of the gradient in the second half of the steps, averaged over the replicas.

    Step size and beta2 are those of the theorem.
    """
    hessian, start = _turned(degrees)
    rng = generator(0, "scoreboard", "late", steps, delay)
    lr, beta2 = float(delayed_adam_step(steps, delay, np.abs(hessian).sum(), GAP, 2)), 1 - np.log(steps) / steps
    x, v, least_norm = [np.tile(start, (REPLICAS, 1))], None, np.inf
    for t in range(steps):
        g = x[max(t - delay, 0)] @ hessian + NOISE * rng.normal(size=(REPLICAS, 2))
        v = g**2 if v is None else beta2 * v + (1 - beta2) * g**2
        x.append(x[-1] - lr * g / np.sqrt(v))
        if t >= steps // 2:
            least_norm = min(least_norm, float(np.abs(x[-1] @ hessian).sum(1).mean()))
    return least_norm


def gradient_exponent(delay: int) -> float:
    """Return the power of T with which the least gradient falls from T = 100 to 3,000 steps."""
    return float(np.log(_least_gradient(3000, delay) / _least_gradient(100, delay)) / np.log(30))


def delay_exponent() -> float:
    """Return the power of ``1 + d tau`` with which the least gradient grows from no delay to 31 updates.

    Both trainings take 3,000 steps.
    """
    return float(np.log(_least_gradient(3000, 31) / _least_gradient(3000, 0)) / np.log(63))


def gradient_over_bound(delay: int) -> float:
    """Return the least gradient of 3,000 steps over the bound of Theorem 2.3 without its constant."""
    smoothness = np.abs(_turned(45.0)[0]).sum()
    return _least_gradient(3000, delay) / float(delayed_adam_bound(3000, delay, smoothness, GAP, 2 * NOISE, 2))


def momentum_over_plain(parameters: float, delay: int) -> float:
    """Return the bound of Theorem E.8 over that of Theorem 2.3, without noise.

    The ratio has to be 1 if Theorem E.8 contains Theorem 2.3 at beta1 = 0.
    """
    plain = float(delayed_adam_bound(1e6, delay, 1.0, 1.0, 0.0, parameters))
    return float(momentum_adam_bound(1e6, delay, 1.0, 1.0, 0.0, parameters, 1.0)) / plain


def _adam_way(degrees: float, delay: int, lr: float, steps: int = 60) -> FloatArray:
    """Return the positions ``(steps + 1, 2)`` of Adam without momentum, with beta2 = 0.9.

    The second moment starts at the square of the first gradient.
    """
    hessian, start = _turned(degrees)
    x, v = [start], None
    for t in range(steps):
        g = hessian @ x[max(t - delay, 0)]
        v = g**2 if v is None else 0.9 * v + 0.1 * g**2
        x.append(x[-1] - lr * g / np.sqrt(v))
    return np.array(x)


def delay_distance(delay: int = 4, lr: float = 0.1) -> dict[str, float]:
    """Return the distance of the positions with and without delay after 60 steps, in learning rates.

    The quadratic is aligned with the axes or rotated by 45 degrees.
    """
    return {
        name: float(np.linalg.norm(_adam_way(degrees, delay, lr)[-1] - _adam_way(degrees, 0, lr)[-1])) / lr
        for name, degrees in (("aligned", 0.0), ("turned", 45.0))
    }


def delay_distance_over_predicted(degrees: float, delay: int = 4, lr: float = 0.1) -> float:
    """Return the distance of the positions with and without delay over the prediction of Appendix B.

    The induction of Appendix B predicts it from the updates without delay.
    """
    path = _adam_way(degrees, 0, lr)
    predicted = delay_deviation(np.diff(path, axis=0), delay)[-1]
    return float(np.linalg.norm(_adam_way(degrees, delay, lr)[-1] - path[-1]) / np.linalg.norm(predicted))


def later_step_over_first(beta1: float, beta2: float, step: int) -> float:
    """Return the length of a later step over that of the first, under a constant gradient without bias correction."""
    first, later = constant_gradient_step(beta1, beta2, [1, step])
    return float(later / first)


def curvature_over_bound(draws: int = 300) -> float:
    """Return the largest ``|D^T H D|`` over ``sum_i H_i D_i^2`` of Lemma E.1, for random matrices H and vectors D.

    H_i is the 1-norm of row i.
    """
    rng, largest_ratio = generator(0, "scoreboard", "lemma E.1"), 0.0
    for _ in range(draws):
        a = rng.normal(size=(6, 6))
        hessian, step = a + a.T, rng.normal(size=6)
        largest_ratio = max(largest_ratio, float(abs(step @ hessian @ step)) / float(np.abs(hessian).sum(1) @ step**2))
    return largest_ratio


def variance_over_bound(lemma: str, beta1: float = 0.9, beta2: float = 0.99, steps: int = 400) -> float:
    """Return the largest sum of ``g^2 / v`` (Lemma E.2) or ``m^2 / v`` (Lemma E.10) over its bound.

    The gradients are heavy-tailed random draws.
    """
    rng, largest_ratio = generator(0, "scoreboard", "lemma", lemma), 0.0
    for _ in range(50):
        gradients = rng.standard_cauchy(size=steps)
        v, m, sum_g, sum_m, first = 1e-3, 0.0, 0.0, 0.0, 1e-3
        for g in gradients:
            v, m = beta2 * v + (1 - beta2) * g**2, beta1 * m + (1 - beta1) * g
            sum_g, sum_m = sum_g + g**2 / v, sum_m + m**2 / v
        bound = steps + beta2 / (1 - beta2) * float(np.log(v / first))
        largest_ratio = max(
            largest_ratio, sum_g / bound if lemma == "E.2" else sum_m / ((1 - beta1) / (1 - beta1 / beta2) * sum_g)
        )
    return largest_ratio
