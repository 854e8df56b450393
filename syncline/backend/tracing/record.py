"""A record: what the ranks of a script computed, sent and waited for, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Computed(NamedTuple):
    """Operations one after another, with nothing sent or waited for between.

    Attributes:
        segment: place among the record's segments: which operations they were.
    """

    segment: int


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
    """

    call: int
    kind: str
    asked: str
    payload_bytes: int
    ranks: tuple[int, ...]
    key: tuple[str, int]
    site: str


class MessageSent(NamedTuple):
    """A message to another rank."""

    call: int
    to: int
    payload_bytes: int
    tag: tuple[str, int, int, int]
    site: str


class MessageAwaited(NamedTuple):
    """A message from another rank that is asked for; it is there once it was waited for."""

    call: int
    source: int
    tag: tuple[str, int, int, int]
    site: str


class Waited(NamedTuple):
    """A wait for a call of this rank."""

    call: int


class Stepped(NamedTuple):
    """The end of an optimizer's step."""


class Lost(NamedTuple):
    """A loss that a backward pass began at."""

    loss: float


Event: TypeAlias = Computed | Started | MessageSent | MessageAwaited | Waited | Stepped | Lost

Operations: TypeAlias = tuple[tuple[float, float], ...]
"""FLOPs and bytes of each operation."""


@dataclass
class RankRecord:
    """What one rank did.

    Args:
        events: in their order.
        segments: operations of each segment, none twice.
        cpu_s: seconds of CPU that the rank took, for people: no clock is made of it.
    """

    events: list[Event] = field(default_factory=list)
    segments: list[Operations] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return sum(isinstance(event, Stepped) for event in self.events)

    @property
    def losses(self) -> list[float]:
        """In their order."""
        return [event.loss for event in self.events if isinstance(event, Lost)]


def payload_bytes(ranks: Iterable[RankRecord]) -> list[int]:
    """Bytes that each rank handed over, messages among them."""
    return [sum(one.payload_bytes for one in rank.events if isinstance(one, Started | MessageSent)) for rank in ranks]
