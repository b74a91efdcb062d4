"""Columns that the sink encodes as Avro: round trips through a deserializer, and errors."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.registry_server import RegistryServer
from tests.unit.spark.test_registry_values import (
    FIRST,
    ID,
    NOTE,
    SECOND,
    WIDE,
    decoder,
    record,
)
from tests.unit.spark.test_registry_values import asked as source_asked

from odradek import ConfigurationError
from odradek.errors import SchemaNotFoundError
from odradek.serialization import (
    AvroDeserializer,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.option_table import BATCH
from odradek.spark.sink.encoding import encoded
from odradek.spark.sink.sink_errors import SinkRowError, SinkSchemaError
from odradek.spark.sink.sink_options import SinkOptions, parse_sink_options
from odradek.spark.sink.sink_schema import check_columns
from odradek.spark.values.value_schema import value_schema

VALUE = SerializationContext("t", MessageField.VALUE)
AVRO = {"valueFormat": "avro"}


def asked(server: RegistryServer, **more: str) -> SinkOptions:
    said = {
        "kafka.bootstrap.servers": "localhost:1",
        "topic": "t",
        **AVRO,
        "schemaRegistryUrl": server.url,
        **more,
    }
    options = parse_sink_options({name: v for name, v in said.items() if v}, BATCH)
    made: SinkOptions = pickle.loads(pickle.dumps(options))  # noqa: S301 - as tasks get them
    return made


def written(options: SinkOptions, *values: Any, name: str = "value") -> list[Any]:
    """Return the encoded values of Arrow arrays, each in a separate batch."""
    batches = [pa.record_batch({name: one}) for one in values]
    found = encoded(iter(batches), options.encodings)
    return [row for batch in found for row in batch.column(name).to_pylist()]


EVERY = record(
    {"name": "flag", "type": "boolean"},
    {"name": "small", "type": "int"},
    WIDE,
    {"name": "f", "type": "float"},
    {"name": "d", "type": "double"},
    {"name": "raw", "type": "bytes"},
    {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    NOTE,
    {"name": "many", "type": {"type": "array", "items": "long"}},
    {"name": "named", "type": {"type": "map", "values": "string"}},
    {"name": "inner", "type": ["null", json.loads(record(ID, NOTE, name="Inner"))]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {
        "name": "cost",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    },
    {"name": "later", "type": "int", "default": 7},
)
ROW = {
    "flag": True, "small": -5, "id": 1 << 40, "f": 1.5, "d": -2.25, "raw": b"\0\xff",
    "four": b"abcd", "kind": "B", "note": "ä", "many": [1, 2], "named": {"a": "b"},
    "inner": {"id": 1, "note": None}, "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "cost": Decimal("12.30"),
}  # fmt: skip
KIND = pa.struct(
    [
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("id", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float32()),
        ("raw", pa.binary()),
        ("four", pa.binary()),
        ("kind", pa.string()),
        ("note", pa.string()),
        ("many", pa.list_(pa.int64())),
        ("named", pa.map_(pa.string(), pa.string())),
        ("inner", pa.struct([("id", pa.int32()), ("note", pa.string())])),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("cost", pa.decimal128(7, 1)),
    ]
)


def test_a_deserializer_decodes_the_encoded_rows(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-value", Schema(EVERY))
    row = {**ROW, "id": 7, "named": [("a", "b")]}
    other = {**row, "inner": None, "note": None}
    found = written(asked(server), pa.array([row, None], KIND), pa.array([other], KIND))
    assert found[0][:5] == b"\0\0\0\0\1"
    assert found[1] is None
    read = AvroDeserializer(registry)
    assert read(found[0], VALUE) == {**ROW, "id": 7, "later": 7}
    assert read(found[2], VALUE) == {**ROW, "id": 7, "later": 7, "inner": None, "note": None}


INNER = json.loads(record({"name": "raw", "type": "bytes"}, {**WIDE, "default": 4}, name="Inner"))
TENTHS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "Two", "size": 2}, "\u00ff\0", b"\xff\0"),
        (TENTHS, "\u0001", Decimal("0.1")),
        (INNER, {"raw": "\u00ff"}, {"raw": b"\xff", "id": 4}),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
        (["bytes", "string"], "\u00ff", b"\xff"),
        (["null", "bytes"], None, None),
    ],
)
def test_a_missing_column_is_encoded_with_the_default_of_its_field(
    server: RegistryServer, registry: SchemaRegistryClient, kind: Any, default: Any, value: Any
) -> None:
    """In a schema's JSON, the default of a bytes field is a string; it is converted to bytes."""
    late = {"name": "late", "type": kind, "default": default}
    registry.register_schema("t-value", Schema(record(NOTE, late)))
    (found,) = written(asked(server), pa.array([{"note": "x"}], pa.struct([("note", pa.string())])))
    assert AvroDeserializer(registry)(found, VALUE) == {"note": "x", "late": value}


