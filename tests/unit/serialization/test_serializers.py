"""Test serializers of all formats: round trips, evolution, errors, requests to the registry."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.registry_server import RegistryServer

from odradek import ConfigurationError
from odradek.errors import (
    DeserializationError,
    InvalidSchemaError,
    MissingExtraError,
    SchemaNotFoundError,
    SerializationError,
)
from odradek.serialization import (
    AsyncSchemaRegistryClient,
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    PlainJSONDeserializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    plain,
)
from odradek.serialization.protobuf.messages import messages_at
from odradek.serialization.protobuf.serializers import message_indexes

VALUE = SerializationContext("t", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}


def avro(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "a", "fields": list(fields)})


ID = {"name": "id", "type": "int"}
NOTE = {"name": "note", "type": "string", "default": "none"}
TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}}
FIRST, SECOND = avro("F", ID), avro("F", {"name": "id", "type": "long"}, NOTE)
DRAFT = "http://json-schema.org/draft-07/schema#"
JSON_SCHEMA = json.dumps(
    {
        "$schema": DRAFT,
        "title": "F",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": "array"}},
        "required": ["id"],
    }
)


def test_avro_values_round_trip(server: RegistryServer, registry: SchemaRegistryClient) -> None:
    logical = avro(
        "L",
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "cost",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "maybe", "type": ["null", "string"]},
    )
    value = {
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "on": date(2026, 1, 2),
        "cost": Decimal("12.34"),
        "key": UUID(int=7),
        "maybe": None,
    }
    serialize = AvroSerializer(registry, logical, conf=REGISTER)
    written = [serialize(value, VALUE) for _ in range(3)]
    assert written[0] == written[2]
    assert written[0] is not None
    assert written[0][:5] == b"\0\0\0\0\1"
    read = AvroDeserializer(registry)
    assert [read(one, VALUE) for one in written] == [value] * 3
    assert server.asked == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]
    assert serialize(None, VALUE) is None
    assert read(None, VALUE) is None


def test_functions_convert_objects_to_and_from_avro(registry: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(
        registry, FIRST, lambda obj, ctx: {"id": obj + len(ctx.topic)}, REGISTER
    )
    read = AvroDeserializer(registry, from_dict=lambda found, ctx: (ctx.field, found["id"]))
    assert read(serialize(4, VALUE), VALUE) == ("value", 5)


def test_avro_values_are_read_by_a_reader_schema_or_the_latest_version(
    registry: SchemaRegistryClient,
) -> None:
    old = AvroSerializer(registry, FIRST, conf=REGISTER)({"id": 1}, VALUE)
    new = AvroSerializer(registry, SECOND, conf=REGISTER)({"id": 2, "note": "x"}, VALUE)
    by_second = AvroDeserializer(registry, SECOND)
    assert [by_second(one, VALUE) for one in (old, new)] == [
        {"id": 1, "note": "none"},
        {"id": 2, "note": "x"},
    ]
    latest = AvroDeserializer(registry, conf={"use.latest.version": True})
    assert latest(old, VALUE) == {"id": 1, "note": "none"}
    as_written = AvroDeserializer(registry)
    assert [as_written(one, VALUE) for one in (old, new)] == [{"id": 1}, {"id": 2, "note": "x"}]
    with pytest.raises(DeserializationError, match="Avro schema"):
        AvroDeserializer(registry, FIRST)(new, VALUE)  # a long can't be read as an int


def test_default_values_of_a_reader_schema_are_not_shared(registry: SchemaRegistryClient) -> None:
    """fastavro puts the schema's own list into all values; changing one would change all."""
    inner = json.loads(avro("I", {**TAGS, "default": []}))
    inners = {"name": "inners", "type": {"type": "array", "items": inner}}
    seen = {"name": "seen", "type": {"type": "map", "values": "int"}, "default": {}}
    bare = {"name": "inners", "type": {"type": "array", "items": json.loads(avro("I", ID))}}
    written = AvroSerializer(registry, avro("R", bare), conf=REGISTER)(
        {"inners": [{"id": 1}, {"id": 2}]}, VALUE
    )
    for names in (False, True):
        read = AvroDeserializer(registry, avro("R", inners, seen), None, names)
        for _ in range(2):
            found = read(written, VALUE)
            assert found == {"inners": [{"tags": []}, {"tags": []}], "seen": {}}
            found["inners"][0]["tags"].append("x")
            found["seen"]["x"] = 1
            assert found["inners"][1] == {"tags": []}


