"""SimPy's clock, whose events have one order with the core's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

from syncline.sim.events.codes import KIND_BITS, PRIORITY_BIT


class SharedClock(simpy.Environment):
    """SimPy's clock and queue, whose events are numbered with the core's.

    Args:
        core: the record of the core.
    """

    def __init__(self, core: Any) -> None:
        super().__init__()
        self._core = core
        self._eid = self._numbers()  # type: ignore[assignment]

    def _numbers(self) -> Iterator[int]:
        while True:
            self._core["number"] += 1
            yield int(self._core["number"])

    @property
    def ahead(self) -> tuple[float, int]:
        """Return the time of SimPy's next event in seconds, and the key that orders events of equal time.

        The time is infinite if no event is queued.
        """
        if not self._queue:
            return math.inf, 0
        time, priority, number, _ = self._queue[0]
        return time, (int(priority) << PRIORITY_BIT) | (number << KIND_BITS)

    def set(self) -> None:
        """Set SimPy's clock to the simulated time that the core has reached."""
        self._now = float(self._core["now"])

    def later(self, seconds: float, call: Callable[[Any], None], priority: EventPriority = NORMAL) -> None:
        """Call a function ``seconds`` from now."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(call)
        self.schedule(event, priority, seconds)
