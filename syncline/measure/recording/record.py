"""Records: the computation, messages and waits of the ranks of a script, in their order.

The host of a rank queues work on streams as in CUDA: the work of one stream runs in order, several streams run in
parallel, and stream 0 is the default stream. During the recording on a CPU the host is the device, so streams have no
effect. The record contains the streams so that a replay can simulate a CPU or a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from syncline.costmodel.compute.operations import Kind


class Computed(NamedTuple):
    """Consecutive operations without another event between them.

    Attributes:
        segment: index into the record's segments, which contain the operations.
        stream: the stream on which the operations are queued.
    """

    segment: int
    stream: int = 0


class Started(NamedTuple):
    """A collective that a rank joined.

    Attributes:
        call: the number of the call on this rank.
        kind: one of ``syncline.costmodel.collectives.table.COLLECTIVES``, which determines the time.
        asked: the collective in the script: ``scatter`` is timed as a gather, ``barrier`` as an all-reduce.
        payload_bytes: bytes as `syncline.costmodel.Call` counts them for the kind.
        ranks: the ranks that take part.
        key: the group and the number of the collective in the group, which together are unique.
        site: the line of the script that called the collective.
        stream: the stream whose queued work precedes the collective; the collective runs on a stream of its group.
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
    """A message to another rank, which leaves after the work that is queued on the stream.

    The tag is the name of the group, the sender, the receiver, and the number of the message between these two.
    """

    call: int
    to: int
    payload_bytes: int
    tag: tuple[str, int, int, int]
    site: str
    stream: int = 0


class MessageAwaited(NamedTuple):
    """The start of a receive from another rank; the message has arrived once the rank has waited for this call."""

    call: int
    source: int
    tag: tuple[str, int, int, int]
    site: str
    stream: int = 0


class Waited(NamedTuple):
    """A wait of a stream for a call of this rank; the host waits too if it runs the work itself, as on a CPU."""

    call: int
    stream: int = 0


class Marked(NamedTuple):
    """A mark behind the queued work of a stream, like a recorded CUDA event; its number is unique on a rank."""

    mark: int
    stream: int = 0


class StreamWaited(NamedTuple):
    """A wait of a stream for all work before a mark."""

    mark: int
    stream: int = 0


EVERYTHING = -1
"""The mark that stands for all work that a rank has queued on any stream, including its calls."""


class HostWaited(NamedTuple):
    """A wait of the host for all work before a mark, because the script reads a value or synchronizes."""

    mark: int = EVERYTHING


class Stepped(NamedTuple):
    """The end of an optimizer's step."""


class Loss(NamedTuple):
    """The begin of a backward pass, with the value of the loss."""

    loss: float


Event: TypeAlias = (
    Computed | Started | MessageSent | MessageAwaited | Waited | Marked | StreamWaited | HostWaited | Stepped | Loss
)


class CountedOperation(NamedTuple):
    """An operation that a rank has dispatched, with its cost.

    Attributes:
        flops: its FLOPs; a causal mask halves those of attention.
        nbytes: bytes that it reads and writes.
        kind: a kind of `syncline.costmodel.compute.operations.Operation`.
        precision: number format of a product or of attention.
        shape: see `Operation`.
        causal: see `Operation`.
    """

    flops: float
    nbytes: float
    kind: Kind = "memory"
    precision: str = ""
    shape: tuple[float, ...] = ()
    causal: bool = False


Operations: TypeAlias = tuple[CountedOperation, ...]


@dataclass
class RankRecord:
    """The record of one rank.

    Args:
        segments: the operations of each segment, the computing between two events; equal segments are stored once.
        cpu_s: CPU seconds of the rank, for information; the simulation does not use them.
        segment_cpu_s: median CPU seconds of each segment over its runs; empty if they were not measured.
        notes: sentences for the user, on what the recorded run did otherwise than the script would without recording.
    """

    events: list[Event] = field(default_factory=list)
    segments: list[Operations] = field(default_factory=list)
    cpu_s: float = 0.0
    segment_cpu_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps that the rank has recorded."""
        return sum(isinstance(event, Stepped) for event in self.events)

    def by_step(self) -> Iterator[tuple[int, Event]]:
        """Yield each event with the number of its step; the end of a step belongs to the step."""
        step = 0
        for event in self.events:
            yield step, event
            step += isinstance(event, Stepped)

    @property
    def losses(self) -> list[float]:
        """Return the losses that the rank has recorded, in order."""
        return [event.loss for event in self.events if isinstance(event, Loss)]


def notes_of(ranks: Iterable[RankRecord]) -> list[str]:
    """Return the notes of all ranks without duplicates."""
    return list(dict.fromkeys(note for rank in ranks for note in rank.notes))


def print_notes(ranks: list[RankRecord]) -> list[RankRecord]:
    """Print the records' notes to standard error, and return the records."""
    for note in notes_of(ranks):
        print(f"note: {note}", file=sys.stderr)
    return ranks
