"""A rank's record as columns, and back: what is kept, and how a rank tells its parent what it did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.costmodel import COLLECTIVES
from syncline.errors import SpecError, one_of
from syncline.measure.recording.record import (
    Computed,
    Event,
    HostWaited,
    Lost,
    Marked,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)

KINDS: dict[str, type[Event]] = {
    "compute": Computed, "collective": Started, "send": MessageSent, "recv": MessageAwaited, "wait": Waited,
    "mark": Marked, "stream_wait": StreamWaited, "host_wait": HostWaited, "step": Stepped, "loss": Lost,
}  # fmt: skip
"""Of an event, as a table calls them."""

NAMES = {kind: name for name, kind in KINDS.items()}

_WORD = pa.dictionary(pa.int32(), pa.string())

EVENTS = pa.schema([
    ("rank", pa.int32()), ("event", _WORD), ("stream", pa.int32()), ("segment", pa.int32()), ("call", pa.int64()),
    ("kind", _WORD), ("asked", _WORD), ("payload_bytes", pa.int64()), ("group", pa.int32()), ("number", pa.int64()),
    ("peer", pa.int32()), ("mark", pa.int64()), ("site", _WORD), ("loss", pa.float64()),
])  # fmt: skip

OPERATIONS = pa.schema([
    ("rank", pa.int32()), ("segment", pa.int32()), ("flops", pa.float64()), ("bytes", pa.float64()),
    ("cpu_s", pa.float64()),
])  # fmt: skip

HAS: dict[type[Event], tuple[str, ...]] = {
    Computed: ("segment", "stream"),
    Started: ("call", "kind", "asked", "payload_bytes", "group", "number", "site", "stream"),
    MessageSent: ("call", "peer", "payload_bytes", "group", "number", "site", "stream"),
    MessageAwaited: ("call", "peer", "group", "number", "site", "stream"),
    Waited: ("call", "stream"),
    Marked: ("mark", "stream"),
    StreamWaited: ("mark", "stream"),
    HostWaited: ("mark",),
    Stepped: (),
    Lost: ("loss",),
}
"""Which columns an event has; the others are null."""

COUNTS = ("stream", "segment", "call", "payload_bytes", "group", "number", "peer")
"""Columns that are not negative."""


class TracedGroups:
    """Groups by number: name and ranks of each. Messages know a name alone, and their groups have no ranks."""

    def __init__(self, known: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
        self.listed = list(known)
        self._numbers = {group: number for number, group in enumerate(self.listed)}

    def number(self, name: str, ranks: tuple[int, ...] = ()) -> int:
        """Of a group, a new one if need be."""
        number = self._numbers.setdefault((name, ranks), len(self.listed))
        if number == len(self.listed):
            self.listed.append((name, ranks))
        return number


def tables_of_rank(rank: int, record: RankRecord, groups: TracedGroups) -> tuple[pa.Table, pa.Table]:
    """A rank's events and operations; groups that are new are added."""
    columns: dict[str, list[Any]] = {name: [] for name in EVENTS.names[1:]}
    for event in record.events:
        told = _fields(event, groups)
        for name, column in columns.items():
            column.append(told.get(name))
    arrays = [pa.array(columns[field.name], field.type.value_type if field.type == _WORD else field.type)
              for field in EVENTS if field.name != "rank"]  # fmt: skip
    events = pa.Table.from_arrays(
        [pa.array(np.full(len(record.events), rank, np.int32)), *(
            one.dictionary_encode() if one.type == pa.string() else one for one in arrays)],
        schema=EVENTS,
    )  # fmt: skip
    counts = [len(one) for one in record.segments]
    flat = np.array([pair for one in record.segments for pair in one], np.float64).reshape(-1, 2)
    operations = pa.table(
        {
            "rank": np.full(len(flat), rank, np.int32),
            "segment": np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            "flops": flat[:, 0],
            "bytes": flat[:, 1],
            "cpu_s": pa.array(np.repeat(record.segment_cpu_s, counts) if record.segment_cpu_s else [None] * len(flat)),
        },
        schema=OPERATIONS,
    )
    return events, operations


def _fields(event: Event, groups: TracedGroups) -> dict[str, Any]:
    told: dict[str, Any] = event._asdict()
    told["event"] = NAMES[type(event)]
    if isinstance(event, Started):
        told |= {"group": groups.number(event.key[0], event.ranks), "number": event.key[1]}
    elif isinstance(event, MessageSent | MessageAwaited):
        peer = event.to if isinstance(event, MessageSent) else event.source
        told |= {"group": groups.number(event.tag[0]), "number": event.tag[3], "peer": peer}
    return told


