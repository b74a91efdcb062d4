"""`Message`: a record that was read or delivered, or an error of the consumer.

In: Odradek's records, or a message's parts. Out: an object with a method for each part, as in
confluent-kafka. Must not: decode anything.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, TypeVar

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.untracked_objects import blanks, collectable

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2
_NO_TIMESTAMP = (TIMESTAMP_NOT_AVAILABLE, 0)
_NO_OFFSET = -1001
_MOST_DELIVERIES = 1 << 15
_KEY, _VALUE, _HEADERS = 5, 6, 7
"""Indexes of key, value and headers in a record."""
N = TypeVar("N", int, float)


def _from(least: int, number: N | None) -> N | None:
    """Return a number, or None if it is below `least`."""
    return None if number is None or number < least else number


class Message:
    """Message; if a consumer returned it, check `error()` first."""

    __slots__ = ("_error", "_more", "_record")
    # `_record` is Odradek's record, from which methods read the fields on demand.

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        kind, at = _NO_TIMESTAMP if timestamp is None else timestamp
        number, place = _from(0, partition), _from(0, offset)
        epoch = -1 if leader_epoch is None else leader_epoch
        self._record: tuple[Any, ...] = (
            *(topic, number, place, at, kind - 1, key, value, headers, epoch),
        )
        self._error = error
        if not -_MOST_DELIVERIES <= (delivery_count or 0) < _MOST_DELIVERIES:
            raise OverflowError(f"delivery_count must fit in 16 bits, not {delivery_count}")
        self._more: float | tuple[float | None, int] | None = _from(0, latency)
        """Latency, or a pair of latency and delivery count if there is a count."""
        if (deliveries := _from(1, delivery_count)) is not None:
            self._more = self._more, deliveries

    def topic(self) -> str | None:
        """Return the topic's name."""
        found: str | None = self._record[0]
        return found

    def partition(self) -> int | None:
        """Return the partition's number, or None."""
        found: int | None = self._record[1]
        return found

    def offset(self) -> int | None:
        """Return the offset, or None."""
        found: int | None = self._record[2]
        return found

    def key(self) -> Any:
        """Return the key: bytes, or the deserialized object."""
        return self._record[_KEY]

    def value(self) -> Any:
        """Return the value: bytes, or the object that a deserializing consumer created.

        If the message is an error, this is the error's text.
        """
        return self._record[_VALUE]

    deserialized_key = key
    deserialized_value = value

    def headers(self) -> Any:
        """Return a list of (name, bytes or None), or None without headers."""
        return self._parts()[_HEADERS]

    def error(self) -> KafkaError | None:
        """Return None for a record, else the error that this message reports."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type (a `TIMESTAMP_` constant) and the milliseconds since 1970."""
        kind: int = self._record[4]
        return (kind + 1, self._record[3]) if kind >= 0 else _NO_TIMESTAMP

    def latency(self) -> float | None:
        """Return the seconds from `produce()` to the delivery, in a delivery report."""
        more = self._more
        return more[0] if isinstance(more, tuple) else more

    def leader_epoch(self) -> int | None:
        """Return the epoch of the leader that appended the record, or None if it is unknown."""
        epoch: int = self._record[8]
        return epoch if epoch >= 0 else None

    def delivery_count(self) -> int | None:
        """Return None: this release doesn't support share groups."""
        return self._more[1] if isinstance(self._more, tuple) else None

    def set_topic(self, topic: str) -> None:
        """Replace the topic."""
        self._replace(0, topic)

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._replace(_KEY, key)

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._replace(_VALUE, value)

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._replace(_HEADERS, headers)

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        collectable(self)
        self._error = error

    def _parts(self) -> tuple[Any, ...]:
        """Return the record with its headers as a list."""
        record = self._record
        if type(record) is not tuple:  # Odradek's record has a tuple of headers
            collectable(self)  # the program may add objects to the new list
            record = self._record = (*record[:_HEADERS], list(record[_HEADERS]) or None, record[8])
        return record

    def _replace(self, item: int, by: Any) -> None:
        collectable(self)
        parts = [*self._parts()]
        parts[item] = by
        self._record = tuple(parts)

    def __len__(self) -> int:
        value = self._record[_VALUE]
        return 0 if value is None else len(value)

    def __reduce__(self) -> tuple[type[Message], tuple[Any, ...]]:
        return Message, self._arguments()

    def _arguments(self) -> tuple[Any, ...]:
        """Return the arguments of `Message()`, with negative numbers for missing ones."""
        topic, number, place, _, _, key, value, headers, epoch = self._parts()
        latency, deliveries = self.latency(), self.delivery_count()
        return (
            topic,
            -1 if number is None else number,
            _NO_OFFSET if place is None else place,
            *(key, value, headers, self._error, self.timestamp()),
            -1.0 if latency is None else latency,
            max(-1, epoch),
            -1 if deliveries is None else deliveries,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._arguments()[:-1] == other._arguments()[:-1]

    __hash__ = None  # type: ignore[assignment]  # as in confluent-kafka: messages are mutable


def messages_of(records: Sequence[tuple[Any, ...]]) -> list[Message]:
    """Convert records to messages; faster than a call of `Message()` for each."""
    found = blanks(Message, len(records))
    for made, record in zip(found, records, strict=True):
        made._record = record
        made._error = None
        made._more = None
    return found


def error_message(
    error: KafkaError, partition: odradek.TopicPartition | None = None, offset: int | None = None
) -> Message:
    """Return a `Message` that represents an error; its value is the error's text."""
    topic, number = (None, None) if partition is None else partition
    text: builtins.str = error.str()
    return Message(topic, number, offset, value=text.encode(), error=error)
