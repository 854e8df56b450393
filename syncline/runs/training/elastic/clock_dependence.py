"""Tests for trainings that depend on the clock."""

from __future__ import annotations

from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.specs import MethodBase, Training


def reforms(spec: Training, method: MethodBase) -> bool:
    """Return whether the group of a method re-forms when machines fail, so that its training depends on the clock."""
    failures = spec.failures
    return failures is not None and failures.recovery == "elastic" and asynchronous_of(method) is None


def goes_by_clock(spec: Training, method: MethodBase) -> bool:
    """Return whether a method's training depends on the network, because events decide which workers take part."""
    return asynchronous_of(method) is not None or reforms(spec, method)
