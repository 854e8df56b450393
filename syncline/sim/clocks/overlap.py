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
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.table import default_algorithm, knows_library
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.costmodel.traffic.call import Call, CallsByStep, group_ranks
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, is_awaited_early, split_call, way_points
from syncline.errors import SpecError
from syncline.sim.lockstep.collectives import Spans, TrainingCollectives, timeline_of
from syncline.sim.program import instructions
from syncline.sim.program.timeline import Timeline

Members: TypeAlias = frozenset[int] | None
"""Some of the workers; all if None."""


def overlapped(calls: Iterable[Call], overlap: str, buckets: Sequence[Bucket] = WHOLE) -> list[Call]:
    """Return the collectives that a training starts if it overlaps these calls with computing.

    Args:
        overlap: ``none``: as they are; ``ddp``: gradients in buckets; ``async``: each awaited a step later.
        buckets: buckets of a gradient, see `syncline.costmodel.traffic.overlap.gradient_buckets`.
    """
    return [part for call in calls for part in split_call(call, overlap, buckets)]


@dataclass(frozen=True, eq=False)
class StepTimes:
    """The seconds of a training's T steps besides communication, and the speed of encoding.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``.
        trigger_s: seconds that the decision whether to send takes in each step, ``(T,)``.
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
        """Return checked times; one ``trigger_s`` stands for all steps, one ``optimizer_s`` for all workers."""
        times = np.asarray(compute_s, dtype=np.float64)
        if times.ndim != 2:
            raise SpecError("compute_s", f"an array of shape {times.shape}", "seconds of shape (steps, workers)")
        instructions.check_seconds("compute_s", times)
        steps, workers = times.shape
        return cls(
            times, instructions.broadcast_seconds("clock.trigger_s", trigger_s, steps, "steps"),
            instructions.broadcast_seconds("clock.optimizer_s", optimizer_s, workers, "workers"), encode_bytes_per_s,
        )  # fmt: skip

    def encoding_s(self, call: Call) -> float:
        """Return the seconds in which a worker encodes and decodes a call."""
        return call.encoded_bytes / self.encode_bytes_per_s if self.encode_bytes_per_s else 0.0


class StepAction(NamedTuple):
    """An action of workers in a training step, such as computing or the start of a collective.

    Attributes:
        kind: ``compute``, ``trigger`` (the decision whether to send), ``start`` of a call, or ``wait`` for a call.
        call_index: index of the call among those of the step; -1 for ``compute`` and ``trigger``.
        fraction: fraction of the step's computing, for ``compute``.
        members: the workers that wait, for ``wait``; all if None.
    """

    kind: str
    call_index: int = -1
    fraction: float = 0.0
    members: Members = None


def step_actions(calls: Sequence[Call], workers: int) -> Iterator[StepAction]:
    """Yield the actions of a step in order, up to the waits for calls that start at the end of the computing.

    The waits for calls of earlier steps and the update follow them (parts 5 and 6 of the module's list).
    """
    pending_calls: list[tuple[int, Call]] = []  # started, and not awaited before the end of the computing
    fraction_done = 0.0
    for fraction, is_wait, index in way_points(calls):  # starts and waits before the end of the computing
        yield StepAction("compute", fraction=fraction - fraction_done)
        fraction_done = fraction
        if is_wait:
            yield StepAction("wait", index, members=members(calls[index], workers))
        else:
            yield StepAction("start", index)
            if not is_awaited_early(calls[index]):
                pending_calls.append((index, calls[index]))
    yield StepAction("compute", fraction=1 - fraction_done)
    yield StepAction("trigger")
    for index, waiting in waits_by_call(pending_calls, workers):
        yield StepAction("wait", index, members=waiting)
    for index, call in enumerate(calls):
        if call.ready >= 1:  # at the end of the computing; the other calls have started before
            yield StepAction("start", index)
            if not call.wait_steps:  # otherwise a later step waits
                yield StepAction("wait", index, members=members(call, workers))


def data_parallel(compute_s: ArrayLike | StepTimes, calls: Iterable[Call]) -> list[list[instructions.Instruction]]:
    """Return the programs of data-parallel training, one per worker.

    Args:
        compute_s: seconds that P workers compute in T steps, ``(T, P)``; or the times of all parts of the steps.
    """
    times = compute_s if isinstance(compute_s, StepTimes) else StepTimes.checked(compute_s)
    steps, workers = times.compute_s.shape
    programs: list[list[instructions.Instruction]] = [[] for _ in range(workers)]
    calls_by_step = CallsByStep(calls, steps)
    later_waits: dict[int, list[tuple[Members, instructions.Wait]]] = {}  # by the step that waits

    def append(instruction: instructions.Instruction, participants: Members = None) -> None:
        """Append an instruction to the programs of the participants."""
        for worker in range(workers) if participants is None else participants:
            programs[worker].append(instruction)

    def start(call: Call, key: tuple[int, int]) -> None:
        """Append the instructions that start a collective, and note its wait if a later step waits for it."""
        call_members, encode_s = members(call, workers), times.encoding_s(call)
        if encode_s:
            append(instructions.Compute(encode_s, "encode", call.step, what="encode"), call_members)
        group, kind, nbytes = group_ranks(call.group, workers), call.collective, call.payload_bytes
        append(
            instructions.Collective(kind, nbytes, key, call.label, call.step, call.algorithm, group=group), call_members
        )
        if call.wait_steps:
            wait_step = call.step + call.wait_steps
            later_waits.setdefault(wait_step, []).append((call_members, instructions.Wait(key, step=wait_step)))

    for step in range(steps):
        step_calls, trigger_s = calls_by_step[step], float(times.trigger_s[step])
        for action in step_actions(step_calls, workers):
            key = step, action.call_index
            if action.kind == "compute":
                for program, seconds in zip(programs, times.compute_s[step].tolist(), strict=True):
                    program.append(instructions.Compute(action.fraction * seconds, step=step))
            elif action.kind == "trigger":
                if trigger_s:
                    append(instructions.Compute(trigger_s, "trigger", step, what="trigger"))
            elif action.kind == "wait":
                append(instructions.Wait(key), action.members)
            else:
                start(step_calls[action.call_index], key)
        for waiting, wait in later_waits.pop(step, []):
            append(wait, waiting)
        for program, optimizer_s in zip(programs, times.optimizer_s.tolist(), strict=True):
            if optimizer_s:
                program.append(instructions.Compute(optimizer_s, "optimizer", step, what="optimizer"))
    return programs


def members(call: Call, workers: int) -> Members:
    """Return the workers that take part in a call; None if all do."""
    group = group_ranks(call.group, workers)
    return None if group is None else frozenset(group)


def waits_by_call(started: Sequence[tuple[int, Call]], workers: int) -> list[tuple[int, Members]]:
    """Return the indices of the calls for which workers wait in this step, each with the workers that wait.

    Each worker waits for the last of its calls alone; its earlier calls have ended by then.

    Args:
        started: index of each call, and the call, in the order of start.
    """
    without_wait = frozenset(range(workers))  # workers that wait for none of the calls visited so far, the later ones
    waits: list[tuple[int, Members]] = []
    for index, call in reversed(started):
        waiting = without_wait if call.group is None else without_wait & frozenset(call.group)
        if waiting and not call.wait_steps:  # otherwise a later step waits for the call
            waits.append((index, None if len(waiting) == workers else waiting))
            without_wait -= waiting
    return waits


def run_lockstep(
    compute_s: ArrayLike,
    calls: Iterable[Call],
    network: Network | Topology | Sequence[Link],
    starts_s: ArrayLike | None = None,
) -> Timeline:
    """Return the timeline of data-parallel training, the same as `run_events` of `data_parallel`, but faster.

    Args:
        compute_s: seconds that P workers compute in T steps, ``(T, P)``.
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
    """Yield the spans of data-parallel training in the order of time on each stream; only the latest are in memory.

    Args:
        starts_s: time at which each worker begins, ``(P,)`` seconds; 0 by default.
        rule: start rule of messages, ``eager`` or ``rendezvous``.

    Raises:
        Contention: transfers share a channel in a way that only the events can follow.
    """
    steps, workers = times.compute_s.shape
    worker_topology = topology(network, workers)
    if knows_library(worker_topology):  # calls that name no algorithm run as in the library
        calls = [
            call._replace(algorithm=call.algorithm or default_algorithm(call.collective, worker_topology))
            for call in calls
        ]
    calls_by_step = CallsByStep(calls, steps)
    collectives = TrainingCollectives(worker_topology, calls_by_step.calls, rule)
    streams = Streams(collectives, instructions.start_times(starts_s, workers), times)
    for step in range(steps):
        yield from streams.step(step, calls_by_step[step])


class Streams:
    """The compute and network streams of all workers, step by step: `data_parallel` by sums and maxima.

    Args:
        collectives: the collectives of the training on the network.
        starts_s: time at which each worker begins, ``(P,)`` seconds.

    Attributes:
        now_s: time up to which each worker's compute stream is known, ``(P,)`` seconds.
        free_s: time from which each worker's network stream is free, ``(P,)`` seconds.
        later_waits: by step, the calls that the step waits for, with the end of each, ``(P,)`` seconds.
    """

    def __init__(self, collectives: TrainingCollectives, starts_s: Floats, times: StepTimes) -> None:
        self.collectives, self.times = collectives, times
        self.now_s: Floats = starts_s
        self.free_s: Floats = starts_s
        self.later_waits: dict[int, list[tuple[Floats, Call]]] = {}
        updates_s = times.optimizer_s
        # Workers whose update takes time, so that the others have no span of an update; None: all.
        self._updating: Members = None if updates_s.all() else frozenset(np.flatnonzero(updates_s).tolist())
        self._no_bytes = np.zeros(len(starts_s))

    def step(self, number: int, calls: Sequence[Call]) -> Iterator[Spans]:
        """Yield the spans of all workers in step ``number``; ``calls`` are those of the step."""
        compute_s, trigger_s = self.times.compute_s[number], float(self.times.trigger_s[number])
        end_s: dict[int, Floats] = {}  # end of each started call, by index
        for action in step_actions(calls, len(self.now_s)):
            if action.kind == "compute":
                yield self._advance(number, "compute", self.now_s + action.fraction * compute_s)
            elif action.kind == "trigger":
                if trigger_s:
                    yield self._advance(number, "trigger", self.now_s + trigger_s)
            elif action.kind == "wait":
                yield self._wait(number, end_s[action.call_index], calls[action.call_index], action.members)
            else:
                yield from self._start(calls[action.call_index])
                end_s[action.call_index] = self.free_s  # the network stream is free when its last call has ended
        for call_end_s, call in self.later_waits.pop(number, ()):
            yield self._wait(number, call_end_s, call, members(call, len(self.now_s)))
        if self.times.optimizer_s.any():
            yield self._advance(number, "optimizer", self.now_s + self.times.optimizer_s, self._updating)

    def _start(self, call: Call) -> Iterator[Spans]:
        """Run a call on the network streams of its workers; yield the spans of its encoding and of the call."""
        encode_s, call_members = self.times.encoding_s(call), members(call, len(self.now_s))
        if encode_s:
            yield self._advance(call.step, "encode", self.now_s + encode_s, call_members)
        start_s = np.maximum(self.now_s, self.free_s)
        # TCP windows that shrank while the network stream was idle open again.
        opening_s = self.collectives.opening_s(call, idle_s=start_s - self.free_s)
        end_s, sent_bytes = self.collectives.done_s(call, entry_s=start_s + opening_s)
        self.free_s = self._updated_times(call_members, new_s=end_s, old_s=self.free_s)
        yield Spans("network", call.collective, call.label, start_s, end_s, sent_bytes, call.step, call_members)
        if call.wait_steps:  # otherwise an action of this step waits
            self.later_waits.setdefault(call.step + call.wait_steps, []).append((self.free_s, call))

    def _wait(self, step: int, end_s: Floats, call: Call, workers: Members) -> Spans:
        """Let some workers wait for the end of a call, at ``end_s``, ``(P,)`` seconds; return the spans of the wait."""
        return self._advance(step, "wait", np.maximum(self.now_s, end_s), workers)._replace(label=call.label)

    def _advance(self, step: int, kind: str, until_s: Floats, workers: Members = None) -> Spans:
        """Let the compute streams of some workers be busy until ``until_s``, ``(P,)`` seconds; return the spans."""
        start_s, self.now_s = self.now_s, self._updated_times(workers, new_s=until_s, old_s=self.now_s)
        return Spans("compute", kind, kind, start_s, self.now_s, self._no_bytes, step, workers)

    def _updated_times(self, changed: Members, new_s: Floats, old_s: Floats) -> Floats:
        """Return the new times of the ``changed`` workers and the old times of the others, ``(P,)`` seconds."""
        if changed is None:
            return new_s
        times_s = old_s.copy()
        times_s[sorted(changed)] = new_s[sorted(changed)]
        return times_s
