"""Spark with a schema registry: schemas that change in the middle, records that don't fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.registry_server import RegistryServer, registry_server
from tests.spark.conftest import Query, Topics
from tests.unit.spark.test_registry_values import AT, ID, NOTE, WIDE, record

from odradek import (
    AvroDeserializer,
    AvroSerializer,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)

COUNT, POISONED = 30_000, 1_000
VERSIONS = (
    record(ID),
    record(WIDE, NOTE),
    record(NOTE, {**AT, "type": ["null", AT["type"]], "default": None}, WIDE),
)


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


@pytest.mark.timeout(300)
def test_a_schema_that_changes_twice_and_poisoned_records(
    topics: Topics,
    read: Callable[..., DataFrame],
    stream: Callable[[str], Query],
    spark: SparkSession,
    server: RegistryServer,
    tmp_path: Any,
) -> None:
    """Row by row what a deserializer gives; each poisoned record is in the dead-letter topic."""
    topic, bad = topics.create(2), topics.create(1)
    registry = SchemaRegistryClient({"schema.registry.url": server.url})
    context = SerializationContext(topic, MessageField.VALUE)
    settings = {"auto.register.schemas": True}
    writers = [AvroSerializer(registry, one, conf=settings) for one in VERSIONS]
    key = AvroSerializer(registry, '"string"', conf=settings)
    every = COUNT // POISONED
    rows: list[Any] = []
    for at in range(COUNT):
        write = writers[at * len(writers) // COUNT]
        value: Any = write({"id": at, "note": f"n{at}", "at": None}, context)
        if at % every == 7:
            value = (b"", b"poison", value + b"\0", b"\0\0\0\0\x63\2")[at // every % 4]
        rows.append((key(f"k{at}", SerializationContext(topic, MessageField.KEY)), value))
    topics.fill(topic, rows)
    asked = {
        "valueFormat": "avro",
        "keyFormat": "avro",
        "schemaRegistryUrl": server.url,
    }

    stream(topic).run(None, **asked, startingOffsets="earliest", deadLetterTopic=bad)
    found = spark.read.parquet(str(tmp_path / "rows")).select("key", "value").collect()
    reader = AvroDeserializer(registry, VERSIONS[-1])
    expected = {
        f"k{at}": reader(value, context) for at, (_, value) in enumerate(rows) if at % every != 7
    }
    assert {row.key: row.value.asDict() for row in found} == expected
    assert len(found) == len(expected) == COUNT - POISONED

    letters = read(bad, includeHeaders="true").collect()
    assert sorted((bytes(one.key), bytes(one.value)) for one in letters) == sorted(
        row for at, row in enumerate(rows) if at % every == 7
    )
    told = [{h.key: bytes(h.value).decode() for h in one.headers} for one in letters]
    where = {(one["__connect.errors.partition"], one["__connect.errors.offset"]) for one in told}
    assert len(where) == POISONED
    assert {one["__connect.errors.topic"] for one in told} == {topic}
    reasons = {one["__connect.errors.exception.message"][:20] for one in told}
    assert len(reasons) == 3  # no frame (of two kinds), bytes left, a schema that isn't there

    strict = read(topic, **asked, valueMode="FAILFAST").select("value.id")
    with pytest.raises(Exception, match=rf"{topic}-\d: the value at offset \d+ doesn't fit"):
        strict.collect()
    kept = read(topic, **asked, columnNameOfCorruptRecord="_corrupt_record")
    assert kept.where("value._corrupt_record is not null").count() == POISONED


@pytest.mark.timeout(300)
def test_columns_are_written_by_a_registered_schema(
    topics: Topics,
    read: Callable[..., DataFrame],
    spark: SparkSession,
    options: dict[str, str],
    server: RegistryServer,
) -> None:
    """What the sink writes a deserializer reads, and so does the source."""
    topic = topics.create(1)
    registry = SchemaRegistryClient({"schema.registry.url": server.url})
    registry.register_schema(f"{topic}-value", Schema(VERSIONS[-1]))
    registry.register_schema(f"{topic}-key", Schema('"long"'))
    asked = {"valueFormat": "avro", "keyFormat": "avro", "schemaRegistryUrl": server.url}
    rows = spark.range(100).selectExpr(
        "id AS key",
        "IF(id = 7, NULL, struct(id, 'n' || id AS note, timestamp_millis(id) AS at)) AS value",
    )
    rows.write.format("odradek").options(**options, **asked, topic=topic).mode("append").save()
    deserialize = AvroDeserializer(registry)
    context = SerializationContext(topic, MessageField.VALUE)
    raw = [deserialize(one.value and bytes(one.value), context) for one in read(topic).collect()]
    back = read(topic, **asked).collect()
    assert [one.value and one.value.asDict()["id"] for one in back] == [
        one and one["id"] for one in raw
    ]
    assert sorted(one["id"] for one in raw if one) == [at for at in range(100) if at != 7]
    assert {one.key: one.value and one.value.note for one in back} == {
        at: None if at == 7 else f"n{at}" for at in range(100)
    }
    with pytest.raises(Exception, match="value.note is int64"):
        wrong = spark.range(1).selectExpr("struct(id, id AS note) AS value")
        wrong.write.format("odradek").options(**options, **asked, topic=topic).mode("append").save()
