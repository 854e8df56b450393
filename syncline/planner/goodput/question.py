"""The inputs of ``syncline goodput``: failing machines, without a particular training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from syncline.errors import SpecError, one_of
from syncline.fields import MANY
from syncline.questions.declare import listed
from syncline.questions.goodput import Goodput
from syncline.specs.failures import (
    CHECKPOINT_OPTIONS,
    FAILURE_OPTIONS,
    CheckpointSpec,
    FailuresSpec,
    Recovery,
    failures_with,
    parse_failures,
)
from syncline.units import is_whole, parse_seconds

RECOVERIES: tuple[str, ...] = (*get_args(Recovery), "alone")
"""Ways in which a training continues; ``alone``: each worker continues by itself, at its own pace."""


@dataclass(frozen=True)
class GoodputQuestion:
    """A training with equally long steps on machines that fail, in every combination of the listed options.

    Args:
        failures: failure model of the machines and their checkpoints.
        workers: numbers of workers.
        step_s: seconds of a step in which nothing fails.
        recoveries: ways to continue after a failure.
        intervals: seconds of work between checkpoints, ``best`` or ``never``.
        for_s: simulated seconds of wall-clock time.
        steps: number of steps to simulate, in place of ``for_s``.
        seeds: number of simulations, each with its own failures.
        period: number of steps between models for workers at their own pace, or between exchanges for workers that
            continue without the others.

    Raises:
        SpecError: an option is invalid; the error names it and the accepted values.
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
        for recovery in self.recoveries:
            if recovery not in RECOVERIES:
                raise SpecError("--recovery", recovery, one_of(RECOVERIES, recovery))
        counts = [("--steps", 1 if self.steps is None else self.steps, MANY), ("--seeds", self.seeds, MOST_SEEDS)]
        counts += [("--period", self.period, MANY), *(("--workers", count, MOST_WORKERS) for count in self.workers)]
        for name, count, limit in counts:
            if not is_whole(count) or not 1 <= count <= limit:
                raise SpecError(name, count, f"a whole number from 1 to {limit:,}")
        for name, seconds in {"--step-time": self.step_s, "--for": self.for_s}.items():
            if not 0 < seconds < math.inf:
                raise SpecError(name, seconds, "a positive time")

    @property
    def work_s(self) -> float:
        """Return an upper limit on the seconds of the training's steps without failures."""
        return self.for_s if self.steps is None else self.steps * self.step_s

    def with_recovery(self, recovery: str, interval: Any) -> FailuresSpec:
        """Return the failures with a particular recovery and checkpoint interval."""
        checkpoint = self.failures.checkpoint.model_copy(update={"interval": interval})
        spec_recovery = "restart" if recovery == "alone" else recovery
        return self.failures.model_copy(update={"checkpoint": checkpoint, "recovery": spec_recovery})


def goodput_question(question: Goodput) -> GoodputQuestion:
    """Return the question with every default and unit resolved.

    Raises:
        SpecError: a value is invalid; the error names the field and the accepted values.
    """
    failures = parse_failures(question.failures)
    options = {name: getattr(question, name) for name in (*FAILURE_OPTIONS, *CHECKPOINT_OPTIONS) if name != "recovery"}
    options = {name: value for name, value in options.items() if value is not None}
    fields = dict(question.fields or {})
    for name in options:
        if (field := FAILURE_OPTIONS.get(name)) in fields:
            raise SpecError(name, options[name], f"none beside {field}, which sets it, too")
    if options or fields:
        failures = failures_with(failures, options | fields)
    recovery, interval = question.recovery, question.interval
    return GoodputQuestion(
        failures,
        listed(question.workers),
        parse_seconds(question.step_time, "--step-time"),
        [failures.recovery] if recovery is None else listed(recovery),
        [failures.checkpoint.interval] if interval is None else [interval_of(value) for value in listed(interval)],
        parse_seconds(question.duration, "--duration"),
        question.steps,
        question.seeds,
        question.period,
    )


MOST_SEEDS = 10_000
"""Limit on the number of simulations."""

MOST_WORKERS = 10**7
"""Limit on the number of workers, because failures are drawn for each worker."""


def interval_of(value: Any) -> Any:
    """Return a checkpoint interval, from ``best``, ``never`` or a time as a user writes it."""
    if isinstance(value, str) and value in ("best", "never"):
        return CheckpointSpec.model_validate({"interval": value}).interval
    return seconds(value)


def seconds(value: Any) -> float:
    """Return an interval as a positive number of seconds.

    Raises:
        SpecError: the value is not a positive time.
    """
    parsed = parse_seconds(value, "--interval")
    if not parsed:
        raise SpecError("--interval", value, "a positive time, best, or never")
    return parsed
