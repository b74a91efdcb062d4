"""Test Avro schemas written by other clients: references, decimals, unusual types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.fuzz.avro import without_kernel
from tests.registry_server import RegistryServer

from odradek.cli.console.avro_lines import of_json
from odradek.errors import DeserializationError, InvalidSchemaError, SerializationError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    ConvertedColumn,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    arrow_to_avro,
    avro_to_arrow,
)
from odradek.serialization.avro.parsing import parsed_avro
from odradek.serialization.schema_limits import MOST_DIGITS
from odradek.serialization.wire_format import varint

VALUE = SerializationContext("t", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
FRAME = b"\0\0\0\0\1"


def record(*fields: Mapping[str, Any], name: str = "a.R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(kind: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def decimal(precision: Any = None, scale: Any = None, kind: str = "bytes", **more: Any) -> Any:
    given = {"precision": precision, "scale": scale} | more
    found = {name: value for name, value in given.items() if value is not None}
    return {"type": kind, "logicalType": "decimal"} | found


def read_column(
    registry: SchemaRegistryClient, *rows: bytes | None, **options: Any
) -> ConvertedColumn:
    """Decode rows to a column; check that the result is the same without the native kernel."""
    found = avro_to_arrow(pa.array(rows, pa.binary()), registry, **options)
    with without_kernel():
        other = avro_to_arrow(pa.array(rows, pa.binary()), registry, **options)
    assert found.values.equals(other.values)
    assert found.errors == other.errors
    return found


def having(server: RegistryServer, *schemas: Any) -> SchemaRegistryClient:
    """Return a client of a registry that contains these schemas, with ids from 1 on."""
    server.schemas += [{"schema": json.dumps(one)} for one in schemas]
    return SchemaRegistryClient({"schema.registry.url": server.url})


CODE = record(field("string", "code"), name="a.Code")
SIDE = {"type": "enum", "name": "a.Side", "symbols": ["L", "R"]}
PLACE = record(field("a.Code", "code"), field("a.Side", "side"), name="b.Place")
LEAVES = {"code": {"code": "JFK"}, "side": "R"}
SHAPES: dict[str, tuple[Any, Any]] = {
    "field": (record(field("b.Place")), {"x": LEAVES}),
    "twice": (record(field("b.Place"), field("b.Place", "y")), {"x": LEAVES, "y": LEAVES}),
    "optional": (["null", "b.Place"], LEAVES),
    "union": (["b.Place", "a.Code"], ("a.Code", {"code": "LHR"})),
    "array": ({"type": "array", "items": "b.Place"}, [LEAVES, LEAVES]),
    "map": ({"type": "map", "values": "b.Place"}, {"k": LEAVES}),
    "enum": ({"type": "array", "items": ["null", "a.Side"]}, ["R", None]),
    "within": (
        record(field({"type": "map", "values": {"type": "array", "items": "a.Code"}})),
        {"x": {"k": [{"code": "JFK"}]}},
    ),
    # An object with only the key "type", whose value is a name or a schema.
    "object": ({"type": "b.Place"}, LEAVES),
    "object in a field": (record(field({"type": {"type": "b.Place"}})), {"x": LEAVES}),
    "object in an array": ({"type": "array", "items": {"type": "b.Place"}}, [LEAVES]),
    "object in a map": ({"type": "map", "values": {"type": "a.Side"}}, {"k": "R"}),
    "object in a union": (["null", {"type": "b.Place"}], LEAVES),
    "object around a union": (record(field({"type": ["null", "a.Side"]})), {"x": None}),
    "object around an array": ({"type": {"type": "array", "items": "a.Side"}}, ["R"]),
    "object beside": (
        record(field("b.Place"), field({"type": "array", "items": {"type": "R"}}, "more")),
        {"x": LEAVES, "more": []},
    ),
}


def referring(registry: SchemaRegistryClient, shape: Any) -> Schema:
    for name, one in (("code", CODE), ("side", SIDE)):
        registry.register_schema(name, Schema(json.dumps(one)))
    leaves = (SchemaReference("a.Code", "code", 1), SchemaReference("a.Side", "side", 1))
    registry.register_schema("place", Schema(json.dumps(PLACE), references=leaves))
    place = SchemaReference("b.Place", "place", 1)
    return Schema(json.dumps(shape), references=(place, *leaves))


@pytest.mark.parametrize("shape", SHAPES)
def test_references_in_every_kind_of_schema_are_resolved(
    registry: SchemaRegistryClient, shape: str
) -> None:
    schema, value = SHAPES[shape]
    refers = referring(registry, schema)
    serializer = AvroSerializer(registry, refers, conf=REGISTER)
    written = serializer(value, VALUE)
    assert written is not None
    expected = value[1] if isinstance(value, tuple) else value
    for reader in (None, refers):
        assert AvroDeserializer(registry, reader)(written, VALUE) == expected
        if shape not in ("union", "object beside"):  # a recursive record can't be a column
            column = read_column(registry, written, None, reader_schema=reader)
            assert (column.errors, column.values.to_pylist(maps_as_pydicts="strict")) == (
                {},
                [expected, None],
            )
            assert arrow_to_avro(column.values, serializer, "t").values[0].as_py() == written
    parsed = parsed_avro(refers, registry)
    read_of_json = of_json(json.loads(json.dumps(expected)), parsed)
    assert serializer.payload(read_of_json, parsed) == written[5:]


def test_types_without_a_namespace_keep_their_names(registry: SchemaRegistryClient) -> None:
    """A referenced type without a namespace mustn't get the namespace of the referring schema."""
    registry.register_schema("bare", Schema(json.dumps(record(field("int"), name="Bare"))))
    bare = SchemaReference("Bare", "bare", 1)
    between = record(field("Bare"), field("Bare", "y"), name="Between")
    registry.register_schema("between", Schema(json.dumps(between), references=(bare,)))
    refers = Schema(
        json.dumps({"type": "array", "items": ["null", "Between"]}),
        references=(SchemaReference("Between", "between", 1),),
    )
    written = AvroSerializer(registry, refers, conf=REGISTER)(
        [{"x": {"x": 1}, "y": {"x": 2}}], VALUE
    )
    assert AvroDeserializer(registry)(written, VALUE) == [{"x": {"x": 1}, "y": {"x": 2}}]


