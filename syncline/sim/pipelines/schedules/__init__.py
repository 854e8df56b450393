"""Pipeline schedules: the order in which each stage runs its forwards, backwards and weight gradients.

A schedule is data: a list of tasks per stage. It does not contain the durations of tasks or the arrivals of inputs.
Stages count from 0 to K - 1. With v chunks, stage k holds the parts k, K + k, 2 K + k, ... of the model, so
micro-batches pass all stages v times.

``base`` defines a schedule, ``orders`` stores its tasks as numbers, and ``kinds`` has the built-in schedules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncline.errors import SpecError
from syncline.registry import Registry, call_from_fields, error_text, name_of_call
from syncline.sim.pipelines.orders import (
    TASK_KINDS,
    Kind,
    Numbering,
    Order,
    Orders,
    PipelineTask,
    Schedule,
    ScheduleKind,
    repeated,
    source_stage,
    target_stage,
    usual_limits,
)
from syncline.sim.pipelines.schedules.kinds import KINDS

__all__ = [
    "SCHEDULES",
    "TASK_KINDS",
    "CalledSchedule",
    "Kind",
    "Numbering",
    "Order",
    "Orders",
    "PipelineTask",
    "Schedule",
    "ScheduleKind",
    "repeated",
    "schedule",
    "schedule_kind",
    "source_stage",
    "target_stage",
]

SCHEDULES: Registry[ScheduleKind] = Registry("schedules", "syncline.schedules", KINDS)
"""All schedules by their names in a spec."""


class CalledSchedule(str):
    """The name of a schedule that a Python call returned, with the schedule itself.

    Args:
        fields: ``{kind: python, target: module:name, ...}``: the target is called with the other keys.
        path: path of these fields, for the error line.

    Raises:
        SpecError: as `call_from_fields`; or the target returns no schedule.
    """

    kind: ScheduleKind
    fields: dict[str, Any]

    def __new__(cls, fields: Mapping[str, Any], path: str = "schedule") -> CalledSchedule:
        """Call the target and store its schedule."""
        self = super().__new__(cls, name_of_call(fields))
        self.fields = dict(fields)
        self.kind = _kind_of(call_from_fields(fields, path), str(self), f"{path}.target" if path else "target")
        return self

    def __reduce__(self) -> tuple[type[CalledSchedule], tuple[dict[str, Any]]]:
        return CalledSchedule, (self.fields,)


def schedule_kind(name: str, path: str = "schedule") -> ScheduleKind:
    """Return the kind of schedule of this name: one of ``SCHEDULES``, or ``module:name`` of a kind or its builder.

    Raises:
        SpecError: nothing has this name, or the object of this name is no schedule.
    """
    return name.kind if isinstance(name, CalledSchedule) else _kind_of(SCHEDULES.get(name, path), name, path)


def _kind_of(candidate: Any, name: str, path: str) -> ScheduleKind:
    """Return an object that a user named as a kind of schedule; a function becomes the builder of one."""
    if isinstance(candidate, ScheduleKind):
        return candidate
    if not callable(candidate):
        raise SpecError(path, name, "a function of stages and micro-batches that returns a Schedule")
    return ScheduleKind(candidate)


def schedule(
    name: str, stages: int, microbatches: int, chunks: int = 1, max_in_flight: int | Sequence[int] | None = None
) -> Schedule:
    """Return the schedule of this name for these stages and micro-batches.

    Args:
        name: name of the schedule, one of ``SCHEDULES``, or ``module:name``.
        stages: K, at least 1.
        microbatches: M, at least 1.
        chunks: v, parts of the model per stage: at least 2 for a schedule that takes chunks, and 1 for all others.
        max_in_flight: for schedules that take limits, the largest number of micro-batches between forward and backward
            at a stage: one per stage, or one for all (in a fixed order at most the usual limit); by default K - k at
            stage k from 0.

    Raises:
        SpecError: an argument that cannot be used.
    """
    kind = schedule_kind(name)
    for field, count in (("stages", stages), ("microbatches", microbatches)):
        if count < 1:
            raise SpecError(field, count, "at least 1")
    if kind.takes_chunks:
        if chunks < 2:
            raise SpecError("chunks", chunks, f"at least 2 for the {name} schedule; with 1 it is 1f1b")
    elif chunks != 1:
        raise SpecError("chunks", chunks, f"1, as {name} does not interleave; the interleaved schedule does")
    if max_in_flight is None:
        return _build(kind, name, stages, microbatches, *([chunks] if kind.takes_chunks else []))
    if not kind.takes_limits:
        expected = f"nothing with {name}; a limit is for {', '.join(limited_schedules())}"
        raise SpecError("max_in_flight", max_in_flight, expected)
    return kind.build(stages, microbatches, _limits(max_in_flight, stages, microbatches, kind.fixed_order))


def limited_schedules() -> tuple[str, ...]:
    """Return the names of the schedules that take an in-flight limit."""
    return tuple(name for name in SCHEDULES if schedule_kind(name).takes_limits)


def _build(kind: ScheduleKind, name: str, stages: int, *arguments: int) -> Schedule:
    """Return the schedule that a kind builds, which may be a user's function, after a check of its type and stages."""
    try:
        result: object = kind.build(stages, *arguments)
    except SpecError:
        raise
    except Exception as error:  # any error of a user's function becomes an error of the schedule
        expected = f"a function of stages and micro-batches that returns a Schedule; it says: {error_text(error)}"
        raise SpecError("schedule", name, expected) from error
    if not isinstance(result, Schedule):
        raise SpecError("schedule", name, f"a function that returns a Schedule; it returned {type(result).__name__}")
    if len(result.orders or result.limits) != stages:
        raise SpecError("schedule", name, f"an order for each of the {stages} stages; it has {len(result.orders)}")
    return result


def _limits(max_in_flight: int | Sequence[int], stages: int, microbatches: int, fixed_order: bool) -> tuple[int, ...]:
    """Return the checked in-flight limit of each stage: with a limit that is too small a stage would wait for ever."""
    if isinstance(max_in_flight, Sequence):
        limits = tuple(max_in_flight)
    else:  # a fixed order gains nothing from a limit above the usual one
        limits = tuple(min(max_in_flight, usual) if fixed_order else max_in_flight for usual in usual_limits(stages))
    if len(limits) != stages:
        raise SpecError("max_in_flight", max_in_flight, f"one limit, or one for each of the {stages} stages")
    for stage, limit in enumerate(limits):
        if limit < 1:
            raise SpecError("max_in_flight", limit, f"at least 1: stage {stage + 1} never runs forward 1 otherwise")
    for stage in range(1, stages if fixed_order else 0):
        previous, limit = (min(stage_limit, microbatches) for stage_limit in limits[stage - 1 : stage + 1])
        if limit > previous:
            reason = f"before its backward 1 it waits for forward {previous + 1} of stage {stage}, which with the limit"
            expected = f"at most {previous} at stage {stage + 1}: {reason} {previous} waits for that backward first"
            raise SpecError("max_in_flight", limit, expected)
    return limits
