"""Results for the page's settings, by the functions of ``syncline project``, and the sentences that state them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from syncline.columns import column_of, share_text
from syncline.costmodel import Link
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError
from syncline.planner.assumptions import Assumption, option_origins, projection_assumptions
from syncline.planner.explore.settings import (
    BASELINE,
    described_network,
    explored_spec,
    failures_of_settings,
    format_count,
    line_between_places,
    sizes_of_sites,
)
from syncline.planner.periods import COMPARED_PERIOD, PRESET
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import plan_columns
from syncline.planner.projection.pricing import PriceCache, first_value
from syncline.planner.projection.sync_round import MethodRound, simulate_round
from syncline.planner.projection.thresholds import at_bandwidth
from syncline.planner.projection.training_totals import WholeTraining, with_training
from syncline.planner.tables.table import waiting
from syncline.planner.transfer import Transfer, transfers_of
from syncline.questions.explore import SITES, PageSettings
from syncline.specs.cluster.networks import network
from syncline.specs.failures import parse_failures
from syncline.units import format_bandwidth, format_seconds

LOWEST, HIGHEST = 1.25e6, 1.25e11
"""Bytes per second between which curves are drawn: 10 Mbit/s to 1 Tbit/s."""

PER_DECADE = 2
"""Number of bandwidths priced per decade, where each of them makes another network."""

POINTS_PER_CURVE = 101


@dataclass(frozen=True, eq=False)
class Ranking:
    """The rows of the compared methods for the settings of the page, ranked by the time of the training.

    Attributes:
        rows: the rows of `syncline project`, with losses where a fit has one, ordered by the time of the training;
            methods that fit into memory come first.
        notes: a line per method that is omitted, or that a setting does not change.
        assumptions: the values that change the rows, with the origin of each.
        transferred: the parts of the rows that are outside of what was measured.
    """

    settings: PageSettings
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    assumptions: tuple[Assumption, ...] = ()
    transferred: tuple[Transfer, ...] = ()

    @property
    def baseline(self) -> dict[str, Any]:
        """Return the row of `BASELINE`, the method with which speedups compare."""
        (row,) = [row for row in self.rows if row["method"] == BASELINE]
        return row


@dataclass(frozen=True, eq=False)
class Curves:
    """Times over the bandwidth of a site's line, with all other settings fixed.

    Attributes:
        bandwidths: ``(n,)`` bytes per second, ascending.
        step_s: method -> ``(n,)`` seconds of a mean step, for methods that have a time.
        compute_s: method -> seconds of a step in which a worker computes.
        num_priced: number of bandwidths that were priced. Between two of them a step's time is interpolated linearly in
            ``1 / bandwidth``, which is exact except where another part of a step becomes the longest.
    """

    bandwidths: Floats
    step_s: Mapping[str, Floats]
    compute_s: Mapping[str, float]
    num_priced: int

    def computing(self, method: str) -> Floats:
        """Return the share ``(n,)`` of the time in which a worker computes."""
        return self.compute_s[method] / self.step_s[method]


@lru_cache(maxsize=64)
def ranking_of(settings: PageSettings) -> Ranking:
    """Return the ranked rows of settings; ``shown`` has no effect on them."""
    explored = explored_spec(settings)
    spec = explored.spec
    # The rows are those of `project_all`, from a plan that is in the cache.
    projected = ColumnRows([plan_columns(_plan_of(settings), spec.networks, with_thresholds=True)])
    failure_fields = failures_of_settings(settings)
    failures = None if failure_fields is None else parse_failures(failure_fields)
    training = WholeTraining(settings.tokens, extrapolate=settings.losses == "extrapolated", failures=failures)
    rows = [dict(row) for row in with_training(projected, [spec], training)]
    if failures is not None:
        (baseline_goodput,) = [row["goodput"] for row in rows if row["method"] == BASELINE]
        rows = [_with_failures(row, baseline_goodput) for row in rows]
    # `COMPARED_PERIOD` counts as an option that is not given; 0 stands for the period of each method's preset.
    period = None if settings.period == COMPARED_PERIOD else settings.period or PRESET
    origins = option_origins(settings.methods, period)
    assumptions = tuple(projection_assumptions([spec], rows, origins))
    # Rows with a time come first, rows that fit before others, then the fastest.
    rows.sort(key=lambda row: (row["wall_clock_s"] is None, row["fits"] is False, row["wall_clock_s"] or 0.0))
    return Ranking(settings, tuple(rows), explored.notes, assumptions, transfers_of([spec]))


def _with_failures(row: dict[str, Any], baseline_goodput: float | None) -> dict[str, Any]:
    """Return a row whose total time and speedup include failures; a goodput of 0 makes time and speedup None."""
    goodput, times = row["goodput"], ("wall_clock_s", "wall_clock_low_s", "wall_clock_high_s")
    speedups = ("speedup", "speedup_low", "speedup_high")
    if goodput is None:  # the step time is unknown
        return row
    if goodput == 0:  # the training makes no progress
        return row | dict.fromkeys((*times, *speedups)) | {"not_timed": row["stuck"]}
    changes = {name: row[name] / goodput for name in times}
    for name in speedups:
        is_known = row[name] is not None and baseline_goodput
        changes[name] = row[name] * goodput / baseline_goodput if is_known else None
    return row | changes


def _curve_settings(settings: PageSettings) -> PageSettings:
    """Return the settings with the defaults of the bandwidth, the failures and the shown method.

    Curves do not depend on these settings, so all their values share a key of the cache.
    """
    defaults = {name: getattr(PageSettings, name) for name in ("bandwidth", "mtbf", "restart", "storage")}
    return replace(settings, shown="", **defaults)


def _plan_of(settings: PageSettings) -> ProjectionPlan:
    """Return the plan that prices the methods of settings on any line between the sites."""
    any_line = replace(_curve_settings(settings), latency=PageSettings.latency)  # one key for all lines
    return _cached_plan(any_line)


@lru_cache(maxsize=16)
def _cached_plan(settings: PageSettings) -> ProjectionPlan:
    """Return the plan of settings in which `_plan_of` has replaced the line between sites."""
    return ProjectionPlan([explored_spec(settings).spec])


def curves(settings: PageSettings) -> Curves:
    """Return the times of all methods as curves over the bandwidth."""
    key = _curve_settings(settings)
    if key not in _curve_cache:
        if len(_curve_cache) >= MOST_CURVES:
            _curve_cache.pop(next(iter(_curve_cache)))  # the oldest: a dictionary keeps the order of its keys
        _curve_cache[key] = _compute_curves(key)
    return _curve_cache[key]


def curves_cached(settings: PageSettings) -> bool:
    """Return whether the curves are in the cache."""
    return _curve_settings(settings) in _curve_cache


_curve_cache: dict[PageSettings, Curves] = {}  # no `lru_cache`, which cannot say whether it has a key
MOST_CURVES = 64
"""Limit on the settings whose curves are in the cache."""


def _compute_curves(settings: PageSettings) -> Curves:
    """Return the times of all methods over the bandwidth of a site's line, without the cache."""
    plan = _plan_of(settings)
    timed_methods = {row["method"] for row in ranking_of(settings).rows if row["step_time_s"] is not None}
    index_by_name = {method.name: index for index, method in enumerate(plan.methods) if method.name in timed_methods}
    compute_s = {name: float(plan.method_plans[index].compute_s[0]) for name, index in index_by_name.items()}
    drawn = np.geomspace(LOWEST, HIGHEST, POINTS_PER_CURVE)
    step_s: dict[str, Floats] = {}
    line = network(described_network(settings))
    if isinstance(line, Link) and len(sizes_of_sites(settings)) > 1:  # all bandwidths are priced at once
        links = at_bandwidth(line, drawn[None])  # (1, n) for one setting and n bandwidths
        for name, index in index_by_name.items():
            step_s[name] = np.broadcast_to(np.ravel(plan.step(index, links).step_time_s), drawn.shape)
        return Curves(drawn, step_s, compute_s, num_priced=POINTS_PER_CURVE)

    # On other networks each bandwidth is priced by itself: only a few are, and the curve is interpolated between them.
    bandwidths = np.geomspace(LOWEST, HIGHEST, round(np.log10(HIGHEST / LOWEST) * PER_DECADE) + 1)
    priced_s: dict[str, list[float]] = {name: [] for name in index_by_name}
    for bandwidth in bandwidths.tolist():
        explored_network = network(described_network(replace(settings, bandwidth=bandwidth)))
        cache = PriceCache()
        for name, index in index_by_name.items():
            step = plan.step(index, explored_network, cache=cache)
            priced_s[name].append(first_value(step.step_time_s))
    for name, seconds in priced_s.items():
        # Linear in 1 / bandwidth; the sign makes the points ascend, as `np.interp` needs.
        step_s[name] = np.interp(-1 / drawn, -1 / bandwidths, np.array(seconds))
    return Curves(drawn, step_s, compute_s, num_priced=len(bandwidths))