LARGE = Decimal("-" + "1234567890" * 7 + ".123456")


@pytest.mark.parametrize(("precision", "kind"), [(38, pa.decimal128), (64, pa.decimal256)])
def test_decimals_of_every_precision_become_columns(
    server: RegistryServer, precision: int, kind: Any
) -> None:
    """Kafka Connect's decimals have a precision of 64."""
    schema = record(field(["null", decimal(precision, 6)]))
    registry = having(server, schema)
    serializer = AvroSerializer(registry, json.dumps(schema), conf=REGISTER)
    values = [Decimal("-1.5"), None, Decimal((0, (9,) * precision, -6))]
    rows = [serializer({"x": one}, VALUE) for one in values]
    found = read_column(registry, *rows)
    assert found.values.type.field("x").type == kind(precision, 6)
    assert (found.errors, found.values.field("x").to_pylist()) == ({}, values)
    assert arrow_to_avro(found.values, serializer, "t").values.to_pylist() == rows


def test_large_decimals_can_be_read_as_strings(server: RegistryServer) -> None:
    money = decimal(76, 6)
    schema = record(field(money), field(decimal(9, 2), "small"))
    registry = having(server, schema, record(field(decimal(77, 0))), decimal(MOST_DIGITS + 1, 0))
    write = AvroSerializer(registry, json.dumps(schema), conf=REGISTER)
    written = write({"x": LARGE, "small": Decimal("1.5")}, VALUE)
    found = read_column(registry, written)
    assert found.values.to_pylist() == [{"x": LARGE, "small": Decimal("1.50")}]
    found = read_column(registry, written, text_decimals=True)
    assert found.values.to_pylist() == [{"x": str(LARGE), "small": Decimal("1.50")}]
    beyond = b"\0\0\0\0\2\2\x01"
    with pytest.raises(InvalidSchemaError, match=r"77 digits.*text_decimals=True"):
        read_column(registry, beyond)
    found = read_column(registry, beyond, text_decimals=True)
    assert found.values.to_pylist() == [{"x": "1"}]
    with pytest.raises(InvalidSchemaError, match=str(MOST_DIGITS)):
        read_column(registry, b"\0\0\0\0\3\2\x01", text_decimals=True)


