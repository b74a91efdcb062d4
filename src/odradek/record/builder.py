"""Build a record batch, to which the producer appends single records.

In: keys, values, headers and times from `send()`. Out: a complete batch for a Produce request. A
builder contains one batch of one partition; the accumulator protects it with a lock. Must not: know
partitions or requests, or read a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

from odradek.common.errors import IllegalStateError
from odradek.record import batch as b
from odradek.record.compression import codec_number, compress
from odradek.record.varint import write_varint

HeaderInput = Sequence[tuple[str, bytes | None]]

_RECORD_OVERHEAD = 21
"""Maximum size of a record's length (5), attributes (1), timestamp delta (10), offset delta (5)."""
_LONGEST_LENGTH = 5


# Encoded numbers from 0 to 2047, which cover nearly all lengths and deltas, to avoid a loop.
_SHORT = [bytes((n << 1,)) for n in range(64)]
_SHORT += [bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(64, 2048)]
_SHORT_END = len(_SHORT)
_NULL = b"\x01"


def estimate_record_size(key: bytes | None, value: bytes | None, headers: HeaderInput = ()) -> int:
    """Return an upper bound of the bytes that one record adds to a batch before compression."""
    size = _RECORD_OVERHEAD + 3 * _LONGEST_LENGTH
    if key is not None:
        size += len(key) if type(key) is bytes else _size(key)
    if value is not None:
        size += len(value) if type(value) is bytes else _size(value)
    for name, content in headers:
        # A character of a header's name takes at most 4 bytes in UTF-8.
        size += 2 * _LONGEST_LENGTH + (len(name) if name.isascii() else 4 * len(name))
        size += _size(content)
    return size


def _size(data: bytes | None) -> int:
    if type(data) is bytes:
        return len(data)
    return 0 if data is None else memoryview(data).nbytes  # items may have several bytes


def no_bytes(data: object) -> TypeError:
    """Return the error for a value that isn't bytes, such as a numpy number, which has a buffer."""
    return TypeError(f"a bytes-like object is required, not {type(data).__name__!r}")


def plain_bytes(data: bytes) -> bytes:
    """Copy a bytes-like object into bytes, as its `len` may count items of several bytes."""
    view = memoryview(data)
    if not view.ndim:
        raise no_bytes(data)
    return view.tobytes()


