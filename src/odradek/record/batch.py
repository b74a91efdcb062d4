"""Read, check and write the header of a record batch, with its checksum.

In: bytes of a Fetch response, or a buffer with 61 free bytes before the records. Out: a
`BatchHeader`, or a complete batch. Headers of messages of the formats 0 and 1 are read, too: topics
may have such messages from before Kafka 0.11. All decoders and encoders of this package use this
module. Must not: read records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from odradek.common.errors import CorruptRecordError

HEADER_SIZE = 61
"""Size of the header, after which the first record begins."""
LENGTH_END = 12
"""Size of the fields base offset and length, which the value of the length doesn't include."""
CRC_START = 21
"""Position from which the checksum covers the batch, so that brokers may change earlier fields."""
MAGIC = 2
MAGIC_AT = 16
"""Position of the byte with the number of the format; it is the same in all formats."""
MESSAGE_CRC_START = 16
"""Position from which the checksum (CRC-32) of a message of format 0 or 1 covers the message."""
SMALLEST_MESSAGES = (26, 34)
"""Sizes of a message without key and value, in format 0 and in format 1."""
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_LEADER_EPOCH = -1, -1, -1, -1
INT64_MAX = (1 << 63) - 1

_LAYOUT = struct.Struct(">qiibIhiqqqhii")
_CHECKED = struct.Struct(">hiqqqhii")
_PREFIX = struct.Struct(">qi")
_MESSAGE = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_CRC_CHUNK = 1 << 18
_compiled_crc32c: Callable[[bytes | bytearray | memoryview], int] | None = None


class BatchHeader(NamedTuple):
    """The fields of one batch header, with the values that they have in the log.

    A message of format 0 or 1 is represented as a batch with the message's offset, and its
    timestamp as base and maximum. A compressed message contains messages, and its offset is that of
    the last one.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # tuples have a method of this name

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, with the header."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers, even if compaction has removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The number of the compression codec."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the records' timestamp is the time of the append (`max_timestamp`)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the batch contains a marker that a broker wrote, and no records of users."""
        return bool(self.attributes & CONTROL)


class BadBatchError(ValueError):
    """Internal error for an invalid batch, without the batch's offset.

    The decoder adds the offset, and raises `CorruptRecordError`.
    """


def corrupt(base_offset: int, reason: str) -> CorruptRecordError:
    """Return an error with the batch's position and the reason."""
    return CorruptRecordError(f"record batch at offset {base_offset}: {reason}")


def batch_size(buffer: memoryview, at: int) -> int | None:
    """Return the size that the batch at `at` claims; None if the size field is incomplete.

    The size may exceed the remaining bytes: brokers cut the last batch of a response.
    """
    if len(buffer) - at < LENGTH_END:
        return None
    base_offset, length = _PREFIX.unpack_from(buffer, at)
    if length + LENGTH_END < SMALLEST_MESSAGES[0]:
        raise corrupt(
            base_offset, f"its length field contains {length}, less than the minimum of a batch"
        )
    return int(length) + LENGTH_END


def read_header(buffer: memoryview, at: int = 0) -> BatchHeader:
    """Read and check the header of a complete batch, without the checksum.

    The magic byte is checked first, because each format has a different layout.
    """
    size = batch_size(buffer, at)
    (base_offset,) = struct.unpack_from(">q", buffer, at)
    magic = buffer[at + MAGIC_AT]
    if magic < MAGIC:
        return _read_message_header(buffer, at)
    if magic != MAGIC:
        raise corrupt(
            base_offset, f"its format (magic) is {magic}, but only 0, 1 and 2 are supported"
        )
    if size is None or size < HEADER_SIZE:
        raise corrupt(
            base_offset, f"its length field contains {size}, less than the size of a header"
        )
    header = BatchHeader._make(_LAYOUT.unpack_from(buffer, at))
    if base_offset < 0:
        raise corrupt(base_offset, "its offset is negative")
    if header.last_offset_delta < 0:
        raise corrupt(base_offset, f"its last offset delta is {header.last_offset_delta}")
    if header.last_offset >= INT64_MAX:
        raise corrupt(base_offset, "its last offset exceeds 64 bits")
    if not 0 <= header.count <= header.last_offset_delta + 1:
        raise corrupt(
            base_offset,
            f"its record count is {header.count}, "
            f"but it has {header.last_offset_delta + 1} offsets",
        )
    return header


