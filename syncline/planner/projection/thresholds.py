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
from syncline.planner.bounds import FactorBounds, Factors
from syncline.planner.projection.bounds import threshold_bounds
from syncline.planner.projection.columns import Categorical, Columns
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import NetworkGroup

RATIOS = {"faster": 1.0, "faster_by_5_percent": 1.05}
"""Fields of a row, and the speedup over the first method that each stands for."""

LOWEST, HIGHEST = 125.0, 125e12
"""Range of bandwidths in which thresholds are found, in bytes per second: 1 kbit/s to 1 Pbit/s."""

PER_DECADE = 5
"""Number of bandwidths per decade that are tried first."""

INNER_POINTS, NUM_SPLITS = 9, 6
"""Points inside the interval with a crossing, and how often it is split, an even number: into a million parts."""

FEW_ROWS = 512
"""Number of thresholds up to which pricing once at the points of two splits costs less than pricing twice."""

ROUNDING = 1e-15
"""Relative difference that sums of the same times may have."""

AT_A_TIME = 1 << 14
"""Number of thresholds that are found together, a limit on memory."""

WHEN = (None, "always", "never", "below", "above")
"""Bandwidths that reach a speedup: all, none, those below or above a threshold; None if that is unknown."""
ALWAYS, NEVER, BELOW, ABOVE = range(1, 5)

NO_THRESHOLDS = ("nccl",)
"""Policies without thresholds: they choose algorithms by tables, and the choice jumps with the bandwidth."""

SUFFIXES = ("", "_low", "_high")
"""Suffixes of the names of a threshold's columns: its value, and its bounds."""

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
    """Return the link with another bandwidth, a number or an array; its upload changes in proportion."""
    numbers: dict[str, Any] = {"bandwidth_bytes_per_s": bandwidths}
    if link.upload_bytes_per_s is not None:
        numbers["upload_bytes_per_s"] = link.upload_bytes_per_s / link.bandwidth_bytes_per_s * bandwidths
    return link.with_numbers(numbers)


def speedups(plan: ProjectionPlan, method_index: int, link: Link, bandwidths: Floats) -> Floats:
    """Return a method's speedup over the plan's first method on a link with each of K bandwidths, ``(K,)``.

    Args:
        plan: plan of one setting.
        bandwidths: ``(K,)``, bytes per second.
    """
    links = at_bandwidth(link, bandwidths[None])  # (1, K): one setting
    baseline_s, method_s = plan.step(0, links).step_time_s, plan.step(method_index, links).step_time_s
    (setting_speedups,) = speedup_ratio(baseline_s, method_s)
    return np.broadcast_to(setting_speedups, bandwidths.shape)


def speedup_ratio(baseline_s: FloatOrArray, times_s: FloatOrArray) -> Floats:
    """Return the speedups over a baseline: 1 if a method takes no time, nan if a time is unknown."""
    baseline_s, times_s = np.broadcast_arrays(np.asarray(baseline_s, dtype=np.float64), times_s)
    takes_time = ~(times_s <= 0)  # also true for an unknown time, nan
    return np.divide(baseline_s, times_s, out=np.ones(times_s.shape), where=takes_time)


def _speedups_on_links(
    plan: ProjectionPlan, links: Link, settings: Indices, link_index: Indices, methods: Indices, factors: Floats
) -> Speedups:
    """Return a function that computes speedups over the first method in E combinations of setting, link and method.

    Args:
        links: n links with fields ``(1, n)`` or numbers; the function replaces their bandwidths.
        settings: ``(E,)``, index of the setting of each speedup.
        link_index: ``(E,)``, index of the link.
        methods: ``(E,)``, index of the method, ascending.
        factors: ``(E, 1)``, factor on the seconds of communication.
    """
    # Each field of the links as a column ``(E, 1)``.
    field_columns = {name: value[0][link_index][:, None] for name, value in links.arrays.items()}

    def step_times_s(selected: Indices, method_index: int, bandwidths: Floats) -> Floats:
        """Return step times ``(len(selected), K)`` of a method at K bandwidths of each selected link."""
        selected_links = links.with_numbers({name: column[selected] for name, column in field_columns.items()})
        selected_links = at_bandwidth(selected_links, bandwidths)
        step = plan.step(method_index, selected_links, settings[selected], factors=Factors(1.0, factors[selected]))
        return np.broadcast_to(step.step_time_s, (len(selected), bandwidths.shape[1]))

    def speedups_at(selected: Indices, bandwidths: Floats) -> Floats:
        """Return the speedups of each selected row's method over the baseline at these bandwidths."""
        selected_methods = methods[selected]
        bandwidths = np.broadcast_to(bandwidths, (len(selected), bandwidths.shape[1]))
        # Methods ascend: the rows of each method are neighbours and are priced together.
        first_rows = 1 + np.flatnonzero(np.diff(selected_methods))
        times_s = []
        for begin, end in itertools.pairwise([0, *first_rows.tolist(), len(selected)]):
            times_s.append(step_times_s(selected[begin:end], int(selected_methods[begin]), bandwidths[begin:end]))
        return speedup_ratio(step_times_s(selected, 0, bandwidths), np.concatenate(times_s))

    return speedups_at


