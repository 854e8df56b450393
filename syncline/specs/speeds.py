"""Speeds of workers that differ: numbers, or the machines that they are."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainSerializer

from syncline.costmodel import Hardware
from syncline.errors import SpecError
from syncline.fields import parsed
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.compute import ComputeSpec

SLOWEST, FASTEST = 1e-6, 1e6
"""Speeds of workers, next to that of ``compute``: as the factors of slow workers."""


def _speed(value: Any, path: str) -> float | Hardware:
    """A number, or the machine that a worker is."""
    if not isinstance(value, int | float):
        return hardware(value, path)
    if not SLOWEST <= value <= FASTEST:
        raise SpecError(path, value, f"a speed from {SLOWEST:g} to {FASTEST:g}, or hardware")
    return float(value)


def _speed_field(value: float | Hardware) -> Any:
    return value if isinstance(value, float) else hardware_fields(value)


Speed = Annotated[Any, parsed(_speed), PlainSerializer(_speed_field)]
"""Of a worker: a number, or hardware as ``compute.hardware`` takes it."""


def relative_speeds(speeds: tuple[float | Hardware, ...], compute: ComputeSpec) -> tuple[float, ...]:
    """Of each worker, to what ``compute`` says: its number, or its machine's rate over that of compute's.

    Where compute gives seconds it is the rate of the first machine that is named.
    """
    named = [one for one in speeds if isinstance(one, Hardware)]
    given = compute.seconds is not None or compute.table is not None or compute.measure
    of = named[0] if named and given else compute.machine
    mfu = compute.mfu or of.mfu
    return tuple(
        one.peak_flops * one.mfu / (of.peak_flops * mfu) if isinstance(one, Hardware) else one for one in speeds
    )
