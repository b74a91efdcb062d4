"""Define columns to send: Arrow's buffers as `ColumnEncoder` takes them, and its results.

In: unchanged buffers of any library with an Arrow interface: with slices, nulls and 32 or 64-bit
offsets. Out: the same buffers, with names. Nothing is checked here, and nothing may be trusted: the
encoder compares each number with the size of the buffer that it refers to.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import Any, NamedTuple

from odradek.common.errors import KafkaError
from odradek.record.columns import ByteBuffer


class InvalidRowError(KafkaError, ValueError):
    """Columns can't become records; `row` is the first invalid row, None if all are invalid."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row


class SentBinary(NamedTuple):
    """Byte strings: row i is `data[offsets[start + i]:offsets[start + i + 1]]`."""

    offsets: ByteBuffer
    """int32, or int64 if `wide` is set, in the machine's byte order."""
    data: ByteBuffer
    validity: ByteBuffer | None = None
    """Bit `start + i`, lowest first, is 0 if row i is null; None if no row is null."""
    start: int = 0
    """Arrow's offset of the array in its buffers."""
    wide: bool = False


class SentNumbers(NamedTuple):
    """Integers: row i is `data[start + i]`."""

    data: ByteBuffer
    """int32 for partitions, int64 for timestamps, in the machine's byte order."""
    validity: ByteBuffer | None = None
    start: int = 0


class SentHeaders(NamedTuple):
    """Header lists: row i has entries `offsets[start + i]` to `offsets[start + i + 1]`."""

    offsets: ByteBuffer
    """int32, or int64 if `wide` is set."""
    keys: SentBinary
    """UTF-8 names, none null; entry 0 is at `keys.start`."""
    values: SentBinary
    entries: int
    """Number of entries in `keys` and `values`."""
    validity: ByteBuffer | None = None
    """A null list means an empty one."""
    start: int = 0
    wide: bool = False


class SentColumns(NamedTuple):
    """`count` rows. The buffers must not change while an encoder reads them."""

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    values: SentBinary | None
    """None: every value is null."""
    keys: SentBinary | None = None
    headers: SentHeaders | None = None
    partitions: SentNumbers | None = None
    """int32; for a null, the partitioner chooses."""
    timestamps_ms: SentNumbers | None = None
    """int64; a null means the time that is passed to `encode`."""
    first_row: int = 0
    """Number of row 0 in error messages, because a table is passed in pieces."""

    def __repr__(self) -> str:
        return f"<SentColumns: {self.count} rows>"  # the buffers may hold megabytes


def only_bytes(items: list[Any], first: int, last: int) -> bool:
    """Return whether the items from `first` up to `last` are all bytes or None."""
    return {bytes, type(None)}.issuperset(map(type, items[first:last]))


def gather(
    items: list[Any], first: int, last: int, most: int
) -> tuple[int, SentBinary | None] | None:
    """Return a column of the items from `first` on, up to `last` or a total of `most` bytes.

    Returns their number, at least one, and the column, which is None if all are None. Returns None
    for a list with items other than bytes and None.
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
    """Why `ColumnEncoder.encode` returned."""

    DONE = 0
    """All rows up to `stop` are in batches."""
    BATCH = 1
    """The row isn't written: its partition needs a batch.

    It has none, or its batch is closed, full, or has got records of others in the meantime. Set a
    batch with `use` (in the last case the same one again).
    """
    FULL = 2
    """The row before was written, and with it the batch of `partition` has reached its limit."""
    ROOM = 3
    """The row isn't written: its `size` bytes are more than the rest of `room`."""
    STICKY = 4
    """The row isn't written: it has no key, and the sticky partition has got `sticky_room`
    bytes."""


class Encoded(NamedTuple):
    """Result of one call of `encode`."""

    row: int
    """The row to continue with."""
    reason: StopReason
    partition: int
    """The partition that BATCH and FULL refer to, else -1."""
    size: int
    """For BATCH and ROOM: an upper bound of the size of the row that isn't written, else 0."""
    added_bytes: int
    """Bytes that this call added to batches, without their headers."""
    sticky_bytes: int
    """Bytes that went to the sticky partition because their rows have no key."""


class Piece(NamedTuple):
    """A run of an encoder's rows within one batch."""

    partition: int
    first: int
    """Index in the batch of the first one."""
    count: int  # type: ignore[assignment]  # tuples have a method of this name
