"""The mean time of the slowest of several workers whose computing varies at random.

Each step of each worker takes ``exp(sigma z - sigma^2 / 2)`` times its mean, z standard normal. Workers that wait for
each other after every K steps take as long as the slowest of P means of K such factors. We take such a mean as
log-normal, too, with the same variance (L. Fenton, 1960): ``s^2 = log(1 + (exp(sigma^2) - 1) / K)``. The mean of the
largest of P is then, with the density phi and the distribution Phi of a standard normal number,

    E = P int phi(z - s) Phi(z)^(P - 1) dz.

Workers that wait for each other only some steps later have no such form: `delayed_slowest_factor` simulates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.seeds import generator

_Z = np.linspace(-12.0, 18.0, 6001)
"""Points of the integral over z."""


def slowest_factor(sigma: float, workers: IntOrArray, steps: int = 1) -> FloatOrArray:
    """Return E, the mean time of the slowest worker over the mean time of a worker.

    Args:
        sigma: standard deviation of the logarithm of a step's time; at least 0.
        workers: number of workers P.
        steps: K, number of steps between two waits.

    >>> [round(float(slowest_factor(0.05, workers)), 3) for workers in (1, 8, 1024)]
    [1.0, 1.073, 1.175]
    >>> round(float(slowest_factor(0.05, 1024, steps=100)), 3)
    1.016
    """
    if not sigma:
        return 1.0
    spread = math.sqrt(math.log1p(math.expm1(sigma**2) / steps))  # s, for the mean of K steps
    return _by_count(workers, lambda count: _mean_of_largest(spread, count))


MOST_SIMULATED = 1024
"""Largest numbers of steps and of workers that `delayed_slowest_factor` simulates."""


def delayed_slowest_factor(sigma: float, workers: IntOrArray, awaited: tuple[int, ...]) -> FloatOrArray:
    """Return the factor of `slowest_factor` for workers that wait for each other some steps later, by simulation.

    Messages take no time.

    Args:
        sigma: standard deviation of the logarithm of a step's time; at least 0.
        workers: number of workers P; of more than ``MOST_SIMULATED`` so many stand for all.
        awaited: for each step the last step that all workers must have ended before a worker goes on; -1: none.

    >>> [round(float(delayed_slowest_factor(0.05, 8, awaited)), 3) for awaited in (range(1000), range(-1, 999))]
    [1.074, 1.003]
    """
    if not sigma:
        return 1.0
    steps = tuple(awaited)
    return _by_count(workers, lambda count: _simulated_slowest(sigma, min(count, MOST_SIMULATED), steps))


@lru_cache(maxsize=256)
def _simulated_slowest(sigma: float, workers: int, awaited: tuple[int, ...]) -> float:
    """Return the simulated mean time of the slowest worker over that of a worker, see `delayed_slowest_factor`."""
    times = np.exp(sigma * generator(0, "slowest").standard_normal((len(awaited), workers)))
    now = np.zeros(workers)
    slowest = []  # time at which the last worker ends each step
    for step, awaited_step in enumerate(awaited):
        now += times[step]
        slowest.append(now.max())
        if awaited_step >= 0:
            np.maximum(now, slowest[awaited_step], out=now)
    return float(now.max() / (len(awaited) * times.mean()))


def _by_count(workers: IntOrArray, factor_of: Callable[[int], float]) -> FloatOrArray:
    """Return a function of a number of workers, elementwise for an array."""
    counts = np.asarray(workers)
    return np.reshape([factor_of(count) for count in counts.ravel().tolist()], counts.shape)[()]


@lru_cache(maxsize=4096)
def _mean_of_largest(spread: float, workers: int) -> float:
    """Return E, the mean of the largest of P log-normal times of mean 1 whose logarithms deviate by s, ``spread``."""
    density = np.exp(-((_Z - spread) ** 2) / 2) / math.sqrt(2 * math.pi)
    return float(workers * np.sum(density * np.exp((workers - 1) * _log_distribution())) * (_Z[1] - _Z[0]))


@lru_cache(maxsize=1)
def _log_distribution() -> NDArray[np.float64]:
    """Return the logarithm of the normal distribution function Phi on the grid `_Z`."""
    return np.log([math.erfc(-z / math.sqrt(2)) / 2 for z in _Z.tolist()])
