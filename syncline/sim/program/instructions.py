"""Programs of workers: instructions, as if each GPU had a compute stream and a network stream.

The compute stream runs the program in order. `Compute`, `Recv`, `First` and `Wait` block this stream until they are
done; `Send` and `Collective` only start a transfer, and the stream goes on. Collectives run on a network stream, one
after another, and messages leave on a send stream likewise; different streams run at the same time.

A `Queued` program has several compute streams, on which a host queues work, as in CUDA: the host goes on, and queued
work runs when its stream is free. Work on one stream runs in the order in which it was queued; streams run side by
side. A mark records the progress of a stream, for other streams or the host to wait for. The host itself takes no time:
work that it queues after a wait begins no earlier than the awaited work is done.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.paths import Floats, Ints
from syncline.errors import SpecError, SynclineError
from syncline.sim.program.timeline import COMPUTING, is_computing

Effect: TypeAlias = Callable[[], object]
"""The math of an instruction, called when the instruction completes; it sees the effects of all earlier events."""

Delay: TypeAlias = Callable[[int, int], float]
"""A function of sender and receiver that returns the seconds by which a message is late; called when a message starts.
"""


@dataclass(frozen=True, slots=True)
class Compute:
    """An instruction to compute for some seconds; ``what`` is the kind of computing, ``label`` is for people."""

    seconds: float
    label: str = "compute"
    step: int = -1
    effect: Effect | None = None
    what: str = "compute"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise SpecError("compute.seconds", self.seconds, "seconds, finite and at least 0")


@dataclass(frozen=True, slots=True)
class Send:
    """An instruction to queue a message behind the earlier messages of its stream; the program goes on at once.

    ``label``, by default the tag, is for people.
    """

    to: int
    nbytes: float
    tag: Hashable = ""
    step: int = -1
    stream: str = "send"
    label: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.nbytes) and self.nbytes >= 0):
            raise SpecError("send.nbytes", self.nbytes, "a finite number of bytes, at least 0")
        if is_computing(self.stream):
            raise SpecError("send.stream", self.stream, "another stream than that of the computing")


@dataclass(frozen=True, slots=True)
class Recv:
    """A wait for the message that ``source`` sends with this tag; ``label``, by default the tag, is for people."""

    source: int
    tag: Hashable = ""
    step: int = -1
    effect: Effect | None = None
    label: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class First:
    """A choice between programs: the first one that can run, else the one whose message arrives first.

    The worker chooses after all other events of an instant. So among messages that arrive together, the first in the
    order of ``options`` wins. A single option needs no choice, and runs at once.

    Args:
        options: the message for which each option waits; None for an option that waits for no message.
        then: function of the chosen index that returns the instructions that follow.
    """

    options: Sequence[Recv | None]
    then: Callable[[int], Sequence[Instruction]] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective to join: every worker of its group joins it with the same fields, except label and step.

    Collectives of one stream run one after another, collectives of different streams at the same time.

    Args:
        kind: the collective, one of `syncline.costmodel.collectives.table.COLLECTIVES`; any name if there are rounds.
        nbytes: bytes, with the meaning that the collective's closed form gives them.
        key: unique key of this collective.
        label: description for people.
        step: number of the training step, from 0; -1 if none.
        algorithm: algorithm of the collective; by default the first for this kind.
        group: the workers that take part, in the order in which the algorithm numbers them; all in their order if None.
        stream: network stream on which the collective runs.
        rounds: rounds to run instead of the algorithm's; worker i in these rounds is the i-th of the group.
        takes_s: seconds of the collective, instead of a simulation of its messages. The collective then begins when the
            last worker of the group enters it, ends for all workers at once, and shares no channel; each worker sends
            ``nbytes`` in it.
    """

    kind: str
    nbytes: float
    key: Hashable
    label: str = ""
    step: int = -1
    algorithm: str | None = None
    group: tuple[int, ...] | None = None
    stream: str = "network"
    rounds: Sequence[Round] | None = field(default=None, compare=False, repr=False)
    takes_s: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.takes_s is not None and not (math.isfinite(self.takes_s) and self.takes_s >= 0):
            raise SpecError("collective.takes_s", self.takes_s, "seconds, finite and at least 0, or none")
        if is_computing(self.stream):
            raise SpecError("collective.stream", self.stream, "another stream than that of the computing")


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait until the collective with this key is done for this worker; ``step`` is by default the collective's."""

    key: Hashable
    effect: Effect | None = None
    step: int | None = None


