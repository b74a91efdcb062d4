"""Test Spark with a schema registry: schemas that change, records that can't be decoded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks import building
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from tests.interop.other_client import read_all
from tests.registry_server import RegistryServer, registry_server
from tests.spark.conftest import Query, Row, Topics
from tests.unit.spark.test_registry_protobuf import files
from tests.unit.spark.test_registry_values import AT, ID, NOTE, WIDE, record

from odradek.cli.pipeline.display import JsonLines
from odradek.cli.pipeline.document import read as read_spec
from odradek.cli.pipeline.running import Running, Stop
from odradek.cli.pipeline.spec import parse
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    MessageField,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.testing import LocalCluster, LocalRegistry

VERSIONS = (
    record(ID),
    record(WIDE, NOTE),
    record(NOTE, {**AT, "type": ["null", AT["type"]], "default": None}, WIDE),
)
PACKAGES = Path(__file__).parents[1] / "interop" / "schema_packages.lock"
UNKNOWN = b"\0\x7f\0\0\0\2"
"""Value with the id of a schema that no registry has."""


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


@contextmanager
def registry_url(*, real: bool, server: RegistryServer) -> Iterator[str]:
    """Yield a registry's URL: of a real one, or of a minimal server."""
    if not real:
        yield server.url
        return
    with LocalRegistry() as found:
        yield found.url


