"""Chakra's messages, and files of them.

A file is a `GlobalMetadata` and then one `Node` after another, each behind its length as a varint; one file per rank.
The messages are declared here by their numbers in the schema, and encoded by the library ``protobuf``.

Source: schema/protobuf/et_def.proto of github.com/mlcommons/chakra, commit 21585d8 (2026-05-20), Apache License 2.0.
The parts that ASTRA-sim reads: astra-sim/workload/Workload.cc of github.com/astra-sim/astra-sim, commit 518bd51, MIT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from syncline.errors import SpecError, SynclineError
from syncline.files import atomic_path

VERSION = "1.0.0"
"""The version of the schema, as its own generator writes it."""

PACKAGE = "ChakraProtoMsg"

SCALARS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
           "sfixed32", "sfixed64", "bool", "string", "bytes")  # fmt: skip
"""Types of an attribute's value, in the order of their field numbers, two each from 3 on: a value and a list."""

NODE_TYPES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")

COLLECTIVE_TYPES = ("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL",
                    "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER")  # fmt: skip

METADATA, COMPUTE, SEND, RECV, COLLECTIVE = (
    NODE_TYPES.index(kind) for kind in ("METADATA", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
)

ChakraMessage: TypeAlias = Any
"""An object of a class that protobuf builds."""

FIELDS: dict[str, list[tuple[str, str, bool]]] = {
    "IOInfo": [("values", "string", False), ("shapes", "string", False), ("types", "string", False)],
    "GlobalMetadata": [("version", "string", False), ("attr", "AttributeProto", True)],
    "Node": [
        ("id", "uint64", False), ("name", "string", False), ("type", "NodeType", False), ("ctrl_deps", "uint64", True),
        ("data_deps", "uint64", True), ("start_time_micros", "uint64", False), ("duration_micros", "uint64", False),
        ("inputs", "IOInfo", False), ("outputs", "IOInfo", False), ("attr", "AttributeProto", True),
    ],
}  # fmt: skip
"""Name, type and whether repeated, for each field of a message in the order of the field numbers."""


class ChakraMessages(NamedTuple):
    """The classes of the messages in a file."""

    metadata: type[ChakraMessage]
    node: type[ChakraMessage]


def _schema() -> Any:
    """Return the schema as protobuf's file descriptor."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    node_types = file.enum_type.add(name="NodeType")
    for number, name in enumerate(NODE_TYPES):
        node_types.value.add(name=f"{name}_NODE", number=number)

    def add_field(
        message: Any, name: str, number: int, type_name: str, is_repeated: bool = False, is_one_of: bool = False
    ) -> None:
        """Add a field to a protobuf message's description."""
        label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if type_name in SCALARS:
            field.type = getattr(FieldDescriptorProto, f"TYPE_{type_name.upper()}")
        else:
            is_enum = type_name == "NodeType"
            field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{type_name}"
        if is_one_of:
            field.oneof_index = 0

    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    add_field(attribute, "name", 1, "string")
    add_field(attribute, "doc_string", 2, "string")
    for index, scalar in enumerate(SCALARS):  # each type has two field numbers, of a value and of a list, from 3 on
        list_message = f"{scalar.capitalize()}List"
        add_field(attribute, f"{scalar}_val", 3 + 2 * index, scalar, is_one_of=True)
        add_field(attribute, f"{scalar}_list", 4 + 2 * index, list_message, is_one_of=True)
        add_field(file.message_type.add(name=list_message), "values", 1, scalar, is_repeated=True)
    for message_name, fields in FIELDS.items():
        message = file.message_type.add(name=message_name)
        for number, (name, type_name, is_repeated) in enumerate(fields, start=1):
            add_field(message, name, number, type_name, is_repeated)
    return file


@cache
def chakra_messages() -> ChakraMessages:
    """Return the classes of the messages in a file."""
    try:
        from google.protobuf import descriptor_pool, message_factory
    except ImportError:
        raise SynclineError("Chakra traces need protobuf: pip install 'syncline[chakra]'") from None
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_schema())

    def message_class(name: str) -> type[ChakraMessage]:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))

    return ChakraMessages(metadata=message_class("GlobalMetadata"), node=message_class("Node"))


def attributes_of(message: ChakraMessage) -> dict[str, Any]:
    """Return the attributes of a node, or of a file's head, by name; an attribute with several values is a list."""
    attributes = {}
    for attribute in message.attr:
        field = attribute.WhichOneof("value")
        if field is not None:
            value = getattr(attribute, field)
            attributes[attribute.name] = list(value.values) if field.endswith("_list") else value
    return attributes


def add_attributes(message: ChakraMessage, **values: Any) -> None:
    """Add attributes with the types that ASTRA-sim's feeder expects: int64, uint64, int32, bool, string, lists."""
    for name, value in values.items():
        attribute = message.attr.add(name=name)
        if isinstance(value, list):
            attribute.double_list.values.extend(value)
        else:
            field = FIELD_OF_NAME[name] if name in FIELD_OF_NAME else FIELD_OF_TYPE[type(value)]
            setattr(attribute, field, value)


FIELD_OF_TYPE = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}
"""The field of an attribute's value, by Python's type of the value."""

FIELD_OF_NAME = {
    "tensor_size": "uint64_val", "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val",
}  # fmt: skip
"""The field of an attribute's value for integers that are no int64, by the attribute's name."""


def write_messages(path: Path, messages: Iterable[ChakraMessage]) -> int:
    """Write messages to a file, each behind its length as a varint, and return the size of the file in bytes."""
    with atomic_path(path) as target, target.open("wb") as out:
        for message in messages:
            data = message.SerializeToString()
            out.write(encode_varint(len(data)))
            out.write(data)
    return path.stat().st_size


def encode_varint(number: int) -> bytes:
    """Return a number as bytes of seven bits each, the lowest first; all but the last byte have their highest bit set.

    >>> encode_varint(300)
    b'\\xac\\x02'
    """
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_length(file: BinaryIO, path: Path) -> int | None:
    """Return the length of the next message, a varint of seven bits per byte; None at the end of the file."""
    number = shift = 0
    while True:
        byte = file.read(1)
        if not byte:
            if shift:
                raise _file_error(path, "it ends within a length")
            return None
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
        shift += 7
        if shift >= 5 * 7:  # protobuf writes 32 bits as at most five bytes
            raise _file_error(path, "a length has more than 32 bits")


def _file_error(path: Path, reason: str) -> SpecError:
    """Return the error for a file that is no Chakra execution trace, with the reason."""
    return SpecError("trace", str(path), f"a Chakra execution trace, messages behind their lengths ({reason})")


def read_messages(path: Path) -> Iterator[ChakraMessage]:
    """Yield the head of a file, then its nodes.

    Raises:
        SpecError: the file is no Chakra execution trace.
    """
    from google.protobuf.message import DecodeError

    classes = chakra_messages()
    message_class = classes.metadata  # the class of the next message
    file_bytes = path.stat().st_size
    with path.open("rb") as file:
        while (length := _read_length(file, path)) is not None:
            if length > file_bytes - file.tell():
                raise _file_error(path, "it ends within a message")
            try:
                yield message_class.FromString(file.read(length))
            except DecodeError as error:
                raise _file_error(path, " ".join(str(error).split())) from None
            message_class = classes.node
    if message_class is classes.metadata:
        raise _file_error(path, "it is empty")
