"""At which bandwidths a method is worth it: its speedup over the baseline, as a function of the bandwidth alone."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link, Network, StepTime
from syncline.costmodel.network.paths import Floats

RATIOS = {"faster": 1.0, "faster_by_5_percent": 1.05}
"""Fields of a row, and the speedup that each is about."""

LOWEST, HIGHEST = 125.0, 125e12
"""Bytes per second between which thresholds are looked for: 1 kbit/s and 1 Pbit/s."""

PER_DECADE = 5
SPLIT, TIMES = 9, 6
"""Points between two bandwidths, and how often the interval of the crossing is split by so many: to a millionth."""

ROUNDING = 1e-15
"""By how much sums of the same times may differ, as a share."""

ONE_BY_ONE = ("nccl",)
"""Policies whose choice depends on the bandwidth, so that many bandwidths cannot be priced at once."""


class Priced(Protocol):
    """What prices a method's traffic on a network."""

    def algorithm(self, network: Network) -> str | None:
        """What carries the collectives."""

    def step(self, number: int, network: Network) -> StepTime:
        """The mean step of a method."""


class Threshold(NamedTuple):
    """When a speedup is reached: ``always``, ``never``, ``below`` the bandwidth (bytes per second) or ``above`` it."""

    when: Literal["always", "never", "below", "above"]
    bytes_per_s: float | None = None


def at_bandwidth(link: Link, bandwidths: Floats | float) -> Link:
    """The link with these bandwidths instead; an upload keeps its proportion."""
    upload = link.upload_bytes_per_s
    scaled = None if upload is None else upload / link.bandwidth_bytes_per_s * bandwidths
    return dataclasses.replace(link, bandwidth_bytes_per_s=bandwidths, upload_bytes_per_s=scaled)


def step_times_s(plan: Priced, number: int, link: Link, bandwidths: Floats) -> Floats:
    """Seconds of a method's mean step at each bandwidth, all else of the link as it is."""
    if plan.algorithm(link) not in ONE_BY_ONE:
        times = plan.step(number, at_bandwidth(link, bandwidths)).step_time_s
        return np.broadcast_to(np.asarray(times, dtype=np.float64), bandwidths.shape)
    one_by_one = (at_bandwidth(link, float(b)) for b in bandwidths)
    return np.array([float(plan.step(number, one).step_time_s) for one in one_by_one])


def speedups(plan: Priced, number: int, link: Link, bandwidths: Floats) -> Floats:
    """Of a method over the first one, at each bandwidth."""
    times_s = step_times_s(plan, number, link, bandwidths)
    baseline_s = step_times_s(plan, 0, link, bandwidths)
    return np.divide(baseline_s, times_s, out=np.ones_like(times_s), where=times_s > 0)


def threshold(plan: Priced, number: int, link: Link, ratio: float) -> Threshold:
    """The highest bandwidth at which a method's speedup crosses ``ratio``, and on which side of it it is reached.

    Args:
        plan: prices the methods.
        number: of the method; the first one is what speedups are over.
        link: whose latency and other fields hold.
        ratio: the speedup; 1 is reached only by what is faster.
    """

    def reached(bandwidths: Floats) -> NDArray[np.bool_]:
        values = speedups(plan, number, link, bandwidths)
        return values > 1 + ROUNDING if ratio == 1 else values >= ratio

    decades = np.log10(HIGHEST / LOWEST)
    grid = np.geomspace(LOWEST, HIGHEST, round(decades * PER_DECADE) + 1)
    held = reached(grid)
    changes = np.flatnonzero(held[1:] != held[:-1])
    if not changes.size:
        return Threshold("always" if held[0] else "never")
    low, high = grid[changes[-1]], grid[changes[-1] + 1]
    for _ in range(TIMES):
        inner = np.geomspace(low, high, SPLIT + 2)
        last = int(np.flatnonzero(reached(inner[:-1]) != held[-1])[-1])
        low, high = inner[last], inner[last + 1]
    return Threshold("above" if held[-1] else "below", float(high))