IGNORED: list[tuple[Any, Any]] = [
    ({"type": "string", "logicalType": "date"}, "text"),
    ({"type": "long", "logicalType": "date"}, 5),
    ({"type": "int", "logicalType": "timestamp-millis"}, 5),
    ({"type": "int", "logicalType": "time-micros"}, 5),
    ({"type": "bytes", "logicalType": "uuid"}, b"b"),
    ({"type": "string", "logicalType": "decimal", "precision": 4}, "1.5"),
    ({"type": "string", "logicalType": "unknown"}, "text"),
    (decimal(), b"b"),
    (decimal("4"), b"b"),
    (decimal(0), b"b"),
    (decimal(True), b"b"),
    (decimal(4, 5), b"b"),
    (decimal(4, -1), b"b"),
    (decimal(4, 1.5), b"b"),
    (decimal(5, kind="fixed", name="a.F", size=2), b"bb"),
]


@pytest.mark.parametrize(("kind", "value"), IGNORED)
def test_invalid_logical_types_are_ignored(server: RegistryServer, kind: Any, value: Any) -> None:
    """Avro 1.12 requires it, and Java ignores them; fastavro rejects some, misreads others."""
    schema = record(field(kind))
    registry = having(server, schema)
    serializer = AvroSerializer(registry, json.dumps(schema), conf=REGISTER)
    written = serializer({"x": value}, VALUE)
    assert AvroDeserializer(registry)(written, VALUE) == {"x": value}
    found = read_column(registry, written)
    assert (found.errors, found.values.to_pylist()) == ({}, [{"x": value}])
    assert arrow_to_avro(found.values, serializer, "t").values[0].as_py() == written


@pytest.mark.parametrize(
    ("kind", "default", "read"),
    [
        ("int", "text", None),
        ("int", True, None),
        ("string", 5, None),
        ("boolean", 0, None),
        ("bytes", [], None),
        (["null", "string"], 5, None),
        ({"type": "array", "items": "int"}, {}, None),
        ({"type": "enum", "name": "a.E", "symbols": ["A"]}, 0, None),
        ("double", "text", None),
        ({"type": "double"}, 0, 0.0),
        ({"type": "float"}, -2, -2.0),
    ],
)
def test_a_default_of_a_wrong_type_is_an_error_only_for_a_reader_that_needs_it(
    server: RegistryServer, kind: Any, default: Any, read: Any
) -> None:
    """Java's deserializers also accept such schemas."""
    present = {"int": 7, "string": "a", "boolean": True, "bytes": b"b", "double": 1.5}
    value = present.get(kind) if isinstance(kind, str) else None
    with_default = record(field("int", "id"), field(kind, default=default))
    registry = having(server, record(field("int", "id")), with_default)
    old = FRAME + varint(1)
    reader = AvroDeserializer(registry, json.dumps(with_default))
    if value is not None:
        written = AvroSerializer(registry, json.dumps(with_default), conf=REGISTER)(
            {"id": 1, "x": value}, VALUE
        )
        assert AvroDeserializer(registry)(written, VALUE) == {"id": 1, "x": value}
        assert reader(written, VALUE) == {"id": 1, "x": value}
    column = read_column(registry, old, reader_schema=json.dumps(with_default))
    if read is not None:
        assert reader(old, VALUE) == {"id": 1, "x": read}
        assert column.values.to_pylist() == [{"id": 1, "x": read}]
        return
    with pytest.raises(DeserializationError, match="No default value for field x"):
        reader(old, VALUE)
    assert "No default value for field x" in column.errors[0]


@pytest.mark.parametrize(
    ("schema", "payload", "column"),
    [
        (record(field({"type": "enum", "name": "a.E", "symbols": ["A", "B"]})), b"\1", True),
        (record(field(["null", "string"])), b"\1\2a", True),
        (record(field({"type": "array", "items": ["int", "null"]})), b"\2\1\0", True),
        (["null", "string"], b"\1\2a", True),
        (["null", {"type": "array", "items": ["int", "null"]}], b"\2\2\1\0", True),
        ({"type": "array", "items": ["int", "null"]}, b"\2\1\0", True),
        ({"type": "enum", "name": "a.E", "symbols": ["A", "B"]}, b"\1", True),
        (record(field(["null", "a.R"])), b"\1", False),
    ],
)
def test_a_negative_index_of_a_union_branch_or_enum_symbol_is_rejected(
    server: RegistryServer, schema: Any, payload: bytes, column: bool
) -> None:
    registry = having(server, schema)
    for reader in (None, json.dumps(schema)):
        with pytest.raises(DeserializationError, match="Avro schema"):
            AvroDeserializer(registry, reader)(FRAME + payload, VALUE)
    if column:
        assert list(read_column(registry, FRAME + payload).errors) == [0]


