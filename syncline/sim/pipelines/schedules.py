"""Pipeline schedules: the order in which each stage runs its forwards, backwards and weight gradients.

A schedule is data: a list of tasks per stage. It does not contain the durations of tasks or the arrivals of inputs.
Stages count from 0 to K - 1. With v chunks, stage k holds the parts k, K + k, 2 K + k, ... of the model, so
micro-batches pass all stages v times.

`syncline.sim.pipelines.orders` defines a schedule, and stores its tasks as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from syncline.errors import SpecError
from syncline.registry import Registry, call_from_fields, error_text, name_of_call
from syncline.sim.pipelines.orders import (
    TASK_KINDS,
    Kind,
    Order,
    Orders,
    PipelineTask,
    Schedule,
    ScheduleKind,
    TaskNumbering,
    alternating,
    repeated,
    source_stage,
    target_stage,
    usual_limits,
)

__all__ = [
    "SCHEDULES", "TASK_KINDS", "CalledSchedule", "Kind", "Order", "Orders", "PipelineTask", "Schedule", "ScheduleKind",
    "TaskNumbering", "repeated", "schedule", "schedule_kind", "source_stage", "target_stage",
]  # fmt: skip


def gpipe(stages: int, microbatches: int) -> Schedule:
    """Return the schedule of all forwards, then all backwards, in the same order of micro-batches.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3.
    """
    tasks = TaskNumbering(microbatches)
    order = np.concatenate([tasks.of_kind("forward"), tasks.of_kind("backward")])
    return Schedule("gpipe", Orders(np.broadcast_to(order, (stages, len(order))), tasks), microbatches)


def one_f_one_b(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Return the schedule 1F1B: some forwards, then a forward and a backward in turn, then the remaining backwards.

    A stage with the limit n begins with n - 1 forwards, so at most n micro-batches are in flight. The limit of stage k
    of K is K - k, unless ``max_in_flight`` has the limit of each stage.

    Source: D. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (2021), PipeDream-Flush.

    >>> [f"{task.kind[0]}{task.microbatch}" for task in one_f_one_b(2, 3).orders[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    tasks = TaskNumbering(microbatches)
    forwards, backwards = tasks.of_kind("forward"), tasks.of_kind("backward")
    limits = usual_limits(stages) if max_in_flight is None else max_in_flight
    orders = [alternating(forwards, backwards, ahead=limit - 1) for limit in limits]
    return Schedule("1f1b", Orders(np.stack(orders), tasks), microbatches)


def async_one_f_one_b(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Return 1F1B without a flush: each stage updates its weights after each backward, and goes on at once.

    Source: D. Narayanan et al., "PipeDream" (2019), section 3.2.
    """
    return one_f_one_b(stages, microbatches, max_in_flight)._replace(name="async-1f1b", updates="every")


