"""Columns that the sink encodes by a JSON Schema: round trips through a deserializer, errors."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.registry_server import RegistryServer
from tests.unit.spark.test_avro_encoding import asked, written
from tests.unit.spark.test_registry_values import asked as source_asked
from tests.unit.spark.test_registry_values import decoder

from odradek.errors import InvalidSchemaError
from odradek.serialization import (
    JSONDeserializer,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)
from odradek.spark.sink.sink_errors import SinkRowError, SinkSchemaError

VALUE = SerializationContext("t", MessageField.VALUE)
JSON = {"valueFormat": "json"}
SCHEMA = {
    "type": "object",
    "definitions": {"Line": {"type": "object", "required": ["note"]}},
    "properties": {
        "id": {"type": "integer", "maximum": 100},
        "note": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
        "named": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["id"],
}


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistryClient:
    client = SchemaRegistryClient({"schema.registry.url": server.url})
    client.register_schema("t-value", Schema(json.dumps(SCHEMA), "JSON"))
    return client


KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("note", pa.string())]))),
        ("named", pa.map_(pa.string(), pa.float64())),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("whole", pa.decimal128(20, 0)),
        ("odd", pa.float64()),
    ]
)
ROW = {
    "id": 7, "note": "ä", "lines": [{"sku": "a", "note": None}, None], "named": [("x", 1.5)],
    "flag": True, "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "local": datetime(2026, 1, 2, 3, tzinfo=UTC).replace(tzinfo=None), "raw": b"\0\xff",
    "whole": Decimal((1 << 64) - 1),
    "odd": float("nan"),
}  # fmt: skip


def test_a_deserializer_decodes_the_encoded_rows(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    row = {**ROW, "lines": [{"sku": "a", "note": None}]}
    (first, second) = written(asked(server, **JSON), pa.array([row, None], KIND))
    assert second is None
    unchecked = JSONDeserializer(None, schema_registry_client=registry, conf={"validate": False})
    assert unchecked(first, VALUE) == {
        "id": 7,
        "note": "ä",
        "lines": [{"sku": "a", "note": None}],  # the schema requires field note
        "named": {"x": 1.5},
        "flag": True,
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.000006Z",
        "local": "2026-01-02T03:00:00",
        "raw": "AP8=",
        "whole": (1 << 64) - 1,
        "odd": "NaN",
    }
    plain = {"id": 1, "note": None}
    (third,) = written(asked(server, **JSON), pa.array([plain], pa.struct(list(KIND)[:2])))
    assert third == b'\0\0\0\0\1{"id":1}'
    checked = JSONDeserializer(None, schema_registry_client=registry)
    assert checked(third, VALUE) == {"id": 1}
    back = decoder(source_asked(server, **JSON)).decode(pa.array([first, third], pa.binary()))
    assert [(one["id"], one["note"]) for one in back.to_pylist()] == [(7, "ä"), (1, None)]


def test_decimals_are_encoded_with_all_digits(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    """Decimals are encoded as by `to_json`, and checked against the schema's bounds."""
    digits = "12345678901234567890123456789012.345678"
    kind = pa.struct([("id", pa.int32()), ("cost", pa.decimal128(38, 6)), ("note", pa.string())])
    named = pa.struct([("id", pa.int32()), ("named", pa.map_(pa.string(), pa.decimal128(5, 2)))])
    options = asked(server, **JSON)
    rows = [{"id": 1, "cost": Decimal(digits), "note": '"'}, {"id": 2, "cost": Decimal("-0.5")}]
    assert written(options, pa.array(rows, kind)) == [
        b'\0\0\0\0\1{"id":1,"cost":%s,"note":"\\""}' % digits.encode(),
        b'\0\0\0\0\1{"id":2,"cost":-0.500000}',
    ]
    (mapped,) = written(options, pa.array([{"id": 1, "named": [("a", Decimal("1.50"))]}], named))
    assert mapped == b'\0\0\0\0\1{"id":1,"named":{"a":1.50}}'
    bounded = pa.struct([("id", pa.decimal128(5, 1))])
    with pytest.raises(SinkRowError, match="the value doesn't"):
        written(options, pa.array([{"id": Decimal("100.5")}], bounded))


def test_keys_are_encoded_with_the_schema_of_the_key_subject(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("t-key", Schema('{"type": "string"}', "JSON"))
    options = asked(server, valueFormat="", keyFormat="json")
    assert written(options, pa.array(["k", None]), name="key") == [b'\0\0\0\0\2"k"', None]


def test_a_row_that_violates_the_schema_is_named_in_the_error(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    kind = pa.struct([("id", pa.int32())])
    for wrong in ({"id": 101}, {"id": None}):
        with pytest.raises(SinkRowError, match="row 3 of this task: the value doesn't") as caught:
            written(asked(server, **JSON), pa.array([{"id": 1}] * 3, kind), pa.array([wrong], kind))
        assert (caught.value.row, "101" in str(caught.value)) == (3, False)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pa.time64("us"), "value.x is time64.*, which JSON can't represent exactly"),
        (pa.map_(pa.int32(), pa.int32()), "value.x is map.*, but keys in JSON are strings"),
        (pa.list_(pa.duration("us")), "value.x's items is duration"),
    ],
)
def test_column_types_without_a_json_equivalent_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient, given: Any, told: str
) -> None:
    with pytest.raises(SinkSchemaError, match=told):
        written(asked(server, **JSON), pa.array([None], pa.struct([("x", given)])))


def test_an_avro_schema_is_rejected_for_json_columns(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    registry.register_schema("other", Schema('"string"'))
    with pytest.raises(InvalidSchemaError, match="has type AVRO, not JSON"):
        written(asked(server, **JSON, valueSubject="other"), pa.array(["x"]))
