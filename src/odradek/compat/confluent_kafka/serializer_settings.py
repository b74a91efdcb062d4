"""Settings of serializing clients: functions, or builders that create them.

In: a configuration with `key.serializer`, `value.deserializer.builder` and the like. Out: the
functions for key and value, those that have to be closed with the client, and the remaining
settings; flows that call the functions, whose results may be awaitable. Must not: close functions
that the program created itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.compat.confluent_kafka.error import (
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from odradek.compat.confluent_kafka.flows import Flow
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.confluent_kafka.serialization import MessageField, SerializationContext


@dataclass
class Converters:
    """Functions that serialize, or deserialize, keys and values."""

    key: Callable[[Any, Any], Any] | None = None
    value: Callable[[Any, Any], Any] | None = None
    owned: list[Any] = field(default_factory=list)
    """Functions created by builders, which `close` closes."""

    def resolve_by(self, cluster_id: Callable[[], Any]) -> None:
        """Pass a function that returns the cluster's id to the converters that need it."""
        for converter in (self.key, self.value):
            tell = getattr(converter, "set_cluster_id_resolver", None)
            if tell is not None:
                tell(cluster_id)

    def read(self, message: Message) -> Flow[Message]:
        """Replace a message's key and value by the deserialized objects."""
        topic = message.topic() or ""
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self.key is not None:
            try:
                key = yield self.key(key, context)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        context.field = MessageField.VALUE
        if self.value is not None:
            try:
                value = yield self.value(value, context)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        message.set_key(key)
        message.set_value(value)
        return message

    def written(self, topic: str, key: Any, value: Any, headers: Any) -> Flow[tuple[Any, Any]]:
        """Return the serialized key and value."""
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self.key is not None:
            try:
                key = yield self.key(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self.value is not None:
            try:
                value = yield self.value(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        return key, value

    def close(self) -> None:
        """Close the functions that builders created; a second call has no effect."""
        owned, self.owned = self.owned, []
        for converter in owned:
            close = getattr(converter, "close", None)
            if close is not None:
                close()


def converters(conf: dict[str, Any], kind: str) -> tuple[Converters, dict[str, Any]]:
    """Return the functions of a configuration and the other settings.

    `kind` is "serializer" or "deserializer". Raises `ValueError` if a function is given together
    with its builder.
    """
    rest, found = dict(conf), Converters()
    for part in ("key", "value"):
        name = f"{part}.{kind}"
        made, builder = rest.pop(name, None), rest.pop(f"{name}.builder", None)
        if made is not None and builder is not None:
            raise ValueError(f"{name} and {name}.builder are mutually exclusive")
        if builder is not None:
            made, rest = builder.build(rest, part == "key")
            found.owned.append(made)
        setattr(found, part, made)
    return found, rest
