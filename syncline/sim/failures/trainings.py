"""The simulation of trainings on machines that fail, which continue in three ways.

`RestartedTraining`: all workers go back to the last checkpoint. `ElasticTraining`: the present workers re-form their
group and go on. `simulate_independent_workers`: a failed worker loses its unsent work, and the others do not notice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.sim.failures.costs import MAX_FAILURES_IN_A_ROW, FailureCosts, SavedSteps, Stretch, no_progress_line
from syncline.sim.failures.outages import NEVER, Change, FailingGroup, FilledPlaces, Outage, Roster


@dataclass(eq=False)
class RestartedTraining:
    """A training that goes on only with all its workers.

    A failure loses the steps that are in no checkpoint. When the others have noticed the failure and all places have a
    machine again, all workers restart and load the checkpoint. A further failure before they have loaded it repeats
    this. At the beginning the training waits for absent workers.

    Args:
        until_s: time at which the simulation stops; the steps completed until then count, saved or not.
    """

    group: FailingGroup
    work: SavedSteps
    outages: Iterable[Outage]
    until_s: float = math.inf

    def __post_init__(self) -> None:
        self._outages = iter(self.outages)
        self._next_outage = next(self._outages, NEVER)
        self._restart_s = self.group.restart_s + self.work.saving.reload_s
        self._places = FilledPlaces(self.group.workers, self.group.spares)
        self._costs = FailureCosts(self.group.workers)
        self._saved_step, self._saved_at_s = 0, 0.0
        self._failures_in_a_row = 0  # failures since the last saved step
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
                costs.wall_s = min(now_s, self.until_s)
                return costs

    def _train(self, start_s: float) -> float:
        """Train from the last checkpoint to the next failure or the end; return the time of that in seconds."""
        work, first_step = self.work, self._saved_step
        remaining_s = work.next_start_s(work.steps) - work.next_start_s(first_step)
        finish_s = start_s + remaining_s  # without another failure
        end_s = min(finish_s, self._next_outage.at_s, self.until_s)
        if end_s == finish_s:
            saved_step = done_step = work.steps
        else:
            done_step = work.done_by(first_step, end_s - start_s)
            has_failed = end_s == self._next_outage.at_s  # the end of the simulation loses no steps
            saved_step = work.saved_by(first_step, end_s - start_s) if has_failed else done_step
        self._add_costs(start_s, end_s, first_step, saved_step, done_step)
        if saved_step > first_step:
            self._saved_at_s, self._failures_in_a_row = end_s, 0
        self._saved_step = saved_step
        return end_s

    def _add_costs(self, start_s: float, end_s: float, first_step: int, saved_step: int, done_step: int) -> None:
        """Add the costs of a period of training after ``first_step``; its steps after ``saved_step`` are lost."""
        work, costs, workers = self.work, self._costs, self.group.workers
        useful_s = work.steps_s(saved_step) - work.steps_s(first_step)
        planned_s = work.next_start_s(saved_step) - work.next_start_s(first_step)  # with checkpoints
        kept_s = min(planned_s, end_s - start_s)
        costs.useful_s += workers * useful_s
        costs.checkpoint_s += workers * max(kept_s - useful_s, 0.0)  # rounding can make the difference negative
        costs.lost_s += workers * (end_s - start_s - max(kept_s, useful_s))
        costs.steps += saved_step - first_step
        costs.lost_steps += done_step - saved_step
        if saved_step > first_step:
            costs.stretches.append(Stretch("steps", start_s, start_s + kept_s, first_step, saved_step - first_step))
        if end_s > start_s + kept_s:
            costs.stretches.append(Stretch("lost", start_s + kept_s, end_s, saved_step, done_step - saved_step))

    def _restart(self, failed_s: float) -> float:
        """Process the failure at ``failed_s``, and return the time at which all workers train again, in seconds.

        If the training gets stuck or the simulation ends before, return the time of that.
        """
        self._process_outage()
        costs, workers = self._costs, self.group.workers
        noticed_s, down_since_s = failed_s + self.group.timeout_s, failed_s
        while not costs.stuck:
            start_s = max(noticed_s, self._places.when_filled_s(workers))  # of the restart
            if math.isinf(start_s):
                reason = f"{(~self._places.filled).sum()} of {workers} places stay empty, without a spare"
                costs.stuck, costs.wall_s = no_progress_line(down_since_s, reason), down_since_s
                break
            if self._next_outage.at_s < min(start_s, self.until_s):  # further machines fail before
                self._process_outage()
                continue
            self._add_stretch("down", down_since_s, start_s)
            if start_s >= self.until_s:
                return self.until_s
            self._places.repair(start_s)
            restarted_s = start_s + self._restart_s
            if self._next_outage.at_s >= min(restarted_s, self.until_s):
                self._add_stretch("restart", start_s, restarted_s)
                self._failed_places.clear()
                return restarted_s
            next_failure_s = self._next_outage.at_s  # during the restart
            self._add_stretch("restart", start_s, next_failure_s)
            self._process_outage()
            noticed_s, down_since_s = next_failure_s + self.group.timeout_s, next_failure_s
        self._add_stretch("down", down_since_s, costs.wall_s)
        return costs.wall_s

    def _process_outage(self) -> None:
        """Process the next outage: empty the places of its machines, and count a failure."""
        outage, self._next_outage = self._next_outage, next(self._outages, NEVER)
        self._places.repair(outage.at_s)
        failed_places = self._places.fail(outage)
        if not failed_places:  # no place of the outage has a machine
            return
        costs, workers = self._costs, self.group.workers
        self._failed_places.update(failed_places)
        costs.interruptions += 1
        self._failures_in_a_row += 1
        # A worker's peer, which has a copy of its state, is half the workers away.
        peer_failed = any((place + workers // 2) % workers in self._failed_places for place in self._failed_places)
        if self.work.saving.peers and peer_failed:  # the state is lost: the training begins again
            self._saved_step = 0
            costs.lost_s += costs.useful_s
            costs.lost_steps += costs.steps
            costs.useful_s = costs.steps = 0.0
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            in_a_row = f"{MAX_FAILURES_IN_A_ROW:,} failures in a row"
            reason = f"{in_a_row} left no time for a restart and the steps to a checkpoint"
            costs.stuck, costs.wall_s = no_progress_line(self._saved_at_s, reason), outage.at_s

    def _add_stretch(self, kind: str, start_s: float, end_s: float) -> None:
        """Add a period in which all workers wait (``down``) or start again (``restart``) to the costs.

        The time after the end of the simulation, at ``until_s``, does not count.
        """
        end_s = min(end_s, self.until_s)
        if end_s <= start_s:  # the period takes no time
            return
        worker_seconds = self.group.workers * (end_s - start_s)
        if kind == "down":
            self._costs.down_s += worker_seconds
        else:
            self._costs.restart_s += worker_seconds
        self._costs.stretches.append(Stretch(kind, start_s, end_s, first_step=self._saved_step))


Mask: TypeAlias = NDArray[np.bool_]
"""Whether each of the P workers is present, ``(P,)``."""

StepsObserver: TypeAlias = Callable[[float, int, int, Mask, list[int]], None]
"""A function that is called with completed steps: their start time, the numbers of steps done before and after, the
present workers, and the workers that joined before. A later call with the same steps replaces the earlier call.
"""


class _Checkpoint(NamedTuple):
    """The last checkpoint: its step, and the counted steps and useful worker seconds up to this step."""

    step: int = 0
    counted_steps: float = 0.0
    useful_s: float = 0.0


@dataclass(eq=False)
class ElasticTraining:
    """A training that goes on with the workers that are present.

    A failure costs the step under way, the time until the others notice, and the re-forming of the group. A returned
    worker gets the state of the others, which pause after their step to let this worker join. If fewer than
    ``min_workers`` workers are present, they wait. If all are absent, the training returns to the last checkpoint.

    Args:
        steps: number of steps of the training; a step of n of P workers counts as n / P steps.
        work_of: function that returns the times of the whole training with the workers in a mask, ``(P,)``.
        until_s: time at which the simulation stops.
        whole_steps: whether every step counts as one, with any number of workers.
        period: number of steps between exchanges; a failed worker loses its steps since the last exchange.
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
        self._members = np.ones(self.group.workers, dtype=bool)  # workers with which the group was last formed
        self._work = self.work_of(self._members)
        self._roster = Roster(self.group, self._work.saving.join_s, self.outages)
        self._costs = FailureCosts(self.group.workers)
        self._first_steps: dict[int, int] = {}  # step with which each returned worker began
        self._steps_made = 0  # whole steps so far; a step of n of P workers counts as n / P in the costs
        self._failures_in_a_row = 0  # failures since the last step
        self._checkpoint = _Checkpoint()
        self._has_ended = False  # whether all steps are done and saved

    def simulate(self) -> FailureCosts:
        """Simulate the training to the end and return its costs."""
        now_s, roster, costs = 0.0, self._roster, self._costs
        while not (costs.stuck or self._has_ended):
            if roster.next_s() <= now_s:  # the group changes before it can go on
                change = roster.take_next_change(costs)
                if change.left or change.joined:  # otherwise only spare machines have failed or returned
                    now_s = self._change_group(now_s, change)
                continue
            if now_s >= self.until_s:
                break
            now_s = self._train(now_s)
        costs.wall_s = min(now_s, self.until_s)
        roster.end(costs.wall_s, costs)
        return costs

    def _step_weight(self, present: int) -> float:
        """Return the number of whole steps, at most 1, for which one step of ``present`` workers counts."""
        return 1.0 if self.whole_steps else present / self.group.workers

    def _train(self, start_s: float) -> float:
        """Train until the group changes or the training ends; return the time of that in seconds."""
        work, first_step, costs, roster = self._work, self._steps_made, self._costs, self._roster
        present = roster.num_present
        steps_left = 0.0  # if a failure has interrupted only the last checkpoint
        if costs.steps < self.steps * (1 - 1e-12):  # sums of n / P are rounded
            steps_left = (self.steps - costs.steps) / self._step_weight(present)
        last_step = final_step = first_step + math.ceil(steps_left - 1e-9)  # a rounding error must not add a step
        end_s = start_s + work.finish_s(first_step, final_step)
        joined_s: dict[int, float] = {}  # times of return of workers that wait for the end of the step
        leavers: list[int] = []
        while not leavers:
            now_s = min(roster.next_s(), self.until_s, end_s)
            if now_s in (end_s, self.until_s):
                break
            change = roster.take_next_change(costs)
            leavers = change.left
            if change.joined and not joined_s:  # the others pause after the present step, unless it is the final one
                last_step = min(work.done_by(first_step, now_s - start_s) + 1, final_step)
                if last_step < final_step:
                    end_s = start_s + work.end_s(last_step) - work.next_start_s(first_step)
            joined_s |= dict.fromkeys(change.joined, now_s)
        done = last_step if now_s == end_s else min(work.done_by(first_step, now_s - start_s), final_step)
        self._has_ended = now_s == end_s and done == final_step
        self._add_costs(start_s, now_s, first_step, done, present)
        costs.down_s += sum(now_s - since_s for since_s in joined_s.values())
        if self._has_ended:
            return now_s
        if leavers or (joined_s and now_s < self.until_s):
            return self._change_group(now_s, Change(now_s, leavers, [*joined_s]))
        return now_s

    def _add_costs(self, start_s: float, end_s: float, first_step: int, done: int, present: int) -> None:
        """Add the seconds of a period in which ``present`` workers trained from ``first_step`` until ``done`` steps."""
        work, costs, weight = self._work, self._costs, self._step_weight(present)
        saved = work.saved_by(first_step, end_s - start_s)
        useful_s = work.steps_s(done) - work.steps_s(first_step)
        planned_s = work.next_start_s(done) - work.next_start_s(first_step)
        if self._has_ended:  # with the checkpoint of the end
            planned_s = work.finish_s(first_step, done)
        planned_checkpoints_s = planned_s - useful_s
        # A failure may interrupt the last checkpoint.
        checkpoint_s = min(planned_checkpoints_s, max(end_s - start_s - useful_s, 0.0))
        if saved > first_step:
            saved_s = work.steps_s(saved) - work.steps_s(first_step)
            saved_steps = costs.steps + weight * (saved - first_step)
            self._checkpoint = _Checkpoint(saved, saved_steps, costs.useful_s + present * saved_s)
        if done > first_step:
            self._failures_in_a_row = 0
            if self.on_steps is not None:
                joined = []
                for worker, worker_first_step in sorted(self._first_steps.items()):
                    if worker_first_step == first_step and self._members[worker]:
                        joined.append(worker)
                self.on_steps(start_s, first_step, done, self._members, joined)
            steps_end_s = start_s + useful_s + checkpoint_s
            costs.stretches.append(Stretch("steps", start_s, steps_end_s, first_step, num_steps=done - first_step))
        costs.steps += weight * (done - first_step)
        costs.useful_s += present * useful_s
        costs.checkpoint_s += present * checkpoint_s
        lost_s = max(end_s - start_s - useful_s - checkpoint_s, 0.0)
        costs.lost_s += present * lost_s
        if lost_s:
            costs.stretches.append(Stretch("lost", end_s - lost_s, end_s, first_step=done))
        self._steps_made = done

    def _change_group(self, now_s: float, change: Change) -> float:
        """Form the group without the workers that left and with those that joined; return the time when it trains.

        The steps of workers that left are lost from the last exchange on.
        """
        self._first_steps |= dict.fromkeys(change.joined, self._steps_made)
        steps_exchanged, costs = self._steps_made - self._steps_made % self.period, self._costs
        if self.period > 1:  # otherwise every step ends with an exchange
            for worker in change.left:
                first_lost = max(steps_exchanged, self._first_steps.get(worker, 0))
                lost_s = self._work.steps_s(self._steps_made) - self._work.steps_s(first_lost)
                costs.useful_s -= lost_s
                costs.lost_s += lost_s
                if not self.whole_steps:  # otherwise a step counts if any worker has made it
                    lost_steps = (self._steps_made - first_lost) / self.group.workers
                    costs.steps -= lost_steps
                    costs.lost_steps += lost_steps
        noticed_s = now_s + self.group.timeout_s if change.left else now_s
        return self._form_group(now_s, ready_s=noticed_s + self.group.reform_s)

    def _form_group(self, now_s: float, ready_s: float) -> float:
        """Wait until the group is formed; a worker that leaves or joins meanwhile restarts the forming.

        Args:
            ready_s: time at which the group is formed if nothing changes.

        Returns:
            The time at which the group trains again, or at which the simulation ends.
        """
        roster, costs, group, stopped_s = self._roster, self._costs, self.group, now_s
        needed_workers = max(group.min_workers, 1)
        self._failures_in_a_row += 1
        while True:
            if roster.num_present < needed_workers:
                if not roster.num_present:
                    self._return_to_checkpoint()
                most_workers = group.workers - len(roster.lost_for_good)
                if math.isinf(roster.next_s()) or most_workers < needed_workers:
                    reason = f"{roster.num_present} workers are left, and {group.min_workers} are needed"
                    costs.stuck = no_progress_line(stopped_s, reason)
                    return now_s
                ready_s = math.inf  # unknown until more workers are present
            if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                reason = f"{MAX_FAILURES_IN_A_ROW:,} failures in a row left no time to form a group and make a step"
                costs.stuck = no_progress_line(stopped_s, reason)
                return now_s
            next_s = min(roster.next_s(), self.until_s, ready_s)
            if next_s > now_s:
                costs.restart_s += roster.num_present * (next_s - now_s)
                costs.stretches.append(Stretch("restart", now_s, end_s=next_s, first_step=self._steps_made))
            now_s = next_s
            if now_s == ready_s:
                self._members = roster.present.copy()
                self._work = self.work_of(self._members)
                return now_s
            if now_s == self.until_s:
                return now_s
            change = roster.take_next_change(costs)
            self._first_steps |= dict.fromkeys(change.joined, self._steps_made)
            if change.left:
                self._failures_in_a_row += 1
                ready_s = now_s + group.timeout_s + group.reform_s
            elif change.joined:
                reformed_s = now_s + group.reform_s
                ready_s = reformed_s if math.isinf(ready_s) else max(ready_s, reformed_s)

    def _return_to_checkpoint(self) -> None:
        """Return to the last checkpoint when no worker has the state any more."""
        costs, checkpoint = self._costs, self._checkpoint
        costs.lost_steps += costs.steps - checkpoint.counted_steps
        costs.lost_s += costs.useful_s - checkpoint.useful_s
        costs.steps, costs.useful_s, self._steps_made = checkpoint.counted_steps, checkpoint.useful_s, checkpoint.step
        self._first_steps.clear()