Instruction: TypeAlias = Compute | Send | Recv | First | Collective | Wait
Program: TypeAlias = Sequence[Instruction]


class Stuck(SynclineError):
    """An error about programs that never finish.

    Args:
        line: the error message about one of these programs.
        current_instructions: the current instruction of each worker that has not finished.
    """

    def __init__(self, line: str, current_instructions: dict[int, Instruction]) -> None:
        super().__init__(line, current_instructions)
        self.line, self.current_instructions = line, current_instructions

    def __str__(self) -> str:
        return self.line


def delay_at(places: Ints, delay: Delay) -> Delay:
    """Return the delay of messages between workers whose places, in order, are the workers of another delay."""
    place_of = places.tolist()
    return lambda sender, receiver: delay(place_of[sender], place_of[receiver])


def start_times(starts_s: ArrayLike | None, workers: int) -> Floats:
    """Return the time at which each worker begins, ``(workers,)`` seconds, 0 by default."""
    try:
        starts = np.broadcast_to(np.asarray(0.0 if starts_s is None else starts_s, dtype=np.float64), (workers,))
    except ValueError:
        raise SpecError("starts_s", starts_s, f"one time, or one for each of the {workers} workers") from None
    if not np.all(np.isfinite(starts) & (starts >= 0)):
        raise SpecError("starts_s", starts_s, "seconds, finite and at least 0")
    return starts


def broadcast_seconds(path: str, seconds: ArrayLike, count: int, noun: str) -> Floats:
    """Return ``(count,)`` seconds from one time for all or one for each.

    In error lines ``path`` names the field, and ``noun`` the things that take these times.
    """
    try:
        times = np.broadcast_to(np.asarray(seconds, dtype=np.float64), (count,))
    except ValueError:
        expected = f"one time, or one for each of the {count} {noun}"
        raise SpecError(path, np.shape(seconds), expected) from None
    check_seconds(path, times)
    return times


def check_seconds(path: str, seconds: Floats) -> None:
    """Raise an error if any time is negative or not finite; ``path`` names the field."""
    seconds = first_if_same(seconds)
    valid = np.isfinite(seconds) & (seconds >= 0)
    if not valid.all():
        raise SpecError(path, float(seconds[~valid][0]), "seconds, finite and at least 0")


def first_if_same(rows: Floats) -> Floats:
    """Return the first row, ``(1, ...)``, of an array that `np.broadcast_to` made from one row; else the array."""
    is_broadcast = rows.ndim > 0 and rows.strides[0] == 0
    return rows[:1] if is_broadcast else rows


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A point of a stream, for which other streams can wait; the marks of a worker have different keys."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class StreamWait:
    """A wait of a stream until another stream has come to a mark; ``label`` and ``step`` are for people."""

    key: Hashable
    label: str = ""
    step: int = -1


@dataclass(frozen=True, slots=True)
class HostWait:
    """A wait of the host until a stream has come to a mark; without a mark, until all queued work is done."""

    key: Hashable | None = None
    label: str = ""
    step: int = -1


OnStream: TypeAlias = Instruction | StreamMark | StreamWait
"""The instructions of a stream."""


class Queued(Sequence[Any]):
    """A program whose instructions are on streams.

    A `Collective` begins when the work before it on its stream is done, after the collectives that were queued before
    it on its network stream; its own stream goes on meanwhile. A `Wait` blocks only its own stream.

    Args:
        instructions: instructions in the order in which the host queues them.
        streams: stream of each instruction: ``compute``, or a name that begins with ``compute`` and a space; unused for
            a `HostWait`.
    """

    def __init__(
        self, instructions: Sequence[Instruction | StreamMark | StreamWait | HostWait], streams: Sequence[str]
    ) -> None:
        """Store the instructions; refuse streams that do not compute."""
        self.instructions, self.streams = instructions, streams
        for name in dict.fromkeys(streams):
            if not is_computing(name):
                raise SpecError("queued.streams", name, f"{COMPUTING!r}, or a name that begins with '{COMPUTING} '")

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, index: Any) -> Any:
        return self.instructions[index]

    def instructions_by_stream(self) -> dict[str, list[OnStream]]:
        """Return the worker's instructions as a list for each stream, by the stream's name; ``compute`` is the first.

        If several streams queue collectives on one network stream, the dictionary also has the key ``joins`` with the
        network stream's name. This list joins the collectives in the order in which the host queued them.

        Raises:
            SynclineError: a wait for work that was not queued before it.
        """
        return _Host(self).instructions_of


