"""Spec field of workers' speeds, as numbers or as hardware."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainSerializer

from syncline.costmodel import Hardware
from syncline.errors import SpecError
from syncline.fields import parsed
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.compute import ComputeSpec

SLOWEST, FASTEST = 1e-6, 1e6
"""Bounds of a worker's speed relative to ``compute``, the same as for factors of slow workers."""


def _speed(value: Any, path: str) -> float | Hardware:
    """Return a worker's speed as a number, or its hardware."""
    if not isinstance(value, int | float):
        return hardware(value, path)
    if not SLOWEST <= value <= FASTEST:
        raise SpecError(path, value, f"a speed from {SLOWEST:g} to {FASTEST:g}, or hardware")
    return float(value)


Speed = Annotated[
    Any, parsed(_speed), PlainSerializer(lambda value: value if isinstance(value, float) else hardware_fields(value))
]
"""The speed of a worker: a number, or hardware as for ``compute.hardware``."""


def relative_speeds(speeds: tuple[float | Hardware, ...], compute: ComputeSpec) -> tuple[float, ...]:
    """Return each worker's speed relative to ``compute``: its number, or its machine's rate over the reference rate.

    The reference is the machine of ``compute``; if ``compute`` sets seconds, it is the first machine in ``speeds``.
    """
    machines = [speed for speed in speeds if isinstance(speed, Hardware)]
    has_seconds = compute.seconds is not None or compute.batch_times is not None or compute.measure
    reference = machines[0] if machines and has_seconds else compute.machine
    mfu = compute.mfu or reference.mfu
    return tuple(
        speed.peak_flops * speed.mfu / (reference.peak_flops * mfu) if isinstance(speed, Hardware) else speed
        for speed in speeds
    )
