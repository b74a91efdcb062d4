"""Columns that the sink encodes as Protobuf: round trips through generated classes, errors."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.registry_server import RegistryServer
from tests.unit.spark.test_avro_encoding import asked, written
from tests.unit.spark.test_registry_protobuf import PROTOBUF, VALUE, files
from tests.unit.spark.test_registry_protobuf import written as serialized
from tests.unit.spark.test_registry_values import asked as source_asked
from tests.unit.spark.test_registry_values import decoder

from odradek.serialization import ProtobufDeserializer, Schema, SchemaRegistryClient
from odradek.spark.sink.sink_errors import SinkRowError, SinkSchemaError


def full() -> Any:
    return files()["Order"](
        f_double=1.5, f_float=2.5, f_int64=-1, f_uint64=(1 << 64) - 1, f_int32=-2, f_fixed64=3,
        f_fixed32=(1 << 32) - 1, f_bool=True, f_string="ä", f_bytes=b"\xff", f_uint32=4,
        f_sfixed32=-5, f_sfixed64=-6, f_sint32=-7, f_sint64=-8, kind=1, at={"code": "JFK"},
        many=[{"code": "A"}, {"code": "B"}], numbers=[1, 2], named={"a": {"code": "C"}}, maybe=0,
        time={"seconds": -1, "nanos": 1_000},
    )  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"kind": 9}])
def test_the_sink_encodes_rows_that_the_source_decoded(
    server: RegistryServer, registry: SchemaRegistryClient, fields: Any
) -> None:
    """For every type, the sink must write the same bytes as `ProtobufSerializer`."""
    message = full()
    if fields:
        message = type(message)(**fields)
    row = serialized(registry, message)
    made = decoder(source_asked(server, **PROTOBUF)).decode(pa.array([row, None], pa.binary()))
    found = written(asked(server, **PROTOBUF), made)
    assert found[1] is None
    assert ProtobufDeserializer(type(message))(found[0], VALUE) == message
    assert found[0][:6] == row[:6]


def test_value_message_selects_the_message_and_fields_may_be_omitted(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    classes = files()
    serialized(registry, classes["Order"]())
    other = asked(server, **PROTOBUF, valueMessage="m.Other")
    (found,) = written(other, pa.array([{"f_string": "x"}], pa.struct([("f_string", pa.string())])))
    assert found[5:7] == b"\2\2"  # message index 1: the file's second message
    read = ProtobufDeserializer(classes["Other"])
    assert read(found, VALUE) == classes["Other"](f_string="x")
    keyed = asked(server, valueFormat="", keyFormat="protobuf", keySubject="t-value")
    rows = pa.array([{"f_int32": None}], pa.struct([("f_int32", pa.int32())]))
    assert written(keyed, rows, name="key")[0][5:] == b"\0"


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("f_int32", pa.int64(), "value.f_int32 is int64"),
        ("none", pa.int64(), "value.none isn't in the writer schema"),
        ("named", pa.map_(pa.string(), pa.string()), "value.named's values is string"),
        ("f_uint64", pa.int64(), "value.f_uint64 is int64, .* decimal"),
    ],
)
def test_columns_that_do_not_match_the_message_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, name: str, given: Any, told: str
) -> None:
    serialized(registry, full())
    with pytest.raises(SinkSchemaError, match=told):
        written(asked(server, **PROTOBUF), pa.array([None], pa.struct([(name, given)])))


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("f_uint32", pa.int64(), -1),
        ("kind", pa.string(), "NO_SUCH"),
        ("numbers", pa.list_(pa.int32()), [1, None]),
        ("many", pa.list_(pa.struct([("code", pa.string())])), [None]),
    ],
)
def test_a_row_that_the_message_cannot_represent_is_named_in_the_error(
    server: RegistryServer, registry: SchemaRegistryClient, name: str, kind: Any, value: Any
) -> None:
    serialized(registry, full())
    rows = pa.array([{name: None}, {name: value}], pa.struct([(name, kind)]))
    with pytest.raises(SinkRowError, match="row 1 of this task: the value doesn't fit"):
        written(asked(server, **PROTOBUF), rows)


@pytest.mark.parametrize("row", [{"number": 0, "text": "x"}, {"text": "", "number": 1}])
def test_a_row_with_two_fields_of_a_oneof_is_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, row: dict[str, Any]
) -> None:
    """A message keeps only one field of a oneof; the row's other values would be lost."""
    file = descriptor_pb2.FileDescriptorProto(name="c.proto", package="c", syntax="proto3")
    choice = file.message_type.add(name="Choice")
    choice.oneof_decl.add(name="which")
    choice.field.add(name="number", number=1, type=5, label=1, oneof_index=0)
    choice.field.add(name="text", number=2, type=9, label=1, oneof_index=0)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register_schema("t-value", Schema(text, "PROTOBUF"))
    kinds = {"number": pa.int32(), "text": pa.string()}
    struct = pa.struct([(name, kinds[name]) for name in row])
    ones = [{name: row[name] if name == there else None for name in row} for there in row]
    assert len(set(written(asked(server, **PROTOBUF), pa.array(ones, struct)))) == 2
    with pytest.raises(SinkRowError, match="row 2 of this task: the value doesn't fit"):
        written(asked(server, **PROTOBUF), pa.array([*ones, row], struct))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"valueMessage": "m.None"}, "no message m.None; its messages are m.Order"),
        ({"valueMessage": "m.Tree"}, "m.Tree is recursive"),
        ({"valueSubject": "avro"}, "has type AVRO, not PROTOBUF"),
        ({"valueSubject": "text"}, "no descriptor"),
    ],
)
def test_unusable_messages_and_schemas_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, more: dict[str, str], told: str
) -> None:
    serialized(registry, full())
    registry.register_schema("avro", Schema('"string"'))
    registry.register_schema("text", Schema('syntax = "proto3";', "PROTOBUF"))
    assert base64.b64decode(server.schemas[-3]["schema"])
    with pytest.raises(SinkSchemaError, match=told):
        written(asked(server, **PROTOBUF, **more), pa.array([None], pa.struct([])))