def interleaved(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Return 1F1B over K v virtual stages: K stages with v chunks, which groups of K micro-batches pass together.

    Stage k is 2 (K - 1 - k) + (v - 1) K forwards ahead of its backwards.

    Raises:
        SpecError: a number of micro-batches that K does not divide.

    Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
    (2021), section 2.2.2.
    """
    if microbatches % stages:
        raise SpecError("microbatches", microbatches, f"a multiple of the {stages} stages, as interleaving needs")
    tasks = TaskNumbering(microbatches, chunks)
    # Groups of K micro-batches pass all chunks before the next group comes: rows of (groups, K) per chunk.
    forward_groups = [tasks.of_kind("forward", chunk).reshape(-1, stages) for chunk in range(chunks)]
    backward_groups = [tasks.of_kind("backward", chunk).reshape(-1, stages) for chunk in reversed(range(chunks))]
    forwards, backwards = np.stack(forward_groups, axis=1).ravel(), np.stack(backward_groups, axis=1).ravel()
    orders = []
    for stage in range(stages):
        num_ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        if microbatches == stages:  # a single group: all forwards come first, as in Megatron-LM
            num_ahead = len(forwards)
        orders.append(alternating(forwards, backwards, ahead=num_ahead))
    return Schedule("interleaved", Orders(np.stack(orders), tasks), microbatches, chunks)


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """Return 1F1B with a split backward: the weight gradients of stage k run k backwards later, in the bubble.

    No stage has more micro-batches in flight than the first stage of 1F1B.

    Source: P. Qi, X. Wan, G. Huang, M. Lin, "Zero Bubble Pipeline Parallelism" (2023), section 2.2 (ZB-H1).
    """
    tasks, orders = TaskNumbering(microbatches), []
    weights, first_backward = tasks.of_kind("weight"), tasks.of_kind("backward")[0]
    orders_1f1b = Orders.from_lists(one_f_one_b(stages, microbatches).orders, tasks)
    for stage, order in enumerate(orders_1f1b.numbers):
        # A weight gradient follows each backward but the first ``stage`` ones. Backwards have the largest numbers.
        backward_positions = np.flatnonzero(order >= first_backward + stage)
        num_inserted = len(backward_positions)
        order_with_weights = np.insert(order, backward_positions + 1, weights[:num_inserted])
        orders.append(np.concatenate([order_with_weights, weights[num_inserted:]]))
    return Schedule("zb-h1", Orders(np.stack(orders), tasks), microbatches, splits_backward=True)


def greedy(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Return the schedule in which each stage runs a backward if its input is there, else a forward within its limit.

    At most K - k micro-batches are in flight at stage k of K, unless ``max_in_flight`` has other limits. Each backward
    is followed by an update, as in `async_one_f_one_b`. If stages are equally fast and links take no time, the order is
    the same.
    """
    limits = tuple(usual_limits(stages) if max_in_flight is None else max_in_flight)
    return Schedule("greedy", orders=[], microbatches=microbatches, updates="every", limits=limits)


SCHEDULES: Registry[ScheduleKind] = Registry(
    "schedules", "syncline.schedules", {
        "gpipe": ScheduleKind(gpipe),
        "1f1b": ScheduleKind(one_f_one_b, takes_limits=True),
        "interleaved": ScheduleKind(interleaved, takes_chunks=True),
        "zb-h1": ScheduleKind(zb_h1),
        "async-1f1b": ScheduleKind(async_one_f_one_b, takes_limits=True),
        "greedy": ScheduleKind(greedy, takes_limits=True, fixed_order=False),
    },
)  # fmt: skip
"""All schedules by their names in a spec."""


class CalledSchedule(str):
    """The name of a schedule kind that a user's Python function returns; the attribute ``kind`` has the kind itself.

    Args:
        fields: ``{kind: python, target: module:name, ...}``: the target is called with the other keys.
        path: path of these fields, for the error line.

    Raises:
        SpecError: as `call_from_fields`; or the target returns neither a `ScheduleKind` nor a function.
    """

    kind: ScheduleKind
    fields: dict[str, Any]

    def __new__(cls, fields: Mapping[str, Any], path: str = "schedule") -> CalledSchedule:
        """Call the target of the fields, which returns a kind of schedule or a function that builds schedules."""
        self = super().__new__(cls, name_of_call(fields))
        self.fields = dict(fields)
        self.kind = _kind_of(call_from_fields(fields, path), str(self), f"{path}.target" if path else "target")
        return self

    def __reduce__(self) -> tuple[type[CalledSchedule], tuple[dict[str, Any]]]:
        return CalledSchedule, (self.fields,)


def schedule_kind(name: str) -> ScheduleKind:
    """Return the kind of schedule with a name: a key of ``SCHEDULES``, or ``module:name`` of a user's function.

    Raises:
        SpecError: nothing has this name, or the object of this name is no schedule.
    """
    if isinstance(name, CalledSchedule):
        return name.kind
    return _kind_of(SCHEDULES.get(name, path="schedule"), name, path="schedule")


def _kind_of(candidate: Any, name: str, path: str) -> ScheduleKind:
    """Return the `ScheduleKind` that a user named; a function becomes the builder of a new kind.

    ``name`` and ``path`` (the field) are for the error line.
    """
    if isinstance(candidate, ScheduleKind):
        return candidate
    if not callable(candidate):
        raise SpecError(path, name, "a function of stages and micro-batches that returns a Schedule")
    return ScheduleKind(candidate)


def schedule(
    name: str, stages: int, microbatches: int, chunks: int = 1, max_in_flight: int | Sequence[int] | None = None
) -> Schedule:
    """Return the schedule with this name for a number of stages and micro-batches.

    Args:
        name: name of the schedule, one of ``SCHEDULES``, or ``module:name``.
        stages: K, at least 1.
        microbatches: M, at least 1.
        chunks: v, parts of the model per stage: at least 2 for a schedule that takes chunks, and 1 for all others.
        max_in_flight: for schedules that take limits, the largest number of micro-batches between forward and backward
            at a stage: one per stage, or one for all (in a fixed order at most the usual limit); by default K - k at
            stage k from 0.
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
        arguments = [microbatches, chunks] if kind.takes_chunks else [microbatches]
        return _build(kind, name, stages, *arguments)
    if not kind.takes_limits:
        expected = f"nothing with {name}; a limit is for {', '.join(limited_schedules())}"
        raise SpecError("max_in_flight", max_in_flight, expected)
    return kind.build(stages, microbatches, _limits(max_in_flight, stages, microbatches, kind.fixed_order))


def limited_schedules() -> tuple[str, ...]:
    """Return the names of the schedules that accept ``max_in_flight``, a limit on micro-batches in flight."""
    return tuple(name for name in SCHEDULES if schedule_kind(name).takes_limits)


def _build(kind: ScheduleKind, name: str, stages: int, *arguments: int) -> Schedule:
    """Build a schedule by the function of its kind, perhaps a user's, and check the result's type and stages."""
    try:
        result: object = kind.build(stages, *arguments)
    except SpecError:
        raise
    except Exception as error:  # any error of a user's function becomes an error of the schedule
        expected = f"a function of stages and micro-batches that returns a Schedule; it says: {error_text(error)}"
        raise SpecError("schedule", name, expected) from error
    if not isinstance(result, Schedule):
        raise SpecError("schedule", name, f"a function that returns a Schedule; it returned {type(result).__name__}")
    orders_or_limits = result.orders or result.limits  # limits, if the order depends on timing
    if len(orders_or_limits) != stages:
        raise SpecError("schedule", name, f"an order for each of the {stages} stages; it has {len(orders_or_limits)}")
    return result


def _limits(max_in_flight: int | Sequence[int], stages: int, microbatches: int, fixed_order: bool) -> tuple[int, ...]:
    """Return the in-flight limit of each stage; refuse limits with which a stage would wait for ever."""
    if isinstance(max_in_flight, Sequence):
        limits = tuple(max_in_flight)
    elif fixed_order:  # a limit above the usual one would change nothing but memory
        limits = tuple(min(max_in_flight, usual_limit) for usual_limit in usual_limits(stages))
    else:
        limits = (max_in_flight,) * stages
    if len(limits) != stages:
        raise SpecError("max_in_flight", max_in_flight, f"one limit, or one for each of the {stages} stages")
    for number, limit in enumerate(limits, 1):
        if limit < 1:
            raise SpecError("max_in_flight", limit, f"at least 1: stage {number} never runs forward 1 otherwise")
    if not fixed_order:
        return limits
    # In a fixed order a stage makes all forwards up to its limit before its first backward.
    for stage in range(1, stages):
        previous, limit = min(limits[stage - 1], microbatches), min(limits[stage], microbatches)
        if limit > previous:
            reason = f"before its backward 1 it waits for forward {previous + 1} of stage {stage}, which with the limit"
            expected = f"at most {previous} at stage {stage + 1}: {reason} {previous} waits for that backward first"
            raise SpecError("max_in_flight", limit, expected)
    return limits
