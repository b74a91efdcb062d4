"""Conversion of Avro schemas to Spark types, and schemas that can't be converted."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import StructType
from tests.unit.spark.avro_examples import logical

from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.values.avro_schema import avro_schema

FIXED = {"type": "fixed", "name": "F", "size": 4}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def record(*types: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def in_spark(*types: Any) -> str:
    found = avro_schema(json.dumps(record(*types)), "option valueSchema").spark
    assert isinstance(found, StructType)
    assert all(field.nullable for field in found)
    return str(found.simpleString())


def decimal(digits: Any, scale: Any = 0, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale} | more


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ("null", "void"),
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        (FIXED, "binary"),
        (ENUM, "string"),
        ({"type": "int"}, "int"),
        ({"type": {"type": "string"}}, "string"),
        (logical("int", "date"), "date"),
        (logical("int", "time-millis"), "int"),
        (logical("long", "time-micros"), "bigint"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "timestamp-nanos"), "bigint"),
        (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("string", "uuid"), "string"),
        (logical("string", "date"), "string"),
        (decimal(10, 2), "decimal(10,2)"),
        (decimal(38), "decimal(38,0)"),
        (FIXED | {"logicalType": "decimal", "precision": 9}, "decimal(9,0)"),
        (FIXED | {"logicalType": "decimal", "precision": 10}, "binary"),  # 4 bytes hold 9 digits
        (decimal(4, 5), "binary"),
        (decimal("4"), "binary"),
        (decimal(0), "binary"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": ENUM}, "map<string,string>"),
        (["null", "string"], "string"),
        (["string"], "string"),
        (["int", "null", "long"], "bigint"),
        (["double", "float"], "double"),
        (["null", "int", "string"], "struct<member0:int,member1:string>"),
        (["int", "long", "string"], "struct<member0:int,member1:bigint,member2:string>"),
        (record("int", name="Inner"), "struct<f0:int>"),
    ],
)
def test_each_avro_type_is_converted_to_the_type_that_spark_uses(schema: Any, wanted: str) -> None:
    assert in_spark(schema) == f"struct<f0:{wanted}>"


def test_names_of_types_are_resolved_within_their_namespaces() -> None:
    inner = record("int", name="Inner", namespace="other")
    outer = record(inner, "other.Inner", ENUM, "E", "test.E", name="Outer", namespace="test")
    found = avro_schema(json.dumps(outer), "option valueSchema").spark
    assert found.simpleString() == (
        "struct<f0:struct<f0:int>,f1:struct<f0:int>,f2:string,f3:string,f4:string>"
    )


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{", "isn't JSON"),
        ('"string"', "must be a record schema"),
        (json.dumps(["null", record("int")]), "must be a record schema"),
        (json.dumps([record("int")]), "must be a record schema"),
        ("5", "5 isn't a type"),
        (record("R"), "field f0: the record R is recursive"),
        (record(["null", {"type": "array", "items": "R"}]), "the record R is recursive"),
        (record("Foo"), "field f0: type 'Foo' isn't defined"),
        (record({"type": "time"}), "type 'time' isn't defined"),
        (record({"items": "int"}), "isn't a type"),
        (record(), "the record R has no field"),
        ({"type": "record", "name": "R"}, "needs a list of fields"),
        ({"type": "record", "fields": []}, "a record has no name"),
        ({"type": "record", "name": "R", "fields": ["a"]}, "needs a list of fields"),
        (record(FIXED, FIXED), "field f1: F is defined twice"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2},
            "two fields",
        ),
        (record({"type": "enum", "name": "E"}), "needs a list of symbols"),
        (record({"type": "fixed", "name": "F"}), "needs a size"),
        (record({"type": "array", "items": "null"}), "an array whose items take no bytes"),
        (
            record({"type": "array", "items": record("null", name="Q")}),
            "an array whose items take no bytes",
        ),
        (record(["null"]), "a union with null as its only type"),
        (record(["null", ["int"]]), "a union can't contain another union"),
        (record(["string", "int", "int"]), "two branches of the same name (string, int, int)"),
        (record(decimal(39)), "at most 38 digits, not 39"),
        (
            record({"type": "int", "spark.sql.catalyst.type": "interval year"}),
            "Spark's own types",
        ),
        (record(ENUM | {"symbols": ["1"]}), "isn't a usable schema"),
        ('{"type":' * 5000 + "5" + "}" * 5000, "nested too deeply"),
    ],
)
def test_unusable_schemas_are_rejected_with_the_reason(schema: Any, told: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(OptionError, match="option avroSchema") as caught:
        avro_schema(text, "option avroSchema")
    assert told in str(caught.value)
    assert told == "isn't JSON" or "isn't JSON" not in str(caught.value)


def test_a_default_of_the_wrong_type_is_rejected() -> None:
    field = {"name": "a", "type": "bytes", "default": 5}
    schema = {"type": "record", "name": "R", "fields": [field]}
    with pytest.raises(OptionError, match="field a: the default 5 doesn't match the field's type"):
        avro_schema(json.dumps(schema), "option avroSchema")


def test_a_nested_type_can_be_referred_to_by_its_name() -> None:
    """Java's Avro defines a named type at its first use, and later refers to its name."""
    country = {"type": "enum", "name": "C", "symbols": ["X", "Y"]}
    address = {"type": "record", "name": "A", "fields": [{"name": "c", "type": country}]}
    fields = [{"name": "bill", "type": address}, {"name": "ship", "type": ["null", "A"]}]
    given = {"type": "record", "name": "O", "fields": [*fields, {"name": "at", "type": "C"}]}
    value = {"bill": {"c": "X"}, "ship": {"c": "Y"}, "at": "X"}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, given, value)
    stream.seek(0)
    found = avro_schema(json.dumps(given), "it")
    assert fastavro.schemaless_reader(stream, found.parsed, None) == value
    assert found.spark.simpleString() == (
        "struct<bill:struct<c:string>,ship:struct<c:string>,at:string>"
    )


@pytest.mark.slow
def test_a_short_schema_that_expands_to_too_many_types_is_rejected() -> None:
    inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for at in range(1, 40):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{at - 1}"}]
        inner = {"type": "record", "name": f"R{at}", "fields": fields}
    with pytest.raises(OptionError, match="nested types"):
        avro_schema(json.dumps(inner), "it")