def test_avro_primitives_and_unions_round_trip(registry: SchemaRegistryClient) -> None:
    for subject, schema, value in (
        ("s", '"string"', "text"),
        ("b", '{"type": "bytes"}', b"raw"),
        ("u", '["null", "int"]', 5),
    ):
        context = SerializationContext(subject, MessageField.KEY)
        written = AvroSerializer(registry, schema, conf=REGISTER)(value, context)
        assert AvroDeserializer(registry)(written, context) == value
    assert written is not None


def test_avro_references_are_resolved_and_requested_once(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("airport", Schema(avro("Airport", {"name": "code", "type": "string"})))
    leg = Schema(
        avro("Leg", {"name": "to", "type": "a.Airport"}),
        references=(SchemaReference("a.Airport", "airport", 1),),
    )
    written = AvroSerializer(registry, leg, conf=REGISTER)({"to": {"code": "JFK"}}, VALUE)
    assert AvroDeserializer(registry)(written, VALUE) == {"to": {"code": "JFK"}}
    assert server.asked.count("GET /subjects/airport/versions/1") == 1


def test_schemas_are_not_registered_by_default(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    serialize = AvroSerializer(registry, FIRST)
    with pytest.raises(SchemaNotFoundError, match=r"auto\.register\.schemas"):
        serialize({"id": 1}, VALUE)
    assert server.schemas == []
    registry.register_schema("t-value", Schema(FIRST))
    assert serialize({"id": 1}, VALUE) == b"\0\0\0\0\1\2"


def test_the_latest_version_can_be_used_for_writing(registry: SchemaRegistryClient) -> None:
    registry.register_schema("t-value", Schema(FIRST))
    registry.register_schema("t-value", Schema(SECOND))
    conf = {"use.latest.version": "true"}
    for schema in (None, FIRST):
        written = AvroSerializer(registry, schema, conf=conf)({"id": 1}, VALUE)
        assert written == b"\0\0\0\0\2\2\x08none"


@pytest.mark.parametrize("strategy", ["RECORD", "TOPIC_RECORD"])
def test_the_subject_name_strategy_applies_to_all_formats(
    server: RegistryServer, registry: SchemaRegistryClient, strategy: str
) -> None:
    conf = {**REGISTER, "subject.name.strategy": strategy}
    AvroSerializer(registry, FIRST, conf=conf)({"id": 1}, VALUE)
    JSONSerializer(JSON_SCHEMA, registry, conf=conf)({"id": 1}, VALUE)
    ProtobufSerializer(Inner, registry, conf)(Inner(x=1), VALUE)
    before = "t-" if strategy == "TOPIC_RECORD" else ""
    named = [name for name in server.subjects if name != "common.proto"]
    assert named == [before + name for name in ("a.F", "F", "m.Outer.Inner")]


def test_the_schema_id_can_be_in_a_header(registry: SchemaRegistryClient) -> None:
    context = SerializationContext("t", MessageField.VALUE, [])
    conf = {**REGISTER, "schema.id.location": "header"}
    written = AvroSerializer(registry, FIRST, conf=conf)({"id": 1}, context)
    assert written == b"\2"
    [(name, value)] = context.headers
    assert (name, len(value), value[0]) == ("__value_schema_id", 17, 1)
    assert AvroDeserializer(registry)(written, context) == {"id": 1}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "a zero byte and a 4-byte schema id"),
        (b"\0\0\0\1", "a zero byte and a 4-byte schema id"),
        (b"\0\0\0\0\1", "EOFError|Avro schema"),
        (b"\0\0\0\0\1\2\3", "1 byte left over"),
    ],
)
def test_invalid_avro_data_is_rejected(
    registry: SchemaRegistryClient, data: bytes, words: str
) -> None:
    registry.register_schema("t-value", Schema(FIRST))
    with pytest.raises(DeserializationError, match=words):
        AvroDeserializer(registry)(data, VALUE)