class _Host:
    """The host that queues a program: it distributes the instructions over the streams.

    Work that the host queues after a `HostWait` begins no earlier than the awaited work is done. So each stream makes
    the host's waits itself, before the next instruction that the host queues on this stream.
    """

    def __init__(self, queued: Queued) -> None:
        self.instructions_of: dict[str, list[OnStream]] = defaultdict(list)
        self.instructions_of[COMPUTING] = []
        self._computing_streams: dict[str, set[str]] = defaultdict(set)  # that queue collectives on a network stream
        self._stream_of_mark: dict[Hashable, str] = {}
        self._started_collectives: set[Hashable] = set()
        self._pending_collectives: dict[Hashable, None] = {}  # an ordered set
        # The host's last wait for each stream or collective; it includes the earlier waits for the same stream.
        self._host_waits: dict[Hashable, OnStream] = {}
        self._waits_made: dict[str, dict[Hashable, OnStream]] = defaultdict(dict)  # the same, as each stream made them
        self._streams_up_to_date: set[str] = set()  # streams that have made all waits of the host so far
        for instruction, stream in zip(queued.instructions, queued.streams, strict=True):
            if type(instruction) is Collective:
                self._computing_streams[instruction.stream].add(stream)
        for instruction, stream in zip(queued.instructions, queued.streams, strict=True):
            self._queue(instruction, stream)

    def _queue(self, instruction: Any, stream: str) -> None:
        """Append an instruction to its stream, after the host's waits that the stream lacks."""
        kind = type(instruction)
        if kind is HostWait:
            self._add_host_wait(instruction)
            return
        instructions = self.instructions_of[stream]
        if stream not in self._streams_up_to_date:
            self._make_host_waits(stream)
        if kind is StreamMark:
            if self._stream_of_mark.setdefault(instruction.key, stream) != stream:
                raise SynclineError(f"{instruction} is named twice; expected a different key for each mark")
        elif kind is StreamWait:
            if instruction.key not in self._stream_of_mark:
                raise SynclineError(f"{instruction} waits for a mark that is not there; expected one before it")
            if self._stream_of_mark[instruction.key] == stream:  # a stream runs in order, so its own mark is past
                return
        elif kind is Wait:
            if instruction.key not in self._started_collectives:
                problem = "waits for a collective that has not started"
                raise SynclineError(f"{instruction} {problem}; expected one before it")
            self._pending_collectives.pop(instruction.key, None)
        elif kind is Collective:
            self._started_collectives.add(instruction.key)
            self._pending_collectives[instruction.key] = None
            if len(self._computing_streams[instruction.stream]) > 1:
                # A further stream joins the collectives in the host's order, each once this stream has come to it.
                mark = StreamMark(("joins", instruction.key))
                instructions.append(mark)
                self.instructions_of[f"joins {instruction.stream}"] += StreamWait(mark.key), instruction
                return
        elif kind is First and stream != COMPUTING:
            raise SpecError("queued.streams", stream, f"{COMPUTING!r}, the only stream on which a program chooses")
        instructions.append(instruction)

    def _add_host_wait(self, wait: HostWait) -> None:
        """Note what the host waits for: a mark, or the end of all streams and collectives so far."""
        self._streams_up_to_date.clear()
        if wait.key is not None:
            if wait.key not in self._stream_of_mark:
                raise SynclineError(f"{wait} waits for a mark that is not there; expected one before it")
            self._host_waits[self._stream_of_mark[wait.key]] = StreamWait(wait.key, wait.label, wait.step)
            return
        for index, (stream, instructions) in enumerate(self.instructions_of.items()):
            if instructions and is_computing(stream):
                mark = StreamMark(("all", len(instructions), index))  # no other mark of the worker has this key
                instructions.append(mark)
                self._host_waits[stream] = StreamWait(mark.key, wait.label, wait.step)
        for key in self._pending_collectives:  # collectives block no stream, so they may end after the marks
            self._host_waits["under way", key] = Wait(key)
        self._pending_collectives.clear()

    def _make_host_waits(self, stream: str) -> None:
        """Append to a stream those of the host's waits that the stream lacks."""
        for source, wait in self._host_waits.items():
            if source != stream and self._waits_made[stream].get(source) != wait:
                self.instructions_of[stream].append(wait)
        self._waits_made[stream] = dict(self._host_waits)
        self._streams_up_to_date.add(stream)
