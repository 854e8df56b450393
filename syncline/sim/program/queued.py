"""Programs that a host queues on streams, as in CUDA: the host goes on, and queued work runs when its stream is free.

Work on one stream runs in the order in which it was queued; streams run side by side. A mark records the progress of a
stream, for other streams or the host to wait for. The host itself takes no time: work that it queues after a wait
begins no earlier than the awaited work is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from syncline.errors import SpecError, SynclineError
from syncline.sim.program.instructions import Collective, First, Instruction, Wait
from syncline.sim.program.timeline import COMPUTING, is_computing


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A mark of a stream's progress; each worker names a mark once."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class StreamWait:
    """A wait of a stream until another stream has come to a mark; the label and the step are for people."""

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
    it on its network stream, and holds nothing. A `Wait` holds only its own stream.

    Args:
        instructions: instructions in the order in which the host queues them.
        streams: stream of each: ``compute``, or a name that begins with ``compute`` and a space; any for a `HostWait`.

    Raises:
        SpecError: a stream that cannot compute.
    """

    def __init__(
        self, instructions: Sequence[Instruction | StreamMark | StreamWait | HostWait], streams: Sequence[str]
    ) -> None:
        self.instructions, self.streams = instructions, streams
        for name in dict.fromkeys(streams):
            if not is_computing(name):
                raise SpecError("queued.streams", name, f"{COMPUTING!r}, or a name that begins with '{COMPUTING} '")

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, index: Any) -> Any:
        return self.instructions[index]

    def lanes(self) -> dict[str, list[OnStream]]:
        """Return the instructions of each stream, ``compute`` first.

        A network stream that receives collectives from several streams has a lane of its own, on which they are joined
        in the order of the host.

        Raises:
            SynclineError: a wait for work that was not queued before it.
        """
        return _Host(self).lanes


class _Host:
    """The host that queues a program: the instructions on each stream, and the waits that later instructions inherit.

    Work that the host queues after a `HostWait` begins no earlier than the awaited work is done. So each stream makes
    the host's waits itself, before the next instruction that the host queues on this stream.
    """

    def __init__(self, queued: Queued) -> None:
        self.lanes: dict[str, list[OnStream]] = defaultdict(list)
        self.lanes[COMPUTING] = []
        self._shared_network_streams = set(_shared_network_streams(queued))
        self._stream_of_mark: dict[Hashable, str] = {}
        self._started_collectives: set[Hashable] = set()
        self._pending_collectives: dict[Hashable, None] = {}
        self._host_waits: dict[Hashable, OnStream] = {}  # last wait by source, as a later mark implies earlier marks
        self._num_host_waits = 0
        self._num_host_waits_made: dict[str, int] = defaultdict(int)  # by stream, as the next attribute
        self._host_waits_made: dict[str, dict[Hashable, OnStream]] = defaultdict(dict)
        for instruction, stream in zip(queued.instructions, queued.streams, strict=True):
            self._queue(instruction, stream)

    def _queue(self, instruction: Any, stream: str) -> None:
        """Append an instruction to the lane of its stream, after the host's waits that the stream has not made yet."""
        kind = type(instruction)
        if kind is HostWait:
            self._wait(instruction)
            return
        lane = self.lanes[stream]
        if self._num_host_waits_made[stream] < self._num_host_waits:
            lane += self._missing_waits(stream)
        if kind is StreamMark:
            if self._stream_of_mark.setdefault(instruction.key, stream) is not stream:
                raise SynclineError(f"{instruction} is named twice; expected a key of its own for each mark")
        elif kind is StreamWait:
            if instruction.key not in self._stream_of_mark:
                raise SynclineError(f"{instruction} waits for a mark that is not there; expected one before it")
            if self._stream_of_mark[instruction.key] == stream:
                return
        elif kind is Wait:
            if instruction.key not in self._started_collectives:
                raise SynclineError(
                    f"{instruction} waits for a collective that has not started; expected one before it"
                )
            self._pending_collectives.pop(instruction.key, None)
        elif kind is Collective:
            self._started_collectives.add(instruction.key)
            self._pending_collectives[instruction.key] = None
            if instruction.stream in self._shared_network_streams:
                mark = StreamMark(("joins", instruction.key))
                lane.append(mark)
                self.lanes[f"joins {instruction.stream}"] += StreamWait(mark.key), instruction
                return
        elif kind is First and stream != COMPUTING:
            raise SpecError("queued.streams", stream, f"{COMPUTING!r}, on which alone a program chooses")
        lane.append(instruction)

    def _wait(self, wait: HostWait) -> None:
        """Note what the host waits for: a mark, or the end of all streams and collectives so far."""
        self._num_host_waits += 1
        if wait.key is not None:
            if wait.key not in self._stream_of_mark:
                raise SynclineError(f"{wait} waits for a mark that is not there; expected one before it")
            self._host_waits[self._stream_of_mark[wait.key]] = StreamWait(wait.key, wait.label, wait.step)
            return
        for number, (stream, lane) in enumerate(self.lanes.items()):
            if lane and is_computing(stream):
                mark = StreamMark(("all", len(lane), number))
                lane.append(mark)
                self._host_waits[stream] = StreamWait(mark.key, wait.label, wait.step)
        for key in self._pending_collectives:
            self._host_waits["under way", key] = Wait(key)
        self._pending_collectives.clear()

    def _missing_waits(self, stream: str) -> Iterator[OnStream]:
        """Yield the waits of the host that a stream has not yet made itself."""
        for source, wait in self._host_waits.items():
            if source != stream and self._host_waits_made[stream].get(source) != wait:
                yield wait
        self._num_host_waits_made[stream], self._host_waits_made[stream] = self._num_host_waits, dict(self._host_waits)


def _shared_network_streams(queued: Queued) -> Iterator[str]:
    """Yield the network streams that receive collectives from several streams."""
    first_source: dict[str, str] = {}
    for instruction, stream in zip(queued.instructions, queued.streams, strict=True):
        if type(instruction) is Collective and first_source.setdefault(instruction.stream, stream) != stream:
            yield instruction.stream
