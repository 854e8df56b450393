"""The exact expected time with checkpoints at a constant failure rate, and the best checkpoint interval."""

from __future__ import annotations

import math
from collections.abc import Callable

from syncline.costmodel.numerics.arrays import require


def expected_wall_s(
    work_s: float, interval_s: float, stop_s: float, restart_s: float, mtbf_s: float, down_s: float = 0.0
) -> float:
    """Return the expected seconds of a training that saves a checkpoint after every ``interval_s`` of work.

    The seconds are ``(M + D) e^(R / M) (e^((tau + delta) / M) - 1) T / tau``. The time between failures is exponential.
    A failure can happen at any time, also during checkpoints (delta) and restarts (R), but not while the training is
    down (D). The result is infinite if the formula overflows.

    Args:
        work_s: T, seconds of the training without failures or checkpoints.
        interval_s: tau, seconds of work between two checkpoints.
        stop_s: delta, seconds for which a checkpoint stops the training.
        restart_s: R, seconds of a restart after a failure.
        mtbf_s: M, mean seconds between failures of any part of the training.
        down_s: D, seconds from a failure to the beginning of the restart.

    Raises:
        SpecError: an interval or a mean time that is not positive.

    Sources: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Gener.
    Comput. Syst. 22 (2006), its exact formula;
    with D: Bougeret et al., Checkpointing strategies for parallel jobs (2011).

    >>> round(expected_wall_s(3600, 600, 60, 0, 1e12))
    3960
    """
    require(interval_s > 0, "interval", interval_s, "a positive time")
    require(mtbf_s > 0, "mtbf", mtbf_s, "a positive time")
    if math.isinf(mtbf_s):
        return work_s * (1 + stop_s / interval_s)
    try:
        interval_wall_s = (mtbf_s + down_s) * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + stop_s) / mtbf_s)
    except OverflowError:
        return math.inf
    return interval_wall_s * work_s / interval_s


def best_interval_s(stop_s: float, mtbf_s: float) -> float:
    """Return the checkpoint interval with the least expected time, in seconds of work.

    The interval tau solves ``(1 - tau / M) e^(tau / M) = e^(-delta / M)``, where the derivative of `expected_wall_s`
    vanishes; its arguments define the symbols. The interval does not depend on restarts and is at most M.

    >>> round(best_interval_s(60, 3600 * 24)), round(young_interval_s(60, 3600 * 24))
    (3180, 3220)
    """
    require(stop_s >= 0, "stop", stop_s, "a time, not negative")
    if not stop_s:
        return 0.0
    if math.isinf(mtbf_s):
        return math.inf
    stop = stop_s / mtbf_s
    # The logarithm of both sides keeps digits if both are near 1.
    return mtbf_s * _root(lambda interval: math.log1p(-interval) + interval + stop, 0.0, 1.0)


def young_interval_s(stop_s: float, mtbf_s: float) -> float:
    """Return J. W. Young's first-order estimate of `best_interval_s` (1974), ``sqrt(2 delta M)``."""
    return math.sqrt(2 * stop_s * mtbf_s)


def daly_interval_s(stop_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order estimate of `best_interval_s`.

    The estimate is ``sqrt(2 delta M) (1 + sqrt(delta / 2M) / 3 + delta / 18M) - delta``, or M if ``delta >= 2 M``.

    Source: Daly (2006), the higher-order estimate.
    """
    if stop_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stop_s / (2 * mtbf_s)
    return math.sqrt(2 * stop_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stop_s


def intervals_within(excess: float, stop_s: float, mtbf_s: float) -> tuple[float, float]:
    """Return the shortest and the longest interval whose expected time is at most ``1 + excess`` times the least.

    Times and intervals are in seconds; the arguments are those of `best_interval_s`.

    >>> low_s, high_s = intervals_within(0.01, 60, 3600)
    >>> low_s < best_interval_s(60, 3600) < high_s
    True
    """
    best_s = best_interval_s(stop_s, mtbf_s)
    if not best_s or math.isinf(best_s):
        return best_s, best_s

    def wall_s(interval_s: float) -> float:
        """Return the expected seconds of a second of work."""
        return expected_wall_s(1.0, interval_s, stop_s, 0.0, mtbf_s)

    limit_s, low_s, high_s = (1 + excess) * wall_s(best_s), best_s, best_s
    while wall_s(low_s) < limit_s:
        low_s /= 2
    while wall_s(high_s) < limit_s:
        high_s *= 2
    shortest_s = _root(lambda interval_s: wall_s(interval_s) - limit_s, low_s, best_s)
    return shortest_s, _root(lambda interval_s: limit_s - wall_s(interval_s), best_s, high_s)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a function that falls from ``low`` to ``high``, by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


def until_all_work_s(repair_s: float, mtbf_s: float) -> float:
    """Return the mean seconds from a failure until all machines work again, if others fail during the repair.

    Each failure begins a repair of D seconds, so that all machines work again after D seconds without a failure. With a
    mean time M between failures this takes ``M (e^(D / M) - 1)``, the busy period of a queue with a server for each
    machine.

    >>> round(until_all_work_s(3600.0, 1e9)), round(until_all_work_s(3600.0, 3600.0))
    (3600, 6186)

    Source: L. Takacs, "Introduction to the Theory of Queues" (1962), chapter 3, section 3 (the queue M/G/infinity).
    """
    if not math.isfinite(mtbf_s):
        return repair_s
    return mtbf_s * math.expm1(repair_s / mtbf_s) if repair_s / mtbf_s < MOST_REPAIRS else math.inf


MOST_REPAIRS = 700.0
"""Ratio of a repair to the mean time between failures above which a moment when all machines work never comes."""
