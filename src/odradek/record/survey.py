"""Read the headers of a response's batches, before any record is decoded.

In: the records of one partition. Out: the offset that follows them, so that the next Fetch request
can be sent at once. This is the plain Python version of `kernel.survey_batches`. Must not: read
records, or raise errors, which the decoder does.
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

These are the offset of the next Fetch request; the size of all complete batches; the size of the
first batch if the response was cut within it; whether a header is invalid (so that later headers
are unknown); and a pair (first offset, leader epoch) for each change of the epoch.
"""

_PREFIX = struct.Struct(">qi")
_HEAD = struct.Struct(">qiibIhi")  # fields up to the last offset delta


def survey_batches(records: memoryview, offset: int) -> Survey:
    """Read the batch headers of a Fetch response to a request from `offset` on."""
    at, end = 0, len(records)
    needed: int | None = None
    odd = False
    epochs: list[tuple[int, int]] = []
    while (left := end - at) >= LENGTH_END:
        base, length = _PREFIX.unpack_from(records, at)
        size = length + LENGTH_END
        # If the response ends before the format's number, the shortest format is assumed.
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
