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

LOG_STEP = 1e-5
"""Finite-difference step of a constant's logarithm."""

CONVERGED_CHANGE = 1e-10
"""Relative change of the cost below which the fit has converged."""

MOST_ITERATIONS = 200
"""Largest number of iterations from each start."""


class Fit(NamedTuple):
    """The result of a fit of n constants to N measurements.

    Attributes:
        constants: fitted constants, ``(n,)``.
        errors: ``predicted / measured - 1``, ``(N,)``.
        spread: standard error of the logarithm of each constant, ``(n,)``: 0.1 is about 10 %. It is large or infinite
            if the measurements do not determine the constant.
        cost: the sum that the fit minimises, see the module.
    """

    constants: Floats
    errors: Floats
    spread: Floats
    cost: float


def relative_fit(
    predict: Predict, measured: ArrayLike, starts: ArrayLike, *, upper: ArrayLike = np.inf, scale: float = 0.01
) -> Fit:
    """Return the fit of constants by Levenberg and Marquardt's method, from the start that leads to the least cost.

    Args:
        predict: the model, for several sets of constants at once.
        measured: measured values, ``(N,)``, positive.
        starts: initial constants, ``(n,)``, or ``(S, n)`` for several starts, positive; there are at most as many
            constants as measurements. Models that contain a maximum or minimum can have several minima of the cost.
        upper: upper bounds of the constants, ``(n,)``.
        scale: s, the relative error above which a measurement has less weight, for instance that of a measurement.

    >>> sizes = np.array([1e3, 1e4, 1e5, 1e6])
    >>> fit = relative_fit(lambda c: c[0] + sizes / c[1], 2e-3 + sizes / 1e8, [1e-3, 1e9])
    >>> [f"{value:.4g}" for value in fit.constants]
    ['0.002', '1e+08']
    """
    values = np.asarray(measured, dtype=float)
    start_rows = np.atleast_2d(np.asarray(starts, dtype=float))
    require(values > 0, "measured", values, "a positive number")
    require(start_rows > 0, "starts", start_rows, "a positive number")
    num_constants = start_rows.shape[1]
    if values.size < num_constants:
        expected = f"at least as many measurements as there are constants, {num_constants}"
        raise SpecError("measured", values.size, expected)
    upper_logs = np.log(np.broadcast_to(np.asarray(upper, dtype=float), (num_constants,)))
    fits = [_fit_from(np.log(start), predict, values, upper_logs, scale) for start in start_rows]
    return min(fits, key=lambda fit: fit.cost)


def _fit_from(start_logs: Floats, predict: Predict, measured: Floats, upper_logs: Floats, scale: float) -> Fit:
    """Return the fit that Levenberg and Marquardt's method reaches from a start; see `relative_fit` for arguments.

    A step minimises a quadratic model of the cost. Damping shortens the step and turns it towards the steepest descent.
    A step that lowers the cost weakens the damping for the next step; any other step strengthens it and is undone.
    """

    def residuals_at(logs: Floats) -> Floats:
        """Return the residuals ``(B, N)`` of N measurements at B sets of logarithms of constants, ``(B, n)``."""
        return np.log(predict(np.exp(logs.T)[..., None]) / measured)

    def cost_of(residuals: Floats) -> float:
        """Return the cost of residuals: quadratic below ``scale``, linear above."""
        return float(np.sum(2 * residuals**2 / (1 + np.sqrt(1 + (residuals / scale) ** 2))))

    logs, damping = np.minimum(start_logs, upper_logs), 1e-3
    residuals = residuals_at(logs[None])[0]
    for _ in range(MOST_ITERATIONS):
        hessian, gradient = _hessian_and_gradient(residuals_at, logs, residuals, scale)
        cost, has_improved = cost_of(residuals), False
        at_bound = (logs >= upper_logs) & (gradient < 0)  # a step would move these beyond their bounds; they stay
        hessian[at_bound, :], hessian[:, at_bound], gradient[at_bound] = 0.0, 0.0, 0.0
        while not has_improved and damping < 1e12:  # with more damping a step hardly moves
            # 1e-12 keeps the matrix regular where a constant has no effect.
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian) + 1e-12), -gradient)
            trial = np.minimum(logs + np.clip(step, -1, 1), upper_logs)  # no constant changes by more than a factor e
            trial_residuals = residuals_at(trial[None])[0]
            has_improved = cost_of(trial_residuals) < cost
            damping *= 0.1 if has_improved else 4
        if not has_improved:
            break
        logs, residuals, damping = trial, trial_residuals, max(damping, 1e-9)
        if cost - cost_of(residuals) <= CONVERGED_CHANGE * cost:
            break
    # Standard errors, from the weighted variance of the residuals and the inverse of the Hessian.
    hessian, _ = _hessian_and_gradient(residuals_at, logs, residuals, scale)
    weighted_squares = residuals**2 / np.sqrt(1 + (residuals / scale) ** 2)
    deviation = np.sqrt(np.sum(weighted_squares) / max(residuals.size - logs.size, 1))
    spread = deviation * _roots_of_inverse_diagonal(hessian)
    return Fit(np.exp(logs), np.exp(residuals) - 1, spread, cost_of(residuals))


def _hessian_and_gradient(
    residuals_at: Callable[[Floats], Floats], logs: Floats, residuals: Floats, scale: float
) -> tuple[Floats, Floats]:
    """Return the Gauss-Newton Hessian and the gradient of half of the cost, with less weight for large errors.

    Args:
        residuals_at: function from sets of constants' logarithms, ``(B, n)``, to residuals, ``(B, N)``.
        logs: logarithms of the constants, ``(n,)``.
        residuals: residuals at ``logs``, ``(N,)``.
        scale: see `relative_fit`.
    """
    # One row of the argument per constant, in which only this constant has moved.
    jacobian = (residuals_at(logs + LOG_STEP * np.eye(logs.size)) - residuals).T / LOG_STEP
    weights = 1 / np.sqrt(1 + (residuals / scale) ** 2)
    return jacobian.T @ (weights[:, None] * jacobian), jacobian.T @ (weights * residuals)


def _roots_of_inverse_diagonal(matrix: Floats) -> Floats:
    """Return the square roots of the diagonal of a symmetric matrix's inverse, infinite where it is singular."""
    values, vectors = np.linalg.eigh(matrix)
    with np.errstate(divide="ignore"):
        inverse = np.where(values > 1e-14 * values[-1], 1 / values, np.inf)  # smaller eigenvalues are rounding errors
    with np.errstate(invalid="ignore"):
        # The diagonal of ``V diag(1 / values) V^T`` sums these terms; rounding errors of V must not meet infinity.
        terms = np.where(vectors**2 > 1e-12, vectors**2 * inverse, 0.0)
    return np.sqrt(terms.sum(axis=1))


def non_negative(matrix: Floats, target: Floats) -> Floats:
    """Return the solution x >= 0 of the linear least-squares problem ``matrix x = target``.

    The function fixes the most negative unknown at 0 and solves again, until no unknown is negative.
    """
    is_free = np.ones(matrix.shape[1], dtype=np.bool_)
    while True:
        solution = np.zeros(matrix.shape[1])
        solution[is_free] = np.linalg.lstsq(matrix[:, is_free], target, rcond=None)[0]
        if not (solution < 0).any():
            return solution
        is_free[int(np.argmin(solution))] = False
