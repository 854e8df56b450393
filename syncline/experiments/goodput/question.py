"""What is asked of machines that fail, without a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from syncline.errors import SpecError, one_of
from syncline.fields import MANY
from syncline.specs.failures import CheckpointSpec, FailuresSpec, Recovery
from syncline.units import is_whole, parse_seconds

RECOVERIES: tuple[str, ...] = (*get_args(Recovery), "alone")
"""How a training goes on; ``alone``: workers at their own pace, each by itself."""


@dataclass(frozen=True)
class GoodputQuestion:
    """A training of steps that all take as long, on machines that fail; of several of something every combination.

    Args:
        failures: of which machines, and how the state is kept.
        workers: P.
        step_s: seconds of a step in which nothing fails.
        recoveries: how it goes on.
        intervals: seconds of work between checkpoints, ``best`` or ``never``.
        for_s: seconds of the clock that are played.
        steps: in their place: until so many steps are done.
        seeds: each with failures of its own.
        period: steps from one model to the next, of workers at their own pace, or from one exchange to the next of
            those who go on without the others.

    Raises:
        SpecError: what is wrong, where, and what would be accepted.
    """

    failures: FailuresSpec
    workers: Sequence[int]
    step_s: float
    recoveries: Sequence[str]
    intervals: Sequence[Any]
    for_s: float = 30 * 86400.0
    steps: int | None = None
    seeds: int = 1
    period: int = 1

    def __post_init__(self) -> None:
        for one in self.recoveries:
            if one not in RECOVERIES:
                raise SpecError("--recovery", one, one_of(RECOVERIES, one))
        counts = [("--steps", 1 if self.steps is None else self.steps, MANY), ("--seeds", self.seeds, MOST_SEEDS)]
        counts += [("--period", self.period, MANY), *(("--workers", count, MOST_WORKERS) for count in self.workers)]
        for name, count, most in counts:
            if not is_whole(count) or not 1 <= count <= most:
                raise SpecError(name, count, f"a whole number from 1 to {most:,}")
        for name, seconds in {"--step-time": self.step_s, "--for": self.for_s}.items():
            if not 0 < seconds < math.inf:
                raise SpecError(name, seconds, "a positive time")

    @property
    def work_s(self) -> float:
        """Seconds of steps in which nothing fails, at most."""
        return self.for_s if self.steps is None else self.steps * self.step_s

    def of(self, recovery: str, interval: Any) -> FailuresSpec:
        """The failures with one way to go on, and one interval."""
        one = self.failures.checkpoint.model_copy(update={"interval": interval})
        how = "restart" if recovery == "alone" else recovery
        return self.failures.model_copy(update={"checkpoint": one, "recovery": how})


MOST_SEEDS = 10_000

MOST_WORKERS = 10**7
"""Whose failures are drawn one by one."""


def interval_of(value: Any) -> Any:
    """Return an interval as a user writes it."""
    if isinstance(value, str) and value in ("best", "never"):
        return CheckpointSpec.model_validate({"interval": value}).interval
    return seconds(value)


def seconds(value: Any) -> float:
    """A positive time, for an interval.

    Raises:
        SpecError: none.
    """
    parsed = parse_seconds(value, "--interval")
    if not parsed:
        raise SpecError("--interval", value, "a positive time, best, or never")
    return parsed
