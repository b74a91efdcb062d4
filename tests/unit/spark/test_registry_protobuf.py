"""Protobuf values decoded by a registry's schemas: columns, later versions, other messages."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP
from tests.registry_server import RegistryServer
from tests.unit.spark.test_registry_values import FIRST, asked, decoder

from odradek import ConfigurationError
from odradek.serialization import (
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.values.decoding import ValueDecodeError

VALUE = SerializationContext("t", MessageField.VALUE)
PROTOBUF = {"valueFormat": "protobuf"}
PLAIN = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", None,
    None, "bytes", "uint32", None, "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""Names of Protobuf's scalar types in the order of their numbers, from 1."""


def files(*, later: bool = False) -> dict[str, Any]:
    """Return message classes by name, as protoc generates them."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="m", syntax="proto3")
    common.message_type.add(name="Place").field.add(name="code", number=1, type=9, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name="file.proto", package="m", syntax="proto3",
        dependency=["common.proto", "google/protobuf/timestamp.proto"],
    )  # fmt: skip
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="SOME", number=1)
    order = file.message_type.add(name="Order")
    for number, name in enumerate(PLAIN, 1):
        if name is not None:
            order.field.add(name=f"f_{name}", number=number, type=number, label=1)
    order.field.add(name="kind", number=30, type=14, label=1, type_name=".m.Kind")
    order.field.add(name="at", number=31, type=11, label=1, type_name=".m.Place")
    order.field.add(
        name="time", number=32, type=11, label=1, type_name=".google.protobuf.Timestamp"
    )
    order.field.add(name="many", number=33, type=11, label=3, type_name=".m.Place")
    order.field.add(name="numbers", number=34, type=5, label=3)
    entry = order.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".m.Place")
    order.field.add(name="named", number=35, type=11, label=3, type_name=".m.Order.NamedEntry")
    order.oneof_decl.add(name="_maybe")
    order.field.add(name="maybe", number=36, type=5, label=1, oneof_index=0, proto3_optional=True)
    if later:
        order.field.add(name="more", number=40, type=9, label=1)
    other = file.message_type.add(name="Other")
    other.field.add(name="f_string", number=9, type=9, label=1)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="child", number=1, type=11, label=1, type_name=".m.Tree")
    file.message_type.add(name="Nothing")
    for one in (common, file):
        pool.AddSerializedFile(one.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"m.{name}"))
        for name in ("Order", "Other", "Tree", "Place", "Nothing")
    }


def written(registry: SchemaRegistryClient, message: Any) -> Any:
    return ProtobufSerializer(type(message), registry, {"auto.register.schemas": True})(
        message, VALUE
    )


def test_every_protobuf_type_is_decoded(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    order = files()["Order"]
    full = order(
        f_double=1.5, f_float=2.5, f_int64=-1, f_uint64=(1 << 64) - 1, f_int32=-2, f_fixed64=3,
        f_fixed32=(1 << 32) - 1, f_bool=True, f_string="ä", f_bytes=b"\xff", f_uint32=4,
        f_sfixed32=-5, f_sfixed64=-6, f_sint32=-7, f_sint64=-8, kind=1, at={"code": "JFK"},
        many=[{"code": "A"}, {"code": "B"}], numbers=[1, 2], named={"a": {"code": "C"}}, maybe=0,
        time={"seconds": -1, "nanos": 1_500},
    )  # fmt: skip
    rows = [written(registry, full), None, written(registry, order(kind=9))]
    options = asked(server, **PROTOBUF)
    made = decoder(options)
    first, second, third = made.decode(pa.array(rows, pa.binary())).to_pylist()
    assert made.bad == {}
    assert second is None
    assert first == {
        "f_double": 1.5, "f_float": 2.5, "f_int64": -1, "f_uint64": Decimal((1 << 64) - 1),
        "f_int32": -2, "f_fixed64": Decimal(3), "f_fixed32": (1 << 32) - 1, "f_bool": True,
        "f_string": "ä", "f_bytes": b"\xff", "f_uint32": 4, "f_sfixed32": -5, "f_sfixed64": -6,
        "f_sint32": -7, "f_sint64": -8, "kind": "SOME", "at": {"code": "JFK"},
        "time": datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
        "many": [{"code": "A"}, {"code": "B"}], "numbers": [1, 2], "named": [("a", {"code": "C"})],
        "maybe": 0,
    }  # fmt: skip
    empty: dict[str, Any] = {
        "f_string": "",
        "f_bytes": b"",
        "kind": "9",
        "at": None,
        "time": None,
        "many": [],
    }
    empty |= {"numbers": [], "named": [], "maybe": None, "f_bool": False}
    assert {name: third[name] for name in empty} == empty


def test_messages_of_google_protobuf_are_decoded(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Register the files of google.protobuf like other files, even if they import each other."""
    row = written(registry, wrappers_pb2.StringValue(value="x"))
    made = decoder(asked(server, **PROTOBUF, valueMessage="google.protobuf.StringValue"))
    assert made.decode(pa.array([row], pa.binary())).to_pylist() == [{"value": "x"}]
    server.subjects.clear()
    row = written(registry, type_pb2.EnumValue(name="x", options=[{"name": "o"}]))
    made = decoder(asked(server, **PROTOBUF, valueMessage="google.protobuf.EnumValue"))
    (found,) = made.decode(pa.array([row], pa.binary())).to_pylist()
    assert (found["name"], found["options"][0]["name"]) == ("x", "o")


