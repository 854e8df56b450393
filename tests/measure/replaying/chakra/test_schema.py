"""Our declaration of Chakra's messages beside the schema itself, compiled.

    SYNCLINE_CHAKRA=FOLDER/et_def.proto python -m pytest -m slow tests/measure/replaying/chakra/test_schema.py

It is schema/protobuf/et_def.proto of github.com/mlcommons/chakra (commit 21585d8, Apache License 2.0), which is not
part of this package; `protoc` compiles it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from syncline.measure.recording.record import Computed, Loss, RankRecord, Started, Stepped, Waited
from syncline.measure.replaying.chakra import schema
from syncline.measure.replaying.chakra.folders import write_chakra

SCHEMA = os.environ.get("SYNCLINE_CHAKRA", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (Path(SCHEMA).is_file() and shutil.which("protoc")), reason="no schema, or no protoc"),
]


@pytest.fixture
def theirs(tmp_path: Path) -> descriptor_pb2.FileDescriptorProto:
    out, source = tmp_path / "compiled", Path(SCHEMA)
    words = ["protoc", f"-I{source.parent}", f"--descriptor_set_out={out}", source.name]
    subprocess.run(words, check=True, timeout=60)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    return file


def fields(file: Any) -> dict[str, Any]:
    def one(field: Any) -> tuple[Any, ...]:
        inside = field.oneof_index if field.HasField("oneof_index") else None
        return field.name, field.type, field.type_name, field.label, inside

    return {of.name: {field.number: one(field) for field in of.field} for of in file.message_type}


def test_the_declaration_is_the_schema_s(theirs: Any) -> None:
    ours, known = fields(schema._schema()), fields(theirs)
    assert ours == {name: known[name] for name in ours}
    assert set(known) - set(ours) <= {"Tensor"}  # which is in no file
    enums = {of.name: [value.name for value in of.value] for of in theirs.enum_type}
    assert enums["NodeType"] == [f"{name}_NODE" for name in schema.NODE_TYPES]
    assert enums["CollectiveCommType"] == list(schema.COLLECTIVE_TYPES)


def test_their_classes_read_what_ours_write(theirs: Any, tmp_path: Path) -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(theirs.SerializeToString())
    node, metadata = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("Node", "GlobalMetadata")
    )
    call = Started(1, "all_gather", "all_gather", 12, (0,) * 2, ("all", 0), "t.py:3")
    record = RankRecord([Computed(0), call, Waited(1), Computed(0), Loss(0.25), Stepped()], [((3e6, 4e6),)])
    write_chakra([record], [[2e-6]], False, {"hardware": "made up"}, tmp_path / "out")
    data = (tmp_path / "out" / "trace.0.et").read_bytes()
    read: list[Any] = []
    while data:
        length = data[0] if data[0] < 0x80 else (data[0] & 0x7F) + (data[1] << 7)
        begin = 1 if data[0] < 0x80 else 2
        read.append((node if read else metadata).FromString(data[begin : begin + length]))
        data = data[begin + length :]
    told, *nodes = read
    assert told.version == "1.0.0"
    assert [one.type for one in nodes] == [4, 7, 4, 1, 1]
    assert [list(one.data_deps) for one in nodes] == [[], [0], [0, 1], [2], [3]]
    assert [one.duration_micros for one in nodes] == [2, 0, 2, 0, 0]
    of = {one.name: one for one in nodes[1].attr}
    assert (of["comm_type"].int64_val, of["comm_size"].int64_val, of["pg_name"].string_val) == (2, 12, "0")
    assert {one.name: one for one in nodes[0].attr}["tensor_size"].uint64_val == 4_000_000
