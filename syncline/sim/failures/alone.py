"""Each by itself: who fails loses what he had not sent, and the others do not notice."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import FailureCosts, no_progress
from syncline.sim.failures.roster import FailingGroup, Roster


def play_alone(
    group: FailingGroup,
    steps: int,
    step_s: float,
    period: int,
    load_s: float,
    outages: Iterable[Outage],
    until_s: float = math.inf,
) -> FailureCosts:
    """Play workers who take a model from a server, make ``period`` steps, and send what came of them.

    Together they make P times ``steps`` steps, whoever has the time. The server does not fail, and is never waited for.

    Args:
        group: who trains.
        steps: T, of each in the mean.
        step_s: seconds of one.
        period: steps from one model to the next.
        load_s: to fetch a model after a failure.
        outages: in the order of time.
        until_s: when to look away.
    """
    told, roster = FailureCosts(group.workers), Roster(group, load_s, outages)
    since_s, round_s = np.zeros(group.workers), period * step_s
    at_work, begun_s = group.workers, 0.0  # who is at work, and the sum of when they began
    kept_s, needed_s = 0.0, steps * group.workers * step_s
    now_s = 0.0
    while True:
        done_s = (needed_s - kept_s + begun_s) / at_work if at_work else math.inf
        now_s = min(done_s, until_s)
        if roster.next_s() >= now_s:
            break
        change = roster.change(told)
        for place in change.left:
            worked_s = change.at_s - float(since_s[place])
            whole_s = math.floor(worked_s / round_s) * round_s
            at_work, begun_s = at_work - 1, begun_s - float(since_s[place])
            kept_s += whole_s
            told.lost_s += worked_s - whole_s
        for place in change.joined:
            since_s[place] = change.at_s
            at_work, begun_s = at_work + 1, begun_s + change.at_s
        if not at_work and (math.isinf(roster.next_s()) or len(roster.lost) == group.workers):
            told.stuck = no_progress(change.at_s)
            now_s = change.at_s
            break
    told.wall_s = now_s
    told.useful_s = kept_s + at_work * now_s - begun_s
    told.steps = told.useful_s / (step_s * group.workers)
    told.lost_steps = told.lost_s / (step_s * group.workers)
    roster.end(now_s, told)
    return told
