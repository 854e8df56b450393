"""The power of the distance from the fitted models with which errors of predicted losses grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel.scaling.measured_end import ExtrapolationError


def growth_exponent(errors: Sequence[ExtrapolationError]) -> tuple[float, dict[float, float]]:
    """Return the power p of the distance d in e-folds with which errors grow, by maximum likelihood.

    Errors are assumed normal with mean 0 and deviation ``c d^p``.

    Args:
        errors: errors with their distances.

    Returns:
        The most likely power, and for the powers 0, 0.5 and 1 the log likelihood of the most likely power minus theirs.

    >>> from syncline.costmodel.scaling.measured_end import extrapolation_errors
    >>> power, differences = growth_exponent(extrapolation_errors())
    >>> f"{power:.2f}", {p: round(difference, 1) for p, difference in differences.items()}
    ('0.46', {0.0: 5.9, 0.5: 0.0, 1.0: 8.6})
    """
    values, folds = np.array(errors).T

    def negative_log_likelihood(power: float) -> float:
        """Return minus the log likelihood of the errors, apart from a constant, with the most likely c."""
        return float(len(values) * np.log(np.mean((values / folds**power) ** 2)) / 2 + power * np.log(folds).sum())

    powers = np.linspace(0.0, 1.5, 151)
    best_power = float(powers[np.argmin([negative_log_likelihood(power) for power in powers])])
    minimum = negative_log_likelihood(best_power)
    return best_power, {power: negative_log_likelihood(power) - minimum for power in (0.0, 0.5, 1.0)}
