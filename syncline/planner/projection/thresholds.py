"""Bandwidths at which a method is worth it, from its speedup over the baseline as a function of the bandwidth alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.planner.bounds import Factors
from syncline.planner.projection.bounds import FactorBounds, threshold_bounds
from syncline.planner.projection.columns import Categorical, Columns
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import NetworkGroup

RATIOS = {"faster": 1.0, "faster_by_5_percent": 1.05}
"""Fields of a row, and the speedup over the first method that each stands for."""

LOWEST, HIGHEST = 125.0, 125e12
"""Range of bandwidths in which thresholds are found, in bytes per second: 1 kbit/s to 1 Pbit/s."""

PER_DECADE = 5
"""Number of bandwidths per decade that are tried first."""

SPLIT, TIMES = 9, 6
"""Points between two bandwidths, and number of splits of the interval with the crossing: to a millionth."""

ROUNDING = 1e-15
"""Relative difference that sums of the same times may have."""

AT_A_TIME = 1 << 14
"""Number of methods in settings on links whose thresholds are found together, which bounds the memory."""

WHEN = (None, "always", "never", "below", "above")
"""Bandwidths that reach a speedup: all, none, those below or above a threshold; None if that is unknown."""
ALWAYS, NEVER, BELOW, ABOVE = range(1, 5)

NO_THRESHOLDS = ("nccl",)
"""Policies that choose algorithms by tables, so that the choice jumps with the bandwidth; they have no thresholds."""

ENDS = ("", "_low", "_high")
"""Suffixes of a threshold's columns: its value, and its bounds."""

Speedups = Callable[[Indices, Floats], Floats]
"""Speedups ``(E, K)`` of methods in settings on links, by indices ``(E,)`` and bandwidths ``(1, K)`` or ``(E, K)``."""


class Thresholds(NamedTuple):
    """Thresholds of the bandwidth, one for each of E combinations of a method, a setting and a link.

    Attributes:
        when: ``(E,)``, indices into ``WHEN``.
        bytes_per_s: ``(E,)``, the bandwidth; nan if there is no threshold.
    """

    when: NDArray[np.int64]
    bytes_per_s: Floats


def at_bandwidth(link: Link, bandwidths: Floats | float) -> Link:
    """Return the link with these bandwidths in bytes per second; an upload keeps its proportion."""
    numbers: dict[str, Any] = {"bandwidth_bytes_per_s": bandwidths}
    if link.upload_bytes_per_s is not None:
        numbers["upload_bytes_per_s"] = link.upload_bytes_per_s / link.bandwidth_bytes_per_s * bandwidths
    return link.with_numbers(numbers)


def speedups(plan: ProjectionPlan, method_index: int, link: Link, bandwidths: Floats) -> Floats:
    """Return a method's speedup over the first one in a plan's only setting, ``(K,)``, at each bandwidth of a link.

    Args:
        plan: plan of one setting.
        method_index: index of the method.
        link: the link.
        bandwidths: ``(K,)``, bytes per second.
    """
    links = at_bandwidth(link, bandwidths[None])
    baseline, method = (plan.step(index, links).step_time_s for index in (0, method_index))
    return np.broadcast_to(ratio(baseline, method)[0], bandwidths.shape)


def ratio(baseline_s: FloatOrArray, times_s: FloatOrArray) -> Floats:
    """Return the speedups over a baseline: 1 if a method takes no time, nan if a time is unknown."""
    baseline_s, times_s = np.broadcast_arrays(np.asarray(baseline_s, dtype=np.float64), times_s)
    return np.divide(baseline_s, times_s, out=np.ones(times_s.shape), where=~(times_s <= 0))


def _speedups_on_links(
    plan: ProjectionPlan, links: Link, settings: Indices, link_index: Indices, numbers: Indices, factors: Floats
) -> Speedups:
    """Return a function to the speedups of E methods over the first one, each in a setting and on a link.

    Args:
        plan: plan that prices the methods.
        links: links, of which all fields except the bandwidth are used; each field is a number or ``(1, n)``.
        settings: ``(E,)``, index of the setting of each speedup.
        link_index: ``(E,)``, index of the link.
        numbers: ``(E,)``, index of the method, ascending.
        factors: ``(E, 1)``, factor on the seconds of communication.
    """
    link_fields = {name: value[0][link_index][:, None] for name, value in links.arrays.items()}

    def seconds(selected: Indices, method_index: int, bandwidths: Floats) -> Floats:
        """Return step times ``(len(selected), K)`` of a method at K bandwidths of each selected link."""
        selected_links = links.with_numbers({name: value[selected] for name, value in link_fields.items()})
        step = plan.step(
            method_index,
            at_bandwidth(selected_links, bandwidths),
            settings[selected],
            factors=Factors(1.0, factors[selected]),
        )
        return np.broadcast_to(step.step_time_s, (len(selected), bandwidths.shape[1]))

    def speedups_at(selected: Indices, bandwidths: Floats) -> Floats:
        """Return the speedups of each selected row's method over the baseline at these bandwidths."""
        methods = numbers[selected]
        rates = np.broadcast_to(bandwidths, (len(selected), bandwidths.shape[1]))
        edges = [0, *(1 + np.flatnonzero(np.diff(methods))).tolist(), len(selected)]
        runs = [slice(*ends) for ends in itertools.pairwise(edges)]  # of one method each
        times_s = [seconds(selected[run], int(methods[run.start]), rates[run]) for run in runs]
        return ratio(seconds(selected, 0, rates), np.concatenate(times_s))

    return speedups_at


