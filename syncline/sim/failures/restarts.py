"""Failures of synchronous training: when a machine fails, all workers go back to the last checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import MAX_FAILURES_IN_A_ROW, FailureCosts, Stretch, no_progress
from syncline.sim.failures.roster import NEVER, FailingGroup, FilledPlaces
from syncline.sim.failures.work import SavedSteps


@dataclass(eq=False)
class RestartedTraining:
    """A training that needs all its workers.

    A failure loses the steps that are in no checkpoint. When the others have noticed the failure and all places have a
    machine again, all workers start again and load; another failure before the end of the loading repeats this. The
    others wait for a worker that is absent at the beginning.

    Args:
        group: the workers that train, and the costs of a restart.
        work: the steps and checkpoints of the training.
        outages: outages in the order of time.
        until_s: time at which the simulation stops; all steps completed before count, saved or not.
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
        self._saved_step, self._saved_at_s = 0, 0.0  # of the last checkpoint
        self._failures_in_a_row = 0  # without a saved step between them
        self._failed_places: set[int] = set()  # since all workers last trained together

    def simulate(self) -> FailureCosts:
        """Simulate the training to the end and return its costs."""
        now_s, costs = 0.0, self._costs
        while True:
            now_s = self._train(now_s)
            if self._saved_step == self.work.steps or now_s >= self.until_s or costs.stuck:
                costs.wall_s = now_s
                return costs
            now_s = self._restart(now_s)
            if now_s >= self.until_s or costs.stuck:
                costs.wall_s = min(now_s, self.until_s) if math.isfinite(now_s) else costs.wall_s
                return costs

    def _train(self, start_s: float) -> float:
        """Train from the last checkpoint to the next failure or the end; return the time in seconds."""
        work, first_step = self.work, self._saved_step
        total_s = work.ready_s(work.steps) - work.ready_s(first_step)
        end_s = min(start_s + total_s, self._next.at_s, self.until_s)
        if end_s == start_s + total_s:
            saved = done = work.steps
        else:
            saved, done = work.saved_by(first_step, end_s - start_s), work.done_by(first_step, end_s - start_s)
            if end_s == self.until_s and end_s < self._next.at_s:
                saved = done  # the end of the simulation loses nothing
        self._add_costs(start_s, end_s, first_step, saved, done)
        if saved > first_step:
            self._saved_at_s, self._failures_in_a_row = end_s, 0
        self._saved_step = saved
        return end_s

    def _add_costs(self, start_s: float, end_s: float, first_step: int, saved: int, done: int) -> None:
        """Add the seconds of a period that made the steps up to ``done``; the steps after ``saved`` are lost."""
        work, costs, workers = self.work, self._costs, self.group.workers
        useful_s = work.until_s(saved) - work.until_s(first_step)
        saved_s = min(work.ready_s(saved) - work.ready_s(first_step), end_s - start_s)  # with checkpoints
        costs.useful_s += workers * useful_s
        costs.checkpoint_s += workers * max(saved_s - useful_s, 0.0)
        costs.lost_s += workers * (end_s - start_s - max(saved_s, useful_s))
        costs.steps += saved - first_step
        costs.lost_steps += done - saved
        if saved > first_step:
            costs.stretches.append(Stretch("steps", start_s, start_s + saved_s, first_step, saved - first_step))
        if end_s > start_s + saved_s:
            costs.stretches.append(Stretch("lost", start_s + saved_s, end_s, saved, done - saved))

    def _restart(self, failed_s: float) -> float:
        """Process the failure at ``failed_s``, and return the time at which all workers train again, in seconds."""
        self._fail()
        workers, noticed_s, down_s = self.group.workers, failed_s + self.group.timeout_s, failed_s
        while True:
            start_s = max(noticed_s, self._places.when_filled_s(workers))
            if math.isinf(start_s):
                reason = f"{self._places.empty} of {workers} places stay empty, without a spare"
                self._costs.stuck, self._costs.wall_s = no_progress(down_s, reason), down_s
                return down_s
            if self._next.at_s < min(start_s, self.until_s):
                self._fail()
                continue
            self._add_stretch("down", down_s, start_s)
            if start_s >= self.until_s:
                return self.until_s
            self._places.repair(start_s)
            if self._next.at_s >= min(start_s + self._restart_s, self.until_s):
                self._add_stretch("restart", start_s, start_s + self._restart_s)
                self._failed_places.clear()
                return start_s + self._restart_s
            next_failure_s = self._next.at_s
            self._add_stretch("restart", start_s, next_failure_s)
            self._fail()
            noticed_s, down_s = next_failure_s + self.group.timeout_s, next_failure_s
            if self._costs.stuck:
                return next_failure_s

    def _fail(self) -> None:
        """Process the next outage."""
        outage, self._next = self._next, next(self._outages, NEVER)
        self._places.repair(outage.at_s)
        failed = self._places.fail(outage)
        if not failed:
            return
        costs = self._costs
        self._failed_places.update(failed)
        costs.interruptions += 1
        self._failures_in_a_row += 1
        if self.work.saving.peers and self._state_is_lost():
            self._saved_step = 0
            costs.lost_s, costs.useful_s = costs.lost_s + costs.useful_s, 0.0
            costs.lost_steps, costs.steps = costs.lost_steps + costs.steps, 0.0
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            reason = (
                f"{MAX_FAILURES_IN_A_ROW:,} failures in a row left no time for a restart and the steps to a checkpoint"
            )
            costs.stuck, costs.wall_s = no_progress(self._saved_at_s, reason), outage.at_s

    def _state_is_lost(self) -> bool:
        """Return whether some worker's state is neither in its own memory nor in its peer's."""
        failed, workers = self._failed_places, self.group.workers
        return any((place + workers // 2) % workers in failed for place in failed)

    def _add_stretch(self, kind: str, start_s: float, end_s: float) -> None:
        """Add a period in which all workers wait (``down``) or start again (``restart``) to the costs."""
        end_s = min(end_s, self.until_s)
        if end_s > start_s:
            seconds = getattr(self._costs, f"{kind}_s") + self.group.workers * (end_s - start_s)
            setattr(self._costs, f"{kind}_s", seconds)
            self._costs.stretches.append(Stretch(kind, start_s, end_s, self._saved_step))