def thresholds(speedups: Speedups, count: int, ratios: dict[str, float] = RATIOS) -> dict[str, Thresholds]:
    """Return the highest bandwidth at which speedups cross each ratio, and whether they reach it above or below.

    Args:
        speedups: speedups of methods in settings on links.
        count: E, the number of combinations of method, setting and link.
        ratios: speedups by name; the ratio 1 is reached only by a method that is faster than the first one.
    """
    names, targets = list(ratios), np.array(list(ratios.values()))
    # Find the last crossing of each ratio on a coarse grid of bandwidths.
    grid = np.geomspace(LOWEST, HIGHEST, round(np.log10(HIGHEST / LOWEST) * PER_DECADE) + 1)
    grid_speedups = np.broadcast_to(speedups(np.arange(count), grid[None]), (count, len(grid)))
    reached = np.stack([_reached(grid_speedups, target) for target in targets])  # (ratios, E, K)
    changes = reached[..., 1:] != reached[..., :-1]
    has_crossing = changes.any(-1)
    when = np.where(has_crossing, np.where(reached[..., -1], ABOVE, BELOW), np.where(reached[..., 0], ALWAYS, NEVER))
    bytes_per_s = np.full(when.shape, np.nan)
    combination, ratio_index = np.nonzero(has_crossing.T)  # sorted by combinations
    if ratio_index.size:
        # Split the interval with the last crossing `NUM_SPLITS` times; in one call twice, if there are few crossings.
        last = changes.shape[-1] - 1 - np.argmax(changes[ratio_index, combination, ::-1], axis=-1)
        low, high = grid[last], grid[last + 1]
        reached_at_high = reached[ratio_index, combination, -1][:, None]
        row = np.arange(len(combination))
        target = targets[ratio_index][:, None]
        splits_at_once = 2 if len(combination) <= FEW_ROWS else 1
        for _ in range(NUM_SPLITS // splits_at_once):
            points = np.geomspace(low, high, INNER_POINTS + 2, axis=-1)  # one row per crossing
            if splits_at_once == 2:
                inside = np.geomspace(points[:, :-1], points[:, 1:], INNER_POINTS + 2, axis=-1)[..., :-1]
                points = np.append(inside.reshape(len(row), -1), points[:, -1:], axis=-1)
            # The crossing follows the last point that reaches the ratio, or misses it, unlike the highest bandwidth.
            differs = _reached(speedups(combination, points[:, :-1]), target) != reached_at_high
            last = differs.shape[1] - 1 - np.argmax(differs[:, ::-1], axis=-1)
            low, high = points[row, last], points[row, last + 1]
        bytes_per_s[ratio_index, combination] = high
    return {name: Thresholds(when[index], bytes_per_s[index]) for index, name in enumerate(names)}


def _reached(values: Floats, target: Floats | float) -> NDArray[np.bool_]:
    """Return which speedups reach a target; a target of 1 must be exceeded by more than rounding errors."""
    return np.where(np.equal(target, 1), values > 1 + ROUNDING, values >= target)


def threshold_columns(
    plan: ProjectionPlan,
    groups: Sequence[NetworkGroup],
    is_closed_form: NDArray[np.bool_],
    computing: FactorBounds,
    communication: FactorBounds,
) -> Columns:
    """Return the columns of the bandwidths at which methods are faster than the first one, and 5 % faster.

    Each name in `RATIOS` has a column of values in `WHEN`. The threshold and its bounds have columns of their own, such
    as ``faster_low_bandwidth_bytes_per_s``. All are ``(S, N, M)`` for S settings, N networks and M methods. A threshold
    is unknown for the first method, on a network of more than one link, with a policy in `NO_THRESHOLDS`, and if the
    time of the method or of the first one has no closed form. A bound is unknown if its speedups never cross the ratio.

    Args:
        is_closed_form: ``(S, N, M)``, whether a step time has a closed form.
        computing: uncertainty of computing, by setting.
        communication: uncertainty of communication, by network.
    """
    when = {name: np.zeros(is_closed_form.shape, dtype=np.int64) for name in RATIOS}
    bandwidths = {(name, suffix): np.full(is_closed_form.shape, np.nan) for name in RATIOS for suffix in SUFFIXES}
    for network_indices, links in groups:
        if not isinstance(links, Link) or plan.spec.algorithm_on(links) in NO_THRESHOLDS:
            continue
        # A combination of a method, a setting and a link has a threshold if the times of the method and of the first
        # one, the baseline, have closed forms. The combinations are sorted by methods.
        method_has_form = is_closed_form[:, network_indices, 1:] & plan.included[:, None, 1:]
        has_threshold = method_has_form & is_closed_form[:, network_indices, :1]
        methods, settings, link_index = np.nonzero(np.moveaxis(has_threshold, -1, 0))
        methods, networks = methods + 1, np.array(network_indices)[link_index]
        for begin in range(0, len(methods), AT_A_TIME):
            chosen = slice(begin, begin + AT_A_TIME)
            cells = settings[chosen], networks[chosen], methods[chosen]
            low, high = threshold_bounds(computing, communication, settings[chosen], networks[chosen])
            # Each combination has three rows, which are found together: the value, and its lower and upper bound.
            speedups_at = _speedups_on_links(
                plan, links, settings=np.repeat(settings[chosen], 3), link_index=np.repeat(link_index[chosen], 3),
                methods=np.repeat(methods[chosen], 3),
                factors=np.concatenate([np.ones_like(low), low, high], axis=1).reshape(-1, 1),
            )  # fmt: skip
            for name, threshold in thresholds(speedups_at, 3 * len(low)).items():
                when[name][cells] = threshold.when[::3]
                for index, suffix in enumerate(SUFFIXES):
                    bandwidths[name, suffix][cells] = threshold.bytes_per_s[index::3]
    columns: Columns = {}
    for name in RATIOS:
        columns[name] = Categorical(when[name], WHEN)
        for suffix in SUFFIXES:
            columns[f"{name}{suffix}_bandwidth_bytes_per_s"] = bandwidths[name, suffix]
    return columns
