"""Data-parallel training whose communication overlaps with computing, as programs and as recurrences.

In each step a worker computes, and on the way starts the calls that are ready before the end. It decides whether to
send, if that takes time. It waits for the calls that it started on the way. It starts the calls that are ready at the
end, each after the one before it has finished. It waits for calls of earlier steps that this step needs. It updates the
weights, if that takes time of its own. Encoding is computing, directly before the encoded call starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.table import default_algorithm, knows_library
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Network, Topology, topology
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
    """Return the calls as they are sent: gradients in buckets, or every call awaited a step later.

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
        """Return checked times; one trigger time stands for all steps, one optimizer time for all workers.

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
    of_worker: list[list[Instruction]] = [[] for _ in range(workers)]
    due, needed = CallsByStep(calls, steps), dict[int, list[tuple[Members, Instruction]]]()
    triggers_s, optimizers_s = times.trigger_s.tolist(), times.optimizer_s.tolist()
    for step, row in enumerate(times.compute_s.tolist()):
        keyed = [((step, number), call) for number, call in enumerate(due[step])]
        early: list[tuple[tuple[int, int], Call]] = []
        line: list[tuple[Members, Instruction | float]] = []  # with workers; a number is a share of the computing
        begin = 0.0
        for until, waits, (key, call) in way_points(keyed, lambda keyed_call: keyed_call[1]):
            line.append((None, until - begin))
            begin = until
            if waits:
                line.append((members(call, workers), Wait(key)))
            else:
                line += _start(key, call, needed, times, workers)
                early += [] if is_awaited_in_step(call) else [(key, call)]
        line.append((None, 1 - begin))
        if triggers_s[step]:
            line.append((None, Compute(triggers_s[step], "trigger", step, what="trigger")))
        line += [(mine, Wait(key)) for key, mine in waits_by_call(early, workers)]
        for key, call in keyed:
            if call.ready >= 1:
                line += _start(key, call, needed, times, workers)
                line += [] if call.wait_steps else [(members(call, workers), Wait(key))]
        line += needed.pop(step, [])
        _append(of_worker, line, row, step)
        for program, optimizer_s in zip(of_worker, optimizers_s, strict=True):
            if optimizer_s:
                program.append(Compute(optimizer_s, "optimizer", step, what="optimizer"))
    return of_worker


def _append(
    of_worker: list[list[Instruction]],
    line: Sequence[tuple[Members, Instruction | float]],
    compute_s: Sequence[float],
    step: int,
) -> None:
    """Append a step's line to the programs of its workers; a number is a share of each worker's computing."""
    for mine, instruction in line:
        if isinstance(instruction, float | int):
            for program, seconds in zip(of_worker, compute_s, strict=True):
                program.append(Compute(instruction * seconds, step=step))
        else:
            for program in of_worker if mine is None else (of_worker[worker] for worker in mine):
                program.append(instruction)


def _start(
    key: tuple[int, int],
    call: Call,
    needed: dict[int, list[tuple[Members, Instruction]]],
    times: StepTimes,
    workers: int,
) -> list[tuple[Members, Instruction]]:
    """Return the instructions that start a call, with its workers, and note in ``needed`` a wait in a later step."""
    call_members, group = members(call, workers), group_ranks(call.group, workers)
    if call.wait_steps:
        last = call.step + call.wait_steps
        needed.setdefault(last, []).append((call_members, Wait(key, step=last)))
    encode_s = times.encoding_s(call)
    instructions: list[Instruction] = [Compute(encode_s, "encode", call.step, what="encode")] if encode_s else []
    instructions.append(
        Collective(call.collective, call.payload_bytes, key, call.label, call.step, call.algorithm, group=group)
    )
    return [(call_members, instruction) for instruction in instructions]


def members(call: Call, workers: int) -> Members:
    """Return the workers of a call; None if all take part."""
    group = group_ranks(call.group, workers)
    return None if group is None else frozenset(group)


def waits_by_call(started: Sequence[tuple[T, Call]], workers: int) -> list[tuple[T, Members]]:
    """Return each call, in the order of start, with the workers that wait for it and for no later one."""
    remaining, waits = frozenset(range(workers)), []
    for key, call in reversed(started):
        mine = remaining & frozenset(remaining if call.group is None else call.group)
        if mine and not call.wait_steps:
            waits.append((key, None if len(mine) == workers else mine))
            remaining -= mine
    return waits


def trigger_times(trigger_s: ArrayLike, steps: int) -> Floats:
    """Return the seconds of each step in which a worker decides whether to send, ``(T,)``.

    Raises:
        SpecError: a wrong number of times, or one that is negative or not finite.
    """
    return _of_each("clock.trigger_s", trigger_s, steps, "steps")


def optimizer_times(optimizer_s: ArrayLike, workers: int) -> Floats:
    """Return the seconds of each worker's update, ``(P,)``, from one value or one per worker.

    Raises:
        SpecError: a wrong number of times, or one that is negative or not finite.
    """
    return _of_each("clock.optimizer_s", optimizer_s, workers, "workers")


def _of_each(field: str, values_s: ArrayLike, count: int, noun: str) -> Floats:
    """Return ``count`` times, from one time for all or one for each."""
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
    """Return the timeline of data-parallel training: `run_events` of `data_parallel`, only faster.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``.
        calls: the collectives of the training.
        network: the link that every worker has, one link per worker, or a larger network.
        starts_s: time at which each worker begins, ``(P,)`` seconds; 0 by default.

    Raises:
        Contention: transfers share a channel in a way that only the events can follow.
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
    """Yield the history of data-parallel training, in order of time on each stream, for trainings too long to keep.

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
    due = CallsByStep(calls, steps)
    streams = Streams(GroupedMaps(joined, due.calls, rule), start_times(starts_s, workers), times)
    for step in range(steps):
        yield from streams.step(step, due[step])


class Streams:
    """The compute and network streams of all workers, moved through the steps: the same as the programs, by maxima.

    Args:
        maps: the collectives on the network.
        starts_s: time at which each worker begins, ``(P,)``.
        times: times of the steps.

    Attributes:
        now_s: time up to which each worker's compute stream is known, ``(P,)``.
        free_s: time from which each worker's network stream is free, ``(P,)``.
        needed: calls that a later step waits for, by step, with the time at which each worker is done, ``(P,)``.
    """

    def __init__(self, maps: GroupedMaps, starts_s: Floats, times: StepTimes) -> None:
        self.maps, self.times = maps, times
        self.now_s: Floats = starts_s
        self.free_s: Floats = starts_s
        self.needed: dict[int, list[tuple[Floats, Call]]] = {}
        updates = times.optimizer_s
        self._updating: Members = None if updates.all() else frozenset(np.flatnonzero(updates).tolist())
        self._nothing = np.zeros(len(starts_s))

    def step(self, number: int, calls: Sequence[Call]) -> Iterator[Spans]:
        """Yield the spans of one step with these calls."""
        seconds, trigger_s = self.times.compute_s[number], float(self.times.trigger_s[number])
        begin, early = 0.0, list[tuple[tuple[Floats, Call], Call]]()
        done_s: dict[int, Floats] = {}
        for until, waits, (place, call) in way_points(list(enumerate(calls)), lambda numbered_call: numbered_call[1]):
            yield self._compute(number, (until - begin) * seconds)
            begin = until
            if waits:
                yield self._wait(number, done_s[place], call, members(call, len(self.now_s)))
                continue
            yield from self._start(call)
            if is_awaited_in_step(call):
                done_s[place] = self.free_s
            else:
                early.append(((self.free_s, call), call))
        yield self._compute(number, (1 - begin) * seconds if begin else seconds)
        if trigger_s:
            yield self._compute(number, trigger_s, "trigger")
        for (until_s, call), waiting in waits_by_call(early, len(self.now_s)):
            yield self._wait(number, until_s, call, waiting)
        for call in calls:
            if call.ready >= 1:
                yield from self._start(call)
                if not call.wait_steps:
                    yield self._wait(number, self.free_s, call, members(call, len(self.now_s)))
        for until_s, call in self.needed.pop(number, ()):
            yield self._wait(number, until_s, call, members(call, len(self.now_s)))
        if self.times.optimizer_s.any():
            yield self._compute(number, self.times.optimizer_s, "optimizer", self._updating)

    def _compute(
        self, step: int, seconds: Floats | float, kind: str = "compute", participants: Members = None
    ) -> Spans:
        self.now_s, start = self._updated_times(participants, self.now_s + seconds, self.now_s), self.now_s
        return Spans("compute", kind, kind, start, self.now_s, self._nothing, step, participants)

    def _start(self, call: Call) -> Iterator[Spans]:
        encode_s, call_members = self.times.encoding_s(call), members(call, len(self.now_s))
        if encode_s:
            yield self._compute(call.step, encode_s, "encode", call_members)
        enter = np.maximum(self.now_s, self.free_s)
        done_s, sent = self.maps.done_s(call, enter + self.maps.opening_s(call, enter - self.free_s))
        self.free_s = self._updated_times(call_members, done_s, self.free_s)
        yield Spans("network", call.collective, call.label, enter, done_s, sent, call.step, call_members)
        if call.wait_steps:
            self.needed.setdefault(call.step + call.wait_steps, []).append((self.free_s, call))

    def _wait(self, step: int, until_s: Floats, call: Call, waiting: Members) -> Spans:
        self.now_s, start = self._updated_times(waiting, np.maximum(self.now_s, until_s), self.now_s), self.now_s
        return Spans("compute", "wait", call.label, start, self.now_s, self._nothing, step, waiting)

    def _updated_times(self, changed: Members, new_s: Floats, old_s: Floats) -> Floats:
        """Return the new times of some workers, and the old times of the others."""
        if changed is None:
            return new_s
        times_s = old_s.copy()
        times_s[sorted(changed)] = new_s[sorted(changed)]
        return times_s
