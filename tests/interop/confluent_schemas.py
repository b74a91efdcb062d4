"""Compare confluent-kafka's serializers with ours in a process that has both packages.

Argument: a registry's URL. Prints a JSON object: by case, the bytes that each library has written,
in hexadecimal, and what each library has read of the other's bytes.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import confluent_kafka.schema_registry as theirs
from confluent_kafka.schema_registry import avro as their_avro
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.schema_registry import protobuf as their_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import struct_pb2, timestamp_pb2, type_pb2

import odradek as ours
from odradek.serialization.wire_format import SchemaId, header_name, schema_of
from odradek.testing import FakeCluster

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "string"], "default": None},
        {"name": "cost", "type": {"type": "array", "items": "double"}},
    ],
}
NEWER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "x", "type": "int", "default": 7}]}
OBJECT_DRAFT = "http://json-schema.org/draft-07/schema#"
OBJECT = {
    "$schema": OBJECT_DRAFT,
    "title": "Flight",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "to": {"type": "string"}},
}
VALUE = {"id": 12345678901, "to": "JFK", "cost": [1.5, -2.0]}
CODE = {"type": "record", "name": "air.Code", "fields": [{"name": "code", "type": "string"}]}
CODES = {"type": "array", "items": ["null", "air.Code"]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
COST = {"cost": Decimal("-1234567890123456789012345678901234567890123456789.25")}
PAID = {"type": "record", "name": "air.Paid", "fields": [{"name": "cost", "type": MONEY}]}
TEXT, NUMBER = ({"$schema": OBJECT_DRAFT, "type": kind} for kind in ("string", "integer"))
TICKET = {
    "$schema": OBJECT_DRAFT,
    "properties": {
        "id": {"$ref": "a/id.json"},
        "to": {"$ref": "id.json"},
        "at": {"type": "string", "format": "date-time"},
    },
}
"""Two fields whose referenced schemas have similar names, and a time without a zone."""
REGISTER = {"auto.register.schemas": True}
BY_TOPIC = {"subject.name.strategy.type": "TOPIC"}
"""By default confluent-kafka requests associations, which other registries don't have."""
USE = {"auto.register.schemas": False, **BY_TOPIC}


def compared(url: str, mock: Any) -> dict[str, Any]:
    mine = ours.serialization.SchemaRegistryClient({"schema.registry.url": url})
    yours = theirs.SchemaRegistryClient({"url": url})
    avro, newer, schema = json.dumps(FLIGHT), json.dumps(NEWER), json.dumps(OBJECT)
    plain = {"id": 5, "to": "ä"}
    stamp = timestamp_pb2.Timestamp(seconds=5)
    field = type_pb2.Field(number=3, name="x")
    option = struct_pb2.Value(number_value=1.5)

    def protobuf(message: Any) -> list[Any]:
        kind, conf = type(message), {"use.deprecated.format": False}
        known = {"skip.known.types": True}
        return [
            message,
            ours.serialization.ProtobufSerializer(kind, mine, REGISTER | known),
            their_protobuf.ProtobufSerializer(kind, yours, USE | conf | known),
            ours.serialization.ProtobufDeserializer(kind),
            their_protobuf.ProtobufDeserializer(kind, conf),
        ]

    cases = {
        "avro": avro_case(mine, yours, VALUE, avro, avro),
        "avro-evolved": [
            VALUE,
            ours.serialization.AvroSerializer(mine, avro, conf=REGISTER),
            their_avro.AvroSerializer(yours, avro, conf=USE),
            ours.serialization.AvroDeserializer(mine, newer),
            their_avro.AvroDeserializer(yours, newer, conf=BY_TOPIC),
        ],
        "json": [
            plain,
            ours.serialization.JSONSerializer(schema, mine, conf=REGISTER),
            their_json.JSONSerializer(schema, yours, conf=USE),
            ours.serialization.JSONDeserializer(schema, None, mine),
            their_json.JSONDeserializer(schema, None, yours, BY_TOPIC),
        ],
        "avro-references": referring(mine, yours, "AVRO", CODES, [None, {"code": "JFK"}], CODE),
        "avro-decimal": avro_case(mine, yours, COST, json.dumps(PAID), json.dumps(PAID)),
        "json-references": referring(
            mine,
            yours,
            "JSON",
            TICKET,
            {"id": 5, "to": "ä", "at": "2026-12-01T10:00:00"},
            TEXT,
            NUMBER,
        ),
        "protobuf": protobuf(stamp),
        "protobuf-second": protobuf(field),
        "protobuf-third": protobuf(option),
    }
    found: dict[str, Any] = {}
    for name, (value, my_write, your_write, my_read, your_read) in cases.items():
        context = SerializationContext(f"{name}-topic", MessageField.VALUE)
        written = [my_write(value, context), your_write(value, context)]
        read = [my_read(written[1], context), your_read(written[0], context)]
        found[name] = {
            "written": [one.hex() for one in written],
            "read": [str(one) for one in read],
            "sent": str(value),
        }
    found["header"] = header(mock, avro)
    found["clients"] = {
        name: through_clients(f"{name}-topic", case) for name, case in cases.items()
    }
    return found


