"""What decides the step time of a record on a network: links, computing, lines of the script, ranks.

Of links and computing it is the elasticity of a mean step, by central differences of the replay,

    d log T / d log x = (log T(x (1 + h)) - log T(x / (1 + h))) / (2 log(1 + h)),   h = 0.01:

-1 of what alone decides, 0 of what does not matter. Of a line it is the step without what the line sends, of a rank how
long the others wait for it to come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.network.changed import links_of, scaled
from syncline.experiments.tracing.clocks import Window
from syncline.experiments.tracing.rows import TimedReplay, replay_timed
from syncline.experiments.tracing.scenario import ReplayedOn, without_site
from syncline.sim import Timeline

CHANGE = 0.01
"""h."""

MOST_LINES = 8
"""Lines of a script that are left out, one after another: those that are waited for most."""

LEAST_WAIT = 1e-3
"""Of a step: a line that is waited for less is not left out, one that nobody waits for has nothing to save."""


def sensitivities(one: TimedReplay, question: ReplayedOn, sites: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What decides the step time of a record on a network.

    Args:
        one: its replay.
        question: on what it was.
        sites: its lines, those first that are waited for most.

    Returns:
        A row for ``bandwidth``, ``latency`` and ``compute``; where a network has several links for the first two of
        each; for lines (``site``) and ranks (``rank``).
    """
    links = links_of(one.on)
    told = [_row(one, "compute", "hardware", elasticity=_elasticity(one, question, "compute"))]
    for only in [None, *(links if len(links) > 1 else ())]:
        name = "all links" if only is None else only.name or only.describe()
        for what in ("bandwidth", "latency"):
            told.append(_row(one, what, name, elasticity=_elasticity(one, question, what, only)))
    step_s = one.clock.step_time_s
    for site in [row for row in sites if row["exposed_communication_s"] > LEAST_WAIT * step_s][:MOST_LINES]:
        left = one.record._replace(ranks=without_site(one.record.ranks, site["site"]))
        without_s = replay_timed(left, one.on, question)[1].step_time_s
        share = 1 - without_s / step_s
        told.append(_row(one, "site", site["site"], step_time_s=without_s, share=share))
    waited_s = waited_for_s(one.replayed.timeline, Window.of(one.record.steps))
    all_s = one.clock.exposed_communication_s
    for rank, seconds in enumerate(waited_s.tolist()):
        told.append(_row(one, "rank", str(rank), waited_for_s=seconds, share=seconds / all_s if all_s else 0.0))
    return told


def _row(one: TimedReplay, by: str, name: str, **found: float) -> dict[str, Any]:
    told: dict[str, Any] = {"method": one.record.name, "network": one.on.name, "by": by, "name": name}
    return told | {key: found.get(key) for key in ("elasticity", "step_time_s", "waited_for_s", "share")}


def _elasticity(one: TimedReplay, question: ReplayedOn, what: str, only: Any = None) -> float:
    """Of the step with respect to computing, or to a field of links."""

    def step_s(factor: float) -> float:
        if what == "compute":
            changes = replace(question.changes, compute=question.changes.compute * factor)
            return replay_timed(one.record, one.on, replace(question, changes=changes))[1].step_time_s
        network: Network = scaled(one.on, **{what: factor}, only=only)
        return replay_timed(one.record, network, question)[1].step_time_s

    return elasticity(step_s(1 + CHANGE), step_s(1 / (1 + CHANGE)))


def elasticity(more_s: float, less_s: float) -> float:
    """``d log T / d log x`` of the times with more of x and with less."""
    return math.log(more_s / less_s) / (2 * math.log1p(CHANGE)) if more_s > 0 and less_s > 0 else 0.0


def waited_for_s(timeline: Timeline, window: Window) -> np.ndarray:
    """How long the workers wait for each rank to come to collectives that it is the last to come to, ``(P,)`` seconds.

    Per step and worker, so that the sum is a part of the mean exposed communication.
    """
    waits = timeline.what == "wait"
    collective = ~timeline.on_compute & (timeline.what != "send")
    came = timeline[collective]
    number = _number_on_stream(came)
    keys: dict[tuple[str, str, int], list[int]] = {}
    groups = zip(came.stream.tolist(), came.label.tolist(), number.tolist(), strict=True)
    for row, key in enumerate(groups):
        keys.setdefault(key, []).append(row)
    last = {}  # (worker, when its call ended): who came last, and when
    for rows in keys.values():
        at = came.start_s[rows]
        who = rows[int(np.argmax(at))]
        for row in rows:
            last[int(came.worker[row]), float(came.end_s[row])] = int(came.worker[who]), float(at.max())
    out = np.zeros(timeline.workers)
    waited = window.of_timeline(timeline[waits])
    for worker, start_s, end_s in zip(
        waited.worker.tolist(), waited.start_s.tolist(), waited.end_s.tolist(), strict=True
    ):
        who, came_s = last.get((worker, end_s), (worker, start_s))
        if who != worker:
            out[who] += max(0.0, min(came_s, end_s) - start_s)
    return out / (timeline.workers * window.steps)


def _number_on_stream(spans: Timeline) -> np.ndarray:
    """Which of its worker's spans with that label on that stream each is, from 0; all ranks have the same there."""
    counts: dict[tuple[int, str, str], int] = {}
    out = np.zeros(len(spans), dtype=np.int64)
    for row, key in enumerate(zip(spans.worker.tolist(), spans.stream.tolist(), spans.label.tolist(), strict=True)):
        out[row] = counts[key] = counts.get(key, -1) + 1
    return out
