"""Records of ranks as tables: Arrow files by which a rank passes its record to its parent, and Parquet in a folder.

A folder has ``trace.parquet`` (events, ordered by rank and then as they happened) and ``operations.parquet``
(operations, by rank and segment). JSON in the metadata of ``trace.parquet`` has the format's version, the number of
ranks, the groups, and notes on differences between the recorded run and the script. The files are written and read one
rank at a time, so that the rows of two ranks are never in memory together.
"""

from __future__ import annotations

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
from syncline.errors import SpecError, require_one_of, within
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Event,
    HostWaited,
    Loss,
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

EVENT_CLASSES: dict[str, type[Event]] = {
    "compute": Computed, "collective": Started, "send": MessageSent, "recv": MessageAwaited, "wait": Waited,
    "mark": Marked, "stream_wait": StreamWaited, "host_wait": HostWaited, "step": Stepped, "loss": Loss,
}  # fmt: skip
"""The class of each kind of event, by its name in a table."""

EVENT_NAMES = {event_class: name for name, event_class in EVENT_CLASSES.items()}

_WORD = pa.dictionary(pa.int32(), pa.string())

EVENT_SCHEMA = pa.schema([
    ("rank", pa.int32()), ("event", _WORD), ("stream", pa.int32()), ("segment", pa.int32()), ("call", pa.int64()),
    ("kind", _WORD), ("asked", _WORD), ("payload_bytes", pa.int64()), ("group", pa.int32()), ("number", pa.int64()),
    ("peer", pa.int32()), ("mark", pa.int64()), ("site", _WORD), ("loss", pa.float64()),
])  # fmt: skip

OPERATION_SCHEMA = pa.schema([
    ("rank", pa.int32()), ("segment", pa.int32()), ("flops", pa.float64()), ("bytes", pa.float64()),
    ("cpu_s", pa.float64()), ("kind", _WORD), ("precision", _WORD), ("shape", pa.list_(pa.float64())),
    ("causal", pa.bool_()),
])  # fmt: skip

COLUMNS_OF_EVENT: dict[type[Event], tuple[str, ...]] = {
    Computed: ("segment", "stream"),
    Started: ("call", "kind", "asked", "payload_bytes", "group", "number", "site", "stream"),
    MessageSent: ("call", "peer", "payload_bytes", "group", "number", "site", "stream"),
    MessageAwaited: ("call", "peer", "group", "number", "site", "stream"),
    Waited: ("call", "stream"),
    Marked: ("mark", "stream"),
    StreamWaited: ("mark", "stream"),
    HostWaited: ("mark",),
    Stepped: (),
    Loss: ("loss",),
}
"""The columns that each kind of event has; its other columns are null."""

NON_NEGATIVE_COLUMNS = ("stream", "segment", "call", "payload_bytes", "group", "number", "peer")
"""Columns whose values are not negative."""


class GroupList:
    """The process groups of a record, each with its name and ranks; groups of messages have a name and no ranks.

    A row of a table refers to a group by its index in ``groups``.
    """

    def __init__(self) -> None:
        self.groups: list[tuple[str, tuple[int, ...]]] = []
        self._indices: dict[tuple[str, tuple[int, ...]], int] = {}

    def add_group_of(self, event: Started | MessageSent | MessageAwaited) -> int:
        """Add the group of a collective or a message unless it is in the list, and return its index."""
        group_name, *_ = event.key if isinstance(event, Started) else event.tag
        group = (group_name, event.ranks if isinstance(event, Started) else ())
        if group not in self._indices:
            self._indices[group] = len(self.groups)
            self.groups.append(group)
        return self._indices[group]


def event_table(rank: int, record: RankRecord, groups: GroupList) -> pa.Table:
    """Return the table of a rank's events, and add new groups to ``groups``."""
    event_rows = []
    for event in record.events:
        row: dict[str, Any] = event._asdict() | {"rank": rank, "event": EVENT_NAMES[type(event)]}
        if isinstance(event, Started):
            _, number = event.key
            row |= {"group": groups.add_group_of(event), "number": number}
        elif isinstance(event, MessageSent | MessageAwaited):
            *_, number = event.tag
            peer = event.to if isinstance(event, MessageSent) else event.source
            row |= {"group": groups.add_group_of(event), "number": number, "peer": peer}
        event_rows.append(row)
    # The schema leaves out fields without a column, such as a message's tag.
    return pa.Table.from_pylist(event_rows, schema=EVENT_SCHEMA)