def avro_case(mine: Any, yours: Any, value: Any, my_schema: Any, your_schema: Any) -> list[Any]:
    return [
        value,
        ours.serialization.AvroSerializer(mine, my_schema, conf=REGISTER),
        their_avro.AvroSerializer(yours, your_schema, conf=USE),
        ours.serialization.AvroDeserializer(mine),
        their_avro.AvroDeserializer(yours, conf=BY_TOPIC),
    ]


def referring(mine: Any, yours: Any, kind: str, schema: Any, value: Any, *others: Any) -> list[Any]:
    """Return the case of a schema that refers to others."""
    names = ["air.Code"] if kind == "AVRO" else ["id.json", "a/id.json"]
    for at, one in enumerate(others):
        text = ours.serialization.Schema(json.dumps(one), kind)
        mine.register_schema(f"{kind}-{at}", text)
    schemas: list[Any] = []
    for library, listed in ((ours.serialization, tuple), (theirs, list)):
        references = (
            library.SchemaReference(name, f"{kind}-{at}", 1) for at, name in enumerate(names)
        )
        schemas.append(library.Schema(json.dumps(schema), kind, listed(references)))
    if kind == "AVRO":
        return avro_case(mine, yours, value, *schemas)
    return [
        value,
        ours.serialization.JSONSerializer(schemas[0], mine, conf=REGISTER),
        their_json.JSONSerializer(schemas[1], yours, conf=USE),
        ours.serialization.JSONDeserializer(None, None, mine),
        their_json.JSONDeserializer(None, None, yours, BY_TOPIC),
    ]


def through_clients(topic: str, case: list[Any]) -> list[str]:
    """Return values sent and read by our clients, with (de)serializers of one or both libraries."""
    value, my_write, your_write, my_read, your_read = case
    came = [str(value)]
    with FakeCluster(topics=[topic]) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        for write, read in ((your_write, your_read), (my_write, my_read), (your_write, my_read)):
            producer: Any
            with ours.Producer(config, value_serializer=write) as producer:
                offset = producer.send(topic, value).result(30).offset
            with ours.Consumer(config, value_deserializer=read) as consumer:
                consumer.assign({ours.TopicPartition(topic, 0): offset})
                while not (records := consumer.poll(5.0)):
                    pass
                came.append(str(records[0].value))
    return came


def header(mock: Any, avro: str) -> dict[str, Any]:
    """Write a schema's GUID into a header with confluent-kafka, and read it with our code."""
    conf = {**REGISTER, **BY_TOPIC, "schema.id.serializer": theirs.header_schema_id_serializer}
    headers: list[Any] = []
    context: Any = SerializationContext("h", MessageField.VALUE, headers)
    written: Any
    written = their_avro.AvroSerializer(mock, avro, conf=conf)(VALUE, context)
    [(name, value)] = headers
    registered = mock.get_latest_version("h-value")
    return {
        "name": [name, header_name(context)],
        "written": [value.hex(), SchemaId(guid=registered.guid).header().hex()],
        "read": [schema_of(written, context)[0].guid, registered.guid],
    }


if __name__ == "__main__":
    in_memory = theirs.SchemaRegistryClient.new_client({"url": "mock://test"})
    sys.stdout.write(json.dumps(compared(sys.argv[1], in_memory)))