def simulate_independent_workers(
    group: FailingGroup,
    steps: int,
    step_s: float,
    period: int,
    load_s: float,
    outages: Iterable[Outage],
    until_s: float = math.inf,
) -> FailureCosts:
    """Return the costs of failures of workers that each fetch a model, make ``period`` steps and send an update.

    Together P workers make ``P steps`` steps; a worker with more time makes more of these steps. The server does not
    fail and never makes a worker wait. A failed worker loses its steps since its last update.

    Args:
        steps: mean number of steps per worker.
        period: number of steps between two models.
        load_s: seconds to fetch a model after a failure.
        until_s: time at which the simulation stops.
    """
    costs, roster = FailureCosts(group.workers), Roster(group, load_s, outages)
    start_s, round_s = [0.0] * group.workers, period * step_s  # start of each worker since its last return
    num_active, sum_of_starts_s = group.workers, 0.0  # workers that train, and the sum of their start times
    # Worker seconds of the whole training, and of the updates that failed workers had sent.
    needed_s, sent_s = steps * group.workers * step_s, 0.0
    while True:
        # At time t the workers have trained ``sent_s + sum over active workers of (t - start)`` worker seconds.
        end_s = (needed_s - sent_s + sum_of_starts_s) / num_active if num_active else math.inf
        now_s = min(end_s, until_s)
        if roster.next_s() >= now_s:
            break
        change = roster.take_next_change(costs)
        for worker in change.joined:  # before those that leave, because a worker may join and fail at one instant
            start_s[worker] = change.at_s
            num_active, sum_of_starts_s = num_active + 1, sum_of_starts_s + change.at_s
        for worker in change.left:
            worked_s = change.at_s - start_s[worker]
            rounds_s = math.floor(worked_s / round_s) * round_s  # the worker sent the updates of whole rounds
            num_active, sum_of_starts_s = num_active - 1, sum_of_starts_s - start_s[worker]
            sent_s += rounds_s
            costs.lost_s += worked_s - rounds_s
            costs.lost_steps += math.floor((worked_s - rounds_s) / step_s + 1e-9) / group.workers  # whole steps
        nobody_returns = math.isinf(roster.next_s()) or len(roster.lost_for_good) == group.workers
        if not num_active and nobody_returns:
            costs.stuck = no_progress_line(change.at_s)
            now_s = change.at_s
            break
    costs.wall_s = now_s
    costs.useful_s = sent_s + num_active * now_s - sum_of_starts_s
    costs.steps = costs.useful_s / (step_s * group.workers)
    roster.end(now_s, costs)
    return costs