def test_bytes_fields_accept_any_object_with_the_buffer_protocol(
    registry: SchemaRegistryClient,
) -> None:
    fixed = {"type": "fixed", "name": "a.F", "size": 1}
    schema = record(
        field("bytes"), field(["null", "bytes"], "y"), field({"type": "array", "items": fixed}, "z")
    )
    write = AvroSerializer(registry, json.dumps(schema), conf=REGISTER)
    expected = write({"x": b"b", "y": b"c", "z": [b"d"]}, VALUE)
    assert expected is not None
    kinds: tuple[Any, ...] = (bytearray, memoryview)
    for kind in kinds:
        value = {"x": kind(b"b"), "y": kind(b"c"), "z": [kind(b"d")]}
        assert write(value, VALUE) == expected
        root = AvroSerializer(registry, '"bytes"', conf=REGISTER)
        context = SerializationContext("root", MessageField.VALUE)
        assert root(kind(b"b"), context) == root(b"b", context)
        assert AvroDeserializer(registry)(kind(expected), VALUE) == {
            "x": b"b",
            "y": b"c",
            "z": [b"d"],
        }


def test_a_string_is_not_accepted_as_an_array(registry: SchemaRegistryClient) -> None:
    schema = json.dumps({"type": "array", "items": "string"})
    with pytest.raises(SerializationError, match="the schema has an array, but the value is a str"):
        AvroSerializer(registry, schema, conf=REGISTER)("abc", VALUE)


def test_bytes_are_not_accepted_as_an_array(registry: SchemaRegistryClient) -> None:
    """In a union of bytes and an array, fastavro would encode bytes as a list of integers."""
    numbers = {"type": "array", "items": "int"}
    one, other = record(field(numbers), name="A"), record(field("bytes"), name="B")
    write = AvroSerializer(registry, json.dumps([numbers, "bytes", one, other]), conf=REGISTER)
    read = AvroDeserializer(registry)
    kinds: tuple[Any, ...] = (bytes, bytearray, memoryview)
    for kind in kinds:
        assert read(write(kind(b"ab"), VALUE), VALUE) == b"ab"
        assert read(write({"x": kind(b"ab")}, VALUE), VALUE) == {"x": b"ab"}
        with pytest.raises(SerializationError, match="has an array"):
            AvroSerializer(registry, json.dumps(numbers), conf=REGISTER)(kind(b"ab"), VALUE)
    assert read(write([97, 98], VALUE), VALUE) == [97, 98]


UUIDS = {
    "00000000-0000-0000-0000-00000000000a": True,
    "00000000-0000-0000-0000-00000000000A": True,
    "0000000000000000000000000000000a": True,
    "00000000-0000-0000-0000-00000000000": False,
    "00000000-0000-0000-0000-00000000000g": False,
    "00000000-0000-0000-0000:00000000000a": False,
    "": False,
    "none": False,
}


def test_a_value_that_readers_could_not_decode_is_not_written(
    registry: SchemaRegistryClient,
) -> None:
    decimal = {"logicalType": "decimal", "precision": 4, "scale": 2}
    fixed = {"type": "fixed", "name": "F", "size": 3, **decimal}
    text = {"type": "string", "logicalType": "uuid"}
    number = {"type": "bytes", **decimal}
    cases: list[tuple[Any, Any, Any]] = [
        (text, "nope", str(UUID(int=1))),
        (["null", text], "nope", str(UUID(int=1))),
        (fixed, b"abc", b"\0\0\1"),
        (number, bytearray(b"abc"), bytearray(b"\1")),
        (["null", number], b"abc", b"\1"),
    ]
    for at, (kind, bad, good) in enumerate(cases):
        write = AvroSerializer(registry, json.dumps(record(field(kind))), conf=REGISTER)
        context = SerializationContext(f"t{at}", MessageField.VALUE)
        assert AvroDeserializer(registry)(write({"x": good}, context), context) is not None
        with pytest.raises(SerializationError, match="doesn't match its Avro schema"):
            write({"x": bad}, context)


