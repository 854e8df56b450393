"""Seconds of a record's segments: computed for hardware from their operations, or as the recording measured them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.costmodel import Hardware
from syncline.errors import SpecError
from syncline.measure.recording.record import Operations, RankRecord
from syncline.specs import hardware

MEASURED = "measured"
"""The word in the place of a hardware's name; ``measured:0.5`` halves the seconds."""


@dataclass(frozen=True)
class MeasuredComputing:
    """The measured seconds of the recording, in the place of hardware.

    Args:
        scale: positive factor on the measured seconds.

    Raises:
        SpecError: a scale out of range.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise SpecError("--hardware", f"{MEASURED}:{self.scale}", "a positive factor behind 'measured:'")

    @property
    def name(self) -> str:
        """Return the name in the form that a user writes."""
        return MEASURED if self.scale == 1 else f"{MEASURED}:{self.scale:g}"


def computing_on(machine: Any, path: str) -> Hardware | MeasuredComputing:
    """Return the hardware that a user names: ``measured``, ``measured:SCALE``, or a hardware.

    Raises:
        SpecError: names the option that cannot be used.
    """
    name, _, scale = machine.partition(":") if isinstance(machine, str) else ("", "", "")
    if name != MEASURED:
        return hardware(machine, path)
    try:
        return MeasuredComputing(float(scale) if scale else 1.0)
    except ValueError:
        raise SpecError(path, machine, "'measured', or 'measured:' and a factor") from None


def operations_s(operations: Operations, on: Hardware) -> float:
    """Return the seconds of operations that run one after another, each bounded by arithmetic or by memory.

        sum of max(FLOPs / (peak x mfu), bytes / bandwidth)

    Source: S. Williams et al., "Roofline" (2009).
    """
    rate = on.peak_flops * on.mfu
    memory = on.memory_bytes_per_s or np.inf
    return float(sum(max(flops / rate, nbytes / memory) for flops, nbytes in operations))


def segment_seconds(record: RankRecord, on: Hardware | MeasuredComputing) -> Sequence[float]:
    """Return the seconds of each segment of a rank.

    Raises:
        SpecError: the record has no measured seconds, or no counted operations.
    """
    if isinstance(on, Hardware):
        if record.segments and not any(flops or nbytes for segment in record.segments for flops, nbytes in segment):
            raise SpecError("--hardware", on.name, "'measured': the record has seconds and no operations")
        return [operations_s(segment, on) for segment in record.segments]
    if len(record.segment_cpu_s) != len(record.segments):
        raise SpecError("--hardware", on.name, "a hardware: nothing was measured of this record")
    return [on.scale * segment for segment in record.segment_cpu_s]
