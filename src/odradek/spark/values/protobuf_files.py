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

from odradek.serialization.references import referred
from odradek.serialization.schemas import PROTOBUF
from odradek.spark.problems import OptionError

if TYPE_CHECKING:
    from odradek.serialization import RegisteredSchema, SchemaRegistryClient

BUILT_IN = (
    "any", "source_context", "descriptor", "duration", "empty", "field_mask", "struct",
    "timestamp", "wrappers", "type", "api",
)  # fmt: skip
"""Files `google/protobuf/….proto`, which come with Protobuf itself; each after those it imports."""


def described(found: RegisteredSchema, registry: SchemaRegistryClient) -> tuple[bytes, ...]:
    """Descriptors of a schema's file and, before it, of those that it imports.

    Raises `SchemaRegistryError`, and `OptionError` where the registry gives none.
    """
    files: dict[str, bytes] = {}
    try:
        for one, needed in referred(found.schema, registry):
            if one.name not in files:
                files[one.name] = _descriptor(registry, needed.schema_id, one.name)
        own = f"{found.subject}.proto"
        files[own] = _descriptor(registry, found.schema_id, own)
    except ValueError as error:
        raise OptionError(f"version {found.version} of subject {found.subject}: {error}") from None
    return tuple(files.values())


def _descriptor(registry: SchemaRegistryClient, number: int, name: str) -> bytes:
    """The descriptor of a schema's file, under its name. Raises `ValueError` where the registry
    gives none.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    schema = registry.get_schema(number, "serialized")
    if schema.schema_type != PROTOBUF:
        raise ValueError(f"it is of type {schema.schema_type}, not PROTOBUF")
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.schema_str, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise ValueError(
            "the registry gives the text of a .proto file and no descriptor (format=serialized), "
            "which columns need"
        ) from None
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


def message_named(files: Sequence[bytes], message: str | None, subject: str) -> Any:
    """What Protobuf knows of a message of the last file; None: its first one.

    Raises `OptionError`.
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
        raise OptionError(f"the file of subject {subject} can't be used: {error}") from None
    messages = list(file.message_types_by_name.values())
    if message is None and messages:
        return messages[0]
    try:
        return pool.FindMessageTypeByName(message or "")
    except KeyError:
        named = ", ".join(one.full_name for one in messages) or "none"
        raise OptionError(
            f"subject {subject} has no message {message}; there are: {named}"
        ) from None
