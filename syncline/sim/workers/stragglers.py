"""Stragglers: random factors on the time that a worker computes, besides `LogNormalJitter`.

Each is a `Disturbance` with a known mean, so that a run can be compared with an undisturbed one. A step of a group
lasts as long as its slowest worker, so with the same mean a heavier tail costs more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from syncline.costmodel.network.topology import Floats
from syncline.errors import SpecError
from syncline.sim.workers.compute import check_at_least_0, lognormal_factors


@dataclass(frozen=True)
class ExponentialTail:
    """A factor ``1 + scale E`` of each step of each worker, E standard exponential: a shifted exponential.

    The mean factor is ``1 + scale``, its standard deviation ``scale``. The slowest of P takes ``1 + scale H_P``
    times as long in the mean, with ``H_P = 1 + 1/2 + ... + 1/P``.

    Args:
        scale: mean of the added time, as a fraction of the undisturbed time; at least 0.

    Raises:
        SpecError: a scale that is negative or not finite.

    Source: K. Lee et al., "Speeding Up Distributed Machine Learning Using Codes" (2018), section II.
    """

    scale: float

    def __post_init__(self) -> None:
        check_at_least_0("exponential.scale", self.scale)

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the lengthened times of all steps."""
        return compute_s * (1 + self.scale * rng.standard_exponential(compute_s.shape))


@dataclass(frozen=True)
class ParetoTail:
    """A factor ``U^(-1 / shape)`` of each step of each worker, U uniform in (0, 1]: at least 1, a heavy tail.

    The probability of a factor above f is ``f^-shape``. The mean factor is ``shape / (shape - 1)``; the variance is
    infinite up to a shape of 2.

    Args:
        shape: above 1, where the mean is finite; the smaller, the heavier the tail.

    Raises:
        SpecError: a shape of 1 or less, or not finite.
    """

    shape: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.shape) and self.shape > 1):
            raise SpecError("pareto.shape", self.shape, "a finite number above 1, where there is a mean")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the lengthened times of all steps."""
        return compute_s * (1 - rng.random(compute_s.shape)) ** (-1 / self.shape)


@dataclass(frozen=True)
class Slowdowns:
    """Occasional slow steps: each takes ``factor`` times as long with ``probability``, independently.

    The mean factor is ``1 + probability (factor - 1)``. A step of P workers is slow with probability
    ``1 - (1 - probability)^P``.

    Args:
        probability: probability that a worker's step is slow, from 0 to 1.
        factor: factor of the compute time of a slow step, at least 0.

    Raises:
        SpecError: a field out of range or not finite.
    """

    probability: float
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise SpecError("slowdowns.probability", self.probability, "a number from 0 to 1")
        check_at_least_0("slowdowns.factor", self.factor, "a finite factor, at least 0")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the times, some of them lengthened."""
        return np.where(rng.random(compute_s.shape) < self.probability, self.factor * compute_s, compute_s)


@dataclass(frozen=True)
class PersistentSpeeds:
    """A factor ``exp(sigma z - sigma^2 / 2)`` of all steps of a worker, z standard normal, drawn once per worker.

    The mean factor over workers is 1. This models different machines, whereas `LogNormalJitter` models the variation of
    one machine.

    Args:
        sigma: standard deviation of the logarithm; at least 0.

    Raises:
        SpecError: a sigma that is negative or not finite.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_at_least_0("speeds.sigma", self.sigma)

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the times, each worker's by its own factor."""
        return compute_s * lognormal_factors(self.sigma, rng.standard_normal(compute_s.shape[1:]))


Straggler: TypeAlias = ExponentialTail | ParetoTail | Slowdowns | PersistentSpeeds
