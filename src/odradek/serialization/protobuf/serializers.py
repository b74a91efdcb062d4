"""Protobuf with a schema registry: messages of generated classes.

In: messages, or bytes with a schema's id and the message's place in its file. Out: the other. The
schema that is registered is the file's descriptor in base64, as confluent-kafka does; files that it
imports are schemas of their own, to which it refers, but for those that come with Protobuf.
A class knows its fields, and keeps what it doesn't know, so a registry is asked for nothing but
which message bytes are of.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from odradek.common.errors import ConfigurationError
from odradek.serialization.context import SerializationContext
from odradek.serialization.errors import DeserializationError, SerializationError
from odradek.serialization.extras import protobuf
from odradek.serialization.framing import READING, WRITING, Framer, Unframer, read_settings
from odradek.serialization.protobuf.messages import messages_at
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.schema_cache import kept
from odradek.serialization.registry.schemas import PROTOBUF, Schema, SchemaReference
from odradek.serialization.wire_format import SchemaId, schema_of

M = TypeVar("M")
BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that each Protobuf library, or each registry, has."""


def message_indexes(descriptor: Any) -> tuple[int, ...]:
    """A message's place in its file: its number among its siblings, from the outermost inwards."""
    found: list[int] = []
    while descriptor.containing_type is not None:
        found.append(_place(descriptor, descriptor.containing_type.nested_types))
        descriptor = descriptor.containing_type
    found.append(_place(descriptor, descriptor.file.message_types_by_name.values()))
    return tuple(reversed(found))


def _place(descriptor: Any, among: Any) -> int:
    return [one.full_name for one in among].index(descriptor.full_name)


def _text(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


class ProtobufSerializer(Generic[M]):
    """Messages as Protobuf, with the id of their schema before them.

    `msg_type`: a class that protoc has generated. `conf` as `AvroSerializer` has it, and
    `skip.known.types` (true: files that come with Protobuf aren't registered). A reference's
    subject is the imported file's name.

    Called with a message and a `SerializationContext`; None gives None. Raises
    `SerializationError`, and `SchemaRegistryError` where the schema can't be had.
    """

    def __init__(
        self,
        msg_type: type[M],
        schema_registry_client: SchemaRegistryClient,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Check class and settings; the registry isn't asked yet."""
        self._descriptor = message_descriptor(msg_type, "msg_type")
        settings = read_settings(conf, WRITING | {"skip.known.types": True})
        self._framer = Framer(schema_registry_client, settings)
        self._skips = settings["skip.known.types"]
        self.message_type = msg_type
        self._indexes = message_indexes(self._descriptor)

    def __call__(self, obj: M | None, ctx: SerializationContext | None = None) -> bytes | None:
        """The bytes of a message; None for None."""
        if obj is None:
            return None
        if not isinstance(obj, self.message_type):
            raise SerializationError(
                f"a message {self._descriptor.full_name} is wanted, not {type(obj).__name__}"
            )
        subject = self._framer.subject(ctx, self._descriptor.full_name)
        found = self._framer.registered(subject, lambda: self._schema(self._descriptor.file))
        try:
            payload: bytes = obj.SerializeToString()  # type: ignore[attr-defined]
        except Exception as error:  # a required field is missing, in its own class of errors
            raise SerializationError(f"the message can't be written: {error}") from error
        return self._framer.framed(payload, found, ctx, self._indexes)

    def _schema(self, file: Any) -> Schema:
        """A file's schema; those that it imports are there, or are registered, before it."""
        references = []
        for one in file.dependencies:
            if self._skips and one.name.startswith(BUILT_IN):
                continue
            found = self._framer.reference(one.name, self._schema(one))
            references.append(SchemaReference(one.name, one.name, found.version or 1))
        return Schema(_text(file), PROTOBUF, tuple(references))


class ProtobufDeserializer(Generic[M]):
    """Protobuf with the id of its schema, as messages of a generated class.

    Fields that the class doesn't know are kept in the message, and those that the bytes lack have
    their defaults: that is Protobuf's schema evolution.

    `schema_registry_client`: asked once for each schema which message of its file the bytes say
    that they are; another one than the class is refused. Without it none is asked, and that isn't
    looked at: bytes of another message may be read as this one.

    Called with bytes and a `SerializationContext`; None gives None. Raises `DeserializationError`,
    and with a registry `SchemaRegistryError` where the schema can't be had.
    """

    def __init__(
        self,
        message_type: type[M],
        schema_registry_client: SchemaRegistryClient | None = None,
    ) -> None:
        """Check the class; the registry isn't asked yet."""
        self._descriptor = message_descriptor(message_type)
        self._class = message_type
        self._unframer = None
        if schema_registry_client is not None:
            self._unframer = Unframer(schema_registry_client, read_settings(None, READING))
        self._checked: dict[SchemaId, str | None] = {}
        """What is wrong with the message that a schema and its indexes mean."""

    def __call__(self, data: bytes | None, ctx: SerializationContext | None = None) -> M | None:
        """The message of bytes; None for None."""
        if data is None:
            return None
        of, at = schema_of(data, ctx, indexed=True)
        if self._unframer is not None:
            self._check(of, self._unframer)
        message = self._class()
        try:
            message.ParseFromString(data[at:])  # type: ignore[attr-defined]
        except Exception as error:
            raise DeserializationError(f"it is no {self._descriptor.full_name}: {error}") from None
        return message

    def _check(self, of: SchemaId, unframer: Unframer) -> None:
        try:
            why = self._checked[of]
        except KeyError:
            names = messages_at(unframer.schema(of), of.indexes or (0,))
            mine, why = self._descriptor.full_name, None
            if mine not in names:
                said = " or ".join(sorted(names)) or f"message {list(of.indexes or ())}, of none"
                why = f"its schema says that it is {said}, not {mine}"
            kept(self._checked, of, why)
        if why is not None:
            raise DeserializationError(why)


def message_descriptor(message_type: Any, name: str = "message_type") -> Any:
    """What a generated class knows of itself; `name`: the argument's.

    Raises `ConfigurationError`.
    """
    protobuf()
    found = getattr(message_type, "DESCRIPTOR", None)
    if not isinstance(message_type, type) or found is None or not hasattr(found, "file"):
        raise ConfigurationError(
            f"{name} must be a class that protoc has generated, not {message_type!r}"
        )
    return found
