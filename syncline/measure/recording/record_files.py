"""Records of ranks as tables: Arrow files by which a rank passes its record to its parent, and Parquet in a folder.

A folder has ``trace.parquet`` (events, ordered by rank and then as they happened) and ``operations.parquet``
(operations, by rank and segment). JSON in the metadata of ``trace.parquet`` has the format's version, the number of
ranks, the groups, and notes on differences between the recorded run and the script. The files are written and read one
rank at a time, so that the rows of two ranks are never in memory together.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.costmodel import COLLECTIVES
from syncline.costmodel.compute.kernel_rates import FORMATS
from syncline.costmodel.compute.operations import Kind
from syncline.errors import SpecError, one_of, within
from syncline.measure.recording.record import (
    Computed,
    Counted,
    Event,
    HostWaited,
    Lost,
    Marked,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
    notes_of,
)

KINDS: dict[str, type[Event]] = {
    "compute": Computed, "collective": Started, "send": MessageSent, "recv": MessageAwaited, "wait": Waited,
    "mark": Marked, "stream_wait": StreamWaited, "host_wait": HostWaited, "step": Stepped, "loss": Lost,
}  # fmt: skip
"""The class of each kind of event, by its name in a table."""

NAMES = {kind: name for name, kind in KINDS.items()}

_WORD = pa.dictionary(pa.int32(), pa.string())

EVENTS = pa.schema([
    ("rank", pa.int32()), ("event", _WORD), ("stream", pa.int32()), ("segment", pa.int32()), ("call", pa.int64()),
    ("kind", _WORD), ("asked", _WORD), ("payload_bytes", pa.int64()), ("group", pa.int32()), ("number", pa.int64()),
    ("peer", pa.int32()), ("mark", pa.int64()), ("site", _WORD), ("loss", pa.float64()),
])  # fmt: skip

OPERATIONS = pa.schema([
    ("rank", pa.int32()), ("segment", pa.int32()), ("flops", pa.float64()), ("bytes", pa.float64()),
    ("cpu_s", pa.float64()), ("kind", _WORD), ("precision", _WORD), ("shape", pa.list_(pa.float64())),
    ("causal", pa.bool_()),
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
"""The columns that each kind of event has; its other columns are null."""

COUNTS = ("stream", "segment", "call", "payload_bytes", "group", "number", "peer")
"""Columns whose values are not negative."""


class TracedGroups:
    """A numbered list of groups with name and ranks; groups of messages have a name and no ranks."""

    def __init__(self) -> None:
        self.listed: list[tuple[str, tuple[int, ...]]] = []
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}

    def number(self, name: str, ranks: tuple[int, ...] = ()) -> int:
        """Return the number of a group, and add the group if it is new."""
        number = self._numbers.setdefault((name, ranks), len(self.listed))
        if number == len(self.listed):
            self.listed.append((name, ranks))
        return number


def tables_of_rank(rank: int, record: RankRecord, groups: TracedGroups) -> tuple[pa.Table, pa.Table]:
    """Return the tables of a rank's events and operations, and add new groups to ``groups``."""
    event_rows = []
    for event in record.events:
        row: dict[str, Any] = event._asdict() | {"rank": rank, "event": NAMES[type(event)]}
        if isinstance(event, Started):
            row |= {"group": groups.number(event.key[0], event.ranks), "number": event.key[1]}
        elif isinstance(event, MessageSent | MessageAwaited):
            peer = event.to if isinstance(event, MessageSent) else event.source
            row |= {"group": groups.number(event.tag[0]), "number": event.tag[3], "peer": peer}
        event_rows.append(row)
    counts = [len(segment) for segment in record.segments]
    flat = [operation for segment in record.segments for operation in segment]
    operations = {
        "rank": [rank] * len(flat),
        "segment": np.repeat(np.arange(len(counts)), counts),
        "cpu_s": np.repeat(record.segment_cpu_s, counts) if record.segment_cpu_s else [None] * len(flat),
        "bytes": [operation.nbytes for operation in flat],
    } | {name: [getattr(operation, name) for operation in flat] for name in Counted._fields if name != "nbytes"}
    return pa.Table.from_pylist(event_rows, schema=EVENTS), pa.table(operations, schema=OPERATIONS)