def operation_table(rank: int, record: RankRecord) -> pa.Table:
    """Return the table of the operations in a rank's segments."""
    operations = [operation for segment in record.segments for operation in segment]
    segment_lengths = [len(segment) for segment in record.segments]
    columns: dict[str, Any] = {"rank": [rank] * len(operations)}
    for name in CountedOperation._fields:
        columns["bytes" if name == "nbytes" else name] = [getattr(operation, name) for operation in operations]
    columns["segment"] = np.repeat(np.arange(len(segment_lengths)), segment_lengths)
    columns["cpu_s"] = [None] * len(operations)
    if record.segment_cpu_s:
        columns["cpu_s"] = np.repeat(record.segment_cpu_s, segment_lengths)
    return pa.table(columns, schema=OPERATION_SCHEMA)


def rank_record_from_tables(
    rank: int, events: pa.Table, operations: pa.Table, groups: Sequence[tuple[str, tuple[int, ...]]]
) -> RankRecord:
    """Return the record of a rank from its tables of events and operations.

    Args:
        groups: the name and the ranks of each group; a row refers to a group by its index here.

    Raises:
        SpecError: a value is missing or out of range.
    """
    segments = _segments(operations)
    columns: dict[str, list[Any]] = {name: events[name].to_pylist() for name in EVENT_SCHEMA.names}
    _check_event_values(events, num_segments=len(segments), num_groups=len(groups))
    record = RankRecord(segments=segments, segment_cpu_s=_measured_s(operations))
    started_calls: set[int] = set()
    for row, event_name in enumerate(columns["event"]):
        event_class = EVENT_CLASSES[event_name]
        values = {name: columns[name][row] for name in COLUMNS_OF_EVENT[event_class]}
        for name, value in values.items():
            if value is None:
                raise SpecError(name, None, f"a value, as an event {event_name!r} has one")
        if event_class in (Started, MessageSent, MessageAwaited):
            started_calls.add(values["call"])
        elif event_class is Waited and values["call"] not in started_calls:
            raise SpecError("call", values["call"], f"a call that rank {rank} has made before it waits for it")
        record.events.append(_event_from_row(rank, event_class, values, groups))
    return record


def _check_event_values(events: pa.Table, num_segments: int, num_groups: int) -> None:
    """Check that the numbers in a table of events are in range, and that its texts are names of kinds."""
    for name in NON_NEGATIVE_COLUMNS:
        lowest = pc.min(events[name]).as_py()
        if lowest is not None and lowest < 0:
            raise SpecError(name, lowest, "a number that is not negative")
    for name, limit, expected in (
        ("segment", num_segments, f"a segment whose operations are there, below {num_segments}"),
        ("group", num_groups, f"a group of the header, below {num_groups}"),
    ):
        highest = pc.max(events[name]).as_py()
        if highest is not None and highest >= limit:
            raise SpecError(name, highest, expected)
    kinds = events["kind"].drop_null()  # most events have no kind
    for name, words, known_words in (("event", events["event"], EVENT_CLASSES), ("kind", kinds, COLLECTIVES)):
        for word in pc.unique(words).to_pylist():
            require_one_of(name, word, known_words)


