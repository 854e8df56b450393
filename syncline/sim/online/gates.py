"""A simulation in which an instruction can wait for a word from outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from typing_extensions import override

from syncline.sim.events.simulation import CHOICES, Simulation
from syncline.sim.events.state import TIMER
from syncline.sim.programs import Compute
from syncline.sim.timeline import Timeline

GATE = "gate"
"""What such an instruction computes: a `Compute` of no time, with an effect."""


def gate(effect: Callable[[], object], step: int = -1) -> Compute:
    """An instruction that is done when it is let through, after everything else of that instant."""
    return Compute(0.0, effect=effect, what=GATE, step=step)


class GatedSimulation(Simulation):
    """A run whose gates open when `let_through` says so."""

    @property
    def now_s(self) -> float:
        """Seconds from the beginning, for an effect."""
        return float(self.core["now"])

    def timeline_so_far(self) -> Timeline:
        """What has happened until now."""
        return self._timeline()

    def let_through(self, worker: int) -> None:
        """Open the gate that a worker has come to."""
        self.env.later(0.0, partial(self._computed, worker), CHOICES)

    @override
    def _answer(self, why: int) -> None:
        if why == TIMER:
            worker = int(self.core["worker"])
            instruction: Any = self._instruction(worker)
            if instruction.what == GATE:
                return
        super()._answer(why)
