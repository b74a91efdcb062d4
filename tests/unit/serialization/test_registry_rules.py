"""Test that schemas with data rules are rejected, because odradek can't execute rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.registry_server import RegistryServer

from odradek.errors import InvalidSchemaError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    avro_to_arrow,
)

CARD = '{"type": "record", "name": "Card", "fields": [{"name": "number", "type": "string"}]}'
VALUE = SerializationContext("t", MessageField.VALUE)
ROW = b"\0\0\0\0\1\2a"


def rule(mode: str, **more: Any) -> dict[str, Any]:
    return {"name": "pan", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": mode, **more}


def holds(server: RegistryServer, *rules: dict[str, Any], **more: Any) -> None:
    """Store a version of subject t-value that has these rules."""
    server.schemas = [{"schema": CARD, "ruleSet": {"domainRules": list(rules), **more}}]
    server.subjects = {"t-value": [1]}


def tried(registry: SchemaRegistryClient) -> set[str]:
    """Write, read, and read a column; return the names of the operations that are rejected."""
    refused = set()
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: AvroSerializer(registry, conf={"use.latest.version": True})(
            {"number": "1"}, VALUE
        ),
        "read": lambda: AvroDeserializer(registry)(ROW, VALUE),
        "column": lambda: avro_to_arrow(pa.array([ROW], pa.binary()), registry),
    }
    for name, call in calls.items():
        try:
            call()
        except InvalidSchemaError as error:
            assert "no executor for rule 'pan' of type ENCRYPT" in str(error)  # noqa: PT017
            assert not error.blames_record  # noqa: PT017
            refused.add(name)
    return refused


READS = {"read", "column"}


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ([rule("WRITE")], {"write"}),
        ([rule("READ")], READS),
        ([rule("WRITEREAD")], {"write", *READS}),
        ([rule("UPGRADE")], set()),
        ([rule("WRITEREAD", disabled=True)], set()),
        ([rule("WRITEREAD", onFailure="ERROR,NONE")], {"write"}),
        ([rule("WRITEREAD", onFailure="NONE")], set()),
        ([rule("?")], {"write", *READS}),
        ([], set()),
    ],
)
def test_a_schema_rule_is_rejected_only_for_the_operations_of_its_mode(
    server: RegistryServer, registry: SchemaRegistryClient, rules: list[Any], refused: set[str]
) -> None:
    holds(server, *rules)
    assert tried(registry) == refused


def test_encoding_rules_are_rejected_and_rules_that_the_server_executes_are_ignored(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    holds(server, encodingRules=[rule("WRITE")])
    assert tried(registry) == {"write"}
    registry.clear_caches()
    holds(server, rule("WRITE"), enableAt="SERVER")
    assert tried(registry) == set()


def test_rules_of_a_schema_found_by_its_text_are_rejected(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    holds(server, rule("WRITE"))
    found = registry.get_latest_version("t-value")
    server.wrong = [(200, {"id": 1, "version": 1, **server.schemas[0]})]
    with pytest.raises(InvalidSchemaError, match="no executor for rule"):
        AvroSerializer(registry, CARD)({"number": "1"}, VALUE)
    copied = found.schema
    assert registry.register_schema("copy", copied) == 1  # the copy was registered with its rules
    assert registry.get_latest_version("copy").schema.rule_set == copied.rule_set


def test_a_migration_rule_is_rejected_only_if_it_would_apply(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    holds(server)
    newer = CARD.replace("}]", '}, {"name": "x", "type": "int", "default": 1}]')
    upgrade = {"migrationRules": [rule("UPGRADE")]}
    server.schemas.append({"schema": newer, "ruleSet": upgrade})
    server.subjects["t-value"] = [1, 2]
    read = AvroDeserializer(registry, conf={"use.latest.version": True})
    with pytest.raises(InvalidSchemaError, match="no executor for rule"):
        read(ROW, VALUE)
    assert read(b"\0\0\0\0\2\2a\2", VALUE) == {"number": "a", "x": 1}
    assert AvroDeserializer(registry, Schema(newer))(ROW, VALUE) == {"number": "a", "x": 1}
