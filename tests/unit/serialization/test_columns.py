"""Test Avro columns: rows are decoded as by `AvroDeserializer`; errors have row numbers."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.registry_server import RegistryServer
from tests.volume import examples

from odradek.errors import InvalidSchemaError, MissingExtraError, RegistryUnreachableError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    arrow_to_avro,
    avro_to_arrow,
)
from odradek.serialization.wire_format import varint

VALUE = SerializationContext("t", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}


def record(name: str, **fields: Any) -> str:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


EVERY = record(
    "Every",
    b="boolean",
    i="int",
    l="long",
    f="float",
    d="double",
    raw="bytes",
    s="string",
    maybe=["null", "string"],
    later=["int", "null"],
    many={"type": "array", "items": "long"},
    named={"type": "map", "values": ["null", "int"]},
    kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
    four={"type": "fixed", "name": "Four", "size": 4},
    inner={"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]},
    again="Inner",
    day=logical("int", "date"),
    milli=logical("long", "timestamp-millis"),
    micro=logical("long", "timestamp-micros"),
    local=logical("long", "local-timestamp-micros"),
    at=logical("int", "time-millis"),
    cost=logical("bytes", "decimal", precision=9, scale=2),
    key=logical("string", "uuid"),
)
TYPES = pa.struct(
    [
        ("b", pa.bool_()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("raw", pa.binary()),
        ("s", pa.string()),
        ("maybe", pa.string()),
        ("later", pa.int32()),
        ("many", pa.list_(pa.int64())),
        ("named", pa.map_(pa.string(), pa.int32())),
        ("kind", pa.string()),
        ("four", pa.binary(4)),
        ("inner", pa.struct([("x", pa.int32())])),
        ("again", pa.struct([("x", pa.int32())])),
        ("day", pa.date32()),
        ("milli", pa.timestamp("ms", "UTC")),
        ("micro", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("at", pa.time32("ms")),
        ("cost", pa.decimal128(9, 2)),
        ("key", pa.string()),
    ]
)
ROW = {
    "b": True,
    "i": -5,
    "l": 1 << 40,
    "f": 1.5,
    "d": -2.25,
    "raw": b"\0\xff",
    "s": "ä",
    "maybe": None,
    "later": 7,
    "many": [1, 2],
    "named": [("a", 1), ("b", None)],
    "kind": "B",
    "four": b"abcd",
    "inner": {"x": 1},
    "again": {"x": 2},
    "day": date(2026, 1, 2),
    "milli": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC),
    "micro": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "local": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
    "at": time(1, 2, 3, 4000),
    "cost": Decimal("12.34"),
    "key": "00000000-0000-0000-0000-000000000007",
}


def column(*rows: bytes | None) -> pa.Array:
    return pa.array(rows, pa.binary())


def test_avro_columns_of_every_type_round_trip(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    rows = pa.array([ROW, None, ROW], TYPES)
    serialize = AvroSerializer(registry, EVERY, conf=REGISTER)
    written = arrow_to_avro(rows, serialize, "t")
    assert written.errors == {}
    assert written.values[1].as_py() is None
    for given_column in (
        written.values,
        pa.chunked_array([written.values[:1], written.values[1:]]),
    ):
        read = avro_to_arrow(given_column, registry)
        assert read.errors == {}
        assert read.values.type == TYPES
        assert read.values.to_pylist() == [ROW, None, ROW]
    assert server.asked == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]


def test_decoded_rows_equal_those_of_avro_deserializer(registry: SchemaRegistryClient) -> None:
    schema = record("F", id="long", to=["null", "string"], cost="double")
    serialize = AvroSerializer(registry, schema, conf=REGISTER)
    rows = [{"id": at, "to": None if at % 2 else str(at), "cost": at / 2} for at in range(100)]
    written = [serialize(row, VALUE) for row in rows]
    one_by_one = AvroDeserializer(registry)
    expected = [one_by_one(data, VALUE) for data in written]
    assert avro_to_arrow(column(*written), registry).values.to_pylist() == expected == rows


def test_several_schemas_in_a_column_need_a_reader_schema(registry: SchemaRegistryClient) -> None:
    first, second = record("F", id="int"), record("F", id="long", note="string")
    rows = [
        AvroSerializer(registry, first, conf=REGISTER)({"id": 1}, VALUE),
        AvroSerializer(registry, second, conf=REGISTER)({"id": 2, "note": "x"}, VALUE),
    ]
    reader = json.loads(second)
    reader["fields"][1]["default"] = "none"
    read = avro_to_arrow(column(*rows), registry, json.dumps(reader))
    assert read.errors == {}
    assert read.values.to_pylist() == [{"id": 1, "note": "none"}, {"id": 2, "note": "x"}]
    with pytest.raises(InvalidSchemaError, match="several schemas.*reader_schema"):
        avro_to_arrow(column(*rows), registry)
    with_bad = avro_to_arrow(column(*rows), registry, first)
    assert with_bad.values.to_pylist() == [{"id": 1}, None]
    assert list(with_bad.errors) == [1]


def test_decoding_errors_are_listed_by_row_number(registry: SchemaRegistryClient) -> None:
    registry.register_schema("t-value", Schema(record("F", at=logical("long", "timestamp-micros"))))
    registry.register_schema("t-value", Schema('{"type": "object"}', "JSON"))
    prefix = b"\0\0\0\0\1"
    rows = (b"", prefix, prefix + b"\2", None, prefix + b"\2\2", b"x" * 9, b"\0\0\0\0\2\2")
    beyond = prefix + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"
    unknown = b"\0\0\0\0\x63\2"
    read = avro_to_arrow(column(*rows, beyond, unknown, prefix + b"\4"), registry)
    assert list(read.errors) == [0, 1, 4, 5, 6, 7, 8]
    for number, words in ((0, "a zero"), (4, "1 byte left over"), (6, "not AVRO"), (8, "404")):
        assert words in read.errors[number]
    there = [at for at, one in enumerate(read.values.to_pylist()) if one is not None]
    assert there == [2, 9]


def test_a_value_that_does_not_match_the_schema_is_an_error_of_its_row(
    registry: SchemaRegistryClient,
) -> None:
    serialize = AvroSerializer(registry, record("F", s="string"), conf=REGISTER)
    rows = pa.array([{"s": "a"}, {"s": None}, {"s": "b"}])
    written = arrow_to_avro(rows, serialize, "t", MessageField.KEY)
    assert [one is None for one in written.values.to_pylist()] == [False, True, False]
    assert "Avro schema" in written.errors[1]
    assert registry.get_subjects() == ["t-key"]


def test_a_value_that_arrow_cannot_represent_is_an_error_of_its_row(
    registry: SchemaRegistryClient,
) -> None:
    """fastavro decodes ints of more than 32 bits, which Arrow's int32 can't represent."""
    registry.register_schema("t-value", Schema(record("F", cost="int")))
    prefix = b"\0\0\0\0\1"
    read = avro_to_arrow(column(prefix + varint(7), prefix + varint(1 << 40)), registry)
    assert read.values.to_pylist() == [{"cost": 7}, None]
    assert "can't represent it" in read.errors[1]


def test_a_column_of_more_than_a_thousand_rows_is_decoded(registry: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(registry, record("F", id="int"), conf=REGISTER)
    rows = [None] * 1500 + [serialize({"id": at}, VALUE) for at in range(1500)]
    rows[2000] = b"bad"
    read = avro_to_arrow(column(*rows), registry)
    assert list(read.errors) == [2000]
    expected = [None] * 1500 + [None if at == 500 else {"id": at} for at in range(1500)]
    assert read.values.to_pylist() == expected


def test_columns_without_values_are_decoded(registry: SchemaRegistryClient) -> None:
    for rows in ((), (None, None)):
        read = avro_to_arrow(column(*rows), registry)
        assert read.values.to_pylist() == list(rows)
    assert avro_to_arrow(column(), registry, record("F", x="int")).values.type == pa.struct(
        [("x", pa.int32())]
    )


@pytest.mark.parametrize("reader", [None, '"int"'])
def test_a_missing_package_is_raised_and_not_reported_as_an_error_of_a_row(
    server: RegistryServer,
    registry: SchemaRegistryClient,
    monkeypatch: pytest.MonkeyPatch,
    reader: str | None,
) -> None:
    """As row errors, all values would be null, and an application might ignore the errors."""
    row = AvroSerializer(registry, '"int"', conf=REGISTER)(1, VALUE)
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'odradek\[schemas\]'"):
        avro_to_arrow(pa.array([row]), registry, reader)


@pytest.mark.parametrize(
    "schema",
    [
        record("F", x=["int", "string"]),
        record("F", x=["null", "F"]),
    ],
)
def test_schemas_without_an_arrow_type_are_rejected(
    registry: SchemaRegistryClient, schema: str
) -> None:
    with pytest.raises(InvalidSchemaError, match="no equivalent Arrow type"):
        avro_to_arrow(column(), registry, schema)


def test_an_unavailable_registry_raises_instead_of_row_errors(server: RegistryServer) -> None:
    server.rule = lambda _: (503, {})
    away = SchemaRegistryClient({"url": server.url, "default.api.timeout.ms": 300})
    with pytest.raises(RegistryUnreachableError):
        avro_to_arrow(column(b"\0\0\0\0\1\2"), away)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.none() | st.binary(max_size=12).map(lambda rest: b"\0\0\0\0\1" + rest)))
def test_any_bytes_are_decoded_as_by_the_deserializer_or_are_an_error(
    registry: SchemaRegistryClient, rows: list[bytes | None]
) -> None:
    """If the deserializer rejects a row, the column must contain an error for it."""
    registry.register_schema("t-value", Schema(record("F", id="long", to=["null", "string"])))
    one_by_one = AvroDeserializer(registry)
    read = avro_to_arrow(column(*rows), registry, record("F", id="long", to=["null", "string"]))
    for number, data in enumerate(rows):
        try:
            expected = one_by_one(data, VALUE)
        except Exception:
            assert number in read.errors
        else:
            assert read.values[number].as_py() == expected


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ("int", pa.array([(1 << 31) - 1]), pa.array([1 << 31])),
        ("int", pa.array([1], pa.int8()), pa.array([1.9])),
        ("int", pa.array([1], pa.uint8()), pa.array([True])),
        ("long", pa.array([1], pa.uint64()), pa.array([2.0])),
        ("boolean", pa.array([True]), pa.array(["false"])),
        ("boolean", pa.array([False]), pa.array([2])),
        ("double", pa.array([1]), pa.array([True])),
        (["null", "int"], pa.array([1]), pa.array([1 << 31])),
    ],
)
def test_a_value_that_the_encoder_would_have_to_convert_is_rejected(
    registry: SchemaRegistryClient, schema: Any, good: pa.Array, bad: pa.Array
) -> None:
    """fastavro would write 1.9 as 1, and ints of more than 32 bits, which readers reject."""
    for nested in (False, True):
        whole = json.loads(record("R", x=schema)) if nested else schema
        write = AvroSerializer(registry, json.dumps(whole), conf=REGISTER)
        topic = f"t{nested}"
        found = []
        for one in (good, bad):
            column = pa.StructArray.from_arrays([one], ["x"]) if nested else one
            written = arrow_to_avro(column, write, topic)
            found.append(written.errors)
            read = avro_to_arrow(written.values, registry).values.to_pylist()
            same = column.to_pylist() if one is good else [None]
            assert read == same
        assert found[0] == {}
        assert list(found[1]) == [0]
        assert "match its Avro schema" in found[1][0]


@pytest.mark.slow
def test_the_error_for_a_type_of_thousands_of_fields_is_short(server: RegistryServer) -> None:
    names = {f"f{at}": ["null", "int"] for at in range(3000)}
    server.schemas = [{"schema": record("Wide", **names, digits="int")}]
    registry = SchemaRegistryClient({"schema.registry.url": server.url})
    data = b"\0\0\0\0\1" + b"\0" * 3000 + varint(1 << 40)
    (found,) = avro_to_arrow(pa.array([data]), registry).errors.values()
    assert "can't represent it" in found
    assert len(found) < 1000
