"""Read the headers of a response's batches, before any record is decoded.

In: the records of one partition. Out: the offset after them, so that the next Fetch request can be
sent at once. The plain version of `kernel.survey_batches`. Must not look at records, or raise; the
decoder raises the errors.
"""

from __future__ import annotations

import struct

from odradek.record.batch import (
    HEADER_SIZE,
    INT64_MAX,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    SMALLEST_MESSAGES,
)

Survey = tuple[int, int, int | None, bool, list[tuple[int, int]]]
"""Summary of the headers: next offset, bytes, needed size, invalid, epochs.

The offset of the next Fetch; the bytes of complete batches; the size of the first batch if the
response was cut within it; whether a header is invalid (the decoder raises the error, and later
headers are unknown); and a pair of first offset and leader epoch for each change of the epoch.
"""

_PREFIX = struct.Struct(">qi")
_HEAD = struct.Struct(">qiibIhi")  # up to the last offset delta


def survey_batches(records: memoryview, offset: int) -> Survey:
    """Read the headers of a Fetch response that begins at `offset`."""
    at, end = 0, len(records)
    needed: int | None = None
    odd = False
    epochs: list[tuple[int, int]] = []
    while (left := end - at) >= LENGTH_END:
        base, length = _PREFIX.unpack_from(records, at)
        size = length + LENGTH_END
        # The next bytes of a format that isn't known yet may be those of the shortest message.
        magic = records[at + MAGIC_AT] if left > MAGIC_AT else 0
        if size < (SMALLEST_MESSAGES[magic] if magic < MAGIC else HEADER_SIZE):
            odd = True
            break
        if left < _HEAD.size and size > left:
            needed = size if at == 0 else None
            break
        epoch, delta = NO_LEADER_EPOCH, 0
        if magic >= MAGIC:
            _, _, epoch, _, _, _, delta = _HEAD.unpack_from(records, at)
        if magic > MAGIC or base < 0 or not 0 <= delta < INT64_MAX - base:
            odd = True
            break
        if size > left:
            needed = size if at == 0 else None
            break
        at += size
        offset = max(offset, base + delta + 1)
        if not epochs or epochs[-1][1] != epoch:
            epochs.append((base, epoch))
    return offset, at, needed, odd, epochs