def write_rank(stem: Path, rank: int, record: RankRecord) -> None:
    """Write a rank's record to files whose names begin with ``stem``; the file ``stem`` marks them as complete."""
    groups = GroupList()
    events = event_table(rank, record, groups)
    metadata = {"groups": json.dumps(groups.groups), "cpu_s": str(record.cpu_s), "notes": json.dumps(record.notes)}
    events = events.replace_schema_metadata(metadata)
    for name, table in (("events", events), ("operations", operation_table(rank, record))):
        with pa.OSFile(f"{stem}.{name}", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    stem.touch()


def read_rank(stem: Path, rank: int) -> RankRecord:
    """Return the record of a rank from the files that `write_rank` has written."""
    with pa.memory_map(f"{stem}.events") as events_file, pa.memory_map(f"{stem}.operations") as operations_file:
        events = pa.ipc.open_file(events_file).read_all()
        operations = pa.ipc.open_file(operations_file).read_all()
        metadata = events.schema.metadata
        groups = [(name, tuple(ranks)) for name, ranks in json.loads(metadata[b"groups"])]
        record = rank_record_from_tables(rank, events, operations, groups)
    record.cpu_s = float(metadata[b"cpu_s"])
    record.notes = json.loads(metadata[b"notes"])
    return record


def _event_from_row(
    rank: int, event_class: Any, row: dict[str, Any], groups: Sequence[tuple[str, tuple[int, ...]]]
) -> Event:
    """Return the event of a row and remove columns from the row; its ``group`` is an index into ``groups``."""
    if "group" not in row:  # neither a collective nor a message
        event: Event = event_class(**row)
        return event
    group_name, ranks = groups[row.pop("group")]
    number = row.pop("number")
    if event_class is Started:
        return Started(ranks=ranks, key=(group_name, number), **row)
    peer = row.pop("peer")
    if event_class is MessageSent:
        return MessageSent(to=peer, tag=(group_name, rank, peer, number), **row)
    return MessageAwaited(source=peer, tag=(group_name, peer, rank, number), **row)


def _measured_s(operations: pa.Table) -> list[float]:
    """Return the measured CPU seconds of each segment; an empty list if a segment has none."""
    segment_numbers, seconds = operations["segment"].to_numpy(), operations["cpu_s"].to_numpy()
    # Each row of a segment repeats the segment's seconds, so the first row suffices.
    first_rows = np.flatnonzero(np.diff(segment_numbers, prepend=-1))
    if operations["cpu_s"].null_count or not len(first_rows):
        return []
    usable = np.isfinite(seconds) & (seconds >= 0)
    if not usable.all():
        raise SpecError("cpu_s", float(seconds[~usable][0]), "finite seconds that are not negative, or none")
    return [float(value) for value in seconds[first_rows]]


def _segments(operations: pa.Table) -> list[Operations]:
    """Return the operations of each segment, in the order of the segments."""
    segment_numbers = operations["segment"].to_numpy()
    if not len(segment_numbers):
        return []
    if segment_numbers[0] != 0 or not np.isin(np.diff(segment_numbers), (0, 1)).all():
        raise SpecError("segment", "segments out of order", "operations of segments 0, 1, ... one after another")
    for name in ("flops", "bytes"):
        column = operations[name].to_numpy()
        usable = np.isfinite(column) & (column >= 0)
        if not usable.all():
            raise SpecError(name, float(column[~usable][0]), "a finite number that is not negative")
    for name, names in (("kind", get_args(Kind)), ("precision", ("", *FORMATS))):
        for word in pc.unique(operations[name]).to_pylist():
            require_one_of(name, word, names)
    segments: list[list[CountedOperation]] = [[] for _ in range(segment_numbers[-1] + 1)]
    columns = [operations[name].to_pylist() for name in ("flops", "bytes", "kind", "precision", "shape", "causal")]
    for segment, flops, nbytes, kind, precision, shape, causal in zip(segment_numbers.tolist(), *columns, strict=True):
        segments[segment].append(CountedOperation(flops, nbytes, kind, precision, tuple(shape), causal))
    return [tuple(segment) for segment in segments]


RECORD_FORMAT = 2
"""The version of the file format; a reader accepts this version only."""

HEADER_KEY = b"syncline.trace"
SCHEMAS = {"trace": EVENT_SCHEMA, "operations": OPERATION_SCHEMA}


def record_tables(ranks: Sequence[RankRecord]) -> dict[str, Iterator[pa.Table]]:
    """Return the tables ``trace`` and ``operations`` of a record, each as an iterator with one table per rank.

    The iterators convert one rank at a time, so that the tables of two ranks are never in memory together.
    """
    groups = GroupList()
    for record in ranks:  # the header, which precedes all rows, lists the groups of all ranks
        for event in record.events:
            if isinstance(event, Started | MessageSent | MessageAwaited):
                groups.add_group_of(event)
    header = {"format": RECORD_FORMAT, "ranks": len(ranks), "groups": groups.groups, "notes": notes_of(ranks)}
    metadata = {HEADER_KEY: json.dumps(header)}
    events = (event_table(rank, record, groups) for rank, record in enumerate(ranks))
    return {
        "trace": (table.replace_schema_metadata(metadata) for table in events),
        "operations": (operation_table(rank, record) for rank, record in enumerate(ranks)),
    }


def read_record(folder: Path) -> list[RankRecord]:
    """Return the record of each rank from the Parquet files in a folder.

    Raises:
        SpecError: the folder has no record, or one that this version cannot read; the message says why.
    """
    for name in SCHEMAS:
        if not (folder / f"{name}.parquet").is_file():
            raise SpecError("record", str(folder), f"the folder of a trace, with {name}.parquet")
    records = []
    with within(f"record.{folder / 'trace.parquet'}"), _open_table(folder, "trace") as trace:
        header = _read_header(trace)
        with _open_table(folder, "operations") as operations:
            tables = zip(_rows_by_rank(trace, header["ranks"]), _rows_by_rank(operations, header["ranks"]), strict=True)
            for rank, (rank_events, rank_operations) in enumerate(tables):
                record = rank_record_from_tables(rank, rank_events, rank_operations, header["groups"])
                record.notes = list(header["notes"])
                records.append(record)
    return records


def _open_table(folder: Path, name: str) -> pq.ParquetFile:
    """Open the Parquet file ``name`` of a record, and check the types of its columns."""
    try:
        file = pq.ParquetFile(folder / f"{name}.parquet")
    except (OSError, pa.ArrowException) as error:
        line = str(error).splitlines()[0]
        raise SpecError(name, str(folder / f"{name}.parquet"), f"a file of Parquet ({line})") from None
    for field in SCHEMAS[name]:
        index = file.schema_arrow.get_field_index(field.name)  # -1 if there is no such column
        stored_type = file.schema_arrow.field(index).type if index >= 0 else "no such column"
        if stored_type != field.type:
            raise SpecError(f"{name}.{field.name}", str(stored_type), f"a column of type {field.type}")
    return file


def _read_header(trace: pq.ParquetFile) -> dict[str, Any]:
    """Return the header of a record: the number of ``ranks``, the ``groups`` and the ``notes``."""
    text = (trace.schema_arrow.metadata or {}).get(HEADER_KEY)
    if text is None:
        raise SpecError("header", None, f"the header of a record, {HEADER_KEY.decode()!r} in the file's metadata")
    try:
        header = json.loads(text)
        if header["format"] != RECORD_FORMAT:
            raise SpecError("header.format", header["format"], f"{RECORD_FORMAT}, which this version of Syncline reads")
        ranks = int(header["ranks"])
        groups = [(str(name), tuple(int(rank) for rank in members)) for name, members in header["groups"]]
        notes = [str(note) for note in header.get("notes", [])]
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError("header", text.decode(errors="replace"), f"format, ranks and groups ({error!r})") from None
    for _, members in groups:
        if not all(0 <= rank < ranks for rank in members):
            raise SpecError("header.groups", list(members), f"ranks below {ranks}")
    return {"ranks": ranks, "groups": groups, "notes": notes}


def _rows_by_rank(file: pq.ParquetFile, num_ranks: int) -> Iterator[pa.Table]:
    """Yield one table per rank from a file whose rows are in the order of ranks.

    A row group of the file may contain rows of several ranks, and a rank's rows may span several row groups.
    """

    def read_row_groups() -> Iterator[pa.Table]:
        for number in range(file.num_row_groups):
            try:
                yield file.read_row_group(number)
            except (OSError, pa.ArrowException) as error:
                raise SpecError("rows", f"row group {number}", f"rows that can be read ({error})") from None

    row_groups = read_row_groups()
    remaining_rows: pa.Table | None = next(row_groups, None)  # rows that belong to this or to later ranks
    for rank in range(num_ranks):
        slices: list[pa.Table] = []
        while remaining_rows is not None:
            num_rows_of_rank = pc.sum(pc.less_equal(remaining_rows["rank"], rank)).as_py() or 0  # they come first
            slices.append(remaining_rows.slice(0, num_rows_of_rank))
            if num_rows_of_rank < len(remaining_rows):
                remaining_rows = remaining_rows.slice(num_rows_of_rank)
                break
            remaining_rows = next(row_groups, None)
        rows = pa.concat_tables(slices) if slices else file.schema_arrow.empty_table()
        if len(rows) and not pc.all(pc.equal(rows["rank"], rank)).as_py():
            raise SpecError("rank", "ranks out of order", f"rows of ranks 0, 1, ... {num_ranks - 1}, one after another")
        yield rows
    if remaining_rows is not None:
        raise SpecError("rank", "rows of more ranks", f"rows of the {num_ranks} ranks of the header")