def thresholds(speedups: Speedups, count: int, ratios: dict[str, float] = RATIOS) -> dict[str, Thresholds]:
    """Return the highest bandwidth at which a speedup crosses each ratio, and the side on which it reaches the ratio.

    Args:
        speedups: speedups of methods in settings on links.
        count: E, the number of such combinations.
        ratios: speedups by name; the ratio 1 is reached only by a method that is faster than the first one.
    """
    names, targets = list(ratios), np.array(list(ratios.values()))
    grid = np.geomspace(LOWEST, HIGHEST, round(np.log10(HIGHEST / LOWEST) * PER_DECADE) + 1)
    values = np.broadcast_to(speedups(np.arange(count), grid[None]), (count, len(grid)))
    reached = np.stack([_reached(values, target) for target in targets])  # (ratios, E, K)
    changes = reached[..., 1:] != reached[..., :-1]
    when = np.where(changes.any(-1), np.where(reached[..., -1], ABOVE, BELOW), np.where(reached[..., 0], ALWAYS, NEVER))
    bytes_per_s = np.full(when.shape, np.nan)
    combination, ratio_index = np.nonzero(changes.any(-1).T)  # sorted by combinations
    if ratio_index.size:
        last = changes.shape[-1] - 1 - np.argmax(changes[ratio_index, combination, ::-1], axis=-1)
        at_end = reached[ratio_index, combination, -1][:, None]
        low, high = grid[last], grid[last + 1]
        row = np.arange(len(combination))
        for _ in range(TIMES):
            inner = np.geomspace(low, high, SPLIT + 2, axis=-1)
            differs = _reached(speedups(combination, inner[:, :-1]), targets[ratio_index][:, None]) != at_end
            last = SPLIT - np.argmax(differs[:, ::-1], axis=-1)
            low, high = inner[row, last], inner[row, last + 1]
        bytes_per_s[ratio_index, combination] = high
    return {name: Thresholds(when[index], bytes_per_s[index]) for index, name in enumerate(names)}


def _reached(values: Floats, target: Floats | float) -> NDArray[np.bool_]:
    """Return whether speedups reach a target; values must exceed the target 1, beyond rounding errors."""
    return np.where(np.equal(target, 1), values > 1 + ROUNDING, values >= target)


def threshold_columns(
    plan: ProjectionPlan,
    groups: Sequence[NetworkGroup],
    closed: NDArray[np.bool_],
    computing: FactorBounds,
    communication: FactorBounds,
) -> Columns:
    """Return the columns of the bandwidths at which methods are faster than the first one, or 5 % faster.

    Each name in `RATIOS` has a column of values in `WHEN`, and columns ``name_bandwidth_bytes_per_s`` of the threshold
    and its bounds, ``(S, N, M)`` each for S settings, N networks and M methods. A threshold is unknown for the first
    method, on a network that is more than one link, with a policy in `NO_THRESHOLDS`, and if one of the two times has
    no closed form. A bound is unknown if nothing crosses there.

    Args:
        plan: plan of the settings.
        groups: networks in groups.
        closed: ``(S, N, M)``, whether a time is a closed form.
        computing: uncertainty of computing, by setting.
        communication: uncertainty of communication, by network.
    """
    when = {name: np.zeros(closed.shape, dtype=np.int64) for name in RATIOS}
    rates = {name: [np.full(closed.shape, np.nan) for _ in ENDS] for name in RATIOS}
    for network_indices, links in groups:
        if not isinstance(links, Link) or plan.spec.algorithm_on(links) in NO_THRESHOLDS:
            continue
        numbers, settings = np.nonzero(plan.included[:, 1:].T)
        link_index = np.tile(np.arange(len(network_indices)), len(settings))
        numbers, settings = (np.repeat(values, len(network_indices)) for values in (numbers + 1, settings))
        networks = np.array(network_indices)[link_index]
        both_closed = np.flatnonzero(closed[settings, networks, numbers] & closed[settings, networks, 0])
        for begin in range(0, len(both_closed), AT_A_TIME):
            part = both_closed[begin : begin + AT_A_TIME]
            cell = settings[part], networks[part], numbers[part]
            low, high = threshold_bounds(computing, communication, settings=settings[part], networks=networks[part])
            factors = np.concatenate([np.ones_like(low), low, high])
            order = np.argsort(np.tile(numbers[part], len(ENDS)), kind="stable")  # methods ascend
            setting, link, number = (
                np.tile(values[part], len(ENDS))[order] for values in (settings, link_index, numbers)
            )
            by_name = thresholds(
                _speedups_on_links(plan, links, setting, link, number, factors=factors[order]), len(order)
            )
            inverse_order = np.argsort(order).reshape(len(ENDS), -1)
            for name, threshold in by_name.items():
                when[name][cell] = threshold.when[inverse_order[0]]
                for rate, index in zip(rates[name], inverse_order, strict=True):
                    rate[cell] = threshold.bytes_per_s[index]
    columns: Columns = {}
    for name in RATIOS:
        columns[name] = Categorical(when[name], WHEN)
        columns |= {f"{name}{end}_bandwidth_bytes_per_s": rate for end, rate in zip(ENDS, rates[name], strict=True)}
    return columns
