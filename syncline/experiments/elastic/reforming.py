"""Whose training depends on the clock."""

from __future__ import annotations

from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.specs import MethodBase, Training


def reforms(spec: Training, method: MethodBase) -> bool:
    """Whether the group of a method forms anew when machines fail, so that its training depends on the clock."""
    failures = spec.failures
    return failures is not None and failures.recovery == "reform" and asynchronous_of(method) is None


def goes_by_clock(spec: Training, method: MethodBase) -> bool:
    """Whether a method's training depends on the network: events decide who takes part in what."""
    return asynchronous_of(method) is not None or reforms(spec, method)