def test_a_value_that_does_not_match_its_schema_is_rejected(registry: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(registry, FIRST, conf=REGISTER)
    for value in ({}, {"id": "x"}, 5):
        with pytest.raises(SerializationError, match="Avro schema"):
            serialize(value, VALUE)
    check = JSONSerializer(JSON_SCHEMA, registry, conf=REGISTER)
    with pytest.raises(SerializationError, match=r"/id: .*string|integer"):
        check({"id": "x"}, VALUE)
    with pytest.raises(SerializationError, match="JSON"):
        check({"id": 1, "tags": [b"x"]}, VALUE)
    with pytest.raises(SerializationError, match=r"m\.Outer, not dict"):
        ProtobufSerializer(Outer, registry, REGISTER)({"x": 1}, VALUE)


def test_invalid_schemas_are_rejected(registry: SchemaRegistryClient) -> None:
    with pytest.raises(InvalidSchemaError, match="Avro schema"):
        AvroSerializer(registry, "{")({"id": 1}, VALUE)
    with pytest.raises(InvalidSchemaError, match="JSON schema"):
        JSONSerializer("{", registry)
    with pytest.raises(InvalidSchemaError, match="JSON schema"):
        JSONSerializer('{"type": 5}', registry, conf=REGISTER)({}, VALUE)
    registry.register_schema("t-value", Schema(JSON_SCHEMA, "JSON"))
    with pytest.raises(InvalidSchemaError, match="type JSON, not AVRO"):
        AvroDeserializer(registry)(b"\0\0\0\0\1\2", VALUE)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"auto.register.schema": True}, "unknown setting"),
        ({"auto.register.schemas": "perhaps"}, "true or false"),
        ({"auto.register.schemas": True, "use.latest.version": True}, "combined"),
        ({"schema.id.location": "tail"}, "prefix or header"),
        ({"subject.name.strategy": "os.system"}, "TOPIC_RECORD"),
    ],
)
def test_invalid_settings_are_rejected(
    registry: SchemaRegistryClient, conf: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        AvroSerializer(registry, FIRST, conf=conf)


def test_json_values_round_trip_and_are_validated(registry: SchemaRegistryClient) -> None:
    serialize = JSONSerializer(JSON_SCHEMA, registry, conf=REGISTER)
    written = serialize({"id": 1, "tags": ["ä"]}, VALUE)
    assert written == b'\0\0\0\0\1{"id":1,"tags":["\xc3\xa4"]}'
    for read in (
        JSONDeserializer(schema_registry_client=registry),
        JSONDeserializer(JSON_SCHEMA),
        JSONDeserializer(schema_registry_client=registry, conf={"use.latest.version": True}),
    ):
        assert read(written, VALUE) == {"id": 1, "tags": ["ä"]}
        with pytest.raises(DeserializationError, match="JSON schema"):
            read(b'\0\0\0\0\1{"id": "x"}', VALUE)
        with pytest.raises(DeserializationError, match="isn't valid JSON"):
            read(b"\0\0\0\0\1{", VALUE)
    with pytest.raises(
        DeserializationError, match="a zero byte, like data that is framed with a schema id"
    ):
        PlainJSONDeserializer()(written)
    unchecked = JSONDeserializer(schema_registry_client=registry, conf={"validate": False})
    assert unchecked(b'\0\0\0\0\1{"id": "x"}', VALUE) == {"id": "x"}


def test_json_numbers_may_be_decimals(registry: SchemaRegistryClient) -> None:
    """Decimals keep all digits; NaN and ambiguous numbers are rejected."""
    serialize = JSONSerializer("{}", registry, conf=REGISTER)
    written = serialize({"a": [Decimal("1E+3"), Decimal("-0.10")], "b": "\ue000"}, VALUE)
    assert written is not None
    assert written[5:] == '{"a":[1000,-0.10],"b":"\ue000"}'.encode()
    alone = serialize(Decimal("0.30000000000000000001"), VALUE)
    assert alone is not None
    assert alone[5:] == b"0.30000000000000000001"
    assert serialize(plain._DECIMAL, VALUE) is not None
    for refused in (
        Decimal("NaN"),
        [Decimal(1), plain._DECIMAL],
        {plain._DECIMAL: Decimal(1)},
        object(),
    ):
        with pytest.raises(SerializationError, match="can't be written as JSON"):
            serialize(refused, VALUE)
    longest = serialize(Decimal("1E+4299"), VALUE)
    assert longest is not None
    assert longest[5:] == b"1" + b"0" * 4299
    for digits in ("1E+4300", "1E-4300", "1E+100000000", "1E-100000000", "7" * 4301):
        with pytest.raises(SerializationError, match="more than 4300 digits"):
            serialize([Decimal(digits)], VALUE)


def test_references_of_json_schemas_are_only_resolved_by_the_registry(
    registry: SchemaRegistryClient,
) -> None:
    code = json.dumps({"$schema": DRAFT, "type": "string", "maxLength": 3})
    registry.register_schema("code", Schema(code, "JSON"))
    leg = Schema(
        json.dumps({"$schema": DRAFT, "properties": {"to": {"$ref": "code.json"}}}),
        "JSON",
        (SchemaReference("code.json", "code", 1),),
    )
    serialize = JSONSerializer(leg, registry, conf=REGISTER)
    assert serialize({"to": "JFK"}, VALUE)
    with pytest.raises(SerializationError, match="/to"):
        serialize({"to": "JFKX"}, VALUE)
    away = json.dumps({"$schema": DRAFT, "$ref": "http://127.0.0.1:1/other.json"})
    with pytest.raises(InvalidSchemaError, match="references|other.json"):
        JSONSerializer(away, registry, conf=REGISTER)({}, VALUE)


def _messages() -> tuple[Any, Any, Any]:
    """Return message classes as protoc generates them, nested and from an imported file."""
    pool = descriptor_pool.DescriptorPool()
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="m", syntax="proto3")
    common.message_type.add(name="Place").field.add(name="code", number=1, type=9, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name="file.proto", package="m", syntax="proto3", dependency=["common.proto"]
    )
    file.message_type.add(name="First")
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="x", number=1, type=5, label=1)
    outer.field.add(name="at", number=2, type=11, label=1, type_name=".m.Place")
    outer.nested_type.add(name="Before")
    outer.nested_type.add(name="Inner").field.add(name="x", number=1, type=5, label=1)
    pool.Add(common)
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"m.{name}"))
        for name in ("First", "Outer", "Outer.Inner")
    )


