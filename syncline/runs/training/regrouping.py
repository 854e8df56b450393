"""Synchronous trainings whose workers form a new group when a machine fails or comes back.

A closed form gives the collectives of a method for any number of workers, and so the clock of any group. Before the
math, a simulation plays the failures on these clocks. The workers that are present in each step then do the math.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from syncline.comm import Absence, Membership
from syncline.costmodel import Call, Network, TensorShape
from syncline.costmodel.failures import rejoin_s
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.traffic.exchanges import calls_of
from syncline.errors import SynclineError
from syncline.methods import MethodBase
from syncline.methods.parts.method_spec import FP32_BYTES
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.runs.training.limits import DTYPE_BYTES
from syncline.sim import Clock
from syncline.sim.clocks.phases_and_failures import delayed_clock
from syncline.sim.failures.costs import CheckpointTimes, FailureCosts, SavedSteps
from syncline.sim.failures.trainings import ElasticTraining
from syncline.specs import Training

Present = NDArray[np.bool_]
"""A mask of the workers that take part, ``(P,)``, or in each step, ``(T, P)``."""


@dataclass
class GroupHistory:
    """The workers in each step of a simulated training, and the end of each step.

    Attributes:
        present: whether each worker took part in each step, ``(T, P)``; a step that a failure undoes is repeated, and
            the repetition counts.
        step_end_s: end of each step in seconds, ``(T,)``.
        joined: by step, the workers that join before it and copy the state of the others.
        costs: costs of the failures.
    """

    present: Present
    step_end_s: Floats
    joined: dict[int, list[int]] = field(default_factory=dict)
    costs: FailureCosts = field(default_factory=lambda: FailureCosts(workers=0))


@dataclass(frozen=True)
class ReformedGroup:
    """The settings of a synchronous training whose workers form a new group at each failure.

    Args:
        spec: spec of the training, with its failures.
        method: a synchronous method.
        state_bytes: bytes of a checkpoint.
        clock_of: function that returns the clock of a training from its collectives, the factors on computing and
            communication times, and the mask of the workers that are present in each step, ``(T, P)``.
    """

    spec: Training
    method: MethodBase
    network: Network
    tensors: Sequence[TensorShape]
    state_bytes: float
    clock_of: Callable[[Sequence[Call], Factors, Present], Clock]

    def simulate(self, factors: Factors = AS_PREDICTED) -> GroupHistory:
        """Simulate the training, with computing and communication times multiplied by factors.

        Raises:
            SynclineError: no progress is possible; the error says since when.
        """
        spec, failures = self.spec, self.spec.failures
        assert failures is not None
        times_by_group: dict[bytes, SavedSteps] = {}
        checkpoint_times: CheckpointTimes | None = None

        def group_times(present: Present) -> SavedSteps:
            """Return the times of the steps and checkpoints of a group with these members, ``(P,)``."""
            nonlocal checkpoint_times
            key = present.tobytes()
            if key in times_by_group:
                return times_by_group[key]
            ends_s = np.concatenate([[0.0], self._constant_group_clock(present.copy(), factors).step_end_s])
            if checkpoint_times is None:  # the first call is for all workers, which begin the training
                fetch_s = rejoin_s(self.network, spec.workers, copies=spec.workers, copy_bytes=self.state_bytes)
                mean_step_s = float(ends_s[-1]) / spec.steps
                checkpoint_times = failures.checkpoint_costs(
                    mean_step_s, spec.workers, self.state_bytes, rejoin_s=fetch_s
                )
            times_by_group[key] = SavedSteps(spec.steps, lambda step: float(ends_s[step]), checkpoint_times)
            return times_by_group[key]

        history = GroupHistory(np.ones((spec.steps, spec.workers), dtype=bool), np.zeros(spec.steps))

        def record_steps(start_s: float, first: int, stop: int, present: Present, joined: list[int]) -> None:
            """Store steps ``first`` to ``stop`` - 1 of a group that began at ``start_s``, in place of lost steps."""
            times = group_times(present)
            history.joined = {step: workers for step, workers in history.joined.items() if step < first}
            history.joined[first] = joined
            history.present[first:stop] = present
            for step in range(first, stop):
                passed_s = times.end_s(step + 1) - times.next_start_s(first)  # with the checkpoints between steps
                history.step_end_s[step] = start_s + passed_s

        history.costs = ElasticTraining(
            failures.failing_group(spec.workers), spec.steps, group_times,
            failures.outages_of(spec.workers, spec.seeds[0]),
            whole_steps=True,  # a step counts as one, however many workers make it
            period=int(getattr(self.method, "period", 1)), on_steps=record_steps,
        ).simulate()  # fmt: skip
        if history.costs.stuck is not None:
            raise SynclineError(f"failures: {history.costs.stuck}")
        return history

    def _constant_group_clock(self, present: Present, factors: Factors) -> Clock:
        """Return the clock of a training in which the ``present`` workers, a mask ``(P,)``, make all steps."""
        spec, members = self.spec, tuple(np.flatnonzero(present).tolist())
        calls: list[Call] = []
        if len(members) > 1:
            calls = calls_of(self.method.exchanges(list(self.tensors), len(members)), spec.steps, members)
        has_plain_payloads = getattr(self.method, "wire", None) in (None, "dense")  # no wire format compresses them
        if has_plain_payloads:  # they travel in the training's dtype, not in fp32
            width_ratio = DTYPE_BYTES[spec.dtype] / FP32_BYTES
            calls = [call._replace(payload_bytes=width_ratio * call.payload_bytes) for call in calls]
        return self.clock_of(calls, factors, np.tile(present, (spec.steps, 1)))


@dataclass(frozen=True)
class TrainedGroup:
    """A training whose workers form a new group at each failure, with the simulated history of its groups."""

    group: ReformedGroup
    history: GroupHistory

    def membership(self) -> Membership | None:
        """Return the absences and joins of workers by step, or None if all workers take part in all steps."""
        present = self.history.present
        absences = []
        for worker in range(present.shape[1]):
            # The worker counts as present before the first step and after the last, so that each absence has two ends.
            is_away = np.concatenate([[False], ~present[:, worker], [False]]).astype(np.int8)
            change = np.diff(is_away)
            first_steps, end_steps = np.flatnonzero(change == 1).tolist(), np.flatnonzero(change == -1).tolist()
            absences += [Absence(worker, first, end) for first, end in zip(first_steps, end_steps, strict=True)]
        joined = {step: workers for step, workers in self.history.joined.items() if workers}
        if not absences and not joined:
            return None
        return Membership(present.shape[1], absences, joined)

    def time(self, calls: Sequence[Call], steps: int, network: Network, factors: Factors) -> Clock | None:
        """Return the clock of the first ``steps`` steps on the training's network, and None on another.

        Factors other than 1 need a new simulation, because failures then interrupt other steps.
        """
        if network.name != self.group.network.name:
            return None
        history = self.history if factors == AS_PREDICTED else self.group.simulate(factors)
        # The training is not repeated: it keeps its calls, and the workers that were present in its steps.
        clock_without_failures = self.group.clock_of(calls, factors, self.history.present[:steps])
        keep_steps = self.group.spec.timeline_steps
        return delayed_clock(clock_without_failures, history.step_end_s[:steps], history.costs, keep_steps)
