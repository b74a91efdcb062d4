"""Objects and bytes: serializers, schemas and the registries that keep them.

In: objects, or bytes of records. Out: the other of both. Flow: user → here → `Producer.send`, and
`Consumer.poll` → here → user. Codecs (fastavro, protobuf, jsonschema-rs) are loaded by the formats
that need them, when an object of theirs is made.
"""

from odradek.serialization.async_registry_client import AsyncSchemaRegistryClient
from odradek.serialization.avro import AvroDeserializer, AvroSerializer
from odradek.serialization.avro_columns import arrow_to_avro, avro_to_arrow
from odradek.serialization.context import MessageField, SerializationContext
from odradek.serialization.converted_column import ConvertedColumn
from odradek.serialization.errors import (
    DeserializationError,
    IncompatibleSchemaError,
    InvalidSchemaError,
    RecordDeserializationError,
    RegistryAuthenticationError,
    RegistryUnreachableError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SerializationError,
)
from odradek.serialization.json_columns import (
    arrow_to_json,
    json_to_arrow,
    plain_json_to_arrow,
)
from odradek.serialization.json_schema import JSONDeserializer, JSONSerializer
from odradek.serialization.plain import (
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    LongDeserializer,
    LongSerializer,
    PlainJSONDeserializer,
    PlainJSONSerializer,
    StringDeserializer,
    StringSerializer,
)
from odradek.serialization.protobuf import ProtobufDeserializer, ProtobufSerializer
from odradek.serialization.protobuf_columns import arrow_to_protobuf, protobuf_to_arrow
from odradek.serialization.registry_client import SchemaRegistryClient
from odradek.serialization.schemas import RegisteredSchema, Schema, SchemaReference
from odradek.serialization.subjects import (
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)

__all__ = [
    "AsyncSchemaRegistryClient",
    "AvroDeserializer",
    "AvroSerializer",
    "ConvertedColumn",
    "DeserializationError",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IncompatibleSchemaError",
    "IntegerDeserializer",
    "IntegerSerializer",
    "InvalidSchemaError",
    "JSONDeserializer",
    "JSONSerializer",
    "LongDeserializer",
    "LongSerializer",
    "MessageField",
    "PlainJSONDeserializer",
    "PlainJSONSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RecordDeserializationError",
    "RegisteredSchema",
    "RegistryAuthenticationError",
    "RegistryUnreachableError",
    "Schema",
    "SchemaNotFoundError",
    "SchemaReference",
    "SchemaRegistryClient",
    "SchemaRegistryError",
    "SerializationContext",
    "SerializationError",
    "StringDeserializer",
    "StringSerializer",
    "arrow_to_avro",
    "arrow_to_json",
    "arrow_to_protobuf",
    "avro_to_arrow",
    "json_to_arrow",
    "plain_json_to_arrow",
    "protobuf_to_arrow",
    "record_subject_name_strategy",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]
