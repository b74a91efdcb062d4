"""Read the headers of a response's batches, before anything is decoded.

In: the records of one partition. Out: the offset after them, so that the next Fetch request can be
sent at once. The plain version of `kernel.survey_batches`. Must not look at records, or raise; the
decoder raises the errors.
"""

from __future__ import annotations

import struct

from odradek.record.batch import HEADER_SIZE, INT64_MAX, LENGTH_END, MAGIC

Survey = tuple[int, int, int | None, bool, list[tuple[int, int]]]
"""The next offset; the bytes of whole batches; the size of the first batch if the response was cut
within it; whether a header is invalid (the decoder raises the error, and later headers are
unknown); and a pair of first offset and leader epoch for each change of the epoch."""

_HEAD = struct.Struct(">qiibIhi")  # up to the last offset delta


def survey_batches(records: memoryview, offset: int) -> Survey:
    """Read the headers of a Fetch response that begins at `offset`."""
    at, end = 0, len(records)
    needed: int | None = None
    odd = False
    epochs: list[tuple[int, int]] = []
    while end - at >= LENGTH_END:
        if end - at < _HEAD.size:
            size = int.from_bytes(records[at + 8 : at + 12], "big", signed=True) + LENGTH_END
            odd = size < HEADER_SIZE
            needed = size if at == 0 and not odd else None
            break
        base, length, epoch, magic, _, _, delta = _HEAD.unpack_from(records, at)
        size = length + LENGTH_END
        if size < HEADER_SIZE or magic != MAGIC or base < 0 or not 0 <= delta < INT64_MAX - base:
            odd = True
            break
        if size > end - at:
            needed = size if at == 0 else None
            break
        at += size
        offset = max(offset, base + delta + 1)
        if not epochs or epochs[-1][1] != epoch:
            epochs.append((base, epoch))
    return offset, at, needed, odd, epochs
