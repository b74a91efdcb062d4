"""Keys and values decoded by a registry's schemas: evolution, malformed records, options."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.registry_server import RegistryServer
from tests.unit.serialization.test_registry_faults import FAULTS, fails, recovers
from tests.unit.spark.avro_examples import EVERYTHING

from odradek.errors import RegistryUnreachableError, SchemaNotFoundError, SchemaRegistryError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.serialization.registry import schema_cache
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.source_options import BATCH, SourceOptions, parse_options
from odradek.spark.registries import shared_client
from odradek.spark.values.decoding import ValueDecodeError
from odradek.spark.values.registry_avro import RegistryAvroFormat
from odradek.spark.values.schema import arrow_schema, full_schema

VALUE = SerializationContext("t", MessageField.VALUE)


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "int"}
WIDE = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}
FIRST = record(ID)
SECOND = record(WIDE, NOTE)
THIRD = record(NOTE, AT, {**WIDE, "name": "number", "aliases": ["id"]})


def asked(server: RegistryServer, **more: str) -> SourceOptions:
    said = {
        "kafka.bootstrap.servers": "localhost:1",
        "subscribe": "t",
        "valueFormat": "avro",
        "schemaRegistryUrl": server.url,
        **more,
    }
    options = parse_options({name: v for name, v in said.items() if v}, BATCH).resolved()
    made: SourceOptions = pickle.loads(pickle.dumps(options))  # noqa: S301 - as tasks get them
    return made


def decoder(options: SourceOptions, name: str = "value") -> Any:
    target = arrow_schema(full_schema(False, options.decoded_types())).field(name).type
    return options.formats[name].decoder(target)


def written(registry: SchemaRegistryClient, schema: str, value: Any, field: str = "value") -> Any:
    context = SerializationContext("t", MessageField(field))
    return AvroSerializer(registry, schema, conf={"auto.register.schemas": True})(value, context)


def test_records_of_several_schema_versions_are_decoded_to_the_reader_schema(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Each row must be equal to the result of a deserializer with the reader's schema."""
    rows = [written(registry, FIRST, {"id": at}) for at in range(50)]
    rows += [written(registry, SECOND, {"id": 1 << 40, "note": str(at)}) for at in range(50)]
    rows += [None, *[written(registry, FIRST, {"id": -1})]]
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    rows += [written(registry, THIRD, {"number": 5, "note": None, "at": moment})] * 50
    options = asked(server)
    assert options.decoded_types()["value"].simpleString() == (
        "struct<note:string,at:timestamp,number:bigint>"
    )
    read = AvroDeserializer(registry, THIRD)
    made = decoder(options)
    server.asked.clear()
    for _ in range(2):
        found = made.decode(pa.array(rows, pa.binary()))
        expected = [read(row, VALUE) for row in rows]
        for row in expected[:50]:
            row["at"] = datetime.fromtimestamp(0, UTC)  # fastavro returns a number for the default
        assert made.bad == {}
        assert [one and {**one, "at": None} for one in found.to_pylist()] == [
            one and {**one, "at": None} for one in expected
        ]
        assert found[0].as_py()["at"] == datetime.fromtimestamp(0, UTC)
        assert found[len(rows) - 1].as_py()["at"] == moment
    asked_by_each = [f"GET /schemas/ids/{number}" for number in (1, 2, 3)]
    assert server.asked == asked_by_each * 2  # each of the two clients requests each schema once


