"""Failures in closed form: their published rates, checkpoints, and copies that continue without failed copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from syncline.costmodel.layouts.groups import slowest_message_s
from syncline.costmodel.network.paths import Network
from syncline.costmodel.numerics.arrays import require
from syncline.files import read_csv
from syncline.units import format_seconds

DAY_S = 86400.0

Per = Literal["worker", "node", "site"]
"""Unit whose workers fail together: a worker, a node or a site."""


@dataclass(frozen=True)
class FailureRate:
    """The rate of one kind of failures of workers, nodes or sites, which fail independently of each other.

    The time between two failures of a unit has a Weibull distribution, ``P(T > t) = exp(-(t / scale)^shape)`` with
    ``scale = mtbf / Gamma(1 + 1 / shape)``. A shape of 1 is exponential; a shape below 1 means bursts of failures.

    Args:
        mtbf_s: mean seconds between failures of one unit.
        per: unit that fails, a worker, node or site.
        shape: shape of the Weibull distribution. Schroeder and Gibson (2006) found 0.7 to 0.8 on clusters of LANL.
        repair_s: seconds after which the machine can be used again.

    >>> rate = FailureRate(1e6, "node")
    >>> rate.units(64, node_workers=8, sites=2)
    8
    """

    mtbf_s: float
    per: Per = "worker"
    shape: float = 1.0
    repair_s: float = 0.0

    def __post_init__(self) -> None:
        require(self.mtbf_s > 0, "mtbf", self.mtbf_s, "a positive time")
        require(self.shape > 0, "shape", self.shape, "a positive number; 1 is exponential")
        require(self.repair_s >= 0, "repair", self.repair_s, "a time, not negative")

    @property
    def scale_s(self) -> float:
        """Return the scale of the Weibull distribution in seconds."""
        return self.mtbf_s / math.gamma(1 + 1 / self.shape)

    def unit_workers(self, workers: int, node_workers: int, sites: int) -> int:
        """Return the largest number of workers that fail together, if ``workers`` are in nodes and on sites."""
        if self.per == "worker":
            return 1
        return node_workers if self.per == "node" else math.ceil(workers / sites)

    def units(self, workers: int, node_workers: int, sites: int) -> int:
        """Return the number of units, such as nodes, that fail independently of each other; see `unit_workers`."""
        return math.ceil(workers / self.unit_workers(workers, node_workers, sites))


def group_mtbf_s(rates: Iterable[FailureRate], workers: int, node_workers: int = 1, sites: int = 1) -> float:
    """Return the long-run mean seconds between failures anywhere in a training; infinite without rates.

    >>> group_mtbf_s([FailureRate(10.0), FailureRate(10.0, "node")], workers=4, node_workers=4)
    2.0
    """
    # The mean seconds between failures of one kind are those of a unit over the number of units.
    failures_per_s = sum(1 / (rate.mtbf_s / rate.units(workers, node_workers, sites)) for rate in rates)
    return 1 / failures_per_s if failures_per_s else math.inf


def spares_always_suffice(
    rates: Sequence[FailureRate], spares: int, workers: int, node_workers: int = 1, sites: int = 1
) -> bool:
    """Return whether a lack of spares makes failed machines wait for a repair in less than 1/1000 of the time.

    The number of units in repair has a Poisson distribution with mean rho, the failures during a repair. By Chernoff's
    bound it is at least n, for n above rho, in at most ``e^(n - rho) (rho / n)^n`` of the time. Here n is the smallest
    number of units for which the spares are too few, if each unit has as many machines as the largest.

    >>> rates = [FailureRate(1e6, repair_s=1e4)]
    >>> [spares_always_suffice(rates, spares, workers=100) for spares in (1, 4, 8)]
    [False, False, True]
    """
    size = (workers, node_workers, sites)
    in_repair = sum(rate.units(*size) * rate.repair_s / rate.mtbf_s for rate in rates)  # rho
    too_many = spares // max((rate.unit_workers(*size) for rate in rates), default=1) + 1  # n
    if not in_repair:  # no failures, or repairs that take no time
        return True
    log_bound = too_many - in_repair + too_many * math.log(in_repair / too_many)
    return too_many > in_repair and log_bound < math.log(1e-3)


REPAIR_S = 342 * 60.0
"""Default seconds of a repair: the mean of 5.7 h after hardware failures on clusters of Los Alamos National Laboratory.

