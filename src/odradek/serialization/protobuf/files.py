"""Messages by the descriptors that a registry has.

In: a schema of a registry. Out: what Protobuf knows of a message in it. Must not: compile a
`.proto` file (the registry gives its descriptor), or import a module that a text names.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.serialization.errors import DeserializationError, InvalidSchemaError
from odradek.serialization.protobuf.messages import messages_at
from odradek.serialization.registry.references import referred
from odradek.serialization.registry.schemas import PROTOBUF, Schema
from odradek.serialization.wire_format import SchemaId

if TYPE_CHECKING:
    from odradek.serialization.registry.client import SchemaRegistryClient

BUILT_IN = (
    "any", "source_context", "descriptor", "duration", "empty", "field_mask", "struct",
    "timestamp", "wrappers", "type", "api",
)  # fmt: skip
"""Files `google/protobuf/….proto`, which come with Protobuf itself; each after those it imports."""


def described(
    schema: Schema, schema_id: int, name: str, registry: SchemaRegistryClient
) -> tuple[bytes, ...]:
    """Descriptors of a schema's file, under this name, and before it of those that it imports.

    Raises `SchemaRegistryError`; `InvalidSchemaError` where the registry gives none.
    """
    files: dict[str, bytes] = {}
    for one, needed in referred(schema, registry):
        if one.name not in files:
            files[one.name] = _file(registry, needed.schema, needed.schema_id, one.name)
    files[name] = _file(registry, schema, schema_id, name)
    return tuple(files.values())


def message_of(of: SchemaId, registry: SchemaRegistryClient) -> Any:
    """What Protobuf knows of the message that framed bytes name, by its schema in the registry.

    Raises `DeserializationError` where they name none, `SchemaRegistryError`, `InvalidSchemaError`.
    """
    if of.id is None:
        raise DeserializationError(
            "it names its schema by GUID; by id it can be read, or with the message's class"
        )
    schema, indexes = registry.get_schema(of.id), of.indexes or (0,)
    try:
        names = messages_at(schema, indexes)
    except InvalidSchemaError as error:
        raise DeserializationError(str(error)) from None
    if not names:
        raise DeserializationError(f"its schema {of.id} has no message {list(indexes)}")
    if len(names) > 1:
        raise DeserializationError(
            f"message {list(indexes)} of its schema {of.id} may be {' or '.join(sorted(names))}, "
            "by whether entries of maps count: only its class, which protoc generates, can tell"
        )
    whose = f"schema {of.id}"
    files = described(schema, of.id, f"{whose}.proto", registry)
    return message_named(files, names.pop(), whose)


def _file(registry: SchemaRegistryClient, schema: Schema, schema_id: int, name: str) -> bytes:
    """The descriptor of a schema's file, under its name."""
    if schema.schema_type != PROTOBUF:
        raise InvalidSchemaError(
            f"it is of type {schema.schema_type}, not PROTOBUF", None, "Check the topic."
        )
    file = _descriptor(schema.schema_str, name)
    if file is None:  # what was registered, or is told of it, is the file's text
        text = registry.get_schema(schema_id, "serialized").schema_str
        file = _descriptor(text, name)
    if file is None:
        raise InvalidSchemaError(
            "the registry gives the text of a .proto file and no descriptor (format=serialized), "
            "without which the message can't be known",
            None,
            "Register it by a ProtobufSerializer with auto.register.schemas, or use a registry "
            "that gives descriptors.",
        )
    return file


def _descriptor(text: str, name: str) -> bytes | None:
    """A descriptor in base64 as bytes, under another name; None for what is none."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = name
    return bytes(file.SerializeToString())


def _built_in(imported: set[str]) -> list[bytes]:
    """Descriptors of those files of Protobuf's own that are imported, and of what they import.

    No others: a registered file may be one of these itself, under its subject's name.
    """
    found: list[bytes] = []
    for name in reversed(BUILT_IN):
        if f"google/protobuf/{name}.proto" in imported:
            made = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
            imported |= {one.name for one in made.dependencies}
            found.insert(0, made.serialized_pb)
    return found


def message_named(files: Sequence[bytes], message: str | None, whose: str) -> Any:
    """What Protobuf knows of a message of the last file; None: its first one.

    `whose`: the file, for errors. Raises `InvalidSchemaError`.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    read = [FileDescriptorProto.FromString(one) for one in files]
    for one in _built_in({name for file in read for name in file.dependency}):
        pool.AddSerializedFile(one)
    try:
        for one in files:
            pool.AddSerializedFile(one)
        file = pool.FindFileByName(read[-1].name)
    except (TypeError, KeyError) as error:
        raise InvalidSchemaError(f"the file of {whose} can't be used: {error}", None, "") from None
    messages = list(file.message_types_by_name.values())
    if message is None and messages:
        return messages[0]
    try:
        return pool.FindMessageTypeByName(message or "")
    except KeyError:
        named = ", ".join(one.full_name for one in messages) or "none"
        raise InvalidSchemaError(
            f"{whose} has no message {message}; there are: {named}", None, ""
        ) from None
