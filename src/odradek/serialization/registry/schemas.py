"""Schemas as registries know them.

In: texts. Out: values. Must not: read what a text means; the formats do.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one names: by what name, and where the registry has it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema's text, its kind ("AVRO", "JSON" or "PROTOBUF"), and what it refers to.

    A Protobuf schema's text is a `.proto` file, or the file's descriptor in base64.
    """

    schema_str: str
    schema_type: str = AVRO
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a version of a subject."""

    schema_id: int
    subject: str
    version: int | None
    """None where the registry doesn't say: right after it was registered."""
    schema: Schema
    guid: str | None = None
    """None from registries that give none."""