@pytest.mark.parametrize(
    ("schema", "values"),
    [('"string"', pa.array(["k", None])), ('"long"', pa.array([1], pa.int32()))],
)
def test_keys_are_encoded_with_the_schema_of_the_key_subject(
    server: RegistryServer, registry: SchemaRegistryClient, schema: str, values: Any
) -> None:
    registry.register_schema("t-key", Schema(schema))
    options = asked(server, valueFormat="", keyFormat="avro")
    read = AvroDeserializer(registry)
    found = written(options, values, name="key")
    assert [read(one, VALUE) for one in found] == values.to_pylist()
    (alone,) = encoded(iter([pa.record_batch({"value": pa.array([b"x"])})]), options.encodings)
    assert alone.to_pylist() == [{"value": b"x"}]


def test_avro_schema_and_value_subject_options_select_the_writer_schema(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    for text in (FIRST, SECOND):
        registry.register_schema("t-value", Schema(text))
    rows = pa.array([{"id": 1}], pa.struct([("id", pa.int32())]))
    assert written(asked(server), rows) == [
        b"\0\0\0\0\2\2\0"
    ]  # the latest schema; field note has a default
    assert written(asked(server, avroSchema=FIRST), rows) == [b"\0\0\0\0\1\2"]
    registry.register_schema("other", Schema(FIRST))
    assert written(asked(server, topic="", valueSubject="other"), rows) == [b"\0\0\0\0\1\2"]
    before = len(server.schemas)
    with pytest.raises(SchemaNotFoundError, match="t-value"):
        written(asked(server, avroSchema=record(ID, name="Unknown")), rows)
    assert len(server.schemas) == before  # the sink registered no schema


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (pa.struct([("id", pa.string())]), r"value.id is string, .* needs int64"),
        (
            pa.struct([("id", pa.int64()), ("more", pa.int32())]),
            "value.more isn't in the writer schema",
        ),
        (pa.struct([("note", pa.string())]), "value.id is missing, .*: note"),
        (pa.binary(), "value is binary, .* needs struct"),
        (pa.struct([("id", pa.float64())]), "value.id is double"),
    ],
)
def test_rows_with_missing_unknown_or_mistyped_columns_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, kind: Any, told: str
) -> None:
    registry.register_schema("t-value", Schema(SECOND))
    with pytest.raises(SinkSchemaError, match=told):
        written(asked(server), pa.array([None], kind))


@pytest.mark.parametrize(
    ("avro", "given", "told"),
    [
        ("int", pa.int64(), "value.x is int64"),
        ("float", pa.float64(), "value.x is double"),
        ("float", pa.int32(), "value.x is int32"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int64()), "value.x's items is int64"),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.string()), "x's values is"),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32()), "value.x is map"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            pa.decimal128(5, 1),
            "value.x is decimal",
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            pa.timestamp("us"),
            "value.x is time",
        ),
        (["null", "int", "string"], pa.int32(), "value.x is int32, .* needs struct<member0: int32"),
        (
            ["int", "string"],
            pa.struct([("member1", pa.int32())]),
            "value.x.member1 is int32, .* string",
        ),
        (json.loads(FIRST), pa.struct([]), "value.x.id is missing, .*: none"),
    ],
)
def test_column_types_that_do_not_match_the_schema_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, avro: Any, given: Any, told: str
) -> None:
    registry.register_schema("t-value", Schema(record({"name": "x", "type": avro}, name="Outer")))
    with pytest.raises(SinkSchemaError, match=told):
        written(asked(server), pa.array([None], pa.struct([("x", given)])))


