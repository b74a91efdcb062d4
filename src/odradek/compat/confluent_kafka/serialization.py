"""Serializers and deserializers: functions between objects and bytes, as confluent-kafka has them.

In: an object, or bytes, and a context that says of which topic and field. Out: bytes, or an object;
`SerializationError` for what can't be written or read. Must not: know of schemas or registries.
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
    """Which part of a message it is; each is its text, too."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """Of which topic, which field, and beside which headers."""

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class SerializationError(KafkaException):
    """An object can't be written as bytes, or bytes can't be read."""


class _Converter:
    """What serializers and deserializers share."""

    __slots__: list[str] = []

    def set_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Called once, with a function that gives the cluster's id; this one needs none."""

    def close(self) -> None:
        """Called where a client built it and is closed; this one holds nothing."""


class Serializer(_Converter):
    """Base of serializers: called with an object and a context, gives bytes, or None for None."""

    __slots__: list[str] = []

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        raise NotImplementedError


class Deserializer(_Converter):
    """Base of deserializers: called with bytes or None and a context, gives an object."""

    __slots__: list[str] = []

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        raise NotImplementedError


class SerializerBuilder:
    """Makes a serializer once a client's configuration is known, and takes its own part of that."""

    __slots__: list[str] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """The serializer, and the settings that are left for the client."""
        raise NotImplementedError


class DeserializerBuilder:
    """Makes a deserializer once a client's configuration is known."""

    __slots__: list[str] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """The deserializer, and the settings that are left for the client."""
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
    """A float as 8 bytes, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        return _packed(">d", obj)


class DoubleDeserializer(Deserializer):
    """8 bytes, big-endian, as a float."""

    def __call__(
        self, value: bytes | None, ctx: SerializationContext | None = None
    ) -> float | None:
        found: float | None = _unpacked(">d", value)
        return found


class IntegerSerializer(Serializer):
    """An int as 4 bytes, big-endian, signed."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        return _packed(">i", obj)


class IntegerDeserializer(Deserializer):
    """4 bytes, big-endian, signed, as an int."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        found: int | None = _unpacked(">i", value)
        return found


class StringSerializer(Serializer):
    """Text as bytes by a codec of Python's."""

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
    """Bytes as text by a codec of Python's."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
