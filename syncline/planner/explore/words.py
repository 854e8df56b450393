"""Sentences that state the results on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from syncline.costmodel.network.paths import Floats
from syncline.planner.explore.answers import Curves, Ranking, crossing
from syncline.planner.explore.settings import BASELINE, format_count, line_between_places, sizes_of_sites
from syncline.questions.explore import SITES, PageSettings
from syncline.units import format_bandwidth, format_seconds

TIE = 1.05
"""Ratio of two times up to which they tie."""

MORE_IS_NOTHING = 1.05
"""Ratio of a step's time to that at the highest bandwidth, up to which more bandwidth is of no use."""


DAY_S = 86400.0
EVERY = "every bandwidth that is drawn"
DRAWN = "at all bandwidths drawn"


def duration_text(seconds: float) -> str:
    """Return a time with its unit, days with all their digits."""
    if seconds >= 1000 * DAY_S:
        return f"{float(f'{seconds / DAY_S:.3g}'):,.0f} d"
    return format_seconds(seconds).replace(" us", " µs")


def percent(part: float) -> str:
    """Return a share in percent without decimals, except near 0 and 100."""
    if 0 < part < 0.0005:
        return "<0.1%"
    if 0.9995 < part < 1:
        return ">99.9%"
    if 0 < part < 0.005 or 0.995 < part < 1:
        return f"{part:.1%}"
    return f"{part:.0%}"


def speedup_text(speedup: float | None) -> str:
    """Return a speedup with three digits; a dash if it is unknown."""
    if speedup is None:
        return "-"
    return f"{float(f'{speedup:.3g}'):g}x"


def computing_now(ranking: Ranking) -> dict[str, float]:
    """Return the share of the time that computes, for each method that has a time."""
    timed = [row for row in ranking.rows if row["step_time_s"] is not None]
    return {row["method"]: row["compute_s"] / row["step_time_s"] if row["step_time_s"] else 1.0 for row in timed}


def waiting(row: Mapping[str, Any]) -> float:
    """Return the share of the time in which a worker waits for the network with nothing to compute."""
    return float(row["exposed_communication_s"] / row["step_time_s"]) if row["step_time_s"] else 0.0


def setting_line(settings: PageSettings) -> str:
    """Return the settings in one line."""
    rate = f"{format_bandwidth(settings.bandwidth)} and {duration_text(settings.latency)} one way"
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


