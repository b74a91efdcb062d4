"""Compare decoded values with Spark's own `from_json` and Avro reader on the same bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.spark.avro_examples import EVERYTHING, VARIANTS, WRITTEN, encoded

from odradek.spark.values.avro_schema import avro_schema

from .conftest import Query, Topics

SCHEMA = "a bigint, b string, d date, n double, l array<int>, s struct<q: boolean, r: string>"
VALUES = [
    b'{"a":1,"b":"x","d":"2024-01-02","n":1.5,"l":[1,null],"s":{"q":true,"r":"\\u00e4"},"z":1}',
    b"",
    b"{",
    b"{}",
    b"null",
    b'{"a":"x","b":"kept"}',
    b'{"b":{"x": [1, 2]},"a":7}',
    b'{"b":5,"n":3}',
    b'{"a":9223372036854775808,"n":1e3}',
    b'{"s":{"q":1,"r":"kept"},"a":7}',
    b'{"d":"no date","a":7}',
    b' {"a" : 2}\n',
]


@pytest.mark.timeout(600)
def test_json_values_are_the_same_as_with_from_json(
    topics: Topics, read: Callable[..., DataFrame]
) -> None:
    topic = topics.create(1)
    topics.fill(topic, [(b"k", value) for value in VALUES] + [(b"k", None)], 1)
    wanted = read(topic).selectExpr("offset o", f"from_json(cast(value as string), '{SCHEMA}') v")
    asked = {"valueFormat": "json", "valueSchema": SCHEMA}
    found = read(topic, **asked).selectExpr("offset o", "value v")
    assert found.schema["v"].dataType == wanted.schema["v"].dataType
    differing = {
        row.o: (row.v, theirs.v)
        for row, theirs in zip(found.collect(), wanted.collect(), strict=True)
        if row != theirs
    }
    assert differing == {}
    with pytest.raises(Exception, match=r"-0: the value at offset 2 doesn't fit"):
        read(topic, **asked, valueMode="failfast").select("value.a").collect()


SPARKS_AVRO = "org.apache.spark.sql.avro.AvroFileFormat"
"""Spark's reader of Avro files; `from_avro` is the same code, in a jar that pyspark doesn't have.
"""
READ_AS = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "added", "type": ["null", "int"], "default": None},
        {"name": "int", "type": "double"},
        {"name": "text", "aliases": ["string"], "type": "string"},
        next(field for field in EVERYTHING["fields"] if field["name"] == "map"),
    ],
}


@pytest.mark.timeout(600)
def test_avro_values_are_the_same_as_with_sparks_reader(
    topics: Topics,
    read: Callable[..., DataFrame],
    stream: Callable[[str], Query],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    topic = topics.create(1)
    rows = [WRITTEN, *(WRITTEN | given for given, _ in VARIANTS)]
    framed = [struct.pack(">BI", 0, 7) + encoded(row) for row in rows]
    others = [struct.pack(">BI", 0, 8) + encoded(WRITTEN), framed[0][5:], None]
    topics.fill(topic, [(b"k", value) for value in (*framed, *others)], 1)
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, EVERYTHING, rows)
    theirs = spark.read.format(SPARKS_AVRO)
    asked = {
        "valueFormat": "avro",
        "valueSchema": json.dumps(EVERYTHING),
        "avroWireFormat": "confluent",
        "avroSchemaId": "7",
    }

    wanted = theirs.load(str(tmp_path / "rows.avro"))
    assert avro_schema(asked["valueSchema"], "option valueSchema").spark == wanted.schema
    found = read(topic, **asked).sort("offset")
    assert found.select("value.*").schema == wanted.schema
    decoded = [row.value for row in found.select("value").collect()]
    assert decoded[: len(rows)] == wanted.collect()
    nothing = (None,) * len(wanted.columns)
    assert decoded[len(rows) :] == [nothing, nothing, None]
    with pytest.raises(Exception, match=rf"-0: the value at offset {len(rows)} .* schema id 8"):
        read(topic, **asked, valueMode="failfast").select("value.int").collect()

    read_as = json.dumps(READ_AS)
    wanted = theirs.option("avroSchema", read_as).load(str(tmp_path / "rows.avro"))
    stream(topic).run(None, **asked, avroSchema=read_as, startingOffsets="earliest")
    written = spark.read.parquet(str(tmp_path / "rows")).sort("offset").select("value.*")
    assert written.schema == wanted.schema
    assert written.limit(len(rows)).collect() == wanted.collect()
