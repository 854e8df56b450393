"""Bandwidths at which a method is worth it, from its speedup over the baseline as a function of the bandwidth alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.planner.bounds import Factors
from syncline.planner.projection.plan import ProjectionPlan

RATIOS = {"faster": 1.0, "faster_by_5_percent": 1.05}
"""Fields of a row, and the speedup of each."""

LOWEST, HIGHEST = 125.0, 125e12
"""Range of bandwidths in which thresholds are found, in bytes per second: 1 kbit/s to 1 Pbit/s."""

PER_DECADE = 5
SPLIT, TIMES = 9, 6
"""Points between two bandwidths, and number of splits of the interval with the crossing: to a millionth."""

ROUNDING = 1e-15
"""Relative difference that sums of the same times may have."""

AT_A_TIME = 1 << 14
"""Number of methods in settings on links whose thresholds are found together, which bounds the memory."""

WHEN = (None, "always", "never", "below", "above")
"""Bandwidths that reach a speedup: all, none, those below or above a threshold; None if that is unknown."""
ALWAYS, NEVER, BELOW, ABOVE = range(1, 5)

Speedups = Callable[[Indices, Floats], Floats]
"""Speedups ``(E, K)`` of methods in settings on links, by indices ``(E,)`` and bandwidths ``(1, K)`` or ``(E, K)``."""


class Thresholds(NamedTuple):
    """Thresholds of methods in settings on links: the case as an index into ``WHEN``, and the bandwidth.

    Attributes:
        when: ``(E,)``, indices into ``WHEN``.
        bytes_per_s: ``(E,)``; nan if there is no threshold.
    """

    when: NDArray[np.int64]
    bytes_per_s: Floats


def at_bandwidth(link: Link, bandwidths: Floats | float) -> Link:
    """Return the link with these bandwidths in bytes per second; an upload keeps its proportion."""
    upload = link.upload_bytes_per_s
    scaled = None if upload is None else upload / link.bandwidth_bytes_per_s * bandwidths
    return link.with_numbers(
        {"bandwidth_bytes_per_s": bandwidths} | ({} if scaled is None else {"upload_bytes_per_s": scaled})
    )


def speedups(plan: ProjectionPlan, number: int, link: Link, bandwidths: Floats) -> Floats:
    """Return a method's speedup over the first one in a plan's only setting, ``(K,)``, at each bandwidth of a link."""
    links = at_bandwidth(link, bandwidths[None])
    values = ratio(*(plan.step(method_number, links).step_time_s for method_number in (0, number)))
    return np.broadcast_to(values[0], bandwidths.shape)


def ratio(baseline_s: FloatOrArray, times_s: FloatOrArray) -> Floats:
    """Return the speedups; 1 if nothing takes any time, nan if a time is unknown."""
    baseline_s, times_s = np.broadcast_arrays(np.asarray(baseline_s, dtype=np.float64), times_s)
    return np.divide(baseline_s, times_s, out=np.ones(times_s.shape), where=~(times_s <= 0))


def of_links(plan: ProjectionPlan, links: Link, triples: tuple[Indices, Indices, Indices], factors: Floats) -> Speedups:
    """Return a function to the speedups of methods over the first one.

    Args:
        plan: plan that prices the methods.
        links: links of which all fields except the bandwidth are used; each field is a number or ``(1, n)``.
        triples: number of the setting, of the link and of the method, for each speedup, grouped by method.
        factors: factor of each method's communication, ``(E, 1)``.
    """
    settings, link_index, numbers = triples
    link_fields = {name: value[0][link_index][:, None] for name, value in links.arrays.items()}

    def seconds(picked: Indices, number: int, bandwidths: Floats) -> Floats:
        picked_links = at_bandwidth(
            links.with_numbers({name: value[picked] for name, value in link_fields.items()}), bandwidths
        )
        slower = Factors(1.0, factors[picked])
        times_s = plan.step(number, picked_links, settings[picked], factors=slower).step_time_s
        return np.broadcast_to(times_s, (len(picked), bandwidths.shape[1]))

    def speedups_of(picked: Indices, bandwidths: Floats) -> Floats:
        methods = numbers[picked]
        edges = [0, *(1 + np.flatnonzero(np.diff(methods))).tolist(), len(picked)]
        parts = [slice(*ends) for ends in itertools.pairwise(edges)]
        rates = np.broadcast_to(bandwidths, (len(picked), bandwidths.shape[1]))
        times_s = [seconds(picked[part], int(methods[part.start]), rates[part]) for part in parts]
        return ratio(seconds(picked, 0, rates), np.concatenate(times_s))

    return speedups_of


def thresholds(speedups: Speedups, count: int, ratios: dict[str, float] = RATIOS) -> dict[str, Thresholds]:
    """Return the highest bandwidth at which a speedup crosses each ratio, and the side on which it reaches the ratio.

    Args:
        speedups: speedups of methods in settings on links.
        count: E, the number of such combinations.
        ratios: speedups by name; only a faster method reaches 1.
    """
    names, targets = list(ratios), np.array(list(ratios.values()))
    grid = np.geomspace(LOWEST, HIGHEST, round(np.log10(HIGHEST / LOWEST) * PER_DECADE) + 1)
    values = np.broadcast_to(speedups(np.arange(count), grid[None]), (count, len(grid)))
    reached = np.stack([_reached(values, target) for target in targets])  # (ratios, E, K)
    changes = reached[..., 1:] != reached[..., :-1]
    when = np.where(changes.any(-1), np.where(reached[..., -1], ABOVE, BELOW), np.where(reached[..., 0], ALWAYS, NEVER))
    bytes_per_s = np.full(when.shape, np.nan)
    pair, ratio_index = np.nonzero(changes.any(-1).T)  # in the order of the pairs
    if ratio_index.size:
        last = changes.shape[-1] - 1 - np.argmax(changes[ratio_index, pair, ::-1], axis=-1)
        at_end = reached[ratio_index, pair, -1][:, None]
        low, high = grid[last], grid[last + 1]
        row = np.arange(len(pair))
        for _ in range(TIMES):
            inner = np.geomspace(low, high, SPLIT + 2, axis=-1)
            differs = _reached(speedups(pair, inner[:, :-1]), targets[ratio_index][:, None]) != at_end
            last = SPLIT - np.argmax(differs[:, ::-1], axis=-1)
            low, high = inner[row, last], inner[row, last + 1]
        bytes_per_s[ratio_index, pair] = high
    return {name: Thresholds(when[i], bytes_per_s[i]) for i, name in enumerate(names)}


def _reached(values: Floats, wanted: Floats | float) -> NDArray[np.bool_]:
    return np.where(np.equal(wanted, 1), values > 1 + ROUNDING, values >= wanted)
