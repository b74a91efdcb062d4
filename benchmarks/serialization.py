"""Compare deserializers with confluent-kafka's: `python -m benchmarks.serialization`.

Each lane (a way to deserialize) reads the same records in one process several times; the lowest
processor time counts. The lanes, for Avro, Protobuf and JSON with a schema each: confluent-kafka's
deserializer in a loop, ours in a loop, and ours of a whole column to Arrow. confluent-kafka and its
dependencies are in the environment of tests/interop/schema_packages.lock, which is created if
necessary. No broker and no network: their registry is in memory, ours is a dict.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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


FIELDS = (("id", 3), ("to", 9), ("cost", 1), ("seats", 5), ("tail", 9), ("tags", 9))
"""Fields of the message: names, and Protobuf's numbers for their types."""


def main() -> None:
    """Run the measurements in the environment that has the other client."""
    built = building.python_with("schema-packages", LOCK)
    if built.command is None:
        sys.exit(f"confluent-kafka's serializers aren't available: {built.reason}")
    (packages,) = Path(built.command[0]).parent.parent.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "benchmarks.serialization", "lanes"]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    sys.exit(subprocess.run(command, env=environment, check=False).returncode)


def best(work: Callable[[], object]) -> float:
    """Return the microseconds per record in the best of several runs."""
    times = []
    for _ in range(TIMES):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / ROWS * 1e6


def loop(read: Any, rows: list[bytes], told: Any) -> None:
    """Read each record and keep none of them, as a consumer's loop does."""
    for row in rows:
        read(row, told)


def message_class() -> Any:
    """Return a class as protoc generates it from a file with one message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    message = file.message_type.add(name="Flight")
    for number, (name, kind) in enumerate(FIELDS, 1):
        label = 3 if name == "tags" else 1
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("m.Flight"))


def records() -> list[dict[str, Any]]:
    """Return the records that are serialized and read."""
    return [
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


def as_avro(values: list[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the records as Avro, without the prefix of a schema id."""
    import fastavro

    parsed = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        yield stream.getvalue()


def framed(schema: int, payload: bytes) -> bytes:
    """Return a payload prefixed with its schema's id."""
    return b"\0" + schema.to_bytes(4, "big") + payload


def lanes() -> None:
    """Measure all deserializers and print a line for each."""
    import base64

    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from odradek import serialization
    from odradek.serialization import ProtobufDeserializer as OurProtobuf
    from odradek.serialization import avro_to_arrow, json_to_arrow, protobuf_to_arrow

    flight = message_class()
    file = base64.b64encode(flight.DESCRIPTOR.file.serialized_pb).decode()

    class Answers(serialization.SchemaRegistryClient):
        """A registry client whose schemas are in memory."""

        here = (
            serialization.Schema(json.dumps(AVRO)),
            serialization.Schema(json.dumps(JSON), "JSON"),
            serialization.Schema(file, "PROTOBUF"),
        )

        def get_schema(self, schema_id: int, fmt: str | None = None) -> serialization.Schema:
            return self.here[schema_id - 1]

    theirs = SchemaRegistryClient.new_client({"url": "mock://benchmark"})
    ids = [
        theirs.register_schema("t-value", Schema(json.dumps(AVRO), "AVRO")),
        theirs.register_schema("j-value", Schema(json.dumps(JSON), "JSON")),
        theirs.register_schema("p-value", Schema(file, "PROTOBUF")),
    ]
    ours = Answers({"url": "http://127.0.0.1:1"})
    values = records()
    avro = [framed(ids[0], one) for one in as_avro(values)]
    plain = [framed(ids[1], json.dumps(one).encode()) for one in values]
    messages = [framed(ids[2], b"\0" + flight(**one).SerializeToString()) for one in values]
    conf = {"subject.name.strategy.type": "TOPIC"}
    context = SerializationContext("t", MessageField.VALUE)
    mine = serialization.SerializationContext("t", serialization.MessageField.VALUE)
    readers: list[tuple[str, Any, list[bytes], Any]] = [
        ("Avro, theirs in a loop", AvroDeserializer(theirs, conf=conf), avro, context),
        ("Avro, ours in a loop", serialization.AvroDeserializer(ours), avro, mine),
        (
            "Protobuf, theirs in a loop",
            ProtobufDeserializer(flight, conf, theirs),
            messages,
            context,
        ),
        ("Protobuf, ours in a loop", OurProtobuf(flight, ours), messages, mine),
        ("JSON, theirs in a loop", JSONDeserializer(None, None, theirs, conf), plain, context),
        ("JSON, ours in a loop", serialization.JSONDeserializer(None, None, ours), plain, mine),
    ]
    for name, read, rows, told in readers:
        took = best(partial(loop, read, rows, told))
        print(f"{name}: {took:.2f} µs a record", flush=True)
    unchecked = partial(json_to_arrow, pa.array(plain), ours, validate=False)
    columns: list[tuple[str, Callable[[], Any], Any]] = [
        ("Avro", partial(avro_to_arrow, pa.array(avro), ours), readers[0]),
        ("Protobuf", partial(protobuf_to_arrow, pa.array(messages), ours), readers[2]),
        ("JSON", partial(json_to_arrow, pa.array(plain), ours), readers[4]),
        ("JSON, unchecked", unchecked, readers[4]),
    ]
    for name, whole, reader in columns:
        measure_column(name, whole, reader)


def measure_column(name: str, whole: Callable[[], Any], reader: Any) -> None:
    """Measure a whole column, and check that its values are equal to those of the loop."""
    took = best(whole)
    print(f"{name}, column to Arrow: {took:.2f} µs a record", flush=True)
    _, read, rows, told = reader
    for row, in_column in zip(rows, whole().values.to_pylist(), strict=True):
        in_loop = read(row, told)
        if any(value_of(in_loop, one) != in_column[one] for one in in_column):
            sys.exit(f"{name}: the lanes don't read the same")


def value_of(read: Any, name: str) -> Any:
    """Return a field of a dict or a message."""
    if isinstance(read, dict):
        return read.get(name)
    found = getattr(read, name)
    return list(found) if name == "tags" else found


if __name__ == "__main__":
    lanes() if sys.argv[1:] == ["lanes"] else main()