def whole_time(given: object) -> int:
    """Convert a timestamp to an int; raise if it isn't a whole number."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise TypeError(f"timestamp_ms must be a whole number, not {type(given).__name__!r}")
    return index(given)


def header_name(given: object) -> str:
    """Convert an instance of a subclass of str to str, the only type that the encoder accepts."""
    if not isinstance(given, str):
        kind = "None" if given is None else f"of type {type(given).__name__!r}"
        raise TypeError(f"the name of a header is {kind}, not a string")
    return str.__str__(given)


def _encode_headers(headers: HeaderInput) -> bytes:
    headers = tuple(headers)
    parts = [write_varint(len(headers))]
    for name, content in headers:
        encoded = header_name(name).encode()
        if content is not None and type(content) is not bytes:
            content = plain_bytes(content)
        parts += (write_varint(len(encoded)), encoded)
        parts += (_NULL,) if content is None else (write_varint(len(content)), content)
    return b"".join(parts)


class BatchBuilder:
    """Builder of one batch of at most `limit_bytes` (before compression, with the header)."""

    ATOMIC = False
    """Whether threads may call `append` and `close` at the same time without a lock."""

    __slots__ = (
        "_base_time",
        "_buffer",
        "_built",
        "_closed",
        "_codec",
        "_count",
        "_ids",
        "_latest",
        "_level",
        "_limit",
        "_size",
    )

    def __init__(self, limit_bytes: int, compression: str | None, level: int | None = None) -> None:
        self._codec = codec_number(compression, level)
        self._level = level
        self._limit = limit_bytes
        self._buffer = bytearray(b.HEADER_SIZE)
        self._count = 0
        self._base_time = self._latest = -1
        self._closed = False
        self._built: bytearray | None = None
        self._ids: tuple[int, int, int, bool] | None = None
        self._size = 0  # estimated size; kept after `release`

    @property
    def count(self) -> int:
        """Number of records that were appended."""
        return self._count

    @property
    def estimated_size(self) -> int:
        """Size of the batch in bytes, before compression, with the header."""
        return len(self._buffer) or self._size

    @property
    def limit_bytes(self) -> int:
        """Maximum `estimated_size`; only a batch with a single record may exceed it.

        The accumulator raises the limit step by step, as it reserves memory.
        """
        return self._limit

    @limit_bytes.setter
    def limit_bytes(self, limit: int) -> None:
        self._limit = limit

    @property
    def closed(self) -> bool:
        """Whether `append` refuses further records."""
        return self._closed

    @property
    def max_timestamp_ms(self) -> int:
        """The latest timestamp of the records; -1 without records."""
        return self._latest

    def append(
        self, key: bytes | None, value: bytes | None, headers: HeaderInput, timestamp_ms: int
    ) -> int | None:
        """Add a record and return its index in the batch, or None if it doesn't fit.

        The first record always fits, so that a record above the limit has its own batch.
        """
        if self._closed:
            return None
        if type(timestamp_ms) is not int:
            timestamp_ms = whole_time(timestamp_ms)
        if not -1 <= timestamp_ms <= b.INT64_MAX:
            raise ValueError(f"timestamp_ms is {timestamp_ms}, not 0 to 2^63-1 (or -1 for none)")
        index = self._count
        delta = timestamp_ms - self._base_time if index else 0
        if delta > b.INT64_MAX:
            # Only the difference between -1 (no time) and the largest time exceeds 64 bits.
            return None
        if key is not None and type(key) is not bytes:
            key = plain_bytes(key)
        if value is not None and type(value) is not bytes:
            value = plain_bytes(value)
        key_size = len(key) if key is not None else -1
        value_size = len(value) if value is not None else -1
        record = b"".join(
            (
                b"\0",
                _SHORT[delta] if 0 <= delta < _SHORT_END else write_varint(delta),
                _SHORT[index] if index < _SHORT_END else write_varint(index),
                _SHORT[key_size] if 0 <= key_size < _SHORT_END else write_varint(key_size),
                b"" if key is None else key,
                _SHORT[value_size] if 0 <= value_size < _SHORT_END else write_varint(value_size),
                b"" if value is None else value,
                _encode_headers(headers) if headers else b"\0",
            )
        )
        size = len(record)
        prefix = _SHORT[size] if size < _SHORT_END else write_varint(size)
        buffer = self._buffer
        if index and len(buffer) + len(prefix) + size > self._limit:
            return None
        buffer += prefix
        buffer += record
        if not index:
            self._base_time = self._latest = timestamp_ms
        elif timestamp_ms > self._latest:
            self._latest = timestamp_ms
        self._count = index + 1
        return index

    def close(self) -> None:
        """Refuse further records; `build` closes the batch, too."""
        self._closed = True

    def release(self) -> None:
        """Free the records, because the batch has an outcome; count and sizes remain available.

        A view that `build` returned remains valid, because it may still be in a send queue.
        """
        self._closed = True
        self._size = len(self._buffer)
        self._buffer = bytearray()
        self._built = None

    def build(
        self,
        *,
        producer_id: int = b.NO_PRODUCER_ID,
        producer_epoch: int = b.NO_PRODUCER_EPOCH,
        base_sequence: int = b.NO_SEQUENCE,
        transactional: bool = False,
    ) -> memoryview:
        """Return the finished batch; it is compressed once, and has the given ids in its header.

        If it is called again with other ids (a bumped epoch), header and checksum are written to a
        copy, because the earlier view may still be in a connection's send queue.
        """
        if not self._count or self._size:
            raise IllegalStateError("a batch without records can't be built")
        self._closed = True
        ids = (producer_id, producer_epoch, base_sequence, transactional)
        if self._built is not None and self._ids == ids:
            return memoryview(self._built).toreadonly()
        if self._built is not None:
            batch = bytearray(self._built)
        elif self._codec:
            with memoryview(self._buffer) as everything, everything[b.HEADER_SIZE :] as records:
                packed = compress(self._codec, self._level, records)
            batch = bytearray(b.HEADER_SIZE) + packed
        else:
            batch = self._buffer
        if self._codec and len(batch) >= len(self._buffer):
            # Data that doesn't shrink is sent uncompressed, so a batch never exceeds its estimated
            # size.
            self._codec, batch = 0, self._buffer
        b.seal(
            batch,
            attributes=self._codec + (b.TRANSACTIONAL if transactional else 0),
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_time,
            max_timestamp=self._latest,
            count=self._count,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        self._built, self._ids = batch, ids
        return memoryview(batch).toreadonly()