def test_rows_of_schemas_with_references_and_unions_are_encoded(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """A deserializer and the source must decode the rows that the sink encoded."""
    line = record(ID, {"name": "count", "type": "int", "default": 1}, name="m.Line")
    registry.register_schema("line", Schema(line))
    either = ["null", "int", {"type": "array", "items": "m.Line"}, "m.Line", "string"]
    text = record(
        {"name": "lines", "type": {"type": "array", "items": "m.Line"}},
        {"name": "either", "type": either, "default": None},
        {"name": "by", "type": {"type": "map", "values": ["m.Line", "boolean"]}},
        {"name": "number", "type": ["int", "long"]},
    )
    schema = Schema(text, "AVRO", (SchemaReference("m.Line", "line", 1),))
    registry.register_schema("t-value", schema)
    inner = pa.struct([("id", pa.int32())])
    lines = pa.list_(inner)
    union = pa.struct([(f"member{n}", k) for n, k in enumerate((pa.int32(), lines, inner))])
    by = pa.map_(pa.string(), pa.struct([("member0", inner), ("member1", pa.bool_())]))
    kind = pa.struct([("lines", lines), ("either", union), ("by", by), ("number", pa.int64())])
    rest = {"lines": [{"id": 1}], "by": [("a", {"member1": True}), ("b", {"member0": {"id": 2}})]}
    unions = [{"member0": 7}, {"member1": [{"id": 5}]}, {"member2": {"id": 6}}, None]
    rows = [{**rest, "either": one, "number": 1 << 40} for one in unions]
    found = written(asked(server), pa.array(rows, kind))
    read = AvroDeserializer(registry)
    full = {"id": 6, "count": 1}
    assert [read(one, VALUE)["either"] for one in found] == [7, [{**full, "id": 5}], full, None]
    assert read(found[0], VALUE) == {
        "lines": [{"id": 1, "count": 1}],
        "either": 7,
        "by": {"a": True, "b": {"id": 2, "count": 1}},
        "number": 1 << 40,
    }
    back = decoder(source_asked(server)).decode(pa.array(found, pa.binary()))
    assert back.type.field("either").type.num_fields == 4
    assert [one["either"] for one in back.to_pylist()] == [
        {**dict.fromkeys(f"member{n}" for n in range(4)), **one}
        for one in ({"member0": 7}, {"member1": [{**full, "id": 5}]}, {"member2": full})
    ] + [None]
    both = [{**rest, "either": {"member0": 1, "member2": {"id": 1}}, "number": 1}]
    with pytest.raises(SinkRowError, match="row 0 of this task: the value doesn't fit .*ValueErr"):
        written(asked(server), pa.array(both, kind))


def test_value_version_selects_a_version_of_the_subject(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    for text in (FIRST, SECOND):
        registry.register_schema("t-value", Schema(text))
    rows = pa.array([{"id": 1}], pa.struct([("id", pa.int32())]))
    assert written(asked(server, valueVersion="1"), rows) == [b"\0\0\0\0\1\2"]
    exactly = {"delivery": "exactly_once", "jobId": "j", "valueVersion": "2"}
    assert written(asked(server, **exactly), rows) == [b"\0\0\0\0\2\2\0"]


def test_a_timestamp_beyond_the_range_of_datetime_is_reported_with_its_row(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-value", Schema(EVERY))
    kind = pa.struct([("at", pa.timestamp("us", "UTC"))])
    registry.register_schema("time", Schema(record({**json.loads(EVERY)["fields"][13]})))
    far = pa.array([{"at": 0}, {"at": 1 << 62}], pa.struct([("at", pa.int64())])).cast(kind)
    with pytest.raises(SinkRowError, match="row 1 of this task") as caught:
        written(asked(server, valueSubject="time"), far)
    assert caught.value.row == 1


def test_a_null_in_a_required_field_is_reported_with_its_row(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-value", Schema(FIRST))
    kind = pa.struct([("id", pa.int32())])
    good, bad = pa.array([{"id": 1}] * 3, kind), pa.array([{"id": 1}, {"id": None}], kind)
    with pytest.raises(SinkRowError, match="row 4 of this task: the value doesn't fit") as caught:
        written(asked(server), good, bad)
    assert caught.value.row == 4


@pytest.mark.parametrize("wrong", ["x", "", "0f2c9a2e-7b1e-4c1f-9c66-8a2f0a1b2c3", "0" * 32])
def test_a_string_that_is_not_a_uuid_is_rejected_for_a_uuid_field(
    server: RegistryServer, registry: SchemaRegistryClient, wrong: str
) -> None:
    """fastavro writes any string as a uuid, and Java's readers fail to read it."""
    one = {"type": "string", "logicalType": "uuid"}
    listed = {"name": "all", "type": {"type": "array", "items": one}}
    schema = record({"name": "id", "type": ["null", one]}, listed)
    registry.register_schema("t-value", Schema(schema))
    kind = pa.struct([("id", pa.string()), ("all", pa.list_(pa.string()))])
    uuid = "0f2c9a2e-7b1e-4c1f-9C66-8a2f0a1b2c3d"
    good = [{"id": uuid, "all": [uuid]}, {"id": None, "all": []}]
    assert len(written(asked(server), pa.array(good, kind))) == 2
    for bad in ({"id": wrong, "all": []}, {"id": uuid, "all": [uuid, wrong]}):
        with pytest.raises(SinkRowError, match="row 2 of this task: the value doesn't"):
            written(asked(server), pa.array([*good, bad], kind))


def test_key_and_value_columns_may_have_any_type_if_the_sink_encodes_them(
    server: RegistryServer,
) -> None:
    from pyspark.sql import types as t

    schema = t.StructType([t.StructField("value", value_schema("id int"))])
    assert check_columns(schema, asked(server)).sent == ("value",)
    with pytest.raises(SinkSchemaError, match="must be string or binary"):
        check_columns(schema, asked(server, valueFormat="", keyFormat="avro"))


def test_the_repr_of_options_does_not_contain_the_registry_token(server: RegistryServer) -> None:
    options = asked(server, **{"schemaRegistry.bearer.auth.token": "t0ken-word"})
    assert "t0ken-word" not in repr(options) + repr(options.encodings["value"].settings)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"schemaRegistryUrl": ""}, "valueFormat needs option schemaRegistryUrl"),
        ({"valueFormat": ""}, "schemaRegistryUrl needs option valueFormat"),
        ({"valueFormat": "xml"}, "valueFormat must be avro or json or protobuf, not 'xml'"),
        ({"topic": ""}, "so option valueSubject must name"),
        ({"delivery": "exactly_once", "jobId": "j"}, "needs option valueVersion or avroSchema"),
        (
            {"delivery": "exactly_once", "jobId": "j", "avroSchema": FIRST, "keyFormat": "json"},
            "keyFormat=json with delivery=exactly_once needs option keyVersion:",
        ),
        (
            {"avroSchema": FIRST, "valueVersion": "1"},
            "avroSchema and valueVersion can't be combined",
        ),
        ({"avroSchema": FIRST, "valueFormat": "json"}, "avroSchema needs valueFormat="),
        ({"valueVersion": "latest"}, "option valueVersion"),
        ({"valueMessage": "m.Order"}, "valueMessage needs valueFormat=protobuf"),
        ({"keyVersion": "1"}, "keyVersion needs option keyFormat"),
        ({"schemaRegistry.no.such": "1"}, "no.such: unknown setting"),
        ({"valueSchema": "x"}, "unknown option 'valueschema'"),
    ],
)
def test_invalid_encoding_options_are_rejected(
    server: RegistryServer, more: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        asked(server, **more)
    assert "no.such" in told or isinstance(caught.value, OptionError)
