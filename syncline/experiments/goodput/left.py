"""A training that is planned, as failures know it, and what they leave of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from syncline.methods import MethodBase, Tensors, tensors_of
from syncline.methods.base import FP32_BYTES, elements
from syncline.specs.failures import Recovery


class FailingTraining(NamedTuple):
    """What failures need to know of a training.

    Attributes:
        workers: P.
        copies: of the whole model, each on as many workers, none of which needs another to go on; 1: all need all.
        exchanges_every: steps from one exchange between copies to the next.
        state_bytes: of a checkpoint.
        step_s: of a step in which nothing fails.
        steps: T.
    """

    workers: int
    copies: int
    exchanges_every: int
    state_bytes: float
    step_s: float
    steps: float


class KeptState(NamedTuple):
    """What a checkpoint has, and how long replicas go without each other.

    Attributes:
        nbytes: of all replicas.
        exchanges_every: steps from one exchange to the next.
    """

    nbytes: float
    exchanges_every: int


def kept_state(method: MethodBase, model: Tensors, replicas: int) -> KeptState:
    """The parameters and all that a method keeps, in fp32, of every replica whose state is its own.

    Args:
        method: between replicas.
        model: the parameters' shapes, or their number.
        replicas: M.
    """
    tensors = tensors_of(model)
    every = min((one.period for one in method.exchanges(tensors, replicas)), default=1) if replicas > 1 else 1
    kept, owed = method.kept_elements(tensors, replicas), method.error_feedback_elements(tensors, replicas)
    numbers = elements(tensors) + float(kept)
    own = replicas * numbers if every > 1 else numbers + (replicas - 1) * owed
    return KeptState(FP32_BYTES * own, every)


@dataclass(frozen=True)
class WhatIsLeft:
    """Of a training on machines that fail.

    Args:
        recovery: how it goes on.
        interval_s: of work between checkpoints; none: it saves its end alone.
        goodput: part of the workers' time that is in steps that count.
        stuck: why there is no progress; none if there is.
    """

    recovery: Recovery
    interval_s: float | None
    goodput: float
    stuck: str | None = None

    def fields(self) -> dict[str, Any]:
        """Of a row."""
        return {"recovery": self.recovery, "checkpoint_interval_s": self.interval_s, "goodput": self.goodput}


BoundedSeconds = tuple[float, float | None, float | None]
"""A time, and between what it is."""


def with_failures(seconds: BoundedSeconds | None, left: WhatIsLeft | None) -> BoundedSeconds | None:
    """A time and its bounds, with what failures cost; none without progress."""
    if seconds is None or left is None:
        return seconds
    if not left.goodput:
        return None
    time_s, low_s, high_s = seconds
    low, high = (None if one is None else one / left.goodput for one in (low_s, high_s))
    return time_s / left.goodput, low, high
