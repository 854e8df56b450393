"""Baselines of the papers, written in NumPy as their own papers print them, and their distance from Syncline's.

All baselines use data parallelism, so they see the mean gradient. The matrix and the gradients are those of `literal`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from replication.scoreboard.literal import RATE, SHAPE, distance

PrintedDirection = Callable[[int, np.ndarray], np.ndarray]
"""A function of the step t, from 1, and the gradient g that returns the direction, which the rate multiplies."""


def baseline_distance(name: str) -> float:
    """Return the largest difference of Syncline's parameters from the printed algorithm's, over steps and workers."""
    spec, direction = BASELINES[name]()

    def step(t: int, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        return x - RATE * direction(t + 1, g.mean(0))

    return distance({"lr": RATE, **spec}, step)


def _zeros() -> np.ndarray:
    return np.zeros(SHAPE)


def _qhadam() -> tuple[dict[str, Any], PrintedDirection]:
    beta1, beta2, nu1, nu2, eps = 0.95, 0.98, 0.7, 0.9, 1e-8
    rule = {"kind": "qhadam", "beta1": beta1, "beta2": beta2, "nu1": nu1, "nu2": nu2, "eps": eps}
    m, s = _zeros(), _zeros()

    def direction(t: int, g: np.ndarray) -> np.ndarray:
        nonlocal m, s
        m, s = beta1 * m + (1 - beta1) * g, beta2 * s + (1 - beta2) * g**2
        denominator = np.sqrt((1 - nu2) * g**2 + nu2 * s / (1 - beta2**t)) + eps
        return ((1 - nu1) * g + nu1 * m / (1 - beta1**t)) / denominator

    return {"kind": "ddp", "rule": rule}, direction


def _qhadopt() -> tuple[dict[str, Any], PrintedDirection]:
    beta1, beta2, nu, eps = 0.95, 0.98, 0.8, 1e-6
    rule = {"kind": "qhadopt", "beta1": beta1, "beta2": beta2, "nu": nu, "eps": eps}
    m, v = _zeros(), _zeros()

    def direction(t: int, g: np.ndarray) -> np.ndarray:
        nonlocal m, v
        if t == 1:
            v = g**2
            return _zeros()
        c = np.clip(g / np.maximum(np.sqrt(v), eps), -((t - 1) ** 0.25), (t - 1) ** 0.25)
        m, v = beta1 * m + (1 - beta1) * c, beta2 * v + (1 - beta2) * g**2
        return (1 - nu) * c + nu * m

    return {"kind": "ddp", "rule": rule}, direction


def _aggmo() -> tuple[dict[str, Any], PrintedDirection]:
    betas = (0.0, 0.9, 0.99)
    velocities = [_zeros() for _ in betas]

    def direction(t: int, g: np.ndarray) -> np.ndarray:
        for i, beta in enumerate(betas):
            velocities[i] = beta * velocities[i] - g
        return -np.mean(velocities, axis=0)

    return {"kind": "ddp", "rule": {"kind": "aggmo", "betas": betas}}, direction


def _ademamix() -> tuple[dict[str, Any], PrintedDirection]:
    beta1, beta2, beta3, alpha, steps, eps = 0.9, 0.98, 0.99, 5.0, 8, 1e-8
    rule = {"kind": "ademamix", "beta1": beta1, "beta2": beta2, "beta3": beta3, "alpha": alpha, "eps": eps,
            "alpha_warmup_steps": steps, "beta3_warmup_steps": steps}  # fmt: skip
    m1, m2, v = _zeros(), _zeros(), _zeros()

    def direction(t: int, g: np.ndarray) -> np.ndarray:
        nonlocal m1, m2, v
        share, low, high = min(t / steps, 1.0), np.log(beta1), np.log(beta3)
        slow = min(float(np.exp(low * high / ((1 - share) * high + share * low))), beta3)
        m1, m2 = beta1 * m1 + (1 - beta1) * g, slow * m2 + (1 - slow) * g
        v = beta2 * v + (1 - beta2) * g**2
        return (m1 / (1 - beta1**t) + share * alpha * m2) / (np.sqrt(v / (1 - beta2**t)) + eps)

    return {"kind": "ddp", "rule": rule}, direction


def _ldadam() -> tuple[dict[str, Any], PrintedDirection]:
    beta1, beta2, rho, rank, eps = 0.9, 0.98, 0.6, 4, 1e-3
    spec = {"kind": "ldadam", "rank_fraction": rank / SHAPE[0], "rho": rho, "beta1": beta1, "beta2": beta2, "eps": eps}
    m, v, error = np.zeros((rank, SHAPE[1])), np.zeros((rank, SHAPE[1])), _zeros()
    p = np.zeros((SHAPE[0], rank))

    def direction(t: int, g: np.ndarray) -> np.ndarray:
        nonlocal m, v, error, p
        a, old_basis, old_momentum = g + error, p, m
        if t == 1:
            p = np.linalg.svd(a)[0][:, :rank]
        else:
            root1, root2 = 1 - beta1 ** (t - 1), 1 - beta2 ** (t - 1)
            b = rho * old_basis @ m / root1 + (1 - rho) * a
            p = np.linalg.qr(b @ b.T @ old_basis)[0]
            rotation = p.T @ old_basis
            v = root2 * np.abs(rotation**2 @ (v / root2 - (m / root1) ** 2) + (rotation @ m / root1) ** 2)
            m = rotation @ m
        projected = p.T @ a
        error = a - p @ projected + beta1 / (1 - beta1) * (old_basis @ old_momentum - p @ m)
        m, v = beta1 * m + (1 - beta1) * projected, beta2 * v + (1 - beta2) * projected**2
        return p @ (m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps))

    return spec, direction


BASELINES: dict[str, Callable[[], tuple[dict[str, Any], PrintedDirection]]] = {
    "qhadam": _qhadam, "qhadopt": _qhadopt, "aggmo": _aggmo, "ademamix": _ademamix, "ldadam": _ldadam,
}  # fmt: skip
