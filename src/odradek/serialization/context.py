"""The second argument of serializers: the topic, the field and the headers of the record.

In: a topic, key or value, headers. Out: a context with the attributes of confluent-kafka's, so that
serializers of both libraries accept it. Must not: know a schema.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class MessageField(StrEnum):
    """The part of a record that is serialized: key or value; members are equal to their strings."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


@dataclass(slots=True)
class SerializationContext:
    """Context of a call of a serializer: topic, field (key or value) and headers.

    `headers` is a list of (name, value), which a serializer may append to, or None.
    """

    topic: str
    field: MessageField
    headers: Any = None


Serializer = Callable[[Any, SerializationContext | None], bytes | None]
"""Function that encodes an object as bytes; None for None."""
Deserializer = Callable[[bytes | None, SerializationContext | None], Any]
"""Function that decodes bytes to an object; None for None."""

NO_WAITING: ContextVar[bool] = ContextVar("odradek_no_waiting", default=False)
"""Whether the caller is an event loop, which must not wait for a registry."""
