"""A simulation in which an instruction, a gate, waits until a caller opens it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from typing_extensions import override

from syncline.sim.events.codes import TIMER
from syncline.sim.events.simulation import CHOICES, Simulation
from syncline.sim.program.instructions import Compute

GATE = "gate"
"""Name of the spans of gates; a gate is a `Compute` of no time that is done when `open_gate` is called."""


def gate(effect: Callable[[], object], step: int = -1) -> Compute:
    """Return an instruction that is done when its gate opens, after everything else of that instant."""
    return Compute(0.0, effect=effect, what=GATE, step=step)


class GatedSimulation(Simulation):
    """A simulation whose gates open when `open_gate` is called."""

    @property
    def now_s(self) -> float:
        """Return the seconds from the beginning, for an effect."""
        return float(self.core["now"])

    def open_gate(self, worker: int) -> None:
        """Open the gate at which a worker's program waits."""
        self.env.later(0.0, partial(self._complete, worker), CHOICES)

    @override
    def _act(self, why: int) -> None:
        if why == TIMER:
            worker = int(self.core["worker"])
            instruction: Any = self._instruction(worker)
            if instruction.what == GATE:
                return
        super()._act(why)