The mean over all causes was 355 minutes, the median 54; mean repair times of single clusters were less than an hour to
more than a day. In the records that the laboratory released (LA-UR-05-7318, 1996 to 2005) 14,341 hardware failures took
344 minutes on average, and all 23,739 failures 352.
"""

REPAIR_SOURCE = "the mean after hardware failures at LANL, Schroeder and Gibson (2006), Table 2"


class PublishedRate(NamedTuple):
    """Published failure rates, and the spare machines of their cluster.

    Attributes:
        source: publication of the rates.
        spares: accelerators of the cluster that the training did not use, which replaced failed machines.
        spares_source: origin of the number of spares.
    """

    rates: tuple[FailureRate, ...]
    description: str
    source: str
    node_accelerators: int
    spares: int
    spares_source: str


def _published_rates() -> Iterator[tuple[str, PublishedRate]]:
    """Yield the name and the rate of each line of ``failure_rates.csv``: failures of some units in some days."""
    for row in read_csv(Path(__file__).with_name("failure_rates.csv")):
        unit_s = float(row["days"]) * DAY_S * float(row["units"])
        per: Any = row["unit"]
        yield row["name"], PublishedRate(
            (FailureRate(unit_s / float(row["failures"]), per),), row["description"], row["source"],
            int(row["node_accelerators"]), int(row["spares"]), row["spares_source"],
        )  # fmt: skip


FAILURE_RATES: dict[str, PublishedRate] = dict(_published_rates())
"""Published rates by name, with exponential times between failures, because the sources give only rates."""


def repair_text(repair_s: float, spares: int) -> str:
    """Return a sentence on repairs and spares, with the source of each that is a default.

    >>> repair_text(3600.0, 0)
    'A failed machine is repaired in 1 h.'
    """
    text = f"A failed machine is repaired in {format_seconds(repair_s)}"
    if repair_s == REPAIR_S:
        text += f" (assumed: {REPAIR_SOURCE})"
    if spares:
        replace = "machine replaces a failed one" if spares == 1 else "machines replace failed ones"
        text += f"; {spares:,} spare {replace} at once"
        sources = [rate.spares_source for rate in FAILURE_RATES.values() if rate.spares == spares]
        if sources:
            text += f" (assumed: {sources[0]})"
    return f"{text}."


def expected_wall_s(
    work_s: float, interval_s: float, stop_s: float, restart_s: float, mtbf_s: float, down_s: float = 0.0
) -> float:
    """Return the expected seconds of a training that saves checkpoints: T work seconds, one checkpoint per interval.

    The seconds are ``(M + D) e^(R / M) (e^((tau + delta) / M) - 1) T / tau``, with exponential times between failures.
    A failure can happen at any time, also during checkpoints (delta) and restarts (R), but not while the training is
    down (D). The result is infinite if the formula overflows.

    Args:
        work_s: T, seconds of the training without failures or checkpoints.
        interval_s: tau, seconds of work between two checkpoints.
        stop_s: delta, seconds for which a checkpoint stops the training.
        restart_s: R, seconds of a restart after a failure.
        mtbf_s: M, mean seconds between failures of any part of the training.
        down_s: D, seconds from a failure to the beginning of the restart.

    Sources: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Gener.
    Comput. Syst. 22 (2006), exact formula; with D: Bougeret et al., Checkpointing strategies for parallel jobs (2011).

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

    The interval tau solves ``(1 - tau / M) e^(tau / M) = e^(-delta / M)``, which makes the derivative of
    `expected_wall_s` 0; delta is ``stop_s`` and M is ``mtbf_s``. It does not depend on restarts and is at most M.

    >>> round(best_interval_s(60, 3600 * 24)), round(young_interval_s(60, 3600 * 24))
    (3180, 3220)
    """
    require(stop_s >= 0, "stop", stop_s, "a time, not negative")
    if not stop_s:  # checkpoints that take no time
        return 0.0
    if math.isinf(mtbf_s):  # no failures
        return math.inf
    relative_stop = stop_s / mtbf_s

    def log_difference(relative_interval: float) -> float:
        """Return the logarithm of the equation's left side over its right side; both sides can be close to 1."""
        return math.log1p(-relative_interval) + relative_interval + relative_stop

    return mtbf_s * _root_of_falling(log_difference, low=0.0, high=1.0)


