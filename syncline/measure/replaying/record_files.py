"""Records in folders: ``trace.parquet``, the events in their order by rank, and ``operations.parquet``, by segment.

A header, JSON in the metadata of ``trace.parquet``, has what concerns the whole record: its format, the number of
ranks, the groups, and notes on deviations of the recording from the script. The files are written and read rank
by rank, so that two ranks' rows are never in memory together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.errors import SpecError, within
from syncline.measure.recording.columns import EVENTS, OPERATIONS, TracedGroups, rank_of_tables, tables_of_rank
from syncline.measure.recording.record import MessageAwaited, MessageSent, RankRecord, Started, notes_of

FORMAT = 2
"""The version of the file format; a reader accepts this version only."""

HEADER = b"syncline.trace"
FILES = {"trace": EVENTS, "operations": OPERATIONS}


def parts_of_record(ranks: Sequence[RankRecord]) -> dict[str, Iterator[pa.Table]]:
    """Return the tables of a record by file name, one table per rank."""
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
        got = file.schema_arrow.field(index).type if index >= 0 else "no such column"
        if got != field.type:
            raise SpecError(f"{name}.{field.name}", str(got), f"a column of type {field.type}")
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
