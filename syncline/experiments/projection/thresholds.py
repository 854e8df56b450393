"""At which bandwidths a method is worth it: its speedup over the baseline, as a function of the bandwidth alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link
from syncline.costmodel.arrays import FloatOrArray, Indices
from syncline.costmodel.network.paths import Floats
from syncline.experiments.bounds import AS_PREDICTED, Factors
from syncline.experiments.projection.plan import ProjectionPlan

RATIOS = {"faster": 1.0, "faster_by_5_percent": 1.05}
"""Fields of a row, and the speedup that each is about."""

LOWEST, HIGHEST = 125.0, 125e12
"""Bytes per second between which thresholds are looked for: 1 kbit/s and 1 Pbit/s."""

PER_DECADE = 5
SPLIT, TIMES = 9, 6
"""Points between two bandwidths, and how often the interval of the crossing is split by so many: to a millionth."""

ROUNDING = 1e-15
"""By how much sums of the same times may differ, as a share."""

AT_A_TIME = 1 << 14
"""Methods in settings on links whose thresholds are looked for together, to bound the memory."""

WHEN = (None, "always", "never", "below", "above")
"""When a speedup is reached: at all bandwidths, at none, below one or above it; None where that is not known."""
ALWAYS, NEVER, BELOW, ABOVE = range(1, 5)

Speedups = Callable[[Indices, Floats], Floats]
"""Of methods in settings on links, by their places ``(E,)``, at bandwidths ``(1, K)`` or ``(E, K)``: ``(E, K)``."""


class Thresholds(NamedTuple):
    """Of methods in settings on links: when a speedup is reached, as a place in ``WHEN``, and the bandwidth.

    Attributes:
        when: ``(E,)``.
        bytes_per_s: ``(E,)``; nan where there is none.
    """

    when: NDArray[np.int64]
    bytes_per_s: Floats


def at_bandwidth(link: Link, bandwidths: Floats | float) -> Link:
    """The link with these bandwidths instead; an upload keeps its proportion."""
    upload = link.upload_bytes_per_s
    scaled = None if upload is None else upload / link.bandwidth_bytes_per_s * bandwidths
    return link.with_numbers(
        {"bandwidth_bytes_per_s": bandwidths} | ({} if scaled is None else {"upload_bytes_per_s": scaled})
    )


def speedups(plan: ProjectionPlan, number: int, link: Link, bandwidths: Floats) -> Floats:
    """Of a method over the first one in a plan's one setting, at each bandwidth, all else of the link as it is."""
    there = at_bandwidth(link, bandwidths[None])
    over = ratio(*(plan.step(each, there).step_time_s for each in (0, number)))
    return np.broadcast_to(over[0], bandwidths.shape)


def ratio(baseline_s: FloatOrArray, times_s: FloatOrArray) -> Floats:
    """Speedups; 1 where nothing takes any time, nan where a time is not known."""
    baseline_s, times_s = np.broadcast_arrays(np.asarray(baseline_s, dtype=np.float64), times_s)
    return np.divide(baseline_s, times_s, out=np.ones(times_s.shape), where=~(times_s <= 0))


def of_links(
    plan: ProjectionPlan, links: Link, triples: tuple[Indices, Indices, Indices], factors: Floats | None = None
) -> Speedups:
    """The speedups of methods over the first one.

    Args:
        plan: prices the methods.
        links: whose fields but the bandwidth hold; ``(1, n)`` each, or numbers.
        triples: of each the setting, the link and the number of the method, those of a method together.
        factors: by what the communication of each is off, ``(E, 1)``.
    """
    settings, which, numbers = triples
    each = {name: value[0][which][:, None] for name, value in links.arrays.items()}

    def seconds(picked: Indices, number: int, bandwidths: Floats) -> Floats:
        there = at_bandwidth(links.with_numbers({name: value[picked] for name, value in each.items()}), bandwidths)
        off = AS_PREDICTED if factors is None else Factors(1.0, factors[picked])
        times_s = plan.step(number, there, settings[picked], factors=off).step_time_s
        return np.broadcast_to(times_s, (len(picked), bandwidths.shape[1]))

    def told(picked: Indices, bandwidths: Floats) -> Floats:
        methods = numbers[picked]
        edges = [0, *(1 + np.flatnonzero(np.diff(methods))).tolist(), len(picked)]
        parts = [slice(*ends) for ends in itertools.pairwise(edges)]
        at = np.broadcast_to(bandwidths, (len(picked), bandwidths.shape[1]))
        times_s = [seconds(picked[part], int(methods[part.start]), at[part]) for part in parts]
        return ratio(seconds(picked, 0, at), np.concatenate(times_s))

    return told


def thresholds(speedups: Speedups, count: int, ratios: dict[str, float] = RATIOS) -> dict[str, Thresholds]:
    """The highest bandwidth at which a speedup crosses each ratio, and on which side of it it is reached.

    Args:
        speedups: of methods in settings on links.
        count: E, how many of them there are.
        ratios: by name; 1 is reached only by what is faster.
    """
    names, of = list(ratios), np.array(list(ratios.values()))
    grid = np.geomspace(LOWEST, HIGHEST, round(np.log10(HIGHEST / LOWEST) * PER_DECADE) + 1)
    values = np.broadcast_to(speedups(np.arange(count), grid[None]), (count, len(grid)))
    held = np.stack([_reached(values, one) for one in of])  # (ratios, E, K)
    changes = held[..., 1:] != held[..., :-1]
    when = np.where(changes.any(-1), np.where(held[..., -1], ABOVE, BELOW), np.where(held[..., 0], ALWAYS, NEVER))
    bytes_per_s = np.full(when.shape, np.nan)
    pair, which = np.nonzero(changes.any(-1).T)  # in the order of the pairs
    if which.size:
        last = changes.shape[-1] - 1 - np.argmax(changes[which, pair, ::-1], axis=-1)
        at_end = held[which, pair, -1][:, None]
        low, high = grid[last], grid[last + 1]
        row = np.arange(len(pair))
        for _ in range(TIMES):
            inner = np.geomspace(low, high, SPLIT + 2, axis=-1)
            differs = _reached(speedups(pair, inner[:, :-1]), of[which][:, None]) != at_end
            last = SPLIT - np.argmax(differs[:, ::-1], axis=-1)
            low, high = inner[row, last], inner[row, last + 1]
        bytes_per_s[which, pair] = high
    return {name: Thresholds(when[i], bytes_per_s[i]) for i, name in enumerate(names)}


def _reached(values: Floats, wanted: Floats | float) -> NDArray[np.bool_]:
    return np.where(np.equal(wanted, 1), values > 1 + ROUNDING, values >= wanted)
