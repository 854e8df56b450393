"""A record: what the ranks of a script computed, sent and waited for, in their order.

A rank's host queues work on streams, as CUDA has them: what is on one stream runs in order, streams run side by side,
and 0 is the stream that a script has without asking. A record is made on a CPU, where the host is the device and none
of that matters; it is noted so that a replay can have either meaning.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Computed(NamedTuple):
    """Operations one after another, with nothing sent or waited for between.

    Attributes:
        segment: place among the record's segments: which operations they were.
        stream: on which they are queued.
    """

    segment: int
    stream: int = 0


class Started(NamedTuple):
    """A collective that a rank joined.

    Attributes:
        call: its number on this rank.
        kind: one of ``syncline.costmodel.collectives.table.COLLECTIVES``, as which it is timed.
        asked: what the script asked for: ``reduce`` is timed as a broadcast, ``scatter`` as a gather, ``barrier`` as an
            all-reduce.
        payload_bytes: as `syncline.costmodel.Call` counts them for its kind.
        ranks: that take part.
        key: group and number in the group: of this collective alone.
        site: the line of the script that called.
        stream: after what is queued there it begins; it runs on a stream of its group's own.
    """

    call: int
    kind: str
    asked: str
    payload_bytes: int
    ranks: tuple[int, ...]
    key: tuple[str, int]
    site: str
    stream: int = 0


class MessageSent(NamedTuple):
    """A message to another rank, which leaves after what is queued on the stream."""

    call: int
    to: int
    payload_bytes: int
    tag: tuple[str, int, int, int]
    site: str
    stream: int = 0


class MessageAwaited(NamedTuple):
    """A message from another rank that is asked for; it is there once it was waited for."""

    call: int
    source: int
    tag: tuple[str, int, int, int]
    site: str
    stream: int = 0


class Waited(NamedTuple):
    """A wait for a call of this rank: of the stream, and of the host where it is the device."""

    call: int
    stream: int = 0


class Marked(NamedTuple):
    """A mark behind what is queued on a stream so far: CUDA's events, none twice on a rank."""

    mark: int
    stream: int = 0


class StreamWaited(NamedTuple):
    """A stream waits until all before a mark is done."""

    mark: int
    stream: int = 0


EVERYTHING = -1
"""The mark of all that a rank has queued anywhere, its calls among it."""


class HostWaited(NamedTuple):
    """The host waits until all before a mark is done: it read a value, or asked for that."""

    mark: int = EVERYTHING


class Stepped(NamedTuple):
    """The end of an optimizer's step."""


class Lost(NamedTuple):
    """A loss that a backward pass began at."""

    loss: float


Event: TypeAlias = (
    Computed | Started | MessageSent | MessageAwaited | Waited | Marked | StreamWaited | HostWaited | Stepped | Lost
)

Operations: TypeAlias = tuple[tuple[float, float], ...]
"""FLOPs and bytes of each operation."""


@dataclass
class RankRecord:
    """What one rank did.

    Args:
        events: in their order.
        segments: operations of each segment, none twice.
        cpu_s: seconds of CPU that the rank took, for people: no clock is made of it.
        segment_cpu_s: of each segment, the median over the times that it was computed; empty if nobody measured.
        notes: what was done otherwise than the script says, for people.
    """

    events: list[Event] = field(default_factory=list)
    segments: list[Operations] = field(default_factory=list)
    cpu_s: float = 0.0
    segment_cpu_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return sum(isinstance(event, Stepped) for event in self.events)

    def by_step(self) -> Iterator[tuple[int, Event]]:
        """Each event with the step that it is part of; a step's end is in the step."""
        step = 0
        for event in self.events:
            yield step, event
            step += isinstance(event, Stepped)

    @property
    def losses(self) -> list[float]:
        """In their order."""
        return [event.loss for event in self.events if isinstance(event, Lost)]


def notes_of(ranks: Iterable[RankRecord]) -> list[str]:
    """What was done otherwise than the script says, each once."""
    return list(dict.fromkeys(note for rank in ranks for note in rank.notes))


def say_notes(ranks: list[RankRecord]) -> list[RankRecord]:
    """Tell the notes, and give the records back."""
    for note in notes_of(ranks):
        print(f"note: {note}", file=sys.stderr)
    return ranks


def payload_bytes(ranks: Iterable[RankRecord]) -> list[int]:
    """Bytes that each rank handed over, messages among them."""
    return [sum(one.payload_bytes for one in rank.events if isinstance(one, Started | MessageSent)) for rank in ranks]
