"""A record as tables, and back: ``events`` in their order by rank, ``operations`` by segment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from syncline.backend.tracing.record import (
    Computed,
    Event,
    Lost,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    Waited,
)
from syncline.errors import SpecError

KINDS: dict[str, type[Event]] = {
    "compute": Computed, "collective": Started, "send": MessageSent, "recv": MessageAwaited, "wait": Waited,
    "step": Stepped, "loss": Lost,
}  # fmt: skip
"""Of an event, as a table calls them."""

NAMES = {kind: name for name, kind in KINDS.items()}

EVENTS = pa.schema([
    ("rank", pa.int32()), ("event", pa.string()), ("segment", pa.int32()), ("call", pa.int64()), ("kind", pa.string()),
    ("asked", pa.string()), ("payload_bytes", pa.int64()), ("ranks", pa.list_(pa.int32())), ("group", pa.string()),
    ("number", pa.int64()), ("peer", pa.int32()), ("site", pa.string()), ("loss", pa.float64()),
])  # fmt: skip

OPERATIONS = pa.schema([
    ("rank", pa.int32()), ("segment", pa.int32()), ("flops", pa.float64()), ("bytes", pa.float64())
])  # fmt: skip


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, Started):
        told = event._asdict() | {"group": event.key[0], "number": event.key[1], "ranks": list(event.ranks)}
        del told["key"]
        return told
    if isinstance(event, MessageSent | MessageAwaited):
        told = event._asdict() | {"group": event.tag[0], "number": event.tag[3]}
        told["peer"] = told.pop("to" if isinstance(event, MessageSent) else "source")
        del told["tag"]
        return told
    return event._asdict()


def tables_of_record(ranks: Sequence[RankRecord]) -> dict[str, pa.Table]:
    """The tables of a record, by name."""
    events = [
        {"rank": rank, "event": NAMES[type(event)]} | _fields(event)
        for rank, record in enumerate(ranks)
        for event in record.events
    ]
    operations = [
        {"rank": rank, "segment": segment, "flops": flops, "bytes": nbytes}
        for rank, record in enumerate(ranks)
        for segment, several in enumerate(record.segments)
        for flops, nbytes in several
    ]
    return {
        "events": pa.Table.from_pylist(events, schema=EVENTS),
        "operations": pa.Table.from_pylist(operations, schema=OPERATIONS),
    }


def read_record(folder: Path) -> list[RankRecord]:
    """The record that a folder has.

    Raises:
        SpecError: there is none.
    """
    files = {name: folder / f"{name}.parquet" for name in ("events", "operations")}
    for file in files.values():
        if not file.exists():
            raise SpecError("record", str(folder), f"the folder of a trace, with {file.name}")
    try:
        events, operations = (pq.read_table(file).to_pylist() for file in files.values())
    except (OSError, pa.ArrowInvalid) as error:
        raise SpecError("record", str(folder), f"tables that can be read ({error})") from None
    ranks = [RankRecord() for _ in range(1 + max((row["rank"] for row in events), default=-1))]
    for row in events:
        ranks[row["rank"]].events.append(_event(row))
    of: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in operations:
        of.setdefault((row["rank"], row["segment"]), []).append((row["flops"], row["bytes"]))
    for (rank, _), several in sorted(of.items()):
        ranks[rank].segments.append(tuple(several))
    return ranks


def _event(row: dict[str, Any]) -> Event:
    kind = KINDS[row["event"]]
    if kind is Started:
        key = row["group"], row["number"]
        return Started(
            row["call"], row["kind"], row["asked"], row["payload_bytes"], tuple(row["ranks"]), key, row["site"]
        )
    if kind is MessageSent:
        tag = row["group"], row["rank"], row["peer"], row["number"]
        return MessageSent(row["call"], row["peer"], row["payload_bytes"], tag, row["site"])
    if kind is MessageAwaited:
        tag = row["group"], row["peer"], row["rank"], row["number"]
        return MessageAwaited(row["call"], row["peer"], tag, row["site"])
    return kind(*(row[name] for name in kind._fields))