def rank_of_tables(
    rank: int, events: pa.Table, operations: pa.Table, groups: Sequence[tuple[str, tuple[int, ...]]]
) -> RankRecord:
    """Return the record of a rank from its tables; ``groups`` has the name and the ranks of each group, by number."""
    segments = _segments(operations)
    columns: dict[str, list[Any]] = {name: events[name].to_pylist() for name in EVENTS.names}
    for name in COUNTS:
        lowest = pc.min(events[name]).as_py()
        if lowest is not None and lowest < 0:
            raise SpecError(name, lowest, "a number that is not negative")
    for name, limit, expected in (
        ("segment", len(segments), f"a segment whose operations are there, below {len(segments)}"),
        ("group", len(groups), f"a group of the header, below {len(groups)}"),
    ):
        highest = pc.max(events[name]).as_py()
        if highest is not None and highest >= limit:
            raise SpecError(name, highest, expected)
    for name, names in (("event", KINDS), ("kind", COLLECTIVES)):
        for word in pc.unique(events[name]).to_pylist():
            if word not in names and not (word is None and name == "kind"):
                raise SpecError(name, word, one_of(names, word))
    record = RankRecord([], segments, segment_cpu_s=_measured_s(operations))
    started_calls: set[int] = set()
    for row, word in enumerate(columns["event"]):
        kind = KINDS[word]
        values = {name: columns[name][row] for name in HAS[kind]}
        for name, value in values.items():
            if value is None:
                raise SpecError(name, None, f"a value, as an event {word!r} has one")
        if kind in (Started, MessageSent, MessageAwaited):
            started_calls.add(values["call"])
        elif kind is Waited and values["call"] not in started_calls:
            raise SpecError("call", values["call"], f"a call that rank {rank} has made before it waits for it")
        record.events.append(_event(rank, kind, fields=values, groups=groups))
    return record


