"""`python -m benchmarks.serialization`: framed Avro to objects and columns, beside confluent-kafka.

The same records, one process, each lane several times; the least processor time of each counts.
Its lanes are confluent-kafka's `AvroDeserializer` in a loop, ours in a loop, and `avro_to_arrow`;
then JSON with a schema, in loops. confluent-kafka and what it needs are in the environment of
tests/interop/schema_packages.lock, which is made where it isn't there. No broker and no network:
theirs has its registry in memory, ours a dict in place of the answers.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import building

LOCK = Path(__file__).parent.parent / "tests" / "interop" / "schema_packages.lock"
ROWS, TIMES = 20_000, 5
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "string"]},
        {"name": "cost", "type": "double"},
        {"name": "seats", "type": "int"},
        {"name": "tail", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "cost": {"type": "number"},
        "tail": {"type": "string", "maxLength": 10},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "tail"],
}


def main() -> None:
    """Run the lanes in the environment of the peers."""
    built = building.python_with("schema-packages", LOCK)
    if built.command is None:
        sys.exit(f"confluent-kafka's serializers can't be had: {built.reason}")
    (packages,) = Path(built.command[0]).parent.parent.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "benchmarks.serialization", "lanes"]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    sys.exit(subprocess.run(command, env=environment, check=False).returncode)


def best(work: Callable[[], object]) -> float:
    """Microseconds a record, in the best of several runs."""
    times = []
    for _ in range(TIMES):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / ROWS * 1e6


def loop(read: Any, rows: list[bytes], told: Any) -> None:
    """Read each record and keep none, as a consumer's loop does."""
    for row in rows:
        read(row, told)


def lanes() -> None:
    """Measure and print, a line a lane."""
    import fastavro
    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    import odradek

    class Answers(odradek.SchemaRegistryClient):
        """A registry whose answers are here."""

        here = (odradek.Schema(json.dumps(AVRO)), odradek.Schema(json.dumps(JSON), "JSON"))

        def get_schema(self, schema_id: int, fmt: str | None = None) -> odradek.Schema:
            return self.here[schema_id - 1]

    theirs = SchemaRegistryClient.new_client({"url": "mock://benchmark"})
    ids = [
        theirs.register_schema("t-value", Schema(json.dumps(AVRO), "AVRO")),
        theirs.register_schema("j-value", Schema(json.dumps(JSON), "JSON")),
    ]
    ours = Answers({"url": "http://127.0.0.1:1"})
    parsed = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    values = [
        {
            "id": at * 1000,
            "to": None if at % 3 else "JFK",
            "cost": at / 2,
            "seats": at % 300,
            "tail": f"N{at}",
            "tags": ["a", "bb"],
        }
        for at in range(ROWS)
    ]
    avro = []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        avro.append(b"\0" + ids[0].to_bytes(4, "big") + stream.getvalue())
    plain = [b"\0" + ids[1].to_bytes(4, "big") + json.dumps(value).encode() for value in values]
    column = pa.array(avro, pa.binary())
    conf = {"subject.name.strategy.type": "TOPIC"}
    context = SerializationContext("t", MessageField.VALUE)
    mine = odradek.SerializationContext("t", odradek.MessageField.VALUE)
    readers: list[tuple[str, Any, list[bytes], Any]] = [
        ("Avro, theirs in a loop", AvroDeserializer(theirs, conf=conf), avro, context),
        ("Avro, ours in a loop", odradek.AvroDeserializer(ours), avro, mine),
        ("JSON, theirs in a loop", JSONDeserializer(None, None, theirs, conf), plain, context),
        ("JSON, ours in a loop", odradek.JSONDeserializer(None, None, ours), plain, mine),
    ]
    for name, read, rows, told in readers:
        took = best(partial(loop, read, rows, told))
        print(f"{name}: {took:.2f} µs a record", flush=True)
    took = best(lambda: odradek.avro_to_arrow(column, ours))
    print(f"Avro, column to Arrow: {took:.2f} µs a record")
    as_objects = [readers[0][1](row, context) for row in avro]
    if odradek.avro_to_arrow(column, ours).values.to_pylist() != as_objects:
        sys.exit("the lanes don't read the same")


if __name__ == "__main__":
    lanes() if sys.argv[1:] == ["lanes"] else main()
