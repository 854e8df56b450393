"""A training whose group forms anew when machines fail: who makes which step, and when, found out before the math.

What a method of means sends is known by closed form, so that the clock of any group is, too. Failures are played on
these clocks; then the math is done by those who are there in each step, as with workers that are away by plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syncline.comm import Absence, Membership
from syncline.costmodel import Call, Network, TensorShape
from syncline.costmodel.network.topology import Floats
from syncline.costmodel.traffic.exchanges import calls_of
from syncline.errors import SynclineError
from syncline.experiments.bounds import AS_PREDICTED, Factors
from syncline.experiments.limits import BYTES
from syncline.methods.base import FP32_BYTES
from syncline.sim import Clock
from syncline.sim.clocks.failing import placed_clock
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.failures.reforms import play_reforms
from syncline.sim.failures.work import SavedSteps, Saving
from syncline.specs import MethodBase, Training

if TYPE_CHECKING:
    from collections.abc import Callable

    ClockOf = Callable[[Training, Sequence[Call], Network, Factors, NDArray[np.bool_]], Clock]

Present = NDArray[np.bool_]


@dataclass
class PlayedGroup:
    """What became of a group.

    Attributes:
        here: who makes each step for good, ``(T, P)``.
        step_end_s: when it ends, ``(T,)``.
        joined: by step, who begins with it and has what others had before it.
        told: what failures cost.
    """

    here: Present
    step_end_s: Floats
    joined: dict[int, list[int]] = field(default_factory=dict)
    told: FailureCosts = field(default_factory=lambda: FailureCosts(0))


@dataclass(frozen=True)
class ReformedGroup:
    """A training of a group that forms anew, as it is played.

    Args:
        spec: of the training.
        method: whose group it is.
        network: that joins the workers.
        tensors: of the model.
        state_bytes: of a checkpoint.
        clock_of: times calls of so many steps, among those present.
    """

    spec: Training
    method: MethodBase
    network: Network
    tensors: Sequence[TensorShape]
    state_bytes: float
    clock_of: ClockOf

    def play(self, off: Factors = AS_PREDICTED) -> PlayedGroup:
        """Play it, with computing and communication off by factors.

        Raises:
            SynclineError: no progress is possible, and since when.
        """
        spec, failures = self.spec, self.spec.failures
        assert failures is not None
        works: dict[bytes, SavedSteps] = {}
        saving: list[Saving] = []

        def work_of(here: Present) -> SavedSteps:
            if here.tobytes() not in works:
                ends_s = np.concatenate([[0.0], self._alike(here.copy(), off).step_end_s])
                if not saving:  # of all workers, who begin
                    saving.append(failures.saving(float(ends_s[-1]) / spec.steps, spec.workers, self.state_bytes))
                works[here.tobytes()] = SavedSteps(spec.steps, lambda step: float(ends_s[step]), saving[0])
            return works[here.tobytes()]

        played = PlayedGroup(np.ones((spec.steps, spec.workers), dtype=bool), np.zeros(spec.steps))

        def made(begun_s: float, begun: int, done: int, here: Present, joined: list[int]) -> None:
            work = work_of(here)
            played.joined = {step: who for step, who in played.joined.items() if step < begun} | {begun: joined}
            played.here[begun:done] = here
            played.step_end_s[begun:done] = [
                begun_s + work.end_s(step) - work.ready_s(begun) for step in range(begun + 1, done + 1)
            ]

        outages = failures.outages_of(spec.workers, spec.seeds[0])
        period = int(getattr(self.method, "period", 1))
        group = failures.group(spec.workers)
        played.told = play_reforms(group, spec.steps, work_of, outages, whole_steps=True, period=period, made=made)
        if played.told.stuck is not None:
            raise SynclineError(f"failures: {played.told.stuck}")
        return played

    def _alike(self, here: Present, off: Factors) -> Clock:
        """The clock of a training whose steps are all made by the same workers."""
        spec, members = self.spec, tuple(np.flatnonzero(here).tolist())
        exchanges = self.method.exchanges(list(self.tensors), len(members)) if len(members) > 1 else []
        # What no wire format makes smaller travels in the training's own numbers, as its ledger says.
        wide = BYTES[spec.dtype] / FP32_BYTES if getattr(self.method, "wire", None) in (None, "dense") else 1.0
        calls = [
            call._replace(payload_bytes=wide * call.payload_bytes) for call in calls_of(exchanges, spec.steps, members)
        ]
        return self.clock_of(spec, calls, self.network, off, np.tile(here, (spec.steps, 1)))


@dataclass(frozen=True)
class TrainedGroup:
    """A group that has trained, in the steps that were played.

    Args:
        group: whose.
        played: what its math has seen.
    """

    group: ReformedGroup
    played: PlayedGroup

    def membership(self) -> Membership | None:
        """Who takes part in which step; none: everybody in all."""
        here = self.played.here
        away = [
            Absence(worker, int(start), int(stop))
            for worker in range(here.shape[1])
            for start, stop in _runs(~here[:, worker])
        ]
        joined = {step: who for step, who in self.played.joined.items() if who}
        return Membership(here.shape[1], away, joined) if away or joined else None

    def time(self, calls: Sequence[Call], steps: int, network: Network, off: Factors) -> Clock | None:
        """The clock of the first steps on its network, None on another; with factors failures meet other steps."""
        if network.name != self.group.network.name:
            return None
        played = self.played if off == AS_PREDICTED else self.group.play(off)
        spec = self.group.spec
        base = self.group.clock_of(spec, calls, network, off, self.played.here[:steps])
        return placed_clock(base, played.step_end_s[:steps], played.told, spec.timeline_steps)


def _runs(away: NDArray[np.bool_]) -> list[tuple[Any, Any]]:
    """From where to where something holds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], away, [False]]).astype(np.int8)))
    return list(zip(edges[::2], edges[1::2], strict=True))