def ties(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the methods that tie with the first of those that fit, the first included; none without a tie."""
    usable = [row for row in rows if row["wall_clock_s"] is not None and row["fits"] is not False]
    if not usable:
        return []
    best = usable[0]["wall_clock_s"]
    near = [row["method"] for row in usable if row["wall_clock_s"] <= TIE * best]
    return near if len(near) > 1 else []


def headline(ranking: Ranking) -> str:
    """Return the sentence with the fastest method, its time with bounds, and its speedup over the baseline."""
    usable = [row for row in ranking.rows if row["wall_clock_s"] is not None and row["fits"] is not False]
    if not usable:
        return "None of these methods fits into the memory of a worker: share a replica among more workers."
    first, baseline = usable[0], ranking.baseline
    time_text = (
        f"{duration_text(first['wall_clock_s'])} ({duration_text(first['wall_clock_low_s'])} to "
        f"{duration_text(first['wall_clock_high_s'])})"
    )
    equal = ties(ranking.rows)
    subject = f"{', '.join(equal[:-1])} and {equal[-1]} tie" if equal else f"{first['method']} is first"
    if first["method"] == BASELINE:
        return f"{subject}: {time_text}. It waits for the network {percent(waiting(first))} of the time."
    comparison = ""
    if baseline["wall_clock_s"] is not None:
        comparison = (
            f", {speedup_text(first['speedup'])} as fast as {BASELINE}, which waits for the network "
            f"{percent(waiting(baseline))} of the time"
        )
    return f"{subject}: {time_text}{comparison}."


def caveat(ranking: Ranking) -> str:
    """Return the sentence about losses, which the ranking does not include."""
    covered = [row["method"] for row in ranking.rows if row["loss"] is not None]
    equal = "At equal tokens, not at equal loss: a method that talks less often is always ahead here."
    if not covered:
        return f"{equal} No published fit covers the loss of these settings."
    return f"{equal} Published fits tell the loss of {', '.join(covered)} alone."


def leading_methods(ranking: Ranking, curves: Curves) -> str:
    """Return the sentence with the fastest method in each range of a site's bandwidth."""
    if len(sizes_of_sites(ranking.settings)) == 1:
        return "One site: nothing crosses the line between sites, whose bandwidth and latency change nothing."
    fitting = {row["method"] for row in ranking.rows if row["fits"] is not False}
    sentence = _leaders(curves, fitting or set(curves.step_s))
    return (
        sentence
        if len(fitting) in (0, len(ranking.rows))
        else f"Of what fits into memory: {sentence[0].lower()}{sentence[1:]}"
    )


def threshold_rows(ranking: Ranking, curves: Curves) -> list[tuple[str, str, str]]:
    """Return per method the bandwidths at which it is 5% faster than the baseline, and the one that suffices."""
    if len(sizes_of_sites(ranking.settings)) == 1:
        return []
    return [
        (
            method,
            "" if method == BASELINE else _faster_than_baseline(row, curves, method),
            _saturation_text(curves, method),
        )
        for row in ranking.rows
        if (method := row["method"]) in curves.step_s
    ]


def _about(bytes_per_s: float) -> str:
    """Return a bandwidth with two digits, the precision of the curves."""
    return format_bandwidth(float(f"{8 * bytes_per_s:.2g}") / 8)


def _leaders(times: Curves, among: set[str]) -> str:
    """Return the sentence with the fastest method in each range of the bandwidth."""
    names = [name for name in times.step_s if name in among]
    if not names:
        return "None of these methods has a time, or fits."
    first = np.argmin(np.stack([times.step_s[name] for name in names]), axis=0)
    edges = [0, *(1 + np.flatnonzero(np.diff(first))).tolist()]
    parts = [names[first[0]]]
    for edge in edges[1:]:
        before, after = names[first[edge - 1]], names[first[edge]]
        around_edge = slice(edge - 1, edge + 1)
        boundary = crossing(
            times.bandwidths[around_edge], (times.step_s[before] / times.step_s[after])[around_edge], 1.0
        )
        parts.append(f"from about {_about(boundary or times.bandwidths[edge])} on {after}")
    everywhere = f", at {EVERY}" if len(parts) == 1 else ""
    return f"First is {', '.join(parts)}{everywhere}."


def _saturation_text(times: Curves, method: str) -> str:
    step_s = times.step_s[method]
    bandwidth = crossing(times.bandwidths, step_s, MORE_IS_NOTHING * float(step_s[-1]))
    return f"from {_about(bandwidth)}" if bandwidth is not None else DRAWN


def _faster_than_baseline(row: Mapping[str, Any], times: Curves, method: str) -> str:
    """Return the bandwidths at which a method is 5% faster than the baseline, from its row or else from the curves."""
    if BASELINE not in times.step_s:
        return "unknown"
    when, rate = row.get("faster_by_5_percent"), row.get("faster_by_5_percent_bandwidth_bytes_per_s")
    if when is None:
        when, rate = _crossing_case(times.bandwidths, times.step_s[BASELINE] / times.step_s[method], 1.05)
        bandwidth = None if rate is None else _about(rate)
    else:
        bandwidth = None if rate is None else format_bandwidth(rate)
    always = "always" if row.get("faster_by_5_percent") else DRAWN
    return {"always": always, "never": "never", "below": f"below {bandwidth}", "above": f"above {bandwidth}"}[when]


def _crossing_case(bandwidths: Floats, speedups: Floats, wanted: float) -> tuple[str, float | None]:
    bandwidth = crossing(bandwidths, speedups, wanted)
    if bandwidth is None:
        return ("always" if speedups[-1] >= wanted else "never"), None
    return ("above" if speedups[-1] >= wanted else "below"), bandwidth
