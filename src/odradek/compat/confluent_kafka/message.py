"""`Message`: a record that was read, one whose delivery is reported, or an error of the consumer's.

In: our records, or the parts. Out: an object whose parts are methods, as confluent-kafka has it.
Must not: decode anything.
"""

from __future__ import annotations

import builtins
from typing import Any

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2
_NO_TIMESTAMP = (TIMESTAMP_NOT_AVAILABLE, 0)
_new = object.__new__


class Message:
    """One message; look at `error()` first where the consumer gave it."""

    __slots__ = (
        "_delivery_count",
        "_error",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

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
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = _NO_TIMESTAMP if timestamp is None else timestamp
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    def topic(self) -> str | None:
        """The topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """The partition's number, None where there is none."""
        return self._partition

    def offset(self) -> int | None:
        """The offset, None where there is none."""
        return self._offset

    def key(self) -> Any:
        """The key: bytes, or what a deserializer made of it."""
        return self._key

    def value(self) -> Any:
        """The value: bytes, or what a deserializer made of it; the text of an error."""
        return self._value

    def deserialized_key(self) -> Any:
        """What `key()` gives."""
        return self._key

    def deserialized_value(self) -> Any:
        """What `value()` gives."""
        return self._value

    def headers(self) -> Any:
        """A list of (name, bytes or None), None where there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """None for a record; else the error that this message tells of."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """One of the `TIMESTAMP_` constants, and milliseconds since the epoch."""
        return self._timestamp

    def latency(self) -> float | None:
        """Seconds from `produce()` to the outcome, in a delivery report."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """The epoch of the leader that appended the record, None where that isn't known."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """For share groups, which this release doesn't have: always None."""
        return self._delivery_count

    def set_topic(self, topic: str) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)


def message_of(record: odradek.ConsumerRecord) -> Message:
    """A record that was read; without a call of `__init__`, as this is done for each."""
    topic, partition, offset, timestamp, kind, key, value, headers, epoch = record
    made = _new(Message)
    made._topic = topic
    made._partition = partition
    made._offset = offset
    made._key = key
    made._value = value
    made._headers = list(headers) if headers else None
    made._error = None
    made._timestamp = (kind + 1, timestamp)
    made._latency = None
    made._leader_epoch = epoch if epoch >= 0 else None
    made._delivery_count = None
    return made


def error_message(
    error: KafkaError, partition: odradek.TopicPartition | None = None, offset: int | None = None
) -> Message:
    """What the consumer hands out in place of a record; its value is the error's text."""
    topic, number = (None, None) if partition is None else partition
    text: builtins.str = error.str()
    return Message(topic, number, offset, value=text.encode(), error=error)
