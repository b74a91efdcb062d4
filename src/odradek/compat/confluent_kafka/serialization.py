"""Serializers and deserializers of `confluent_kafka.serialization`, without a schema registry.

A serializer takes an object and a context with topic and field, and returns bytes; a deserializer
takes bytes and returns an object. Both raise `SerializationError` if the conversion fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from odradek.compat.confluent_kafka.kafka_error import KafkaException

__all__ = [
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
]


class MessageField(StrEnum):
    """Part of a message, key or value; each member is also a str."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """Topic, field and headers of the message being converted."""

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class SerializationError(KafkaException):
    """An object can't be serialized, or bytes can't be deserialized."""


class _Converter:
    """Base of serializers and deserializers."""

    __slots__: list[str] = []

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Store a function that returns the cluster's id; ignored by default."""

    def close(self) -> None:
        """Release resources; called by a client that built this object. Does nothing by default."""


class Serializer(_Converter):
    """Base of serializers: called with an object and a context, returns bytes, or None for None."""

    __slots__: list[str] = []

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        raise NotImplementedError


class Deserializer(_Converter):
    """Base of deserializers: called with bytes or None and a context, returns an object."""

    __slots__: list[str] = []

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        raise NotImplementedError


class SerializerBuilder:
    """Builds a serializer from a client's configuration."""

    __slots__: list[str] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Return the serializer, and the remaining settings for the client."""
        raise NotImplementedError


class DeserializerBuilder:
    """Builds a deserializer from a client's configuration."""

    __slots__: list[str] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Return the deserializer, and the remaining settings for the client."""
        raise NotImplementedError


def _packed(form: str, obj: Any) -> bytes | None:
    if obj is None:
        return None
    try:
        return struct.pack(form, obj)
    except struct.error as error:
        raise SerializationError(str(error)) from error


def _unpacked(form: str, value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return struct.unpack(form, value)[0]
    except struct.error as error:
        raise SerializationError(str(error)) from error


class DoubleSerializer(Serializer):
    """Serializes a float as 8 bytes, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        return _packed(">d", obj)


class DoubleDeserializer(Deserializer):
    """Deserializes a float from 8 bytes, big-endian."""

    def __call__(
        self, value: bytes | None, ctx: SerializationContext | None = None
    ) -> float | None:
        found: float | None = _unpacked(">d", value)
        return found


class IntegerSerializer(Serializer):
    """Serializes an int as 4 bytes, big-endian, signed."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        return _packed(">i", obj)


class IntegerDeserializer(Deserializer):
    """Deserializes an int from 4 bytes, big-endian, signed."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        found: int | None = _unpacked(">i", value)
        return found


class StringSerializer(Serializer):
    """Serializes a str by one of Python's codecs."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """Deserializes a str by one of Python's codecs."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
