"""Spec of a training's checkpoints: their interval, their cost, their mode."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import model_validator

from syncline.errors import SpecError
from syncline.fields import Seconds, Spec, parsed, refusal
from syncline.specs.clock import BandwidthField, BytesField
from syncline.units import parse_seconds


def _interval(value: Any, path: str) -> Any:
    return value if value in ("best", "never") else parse_seconds(value, path)


IntervalField = Annotated[Literal["best", "never"] | float, parsed(_interval)]
"""Seconds of work between checkpoints; or ``best``, or ``never``."""


class CheckpointSpec(Spec):
    """Checkpoints of a training's state: their interval, their cost, their mode.

    A checkpoint takes ``write_time``, or its ``size`` over the ``bandwidth`` of all writing workers together. If a
    training has no ``size``, the size is that of its parameters and of all states of its method. ``mode`` is
    ``blocking``: the training stops while the checkpoint is written; ``asynchronous``: the training stops only while
    the state is copied (``snapshot_time``), the checkpoint is then written during the next steps, and can be restored
    once it is complete; ``peer``: like ``asynchronous``, but into the memory of the worker half-way round, and the
    checkpoint is lost if both workers fail. ``restore_time``: the time to read it; by default the time to write it.
    """

    interval: IntervalField = "best"
    write_time: Seconds | None = None
    size: BytesField | None = None
    bandwidth: BandwidthField | None = None
    mode: Literal["blocking", "asynchronous", "peer"] = "blocking"
    snapshot_time: Seconds = 0.0
    restore_time: Seconds | None = None

    @model_validator(mode="after")
    def _one_cost(self) -> CheckpointSpec:
        if self.write_time is not None and (self.size is not None or self.bandwidth is not None):
            raise refusal("write_time", self.write_time, "nothing beside size and bandwidth, which say it, too")
        if self.size is not None and self.bandwidth is None:
            raise refusal("bandwidth", None, "a rate, beside the size that is written at it")
        if isinstance(self.interval, float) and not 0 < self.interval < math.inf:
            raise refusal("interval", self.interval, "a positive time, best, or never")
        if self.snapshot_time and self.mode == "blocking":
            raise refusal(
                "snapshot_time", self.snapshot_time, "none where checkpoints are blocking; or mode: asynchronous"
            )
        return self

    def write_s(self, nbytes: float | None) -> float:
        """Return the seconds to write a checkpoint; ``nbytes`` is the size of the training's own state."""
        size = self.size if self.size is not None else nbytes
        if self.bandwidth is None:
            return self.write_time or 0.0
        if size is None:
            raise SpecError("failures.checkpoint.size", None, "a size beside the bandwidth, or write_time")
        return size / self.bandwidth

    def load_s(self, nbytes: float | None) -> float:
        """Return the seconds to read a checkpoint."""
        return self.write_s(nbytes) if self.restore_time is None else self.restore_time

    def blocking_s(self, nbytes: float | None) -> float:
        """Return the seconds for which a checkpoint stops the training."""
        return self.write_s(nbytes) if self.mode == "blocking" else self.snapshot_time
