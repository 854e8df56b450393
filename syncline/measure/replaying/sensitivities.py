"""Sensitivities of a record's step time on a network: to links, to computing, to lines of the script, and to ranks.

For links and computing it is the elasticity of a mean step, by central differences of the replay,

    d log T / d log x = (log T(x (1 + h)) - log T(x / (1 + h))) / (2 log(1 + h)),   h = 0.01:

-1 if this alone decides the step time, 0 if it does not matter. For a line it is the step time without the data that
the line sends, for a rank the time that the others wait for this rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.network.link_groups import LinkGroup, link_groups
from syncline.costmodel.network.scaled_links import scaled
from syncline.measure.replaying.clocks import Window
from syncline.measure.replaying.record_changes import without_site
from syncline.measure.replaying.rows import TimedReplay, replay_timed
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.sim import Timeline

CHANGE = 0.01
"""The relative change h of the central differences."""

MOST_LINES = 8
"""Number of lines of a script that are removed one at a time: the lines with the longest waits."""

LEAST_WAIT = 1e-3
"""Smallest wait for a line, as a part of a step, at which the line is removed."""


def sensitivities(timed: TimedReplay, question: ReplayedOn, sites: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sensitivities of a record's step time on a network.

    Args:
        sites: the lines of the script, the longest waits first.

    Returns:
        A row for ``bandwidth``, ``latency`` and ``compute``; on a network with several groups of links the first two
        for each group; rows for lines (``site``) and ranks (``rank``).
    """
    groups = link_groups(timed.on)
    rows = [_row(timed, "compute", "hardware", elasticity=_elasticity(timed, question, "compute"))]
    for only in [None, *(groups if len(groups) > 1 else ())]:
        name = "all links" if only is None else only.name
        for field in ("bandwidth", "latency"):
            rows.append(_row(timed, field, name, elasticity=_elasticity(timed, question, field, only)))
    step_s = timed.clock.step_time_s
    waiting_lines = [site["site"] for site in sites if site["exposed_communication_s"] > LEAST_WAIT * step_s]
    for line in waiting_lines[:MOST_LINES]:
        without_line = timed.record._replace(ranks=without_site(timed.record.ranks, line))
        without_s = replay_timed(without_line, timed.on, question)[1].step_time_s
        share = 1 - without_s / step_s
        rows.append(_row(timed, "site", line, step_time_s=without_s, share=share))
    waited_s = waited_for_s(timed.replayed.timeline, Window.for_steps(timed.record.steps))
    all_s = timed.clock.exposed_communication_s
    for rank, seconds in enumerate(waited_s.tolist()):
        share = seconds / all_s if all_s else 0.0
        rows.append(_row(timed, "rank", str(rank), waited_for_s=seconds, share=share))
    return rows


def _row(replayed: TimedReplay, kind: str, name: str, **values: float) -> dict[str, Any]:
    row: dict[str, Any] = {"method": replayed.record.name, "network": replayed.on.name, "by": kind, "name": name}
    return row | {key: values.get(key) for key in ("elasticity", "step_time_s", "waited_for_s", "share")}


def _elasticity(replayed: TimedReplay, question: ReplayedOn, field: str, only: LinkGroup | None = None) -> float:
    """Return the elasticity of the step with respect to computing, or to a field of links."""

    def step_s(factor: float) -> float:
        if field == "compute":
            changes = replace(question.changes, compute=question.changes.compute * factor)
            return replay_timed(replayed.record, replayed.on, replace(question, changes=changes))[1].step_time_s
        network: Network = scaled(replayed.on, **{field: factor}, selected=None if only is None else only.links)
        return replay_timed(replayed.record, network, question)[1].step_time_s

    return elasticity(step_s(1 + CHANGE), step_s(1 / (1 + CHANGE)))


def elasticity(more_s: float, less_s: float) -> float:
    """Return ``d log T / d log x`` from the times with more of x and with less."""
    return math.log(more_s / less_s) / (2 * math.log1p(CHANGE)) if more_s > 0 and less_s > 0 else 0.0


def waited_for_s(timeline: Timeline, window: Window) -> np.ndarray:
    """Return the seconds that the workers wait for each rank as the last to join a collective, ``(P,)``.

    The values are per step and worker, so that their sum is a part of the mean exposed communication.
    """
    on_network = ~timeline.on_compute & (timeline.what != "send")
    collectives = timeline[on_network]
    # The spans of a collective have the same number among their worker's spans of that stream and label.
    counts: Counter[tuple[int, str, str]] = Counter()
    spans_of_call: dict[tuple[str, str, int], list[int]] = {}
    spans = zip(collectives.worker.tolist(), collectives.stream.tolist(), collectives.label.tolist(), strict=True)
    for row, (worker, stream, label) in enumerate(spans):
        spans_of_call.setdefault((stream, label, counts[worker, stream, label]), []).append(row)
        counts[worker, stream, label] += 1
    last = {}  # (worker, end of its call): the rank that came last, and its time
    for rows in spans_of_call.values():
        arrival_s = collectives.start_s[rows]
        latest = rows[int(np.argmax(arrival_s))]
        latest_worker, latest_s = int(collectives.worker[latest]), float(arrival_s.max())
        for row in rows:
            last[int(collectives.worker[row]), float(collectives.end_s[row])] = latest_worker, latest_s
    out = np.zeros(timeline.workers)
    waited = window.of_timeline(timeline[timeline.what == "wait"])
    waits = zip(waited.worker.tolist(), waited.start_s.tolist(), waited.end_s.tolist(), strict=True)
    for worker, start_s, end_s in waits:
        latest, came_s = last.get((worker, end_s), (worker, start_s))
        if latest != worker:
            out[latest] += max(0.0, min(came_s, end_s) - start_s)
    return out / (timeline.workers * window.steps)
