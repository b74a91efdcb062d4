"""Objects and bytes: serializers, schemas and the registries that keep them.

In: objects, or bytes of records. Out: the other of both. Flow: user → here → `Producer.send`, and
`Consumer.poll` → here → user. Codecs (fastavro, protobuf, jsonschema-rs) are loaded by the formats
that need them, when an object of theirs is made; names of this package on their first use, as each
planner of Spark's comes by here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from odradek.common.imports import loaded

if TYPE_CHECKING:
    from odradek.serialization.async_registry_client import (
        AsyncSchemaRegistryClient as AsyncSchemaRegistryClient,
    )
    from odradek.serialization.avro import AvroDeserializer as AvroDeserializer
    from odradek.serialization.avro import AvroSerializer as AvroSerializer
    from odradek.serialization.avro_columns import arrow_to_avro as arrow_to_avro
    from odradek.serialization.avro_columns import avro_to_arrow as avro_to_arrow
    from odradek.serialization.context import MessageField as MessageField
    from odradek.serialization.context import SerializationContext as SerializationContext
    from odradek.serialization.converted_column import ConvertedColumn as ConvertedColumn
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
    from odradek.serialization.json_columns import arrow_to_json as arrow_to_json
    from odradek.serialization.json_columns import json_to_arrow as json_to_arrow
    from odradek.serialization.json_columns import plain_json_to_arrow as plain_json_to_arrow
    from odradek.serialization.json_schema import JSONDeserializer as JSONDeserializer
    from odradek.serialization.json_schema import JSONSerializer as JSONSerializer
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
    from odradek.serialization.protobuf import ProtobufDeserializer as ProtobufDeserializer
    from odradek.serialization.protobuf import ProtobufSerializer as ProtobufSerializer
    from odradek.serialization.protobuf_columns import arrow_to_protobuf as arrow_to_protobuf
    from odradek.serialization.protobuf_columns import protobuf_to_arrow as protobuf_to_arrow
    from odradek.serialization.registry_client import SchemaRegistryClient as SchemaRegistryClient
    from odradek.serialization.schemas import RegisteredSchema as RegisteredSchema
    from odradek.serialization.schemas import Schema as Schema
    from odradek.serialization.schemas import SchemaReference as SchemaReference
    from odradek.serialization.subjects import (
        record_subject_name_strategy as record_subject_name_strategy,
    )
    from odradek.serialization.subjects import (
        topic_record_subject_name_strategy as topic_record_subject_name_strategy,
    )
    from odradek.serialization.subjects import (
        topic_subject_name_strategy as topic_subject_name_strategy,
    )

_HOME = {
    "AsyncSchemaRegistryClient": "odradek.serialization.async_registry_client",
    "AvroDeserializer": "odradek.serialization.avro",
    "AvroSerializer": "odradek.serialization.avro",
    "ConvertedColumn": "odradek.serialization.converted_column",
    "DeserializationError": "odradek.serialization.errors",
    "DoubleDeserializer": "odradek.serialization.plain",
    "DoubleSerializer": "odradek.serialization.plain",
    "IncompatibleSchemaError": "odradek.serialization.errors",
    "IntegerDeserializer": "odradek.serialization.plain",
    "IntegerSerializer": "odradek.serialization.plain",
    "InvalidSchemaError": "odradek.serialization.errors",
    "JSONDeserializer": "odradek.serialization.json_schema",
    "JSONSerializer": "odradek.serialization.json_schema",
    "LongDeserializer": "odradek.serialization.plain",
    "LongSerializer": "odradek.serialization.plain",
    "MessageField": "odradek.serialization.context",
    "PlainJSONDeserializer": "odradek.serialization.plain",
    "PlainJSONSerializer": "odradek.serialization.plain",
    "ProtobufDeserializer": "odradek.serialization.protobuf",
    "ProtobufSerializer": "odradek.serialization.protobuf",
    "RecordDeserializationError": "odradek.serialization.errors",
    "RegisteredSchema": "odradek.serialization.schemas",
    "RegistryAuthenticationError": "odradek.serialization.errors",
    "RegistryUnreachableError": "odradek.serialization.errors",
    "Schema": "odradek.serialization.schemas",
    "SchemaNotFoundError": "odradek.serialization.errors",
    "SchemaReference": "odradek.serialization.schemas",
    "SchemaRegistryClient": "odradek.serialization.registry_client",
    "SchemaRegistryError": "odradek.serialization.errors",
    "SerializationContext": "odradek.serialization.context",
    "SerializationError": "odradek.serialization.errors",
    "StringDeserializer": "odradek.serialization.plain",
    "StringSerializer": "odradek.serialization.plain",
    "arrow_to_avro": "odradek.serialization.avro_columns",
    "arrow_to_json": "odradek.serialization.json_columns",
    "arrow_to_protobuf": "odradek.serialization.protobuf_columns",
    "avro_to_arrow": "odradek.serialization.avro_columns",
    "json_to_arrow": "odradek.serialization.json_columns",
    "plain_json_to_arrow": "odradek.serialization.json_columns",
    "protobuf_to_arrow": "odradek.serialization.protobuf_columns",
    "record_subject_name_strategy": "odradek.serialization.subjects",
    "topic_record_subject_name_strategy": "odradek.serialization.subjects",
    "topic_subject_name_strategy": "odradek.serialization.subjects",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded(home)  # also amid calls of Spark's workers (R-HO-1)
    found = globals()[name] = getattr(sys.modules[home], name)
    return found


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = [*_HOME]  # all are text
