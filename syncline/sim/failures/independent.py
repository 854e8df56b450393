"""Failures of workers that train by themselves: a failed worker loses its unsent work, and the others do not notice."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import FailureCosts, no_progress
from syncline.sim.failures.roster import FailingGroup, Roster


def simulate_independent_workers(
    group: FailingGroup,
    steps: int,
    step_s: float,
    period: int,
    load_s: float,
    outages: Iterable[Outage],
    until_s: float = math.inf,
) -> FailureCosts:
    """Return the costs of failures of workers that fetch a model, make ``period`` steps, and send their update.

    Together they make P times ``steps`` steps; a worker with more time makes more of them. The server does not fail and
    never makes a worker wait.

    Args:
        group: the workers that train.
        steps: T, mean number of steps per worker.
        step_s: seconds of a step.
        period: number of steps between two models.
        load_s: seconds to fetch a model after a failure.
        outages: outages in the order of time.
        until_s: time at which the simulation stops.
    """
    costs, roster = FailureCosts(group.workers), Roster(group, load_s, outages)
    since_s, round_s = np.zeros(group.workers), period * step_s
    at_work, begun_s = group.workers, 0.0  # number of workers at work, and the sum of the times at which they began
    kept_s, needed_s = 0.0, steps * group.workers * step_s
    now_s = 0.0
    while True:
        done_s = (needed_s - kept_s + begun_s) / at_work if at_work else math.inf
        now_s = min(done_s, until_s)
        if roster.next_s() >= now_s:
            break
        change = roster.change(costs)
        for place in change.left:
            worked_s = change.at_s - float(since_s[place])
            whole_s = math.floor(worked_s / round_s) * round_s
            at_work, begun_s = at_work - 1, begun_s - float(since_s[place])
            kept_s += whole_s
            costs.lost_s += worked_s - whole_s
        for place in change.joined:
            since_s[place] = change.at_s
            at_work, begun_s = at_work + 1, begun_s + change.at_s
        if not at_work and (math.isinf(roster.next_s()) or len(roster.lost) == group.workers):
            costs.stuck = no_progress(change.at_s)
            now_s = change.at_s
            break
    costs.wall_s = now_s
    costs.useful_s = kept_s + at_work * now_s - begun_s
    costs.steps = costs.useful_s / (step_s * group.workers)
    costs.lost_steps = costs.lost_s / (step_s * group.workers)
    roster.end(now_s, costs)
    return costs
