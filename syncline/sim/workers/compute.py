"""The time that a worker computes in a step: a base time, and its disturbances.

A random `Disturbance` has a known mean, so that a run can be compared with an undisturbed one. A step of a group lasts
as long as its slowest worker, so with the same mean a heavier tail costs more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from syncline.costmodel.network.topology import Floats
from syncline.errors import SpecError


class Disturbance(Protocol):
    """A change of the time that workers compute."""

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the changed seconds of T steps of P workers, ``(T, P)``, from the seconds without this change."""
        ...


@dataclass(frozen=True)
class ComputeTime:
    """The time that each worker computes in each step: ``base_s``, then each disturbance in turn.

    Args:
        base_s: seconds of an undisturbed step; at least 0.
        disturbances: changes of that time, in order.

    Raises:
        SpecError: a base time that is negative or not finite.

    >>> ComputeTime(0.5, (SlowWorker(1, 2.0), Pause(0, 2, 3.0))).sample(3, 2, np.random.default_rng(0))
    array([[0.5, 1. ],
           [0.5, 1. ],
           [3.5, 1. ]])
    """

    base_s: float
    disturbances: tuple[Disturbance, ...] = ()

    def __post_init__(self) -> None:
        check_at_least_0("compute.base_s", self.base_s, "seconds, finite and at least 0")

    def sample(self, steps: int, workers: int, rng: np.random.Generator) -> Floats:
        """Return sampled seconds of shape ``(steps, workers)``.

        A further disturbance at the end does not change the draws of the earlier disturbances.
        """
        compute_s: Floats = np.broadcast_to(self.base_s, (steps, workers))  # takes no memory without disturbances
        for disturbance, stream in zip(self.disturbances, rng.spawn(len(self.disturbances)), strict=True):
            compute_s = disturbance.disturb(compute_s, stream)
        return compute_s


@dataclass(frozen=True)
class LogNormalJitter:
    """A random factor ``exp(sigma z - sigma^2 / 2)`` of each step of each worker, z standard normal; its mean is 1.

    Args:
        sigma: standard deviation of the logarithm; at least 0.

    Raises:
        SpecError: a sigma that is negative or not finite.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_at_least_0("jitter.sigma", self.sigma)

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the times with jitter."""
        return compute_s * lognormal_factors(self.sigma, rng.standard_normal(compute_s.shape))


@dataclass(frozen=True)
class SlowWorker:
    """A worker that takes ``factor`` times as long in every step.

    Args:
        worker: number of the worker, from 0.
        factor: factor of the compute time, at least 0; below 1 the worker is fast.

    Raises:
        SpecError: a factor that is negative or not finite, or, when sampled, no such worker.
    """

    worker: int
    factor: float

    def __post_init__(self) -> None:
        check_at_least_0("slow_worker.factor", self.factor, "a finite factor, at least 0")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the times with one worker slowed."""
        _check_index("slow_worker.worker", self.worker, compute_s.shape[1])
        slowed = compute_s.copy()
        slowed[:, self.worker] *= self.factor
        return slowed


@dataclass(frozen=True)
class Pause:
    """A pause of one worker in one step.

    Args:
        worker: number of the worker, from 0.
        step: number of the step, from 0.
        seconds: duration; at least 0.

    Raises:
        SpecError: a time that is negative or not finite, or, when sampled, no such worker or step.
    """

    worker: int
    step: int
    seconds: float

    def __post_init__(self) -> None:
        check_at_least_0("pause.seconds", self.seconds, "seconds, finite and at least 0")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the times with one step of a worker lengthened."""
        _check_index("pause.step", self.step, compute_s.shape[0])
        _check_index("pause.worker", self.worker, compute_s.shape[1])
        paused = compute_s.copy()
        paused[self.step, self.worker] += self.seconds
        return paused


@dataclass(frozen=True)
class ExponentialTail:
    """A factor ``1 + scale E`` of each step of each worker, E standard exponential: a shifted exponential.

    The factor has the mean ``1 + scale`` and the standard deviation ``scale``. The largest factor of P workers has the
    mean ``1 + scale H_P`` with ``H_P = 1 + 1/2 + ... + 1/P``.

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
        """Return the times, of slow steps multiplied by the factor."""
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
        """Return the times, of each worker multiplied by the worker's factor."""
        return compute_s * lognormal_factors(self.sigma, rng.standard_normal(compute_s.shape[1:]))


Straggler: TypeAlias = ExponentialTail | ParetoTail | Slowdowns | PersistentSpeeds


def lognormal_factors(sigma: float, z: Floats) -> Floats:
    """Return ``exp(sigma z - sigma^2 / 2)``: 1 in the mean over standard normal z."""
    return np.exp(sigma * z - sigma**2 / 2)


def check_at_least_0(path: str, value: float, expected: str = "a finite number, at least 0") -> None:
    """Raise an error for a number that is negative or not finite.

    Raises:
        SpecError: names the path and the expected value.
    """
    if not (math.isfinite(value) and value >= 0):
        raise SpecError(path, value, expected)


def _check_index(path: str, index: int, length: int) -> None:
    if not 0 <= index < length:
        raise SpecError(path, index, f"a number from 0 to {length - 1}")
