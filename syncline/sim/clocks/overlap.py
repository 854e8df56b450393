"""Data-parallel training whose communication overlaps with computing, as programs and as recurrences.

A step of a worker, in which parts that take no time are left out:

1. compute, and meanwhile start the calls that are ready before the end of the computing;
2. decide whether to send (the trigger);
3. wait for the calls that were started in part 1;
4. start the calls that are ready at the end, each after the end of the call before;
5. wait for calls of earlier steps that this step needs;
6. update the weights.

Encoding is computing, directly before the encoded call starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.table import default_algorithm, knows_library
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.costmodel.traffic.call import Call, CallsByStep, group_ranks
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, is_awaited_in_step, split_call, way_points
from syncline.errors import SpecError
from syncline.sim.lockstep.maps import GroupedMaps, Spans, timeline_of
from syncline.sim.lockstep.recurrences import Rule
from syncline.sim.program.instructions import (
    Collective,
    Compute,
    Instruction,
    Wait,
    check_seconds,
    compute_times,
    start_times,
)
from syncline.sim.program.timeline import Timeline

Members: TypeAlias = frozenset[int] | None
"""Some of the workers; all if None."""

T = TypeVar("T")


def overlapped(calls: Iterable[Call], overlap: str, buckets: Sequence[Bucket] = WHOLE) -> list[Call]:
    """Split calls as the overlap sends them: gradients in buckets, or every call awaited a step later.

    Args:
        calls: the collectives of the training.
        overlap: ``none``, ``ddp`` or ``async``.
        buckets: buckets of a gradient, see `syncline.costmodel.traffic.overlap.gradient_buckets`.

    Raises:
        SpecError: an unknown overlap.
    """
    return [part for call in calls for part in split_call(call, overlap, buckets)]


@dataclass(frozen=True, eq=False)
class StepTimes:
    """The seconds of a training's steps besides communication, and the speed of encoding.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``.
        trigger_s: seconds of each step in which a worker decides whether to send, ``(T,)``.
        optimizer_s: seconds of each worker's update in each step, ``(P,)``.
        encode_bytes_per_s: fp32 bytes that a worker encodes and decodes per second; None if encoding takes no time.
    """

    compute_s: Floats
    trigger_s: Floats
    optimizer_s: Floats
    encode_bytes_per_s: float | None = None

    @classmethod
    def checked(
        cls,
        compute_s: ArrayLike,
        trigger_s: ArrayLike = 0.0,
        optimizer_s: ArrayLike = 0.0,
        encode_bytes_per_s: float | None = None,
    ) -> StepTimes:
        """Return the checked times; one trigger time stands for all steps, one optimizer time for all workers.

        Raises:
            SpecError: times of another shape, or a time that is negative or not finite.
        """
        times = compute_times(compute_s)
        steps, workers = times.shape
        return cls(times, trigger_times(trigger_s, steps), optimizer_times(optimizer_s, workers), encode_bytes_per_s)

    def encoding_s(self, call: Call) -> float:
        """Return the seconds in which a worker encodes and decodes a call."""
        return call.encoded_bytes / self.encode_bytes_per_s if self.encode_bytes_per_s else 0.0


def data_parallel(compute_s: ArrayLike | StepTimes, calls: Iterable[Call]) -> list[list[Instruction]]:
    """Return the programs of data-parallel training, one per worker.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``, or all times of the steps.
        calls: the collectives of the training.
    """
    times = compute_s if isinstance(compute_s, StepTimes) else StepTimes.checked(compute_s)
    steps, workers = times.compute_s.shape
    programs: list[list[Instruction]] = [[] for _ in range(workers)]
    calls_by_step, later_waits = CallsByStep(calls, steps), dict[int, list[tuple[Members, Instruction]]]()
    triggers_s, optimizers_s = times.trigger_s.tolist(), times.optimizer_s.tolist()
    for step, step_compute_s in enumerate(times.compute_s.tolist()):
        keyed_calls = [((step, number), call) for number, call in enumerate(calls_by_step[step])]
        started_calls: list[tuple[tuple[int, int], Call]] = []
        plan: list[tuple[Members, Instruction | float]] = []  # with workers; a number is a fraction of the computing
        fraction_done = 0.0
        for fraction, waits, (key, call) in way_points(keyed_calls, lambda keyed_call: keyed_call[1]):
            plan.append((None, fraction - fraction_done))
            fraction_done = fraction
            if waits:
                plan.append((members(call, workers), Wait(key)))
            else:
                plan += _start(key, call, later_waits, times, workers)
                started_calls += [] if is_awaited_in_step(call) else [(key, call)]
        plan.append((None, 1 - fraction_done))
        if triggers_s[step]:
            plan.append((None, Compute(triggers_s[step], "trigger", step, what="trigger")))
        plan += [(waiting, Wait(key)) for key, waiting in waits_by_call(started_calls, workers)]
        for key, call in keyed_calls:
            if call.ready >= 1:
                plan += _start(key, call, later_waits, times, workers)
                plan += [] if call.wait_steps else [(members(call, workers), Wait(key))]
        plan += later_waits.pop(step, [])
        _append(programs, plan, step_compute_s, step)
        for program, optimizer_s in zip(programs, optimizers_s, strict=True):
            if optimizer_s:
                program.append(Compute(optimizer_s, "optimizer", step, what="optimizer"))
    return programs


def _append(
    programs: list[list[Instruction]],
    plan: Sequence[tuple[Members, Instruction | float]],
    compute_s: Sequence[float],
    step: int,
) -> None:
    """Append a step's instructions to the programs of its workers.

    Args:
        programs: the program of each worker, changed in place.
        plan: instructions in order, each with its workers; a number is a fraction of each worker's computing.
        compute_s: seconds that each worker computes in the step.
        step: number of the step.
    """
    for instruction_members, instruction in plan:
        if isinstance(instruction, float | int):
            for program, seconds in zip(programs, compute_s, strict=True):
                program.append(Compute(instruction * seconds, step=step))
        else:
            for worker in range(len(programs)) if instruction_members is None else instruction_members:
                programs[worker].append(instruction)


def _start(
    key: tuple[int, int],
    call: Call,
    later_waits: dict[int, list[tuple[Members, Instruction]]],
    times: StepTimes,
    workers: int,
) -> list[tuple[Members, Instruction]]:
    """Return the instructions that start a call, with its workers; add a wait in a later step to ``later_waits``."""
    call_members, group = members(call, workers), group_ranks(call.group, workers)
    if call.wait_steps:
        last = call.step + call.wait_steps
        later_waits.setdefault(last, []).append((call_members, Wait(key, step=last)))
    encode_s = times.encoding_s(call)
    instructions: list[Instruction] = [Compute(encode_s, "encode", call.step, what="encode")] if encode_s else []
    instructions.append(
        Collective(call.collective, call.payload_bytes, key, call.label, call.step, call.algorithm, group=group)
    )
    return [(call_members, instruction) for instruction in instructions]


def members(call: Call, workers: int) -> Members:
    """Return the workers that take part in a call; None if all do."""
    group = group_ranks(call.group, workers)
    return None if group is None else frozenset(group)


def waits_by_call(started: Sequence[tuple[T, Call]], workers: int) -> list[tuple[T, Members]]:
    """Return the keys of calls, the last first, with the workers that wait for this call and for no later call.

    A worker that waits for its last call need not wait for its earlier calls, which end before.

    Args:
        started: key of each call, and the call, in the order of start.
        workers: number of workers.
    """
    remaining, waits = frozenset(range(workers)), []
    for key, call in reversed(started):
        waiting = remaining & frozenset(remaining if call.group is None else call.group)
        if waiting and not call.wait_steps:
            waits.append((key, None if len(waiting) == workers else waiting))
            remaining -= waiting
    return waits


def trigger_times(trigger_s: ArrayLike, steps: int) -> Floats:
    """Return the seconds of each step in which a worker decides whether to send, ``(T,)``.

    Raises:
        SpecError: a wrong number of times, or one that is negative or not finite.
    """
    return _broadcast_times("clock.trigger_s", trigger_s, steps, "steps")


def optimizer_times(optimizer_s: ArrayLike, workers: int) -> Floats:
    """Return the seconds of each worker's update, ``(P,)``, from one value or one per worker.

    Raises:
        SpecError: a wrong number of times, or one that is negative or not finite.
    """
    return _broadcast_times("clock.optimizer_s", optimizer_s, workers, "workers")


def _broadcast_times(field: str, values_s: ArrayLike, count: int, noun: str) -> Floats:
    """Return ``(count,)`` seconds, from one time for all or one for each; ``field`` and ``noun`` are for errors."""
    try:
        times = np.broadcast_to(np.asarray(values_s, dtype=np.float64), (count,))
    except ValueError:
        raise SpecError(field, np.shape(values_s), f"one time, or one for each of {count} {noun}") from None
    check_seconds(field, times)
    return times


def run_lockstep(
    compute_s: ArrayLike,
    calls: Iterable[Call],
    network: Network | Topology | Sequence[Link],
    starts_s: ArrayLike | None = None,
) -> Timeline:
    """Return the timeline of data-parallel training, the same as `run_events` of `data_parallel`, but faster.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``.
        calls: the collectives of the training.
        network: the link that every worker has, one link per worker, or a larger network.
        starts_s: time at which each worker begins, ``(P,)`` seconds; 0 by default.

    Raises:
        Contention: transfers share a channel in a way that only the event simulation can follow.
    """
    times = StepTimes.checked(compute_s)
    return timeline_of(lockstep_spans(times, calls, network, starts_s), times.compute_s.shape[1])


def lockstep_spans(
    times: StepTimes,
    calls: Iterable[Call],
    network: Network | Topology | Sequence[Link],
    starts_s: ArrayLike | None = None,
    rule: Rule = "eager",
) -> Iterator[Spans]:
    """Yield the spans of data-parallel training, in order of time on each stream, for trainings too long to store.

    Args:
        times: times of the steps.
        calls: as in `run_lockstep`.
        network: as in `run_lockstep`.
        starts_s: as in `run_lockstep`.
        rule: start rule of messages, ``eager`` or ``rendezvous``.

    Raises:
        Contention: transfers share a channel in a way that only the events can follow.
    """
    steps, workers = times.compute_s.shape
    joined = topology(network, workers)
    if knows_library(joined):
        calls = [
            call if call.algorithm else call._replace(algorithm=default_algorithm(call.collective, joined))
            for call in calls
        ]
    calls_by_step = CallsByStep(calls, steps)
    streams = Streams(GroupedMaps(joined, calls_by_step.calls, rule), start_times(starts_s, workers), times)
    for step in range(steps):
        yield from streams.step(step, calls_by_step[step])


class Streams:
    """The compute and network streams of all workers, step by step: the times of `data_parallel`, by sums and maxima.

    Args:
        maps: the collectives on the network.
        starts_s: time at which each worker begins, ``(P,)`` seconds.
        times: times of the steps.

    Attributes:
        now_s: time up to which each worker's compute stream is known, ``(P,)`` seconds.
        free_s: time from which each worker's network stream is free, ``(P,)`` seconds.
        later_waits: by step, the calls that the step waits for, with the end of each, ``(P,)`` seconds.
    """

    def __init__(self, maps: GroupedMaps, starts_s: Floats, times: StepTimes) -> None:
        self.maps, self.times = maps, times
        self.now_s: Floats = starts_s
        self.free_s: Floats = starts_s
        self.later_waits: dict[int, list[tuple[Floats, Call]]] = {}
        updates_s = times.optimizer_s
        self._updating: Members = None if updates_s.all() else frozenset(np.flatnonzero(updates_s).tolist())
        self._no_bytes = np.zeros(len(starts_s))

    def step(self, number: int, calls: Sequence[Call]) -> Iterator[Spans]:
        """Yield the spans of all workers in the step of this number, which has these calls."""
        compute_s, trigger_s = self.times.compute_s[number], float(self.times.trigger_s[number])
        fraction_done, started_calls = 0.0, list[tuple[tuple[Floats, Call], Call]]()
        end_s: dict[int, Floats] = {}  # by the index of a call
        for fraction, waits, (index, call) in way_points(list(enumerate(calls)), lambda indexed_call: indexed_call[1]):
            yield self._compute(number, (fraction - fraction_done) * compute_s)
            fraction_done = fraction
            if waits:
                yield self._wait(number, end_s[index], call, members(call, len(self.now_s)))
                continue
            yield from self._start(call)
            if is_awaited_in_step(call):
                end_s[index] = self.free_s
            else:
                started_calls.append(((self.free_s, call), call))
        yield self._compute(number, (1 - fraction_done) * compute_s if fraction_done else compute_s)
        if trigger_s:
            yield self._compute(number, trigger_s, "trigger")
        for (call_end_s, call), waiting in waits_by_call(started_calls, len(self.now_s)):
            yield self._wait(number, call_end_s, call, waiting)
        for call in calls:
            if call.ready >= 1:
                yield from self._start(call)
                if not call.wait_steps:
                    yield self._wait(number, self.free_s, call, members(call, len(self.now_s)))
        for call_end_s, call in self.later_waits.pop(number, ()):
            yield self._wait(number, call_end_s, call, members(call, len(self.now_s)))
        if self.times.optimizer_s.any():
            yield self._compute(number, self.times.optimizer_s, "optimizer", self._updating)

    def _compute(
        self, step: int, seconds: Floats | float, kind: str = "compute", participants: Members = None
    ) -> Spans:
        """Let the participants compute for some seconds, ``(P,)`` or one number; return the spans of the computing."""
        self.now_s, start_s = self._updated_times(participants, self.now_s + seconds, self.now_s), self.now_s
        return Spans("compute", kind, kind, start_s, self.now_s, self._no_bytes, step, participants)

    def _start(self, call: Call) -> Iterator[Spans]:
        """Run a call on the network streams of its workers; yield the spans of its encoding and of the call."""
        encode_s, call_members = self.times.encoding_s(call), members(call, len(self.now_s))
        if encode_s:
            yield self._compute(call.step, encode_s, "encode", call_members)
        start_s = np.maximum(self.now_s, self.free_s)
        end_s, sent_bytes = self.maps.done_s(call, start_s + self.maps.opening_s(call, start_s - self.free_s))
        self.free_s = self._updated_times(call_members, end_s, self.free_s)
        yield Spans("network", call.collective, call.label, start_s, end_s, sent_bytes, call.step, call_members)
        if call.wait_steps:
            self.later_waits.setdefault(call.step + call.wait_steps, []).append((self.free_s, call))

    def _wait(self, step: int, end_s: Floats, call: Call, waiting: Members) -> Spans:
        """Let workers wait for the end of a call, at ``end_s``, ``(P,)`` seconds; return the spans of the wait."""
        self.now_s, start_s = self._updated_times(waiting, np.maximum(self.now_s, end_s), self.now_s), self.now_s
        return Spans("compute", "wait", call.label, start_s, self.now_s, self._no_bytes, step, waiting)

    def _updated_times(self, changed: Members, new_s: Floats, old_s: Floats) -> Floats:
        """Return the new times of the ``changed`` workers and the old times of the others, ``(P,)`` seconds."""
        if changed is None:
            return new_s
        times_s = old_s.copy()
        times_s[sorted(changed)] = new_s[sorted(changed)]
        return times_s