def _read_message_header(buffer: memoryview, at: int) -> BatchHeader:
    """Read and check the header of a complete message of format 0 or 1."""
    offset, length, crc, magic, attributes = _MESSAGE.unpack_from(buffer, at)
    if length + LENGTH_END < SMALLEST_MESSAGES[magic]:
        raise corrupt(
            offset, f"its length field contains {length}, less than the minimum of format {magic}"
        )
    if not 0 <= offset < INT64_MAX:
        raise corrupt(offset, "its offset is negative or exceeds 64 bits")
    time, flags = -1, CODEC_MASK
    if magic:
        (time,), flags = _TIMESTAMP.unpack_from(buffer, at + _MESSAGE.size), flags | LOG_APPEND_TIME
    ids = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    checked = attributes & flags, 0, time, time, *ids, 1
    return BatchHeader(offset, length, NO_LEADER_EPOCH, magic, crc, *checked)


def behind(buffer: memoryview, at: int = 0) -> int | None:
    """Return the offset at which reading can continue after an unreadable batch; None if unknown.

    If the checksum is wrong, the batch's last offset may be wrong, too, and reading would skip
    millions of good records. So the offset is taken from the header of the next batch. If there is
    no next batch, the number of records must agree with the offsets. A message of format 0 or 1
    ends at its own offset, whatever else is wrong with it.
    """
    if len(buffer) - at >= HEADER_SIZE:
        base, length, _, magic, crc, *_ = fields = _LAYOUT.unpack_from(buffer, at)
        size, delta, count = length + LENGTH_END, fields[6], fields[12]
        stop = base + delta + 1
        whole = base >= 0 and HEADER_SIZE <= size <= len(buffer) - at
        sound = whole and delta >= 0 and stop <= INT64_MAX
        # The checksum doesn't cover the magic byte, which may be wrong.
        if sound and crc32c(buffer[at + CRC_START : at + size]) == crc:
            return int(stop)
        if whole and magic == MAGIC:
            if len(buffer) - at - size < LENGTH_END:
                return int(stop) if sound and count == delta + 1 else None
            (following,) = struct.unpack_from(">q", buffer, at + size)
            return int(following) if following > base else None
    if len(buffer) - at >= SMALLEST_MESSAGES[0] and buffer[at + MAGIC_AT] < MAGIC:
        (offset,) = struct.unpack_from(">q", buffer, at)
        return int(offset) + 1 if 0 <= offset < INT64_MAX else None
    return None


def message_crc(message: bytes) -> int:
    """Compute the checksum of a complete message of format 0 or 1."""
    return zlib.crc32(message[MESSAGE_CRC_START:])


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute the checksum of any buffer with the kernel, or with `google_crc32c` without one.

    The library has no wheels for musl and 3.14t. There, without a C compiler, pip installs the
    library's plain Python version, which takes a second for a megabyte and warns when it is
    imported. The library only takes `bytes`; other buffers are copied in parts.
    """
    if _compiled_crc32c is not None:
        return _compiled_crc32c(data)
    import google_crc32c

    if isinstance(data, bytes):
        return int(google_crc32c.value(data))
    view = memoryview(data)
    crc = 0
    for at in range(0, len(view), _CRC_CHUNK):
        crc = google_crc32c.extend(crc, view[at : at + _CRC_CHUNK].tobytes())
    return crc


def check_by(compiled: Callable[[bytes | bytearray | memoryview], int]) -> None:
    """Let `crc32c` use this function of the kernel, which this module can't import itself."""
    global _compiled_crc32c
    _compiled_crc32c = compiled


def seal(
    buffer: bytearray,
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> None:
    """Write the header into the first 61 bytes of `buffer`, after the records were written."""
    times = (base_timestamp, max_timestamp)
    ids = (producer_id, producer_epoch, base_sequence)
    checked = (attributes, last_offset_delta, *times, *ids, count)
    _CHECKED.pack_into(buffer, CRC_START, *checked)
    crc = crc32c(memoryview(buffer)[CRC_START:])
    length = len(buffer) - LENGTH_END
    _LAYOUT.pack_into(buffer, 0, base_offset, length, leader_epoch, MAGIC, crc, *checked)
