"""Records that were written by hand."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel import Hardware, Link
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Event,
    Loss,
    Operations,
    RankRecord,
    Started,
    Stepped,
    Waited,
)

SLOW = Hardware("slow", 1e9, 1.0, "fp32", "made up", memory_bytes_per_s=1e9)
LINK = Link(1e-3, 1e6, "link")
SECOND = (CountedOperation(1e9, 0.0),)


def started(call: int, number: int, nbytes: int, ranks: tuple[int, ...] = (0, 1), kind: str = "all_reduce") -> Started:
    return Started(call, kind, kind, nbytes, ranks, ("all", number), "train.py:7")


def step(number: int, nbytes: int) -> list[Event]:
    """A call beside half of the computing."""
    return [
        Computed(0),
        started(number + 1, number, nbytes),
        Computed(0),
        Waited(number + 1),
        Loss(1 / (number + 1)),
        Stepped(),
    ]


def rank(*events: Event, segments: Sequence[Operations] = (SECOND,)) -> RankRecord:
    return RankRecord(list(events), list(segments))


def both(steps: int, nbytes: int = 5_000_000) -> list[RankRecord]:
    """Two ranks that do the same; of 5 MB a ring takes 5.002 s on the link, of which a second is hidden."""
    return [rank(*(event for number in range(steps) for event in step(number, nbytes))) for _ in range(2)]
