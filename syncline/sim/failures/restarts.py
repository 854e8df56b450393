"""Failures of synchronous training: when a machine fails, all workers go back to the last checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import MOST_IN_VAIN, FailureCosts, Stretch, no_progress
from syncline.sim.failures.roster import NEVER, FailingGroup, FilledPlaces
from syncline.sim.failures.work import SavedSteps


@dataclass(eq=False)
class RestartedTraining:
    """A training that needs all its workers.

    A failure at time t loses the steps that are in no checkpoint. When the others have noticed it and all places are
    filled again, all workers start again and load; a failure meanwhile begins this again. A worker that is away from
    the beginning is waited for.

    Args:
        group: the workers that train, and the costs of a restart.
        work: the steps and checkpoints of the training.
        outages: outages in the order of time.
        until_s: time at which the simulation stops; steps that are completed by then count, saved or not.
    """

    group: FailingGroup
    work: SavedSteps
    outages: Iterable[Outage]
    until_s: float = math.inf

    def __post_init__(self) -> None:
        self._outages = iter(self.outages)
        self._next = next(self._outages, NEVER)
        self._restart_s = self.group.restart_s + self.work.saving.reload_s
        self._places = FilledPlaces(self.group.workers, self.group.spares)
        self._costs = FailureCosts(self.group.workers)
        self._saved, self._saved_at_s, self._failures_in_vain = 0, 0.0, 0
        self._hit_since_restart: set[int] = set()  # places hit since all workers last trained together

    def simulate(self) -> FailureCosts:
        """Simulate the training to the end and return its costs."""
        now_s, costs = 0.0, self._costs
        while True:
            now_s = self._train(now_s)
            if self._saved == self.work.steps or now_s >= self.until_s or costs.stuck:
                costs.wall_s = now_s
                return costs
            now_s = self._restart(now_s)
            if now_s >= self.until_s or costs.stuck:
                costs.wall_s = min(now_s, self.until_s) if math.isfinite(now_s) else costs.wall_s
                return costs

    def _train(self, start_s: float) -> float:
        """Train from the last checkpoint to the next failure or the end; return the time."""
        work, first_step = self.work, self._saved
        total_s = work.ready_s(work.steps) - work.ready_s(first_step)
        end_s = min(start_s + total_s, self._next.at_s, self.until_s)
        if end_s == start_s + total_s:
            saved = done = work.steps
        else:
            saved, done = work.saved_by(first_step, end_s - start_s), work.done_by(first_step, end_s - start_s)
            if end_s == self.until_s and end_s < self._next.at_s:
                saved = done  # the end of the simulation loses nothing
        self._count(start_s, end_s, first_step, saved, done)
        if saved > first_step:
            self._saved_at_s, self._failures_in_vain = end_s, 0
        self._saved = saved
        return end_s

    def _count(self, start_s: float, end_s: float, first_step: int, saved: int, done: int) -> None:
        """Add the time in which the steps up to ``done`` were made; those after ``saved`` are lost."""
        work, costs, workers = self.work, self._costs, self.group.workers
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

    def _restart(self, failed_s: float) -> float:
        """Return the time at which all workers train again after the failure that comes now."""
        self._fail()
        workers, noticed_s, down_s = self.group.workers, failed_s + self.group.timeout_s, failed_s
        while True:
            start_s = max(noticed_s, self._places.when_filled_s(workers))
            if math.isinf(start_s):
                why = f"{self._places.empty} of {workers} places stay empty, without a spare"
                self._costs.stuck, self._costs.wall_s = no_progress(down_s, why), down_s
                return down_s
            if self._next.at_s < min(start_s, self.until_s):
                self._fail()
                continue
            self._spend("down", down_s, start_s)
            if start_s >= self.until_s:
                return self.until_s
            self._places.settle(start_s)
            if self._next.at_s >= min(start_s + self._restart_s, self.until_s):
                self._spend("restart", start_s, start_s + self._restart_s)
                self._hit_since_restart.clear()
                return start_s + self._restart_s
            at_s = self._next.at_s
            self._spend("restart", start_s, at_s)
            self._fail()
            noticed_s, down_s = at_s + self.group.timeout_s, at_s
            if self._costs.stuck:
                return at_s

    def _fail(self) -> None:
        """Process the next outage."""
        outage, self._next = self._next, next(self._outages, NEVER)
        self._places.settle(outage.at_s)
        hit = self._places.fail(outage)
        if not hit:
            return
        costs = self._costs
        self._hit_since_restart.update(hit)
        costs.interruptions += 1
        self._failures_in_vain += 1
        if self.work.saving.peers and self._state_is_lost():
            self._saved = 0
            costs.lost_s, costs.useful_s = costs.lost_s + costs.useful_s, 0.0
            costs.lost_steps, costs.steps = costs.lost_steps + costs.steps, 0.0
        if self._failures_in_vain >= MOST_IN_VAIN:
            why = f"{MOST_IN_VAIN:,} failures in a row left no time for a restart and the steps to a checkpoint"
            costs.stuck, costs.wall_s = no_progress(self._saved_at_s, why), outage.at_s

    def _state_is_lost(self) -> bool:
        """Return whether some worker's state is neither in its own memory nor in that of its peer."""
        hit, workers = self._hit_since_restart, self.group.workers
        return any((place + workers // 2) % workers in hit for place in hit)

    def _spend(self, kind: str, start_s: float, end_s: float) -> None:
        """Add a period in which all workers are ``down`` or ``restart``."""
        end_s = min(end_s, self.until_s)
        if end_s > start_s:
            seconds = getattr(self._costs, f"{kind}_s") + self.group.workers * (end_s - start_s)
            setattr(self._costs, f"{kind}_s", seconds)
            self._costs.stretches.append(Stretch(kind, start_s, end_s, self._saved))
