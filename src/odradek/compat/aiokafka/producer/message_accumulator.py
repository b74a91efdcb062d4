"""Batches that a program fills itself: returned by `create_batch`, accepted by `send_batch`.

In: single records. Out: the records that fit into `max_batch_size`, by their size on the wire
before compression. Must not: send; the producer does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from odradek.record.batch import HEADER_SIZE
from odradek.record.varint import write_varint

Headers = Iterable[tuple[str, bytes | None]]
Serializer = Callable[[Any], bytes | None]
BYTES = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class DefaultRecordMetadata:
    """Position of a record in its batch."""

    offset: int
    """Index in the batch, from 0."""
    size: int
    """Size in bytes, before compression."""
    timestamp: int
    """Milliseconds since the epoch."""
    crc: None = None


class Collected(NamedTuple):
    """Serialized record of a batch."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class BatchBuilder:
    """Batch of records for one partition; created by `AIOKafkaProducer.create_batch()`."""

    def __init__(
        self,
        batch_size: int,
        compression_type: object = None,
        *,
        is_transactional: object = 0,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> None:
        """Accept up to `batch_size` bytes; settings of the producer are ignored."""
        self.records: list[Collected] = []
        self._limit = batch_size
        self._size = HEADER_SIZE
        self._closed = False
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer

    def append(
        self,
        *,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: Headers | None = (),
    ) -> DefaultRecordMetadata | None:
        """Add a record; return None if the batch is full or closed.

        `timestamp`: milliseconds since the epoch, None for the current time. A first record always
        fits. Raises `TypeError` for a key or value that isn't bytes after its serializer.
        """
        if self._closed:
            return None
        key = key if self._key_serializer is None else self._key_serializer(key)
        value = value if self._value_serializer is None else self._value_serializer(value)
        if timestamp is None:
            timestamp = int(time.time() * 1000)
        for what, given in (("timestamp", timestamp), ("key", key), ("value", value)):
            kinds, expected = (int, "an int") if what == "timestamp" else (BYTES, "bytes")
            if given is not None and not isinstance(given, kinds):
                raise TypeError(f"{what} must be {expected} or None, not {type(given).__name__}")
        record = Collected(value, key, tuple(headers or ()), timestamp)
        size = self._size_of(record)
        if self.records and self._size + size > self._limit:
            self.close()
            return None
        self.records.append(record)
        self._size += size
        return DefaultRecordMetadata(len(self.records) - 1, size, timestamp)

    def _size_of(self, record: Collected) -> int:
        first = self.records[0] if self.records else record
        size = 1 + _varint(record.timestamp_ms - first.timestamp_ms) + _varint(len(self.records))
        size += _field(record.key) + _field(record.value) + _varint(len(record.headers))
        for name, content in record.headers:
            size += _field(name.encode()) + _field(content)
        return size + _varint(size)

    def close(self) -> None:
        """Accept no more records; the batch can still be sent."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether the batch accepts no more records."""
        return self._closed

    def size(self) -> int:
        """Return the size in bytes before compression, with the batch's header."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.records)


def _varint(number: int) -> int:
    return len(write_varint(number))


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)
