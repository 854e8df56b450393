"""Costs of the exchanges of every step, cached, because methods of one layout and similar networks share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncline.costmodel import Exchange, StepTime
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern, calls_by_step
from syncline.costmodel.traffic.overlap import Bucket, PricedCall
from syncline.costmodel.traffic.step_time import priced_step


class StepTimeCache:
    """A cache of step times with exchanges in every step, by the costs of their calls, whatever the network.

    Args:
        steps: T, the number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._sent: dict[Any, tuple[Sequence[Exchange], list[CallPattern], list[Call]]] = {}
        self._known: dict[Any, StepTime] = {}

    def step_time(
        self,
        buckets: tuple[Bucket, ...],
        step_s: FloatOrArray,
        exchanges: Sequence[Exchange],
        timed: Callable[[Call], list[PricedCall]],
        trigger_s: FloatOrArray = 0.0,
        optimizer_s: FloatOrArray = 0.0,
    ) -> StepTime:
        """Return the step time that `priced_step` gives, from the cache if possible.

        Args:
            buckets: buckets in which gradients travel.
            step_s: seconds of computing in a step.
            exchanges: exchanges of every step.
            timed: prices a call, equally for calls with the same `cost_key`.
            trigger_s: see `syncline.costmodel.traffic.step_time.mean_step`.
            optimizer_s: likewise.
        """
        sent = buckets, *map(id, exchanges)  # the cache keeps the exchanges, so that their ids stay unique
        if sent not in self._sent:
            patterns = calls_by_step(exchanges, self.steps)
            calls = {cost_key(call): call for pattern in patterns for call in pattern.calls}
            self._sent[sent] = exchanges, patterns, list(calls.values())
        _, patterns, different = self._sent[sent]
        parts = [part for call in different for part in timed(call)]
        if any(part.after_idling is not None for part in parts):
            return priced_step(step_s, exchanges, patterns, self.steps, timed, trigger_s, optimizer_s)
        costs = (number for part in parts for number in (part.cost_s, part.encode_s))
        numbers = [step_s, trigger_s, optimizer_s, *costs]
        key = sent, *(np.asarray(number, dtype=np.float64).tobytes() for number in numbers)
        if key not in self._known:
            self._known[key] = priced_step(step_s, exchanges, patterns, self.steps, timed, trigger_s, optimizer_s)
        return self._known[key]


def cost_key(call: Call) -> Any:
    """Return the key of a call that determines its cost, at whatever step it is due."""
    sizes = (call.payload_bytes, call.encoded_bytes)
    return (
        call.collective,
        call.group,
        *(size.tobytes() if isinstance(size, np.ndarray) else size for size in sizes),
    )
