"""Changes of a record: other software runs the same script."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache

from syncline.measure.recording.record import (
    Computed,
    Counted,
    Event,
    HostWaited,
    Lost,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    Waited,
)

FUSED = 2
"""Kernels that a compiler makes of a run of elementwise operations: one up to a reduction, and one behind it."""


def compiled(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record whose elementwise operations a compiler has joined.

    Of each run of operations between products, the `FUSED` ones that move most bytes remain: what they read and write
    is what joined kernels read and write.
    """
    return [dataclasses.replace(rank, segments=[_fused(segment) for segment in rank.segments]) for rank in ranks]


@cache
def _fused(operations: Operations) -> Operations:
    out: list[Counted] = []
    run: list[Counted] = []
    for operation in operations:
        if operation.flops:
            out += [*_largest(run), operation]
            run = []
        else:
            run.append(operation)
    return (*out, *_largest(run))


def _largest(run: list[Counted]) -> list[Counted]:
    return sorted(run, key=lambda operation: -operation.nbytes)[:FUSED]


def with_async_tp(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record in which the collectives of tensor parallelism overlap with the products beside them.

    They are those that a stream waits for at once. A gather runs beside the computing behind it, and a reduce-scatter
    beside the computing before it, as if both were cut into pieces (asynchronous tensor parallelism).
    """

    def overlapped(rank: RankRecord) -> list[Event]:
        events = list(rank.events)
        for place in range(1, len(events) - 2):
            started, waited, before, behind = (events[place + step] for step in (0, 1, -1, 2))
            if not (isinstance(started, Started) and isinstance(waited, Waited) and waited.call == started.call):
                continue
            if started.stream != waited.stream or len(started.ranks) == len(ranks):
                continue
            if started.kind == "reduce_scatter" and isinstance(before, Computed) and before.stream == started.stream:
                events[place - 1 : place + 1] = started, before
            elif isinstance(behind, Computed) and behind.stream == started.stream:
                events[place + 1 : place + 3] = behind, waited
        return events

    return [dataclasses.replace(rank, events=overlapped(rank)) for rank in ranks]


def without_overlap(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record on one stream in which every collective is waited for immediately after its start.

    Messages stay as they are, because a worker that waits for a message before it sends its own may wait for ever.
    """

    def at_once(rank: RankRecord) -> list[Event]:
        events: list[Event] = []
        calls: set[int] = set()
        for event in rank.events:
            if isinstance(event, Waited) and event.call in calls:
                continue
            changed = event if isinstance(event, HostWaited | Stepped | Lost) else event._replace(stream=0)
            events.append(changed)
            if isinstance(changed, Started):
                calls.add(changed.call)
                events.append(Waited(changed.call))
        return events

    return [dataclasses.replace(rank, events=at_once(rank)) for rank in ranks]


def without_site(ranks: Sequence[RankRecord], site: str) -> list[RankRecord]:
    """Return a record without the communication of one line of the script, and without the waits for it."""
    tags = {
        event.tag
        for rank in ranks
        for event in rank.events
        if isinstance(event, MessageSent | MessageAwaited) and event.site == site
    }

    def remaining(rank: RankRecord) -> list[Event]:
        events: list[Event] = []
        removed: set[int] = set()
        for event in rank.events:
            of_line = isinstance(event, Started) and event.site == site
            of_line |= isinstance(event, MessageSent | MessageAwaited) and event.tag in tags
            if of_line:
                removed.add(event.call)  # type: ignore[union-attr]
            elif not (isinstance(event, Waited) and event.call in removed):
                events.append(event)
        return events

    return [dataclasses.replace(rank, events=remaining(rank)) for rank in ranks]