def write_rank(stem: Path, rank: int, record: RankRecord) -> None:
    """Write a rank's record to files whose names begin with ``stem``; the file ``stem`` marks them as complete."""
    groups = TracedGroups()
    events, operations = tables_of_rank(rank, record, groups)
    metadata = {"groups": json.dumps(groups.listed), "cpu_s": str(record.cpu_s), "notes": json.dumps(record.notes)}
    for name, table in (("events", events.replace_schema_metadata(metadata)), ("operations", operations)):
        with pa.OSFile(f"{stem}.{name}", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    stem.touch()


def read_rank(stem: Path, rank: int) -> RankRecord:
    """Return the record that a rank has written."""
    with pa.memory_map(f"{stem}.events") as file, pa.memory_map(f"{stem}.operations") as operations_file:
        events, operations = (pa.ipc.open_file(source).read_all() for source in (file, operations_file))
        metadata = events.schema.metadata
        groups = [(name, tuple(ranks)) for name, ranks in json.loads(metadata[b"groups"])]
        record = rank_of_tables(rank, events, operations, groups)
    record.cpu_s = float(metadata[b"cpu_s"])
    record.notes = json.loads(metadata[b"notes"])
    return record


def _event(rank: int, kind: Any, fields: dict[str, Any], groups: Sequence[tuple[str, tuple[int, ...]]]) -> Event:
    """Return an event from its row in a table, where a group is a number that indexes ``groups``."""
    if "group" not in fields:
        event: Event = kind(**fields)
        return event
    name, ranks = groups[fields.pop("group")]
    number = fields.pop("number")
    if kind is Started:
        return Started(ranks=ranks, key=(name, number), **fields)
    peer = fields.pop("peer")
    if kind is MessageSent:
        return MessageSent(to=peer, tag=(name, rank, peer, number), **fields)
    return MessageAwaited(source=peer, tag=(name, peer, rank, number), **fields)


def _measured_s(operations: pa.Table) -> list[float]:
    """Return the measured CPU seconds of each segment; an empty list if a segment has none."""
    segment, seconds = (operations[name].to_numpy() for name in ("segment", "cpu_s"))
    begins = np.flatnonzero(np.diff(segment, prepend=-1))
    if operations["cpu_s"].null_count or not len(begins):
        return []
    usable = np.isfinite(seconds) & (seconds >= 0)
    if not usable.all():
        raise SpecError("cpu_s", float(seconds[~usable][0]), "finite seconds that are not negative, or none")
    return [float(value) for value in seconds[begins]]


def _segments(operations: pa.Table) -> list[Operations]:
    """Return the operations of each segment, in the order of the segments."""
    segment, flops, nbytes = (operations[name].to_numpy() for name in ("segment", "flops", "bytes"))
    if not len(segment):
        return []
    if segment[0] != 0 or not np.isin(np.diff(segment), (0, 1)).all():
        raise SpecError("segment", "segments out of order", "operations of segments 0, 1, ... one after another")
    for name, column in (("flops", flops), ("bytes", nbytes)):
        usable = np.isfinite(column) & (column >= 0)
        if not usable.all():
            raise SpecError(name, float(column[~usable][0]), "a finite number that is not negative")
    for name, names in (("kind", get_args(Kind)), ("precision", ("", *FORMATS))):
        for word in pc.unique(operations[name]).to_pylist():
            if word not in names:
                raise SpecError(name, word, one_of(names, word))
    shapes = [tuple(shape) for shape in operations["shape"].to_pylist()]
    kinds, precisions, causal = (operations[name].to_pylist() for name in ("kind", "precision", "causal"))
    values = zip(flops.tolist(), nbytes.tolist(), kinds, precisions, shapes, causal, strict=True)
    counted_operations = [Counted(*fields) for fields in values]
    bounds = [0, *(np.flatnonzero(np.diff(segment)) + 1).tolist(), len(counted_operations)]
    return [tuple(counted_operations[begin:end]) for begin, end in itertools.pairwise(bounds)]


FORMAT = 2
"""The version of the file format; a reader accepts this version only."""

HEADER = b"syncline.trace"
FILES = {"trace": EVENTS, "operations": OPERATIONS}


def parts_of_record(ranks: Sequence[RankRecord]) -> dict[str, Iterator[pa.Table]]:
    """Return the tables of a record by file name; each is an iterator with one table per rank."""
    groups = TracedGroups()
    for record in ranks:
        for event in record.events:
            if isinstance(event, Started):
                groups.number(event.key[0], event.ranks)
            elif isinstance(event, MessageSent | MessageAwaited):
                groups.number(event.tag[0])
    header = {
        "format": FORMAT, "ranks": len(ranks), "groups": [[name, list(members)] for name, members in groups.listed],
        "notes": notes_of(ranks),
    }  # fmt: skip
    metadata = {HEADER: json.dumps(header)}
    return {
        "trace": (
            tables_of_rank(rank, record, groups)[0].replace_schema_metadata(metadata)
            for rank, record in enumerate(ranks)
        ),
        "operations": (tables_of_rank(rank, record, groups)[1] for rank, record in enumerate(ranks)),
    }


def read_record(folder: Path) -> list[RankRecord]:
    """Return the record that a folder has.

    Raises:
        SpecError: the folder has no record, or one that this version cannot read; the message says why.
    """
    for name in FILES:
        if not (folder / f"{name}.parquet").is_file():
            raise SpecError("record", str(folder), f"the folder of a trace, with {name}.parquet")
    with within(f"record.{folder / 'trace.parquet'}"), _opened(folder, "trace") as trace:
        header = _header(trace)
        with _opened(folder, "operations") as operations:
            rows = zip(_by_rank(trace, header["ranks"]), _by_rank(operations, header["ranks"]), strict=True)
            ranks = [rank_of_tables(rank, *both, header["groups"]) for rank, both in enumerate(rows)]
    for record in ranks:
        record.notes = list(header["notes"])
    return ranks


def _opened(folder: Path, name: str) -> pq.ParquetFile:
    """Open a file of a record, and check the types of its columns."""
    try:
        file = pq.ParquetFile(folder / f"{name}.parquet")
    except (OSError, pa.ArrowException) as error:
        line = str(error).splitlines()[0]
        raise SpecError(name, str(folder / f"{name}.parquet"), f"a file of Parquet ({line})") from None
    for field in FILES[name]:
        index = file.schema_arrow.get_field_index(field.name)
        stored_type = file.schema_arrow.field(index).type if index >= 0 else "no such column"
        if stored_type != field.type:
            raise SpecError(f"{name}.{field.name}", str(stored_type), f"a column of type {field.type}")
    return file


def _header(trace: pq.ParquetFile) -> dict[str, Any]:
    """Return the header of a record: ``ranks``, ``groups`` and ``notes``."""
    text = (trace.schema_arrow.metadata or {}).get(HEADER)
    if text is None:
        raise SpecError("header", None, f"the header of a record, {HEADER.decode()!r} in the file's metadata")
    try:
        header = json.loads(text)
        if header["format"] != FORMAT:
            raise SpecError("header.format", header["format"], f"{FORMAT}, which this version of Syncline reads")
        ranks = int(header["ranks"])
        groups = [(str(name), tuple(int(rank) for rank in members)) for name, members in header["groups"]]
        notes = [str(note) for note in header.get("notes", [])]
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError("header", text.decode(errors="replace"), f"format, ranks and groups ({error!r})") from None
    for _, members in groups:
        if not all(0 <= rank < ranks for rank in members):
            raise SpecError("header.groups", list(members), f"ranks below {ranks}")
    return {"ranks": ranks, "groups": groups, "notes": notes}


def _by_rank(file: pq.ParquetFile, ranks: int) -> Iterator[pa.Table]:
    """Yield the rows of each rank, which are in the order of ranks; a row group is read when its rows are needed."""
    schema, unread, group = file.schema_arrow, None, 0
    for rank in range(ranks):
        slices: list[pa.Table] = []
        while unread is not None or group < file.num_row_groups:
            if unread is None:
                try:
                    unread = file.read_row_group(group)
                except (OSError, pa.ArrowException) as error:
                    raise SpecError("rows", f"row group {group}", f"rows that can be read ({error})") from None
                group += 1
            num_rows = pc.sum(pc.less_equal(unread["rank"], rank)).as_py() or 0
            slices.append(unread.slice(0, num_rows))
            if num_rows < len(unread):
                unread = unread.slice(num_rows)
                break
            unread = None
        rows = pa.concat_tables(slices) if slices else schema.empty_table()
        if len(rows) and not pc.all(pc.equal(rows["rank"], rank)).as_py():
            raise SpecError("rank", "ranks out of order", f"rows of ranks 0, 1, ... {ranks - 1}, one after another")
        yield rows
    if unread is not None or group < file.num_row_groups:
        raise SpecError("rank", "rows of more ranks", f"rows of the {ranks} ranks of the header")
