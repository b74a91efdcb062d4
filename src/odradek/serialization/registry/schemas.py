"""Schemas in a registry, and references between them.

In: texts. Out: immutable values. Must not: parse a schema's text; the serializers do that.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference to another schema: the name used in the schema, and its subject and version."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its type ("AVRO", "JSON" or "PROTOBUF") and its references.

    The text of a Protobuf schema is a `.proto` file, or the file's descriptor in base64.
    """

    schema_str: str
    schema_type: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    rule_set: str | None = None
    """The schema's data rules as JSON; None if there are none."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema that is registered as a version of a subject."""

    schema_id: int
    subject: str
    version: int | None
    """The version; None if the registry doesn't return it when a schema is registered."""
    schema: Schema
    guid: str | None = None
    """The GUID; None if the registry has none."""