def shown_method(ranking: Ranking) -> str:
    """Return the method whose round to draw: the requested one if it has a time, else the first except the baseline."""
    timed_methods = [row["method"] for row in ranking.rows if row["wall_clock_s"] is not None]
    if ranking.settings.shown in timed_methods:
        return ranking.settings.shown
    return next((name for name in timed_methods if name != BASELINE), BASELINE)


def round_of(settings: PageSettings, method: str) -> MethodRound:
    """Return a round of one of the methods."""
    plan = _plan_of(settings)
    for index, candidate in enumerate(plan.methods):
        if candidate.name == method:
            return simulate_round(plan, index, explored_spec(settings).spec.networks[0])
    raise SpecError("shown", method, "one of the methods that are compared")


def crossing_bandwidth(bandwidths: Floats, values: Floats, wanted: float) -> float | None:
    """Return the highest bandwidth at which values cross ``wanted``, or None if there is no crossing.

    Between two bandwidths, values are interpolated linearly in ``1 / bandwidth``.

    Args:
        bandwidths: ``(n,)``, ascending.
        values: ``(n,)``, the value at each bandwidth.
    """
    is_above = values >= wanted
    changes = np.flatnonzero(is_above[1:] != is_above[:-1])
    if not changes.size:
        return None
    last = int(changes[-1])
    inverse_below, inverse_above = 1 / bandwidths[last], 1 / bandwidths[last + 1]
    share = (wanted - values[last]) / (values[last + 1] - values[last])
    return float(1 / (inverse_below + share * (inverse_above - inverse_below)))


