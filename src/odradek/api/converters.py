"""Serializers and deserializers of a client; their code is imported only if it has some.

In: functions of the program. Out: wrappers around the client's bytes, or None. Must not: make a
client without them import or call anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from odradek.clients.calls.record_sending import RecordSending
    from odradek.serialization.record_reading import RecordReading

    T = TypeVar("T")
    Serializer: TypeAlias = Callable[[T], bytes | None] | Callable[[T, Any], bytes | None]
    Deserializer: TypeAlias = Callable[[bytes], T] | Callable[[bytes, Any], T]


def reading(key: Any, value: Any, *, in_loop: bool = False) -> RecordReading | None:
    """Return the deserializer of a consumer's records, or None."""
    if key is None and value is None:
        return None
    from odradek.serialization.record_reading import RecordReading

    return RecordReading(key, value, in_loop=in_loop)


def sending(
    producer: RecordSending[Any, Any, Any], key: Any, value: Any, *, in_loop: bool = False
) -> Callable[..., Any] | None:
    """Return a `send` that serializes keys and values first, or None."""
    if key is None and value is None:
        return None
    from odradek.serialization.record_writing import serialized_put, serialized_send

    return (serialized_put if in_loop else serialized_send)(producer, key, value)


def sending_many(
    producer: RecordSending[Any, Any, Any], key: Any, value: Any, *, in_loop: bool = False
) -> Callable[..., Any] | None:
    """Return a `send_many` that serializes keys and values first, or None."""
    if key is None and value is None:
        return None
    from odradek.serialization.record_writing import serialized_put_many, serialized_send_many

    return (serialized_put_many if in_loop else serialized_send_many)(producer, key, value)
