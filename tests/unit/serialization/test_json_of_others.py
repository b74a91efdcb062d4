"""Test JSON schemas written by other clients: references, formats, patterns, drafts."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.registry_server import RegistryServer

from odradek.errors import DeserializationError, InvalidSchemaError, SerializationError
from odradek.serialization import (
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    json_to_arrow,
)
from odradek.serialization.json.serializers import JsonChecks

VALUE = SerializationContext("t", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
FRAME = b"\0\0\0\0\1"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def put(registry: SchemaRegistryClient, subject: str, schema: Any, *names: str) -> SchemaReference:
    """Register the schema with references, given as names and subjects."""
    others = tuple(SchemaReference(name, name, 1) for name in names)
    registry.register_schema(subject, Schema(json.dumps(schema), "JSON", others))
    return SchemaReference(subject, subject, 1)


def both(registry: SchemaRegistryClient, schema: Schema, value: Any) -> str | None:
    """Return the error of the serializer or None; the deserializer must have the same error."""
    why: list[str | None] = []
    for conf in (REGISTER, {**REGISTER, "validate": False}):
        try:
            written = JSONSerializer(schema, registry, conf=conf)(value, VALUE)
            JSONDeserializer(schema_registry_client=registry)(written, VALUE)
        except (SerializationError, DeserializationError, InvalidSchemaError) as error:
            why.append(str(error))
        else:
            why.append(None)
    assert (why[0] is None) == (why[1] is None), why
    return why[0]


def referring(reference: SchemaReference, to: str, **more: Any) -> Schema:
    document = {"type": "object", "properties": {"x": {"$ref": to}}, **more}
    return Schema(json.dumps(document), "JSON", (reference,))


def test_references_with_similar_names_are_distinguished(registry: SchemaRegistryClient) -> None:
    """References were once matched by the ends of their names."""
    put(registry, "common.json", {"type": "string"})
    put(registry, "a/common.json", {"type": "integer"})
    for order in (1, -1):
        references = tuple(
            SchemaReference(name, name, 1) for name in ("common.json", "a/common.json")[::order]
        )
        document = {
            "properties": {
                "text": {"$ref": "common.json"},
                "number": {"$ref": "a/common.json"},
            }
        }
        schema = Schema(json.dumps(document), "JSON", references)
        assert both(registry, schema, {"text": "a", "number": 1}) is None
        assert both(registry, schema, {"text": 1, "number": 1}) is not None
        assert both(registry, schema, {"text": "a", "number": "a"}) is not None


@pytest.mark.parametrize(
    ("name", "to", "more"),
    [
        ("x.json", "x.json", {}),
        ("x.json", "./x.json", {}),
        ("./x.json", "x.json", {}),
        ("/schemas/x.json", "/schemas/x.json", {}),
        ("schemas/x.json", "/schemas/x.json", {}),
        ("a/x.json", "a/b/../x.json", {}),
        ("x.json", "http://h/s/x.json", {"$id": "http://h/s/root.json"}),
        ("x.json", "x.json", {"$id": "http://h/s/root.json"}),
        ("x.json", "x.json", {"$id": "root.json"}),
        ("http://h/s/x.json", "x.json", {"$id": "http://h/s/root.json"}),
        ("http://h/s/x.json", "http://h/s/x.json", {}),
        ("x.json", "x.json#/$defs/number", {}),
        ("x.json", "http://own/x.json", {}),
    ],
)
def test_references_are_resolved_as_uris(
    registry: SchemaRegistryClient, name: str, to: str, more: dict[str, Any]
) -> None:
    number = {
        "$id": "http://own/x.json",
        "type": "integer",
        "$defs": {"number": {"type": "integer"}},
    }
    registry.register_schema("x", Schema(json.dumps(number), "JSON"))
    schema = referring(SchemaReference(name, "x", 1), to, **more)
    assert both(registry, schema, {"x": 1}) is None
    why = both(registry, schema, {"x": "1"})
    assert why is not None
    assert "/x" in why


def test_references_of_a_reference_are_resolved_relative_to_it(
    registry: SchemaRegistryClient,
) -> None:
    put(registry, "leaf", {"type": "integer"})
    leaf = SchemaReference("leaf.json", "leaf", 1)
    branch = Schema(json.dumps({"$ref": "leaf.json"}), "JSON", (leaf,))
    registry.register_schema("branch", branch)
    schema = referring(SchemaReference("a/branch.json", "branch", 1), "a/branch.json")
    assert both(registry, schema, {"x": 1}) is None
    assert both(registry, schema, {"x": "1"}) is not None


def test_the_error_names_an_unknown_reference(registry: SchemaRegistryClient) -> None:
    put(registry, "x.json", {"type": "integer"})
    schema = referring(SchemaReference("x.json", "x.json", 1), "a/x.json")
    why = both(registry, schema, {"x": 1})
    assert why is not None
    assert "a/x.json isn't one of the schema's references (x.json)" in why


@pytest.mark.parametrize("draft", [None, DRAFT_7, "https://json-schema.org/draft/2020-12/schema"])
def test_the_format_keyword_of_json_schema_is_not_checked(
    registry: SchemaRegistryClient, draft: str | None
) -> None:
    """confluent-kafka doesn't check it: Python's isoformat() of a local time has no zone."""
    document = {
        "properties": {
            "at": {"type": "string", "format": "date-time"},
            "mail": {"type": "string", "format": "email"},
        }
    } | ({} if draft is None else {"$schema": draft})
    schema = Schema(json.dumps(document), "JSON")
    assert both(registry, schema, {"at": "2026-12-01T10:00:00", "mail": "none"}) is None


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[\w-\.]+$", "a-b.c", "a b"),
        (r"^[\w-.]+\Z", "a-b.c", "a b"),
        (r"\A[\d\s-]+\Z", "1-2 3", "a"),
        (r"^a\Z", "a", "ab"),
        (r"^\\Z$", r"\Z", "Z"),
        (r"^[\\w-z]$", "y", "-"),
        (r"^\w-\w$", "a-b", "ab"),
    ],
)
def test_regular_expressions_of_java_and_python_are_accepted(
    registry: SchemaRegistryClient, pattern: str, good: str, bad: str
) -> None:
    for document, wrap in (
        ({"pattern": pattern}, lambda text: text),
        ({"patternProperties": {pattern: True}, "additionalProperties": False}, lambda t: {t: 1}),
    ):
        schema = Schema(json.dumps(document), "JSON")
        assert both(registry, schema, wrap(good)) is None
        assert both(registry, schema, wrap(bad)) is not None


def test_the_error_for_an_unusable_regular_expression_names_the_remedy(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    schema = Schema(json.dumps({"pattern": "(", "const": {"pattern": r"\Z"}}), "JSON")
    registry.register_schema("t-value", schema)
    with pytest.raises(InvalidSchemaError, match=r"ECMA 262.*validate to false"):
        JSONDeserializer(schema_registry_client=registry)(FRAME + b'"a"', VALUE)
    unchecked = JSONDeserializer(schema_registry_client=registry, conf={"validate": False})
    assert unchecked(FRAME + b'"a"', VALUE) == "a"
    assert json_to_arrow(pa.array([FRAME + b'"a"']), registry, validate=False).errors == {}


@pytest.mark.parametrize(
    "draft", ["https://example.com/schema", "draft-99", "http://json-schema.org/schema#"]
)
def test_an_unknown_json_schema_draft_is_treated_as_the_latest(
    registry: SchemaRegistryClient, draft: str
) -> None:
    document = {"$schema": draft, "prefixItems": [{"type": "integer"}]}
    schema = Schema(json.dumps(document), "JSON")
    assert both(registry, schema, [1]) is None
    assert both(registry, schema, ["a"]) is not None


@pytest.mark.parametrize(
    ("value", "unique"),
    [
        ([1, "1", True, [1], {"a": 1}, None, 1.5, 0], True),
        ([0, False, "", [], {}, None], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], False),
        ([[1, [2]], [1.0, [2]]], False),
        ([10**32, 10**32 + 1], True),
        ([10**32, 10**32], False),
        ([2**53, float(2**53)], False),
        (["a", "a"], False),
        ("aa", True),
        ([], True),
    ],
)
def test_duplicate_items_are_rejected_if_items_must_be_unique(
    registry: SchemaRegistryClient, value: Any, unique: bool
) -> None:
    for required in (True, False):
        schema = Schema(json.dumps({"uniqueItems": required}), "JSON")
        assert (both(registry, schema, value) is None) == (unique or not required)


def test_unique_items_of_nested_lists_are_checked_in_linear_time(
    registry: SchemaRegistryClient,
) -> None:
    """If linear time isn't possible, the value is rejected."""
    flat = Schema(json.dumps({"uniqueItems": True}), "JSON")
    recursive = Schema(json.dumps({"uniqueItems": True, "items": {"$ref": "#"}}), "JSON")
    deep: Any = "x" * 100_000
    for _ in range(700):
        deep = [deep]
    assert both(registry, flat, deep) is None
    assert both(registry, recursive, deep) is None
    for inner, each in ((list(range(20_000)), range(16)), ([10**32 + n for n in range(2000)], ())):
        wide: Any = inner
        for _ in range(100):
            wide = [*each, wide]
        assert both(registry, flat, wide) is None
        check = JsonChecks(registry).check(recursive, wide)
        assert check == "uniqueItems would compare lists within lists too often"


@pytest.mark.parametrize("depth", [100, 500, 900])
def test_items_that_must_be_unique_may_be_deeply_nested(
    registry: SchemaRegistryClient, depth: int
) -> None:
    """The comparison of items must not recurse."""
    schema = Schema(json.dumps({"uniqueItems": True}), "JSON")
    items: list[Any] = [10**32 + n for n in range(20)]
    leaves: list[Any] = [[], {"a": 1}]
    for deep in leaves:
        for level in range(depth):
            deep = [deep] if level % 2 else {"a": deep}
        items.append(deep)
    assert both(registry, schema, items) is None


def test_constants_that_look_like_patterns_are_not_changed(registry: SchemaRegistryClient) -> None:
    """Java's regular expressions are only translated where the schema has a pattern keyword."""
    document = {"const": {"pattern": r"\Z"}, "allOf": [{"pattern": r"\Z"}]}
    schema = Schema(json.dumps(document), "JSON")
    assert both(registry, schema, {"pattern": r"\Z"}) is None
    assert both(registry, schema, {"pattern": "$"}) is not None
