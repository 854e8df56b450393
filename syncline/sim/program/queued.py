"""Programs that a host queues on streams, with CUDA's meaning: the host goes on, and queued work runs when it can.

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
    """The host: the work that it has queued on each stream, and its waits."""

    def __init__(self, queued: Queued) -> None:
        self.lanes: dict[str, list[OnStream]] = defaultdict(list)
        self.lanes[COMPUTING] = []
        self._crowded = set(_crowded(queued))
        self._marked: dict[Hashable, str] = {}
        self._joined: set[Hashable] = set()
        self._under_way: dict[Hashable, None] = {}
        self._waited: dict[Hashable, OnStream] = {}  # by source: a stream's later marks are behind its earlier ones
        self._waits = 0
        self._seen: dict[str, tuple[int, dict[Hashable, OnStream]]] = {}
        for instruction, stream in zip(queued.instructions, queued.streams, strict=True):
            self._queue(instruction, stream)

    def _queue(self, instruction: Any, stream: str) -> None:
        kind = type(instruction)
        if kind is HostWait:
            self._wait(instruction)
            return
        lane = self.lanes[stream]
        if self._waits and self._seen.get(stream, (0,))[0] < self._waits:
            lane += self._missing_waits(stream)
        if kind is StreamMark:
            if self._marked.setdefault(instruction.key, stream) is not stream:
                raise SynclineError(f"{instruction} is named twice; expected a key of its own for each mark")
        elif kind is StreamWait:
            if instruction.key not in self._marked:
                raise SynclineError(f"{instruction} waits for a mark that is not there; expected one before it")
            if self._marked[instruction.key] == stream:
                return
        elif kind is Wait:
            if instruction.key not in self._joined:
                raise SynclineError(
                    f"{instruction} waits for a collective that has not started; expected one before it"
                )
            self._under_way.pop(instruction.key, None)
        elif kind is Collective:
            self._joined.add(instruction.key)
            self._under_way[instruction.key] = None
            if instruction.stream in self._crowded:
                mark = StreamMark(("joins", instruction.key))
                lane.append(mark)
                self.lanes[f"joins {instruction.stream}"] += StreamWait(mark.key), instruction
                return
        elif kind is First and stream != COMPUTING:
            raise SpecError("queued.streams", stream, f"{COMPUTING!r}, on which alone a program chooses")
        lane.append(instruction)

    def _wait(self, wait: HostWait) -> None:
        self._waits += 1
        if wait.key is not None:
            if wait.key not in self._marked:
                raise SynclineError(f"{wait} waits for a mark that is not there; expected one before it")
            self._waited[self._marked[wait.key]] = StreamWait(wait.key, wait.label, wait.step)
            return
        for number, (stream, lane) in enumerate(self.lanes.items()):
            if lane and is_computing(stream):
                mark = StreamMark(("all", len(lane), number))
                lane.append(mark)
                self._waited[stream] = StreamWait(mark.key, wait.label, wait.step)
        for key in self._under_way:
            self._waited["under way", key] = Wait(key)
        self._under_way.clear()

    def _missing_waits(self, stream: str) -> Iterator[OnStream]:
        """Yield the waits of the host that a stream has not yet made itself."""
        _, seen = self._seen.get(stream, (0, {}))
        for source, wait in self._waited.items():
            if source != stream and seen.get(source) != wait:
                yield wait
        self._seen[stream] = self._waits, dict(self._waited)


def _crowded(queued: Queued) -> Iterator[str]:
    """Yield the network streams that receive collectives from several streams."""
    origin: dict[str, str] = {}
    for instruction, stream in zip(queued.instructions, queued.streams, strict=True):
        if type(instruction) is Collective and origin.setdefault(instruction.stream, stream) != stream:
            yield instruction.stream