def test_column_types_of_a_registry_schema_equal_those_of_value_schema(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """The column types are the same as with valueSchema; `test_avro_values` tests the values."""
    text = json.dumps(EVERYTHING)
    registry.register_schema("t-value", Schema(text))
    inline = parse_options(
        {
            "kafka.bootstrap.servers": "localhost:1",
            "subscribe": "t",
            "valueFormat": "avro",
            "valueSchema": text,
            "avroWireFormat": "confluent",
        },
        BATCH,
    )
    options = asked(server)
    assert options.decoded_types() == inline.decoded_types()


def test_fixed_decimal_union_and_map_values_are_decoded(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    schema = record(
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "none", "type": {"type": "fixed", "name": "None", "size": 0}},
        {
            "name": "cost",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "either", "type": ["null", "string", "long"]},
        {"name": "named", "type": {"type": "map", "values": "int"}},
        {"name": "raw", "type": "bytes"},
    )
    value = {
        "four": b"abcd", "none": b"", "cost": Decimal("12.34"), "either": 7, "named": {"a": 1},
        "raw": b"\xff",
    }  # fmt: skip
    row = written(registry, schema, value)
    made = decoder(asked(server))
    (found,) = made.decode(pa.array([row], pa.binary())).to_pylist()
    assert made.bad == {}
    assert found == {
        **value,
        "either": {"member0": None, "member1": 7},
        "named": [("a", 1)],
    }


def test_values_with_referenced_schemas_are_decoded(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """A referenced schema and the schemas that refer to it may change together."""
    for number, fields in enumerate(((ID,), (WIDE, NOTE)), 1):
        registry.register_schema("line", Schema(record(*fields, name="m.Line")))
        text = record({"name": "line", "type": "m.Line"}, {"name": "next", "type": "m.Line"})
        refers = (SchemaReference("m.Line", "line", number),)
        registry.register_schema("t-value", Schema(text, "AVRO", refers))
    lost = (SchemaReference("m.Line", "none", 1),)
    registry.register_schema("lost", Schema(text, "AVRO", lost))
    rows = [b"\0\0\0\0\2\2\4", b"\0\0\0\0\4\2\0\4\2\2x", b"\0\0\0\0\5\2\4"]
    made = decoder(asked(server))
    found = made.decode(pa.array(rows, pa.binary())).to_pylist()
    assert found[:2] == [
        {"line": {"id": 1, "note": None}, "next": {"id": 2, "note": note}} for note in (None, "x")
    ]
    assert list(made.bad) == [2]
    assert "404" in made.bad[2]
    with pytest.raises(SchemaNotFoundError):
        asked(server, valueSubject="lost")


def test_malformed_records_become_nulls_with_a_reason(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    good = written(registry, SECOND, {"id": 1, "note": "x"})
    registry.register_schema(
        "other", Schema(record({"name": "id", "type": "string"}))
    )  # this schema gets id 2
    registry.register_schema("other", Schema("{}", "JSON"))
    registry.register_schema("other", Schema('"string"'))
    rows = [good, b"", b"no frame", good[:-1], good + b"\0", b"\0\0\0\0\2\2a", b"\0\0\0\0\3{}"]
    rows += [b"\0\0\0\0\4\2a", b"\0\0\0\0\x63\2", None, good]
    column = pa.array(rows, pa.binary())
    made = decoder(asked(server))
    found = made.decode(column).to_pylist()
    nothing = {"id": None, "note": None}
    assert found == [{"id": 1, "note": "x"}, *[nothing] * 8, None, {"id": 1, "note": "x"}]
    assert list(made.bad) == list(range(1, 9))
    for row, told in (
        (1, "a zero byte and a 4-byte schema id"),
        (3, "truncated"),
        (4, "1 byte left over"),
        (5, "its schema 2 can't be read as version 1 of subject t-value: field id was written as"),
        (6, "has type JSON"),
        (7, "schema 4 can't be read"),
        (8, "404"),
    ):
        assert told in made.bad[row]
    corrupt = decoder(asked(server, columnNameOfCorruptRecord="_corrupt_record"))
    kept = [one and one["_corrupt_record"] for one in corrupt.decode(column).to_pylist()]
    assert kept == [None, *rows[1:9], None, None]
    strict = decoder(asked(server, valueMode="FAILFAST"))
    with pytest.raises(ValueDecodeError) as caught:
        strict.decode(column)
    assert caught.value.row == 1


def test_an_out_of_range_timestamp_makes_only_its_row_malformed(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Each value fits as an integer; only the conversion to a time fails, so rows are bisected."""
    registry.register_schema("t-value", Schema(record(AT)))
    frame = b"\0\0\0\0\1"
    beyond = frame + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"
    rows = [frame + b"\2"] * 20
    rows[7] = rows[13] = beyond
    made = decoder(asked(server))
    found = made.decode(pa.array(rows, pa.binary())).to_pylist()
    assert list(made.bad) == [7, 13]
    assert found[7] == found[13] == {"at": None}
    assert found[6]["at"] == found[14]["at"] == datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ('"string"', "k", "string"),
        ('"long"', 7, "bigint"),
        (FIRST, {"id": 3}, "struct<id:int>"),
    ],
)
def test_keys_are_decoded_with_the_schema_of_the_key_subject(
    server: RegistryServer, registry: SchemaRegistryClient, schema: str, value: Any, kind: str
) -> None:
    row = written(registry, schema, value, "key")
    options = asked(server, valueFormat="", keyFormat="avro")
    assert options.decoded_types()["key"].simpleString() == kind
    assert list(options.formats) == ["key"]
    made = decoder(options, "key")
    nothing = {"id": None} if isinstance(value, dict) else None
    found = made.decode(pa.array([row, None, b"bad"], pa.binary())).to_pylist()
    assert found == [value, None, nothing]
    assert list(made.bad) == [2]


def test_an_unreachable_registry_raises_instead_of_returning_malformed_rows(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    row = written(registry, SECOND, {"id": 1, "note": "x"})
    quick = {"schemaRegistry.default.api.timeout.ms": "200"}
    options = asked(server, avroSchema=SECOND, **quick)
    made = decoder(options)
    server.rule = lambda _: (503, {})
    rows = pa.array([b"bad", row[:4] + b"\7" + row[5:], row], pa.binary())
    with pytest.raises(RegistryUnreachableError):
        made.decode(rows)
    server.rule = lambda _: None
    # The failed call had no lasting effect.
    assert made.decode(rows[2:]).to_pylist() == [{"id": 1, "note": "x"}]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_an_error_of_the_registry_never_makes_a_record_malformed(
    server: RegistryServer, registry: SchemaRegistryClient, fault: str, kind: str
) -> None:
    """PERMISSIVE mode returns null only for malformed records, not for errors of the registry."""
    if kind == "avro":
        row = written(registry, SECOND, {"id": 1, "note": "x"})
        more = {"avroSchema": SECOND}
    else:
        row = ProtobufSerializer(Timestamp, registry, {"auto.register.schemas": True})(
            Timestamp(seconds=1), VALUE
        )
        more = {"valueFormat": "protobuf"}
    query = asked(server, **more)
    made, form = decoder(query), query.formats["value"]
    client = shared_client(form.query, form.settings)  # type: ignore[attr-defined]
    rows = pa.array([row, row], pa.binary())
    fails(server, fault, client)
    for _ in range(2):
        with pytest.raises(SchemaRegistryError):
            made.decode(rows)
    recovers(server, client)
    assert made.decode(rows).null_count == 0
    assert made.bad == {}


def test_a_schema_registered_after_a_failed_lookup_is_found(
    server: RegistryServer, registry: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_cache, "IN_LOOP", 0.0)
    made = decoder(asked(server, avroSchema=FIRST))
    rows = pa.array([b"\0\0\0\0\1\2"], pa.binary())
    made.decode(rows)
    assert list(made.bad) == [0]
    registry.register_schema("t-value", Schema(FIRST))
    assert made.decode(rows).to_pylist() == [{"id": 1}]


def test_tasks_of_a_query_share_a_registry_client_but_queries_do_not(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    row = written(registry, FIRST, {"id": 1})
    query = asked(server, avroSchema=FIRST)
    rows = pa.array([row], pa.binary())
    server.asked.clear()
    for _ in range(3):
        decoder(query).decode(rows)
    assert server.asked == ["GET /schemas/ids/1"]
    decoder(asked(server, avroSchema=FIRST)).decode(rows)
    assert len(server.asked) == 2


def test_the_reader_schema_comes_from_the_subject_or_the_avro_schema_option(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-value", Schema(FIRST))
    registry.register_schema("other", Schema(SECOND))

    def kind(**more: str) -> str:
        return asked(server, **more).decoded_types()["value"].simpleString()

    assert kind() == "struct<id:int>"
    assert kind(valueSubject="other") == kind(avroSchema=SECOND) == "struct<id:bigint,note:string>"
    assert kind(subscribe="a,b", valueSubject="other") == "struct<id:bigint,note:string>"
    with pytest.raises(SchemaNotFoundError, match="none-value"):
        asked(server, subscribe="none")


def test_reprs_of_the_options_do_not_contain_the_registry_password(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-value", Schema(FIRST))
    options = asked(server, **{"schemaRegistry.basic.auth.user.info": "me:pa55word"})
    form = options.formats["value"]
    assert isinstance(form, RegistryAvroFormat)
    assert "pa55word" not in repr(options) + repr(form.settings)
    assert server.headers[-1]["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"schemaRegistryUrl": "", "valueSubject": "s"},
            "valueSubject needs option schemaRegistryUrl",
        ),
        (
            {"schemaRegistryUrl": "", "keyFormat": "avro"},
            "keyFormat needs option schemaRegistryUrl",
        ),
        ({"schemaRegistryUrl": "", "schemaRegistry.url": "x"}, "need option schemaRegistryUrl"),
        ({"valueFormat": ""}, "needs option valueFormat or keyFormat"),
        ({"valueFormat": "xml"}, "valueFormat must be avro or json or protobuf with"),
        ({"valueFormat": "", "keyFormat": "xml"}, "keyFormat must be avro or json or protobuf w"),
        ({"valueFormat": "", "keyFormat": "json", "keySubject": "json"}, "to read keys as bytes"),
        ({"valueFormat": "json", "valueSubject": "avro"}, "has type AVRO, not JSON"),
        (
            {"valueFormat": "json", "valueSubject": "json"},
            "doesn't describe an object with properties",
        ),
        ({"valueFormat": "json", "avroSchema": FIRST}, "avroSchema needs valueFormat"),
        (
            {"valueFormat": "json", "columnNameOfCorruptRecord": "bad"},
            "must be _corrupt_record",
        ),
        (
            {"valueFormat": "json", "valueSchema": "a int", "valueSubject": "s"},
            "valueSchema and valueSubject can't be combined",
        ),
        ({"valueFormat": "json", "subscribe": "a,b"}, "option valueSubject or valueSchema must"),
        ({"valueSchema": FIRST}, "set the reader schema with avroSchema"),
        (
            {"avroWireFormat": "confluent"},
            "avroWireFormat can't be combined with option schemaRegistryUrl",
        ),
        ({"avroSchema": FIRST, "valueSubject": "s"}, "can't be combined"),
        ({"keySubject": "s"}, "keySubject needs option keyFormat"),
        ({"subscribe": "a,b"}, "several topics, so option valueSubject or avroSchema"),
        ({"avroSchema": '"int"'}, "option avroSchema must be a record schema"),
        ({"avroSchema": FIRST, "columnNameOfCorruptRecord": "id"}, "already has a field"),
        ({"schemaRegistry.no.such": "1"}, "no.such: unknown setting"),
        ({"valueSubject": "json"}, "version 1 of subject json has type JSON"),
    ],
)
def test_invalid_registry_options_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, more: dict[str, str], told: str
) -> None:
    from odradek import ConfigurationError

    registry.register_schema("json", Schema("{}", "JSON"))
    registry.register_schema("avro", Schema(FIRST))
    with pytest.raises(ConfigurationError, match=told) as caught:
        asked(server, **more)
    if "no.such" not in told:
        assert isinstance(caught.value, OptionError)


JSON_SCHEMA = {
    "type": "object",
    "definitions": {
        "Line": {"type": "object", "properties": {"sku": {"type": "string"}}},
        "Tree": {"type": "object", "properties": {"child": {"$ref": "#/definitions/Tree"}}},
    },
    "properties": {
        "id": {"type": "integer"},
        "cost": {"type": ["null", "number"]},
        "paid": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
        "either": {"type": ["integer", "string"]},
        "any": {},
        "odd": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "lost": {"$ref": "#/definitions/None"},
        "loop": {"$ref": "#/properties/loop"},
    },
}
FIELDS = (
    "struct<id:bigint,cost:double,paid:boolean,lines:array<struct<sku:string>>,"
    "either:string,any:string,odd:string,lost:string,loop:string"
)


def test_json_columns_have_the_fields_of_the_json_schema(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-value", Schema(json.dumps(JSON_SCHEMA), "JSON"))
    options = asked(server, valueFormat="json")
    assert options.decoded_types()["value"].simpleString() == FIELDS + ">"
    corrupt = asked(server, valueFormat="json", columnNameOfCorruptRecord="_corrupt_record")
    assert corrupt.decoded_types()["value"].simpleString() == FIELDS + ",_corrupt_record:string>"
    server.asked.clear()
    inline = asked(server, valueFormat="json", valueSchema="id bigint")
    assert inline.decoded_types()["value"].simpleString() == "struct<id:bigint>"
    assert server.asked == []
    deep = json.dumps({"type": "object", "properties": {"tree": {"$ref": "#/definitions/Tree"}}})
    deep = deep[:-1] + ', "definitions": ' + json.dumps(JSON_SCHEMA["definitions"]) + "}"
    registry.register_schema("deep", Schema(deep, "JSON"))
    kind = asked(server, valueFormat="json", valueSubject="deep").decoded_types()["value"]
    assert kind.simpleString().startswith("struct<tree:struct<child:struct<child:")


def test_json_values_in_the_confluent_wire_format_are_decoded(server: RegistryServer) -> None:
    frame = b"\0\0\0\0\1"
    rows = [frame + b'{"a": 1}', b'{"a": 2}', None, frame, b"\0\0", frame + b'{"a": "x"}', b""]
    rows += [frame + b'{"a": 3, "b": [1]}']
    column = pa.array([b"before", *rows], pa.binary())[1:]
    schema = {"valueFormat": "json", "valueSchema": "a int"}
    made = decoder(asked(server, **schema))
    nothing = {"a": None}
    found = made.decode(column).to_pylist()
    assert found == [{"a": 1}, nothing, None, nothing, nothing, nothing, nothing, {"a": 3}]
    assert list(made.bad) == [1, 3, 4, 5, 6]
    assert made.bad[1].startswith("the value doesn't start with a zero byte")
    assert made.bad[5] == "field a isn't int32"
    corrupt = decoder(asked(server, **schema, columnNameOfCorruptRecord="_corrupt_record"))
    kept = [one and one["_corrupt_record"] for one in corrupt.decode(column).to_pylist()]
    shown = "\0\0\0\0\1"
    assert kept == [None, '{"a": 2}', None, shown, "\0\0", '{"a": "x"}', "", None]
    assert made.decode(column[:1]).to_pylist() == [{"a": 1}]
    assert made.bad == {}
    strict = decoder(asked(server, **schema, valueMode="FAILFAST"))
    with pytest.raises(ValueDecodeError) as caught:
        strict.decode(column)
    assert caught.value.row == 1


def test_keys_are_decoded_as_json_without_the_options_of_values(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Options of the values' format must not apply to keys."""
    text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    registry.register_schema("t-key", Schema(text, "JSON"))
    options = asked(
        server, keyFormat="json", avroSchema=FIRST, columnNameOfCorruptRecord="_corrupt_record"
    )
    assert options.decoded_types()["key"].simpleString() == "struct<id:bigint>"
    made = decoder(options, "key")
    rows = pa.array([b'\0\0\0\0\1{"id": 1}', None, b"{}"], pa.binary())
    assert made.decode(rows).to_pylist() == [{"id": 1}, None, {"id": None}]
    assert list(made.bad) == [2]


@pytest.mark.slow
def test_registry_options_can_be_checked_without_pyspark() -> None:
    """`odradek pipeline plan` checks options without PySpark and without a registry."""
    program = """
import sys
sys.modules["pyspark"] = None
from odradek.spark.options.source_options import BATCH, parse_options
from odradek.spark.sink.sink_options import parse_sink_options
for given in ("avro", "json", "protobuf"):
    said = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "valueFormat": given}
    found = parse_options({**said, "schemaRegistryUrl": "http://127.0.0.1:1"}, BATCH)
    print(type(found.formats["value"]).__name__)
    said = {"kafka.bootstrap.servers": "a:1", "topic": "t", "valueFormat": given}
    found = parse_sink_options({**said, "schemaRegistryUrl": "http://127.0.0.1:1"}, BATCH)
    print(type(found.encodings["value"]).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [
        name
        for kind in ("Avro", "Json", "Protobuf")
        for name in (f"Registry{kind}Format", f"{kind}Encoding")
    ], done.stderr
