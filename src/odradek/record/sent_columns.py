"""Define columns to send, as buffers in Arrow's layout, and results of `ColumnEncoder`.

In: buffers of any library with an Arrow interface, which may have slices, nulls and 32-bit or
64-bit offsets. Out: these buffers, with names. The buffers aren't checked here, and may be invalid:
the encoder compares each number with the size of the buffer to which it refers.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import Any, NamedTuple

from odradek.common.errors import KafkaError
from odradek.record.columns import ByteBuffer


class InvalidRowError(KafkaError, ValueError):
    """Columns can't be converted to records; `row` is the first invalid row, None if all are."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row


class SentBinary(NamedTuple):
    """Byte strings: row i is `data[offsets[start + i]:offsets[start + i + 1]]`."""

    offsets: ByteBuffer
    """Positions as int32, or int64 if `wide` is set, in the machine's byte order."""
    data: ByteBuffer
    validity: ByteBuffer | None = None
    """Bitmap, lowest bit first: bit `start + i` is 0 if row i is null; None if no row is null."""
    start: int = 0
    """Position of row 0 in the buffers (Arrow's `offset` of the array)."""
    wide: bool = False


class SentNumbers(NamedTuple):
    """Nullable integers: row i is `data[start + i]`."""

    data: ByteBuffer
    """int32 for partitions, int64 for timestamps, in the machine's byte order."""
    validity: ByteBuffer | None = None
    start: int = 0


class SentHeaders(NamedTuple):
    """Lists of headers: row i has headers `offsets[start + i]` to `offsets[start + i + 1]`."""

    offsets: ByteBuffer
    """Positions as int32, or int64 if `wide` is set."""
    keys: SentBinary
    """Names of headers in UTF-8, none of them null; header 0 is at `keys.start`."""
    values: SentBinary
    entries: int
    """Number of headers, in `keys` and in `values`."""
    validity: ByteBuffer | None = None
    """As in `SentBinary`; a null list means an empty list."""
    start: int = 0
    wide: bool = False


class SentColumns(NamedTuple):
    """`count` rows of columns; the buffers must not change while an encoder reads them."""

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    values: SentBinary | None
    """The records' values; None if every value is null."""
    keys: SentBinary | None = None
    headers: SentHeaders | None = None
    partitions: SentNumbers | None = None
    """int32; the partitioner chooses the partition of a row with a null."""
    timestamps_ms: SentNumbers | None = None
    """Milliseconds as int64; a null means the time that is passed to `encode`."""
    first_row: int = 0
    """Number of row 0 in error messages, because a table is passed in several parts."""

    def __repr__(self) -> str:
        return f"<SentColumns: {self.count} rows>"  # without buffers, which may be large


def only_bytes(items: list[Any], first: int, last: int) -> bool:
    """Return whether the items from `first` up to `last` are all bytes or None."""
    return {bytes, type(None)}.issuperset(map(type, items[first:last]))


def gather(
    items: list[Any], first: int, last: int, most: int
) -> tuple[int, SentBinary | None] | None:
    """Return a column of items from `first` on, up to `last` or a total size of `most` bytes.

    Returns the number of items, at least one, and the column, which is None if all items are None.
    Returns None if some item is neither bytes nor None.
    """
    ends, total = array("q", [0]), 0
    for item in items[first:last]:
        if item is not None and type(item) is not bytes:
            return None
        size = 0 if item is None else len(item)
        if len(ends) > 1 and total + size > most:
            break
        total += size
        ends.append(total)
    count = len(ends) - 1
    found = items[first : first + count]
    there = [item for item in found if item is not None]
    if not there:
        return count, None
    bits = None
    if len(there) < count:
        text = "".join("0" if item is None else "1" for item in reversed(found))
        bits = int(text, 2).to_bytes((count + 7) // 8, "little")
    return count, SentBinary(ends.tobytes(), b"".join(there), bits, wide=True)


class StopReason(IntEnum):
    """Reason why `ColumnEncoder.encode` has returned."""

    DONE = 0
    """All rows up to `stop` were written to batches."""
    BATCH = 1
    """The row isn't written, because its partition has no batch, or one that can't be continued.

    A batch can't be continued if it is closed or full, or if other code has appended records
    meanwhile. The caller must set a batch with `use` (in the last case, that batch again).
    """
    FULL = 2
    """The previous row was written, and the batch of `partition` has reached its limit with it."""
    ROOM = 3
    """The row isn't written, because it has more bytes (`size`) than are left of `room`."""
    STICKY = 4
    """The row, without a key, isn't written, as `sticky_room` bytes were written without a key."""


class Encoded(NamedTuple):
    """Result of one call of `encode`."""

    row: int
    """The row with which to continue."""
    reason: StopReason
    partition: int
    """The partition to which BATCH and FULL refer; -1 for other reasons."""
    size: int
    """For BATCH and ROOM: maximum size of the row that isn't written; 0 for other reasons."""
    added_bytes: int
    """Number of bytes that this call added to batches, without batch headers."""
    sticky_bytes: int
    """Number of bytes added to the sticky partition, because their rows have no key."""


class Piece(NamedTuple):
    """Consecutive records of one batch that an encoder has written."""

    partition: int
    first: int
    """Index of the first of these records in the batch."""
    count: int  # type: ignore[assignment]  # tuples have a method of this name
