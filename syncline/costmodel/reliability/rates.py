"""Failure rates of machines, with published presets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from syncline.costmodel.numerics.arrays import require
from syncline.units import format_seconds

DAY_S = 86400.0

Per = Literal["worker", "node", "site"]
"""Unit that fails together: a worker, all workers of a node, or all workers of a site."""


@dataclass(frozen=True)
class FailureRate:
    """The rate of one kind of failures, which are independent of each other.

    The time between two failures of a worker, node or site has a Weibull distribution,
    ``P(T > t) = exp(-(t / scale)^shape)`` with ``scale = mtbf / Gamma(1 + 1 / shape)``. A shape of 1 is exponential; a
    shape below 1 means bursts of failures.

    Args:
        mtbf_s: mean seconds between failures of one unit.
        per: unit that fails, a worker, node or site.
        shape: shape of the Weibull distribution. Schroeder and Gibson (2006) found 0.7 to 0.8 on clusters of LANL.
        repair_s: seconds after which the machine can be used again.

    Raises:
        SpecError: a time or a shape that is not positive, or a negative repair.

    >>> rate = FailureRate(1e6, "node")
    >>> rate.units(64, node=8, sites=2), rate.mean_s(64, node=8, sites=2)
    (8, 125000.0)
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

    def width(self, workers: int, node: int, sites: int) -> int:
        """Return the largest number of workers that fail together."""
        return {"worker": 1, "node": node, "site": -(-workers // sites)}[self.per]

    def units(self, workers: int, node: int, sites: int) -> int:
        """Return the number of units that can fail."""
        return -(-workers // self.width(workers, node, sites))

    def mean_s(self, workers: int, node: int, sites: int) -> float:
        """Return the long-run mean seconds between failures of any unit."""
        return self.mtbf_s / self.units(workers, node, sites)


def group_mtbf_s(rates: Iterable[FailureRate], workers: int, node: int = 1, sites: int = 1) -> float:
    """Return the mean seconds between failures of any unit, under all rates; infinite without rates.

    >>> group_mtbf_s([FailureRate(10.0), FailureRate(10.0, "node")], workers=4, node=4)
    2.0
    """
    failures_per_s = sum(1 / rate.mean_s(workers, node, sites) for rate in rates)
    return 1 / failures_per_s if failures_per_s else math.inf


REPAIR_S = 342 * 60.0
"""Default seconds of a repair: the mean of 5.7 h after hardware failures on clusters of Los Alamos National Laboratory.

The mean over all causes was 355 minutes, the median 54, because repair times are lognormal. Mean repair times of single
clusters were less than an hour to more than a day (abstract). In the records that the laboratory released
(LA-UR-05-7318, 1996 to 2005) 14,341 hardware failures took 344 minutes on average, and all 23,739 failures 352.
"""

REPAIR_SOURCE = "the mean after hardware failures at LANL, Schroeder and Gibson (2006), Table 2"


class PublishedRate(NamedTuple):
    """Published failure rates, and the spare machines of their cluster.

    Attributes:
        rates: the rates.
        description: the rates in words.
        source: publication of the rates.
        node: accelerators of a node.
        spares: accelerators of the cluster that the training did not use, which replaced failed machines.
        spares_source: origin of the number of spares.
    """

    rates: tuple[FailureRate, ...]
    description: str
    source: str
    node: int
    spares: int
    spares_source: str


def _interruptions(count: float, accelerators: int, days: float) -> tuple[FailureRate, ...]:
    """Return the rate of failures of single accelerators that interrupt a training so many times in so many days."""
    return (FailureRate(days * DAY_S * accelerators / count),)


FAILURE_RATES: dict[str, PublishedRate] = {
    "llama-3": PublishedRate(
        _interruptions(419, 16_384, 54),
        "unexpected interruptions of Llama 3 405B: one in 3.1 h on 16,384 H100s, one of a GPU in 5.8 years",
        "Grattafiori et al., The Llama 3 Herd of Models (2024), section 3.3.4 and Table 5: 419 of 466 interruptions in "
        "54 days; the other 47 were planned.",
        1,
        8192,
        "the training used 16K of the cluster's 24K GPUs, section 3.3.1",
    ),
    "opt-175b": PublishedRate(
        _interruptions(35, 992, 60),
        "manual restarts of OPT-175B after hardware failures: one in 1.7 days on 992 A100s",
        "Zhang et al., OPT (2022), section 2.5: at least 35 manual restarts over 2 months (here 60 days); the 70 and "
        "more that were automatic, by their own estimate, are not counted.",
        1,
        800,
        "flagged hosts were replaced, more than 100 of 8 GPUs in all, section 2.5",
    ),
    "meta-rsc-1": PublishedRate(
        (FailureRate(1000 / 6.50 * DAY_S, "node"),),
        "failures of nodes of 8 A100s: one of a node in 154 days",
        "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (arXiv 2410.21680, "
        "2024): 6.50 failures per thousand node-days on RSC-1.",
        8,
        3200,
        "failed jobs start again on other nodes; about 80 % of the cluster's 16,000 GPUs were in use",
    ),
    "meta-rsc-2": PublishedRate(
        (FailureRate(1000 / 2.34 * DAY_S, "node"),),
        "failures of nodes of 8 A100s: one of a node in 427 days",
        "Kokolis et al. (2024): 2.34 failures per thousand node-days on RSC-2.",
        8,
        1600,
        "failed jobs start again on other nodes; about 80 % of the cluster's 8,000 GPUs were in use",
    ),
}
"""Published rates by name, all exponential, because the sources give only rates."""


def repair_text(repair_s: float, spares: int) -> str:
    """Return a sentence on repairs and spares, with the source of each that is a default.

    >>> repair_text(3600.0, 0)
    'A failed machine is repaired in 1 h.'
    """
    repair = f"A failed machine is repaired in {format_seconds(repair_s)}"
    repair += f" (assumed: {REPAIR_SOURCE})" if repair_s == REPAIR_S else ""
    if not spares:
        return f"{repair}."
    source = next((rate.spares_source for rate in FAILURE_RATES.values() if rate.spares == spares), None)
    replaced = f"{spares:,} spare machines replace failed ones at once" + (f" (assumed: {source})" if source else "")
    return f"{repair}; {replaced}."
