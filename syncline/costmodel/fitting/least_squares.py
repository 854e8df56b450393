"""Solvers: robust least squares on relative errors, and linear least squares with unknowns of at least 0.

    minimise  sum_i rho(log(predicted_i / measured_i)),    rho(r) = 2 r^2 / (1 + sqrt(1 + (r / s)^2))

over the logarithms of the constants, which therefore stay positive. rho is quadratic for errors below s and linear
above, so that a few points that the model cannot explain have little effect on the fit. The residuals are logarithms,
because twice and half of a measured value are equally wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError

Predict = Callable[[Floats], Floats]
"""A function from B sets of constants, ``(n, B, 1)``, to predictions, ``(B, N)``."""

STEP = 1e-5
"""Finite-difference step of a constant's logarithm."""

SETTLED = 1e-10
"""Relative change of the cost below which the fit has converged."""


class Fit(NamedTuple):
    """The result of a fit of n constants to N measurements.

    Attributes:
        constants: fitted constants, ``(n,)``.
        errors: ``predicted / measured - 1``, ``(N,)``.
        spread: standard error of the logarithm of each constant, ``(n,)``: 0.1 is about 10 %. It is large or infinite
            if the measurements do not determine the constant.
        cost: minimum of the cost function.
    """

    constants: Floats
    errors: Floats
    spread: Floats
    cost: float


def relative_fit(
    predict: Predict,
    measured: ArrayLike,
    starts: ArrayLike,
    *,
    upper: ArrayLike = np.inf,
    scale: float = 0.01,
    iterations: int = 200,
) -> Fit:
    """Fit constants by Levenberg and Marquardt's method, from the start that leads to the least cost.

    Args:
        predict: the model, for several sets of constants at once.
        measured: measured values, ``(N,)``, positive.
        starts: initial constants, ``(n,)``, or ``(S, n)`` for several starts, positive; n at most N. A model that
            contains a maximum or a minimum can have several local minima of the cost.
        upper: upper bounds of the constants, ``(n,)``.
        scale: s, relative error of the measurements, above which a point counts less than its square.
        iterations: largest number of iterations from each start.

    Raises:
        SpecError: fewer measurements than constants, or a measurement or start that is not positive.

    >>> sizes = np.array([1e3, 1e4, 1e5, 1e6])
    >>> fit = relative_fit(lambda c: c[0] + sizes / c[1], 2e-3 + sizes / 1e8, [1e-3, 1e9])
    >>> [f"{value:.4g}" for value in fit.constants]
    ['0.002', '1e+08']
    """
    truth, x = np.asarray(measured, dtype=float), np.atleast_2d(np.asarray(starts, dtype=float))
    require(truth > 0, "measured", truth, "a positive number")
    require(x > 0, "starts", x, "a positive number")
    if truth.size < x.shape[1]:
        expected = f"at least as many measurements as there are constants, {x.shape[1]}"
        raise SpecError("measured", truth.size, expected)
    highest = np.log(np.broadcast_to(np.asarray(upper, dtype=float), x.shape[1:]))
    fits = (_descend(predict, truth, np.log(start), highest, scale, iterations) for start in x)
    return min(fits, key=lambda fit: fit.cost)


def _descend(predict: Predict, truth: Floats, start: Floats, highest: Floats, scale: float, iterations: int) -> Fit:
    def residuals(logs: Floats) -> Floats:
        return np.log(predict(np.exp(logs.T)[..., None]) / truth)

    def cost_of(r: Floats) -> float:
        return float(np.sum(2 * r**2 / (1 + np.sqrt(1 + (r / scale) ** 2))))

    logs, damping = np.minimum(start, highest), 1e-3
    r = residuals(logs[None])[0]
    for _ in range(iterations):
        normal, slope = _quadratic(residuals, logs, r, scale)
        before, moved = cost_of(r), False
        at_bound = (logs >= highest) & (slope < 0)
        normal[at_bound, :], normal[:, at_bound], slope[at_bound] = 0.0, 0.0, 0.0
        while not moved and damping < 1e12:
            move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -slope)
            trial = np.minimum(logs + np.clip(move, -1, 1), highest)
            errors = residuals(trial[None])[0]
            moved = cost_of(errors) < before
            damping *= 0.1 if moved else 4
        if not moved:
            break
        logs, r, damping = trial, errors, max(damping, 1e-9)
        if before - cost_of(r) <= SETTLED * before:
            break
    normal, _ = _quadratic(residuals, logs, r, scale)
    sigma = np.sqrt(np.sum(r**2 / np.sqrt(1 + (r / scale) ** 2)) / max(r.size - logs.size, 1))
    return Fit(np.exp(logs), np.exp(r) - 1, sigma * _root_of_inverse(normal), cost_of(r))


def _quadratic(residuals: Callable[[Floats], Floats], logs: Floats, r: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return the approximate Hessian and the gradient of half the cost, with less weight for large errors."""
    jacobian = (residuals(logs + STEP * np.eye(logs.size)) - r).T / STEP
    weights = 1 / np.sqrt(1 + (r / scale) ** 2)
    return jacobian.T @ (weights[:, None] * jacobian), jacobian.T @ (weights * r)


def _root_of_inverse(normal: Floats) -> Floats:
    """Return the square roots of the inverse's diagonal, infinite where the matrix is singular."""
    values, vectors = np.linalg.eigh(normal)
    with np.errstate(divide="ignore"):
        inverse = np.where(values > 1e-14 * values[-1], 1 / values, np.inf)
    with np.errstate(invalid="ignore"):
        shares = np.where(vectors**2 > 1e-12, vectors**2 * inverse, 0.0)
    return np.sqrt(shares.sum(axis=1))


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """Solve linear least squares with unknowns of at least 0.

    The function fixes the most negative unknown at 0 and solves again, until no unknown is negative.
    """
    free = np.ones(matrix.shape[1], dtype=np.bool_)
    while True:
        solved = np.zeros(matrix.shape[1])
        solved[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        if not (solved < 0).any():
            return solved
        free[int(np.argmin(solved))] = False