def rank_of_tables(
    rank: int, events: pa.Table, operations: pa.Table, groups: Sequence[tuple[str, tuple[int, ...]]]
) -> RankRecord:
    """The record of a rank.

    Args:
        rank: whose.
        events: its own rows of the events.
        operations: likewise.
        groups: by number, name and ranks.

    Raises:
        SpecError: a value that no record has, with its column.
    """
    segments = _segments(operations)
    columns: dict[str, list[Any]] = {name: events[name].to_pylist() for name in EVENTS.names}
    for name in COUNTS:
        lowest = pc.min(events[name]).as_py()
        if lowest is not None and lowest < 0:
            raise SpecError(name, lowest, "a number that is not negative")
    for name, limit, what in (
        ("segment", len(segments), f"a segment whose operations are there, below {len(segments)}"),
        ("group", len(groups), f"a group of the header, below {len(groups)}"),
    ):
        highest = pc.max(events[name]).as_py()
        if highest is not None and highest >= limit:
            raise SpecError(name, highest, what)
    for name, known in (("event", KINDS), ("kind", COLLECTIVES)):
        for word in pc.unique(events[name]).to_pylist():
            if word not in known and not (word is None and name == "kind"):
                raise SpecError(name, word, one_of(known, word))
    record = RankRecord([], segments, segment_cpu_s=_measured_s(operations))
    started: set[int] = set()
    for at, word in enumerate(columns["event"]):
        kind = KINDS[word]
        values = {name: columns[name][at] for name in HAS[kind]}
        for name, value in values.items():
            if value is None:
                raise SpecError(name, None, f"a value, as an event {word!r} has one")
        if kind in (Started, MessageSent, MessageAwaited):
            started.add(values["call"])
        elif kind is Waited and values["call"] not in started:
            raise SpecError("call", values["call"], f"a call that rank {rank} has made before it waits for it")
        record.events.append(_event(rank, kind, values, groups))
    return record


def write_rank(stem: Path, rank: int, record: RankRecord) -> None:
    """Leave a rank's record for its parent, in files that begin so; there is a file of the stem itself once all is."""
    groups = TracedGroups()
    events, operations = tables_of_rank(rank, record, groups)
    told = {"groups": json.dumps(groups.listed), "cpu_s": str(record.cpu_s), "notes": json.dumps(record.notes)}
    for name, table in (("events", events.replace_schema_metadata(told)), ("operations", operations)):
        with pa.OSFile(f"{stem}.{name}", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    stem.touch()


def read_rank(stem: Path, rank: int) -> RankRecord:
    """The record that a rank has left."""
    with pa.memory_map(f"{stem}.events") as file, pa.memory_map(f"{stem}.operations") as other:
        events, operations = (pa.ipc.open_file(one).read_all() for one in (file, other))
        told = events.schema.metadata
        groups = [(name, tuple(of)) for name, of in json.loads(told[b"groups"])]
        record = rank_of_tables(rank, events, operations, groups)
    record.cpu_s = float(told[b"cpu_s"])
    record.notes = json.loads(told[b"notes"])
    return record


def _event(rank: int, kind: Any, of: dict[str, Any], groups: Sequence[tuple[str, tuple[int, ...]]]) -> Event:
    if kind not in (Started, MessageSent, MessageAwaited):
        made: Event = kind(**of)
        return made
    name, ranks = groups[of.pop("group")]
    number = of.pop("number")
    if kind is Started:
        return Started(ranks=ranks, key=(name, number), **of)
    peer = of.pop("peer")
    if kind is MessageSent:
        return MessageSent(to=peer, tag=(name, rank, peer, number), **of)
    return MessageAwaited(source=peer, tag=(name, peer, rank, number), **of)


def _measured_s(operations: pa.Table) -> list[float]:
    """What was measured of each segment; nothing, if of one it was not."""
    segment, seconds = (operations[name].to_numpy() for name in ("segment", "cpu_s"))
    begins = np.flatnonzero(np.diff(segment, prepend=-1))
    if operations["cpu_s"].null_count or not len(begins):
        return []
    usable = np.isfinite(seconds) & (seconds >= 0)
    if not usable.all():
        raise SpecError("cpu_s", float(seconds[~usable][0]), "finite seconds that are not negative, or none")
    return [float(one) for one in seconds[begins]]


def _segments(operations: pa.Table) -> list[tuple[tuple[float, float], ...]]:
    """Operations by segment, in their order."""
    segment, flops, nbytes = (operations[name].to_numpy() for name in ("segment", "flops", "bytes"))
    if not len(segment):
        return []
    if segment[0] != 0 or not np.isin(np.diff(segment), (0, 1)).all():
        raise SpecError("segment", "segments out of order", "operations of segments 0, 1, ... one after another")
    for name, column in (("flops", flops), ("bytes", nbytes)):
        usable = np.isfinite(column) & (column >= 0)
        if not usable.all():
            raise SpecError(name, float(column[~usable][0]), "a finite number that is not negative")
    pairs = list(zip(flops.tolist(), nbytes.tolist(), strict=True))
    ends = [*np.flatnonzero(np.diff(segment)).tolist(), len(pairs) - 1]
    begins = [0, *(end + 1 for end in ends[:-1])]
    return [tuple(pairs[begin : end + 1]) for begin, end in zip(begins, ends, strict=True)]