First, Outer, Inner = _messages()


def test_message_indexes_follow_the_order_of_messages_in_the_proto_file() -> None:
    found = [message_indexes(one.DESCRIPTOR) for one in (First, Outer, Inner)]
    assert found == [(0,), (1,), (1, 1)]


def test_protobuf_messages_round_trip(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    message = Outer(x=5, at={"code": "JFK"})
    written = ProtobufSerializer(Outer, registry, REGISTER)(message, VALUE)
    assert written is not None
    assert written[:7] == b"\0\0\0\0\2\2\2"
    assert ProtobufDeserializer(Outer)(written, VALUE) == message
    assert list(server.subjects) == ["common.proto", "t-value"]
    assert server.schemas[1]["references"] == [
        {"name": "common.proto", "subject": "common.proto", "version": 1}
    ]
    assert ProtobufSerializer(Outer, registry)(message, VALUE) == written
    inner = ProtobufSerializer(Inner, registry)(Inner(x=1), VALUE)
    assert inner == b"\0\0\0\0\2\4\2\2\x08\1"
    assert ProtobufDeserializer(Inner)(inner, None) == Inner(x=1)
    for wrong in (b"\0\0\0\0\2\0\xff", b"x", b"\0\0\0\0\2\2\2\x08"):
        with pytest.raises(DeserializationError):
            ProtobufDeserializer(Outer)(wrong, VALUE)
    with pytest.raises(ConfigurationError, match="protoc"):
        ProtobufDeserializer(dict)


def test_protobuf_data_of_another_message_type_is_rejected(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Protobuf's own decoder accepts nearly any bytes as any message."""
    inner = ProtobufSerializer(Inner, registry, REGISTER)(Inner(x=1), VALUE)
    server.asked.clear()
    assert ProtobufDeserializer(Outer)(inner, VALUE) is not None
    read = ProtobufDeserializer(Outer, registry)
    for _ in range(2):
        with pytest.raises(
            DeserializationError, match=r"according to its schema it is .*Inner, not .*Outer"
        ):
            read(inner, VALUE)
    assert len(server.asked) == 1
    assert inner is not None
    assert ProtobufDeserializer(Inner, registry)(inner, VALUE) == Inner(x=1)
    with pytest.raises(DeserializationError, match=r"unknown message \[9\]"):
        read(inner[:5] + b"\2\x12", VALUE)
    registry.register_schema("j", Schema("{}", "JSON"))
    with pytest.raises(InvalidSchemaError, match="not PROTOBUF"):
        read(b"\0\0\0\0\3\0", VALUE)


PROTO = """
syntax = "proto3"; // message A {
package a.b; /* message B { */
option note = "message C {";
enum Kind { NONE = 0; }
message First { string message = 1; map<string, Late> late = 2; enum E { Z = 0; }
  message Late { message Inmost {} } oneof one { int32 x = 3; } }
service S { rpc Do (First) returns (First) {} }
message Second {}
"""


@pytest.mark.parametrize(
    ("indexes", "name"),
    [
        ((0,), "a.b.First"),
        ((1,), "a.b.Second"),
        ((0, 0), "a.b.First.Late"),
        ((0, 0, 0), "a.b.First.Late.Inmost"),
        ((2,), None),
        ((0, 1), "a.b.First.Late"),  # if map entries count as messages
        ((0, 2), None),
        ((-1,), None),
    ],
)
def test_messages_are_found_in_the_text_of_a_proto_file(
    indexes: tuple[int, ...], name: str | None
) -> None:
    found = messages_at(Schema(PROTO, "PROTOBUF"), indexes)
    assert found == (set() if name is None else {name})


def test_message_indexes_are_read_whether_they_count_map_entries_or_not() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto")
    message = file.message_type.add(name="M")
    message.nested_type.add(name="TagsEntry").options.map_entry = True
    message.nested_type.add(name="Part")
    schema = Schema(b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    assert messages_at(schema, (0, 0)) == {"M.Part"}
    assert messages_at(schema, (0, 1)) == {"M.Part"}


GROUPS = """
syntax = "proto2"; package g;
message M {
  map<string, .g.M> by_name = 1; optional group Part = 2 [deprecated = true] { message In {}
    map < int32 , string > m = 3; message Late {} }
  message Last {}
}
"""


def test_groups_and_map_entries_count_as_messages() -> None:
    """protoc counts both in the order of the file; some serializers omit map entries."""
    schema = Schema(GROUPS, "PROTOBUF")
    for indexes, name in (
        ((0, 1), "g.M.Part"), ((0, 1, 0), "g.M.Part.In"), ((0, 1, 2), "g.M.Part.Late"),
        ((0, 2), "g.M.Last"),
    ):  # fmt: skip
        assert name in messages_at(schema, indexes)


def test_a_schema_text_with_a_map_identifies_the_right_message(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """A registry may return a .proto text for a schema that was registered as a descriptor."""
    file = descriptor_pb2.FileDescriptorProto(name="map.proto", package="mapped", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=9, label=1)
    message.field.add(name="tags", number=1, type=11, label=3, type_name=".mapped.M.TagsEntry")
    message.nested_type.add(name="Part").field.add(name="x", number=1, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    part = message_factory.GetMessageClass(pool.FindMessageTypeByName("mapped.M.Part"))
    data = ProtobufSerializer(part, registry, REGISTER)(part(x=7), VALUE)
    text = """syntax = "proto3"; package mapped;
        message M { map<string, string> tags = 1; message Part { int32 x = 1; } }"""
    server.schemas[0]["schema"] = text
    assert ProtobufDeserializer(part, registry)(data, VALUE) == part(x=7)


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("String", "ä", "ä".encode()),
        ("Integer", -2, struct.pack(">i", -2)),
        ("Long", 1 << 40, struct.pack(">q", 1 << 40)),
        ("Double", 1.5, struct.pack(">d", 1.5)),
        ("PlainJSON", {"a": ["ä", None]}, '{"a":["ä",null]}'.encode()),
    ],
)
def test_plain_serializers_round_trip_and_reject_other_types(
    kind: str, value: Any, written: bytes
) -> None:
    write, read = (getattr(plain, f"{kind}{end}") for end in ("Serializer", "Deserializer"))
    assert write()(value) == write()(value, VALUE) == written
    assert read()(written) == read()(written, VALUE) == value
    assert write()(None) is None
    assert read()(None) is None
    with pytest.raises(DeserializationError):
        read()(b"\xff\xfe\xff")
    with pytest.raises(SerializationError):
        write()(object())


def test_the_error_for_a_missing_package_has_the_pip_command(
    registry: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonschema_rs", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'odradek\[schemas\]'"):
        JSONSerializer(JSON_SCHEMA, registry)


@pytest.mark.parametrize("text", ["{", '{"type": "strin"}', "JFK"])
def test_an_invalid_avro_schema_is_rejected_at_once(
    registry: SchemaRegistryClient, text: str
) -> None:
    for made in (AvroSerializer, AvroDeserializer):
        with pytest.raises(InvalidSchemaError, match="isn't a valid Avro schema"):
            made(registry, text)


def test_swapped_arguments_of_a_serializer_are_rejected_at_once(
    registry: SchemaRegistryClient,
) -> None:
    swapped: Any = registry
    for make in (
        lambda: AvroSerializer(FIRST, swapped),  # type: ignore[arg-type]  # a program's slip
        lambda: AvroDeserializer(FIRST, swapped),  # type: ignore[arg-type]  # a program's slip
        lambda: JSONSerializer(swapped, JSON_SCHEMA),  # type: ignore[arg-type]  # a program's slip
        lambda: JSONDeserializer(swapped),
    ):
        with pytest.raises(
            ConfigurationError, match=r"must be a .* not (SchemaRegistryClient|str)$"
        ):
            make()
    settings: Any = REGISTER
    for make in (
        lambda: AvroSerializer(registry, FIRST, settings),
        lambda: AvroDeserializer(registry, FIRST, settings),
        lambda: JSONSerializer(JSON_SCHEMA, registry, settings),
        lambda: JSONDeserializer(JSON_SCHEMA, settings),
    ):
        with pytest.raises(
            ConfigurationError, match="a function, not dict; pass settings as conf="
        ):
            make()


@pytest.mark.parametrize("given", [{"use.deprecated.format": False}, "http://localhost:8081", None])
def test_a_registry_argument_of_another_type_is_rejected_at_once(given: Any) -> None:
    makers: list[Any] = [AvroSerializer, AvroDeserializer]
    for make in makers:
        with pytest.raises(ConfigurationError, match=f"not {type(given).__name__}$"):
            make(given, FIRST)
    with pytest.raises(ConfigurationError, match=f"not {type(given).__name__}$"):
        JSONSerializer(JSON_SCHEMA, given)


def test_an_asyncio_registry_client_is_rejected() -> None:
    other: Any = AsyncSchemaRegistryClient({"url": "http://localhost:8081"})
    with pytest.raises(ConfigurationError, match="not AsyncSchemaRegistryClient"):
        AvroSerializer(other, FIRST)


def test_errors_of_decimals_and_uuids_name_the_field(server: RegistryServer) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 2}
    kinds: list[tuple[str, Any, Any]] = [
        ("price", decimal, Decimal(100)),
        ("cost", ["null", decimal], Decimal(100)),
        ("tail", {"type": "string", "logicalType": "uuid"}, "no"),
    ]
    for name, kind, value in kinds:
        schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind}]}
        registry = SchemaRegistryClient({"url": server.url})
        write = AvroSerializer(registry, json.dumps(schema), conf={"auto.register.schemas": True})
        with pytest.raises(SerializationError, match=f"field {name}"):
            write({name: value}, SerializationContext(name, MessageField.VALUE))
