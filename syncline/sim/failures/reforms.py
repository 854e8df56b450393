"""Failures of a training that goes on with the present workers, which re-form their group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import MOST_IN_VAIN, FailureCosts, Stretch, no_progress
from syncline.sim.failures.roster import FailingGroup, Roster
from syncline.sim.failures.work import SavedSteps

Made = Callable[[float, int, int, NDArray[np.bool_], list[int]], None]
"""A function that is called with the completed steps: their start time, first and last number, the workers, and
those that joined before the first. A later call replaces earlier ones.
"""


def play_reforms(
    group: FailingGroup,
    steps: float,
    work_of: Callable[[NDArray[np.bool_]], SavedSteps],
    outages: Iterable[Outage],
    until_s: float = math.inf,
    *,
    whole_steps: bool = False,
    period: int = 1,
    on_steps: Made | None = None,
) -> FailureCosts:
    """Play a training that goes on with the present workers, and return the costs.

    A failure costs the step under way, the time until the others notice, and the re-forming of the group. A returned
    worker gets the state of the others, which pause after their step to let it in. If fewer than ``at_least`` workers
    are present, they wait; if no worker is present, the state is that of the last checkpoint.

    Args:
        group: the workers that train, and the costs of going on.
        steps: T; a step with n of P workers counts as n / P.
        work_of: clock of the steps of the present workers, numbered by the steps made so far.
        outages: outages in the order of time.
        until_s: time at which the simulation stops.
        whole_steps: whether every step counts as one, with any number of workers.
        period: number of steps between two exchanges; a failed worker loses its steps since the last.
        on_steps: function that is called with the completed steps, see `Made`.
    """
    return _Reforms(group, steps, work_of, Roster(group, 0.0, outages), until_s, whole_steps, period, on_steps).play()


class _Reforms:
    def __init__(
        self,
        group: FailingGroup,
        steps: float,
        work_of: Callable[[NDArray[np.bool_]], SavedSteps],
        roster: Roster,
        until_s: float,
        whole_steps: bool,
        period: int,
        on_steps: Made | None,
    ) -> None:
        self.group, self.steps, self.work_of, self.roster = group, steps, work_of, roster
        self.until_s, self.whole_steps, self.period = until_s, whole_steps, period
        self.joined: dict[int, int] = {}  # step with which each returned worker began
        self.tell, self.at_work = on_steps, roster.here.copy()
        self.work = work_of(self.at_work)
        roster.again_s += self.work.saving.join_s
        self.told = FailureCosts(group.workers)
        self.made, self.saved = 0, (0, 0.0, 0.0)  # steps made; step, progress and useful time of the last checkpoint
        self.changed_s, self.in_vain = 0.0, 0

    def play(self) -> FailureCosts:
        """Play to the end and return the costs."""
        now_s, roster, costs = 0.0, self.roster, self.told
        while not costs.stuck:
            if roster.next_s() <= now_s:
                now_s = self._pause(now_s)
                continue
            if now_s >= self.until_s or costs.steps >= self.steps * (1 - 1e-12):
                break
            now_s = self._train(now_s)
        costs.wall_s = min(now_s, self.until_s)
        roster.end(costs.wall_s, costs)
        return costs

    def _counts(self) -> float:
        return 1.0 if self.whole_steps else self.roster.count / self.group.workers

    def _train(self, start_s: float) -> float:
        """Train until the group changes or the end; return the time."""
        work, first_step, costs = self.work, self.made, self.told
        last = first_step + math.ceil((self.steps - costs.steps) / self._counts() - 1e-9)
        end_s = start_s + work.end_s(last) - work.ready_s(first_step)
        change_s = min(self.roster.next_s(), self.until_s)
        while change_s < end_s:
            done = work.done_by(first_step, change_s - start_s)
            if change_s == self.until_s:
                self._count(start_s, change_s, first_step, done)
                return change_s
            present = self.roster.count
            change = self.roster.change(costs)
            if change.left:
                self._count(start_s, change_s, first_step, done, present)
                self._lose_of(change.left)
                return self._after(change_s, change_s + self.group.timeout_s + self.group.reform_s)
            if change.joined:
                boundary_s = start_s + work.end_s(done + 1) - work.ready_s(first_step)
                costs.down_s += len(change.joined) * max(boundary_s - change_s, 0.0)
                self._count(start_s, boundary_s, first_step, done + 1, present)
                self.joined |= dict.fromkeys(change.joined, self.made)
                return self._after(boundary_s, boundary_s + self.group.reform_s)
            change_s = min(self.roster.next_s(), self.until_s)
        self._count(start_s, end_s, first_step, last)
        return end_s

    def _count(self, start_s: float, end_s: float, first_step: int, done: int, present: int | None = None) -> None:
        """Count the time of the present workers from one instant to another, with steps up to ``done``."""
        work, costs = self.work, self.told
        present = self.roster.count if present is None else present
        part = 1.0 if self.whole_steps else present / self.group.workers
        saved = work.saved_by(first_step, end_s - start_s)
        kept_s = work.until_s(done) - work.until_s(first_step)
        stops_s = min(work.ready_s(done) - work.ready_s(first_step) - kept_s, max(end_s - start_s - kept_s, 0.0))
        if saved > first_step:
            progress = (
                costs.steps + part * (saved - first_step),
                costs.useful_s + present * (work.until_s(saved) - work.until_s(first_step)),
            )
            self.saved, self.in_vain = (saved, *progress), 0
        if done > first_step:
            self.in_vain = 0
            if self.tell is not None:
                fresh = sorted(place for place, step in self.joined.items() if step == first_step)
                self.tell(start_s, first_step, done, self.at_work, [place for place in fresh if self.at_work[place]])
            costs.stretches.append(Stretch("steps", start_s, start_s + kept_s + stops_s, first_step, done - first_step))
        costs.steps += part * (done - first_step)
        costs.useful_s += present * kept_s
        costs.checkpoint_s += present * stops_s
        lost_s = max(end_s - start_s - kept_s - stops_s, 0.0)
        costs.lost_s += present * lost_s
        if lost_s:
            costs.stretches.append(Stretch("lost", end_s - lost_s, end_s, done))
        self.made = done

    def _lose_of(self, failed: list[int]) -> None:
        """Count the steps of failed workers since the last exchange as lost."""
        exchanged = self.made - self.made % self.period
        for place in failed if self.period > 1 else ():
            since = max(exchanged, self.joined.get(place, 0))
            lost_s = self.work.until_s(self.made) - self.work.until_s(since)
            part = 0.0 if self.whole_steps else (self.made - since) / self.group.workers
            costs = self.told
            costs.useful_s, costs.lost_s = costs.useful_s - lost_s, costs.lost_s + lost_s
            costs.steps, costs.lost_steps = costs.steps - part, costs.lost_steps + part

    def _after(self, now_s: float, ready_s: float) -> float:
        """Wait until the group is formed; a worker that leaves or joins meanwhile restarts the forming."""
        roster, costs, since_s = self.roster, self.told, now_s
        self.in_vain += 1
        while True:
            if roster.count < self.group.at_least or not roster.count:
                if not roster.count:
                    self._lose()
                at_most = self.group.workers - len(roster.lost)
                if math.isinf(roster.next_s()) or at_most < max(self.group.at_least, 1):
                    why = f"{roster.count} workers are left, and {self.group.at_least} are needed"
                    costs.stuck = no_progress(since_s, why)
                    return now_s
                ready_s = math.inf
            if self.in_vain >= MOST_IN_VAIN:
                why = f"{MOST_IN_VAIN:,} failures in a row left no time to form a group and make a step"
                costs.stuck = no_progress(since_s, why)
                return now_s
            next_s = min(roster.next_s(), self.until_s)
            present = roster.count
            if next_s >= ready_s:
                self._wait(now_s, ready_s, present, since_s)
                self.at_work = roster.here.copy()
                self.work = self.work_of(self.at_work)
                return ready_s
            self._wait(now_s, next_s, present, since_s)
            now_s = next_s
            if next_s == self.until_s:
                return now_s
            change = roster.change(costs)
            if change.left:
                self.in_vain += 1
                ready_s = now_s + self.group.timeout_s + self.group.reform_s
            elif change.joined:
                self.joined |= dict.fromkeys(change.joined, self.made)
                ready_s = (
                    now_s + self.group.reform_s if math.isinf(ready_s) else max(ready_s, now_s + self.group.reform_s)
                )

    def _wait(self, start_s: float, end_s: float, present: int, since_s: float) -> None:
        """Count the waiting of the present workers: for the notice of a failure, for others, and for the group."""
        if end_s > start_s:
            self.told.restart_s += present * (end_s - start_s)
            self.told.stretches.append(Stretch("restart", start_s, end_s, self.made))

    def _lose(self) -> None:
        """Return to the last checkpoint, because no worker has the state."""
        costs, (step, steps, useful_s) = self.told, self.saved
        costs.lost_steps += costs.steps - steps
        costs.lost_s += costs.useful_s - useful_s
        costs.steps, costs.useful_s, self.made = steps, useful_s, step
        self.joined.clear()

    def _pause(self, now_s: float) -> float:
        """Process a change at the very instant at which the workers would go on."""
        change = self.roster.change(self.told)
        self.joined |= dict.fromkeys(change.joined, self.made)
        if change.left:
            self._lose_of(change.left)
            return self._after(now_s, now_s + self.group.timeout_s + self.group.reform_s)
        return self._after(now_s, now_s + self.group.reform_s) if change.joined else now_s