def young_interval_s(stop_s: float, mtbf_s: float) -> float:
    """Return J. W. Young's first-order estimate of `best_interval_s` (1974): ``sqrt(2 stop_s mtbf_s)``."""
    return math.sqrt(2 * stop_s * mtbf_s)


def daly_interval_s(stop_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order estimate (2006) of `best_interval_s`, with delta the stop and M the mtbf.

    The estimate is ``sqrt(2 delta M) (1 + sqrt(delta / 2M) / 3 + delta / 18M) - delta``, or M if ``delta >= 2 M``.
    """
    if stop_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stop_s / (2 * mtbf_s)
    return math.sqrt(2 * stop_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stop_s


def intervals_within(excess: float, stop_s: float, mtbf_s: float) -> tuple[float, float]:
    """Return the shortest and the longest interval whose expected time is at most ``1 + excess`` times the least.

    Both intervals are in seconds; ``stop_s`` and ``mtbf_s`` are the arguments of `best_interval_s`.

    >>> low_s, high_s = intervals_within(0.01, 60, 3600)
    >>> low_s < best_interval_s(60, 3600) < high_s
    True
    """
    best_s = best_interval_s(stop_s, mtbf_s)
    if not best_s or math.isinf(best_s):  # checkpoints that take no time, or no failures
        return best_s, best_s

    def wall_s(interval_s: float) -> float:
        """Return the expected seconds per second of work."""
        return expected_wall_s(1.0, interval_s, stop_s, restart_s=0.0, mtbf_s=mtbf_s)

    limit_s = (1 + excess) * wall_s(best_s)
    # Halve and double the best interval until both intervals take too long.
    low_s = high_s = best_s
    while wall_s(low_s) < limit_s:
        low_s /= 2
    while wall_s(high_s) < limit_s:
        high_s *= 2
    # The time falls with the interval up to the best one, and rises behind it.
    shortest_s = _root_of_falling(lambda interval_s: wall_s(interval_s) - limit_s, low=low_s, high=best_s)
    longest_s = _root_of_falling(lambda interval_s: limit_s - wall_s(interval_s), low=best_s, high=high_s)
    return shortest_s, longest_s


def _root_of_falling(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the argument between ``low`` and ``high`` at which a falling function is 0, by bisection."""
    while low < (middle := (low + high) / 2) < high:  # until no number is between them
        if function(middle) > 0:
            low = middle
        else:
            high = middle
    return middle


LARGEST_EXPONENT = 700.0
"""Bound on exponents, below that at which ``exp`` overflows (709.8): waits of ``e^700`` mean times never end."""


def until_all_work_s(repair_s: float, mtbf_s: float) -> float:
    """Return the mean seconds from a failure until all machines work again, if others fail during the repair.

    Each failure begins a repair of D seconds, so that all machines work again after D seconds without a failure. With a
    mean time M between failures this takes ``M (e^(D / M) - 1)``, the busy period of a queue with a server per machine.

    >>> round(until_all_work_s(3600.0, 1e9)), round(until_all_work_s(3600.0, 3600.0))
    (3600, 6186)

    Source: L. Takacs, "Introduction to the Theory of Queues" (1962), chapter 3, section 3 (the queue M/G/infinity).
    """
    if not math.isfinite(mtbf_s):
        return repair_s
    return mtbf_s * math.expm1(repair_s / mtbf_s) if repair_s / mtbf_s < LARGEST_EXPONENT else math.inf


@dataclass(frozen=True)
class FaultTolerantGroup:
    """Copies of a model that train on several workers each and continue without a copy that fails.

    The times between failures are exponential. A copy is present for the fraction
    ``a = e^(-R / m) / (1 + (D + t / 2) / m)`` of the time, because it returns after D seconds, half a step and R
    seconds of restart, during which it can fail again. Present copies spend the fraction
    ``e^(-E / M) (t / M) / (e^(t / M) - 1)`` of their time in useful steps. A copy that fails also loses its steps since
    the last exchange. The formulas are of first order in the number of absent copies.

    Args:
        copy_mtbf_s: m, mean seconds between failures of one copy.
        any_mtbf_s: M, mean seconds between failures of any copy, after which the remaining copies regroup.
        all_mtbf_s: mean seconds between failures of all copies at once.
        step_s: t, seconds of a step; a failure costs the other copies half a step, and a returning copy waits for half.
        pause_s: E, seconds of all pauses per failure: detection, and regrouping after the failure and after the return.
        restart_s: R, seconds in which a copy starts and loads, and may fail again.
        down_s: D, seconds from a failure to the beginning of the restart.
        period: steps between two exchanges.

    >>> rare = FaultTolerantGroup(8, 1e9, 1e9 / 8, math.inf, step_s=1.0, pause_s=10.0, restart_s=300.0, down_s=60.0)
    >>> round(1 - rare.useful_share, 10)
    4.445e-07
    """

    copies: int
    copy_mtbf_s: float
    any_mtbf_s: float
    all_mtbf_s: float
    step_s: float
    pause_s: float
    restart_s: float
    down_s: float
    period: int = 1

    def __post_init__(self) -> None:
        require(self.copies > 0, "copies", self.copies, "at least one")
        for name in ("copy_mtbf_s", "any_mtbf_s", "all_mtbf_s"):
            require(getattr(self, name) > 0, name.removesuffix("_s"), getattr(self, name), "a positive time")

    @property
    def availability(self) -> float:
        """Return a, the fraction of the time for which a copy is present; see the class for its formula."""
        down_s = self.down_s + self.step_s / 2
        return math.exp(-self.restart_s / self.copy_mtbf_s) / (1 + down_s / self.copy_mtbf_s)

    @property
    def useful_share(self) -> float:
        """Return the fraction of the copies' time in useful steps, while no checkpoint or failure stops all copies."""
        in_steps = math.exp(-self.pause_s / self.any_mtbf_s) * _completed_fraction(self.step_s / self.any_mtbf_s)
        # `in_steps` does not count the interrupted step. A failed copy also loses up to period - 1 earlier steps.
        until_exchange = _completed_fraction((self.period - 1) * self.step_s / self.copy_mtbf_s)
        return self.availability * in_steps * until_exchange

    @property
    def total_loss_mtbf_s(self) -> float:
        """Return the mean seconds between losses of all copies, after which the group restarts from a checkpoint.

        If one of n copies fails while the others are absent, all are lost, ``n a / m (1 - a)^(n - 1)`` times per second
        with a and m of the class. Failures of all copies at once add to these. Without losses the result is infinite.
        """
        failures_per_s = self.copies * self.availability / self.copy_mtbf_s
        losses_per_s = failures_per_s * (1 - self.availability) ** (self.copies - 1) + 1 / self.all_mtbf_s
        return 1 / losses_per_s if losses_per_s else math.inf


def _completed_fraction(length: float) -> float:
    """Return the fraction of time in stretches of work that complete before a failure: ``x / (e^x - 1)``.

    x is the ``length`` of a stretch in mean times between failures.
    """
    if length > LARGEST_EXPONENT:
        return 0.0
    return length / math.expm1(length) if length else 1.0


@lru_cache(maxsize=4096)
def rejoin_s(network: Network, workers: int, copies: int, copy_bytes: float) -> float:
    """Return the seconds in which a returning copy of a model fetches its state from the next copy.

    Each of the w workers of a copy fetches S / w bytes, all at once. If there is only one copy, one worker fetches its
    share from another.

    Args:
        workers: P, number of workers.
        copies: number of model copies, each on equally many workers.
        copy_bytes: S, bytes of the parameters and the method's state of one copy.

    Raises:
        SpecError: the network cannot join that number of workers.

    >>> from syncline.costmodel import NETWORKS
    >>> round(rejoin_s(NETWORKS["wan"].network, 2, 2, 81e9))  # 81 GB at 1 Gbit/s
    648
    """
    if workers < 2:
        return 0.0
    copy_workers = math.ceil(workers / copies)
    fetchers = copy_workers if copies > 1 else 1
    # If P is odd, the second of two copies has fewer workers; no more workers of the first fetch.
    receivers = np.arange(min(fetchers, workers - fetchers))
    senders = receivers + fetchers
    return float(slowest_message_s(network, workers, senders, receivers, nbytes=copy_bytes / copy_workers))
