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

    Together P workers make ``P steps`` steps; a worker with more time makes more of these steps. The server does not
    fail and never makes a worker wait. A failed worker loses its steps since its last update.

    Args:
        group: the workers that train.
        steps: mean number of steps per worker.
        step_s: seconds of a step.
        period: number of steps between two models.
        load_s: seconds to fetch a model after a failure.
        outages: outages in the order of time.
        until_s: time at which the simulation stops.
    """
    costs, roster = FailureCosts(group.workers), Roster(group, load_s, outages)
    start_s, round_s = np.zeros(group.workers), period * step_s
    active, start_sum_s = group.workers, 0.0  # number of workers that train, and the sum of their start times
    sent_s, total_s = 0.0, steps * group.workers * step_s  # worker seconds: in updates of failed workers, and needed
    now_s = 0.0
    while True:
        end_s = (total_s - sent_s + start_sum_s) / active if active else math.inf
        now_s = min(end_s, until_s)
        if roster.next_s() >= now_s:
            break
        change = roster.change(costs)
        for worker in change.left:
            worked_s = change.at_s - float(start_s[worker])
            rounds_s = math.floor(worked_s / round_s) * round_s
            active, start_sum_s = active - 1, start_sum_s - float(start_s[worker])
            sent_s += rounds_s
            costs.lost_s += worked_s - rounds_s
        for worker in change.joined:
            start_s[worker] = change.at_s
            active, start_sum_s = active + 1, start_sum_s + change.at_s
        if not active and (math.isinf(roster.next_s()) or len(roster.lost) == group.workers):
            costs.stuck = no_progress(change.at_s)
            now_s = change.at_s
            break
    costs.wall_s = now_s
    costs.useful_s = sent_s + active * now_s - start_sum_s
    costs.steps = costs.useful_s / (step_s * group.workers)
    costs.lost_steps = costs.lost_s / (step_s * group.workers)
    roster.end(now_s, costs)
    return costs