def test_a_string_that_is_not_a_uuid_may_match_another_union_branch(
    registry: SchemaRegistryClient,
) -> None:
    text = {"type": "string", "logicalType": "uuid"}
    one, other = (
        {**record(field(kind)), "name": name} for kind, name in ((text, "A"), ("string", "B"))
    )
    for first, second in ((one, other), (other, one)):
        context = SerializationContext(str(first["name"]), MessageField.VALUE)
        write = AvroSerializer(registry, json.dumps([first, second]), conf=REGISTER)
        read = AvroDeserializer(registry)
        assert read(write({"x": "text"}, context), context) == {"x": "text"}


@pytest.mark.parametrize("text", UUIDS)
def test_an_invalid_uuid_is_rejected_by_all_readers(server: RegistryServer, text: str) -> None:
    registry = having(server, record(field({"type": "string", "logicalType": "uuid"})))
    row = FRAME + varint(len(text)) + text.encode()
    found = read_column(registry, row)
    if UUIDS[text]:
        assert found.values.to_pylist() == [{"x": "00000000-0000-0000-0000-00000000000a"}]
        assert AvroDeserializer(registry)(row, VALUE) == {"x": UUID(int=10)}
        return
    assert list(found.errors) == [0]
    with pytest.raises(DeserializationError, match="UUID"):
        AvroDeserializer(registry)(row, VALUE)


@pytest.mark.parametrize("kind", ["bytes", "fixed"])
@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("123.45", "123.45"),
        ("-123.45", "-123.45"),
        ("-1.28", "-1.28"),
        ("999.99", "999.99"),
        ("-999.99", "-999.99"),
        ("0", "0.00"),
        ("1.500", "1.50"),
        ("1E+2", "100.00"),
        ("0E+100000000", "0.00"),
        ("1000", None),
        ("1E+3", None),
        ("1.005", None),
        ("1E-100000000", None),
        ("1E+100000000", None),
        ("NaN", None),
        ("Infinity", None),
    ],
)
def test_a_decimal_is_written_exactly_or_rejected(
    registry: SchemaRegistryClient, kind: str, given: str, read: str | None
) -> None:
    more = {"name": "a.F", "size": 4} if kind == "fixed" else {}
    schema = record(field(decimal(5, 2, kind, **more)))
    write = AvroSerializer(registry, json.dumps(schema), conf=REGISTER)
    value = {"x": Decimal(given)}
    if read is None:
        with pytest.raises(SerializationError, match="decimal may have"):
            write(value, VALUE)
        return
    assert str(AvroDeserializer(registry)(write(value, VALUE), VALUE)["x"]) == read


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"", "0.00"),
        (b"\x01\x86\x9f", "999.99"),
        (b"\0" * 1000 + b"\x01\x86\x9f", "999.99"),
        (b"\xff" * 1000 + b"\xfe\x79\x61", "-999.99"),
        (b"\x01\x86\xa0", None),
        (b"\xfe\x79\x60", None),
        (b"\x01" + b"\0" * 1000, None),
        (b"\xff" * 1000 + b"\x7f" * 9, None),
        (b"\x7f" * 100_000, None),
    ],
)
def test_a_decimal_with_too_many_digits_is_rejected_and_not_rounded(
    server: RegistryServer, data: bytes, read: str | None
) -> None:
    """Its digits aren't converted to a number, which took two minutes for 1 MB."""
    registry = having(server, record(field(decimal(5, 2))))
    row = FRAME + varint(len(data)) + data
    found = read_column(registry, row)
    if read is not None:
        assert str(AvroDeserializer(registry)(row, VALUE)["x"]) == read
        assert [str(one["x"]) for one in found.values.to_pylist()] == [read]
        return
    with pytest.raises(DeserializationError, match="more than 5 digits"):
        AvroDeserializer(registry)(row, VALUE)
    assert "more than 5 digits" in found.errors[0]


def test_the_number_of_digits_of_a_decimal_is_limited_for_any_schema(
    server: RegistryServer,
) -> None:
    registry = having(server, record(field(decimal(10**9, 10**9))))
    read = AvroDeserializer(registry)
    large = b"\x7f" * 1_000_000
    with pytest.raises(DeserializationError, match=f"more than {MOST_DIGITS} digits"):
        read(FRAME + varint(len(large)) + large, VALUE)
    assert read(FRAME + b"\2\1", VALUE) == {"x": Decimal("1E-1000000000")}
