"""Serializers, deserializers and schema registries.

    from odradek.serialization import AvroSerializer, SchemaRegistryClient

Contains Avro, JSON Schema and Protobuf in Confluent's wire format, plain strings, numbers and JSON,
and conversions of whole Arrow columns. Packages that a format needs (fastavro, protobuf,
jsonschema-rs) are imported when its first serializer is created. The errors are in
`odradek.errors`, too.
"""

from __future__ import annotations

from odradek.common.public_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
