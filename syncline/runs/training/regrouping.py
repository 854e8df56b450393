"""Trainings whose group re-forms after machine failures; a simulation decides the participants before the math.

A closed form gives the calls of a method of means, and therefore the clock of any group. The simulation plays
failures on these clocks. Then the workers that are present in each step do the math, as with planned absences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.comm import Absence, Membership
from syncline.costmodel import Call, Network, TensorShape
from syncline.costmodel.failures import rejoin_s
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.traffic.exchanges import calls_of
from syncline.errors import SynclineError
from syncline.methods.parts.method_spec import FP32_BYTES
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.runs.training.limits import BYTES
from syncline.sim import Clock
from syncline.sim.clocks.phases_and_failures import delayed_clock
from syncline.sim.failures.costs import CheckpointTimes, FailureCosts, SavedSteps
from syncline.sim.failures.trainings import ElasticTraining
from syncline.specs import MethodBase, Training

Present = NDArray[np.bool_]
"""A mask of the workers that take part, ``(P,)``, or in each step, ``(T, P)``."""


@dataclass
class GroupHistory:
    """The simulated history of a group.

    Attributes:
        present: mask of the workers that make each step for good, ``(T, P)``.
        step_end_s: end of each step in seconds, ``(T,)``.
        joined: workers that join at a step, with the others' state from before it, by step.
        costs: cost of the failures.
    """

    present: Present
    step_end_s: Floats
    joined: dict[int, list[int]] = field(default_factory=dict)
    costs: FailureCosts = field(default_factory=lambda: FailureCosts(0))


@dataclass(frozen=True)
class ReformedGroup:
    """A training whose group re-forms, ready to be simulated.

    Args:
        spec: specification of the training.
        method: synchronisation method of the group.
        network: network that joins the workers.
        tensors: parameter shapes of the model.
        state_bytes: bytes of a checkpoint.
        clock_of: function from calls, factors and the workers present in each step, ``(T, P)``, to the clock.
    """

    spec: Training
    method: MethodBase
    network: Network
    tensors: Sequence[TensorShape]
    state_bytes: float
    clock_of: Callable[[Sequence[Call], Factors, Present], Clock]

    def play(self, factors: Factors = AS_PREDICTED) -> GroupHistory:
        """Simulate the training, with computing and communication times multiplied by factors.

        Raises:
            SynclineError: no progress is possible; the error says since when.
        """
        spec, failures = self.spec, self.spec.failures
        assert failures is not None
        works: dict[bytes, SavedSteps] = {}
        saving: list[CheckpointTimes] = []

        def work_of(present: Present) -> SavedSteps:
            if present.tobytes() not in works:
                ends_s = np.concatenate([[0.0], self._alike(present.copy(), factors).step_end_s])
                if not saving:  # the first call is for all workers, which begin the training
                    fetch_s = rejoin_s(self.network, spec.workers, spec.workers, self.state_bytes)
                    step_s = float(ends_s[-1]) / spec.steps
                    saving.append(failures.checkpoint_costs(step_s, spec.workers, self.state_bytes, rejoin_s=fetch_s))
                works[present.tobytes()] = SavedSteps(spec.steps, lambda step: float(ends_s[step]), saving[0])
            return works[present.tobytes()]

        history = GroupHistory(np.ones((spec.steps, spec.workers), dtype=bool), np.zeros(spec.steps))

        def record_steps(start_s: float, first: int, done: int, present: Present, joined: list[int]) -> None:
            work = work_of(present)
            earlier = {step: workers for step, workers in history.joined.items() if step < first}
            history.joined = earlier | {first: joined}
            history.present[first:done] = present
            history.step_end_s[first:done] = [
                start_s + work.end_s(step) - work.ready_s(first) for step in range(first + 1, done + 1)
            ]

        outages = failures.outages_of(spec.workers, spec.seeds[0])
        period = int(getattr(self.method, "period", 1))
        group = failures.failing_group(spec.workers)
        history.costs = ElasticTraining(
            group, spec.steps, work_of, outages, whole_steps=True, period=period, on_steps=record_steps
        ).simulate()
        if history.costs.stuck is not None:
            raise SynclineError(f"failures: {history.costs.stuck}")
        return history

    def _alike(self, present: Present, factors: Factors) -> Clock:
        """Return the clock of a training in which the same workers make all steps."""
        spec, members = self.spec, tuple(np.flatnonzero(present).tolist())
        exchanges = self.method.exchanges(list(self.tensors), len(members)) if len(members) > 1 else []
        # Payloads without a compressing wire format travel in the training's dtype, as in its ledger.
        width_ratio = BYTES[spec.dtype] / FP32_BYTES if getattr(self.method, "wire", None) in (None, "dense") else 1.0
        calls = [
            call._replace(payload_bytes=width_ratio * call.payload_bytes)
            for call in calls_of(exchanges, spec.steps, members)
        ]
        return self.clock_of(calls, factors, np.tile(present, (spec.steps, 1)))


@dataclass(frozen=True)
class TrainedGroup:
    """A group that has trained in its simulated steps.

    Args:
        group: the group and its training.
        history: the simulated history that the math has followed.
    """

    group: ReformedGroup
    history: GroupHistory

    def membership(self) -> Membership | None:
        """Return the absences and joins of workers by step, or None if all workers take part in all steps."""
        present = self.history.present
        away = [
            Absence(worker, int(start), int(stop))
            for worker in range(present.shape[1])
            for start, stop in _runs(~present[:, worker])
        ]
        joined = {step: workers for step, workers in self.history.joined.items() if workers}
        return Membership(present.shape[1], away, joined) if away or joined else None

    def time(self, calls: Sequence[Call], steps: int, network: Network, factors: Factors) -> Clock | None:
        """Return the clock of the first steps on the training's network, None on another.

        With factors other than 1, the failures meet other steps, so that the group is simulated again.
        """
        if network.name != self.group.network.name:
            return None
        history = self.history if factors == AS_PREDICTED else self.group.play(factors)
        base = self.group.clock_of(calls, factors, self.history.present[:steps])
        return delayed_clock(base, history.step_end_s[:steps], history.costs, self.group.spec.timeline_steps)


def _runs(away: NDArray[np.bool_]) -> list[tuple[Any, Any]]:
    """Return the start and the end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], away, [False]]).astype(np.int8)))
    return list(zip(edges[::2], edges[1::2], strict=True))
