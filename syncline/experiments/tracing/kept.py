"""A record in a folder: ``trace.parquet``, its events in their order by rank, and ``operations.parquet``, by segment.

What is said once of the whole record is a header, JSON in the metadata of ``trace.parquet``: its format, how many ranks
it has, its groups, and what was done otherwise than the script says. Rank by rank it is written and read, so that two
ranks' rows are never in memory together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.backend.tracing.columns import EVENTS, OPERATIONS, TracedGroups, rank_of_tables, tables_of_rank
from syncline.backend.tracing.record import MessageAwaited, MessageSent, RankRecord, Started, notes_of
from syncline.errors import SpecError, within

FORMAT = 1
"""Of the file; a reader knows this one alone."""

HEADER = b"syncline.trace"
FILES = {"trace": EVENTS, "operations": OPERATIONS}


def parts_of_record(ranks: Sequence[RankRecord]) -> dict[str, Iterator[pa.Table]]:
    """The tables of a record by file, rank by rank."""
    groups = groups_of(ranks)
    header = {
        "format": FORMAT, "ranks": len(ranks), "groups": [[name, list(of)] for name, of in groups.listed],
        "notes": notes_of(ranks),
    }  # fmt: skip
    told = {HEADER: json.dumps(header)}
    return {
        "trace": (tables_of_rank(rank, one, groups)[0].replace_schema_metadata(told) for rank, one in enumerate(ranks)),
        "operations": (tables_of_rank(rank, one, groups)[1] for rank, one in enumerate(ranks)),
    }


def groups_of(ranks: Sequence[RankRecord]) -> TracedGroups:
    """All groups of a record."""
    groups = TracedGroups()
    for record in ranks:
        for event in record.events:
            if isinstance(event, Started):
                groups.number(event.key[0], event.ranks)
            elif isinstance(event, MessageSent | MessageAwaited):
                groups.number(event.tag[0])
    return groups


def read_record(folder: Path) -> list[RankRecord]:
    """The record that a folder has.

    Raises:
        SpecError: there is none, or one that this version does not know, with what is wrong with it.
    """
    for name in FILES:
        if not (folder / f"{name}.parquet").is_file():
            raise SpecError("record", str(folder), f"the folder of a trace, with {name}.parquet")
    with within(f"record.{folder / 'trace.parquet'}"), _opened(folder, "trace") as trace:
        header = _header(trace)
        with _opened(folder, "operations") as operations:
            rows = zip(_by_rank(trace, header["ranks"]), _by_rank(operations, header["ranks"]), strict=True)
            ranks = [rank_of_tables(rank, *both, header["groups"]) for rank, both in enumerate(rows)]
    for one in ranks:
        one.notes = list(header["notes"])
    return ranks


def _opened(folder: Path, name: str) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(folder / f"{name}.parquet")
    except (OSError, pa.ArrowException) as error:
        line = str(error).splitlines()[0]
        raise SpecError(name, str(folder / f"{name}.parquet"), f"a file of Parquet ({line})") from None
    for field in FILES[name]:
        at = file.schema_arrow.get_field_index(field.name)
        got = file.schema_arrow.field(at).type if at >= 0 else "no such column"
        if got != field.type:
            raise SpecError(f"{name}.{field.name}", str(got), f"a column of type {field.type}")
    return file


def _header(trace: pq.ParquetFile) -> dict[str, Any]:
    text = (trace.schema_arrow.metadata or {}).get(HEADER)
    if text is None:
        raise SpecError("header", None, f"the header of a record, {HEADER.decode()!r} in the file's metadata")
    try:
        header = json.loads(text)
        if header["format"] != FORMAT:
            raise SpecError("header.format", header["format"], f"{FORMAT}, which this version of Syncline reads")
        ranks = int(header["ranks"])
        groups = [(str(name), tuple(int(rank) for rank in of)) for name, of in header["groups"]]
        notes = [str(one) for one in header.get("notes", [])]
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError("header", text.decode(errors="replace"), f"format, ranks and groups ({error!r})") from None
    for _, of in groups:
        if not all(0 <= rank < ranks for rank in of):
            raise SpecError("header.groups", list(of), f"ranks below {ranks}")
    return {"ranks": ranks, "groups": groups, "notes": notes}


def _by_rank(file: pq.ParquetFile, ranks: int) -> Iterator[pa.Table]:
    """The rows of each rank, which come in the order of ranks; row groups are read as they are needed."""
    schema, left, group = file.schema_arrow, None, 0
    for rank in range(ranks):
        mine: list[pa.Table] = []
        while left is not None or group < file.num_row_groups:
            if left is None:
                try:
                    left = file.read_row_group(group)
                except (OSError, pa.ArrowException) as error:
                    raise SpecError("rows", f"row group {group}", f"rows that can be read ({error})") from None
                group += 1
            own = pc.sum(pc.less_equal(left["rank"], rank)).as_py() or 0
            mine.append(left.slice(0, own))
            if own < len(left):
                left = left.slice(own)
                break
            left = None
        rows = pa.concat_tables(mine) if mine else schema.empty_table()
        if len(rows) and not pc.all(pc.equal(rows["rank"], rank)).as_py():
            raise SpecError("rank", "ranks out of order", f"rows of ranks 0, 1, ... {ranks - 1}, one after another")
        yield rows
    if left is not None or group < file.num_row_groups:
        raise SpecError("rank", "rows of more ranks", f"rows of the {ranks} ranks of the header")