def rows_of(
    registry: SchemaRegistryClient,
    topic: str,
    count: int,
    every: int,
    versions: Sequence[str] = VERSIONS,
) -> Iterator[Row]:
    """Yield keys and values whose schema changes twice; one in `every` can't be decoded."""
    value_of = SerializationContext(topic, MessageField.VALUE)
    key_of = SerializationContext(topic, MessageField.KEY)
    settings = {"auto.register.schemas": True}
    writers = [AvroSerializer(registry, one, conf=settings) for one in versions]
    key = AvroSerializer(registry, '"string"', conf=settings)
    for at in range(count):
        write = writers[at * len(writers) // count]
        moment = datetime.fromtimestamp(at, UTC) if at % 5 else None
        value: Any = write({"id": at, "note": f"n{at}", "at": moment}, value_of)
        if at % every == 7:
            value = (b"", b"poison", value + b"\0", UNKNOWN)[at // every % 4]
        yield key(f"k{at}", key_of), value


def their_rows(cluster: LocalCluster, url: str, topic: str, folder: Path) -> pa.Table:
    """Return the result of confluent-kafka's deserializer, by partition and offset."""
    built = building.python_with("schema-packages", PACKAGES)
    assert built.command is not None, built.reason
    (packages,) = Path(built.command[0]).parent.parent.glob("lib/python*/site-packages")
    schema, into = folder / "reader.avsc", folder / "theirs.parquet"
    schema.write_text(VERSIONS[-1])
    script = Path(__file__).with_name("confluent_reading.py")
    done = subprocess.run(
        [sys.executable, script, cluster.bootstrap_servers, url, topic, schema, into],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return parquet.read_table(into)


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "poisoned"), [(10_000, 100), pytest.param(1_000_000, 1_000, marks=pytest.mark.long)]
)
def test_records_of_three_schema_versions_are_read_and_others_become_dead_letters(
    topics: Topics,
    read: Callable[..., DataFrame],
    stream: Callable[[str], Query],
    server: RegistryServer,
    tmp_path: Path,
    count: int,
    poisoned: int,
) -> None:
    """Compare each row with confluent-kafka's; the others must be in the dead-letter topic.

    `make test-long` uses a real registry.
    """
    topic, bad = topics.create(2), topics.create(1)
    every = count // poisoned
    with registry_url(real=count > 100_000, server=server) as url:
        registry = SchemaRegistryClient({"schema.registry.url": url})
        rows = list(rows_of(registry, topic, count, every))
        topics.fill(topic, rows)
        asked = {"valueFormat": "avro", "keyFormat": "avro", "schemaRegistryUrl": url}
        query = stream(topic)
        query.run(None, **asked, startingOffsets="earliest", deadLetterTopic=bad)
        theirs = their_rows(topics.cluster, url, topic, tmp_path)
        # confluent-kafka accepts a record with excess bytes at its end.
        at = pc.add(pc.multiply(theirs["offset"], 2), theirs["partition"])
        sevens = pc.equal(pc.subtract(at, pc.multiply(pc.divide(at, every), every)), 7)
        theirs = theirs.filter(pc.invert(sevens))
        found = parquet.read_table(tmp_path / "rows").select(theirs.column_names)
        assert in_order(found.cast(theirs.schema)).equals(in_order(theirs))
        assert len(found) == count - poisoned

        letters = read(bad, includeHeaders="true").collect()
        assert sorted((bytes(one.key), bytes(one.value)) for one in letters) == sorted(
            row for at, row in enumerate(rows) if at % every == 7
        )
        told = [{h.key: bytes(h.value).decode() for h in one.headers} for one in letters]
        where = {
            (one["__connect.errors.partition"], one["__connect.errors.offset"]) for one in told
        }
        assert where == {(f"{at % 2}", f"{at // 2}") for at in range(7, count, every)}
        assert {one["__connect.errors.topic"] for one in told} == {topic}
        reasons = {one["__connect.errors.exception.message"][:20] for one in told}
        assert len(reasons) == 3  # no frame (of two kinds), excess bytes, an unknown schema

        # A resumed run writes no dead letter again.
        topics.fill(topic, [(rows[0][0], b"late")])
        query.run(None, **asked, startingOffsets="earliest", deadLetterTopic=bad)
        assert read(bad).count() == poisoned + 1
        if count > 100_000:
            return
        strict = read(topic, **asked, valueMode="FAILFAST").select("value.id")
        with pytest.raises(Exception, match=rf"{topic}-\d: the value at offset \d+ doesn't fit"):
            strict.collect()
        kept = read(topic, **asked, columnNameOfCorruptRecord="_corrupt_record")
        assert kept.where("value._corrupt_record is not null").count() == poisoned + 1


EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "registry.yml"


@pytest.mark.timeout(300)
def test_a_pipeline_counts_dead_letters_and_resumes_after_a_registry_outage(
    topics: Topics,
    read: Callable[..., DataFrame],
    spark: SparkSession,
    server: RegistryServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, bad, target = (
        topics.create(1, name=name) for name in ("avro-orders", "avro-orders-bad", "json-orders")
    )
    registry = SchemaRegistryClient({"schema.registry.url": server.url})
    # A worker may know the other schemas from an earlier test.
    versions = (*VERSIONS[:2], json.dumps({**json.loads(VERSIONS[2]), "doc": topic}))
    rows = rows_of(registry, topic, 200, 20, versions)
    topics.fill(topic, [(None, value) for _, value in rows], 1)
    registry.register_schema(f"{target}-value", Schema('{"type": "object"}', "JSON"))
    place = tmp_path / EXAMPLE.name
    text = EXAMPLE.read_text()
    for given, more in (
        ("startingOffsets", "maxOffsetsPerTrigger: 100\n      "),
        # A missing schema is confirmed after two seconds.
        ("url", "default.api.timeout.ms: 6000\n    "),
    ):
        text = text.replace(f"{given}: ", f"{more}{given}: ")
    place.write_text(text)
    variables = {
        "KAFKA": topics.cluster.bootstrap_servers, "REGISTRY": server.url,
        "STORAGE": str(tmp_path), "TRIGGER": "availableNow",
    }  # fmt: skip

    def run() -> tuple[int, list[dict[str, Any]]]:
        with Stop() as stop:
            pipeline = parse(read_spec(place, variables))
            running = Running(pipeline, JsonLines(), stop, log=None, stop_timeout=30, spark=spark)
            status = running.run()
        return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    last = registry.get_latest_version(f"{topic}-value").schema_id
    answer = server.answer
    monkeypatch.setattr(
        server,
        "answer",
        lambda method, path, *more: (
            (503, {})
            if path.partition("?")[0] == f"/schemas/ids/{last}"
            else answer(method, path, *more)
        ),
    )
    status, told = run()
    failed = told[-1]
    assert (status, failed["event"]) == (1, "failed")
    assert f"/schemas/ids/{last}" in failed["text"]
    assert failed["positions"][f"{topic}-0"] == 100  # records before the failure are written
    assert failed["dead_letters"] == {bad: 5}
    monkeypatch.undo()
    status, told = run()
    batches = [line for line in told if line["event"] == "batch" and line["rows"]]
    assert (status, told[-1]["event"], told[-1]["dead_letters"]) == (0, "ended", {bad: 5})
    assert [(line["rows"], line["dead_letters"]) for line in batches] == [(95, {bad: 5})]
    copies = read_all(topics.cluster.librdkafka_config(), target, 1)[0]
    assert sorted(int(json.loads((row.value or b"")[5:])["id"]) for row in copies) == [
        at for at in range(200) if at % 20 != 7
    ]
    assert read(bad).count() == 10


def moment(at: int) -> str:
    """Return a timestamp in milliseconds in the form of JSON."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.timeout(300)
def test_columns_are_written_with_a_registered_schema(
    topics: Topics,
    read: Callable[..., DataFrame],
    spark: SparkSession,
    options: dict[str, str],
    server: RegistryServer,
) -> None:
    """Check that a deserializer and the source decode what the sink writes."""
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
    registry.register_schema(f"{topic}-text", Schema('{"type": "object"}', "JSON"))
    place = files()["Place"]
    named = SerializationContext(f"{topic}-place", MessageField.KEY)
    ProtobufSerializer(place, registry, {"auto.register.schemas": True})(place(), named)
    more = {
        "keyFormat": "protobuf", "keySubject": f"{topic}-place-key", "valueFormat": "json",
        "valueSubject": f"{topic}-text", "schemaRegistryUrl": server.url,
    }  # fmt: skip
    placed = rows.selectExpr(
        "IF(value IS NULL, NULL, struct(CAST(key AS STRING) AS code)) AS key", "value"
    )
    placed.write.format("odradek").options(**options, **more, topic=topic).mode("append").save()
    later = read(topic).where("offset >= 100").collect()
    text = JSONDeserializer('{"type": "object"}', None, registry)
    places: Any = ProtobufDeserializer(place)
    found = {int(places(bytes(one.key)).code): text(bytes(one.value)) for one in later if one.key}
    assert found == {
        at: {"id": at, "note": f"n{at}", "at": moment(at)} for at in range(100) if at != 7
    }
    assert [one.value for one in later if one.key is None] == [None]
    with pytest.raises(Exception, match="value.note is int64"):
        wrong = spark.range(1).selectExpr("struct(id, id AS note) AS value")
        wrong.write.format("odradek").options(**options, **asked, topic=topic).mode("append").save()
