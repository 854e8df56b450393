"""What every step sends, priced once: methods in one layout ask for the same, and searches on networks much alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncline.costmodel import Exchange, StepTime
from syncline.costmodel.arrays import FloatOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern, calls_by_step
from syncline.costmodel.traffic.overlap import Bucket, PricedCall
from syncline.costmodel.traffic.step_time import priced_step


class EverySteps:
    """Steps with what is sent in all of them, remembered by what their calls take, whatever the network.

    Args:
        steps: T.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._sent: dict[Any, tuple[Sequence[Exchange], list[CallPattern], list[Call]]] = {}
        self._known: dict[Any, StepTime] = {}

    def priced(
        self,
        buckets: tuple[Bucket, ...],
        step_s: FloatOrArray,
        each: Sequence[Exchange],
        timed: Callable[[Call], list[PricedCall]],
    ) -> StepTime:
        """As `priced_step` says it.

        Args:
            buckets: in which gradients travel.
            step_s: that is computed in a step.
            each: what is sent.
            timed: prices a call; the same for calls that `told_apart_by` says are alike.
        """
        sent = buckets, *map(id, each)  # which are kept, so that nothing else gets their numbers
        if sent not in self._sent:
            patterns = calls_by_step(each, self.steps)
            calls = {told_apart_by(one): one for pattern in patterns for one in pattern.calls}
            self._sent[sent] = each, patterns, list(calls.values())
        _, patterns, different = self._sent[sent]
        parts = [one for call in different for one in timed(call)]
        if any(one.after_idling is not None for one in parts):
            return priced_step(step_s, each, patterns, self.steps, timed)
        numbers = [step_s, *(number for one in parts for number in (one.cost_s, one.encode_s))]
        key = sent, *(np.asarray(number, dtype=np.float64).tobytes() for number in numbers)
        if key not in self._known:
            self._known[key] = priced_step(step_s, each, patterns, self.steps, timed)
        return self._known[key]


def told_apart_by(call: Call) -> Any:
    """What decides what a call takes, whenever it is made."""
    sizes = (call.payload_bytes, call.encoded_bytes)
    return (
        call.collective,
        call.group,
        *(size.tobytes() if isinstance(size, np.ndarray) else size for size in sizes),
    )