def test_later_schema_versions_are_decoded_and_other_message_types_are_malformed(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    old, new = files(), files(later=True)
    rows = [
        written(registry, old["Order"](f_string="old")),
        written(registry, new["Order"](f_string="new", more="x")),
        written(registry, new["Other"](f_string="other")),
        b"no frame",
        b"\0\0\0\0\x63\0",
    ]
    rows.append(rows[0] + b"\x08")
    registry.register_schema("avro", Schema(FIRST))
    number = server.schemas.index({"schema": FIRST}) + 1
    rows.append(b"\0\0\0\0" + bytes((number, 0)))
    rows.append(written(registry, old["Order"](time={"seconds": 1 << 60})))
    options = asked(server, **PROTOBUF, columnNameOfCorruptRecord="_corrupt_record")
    made = decoder(options)
    found = made.decode(pa.array(rows, pa.binary())).to_pylist()
    assert [one["f_string"] for one in found] == ["old", "new", *[None] * 6]
    assert [one["more"] for one in found[:2]] == ["", "x"]
    assert [one["_corrupt_record"] for one in found] == [None, None, *rows[2:]]
    assert list(made.bad) == [2, 3, 4, 5, 6, 7]
    for row, told in (
        (2, "according to its schema 3 it is m.Other, not m.Order"),
        (3, "a zero byte and a 4-byte schema id"),
        (4, "404"),
        (5, "the data isn't a m.Order"),
        (6, "type AVRO, not PROTOBUF"),
        (7, "a column can't represent"),
    ):
        assert told in made.bad[row]
    chosen = decoder(asked(server, **PROTOBUF, valueMessage="m.Other"))
    (other,) = chosen.decode(pa.array(rows[2:3], pa.binary())).to_pylist()
    assert other == {"f_string": "other"}
    strict = decoder(asked(server, **PROTOBUF, valueMode="FAILFAST"))
    with pytest.raises(ValueDecodeError) as caught:
        strict.decode(pa.array(rows, pa.binary()))
    assert caught.value.row == 2


def test_a_schema_registered_as_proto_text_is_decoded_by_its_descriptor(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Java's serializers register the .proto text; `format=serialized` requests its descriptor."""
    text = 'syntax = "proto3"; package m; message Place { string code = 1; }'
    registry.register_schema("t-value", Schema(text, "PROTOBUF"))
    with pytest.raises(OptionError, match=r"version 1 of subject t-value: .*format=serialized"):
        asked(server, **PROTOBUF)
    file = descriptor_pb2.FileDescriptorProto(name="x", package="m", syntax="proto3")
    file.message_type.add(name="Place").field.add(name="code", number=1, type=9, label=1)
    server.serialized = base64.b64encode(file.SerializeToString()).decode()
    other = "schemaRegistry.request.timeout.ms"  # changed, as caches are per settings
    fresh = {"schemaRegistry.bearer.auth.token": "x", other: "9000"}
    made = decoder(asked(server, **PROTOBUF, **fresh))
    rows = pa.array([b"\0\0\0\0\1\0\x0a\3JFK"], pa.binary())
    assert made.decode(rows).to_pylist() == [{"code": "JFK"}]
    assert made.bad == {}


def test_a_schema_that_references_itself_is_rejected(server: RegistryServer) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x", package="m", syntax="proto3")
    file.message_type.add(name="Place").field.add(name="code", number=1, type=9, label=1)
    text = base64.b64encode(file.SerializeToString()).decode()
    itself = [{"name": "y.proto", "subject": "t-value", "version": 1}]
    server.schemas.append({"schema": text, "schemaType": "PROTOBUF", "references": itself})
    server.subjects["t-value"] = [len(server.schemas)]
    with pytest.raises(OptionError, match="the file of subject t-value isn't usable"):
        asked(server, **PROTOBUF)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"valueMessage": "m.None"}, "no message m.None; its messages are m.Order, m.Other"),
        ({"valueMessage": "m.Tree"}, "m.Tree is recursive"),
        ({"valueMessage": "m.Nothing"}, "m.Nothing has no field"),
        ({"valueSubject": "avro"}, "version 1 of subject avro: the schema has type AVRO"),
        ({"columnNameOfCorruptRecord": "kind"}, "already has a field"),
        ({"avroSchema": FIRST}, "avroSchema can't be combined with valueFormat=protobuf"),
        ({"schemaRegistryUrl": ""}, "needs option schemaRegistryUrl"),
    ],
)
def test_invalid_protobuf_options_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, more: dict[str, str], told: str
) -> None:
    registry.register_schema("avro", Schema(FIRST))
    written(registry, files()["Order"]())
    with pytest.raises(ConfigurationError, match=told):
        asked(server, **PROTOBUF | more)
