"""Those who are there go on: when a machine fails, the others form their group anew; who comes back joins them."""

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
"""From when on, from which number to which, by whom, who of them has joined before the first; the last word counts."""


def play_reforms(
    group: FailingGroup,
    steps: float,
    work_of: Callable[[NDArray[np.bool_]], SavedSteps],
    outages: Iterable[Outage],
    until_s: float = math.inf,
    *,
    whole_steps: bool = False,
    period: int = 1,
    made: Made | None = None,
) -> FailureCosts:
    """Play a training that goes on with those who are there.

    A failure costs the step under way, the time until the others notice, and forming the group anew; who comes back has
    the state of the others, and they pause to let him in after their step. Where fewer than ``at_least`` are there the
    others wait; where nobody is, the state is that of the last checkpoint.

    Args:
        group: who trains, and what it takes to go on.
        steps: T; one with n of P workers counts as n / P.
        work_of: of those who are there, when their steps end; numbered by the steps that were made.
        outages: in the order of time.
        until_s: when to look away.
        whole_steps: whether any step counts as one, whoever made it.
        period: steps from one exchange to the next; who fails has lost what it did since the last.
        made: is told which steps are completed, see `Made`.
    """
    return _Reforms(group, steps, work_of, Roster(group, 0.0, outages), until_s, whole_steps, period, made).play()


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
        made: Made | None,
    ) -> None:
        self.group, self.steps, self.work_of, self.roster = group, steps, work_of, roster
        self.until_s, self.whole_steps, self.period = until_s, whole_steps, period
        self.joined: dict[int, int] = {}  # with which step those who were away have begun
        self.tell, self.at_work = made, roster.here.copy()
        self.work = work_of(self.at_work)
        roster.again_s += self.work.saving.load_s
        self.told = FailureCosts(group.workers)
        self.made, self.saved = 0, (0, 0.0, 0.0)  # steps made; of the last checkpoint: its step, progress, useful time
        self.changed_s, self.in_vain = 0.0, 0

    def play(self) -> FailureCosts:
        """To the end."""
        now_s, roster, told = 0.0, self.roster, self.told
        while not told.stuck:
            if roster.next_s() <= now_s:
                now_s = self._pause(now_s)
                continue
            if now_s >= self.until_s or told.steps >= self.steps * (1 - 1e-12):
                break
            now_s = self._train(now_s)
        told.wall_s = min(now_s, self.until_s)
        roster.end(told.wall_s, told)
        return told

    def _counts(self) -> float:
        return 1.0 if self.whole_steps else self.roster.count / self.group.workers

    def _train(self, begun_s: float) -> float:
        """Until the group changes, or the end."""
        work, begun, told = self.work, self.made, self.told
        last = begun + math.ceil((self.steps - told.steps) / self._counts() - 1e-9)
        end_s = begun_s + work.end_s(last) - work.ready_s(begun)
        change_s = min(self.roster.next_s(), self.until_s)
        while change_s < end_s:
            done = work.done_by(begun, change_s - begun_s)
            if change_s == self.until_s:
                self._count(begun_s, change_s, begun, done)
                return change_s
            here = self.roster.count
            change = self.roster.change(told)
            if change.left:
                self._count(begun_s, change_s, begun, done, here)
                self._lose_of(change.left)
                return self._after(change_s, change_s + self.group.timeout_s + self.group.reform_s)
            if change.joined:
                boundary_s = begun_s + work.end_s(done + 1) - work.ready_s(begun)
                told.down_s += len(change.joined) * max(boundary_s - change_s, 0.0)
                self._count(begun_s, boundary_s, begun, done + 1, here)
                self.joined |= dict.fromkeys(change.joined, self.made)
                return self._after(boundary_s, boundary_s + self.group.reform_s)
            change_s = min(self.roster.next_s(), self.until_s)
        self._count(begun_s, end_s, begun, last)
        return end_s

    def _count(self, begun_s: float, end_s: float, begun: int, done: int, here: int | None = None) -> None:
        """Time of those ``here`` from one instant to another, in which steps up to ``done`` were completed."""
        work, told = self.work, self.told
        here = self.roster.count if here is None else here
        part = 1.0 if self.whole_steps else here / self.group.workers
        saved = work.saved_by(begun, end_s - begun_s)
        kept_s = work.until_s(done) - work.until_s(begun)
        stops_s = min(work.ready_s(done) - work.ready_s(begun) - kept_s, max(end_s - begun_s - kept_s, 0.0))
        if saved > begun:
            at = told.steps + part * (saved - begun), told.useful_s + here * (work.until_s(saved) - work.until_s(begun))
            self.saved, self.in_vain = (saved, *at), 0
        if done > begun:
            self.in_vain = 0
            if self.tell is not None:
                fresh = sorted(place for place, step in self.joined.items() if step == begun)
                self.tell(begun_s, begun, done, self.at_work, [place for place in fresh if self.at_work[place]])
            told.stretches.append(Stretch("steps", begun_s, begun_s + kept_s + stops_s, begun, done - begun))
        told.steps += part * (done - begun)
        told.useful_s += here * kept_s
        told.checkpoint_s += here * stops_s
        lost_s = max(end_s - begun_s - kept_s - stops_s, 0.0)
        told.lost_s += here * lost_s
        if lost_s:
            told.stretches.append(Stretch("lost", end_s - lost_s, end_s, done))
        self.made = done

    def _lose_of(self, left: list[int]) -> None:
        """What those who have failed did since the last exchange."""
        exchanged = self.made - self.made % self.period
        for place in left if self.period > 1 else ():
            since = max(exchanged, self.joined.get(place, 0))
            lost_s = self.work.until_s(self.made) - self.work.until_s(since)
            part = 0.0 if self.whole_steps else (self.made - since) / self.group.workers
            told = self.told
            told.useful_s, told.lost_s = told.useful_s - lost_s, told.lost_s + lost_s
            told.steps, told.lost_steps = told.steps - part, told.lost_steps + part

    def _after(self, now_s: float, ready_s: float) -> float:
        """Stand still until the group is formed; whoever leaves or joins meanwhile begins it anew."""
        roster, told, since_s = self.roster, self.told, now_s
        self.in_vain += 1
        while True:
            if roster.count < self.group.at_least or not roster.count:
                if not roster.count:
                    self._lose()
                at_most = self.group.workers - len(roster.lost)
                if math.isinf(roster.next_s()) or at_most < max(self.group.at_least, 1):
                    why = f"{roster.count} workers are left, and {self.group.at_least} are needed"
                    told.stuck = no_progress(since_s, why)
                    return now_s
                ready_s = math.inf
            if self.in_vain >= MOST_IN_VAIN:
                why = f"{MOST_IN_VAIN:,} failures in a row left no time to form a group and make a step"
                told.stuck = no_progress(since_s, why)
                return now_s
            next_s = min(roster.next_s(), self.until_s)
            here = roster.count
            if next_s >= ready_s:
                self._wait(now_s, ready_s, here, since_s)
                self.at_work = roster.here.copy()
                self.work = self.work_of(self.at_work)
                return ready_s
            self._wait(now_s, next_s, here, since_s)
            now_s = next_s
            if next_s == self.until_s:
                return now_s
            change = roster.change(told)
            if change.left:
                self.in_vain += 1
                ready_s = now_s + self.group.timeout_s + self.group.reform_s
            elif change.joined:
                self.joined |= dict.fromkeys(change.joined, self.made)
                ready_s = (
                    now_s + self.group.reform_s if math.isinf(ready_s) else max(ready_s, now_s + self.group.reform_s)
                )

    def _wait(self, start_s: float, end_s: float, here: int, since_s: float) -> None:
        """Those who are there stand still: for the notice, for others, and to form the group."""
        if end_s > start_s:
            self.told.restart_s += here * (end_s - start_s)
            self.told.stretches.append(Stretch("restart", start_s, end_s, self.made))

    def _lose(self) -> None:
        """Nobody has the state: it is that of the last checkpoint."""
        told, (step, steps, useful_s) = self.told, self.saved
        told.lost_steps += told.steps - steps
        told.lost_s += told.useful_s - useful_s
        told.steps, told.useful_s, self.made = steps, useful_s, step
        self.joined.clear()

    def _pause(self, now_s: float) -> float:
        """What changes at the very instant at which they would go on."""
        change = self.roster.change(self.told)
        self.joined |= dict.fromkeys(change.joined, self.made)
        if change.left:
            self._lose_of(change.left)
            return self._after(now_s, now_s + self.group.timeout_s + self.group.reform_s)
        return self._after(now_s, now_s + self.group.reform_s) if change.joined else now_s
