"""Failures of a training that goes on with the present workers, which re-form their group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.sim.failures.outages import Outage
from syncline.sim.failures.outcome import MAX_FAILURES_IN_A_ROW, FailureCosts, Stretch, no_progress
from syncline.sim.failures.roster import FailingGroup, Roster
from syncline.sim.failures.work import SavedSteps

Mask: TypeAlias = NDArray[np.bool_]
"""Whether each of the P workers is present, ``(P,)``."""

StepsObserver: TypeAlias = Callable[[float, int, int, Mask, list[int]], None]
"""A function that is called with completed steps: their start time, first and last number, the present workers, and
the workers that joined before the first step. A later call with the same steps replaces the earlier call.
"""


class _Checkpoint(NamedTuple):
    """The last checkpoint: its step, and the counted steps and useful worker seconds up to this step."""

    step: int = 0
    counted_steps: float = 0.0
    useful_s: float = 0.0


@dataclass(eq=False)
class ElasticTraining:
    """A training that goes on with the present workers.

    A failure costs the step under way, the time until the others notice, and the re-forming of the group. A returned
    worker gets the state of the others, which pause after their step to let this worker join. If fewer than
    ``min_workers`` workers are present, they wait; if no worker is present, the state is that of the last checkpoint.

    Args:
        group: the workers that train, and the costs of a failure.
        steps: number of steps of the training; a step of n of P workers counts as n / P steps.
        work_of: clock of the steps of the present workers, numbered by the steps made so far.
        outages: outages in the order of time.
        until_s: time at which the simulation stops.
        whole_steps: whether every step counts as one, with any number of workers.
        period: number of steps between two exchanges; a failed worker loses its steps since the last exchange.
        on_steps: observer of completed steps.
    """

    group: FailingGroup
    steps: float
    work_of: Callable[[Mask], SavedSteps]
    outages: Iterable[Outage]
    until_s: float = math.inf
    whole_steps: bool = False
    period: int = 1
    on_steps: StepsObserver | None = None

    def __post_init__(self) -> None:
        self._members = np.ones(self.group.workers, dtype=bool)  # workers of the group, since it was last formed
        self._work = self.work_of(self._members)
        self._roster = Roster(self.group, self._work.saving.join_s, self.outages)
        self._costs = FailureCosts(self.group.workers)
        self._first_steps: dict[int, int] = {}  # step with which each returned worker began
        self._num_steps = 0  # made so far
        self._failures_in_a_row = 0  # without a step between them
        self._checkpoint = _Checkpoint()

    def simulate(self) -> FailureCosts:
        """Simulate the training to the end and return its costs."""
        now_s, roster, costs = 0.0, self._roster, self._costs
        while not costs.stuck:
            if roster.next_s() <= now_s:
                now_s = self._change(now_s)
                continue
            if now_s >= self.until_s or costs.steps >= self.steps * (1 - 1e-12):
                break
            now_s = self._train(now_s)
        costs.wall_s = min(now_s, self.until_s)
        roster.end(costs.wall_s, costs)
        return costs

    def _change(self, now_s: float) -> float:
        """Process a change at the same instant at which the workers would continue; return the time in seconds."""
        change = self._roster.change(self._costs)
        self._first_steps |= dict.fromkeys(change.joined, self._num_steps)
        if change.left:
            return self._lose_workers(now_s, change.left)
        return self._form_group(now_s, now_s + self.group.reform_s) if change.joined else now_s

    def _step_weight(self, present: int) -> float:
        """Return the number of steps, at most 1, for which a step of this number of workers counts."""
        return 1.0 if self.whole_steps else present / self.group.workers

    def _train(self, start_s: float) -> float:
        """Train until the group changes or the training ends; return the time in seconds."""
        work, first_step, costs, roster = self._work, self._num_steps, self._costs, self._roster
        last_step = first_step + math.ceil((self.steps - costs.steps) / self._step_weight(roster.count) - 1e-9)
        end_s = start_s + work.end_s(last_step) - work.ready_s(first_step)
        while (change_s := min(roster.next_s(), self.until_s)) < end_s:
            done, present = work.done_by(first_step, change_s - start_s), roster.count
            if change_s == self.until_s:
                self._add_costs(start_s, change_s, first_step, done, present)
                return change_s
            change = roster.change(costs)
            if change.left:
                self._add_costs(start_s, change_s, first_step, done, present)
                return self._lose_workers(change_s, change.left)
            if change.joined:
                step_end_s = start_s + work.end_s(done + 1) - work.ready_s(first_step)
                costs.down_s += len(change.joined) * max(step_end_s - change_s, 0.0)
                self._add_costs(start_s, step_end_s, first_step, done + 1, present)
                self._first_steps |= dict.fromkeys(change.joined, self._num_steps)
                return self._form_group(step_end_s, step_end_s + self.group.reform_s)
        self._add_costs(start_s, end_s, first_step, last_step, roster.count)
        return end_s

    def _add_costs(self, start_s: float, end_s: float, first_step: int, done: int, present: int) -> None:
        """Add the seconds of a period in which ``present`` workers trained from ``first_step`` to step ``done``."""
        work, costs, weight = self._work, self._costs, self._step_weight(present)
        saved = work.saved_by(first_step, end_s - start_s)
        useful_s = work.until_s(done) - work.until_s(first_step)
        planned_checkpoint_s = work.ready_s(done) - work.ready_s(first_step) - useful_s
        checkpoint_s = min(planned_checkpoint_s, max(end_s - start_s - useful_s, 0.0))
        if saved > first_step:
            saved_s = work.until_s(saved) - work.until_s(first_step)
            saved_steps = costs.steps + weight * (saved - first_step)
            self._checkpoint = _Checkpoint(saved, saved_steps, costs.useful_s + present * saved_s)
            self._failures_in_a_row = 0
        if done > first_step:
            self._failures_in_a_row = 0
            if self.on_steps is not None:
                joined = sorted(worker for worker, step in self._first_steps.items() if step == first_step)
                joined = [worker for worker in joined if self._members[worker]]
                self.on_steps(start_s, first_step, done, self._members, joined)
            steps_end_s = start_s + useful_s + checkpoint_s
            costs.stretches.append(Stretch("steps", start_s, steps_end_s, first_step, done - first_step))
        costs.steps += weight * (done - first_step)
        costs.useful_s += present * useful_s
        costs.checkpoint_s += present * checkpoint_s
        lost_s = max(end_s - start_s - useful_s - checkpoint_s, 0.0)
        costs.lost_s += present * lost_s
        if lost_s:
            costs.stretches.append(Stretch("lost", end_s - lost_s, end_s, done))
        self._num_steps = done

    def _lose_workers(self, now_s: float, failed: list[int]) -> float:
        """Count failed workers' steps since the last exchange as lost, and form a new group; return the time."""
        last_exchange, costs = self._num_steps - self._num_steps % self.period, self._costs
        for worker in failed if self.period > 1 else ():
            first_lost = max(last_exchange, self._first_steps.get(worker, 0))
            lost_s = self._work.until_s(self._num_steps) - self._work.until_s(first_lost)
            lost_steps = 0.0 if self.whole_steps else (self._num_steps - first_lost) / self.group.workers
            costs.useful_s, costs.lost_s = costs.useful_s - lost_s, costs.lost_s + lost_s
            costs.steps, costs.lost_steps = costs.steps - lost_steps, costs.lost_steps + lost_steps
        return self._form_group(now_s, now_s + self.group.timeout_s + self.group.reform_s)

    def _form_group(self, now_s: float, ready_s: float) -> float:
        """Wait until the group is formed; a worker that leaves or joins meanwhile restarts the forming.

        Args:
            now_s: present time.
            ready_s: time at which the group is formed if nothing changes.

        Returns:
            The time at which the group trains again, or at which the simulation ends.
        """
        roster, costs, group, since_s = self._roster, self._costs, self.group, now_s
        self._failures_in_a_row += 1
        while True:
            if roster.count < group.min_workers or not roster.count:
                if not roster.count:
                    self._return_to_checkpoint()
                most_workers = group.workers - len(roster.lost)
                if math.isinf(roster.next_s()) or most_workers < max(group.min_workers, 1):
                    reason = f"{roster.count} workers are left, and {group.min_workers} are needed"
                    costs.stuck = no_progress(since_s, reason)
                    return now_s
                ready_s = math.inf
            if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                reason = f"{MAX_FAILURES_IN_A_ROW:,} failures in a row left no time to form a group and make a step"
                costs.stuck = no_progress(since_s, reason)
                return now_s
            next_s = min(roster.next_s(), self.until_s, ready_s)
            if next_s > now_s:
                costs.restart_s += roster.count * (next_s - now_s)
                costs.stretches.append(Stretch("restart", now_s, next_s, self._num_steps))
            now_s = next_s
            if now_s == ready_s:
                self._members = roster.present.copy()
                self._work = self.work_of(self._members)
                return now_s
            if now_s == self.until_s:
                return now_s
            change = roster.change(costs)
            if change.left:
                self._failures_in_a_row += 1
                ready_s = now_s + group.timeout_s + group.reform_s
            elif change.joined:
                self._first_steps |= dict.fromkeys(change.joined, self._num_steps)
                formed_s = now_s + group.reform_s
                ready_s = formed_s if math.isinf(ready_s) else max(ready_s, formed_s)

    def _return_to_checkpoint(self) -> None:
        """Return to the last checkpoint, because no worker has the state."""
        costs, checkpoint = self._costs, self._checkpoint
        costs.lost_steps += costs.steps - checkpoint.counted_steps
        costs.lost_s += costs.useful_s - checkpoint.useful_s
        costs.steps, costs.useful_s, self._num_steps = checkpoint.counted_steps, checkpoint.useful_s, checkpoint.step
        self._first_steps.clear()
