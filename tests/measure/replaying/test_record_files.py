"""Files of records that are broken, or of somebody else: one line that names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.errors import SpecError
from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    CountedOperation,
    HostWaited,
    Loss,
    Marked,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.recording.record_files import HEADER_KEY, read_rank, read_record, record_tables, write_rank

TAG = ("pair", 0, 1, 0)


def record() -> list[RankRecord]:
    call = Started(1, "all_reduce", "barrier", 8, (0, 1), ("all", 0), "a.py:1", 2)
    common = [Computed(0), call, Waited(1, 2), Marked(1, 2), StreamWaited(1), HostWaited(1), HostWaited(EVERYTHING)]
    sent, got = MessageSent(2, 1, 4, TAG, "a.py:2"), MessageAwaited(2, 0, TAG, "a.py:3", 1)
    segments = [
        (CountedOperation(1.0, 2.0), CountedOperation(2.0, 4.0, "product", "bf16", (1.0, 1.0, 1.0))),
        (CountedOperation(0.0, 5.0),),
    ]
    return [
        RankRecord([*common, sent, Waited(2), Loss(0.5), Stepped()], segments),
        RankRecord([*common, got, Waited(2), Computed(1, 3), Stepped()], segments),
    ]


def keep(folder: Path) -> dict[str, pa.Table]:
    tables = {name: pa.concat_tables(parts) for name, parts in record_tables(record()).items()}
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return tables


def with_value(table: pa.Table, name: str, at: int, value: Any) -> pa.Table:
    column = table[name].to_pylist()
    column[at] = value
    field = table.schema.field(name)
    made = pa.array(column, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
    made = made.dictionary_encode() if pa.types.is_dictionary(field.type) else made
    return table.set_column(table.schema.get_field_index(name), field, made.cast(field.type))


def test_all_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    keep(tmp_path)
    assert read_record(tmp_path) == record()


def test_a_rank_tells_its_parent_all(tmp_path: Path) -> None:
    told = record()[1]
    told.cpu_s = 1.5
    write_rank(tmp_path / "1", 1, told)
    assert read_rank(tmp_path / "1", 1) == told


def test_a_rank_without_events_is_there(tmp_path: Path) -> None:
    ranks = [*record(), RankRecord(), RankRecord()]
    for name, parts in record_tables(ranks).items():
        pq.write_table(pa.concat_tables(parts), tmp_path / f"{name}.parquet")
    assert read_record(tmp_path) == ranks


def header(change: Callable[[dict[str, Any]], object]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        told = json.loads(table.schema.metadata[HEADER_KEY])
        change(told)
        return table.replace_schema_metadata({HEADER_KEY: json.dumps(told)})

    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.replace_schema_metadata(None), r"header: got None; expected the header of a record"),
        (header(lambda told: told.update(format=9)), r"header\.format: got 9; expected 2, which this version"),
        (header(lambda told: told.pop("groups")), r"header: got .*; expected format, ranks and groups"),
        (header(lambda told: told.update(ranks=1)), r"expected ranks below 1|rows of the 1 ranks"),
        (header(lambda told: told.update(ranks=2, groups=told["groups"][:1])), r"group: got 1; expected a group"),
        (lambda table: table.drop_columns(["mark"]), r"trace\.mark: got 'no such column'; expected a column of type"),
        (lambda table: with_value(table, "payload_bytes", 1, -8), r"payload_bytes: got -8; expected a number that is"),
        (lambda table: with_value(table, "payload_bytes", 1, None), r"payload_bytes: got None; expected a value"),
        (lambda table: with_value(table, "segment", 0, 7), r"segment: got 7; expected a segment whose operations"),
        (lambda table: with_value(table, "event", 0, "compte"), r"event: got 'compte'; .*did you mean 'compute'"),
        (lambda table: with_value(table, "kind", 1, "sum"), r"kind: got 'sum'; expected one of"),
        (lambda table: with_value(table, "call", 2, 5), r"call: got 5; expected a call that rank 0 has made"),
        (lambda table: table.take([11, 0]), r"rank: got 'ranks out of"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change: Callable[[pa.Table], pa.Table], said: str, tmp_path: Path) -> None:
    tables = keep(tmp_path)
    pq.write_table(change(tables["trace"]), tmp_path / "trace.parquet")
    with pytest.raises(SpecError, match=said) as refused:
        read_record(tmp_path)
    assert str(refused.value).startswith("record.") and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["trace", "operations"])
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    keep(tmp_path)
    file = tmp_path / f"{name}.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(SpecError, match=rf"{name}: got .*; expected a file of Parquet"):
        read_record(tmp_path)
    file.unlink()
    with pytest.raises(SpecError, match=rf"expected the folder of a trace, with {name}\.parquet"):
        read_record(tmp_path)


def test_operations_that_cannot_be(tmp_path: Path) -> None:
    operations = keep(tmp_path)["operations"]
    for changed, said in (
        (with_value(operations, "flops", 0, -1.0), r"flops: got -1\.0; expected a finite number"),
        (with_value(operations, "segment", 0, 3), r"segment: got 'segments out of order'"),
    ):
        pq.write_table(changed, tmp_path / "operations.parquet")
        with pytest.raises(SpecError, match=said):
            read_record(tmp_path)