TIE = 1.05
"""Ratio of two times up to which they tie."""

CLEARLY_FASTER = 1.05
"""Speedup from which a method is called faster, and up to which more bandwidth is of no use."""


EVERY = "every bandwidth that is drawn"
ALL_DRAWN = "at all bandwidths drawn"


def computing_shares(ranking: Ranking) -> dict[str, float]:
    """Return the share of a step in which a worker computes, for each method whose step has a time."""
    shares = {}
    for row in ranking.rows:
        if row["step_time_s"] is not None:
            shares[row["method"]] = row["compute_s"] / row["step_time_s"] if row["step_time_s"] else 1.0
    return shares


def settings_in_words(settings: PageSettings) -> str:
    """Return the settings in one line."""
    rate = f"{format_bandwidth(settings.bandwidth)} and {format_seconds(settings.latency)} one way"
    if settings.network == SITES:
        cluster = f"{settings.model} on {settings.sites} x {settings.workers} {settings.hardware}"
        line = f"{rate} between sites"
    else:
        cluster = f"{settings.model} on the {sum(sizes_of_sites(settings))} {settings.hardware} of {settings.network}"
        line = f"{rate} on {line_name(settings)}"
    fails = f", a worker fails once in {settings.mtbf / 3600:,.4g} h" if settings.mtbf else ""
    return f"{cluster}, {line}, {format_count(settings.tokens)} tokens{fails}"


def line_name(settings: PageSettings) -> str:
    """Return the line whose bandwidth the curves vary, in words."""
    line = line_between_places(settings)
    return "a site's line" if line is None else f"the narrowest line ({line.link.name or line.name})"


def _usable_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of methods that have a time and fit into memory, or whose memory is unknown."""
    return [row for row in rows if row["wall_clock_s"] is not None and row["fits"] is not False]


def ties(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the fastest method that fits and the methods that tie with it; an empty list if no method ties."""
    usable = _usable_rows(rows)
    if not usable:
        return []
    best = usable[0]["wall_clock_s"]
    tied_methods = [row["method"] for row in usable if row["wall_clock_s"] <= TIE * best]
    return tied_methods if len(tied_methods) > 1 else []


def headline(ranking: Ranking) -> str:
    """Return the sentence with the fastest method, its time with bounds, and its speedup over the baseline."""
    usable = _usable_rows(ranking.rows)
    if not usable:
        return "None of these methods fits into the memory of a worker: share a replica among more workers."
    first, baseline = usable[0], ranking.baseline
    time_text = (
        f"{format_seconds(first['wall_clock_s'])} ({format_seconds(first['wall_clock_low_s'])} to "
        f"{format_seconds(first['wall_clock_high_s'])})"
    )
    subject = f"{first['method']} is first"
    tied_methods = ties(ranking.rows)
    if tied_methods:
        *others, last = tied_methods
        subject = f"{', '.join(others)} and {last} tie"
    if first["method"] == BASELINE:
        return f"{subject}: {time_text}. It waits for the network {share_text(waiting(first) or 0.0)} of the time."
    comparison = ""
    if baseline["wall_clock_s"] is not None:
        comparison = (
            f", {column_of('speedup').text(first['speedup'])} as fast as {BASELINE}, which waits for the network "
            f"{share_text(waiting(baseline) or 0.0)} of the time"
        )
    return f"{subject}: {time_text}{comparison}."


