"""Failures of synchronous training: when a machine fails, all workers go back to the last checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import MOST_IN_VAIN, FailureCosts, Stretch, no_progress
from syncline.sim.failures.places import FilledPlaces
from syncline.sim.failures.roster import NEVER, FailingGroup
from syncline.sim.failures.work import SavedSteps


def play_restarts(
    group: FailingGroup, work: SavedSteps, outages: Iterable[Outage], until_s: float = math.inf
) -> FailureCosts:
    """Play a training that needs all its workers, and return the costs.

    A failure at time t loses the steps that are in no checkpoint. When the others have noticed it and all places are
    filled again, all workers start again and load; a failure meanwhile begins this again. A worker that is away from
    the beginning is waited for.

    Args:
        group: the workers that train, and the costs of a restart.
        work: the steps and checkpoints of the training.
        outages: outages in the order of time.
        until_s: time at which the simulation stops; steps that are completed by then count, saved or not.
    """
    return _Restarts(group, work, iter(outages), until_s).play()


class _Restarts:
    def __init__(self, group: FailingGroup, work: SavedSteps, outages: Iterator[Outage], until_s: float) -> None:
        self.group, self.work, self.outages, self.until_s = group, work, outages, until_s
        self.again_s = group.restart_s + work.saving.reload_s
        self.places = FilledPlaces(group.workers, group.spares)
        self.told = FailureCosts(group.workers)
        self.next = next(outages, NEVER)
        self.saved, self.saved_at_s, self.in_vain = 0, 0.0, 0
        self.hit: set[int] = set()  # places hit since all workers last trained together

    def play(self) -> FailureCosts:
        """Play to the end and return the costs."""
        now_s = 0.0
        while True:
            now_s = self._train(now_s)
            if self.saved == self.work.steps or now_s >= self.until_s or self.told.stuck:
                self.told.wall_s = now_s
                return self.told
            now_s = self._begin_again(now_s)
            if now_s >= self.until_s or self.told.stuck:
                self.told.wall_s = min(now_s, self.until_s) if math.isfinite(now_s) else self.told.wall_s
                return self.told

    def _train(self, start_s: float) -> float:
        """Train from the last checkpoint to the next failure or the end; return the time."""
        work, first_step = self.work, self.saved
        total_s = work.ready_s(work.steps) - work.ready_s(first_step)
        end_s = min(start_s + total_s, self.next.at_s, self.until_s)
        if end_s == start_s + total_s:
            saved = done = work.steps
        else:
            saved, done = work.saved_by(first_step, end_s - start_s), work.done_by(first_step, end_s - start_s)
            if end_s == self.until_s and end_s < self.next.at_s:
                saved = done  # the end of the simulation loses nothing
        self._count(start_s, end_s, first_step, saved, done)
        if saved > first_step:
            self.saved_at_s, self.in_vain = end_s, 0
        self.saved = saved
        return end_s

    def _count(self, start_s: float, end_s: float, first_step: int, saved: int, done: int) -> None:
        work, costs, workers = self.work, self.told, self.group.workers
        useful_s = work.until_s(saved) - work.until_s(first_step)
        kept_s = min(work.ready_s(saved) - work.ready_s(first_step), end_s - start_s)
        costs.useful_s += workers * useful_s
        costs.checkpoint_s += workers * max(kept_s - useful_s, 0.0)
        costs.lost_s += workers * (end_s - start_s - max(kept_s, useful_s))
        costs.steps += saved - first_step
        costs.lost_steps += done - saved
        if saved > first_step:
            costs.stretches.append(Stretch("steps", start_s, start_s + kept_s, first_step, saved - first_step))
        if end_s > start_s + kept_s:
            costs.stretches.append(Stretch("lost", start_s + kept_s, end_s, saved, done - saved))

    def _begin_again(self, failed_s: float) -> float:
        """Return the time at which all workers train again after the failure that comes now."""
        self._fail()
        noticed_s, down_s = failed_s + self.group.timeout_s, failed_s
        while True:
            start_s = max(noticed_s, self.places.when_filled_s(self.group.workers))
            if math.isinf(start_s):
                self._stop(
                    down_s, down_s, f"{self.places.empty} of {self.group.workers} places stay empty, without a spare"
                )
                return down_s
            if self.next.at_s < min(start_s, self.until_s):
                self._fail()
                continue
            self._spend("down", down_s, start_s)
            if start_s >= self.until_s:
                return self.until_s
            self.places.settle(start_s)
            if self.next.at_s < min(start_s + self.again_s, self.until_s):
                at_s = self.next.at_s
                self._spend("restart", start_s, at_s)
                self._fail()
                noticed_s, down_s = at_s + self.group.timeout_s, at_s
                if self.told.stuck:
                    return at_s
                continue
            self._spend("restart", start_s, start_s + self.again_s)
            self.hit.clear()
            return start_s + self.again_s

    def _fail(self) -> None:
        """Process the next outage."""
        outage, self.next = self.next, next(self.outages, NEVER)
        self.places.settle(outage.at_s)
        hit = self.places.fail(outage)
        if not hit:
            return
        self.hit.update(hit)
        self.told.interruptions += 1
        self.in_vain += 1
        if self.work.saving.peers and self._both_lost():
            self._lose_all()
        if self.in_vain >= MOST_IN_VAIN:
            times = f"{MOST_IN_VAIN:,} failures in a row left no time for a restart and the steps to a checkpoint"
            self._stop(self.saved_at_s, outage.at_s, times)

    def _both_lost(self) -> bool:
        """Return whether a worker's state is neither in its own memory nor in that of its peer."""
        half = self.group.workers // 2
        return any((place + half) % self.group.workers in self.hit for place in self.hit)

    def _lose_all(self) -> None:
        costs, self.saved = self.told, 0
        costs.lost_s, costs.useful_s = costs.lost_s + costs.useful_s, 0.0
        costs.lost_steps, costs.steps = costs.lost_steps + costs.steps, 0.0

    def _spend(self, kind: str, start_s: float, end_s: float) -> None:
        end_s = min(end_s, self.until_s)
        if end_s <= start_s:
            return
        name = f"{kind}_s"
        setattr(self.told, name, getattr(self.told, name) + self.group.workers * (end_s - start_s))
        self.told.stretches.append(Stretch(kind, start_s, end_s, self.saved))

    def _stop(self, since_s: float, now_s: float, why: str) -> None:
        self.told.stuck = no_progress(since_s, why)
        self.told.wall_s = now_s
