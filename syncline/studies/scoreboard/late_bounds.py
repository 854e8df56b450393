"""Basis Rotation's bounds and appendices, beside delayed Adam on a turned quadratic and draws."""

from __future__ import annotations

import numpy as np

from syncline.analysis.statistics.curves import FloatArray
from syncline.analysis.theory import (
    constant_gradient_step,
    delay_deviation,
    delayed_adam_bound,
    delayed_adam_step,
    momentum_adam_bound,
)
from syncline.seeds import generator

SPECTRUM, START, NOISE, REPLICAS = (20.0, 1.0), (-20.0, 30.0), 200.0, 100
"""The quadratic of Figure 3, its start along the eigenvectors, and gaussian noise on each coordinate."""

GAP = 0.5 * float(np.dot(SPECTRUM, np.square(START)))


def _turned(degrees: float) -> tuple[FloatArray, FloatArray]:
    """Its Hessian and its start."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    basis = np.array([[cos, -sin], [sin, cos]])
    return basis @ np.diag(SPECTRUM) @ basis.T, basis @ np.array(START)


def _least_gradient(steps: int, delay: int, degrees: float = 45.0) -> float:
    """The least mean 1-norm of the gradient in the second half, at the theorem's step size and beta2."""
    hessian, start = _turned(degrees)
    rng = generator(0, "scoreboard", "late", steps, delay)
    lr, beta2 = float(delayed_adam_step(steps, delay, np.abs(hessian).sum(), GAP, 2)), 1 - np.log(steps) / steps
    x, v, least = [np.tile(start, (REPLICAS, 1))], None, np.inf
    for t in range(steps):
        g = x[max(t - delay, 0)] @ hessian + NOISE * rng.normal(size=(REPLICAS, 2))
        v = g**2 if v is None else beta2 * v + (1 - beta2) * g**2
        x.append(x[-1] - lr * g / np.sqrt(v))
        if t >= steps // 2:
            least = min(least, float(np.abs(x[-1] @ hessian).sum(1).mean()))
    return least


def gradient_exponent(delay: int) -> float:
    """The power of T with which the least gradient falls from 100 to 3,000 steps."""
    return float(np.log(_least_gradient(3000, delay) / _least_gradient(100, delay)) / np.log(30))


def delay_exponent() -> float:
    """The power of ``1 + d tau`` with which it grows from no delay to 31 updates, 3,000 steps."""
    return float(np.log(_least_gradient(3000, 31) / _least_gradient(3000, 0)) / np.log(63))


def gradient_over_bound(delay: int) -> float:
    """What is found after 3,000 steps over Theorem 2.3 without its constant."""
    smoothness = np.abs(_turned(45.0)[0]).sum()
    return _least_gradient(3000, delay) / float(delayed_adam_bound(3000, delay, smoothness, GAP, 2 * NOISE, 2))


def momentum_over_plain(parameters: float, delay: int) -> float:
    """Theorem E.8 over Theorem 2.3 without noise, by which it has to be 1 to contain it at beta1 = 0."""
    plain = float(delayed_adam_bound(1e6, delay, 1.0, 1.0, 0.0, parameters))
    return float(momentum_adam_bound(1e6, delay, 1.0, 1.0, 0.0, parameters, 1.0)) / plain


def _adam_way(degrees: float, delay: int, lr: float, steps: int = 60) -> FloatArray:
    """Positions of Adam without momentum, beta2 0.9, whose v starts at the first gradient's square."""
    hessian, start = _turned(degrees)
    x, v = [start], None
    for t in range(steps):
        g = hessian @ x[max(t - delay, 0)]
        v = g**2 if v is None else 0.9 * v + 0.1 * g**2
        x.append(x[-1] - lr * g / np.sqrt(v))
    return np.array(x)


def parted(delay: int = 4, lr: float = 0.1) -> dict[str, float]:
    """How far a late way leads from the one on time in 60 steps, in learning rates, aligned and turned by 45°."""
    return {
        name: float(np.linalg.norm(_adam_way(of, delay, lr)[-1] - _adam_way(of, 0, lr)[-1])) / lr
        for name, of in (("aligned", 0.0), ("turned", 45.0))
    }


def parted_over_predicted(degrees: float, delay: int = 4, lr: float = 0.1) -> float:
    """That distance over what Appendix B's induction gives from the updates on time."""
    path = _adam_way(degrees, 0, lr)
    predicted = delay_deviation(np.diff(path, axis=0), delay)[-1]
    return float(np.linalg.norm(_adam_way(degrees, delay, lr)[-1] - path[-1]) / np.linalg.norm(predicted))


def later_step_over_first(beta1: float, beta2: float, step: int) -> float:
    """How much longer a later step on a slope is than the first, without bias correction."""
    first, later = constant_gradient_step(beta1, beta2, [1, step])
    return float(later / first)


def curvature_over_bound(draws: int = 300) -> float:
    """Lemma E.1: ``|D^T H D|`` over ``sum_i H_i D_i^2``, H_i the 1-norm of a row, the largest of random matrices."""
    rng, most = generator(0, "scoreboard", "lemma E.1"), 0.0
    for _ in range(draws):
        a = rng.normal(size=(6, 6))
        hessian, step = a + a.T, rng.normal(size=6)
        most = max(most, float(abs(step @ hessian @ step)) / float(np.abs(hessian).sum(1) @ step**2))
    return most


def variance_over_bound(lemma: str, beta1: float = 0.9, beta2: float = 0.99, steps: int = 400) -> float:
    """Lemmas E.2 and E.10: sums of ``g^2 / v`` and ``m^2 / v`` over their bounds, the largest of heavy-tailed draws."""
    rng, most = generator(0, "scoreboard", "lemma", lemma), 0.0
    for _ in range(50):
        g = rng.standard_cauchy(size=steps)
        v, m, of_g, of_m, first = 1e-3, 0.0, 0.0, 0.0, 1e-3
        for each in g:
            v, m = beta2 * v + (1 - beta2) * each**2, beta1 * m + (1 - beta1) * each
            of_g, of_m = of_g + each**2 / v, of_m + m**2 / v
        bound = steps + beta2 / (1 - beta2) * float(np.log(v / first))
        most = max(most, of_g / bound if lemma == "E.2" else of_m / ((1 - beta1) / (1 - beta1 / beta2) * of_g))
    return most
