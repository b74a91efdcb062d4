"""Serializers, deserializers and schema registries.

Avro, JSON Schema and Protobuf in Confluent's wire format, plain strings, numbers and JSON, and
conversions of whole Arrow columns. Packages that a format needs (fastavro, protobuf, jsonschema-rs)
are imported when its first serializer is created; this package's own modules on first use of a
name.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from odradek.common.extras import require_extra

if TYPE_CHECKING:
    from odradek.serialization.avro.columns import arrow_to_avro as arrow_to_avro
    from odradek.serialization.avro.columns import avro_to_arrow as avro_to_arrow
    from odradek.serialization.avro.serializers import AvroDeserializer as AvroDeserializer
    from odradek.serialization.avro.serializers import AvroSerializer as AvroSerializer
    from odradek.serialization.columns.converted_column import ConvertedColumn as ConvertedColumn
    from odradek.serialization.context import MessageField as MessageField
    from odradek.serialization.context import SerializationContext as SerializationContext
    from odradek.serialization.errors import DeserializationError as DeserializationError
    from odradek.serialization.errors import IncompatibleSchemaError as IncompatibleSchemaError
    from odradek.serialization.errors import InvalidSchemaError as InvalidSchemaError
    from odradek.serialization.errors import (
        RecordDeserializationError as RecordDeserializationError,
    )
    from odradek.serialization.errors import (
        RegistryAuthenticationError as RegistryAuthenticationError,
    )
    from odradek.serialization.errors import RegistryUnreachableError as RegistryUnreachableError
    from odradek.serialization.errors import SchemaNotFoundError as SchemaNotFoundError
    from odradek.serialization.errors import SchemaRegistryError as SchemaRegistryError
    from odradek.serialization.errors import SerializationError as SerializationError
    from odradek.serialization.json.columns import arrow_to_json as arrow_to_json
    from odradek.serialization.json.columns import json_to_arrow as json_to_arrow
    from odradek.serialization.json.columns import plain_json_to_arrow as plain_json_to_arrow
    from odradek.serialization.json.serializers import JSONDeserializer as JSONDeserializer
    from odradek.serialization.json.serializers import JSONSerializer as JSONSerializer
    from odradek.serialization.plain import DoubleDeserializer as DoubleDeserializer
    from odradek.serialization.plain import DoubleSerializer as DoubleSerializer
    from odradek.serialization.plain import IntegerDeserializer as IntegerDeserializer
    from odradek.serialization.plain import IntegerSerializer as IntegerSerializer
    from odradek.serialization.plain import LongDeserializer as LongDeserializer
    from odradek.serialization.plain import LongSerializer as LongSerializer
    from odradek.serialization.plain import PlainJSONDeserializer as PlainJSONDeserializer
    from odradek.serialization.plain import PlainJSONSerializer as PlainJSONSerializer
    from odradek.serialization.plain import StringDeserializer as StringDeserializer
    from odradek.serialization.plain import StringSerializer as StringSerializer
    from odradek.serialization.protobuf.columns import arrow_to_protobuf as arrow_to_protobuf
    from odradek.serialization.protobuf.columns import protobuf_to_arrow as protobuf_to_arrow
    from odradek.serialization.protobuf.serializers import (
        ProtobufDeserializer as ProtobufDeserializer,
    )
    from odradek.serialization.protobuf.serializers import ProtobufSerializer as ProtobufSerializer
    from odradek.serialization.registry.async_client import (
        AsyncSchemaRegistryClient as AsyncSchemaRegistryClient,
    )
    from odradek.serialization.registry.client import SchemaRegistryClient as SchemaRegistryClient
    from odradek.serialization.registry.schemas import RegisteredSchema as RegisteredSchema
    from odradek.serialization.registry.schemas import Schema as Schema
    from odradek.serialization.registry.schemas import SchemaReference as SchemaReference
    from odradek.serialization.registry.subjects import (
        record_subject_name_strategy as record_subject_name_strategy,
    )
    from odradek.serialization.registry.subjects import (
        topic_record_subject_name_strategy as topic_record_subject_name_strategy,
    )
    from odradek.serialization.registry.subjects import (
        topic_subject_name_strategy as topic_subject_name_strategy,
    )

_HOME = {
    "AsyncSchemaRegistryClient": "odradek.serialization.registry.async_client",
    "AvroDeserializer": "odradek.serialization.avro.serializers",
    "AvroSerializer": "odradek.serialization.avro.serializers",
    "ConvertedColumn": "odradek.serialization.columns.converted_column",
    "DeserializationError": "odradek.serialization.errors",
    "DoubleDeserializer": "odradek.serialization.plain",
    "DoubleSerializer": "odradek.serialization.plain",
    "IncompatibleSchemaError": "odradek.serialization.errors",
    "IntegerDeserializer": "odradek.serialization.plain",
    "IntegerSerializer": "odradek.serialization.plain",
    "InvalidSchemaError": "odradek.serialization.errors",
    "JSONDeserializer": "odradek.serialization.json.serializers",
    "JSONSerializer": "odradek.serialization.json.serializers",
    "LongDeserializer": "odradek.serialization.plain",
    "LongSerializer": "odradek.serialization.plain",
    "MessageField": "odradek.serialization.context",
    "PlainJSONDeserializer": "odradek.serialization.plain",
    "PlainJSONSerializer": "odradek.serialization.plain",
    "ProtobufDeserializer": "odradek.serialization.protobuf.serializers",
    "ProtobufSerializer": "odradek.serialization.protobuf.serializers",
    "RecordDeserializationError": "odradek.serialization.errors",
    "RegisteredSchema": "odradek.serialization.registry.schemas",
    "RegistryAuthenticationError": "odradek.serialization.errors",
    "RegistryUnreachableError": "odradek.serialization.errors",
    "Schema": "odradek.serialization.registry.schemas",
    "SchemaNotFoundError": "odradek.serialization.errors",
    "SchemaReference": "odradek.serialization.registry.schemas",
    "SchemaRegistryClient": "odradek.serialization.registry.client",
    "SchemaRegistryError": "odradek.serialization.errors",
    "SerializationContext": "odradek.serialization.context",
    "SerializationError": "odradek.serialization.errors",
    "StringDeserializer": "odradek.serialization.plain",
    "StringSerializer": "odradek.serialization.plain",
    "arrow_to_avro": "odradek.serialization.avro.columns",
    "arrow_to_json": "odradek.serialization.json.columns",
    "arrow_to_protobuf": "odradek.serialization.protobuf.columns",
    "avro_to_arrow": "odradek.serialization.avro.columns",
    "json_to_arrow": "odradek.serialization.json.columns",
    "plain_json_to_arrow": "odradek.serialization.json.columns",
    "protobuf_to_arrow": "odradek.serialization.protobuf.columns",
    "record_subject_name_strategy": "odradek.serialization.registry.subjects",
    "topic_record_subject_name_strategy": "odradek.serialization.registry.subjects",
    "topic_subject_name_strategy": "odradek.serialization.registry.subjects",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_extra(home)
    found = globals()[name] = getattr(sys.modules[home], name)
    return found


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = [*_HOME]  # all are text