def caveat(ranking: Ranking) -> str:
    """Return the sentence about losses, which the ranking does not include."""
    text = "At equal tokens, not at equal loss: a method that communicates less often is always ahead here."
    covered_methods = [row["method"] for row in ranking.rows if row["loss"] is not None]
    if not covered_methods:
        return f"{text} No published fit covers the loss of these settings."
    return f"{text} Published fits cover only the loss of {', '.join(covered_methods)}."


def leading_methods(ranking: Ranking, curves: Curves) -> str:
    """Return the sentence with the fastest method in each range of a site's bandwidth."""
    if len(sizes_of_sites(ranking.settings)) == 1:
        return "One site: nothing crosses the line between sites, whose bandwidth and latency change nothing."
    fitting = {row["method"] for row in ranking.rows if row["fits"] is not False}
    if len(fitting) in (0, len(ranking.rows)):  # memory does not distinguish the methods
        return _leaders(curves, set(curves.step_s))
    sentence = _leaders(curves, fitting)
    return f"Of what fits into memory: {sentence[0].lower()}{sentence[1:]}"


def threshold_rows(ranking: Ranking, curves: Curves) -> list[tuple[str, str, str]]:
    """Return each method's name, the bandwidths at which it is 5% faster than the baseline, and those that suffice.

    A bandwidth suffices if no higher one makes the step 5% faster.
    """
    if len(sizes_of_sites(ranking.settings)) == 1:  # a single site has no line whose bandwidth could change
        return []
    rows = []
    for row in ranking.rows:
        method = row["method"]
        if method in curves.step_s:
            step_s = curves.step_s[method]
            least_s = float(step_s[-1])  # with the highest bandwidth
            bandwidth = crossing_bandwidth(curves.bandwidths, step_s, wanted=CLEARLY_FASTER * least_s)
            suffices = ALL_DRAWN if bandwidth is None else f"from {_two_digits(bandwidth)}"
            faster = "" if method == BASELINE else _faster_than_baseline(row, curves, method)
            rows.append((method, faster, suffices))
    return rows


def _two_digits(bytes_per_s: float) -> str:
    """Return a bandwidth with two digits, the precision of the curves."""
    return format_bandwidth(float(f"{8 * bytes_per_s:.2g}") / 8)


def _leaders(curves: Curves, among: set[str]) -> str:
    """Return the sentence that names the fastest of some methods in each range of the bandwidth."""
    names = [name for name in curves.step_s if name in among]
    if not names:
        return "No method here has a known time and fits into memory."
    leaders = np.argmin(np.stack([curves.step_s[name] for name in names]), axis=0)  # index at each bandwidth
    parts = [names[leaders[0]]]
    for index in range(1, len(leaders)):
        leader_below, leader_above = names[leaders[index - 1]], names[leaders[index]]
        if leader_above == leader_below:
            continue
        interval = slice(index - 1, index + 1)
        ratios = curves.step_s[leader_below][interval] / curves.step_s[leader_above][interval]
        boundary = crossing_bandwidth(curves.bandwidths[interval], ratios, wanted=1.0)
        parts.append(f"from about {_two_digits(boundary or curves.bandwidths[index])} on {leader_above}")
    everywhere = f", at {EVERY}" if len(parts) == 1 else ""
    return f"First is {', '.join(parts)}{everywhere}."


def _faster_than_baseline(row: Mapping[str, Any], curves: Curves, method: str) -> str:
    """Return the bandwidths at which a method is 5% faster than the baseline, from its row or else from the curves."""
    if BASELINE not in curves.step_s:
        return "unknown"
    when = row.get("faster_by_5_percent")  # such as "above"; None: unknown
    if when is not None:
        threshold = row["faster_by_5_percent_bandwidth_bytes_per_s"]
        return when if threshold is None else f"{when} {format_bandwidth(threshold)}"
    # The row has no threshold, for example on a network of several links.
    speedups = curves.step_s[BASELINE] / curves.step_s[method]
    boundary = crossing_bandwidth(curves.bandwidths, speedups, wanted=CLEARLY_FASTER)
    is_faster_at_highest = speedups[-1] >= CLEARLY_FASTER
    if boundary is None:
        return ALL_DRAWN if is_faster_at_highest else "never"
    return f"{'above' if is_faster_at_highest else 'below'} {_two_digits(boundary)}"
