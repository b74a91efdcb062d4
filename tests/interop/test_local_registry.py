"""Test our registry client with a registry of another project."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.test_registry_protobuf import files

from odradek.cli.console.decoding import Decoding, WireFormat, decoder
from odradek.cli.console.encoding import LineFormat
from odradek.cli.console.produce import parser_of
from odradek.errors import IncompatibleSchemaError, InvalidSchemaError, SchemaNotFoundError
from odradek.serialization import (
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.source_options import BATCH, parse_options
from odradek.spark.sink.encoding import encoded
from odradek.spark.sink.sink_options import parse_sink_options
from odradek.spark.values.schema import arrow_type
from odradek.testing import LocalRegistry


@pytest.fixture
def client(registry: LocalRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"schema.registry.url": registry.url})


def record(name: str, **fields: object) -> Schema:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return Schema(
        json.dumps({"type": "record", "name": name, "fields": listed}, separators=(",", ":"))
    )


def test_schema_versions_are_registered_looked_up_and_deleted(client: SchemaRegistryClient) -> None:
    first, second = record("Flight", id="int"), record("Flight", id="long")
    number = client.register_schema("flights-value", first)
    assert client.register_schema("flights-value", first) == number
    assert client.register_schema("flights-value", second) != number
    assert client.get_schema(number) == first
    assert client.get_versions("flights-value") == [1, 2]
    assert client.lookup_schema("flights-value", second).version == 2
    assert client.get_version("flights-value", 1).schema == first
    assert client.get_latest_version("flights-value").schema == second
    assert "flights-value" in client.get_subjects()
    assert client.delete_version("flights-value", 1) == 1
    assert 2 in client.delete_subject("flights-value")
    assert "flights-value" not in client.get_subjects()


def test_a_compatibility_level_is_set_and_refuses_incompatible_schemas(
    client: SchemaRegistryClient,
) -> None:
    first, second = record("Plane", id="int"), record("Plane", id="int", tail="string")
    client.register_schema("planes-value", first)
    assert client.set_compatibility("backward", "planes-value") == "BACKWARD"
    assert client.get_compatibility("planes-value") == "BACKWARD"
    assert not client.test_compatibility("planes-value", second)
    assert client.test_compatibility("planes-value", record("Plane"))
    with pytest.raises(IncompatibleSchemaError, match="compatibility level") as caught:
        client.register_schema("planes-value", second)
    assert caught.value.status == 409
    assert client.get_compatibility() == "NONE"


def test_missing_and_invalid_schemas_raise(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaNotFoundError) as caught:
        client.get_schema(987654)
    assert caught.value.error_code == 40403
    with pytest.raises(SchemaNotFoundError):
        client.get_latest_version("nothing")
    with pytest.raises(InvalidSchemaError):
        client.register_schema("broken-value", Schema("{"))


def test_json_and_protobuf_schemas_and_references_can_be_registered(
    client: SchemaRegistryClient,
) -> None:
    client.register_schema("airport", record("Airport", code="string"))
    to_it = Schema(
        record("Leg", origin="Airport").schema_str,
        "AVRO",
        (SchemaReference("Airport", "airport", 1),),
    )
    assert client.get_schema(client.register_schema("legs-value", to_it)) == to_it
    draft = "http://json-schema.org/draft-07/schema#"
    for schema in (
        Schema(json.dumps({"$schema": draft, "type": "object"}), "JSON"),
        Schema('syntax = "proto3"; message P { int32 x = 1; }', "PROTOBUF"),
    ):
        number = client.register_schema(f"{schema.schema_type}-value", schema)
        assert client.get_schema(number).schema_type == schema.schema_type


LINE = record("Line", sku="string")
ORDER = Schema(
    json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "int"},
                {"name": "lines", "type": {"type": "array", "items": "Line"}},
                {"name": "either", "type": ["null", "string", "Line"]},
            ],
        }
    ),
    "AVRO",
    (SchemaReference("Line", "column-line", 1),),
)
OBJECT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
}
LINES = {"id": 1, "lines": [{"sku": "a"}], "either": {"member0": None, "member1": {"sku": "b"}}}


def register(client: SchemaRegistryClient, topic: str, form: str) -> None:
    """Register a schema for the values of this topic."""
    if form == "avro":
        client.register_schema("column-line", LINE)
        client.register_schema(f"{topic}-value", ORDER)
    elif form == "json":
        client.register_schema(f"{topic}-value", Schema(json.dumps(OBJECT), "JSON"))
    else:
        place = files()["Place"]
        context = SerializationContext(topic, MessageField.VALUE)
        ProtobufSerializer(place, client, {"auto.register.schemas": True})(place(), context)


@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("avro", LINES),
        ("json", {"id": 1, "note": None}),
        ("protobuf", {"code": "JFK"}),
    ],
)
def test_spark_reads_the_columns_that_spark_wrote_with_a_registered_schema(
    registry: LocalRegistry, client: SchemaRegistryClient, form: str, row: dict[str, Any]
) -> None:
    """Read with the source what the sink writes, with a schema of the registry."""
    topic = f"columns-{form}"
    register(client, topic, form)
    said = {
        "valueFormat": form,
        "schemaRegistryUrl": registry.url,
        "kafka.bootstrap.servers": "a:1",
    }
    source = parse_options({**said, "subscribe": topic}, BATCH).resolved()
    kind = arrow_type(source.decoded_types()["value"])
    sink = parse_sink_options({**said, "topic": topic, "valueVersion": "1"}, BATCH)
    batch = pa.record_batch({"value": pa.array([row, None], kind)})
    (written,) = encoded(iter([batch]), sink.encodings)
    read = source.formats["value"].decoder(kind)
    assert read.decode(written.column("value")).to_pylist() == [row, None]
    assert read.bad == {}


def test_spark_rejects_a_protobuf_schema_without_a_descriptor(
    registry: LocalRegistry, client: SchemaRegistryClient
) -> None:
    """Check the error: unlike Confluent's, this registry has no base64 form of such a schema."""
    text = 'syntax = "proto3"; message Place { string code = 1; }'
    client.register_schema("text-value", Schema(text, "PROTOBUF"))
    said = {"valueFormat": "protobuf", "schemaRegistryUrl": registry.url, "subscribe": "text"}
    options = parse_options({**said, "kafka.bootstrap.servers": "a:1"}, BATCH)
    with pytest.raises(OptionError, match=r"text of the \.proto file but no descriptor"):
        options.resolved()


SHOWN = {
    "avro": {"id": 1, "lines": [{"sku": "a"}], "either": {"sku": "b"}},
    "json": {"id": 1, "note": "n"},
    "protobuf": {"code": "JFK"},
}


@pytest.mark.parametrize("form", SHOWN)
def test_the_consume_command_shows_what_the_produce_command_encoded(
    registry: LocalRegistry, client: SchemaRegistryClient, form: str
) -> None:
    """Show with `odradek consume` what `odradek produce` writes with the latest schema."""
    topic = f"console-{form}"
    register(client, topic, form)
    said = {"reader_property": [f"schema.registry.url={registry.url}"]}
    parse = parser_of({**said, "encode_value": LineFormat(form)}, topic)
    read = decoder(Decoding(form), None, WireFormat.PLAIN, part="value", registry=client)
    assert read is not None
    written = parse(json.dumps(SHOWN[form]).encode()).value
    assert written is not None
    assert {name: one for name, one in read(written).items() if one} == SHOWN[form]
