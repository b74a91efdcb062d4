"""Columns on their way out: Arrow's buffers as `ColumnEncoder` takes them, and what it answers.

In: buffers of any library that speaks Arrow, as they are: with slices, nulls and 32 or 64-bit
offsets. Out: the same, named. Nothing is checked here, and nothing here may be trusted: the
encoder compares each number with the buffer that it points into.
"""

from __future__ import annotations

from array import array
from enum import IntEnum
from typing import Any, NamedTuple

from odradek.common.errors import KafkaError
from odradek.record.columns import ByteBuffer


class InvalidRowError(KafkaError, ValueError):
    """Columns that can't become records; `row` is the first row that can't, None for all."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.row = row


class SentBinary(NamedTuple):
    """Byte strings: row i is `data[offsets[start + i]:offsets[start + i + 1]]`."""

    offsets: ByteBuffer
    """int32, or int64 where `wide`, in the machine's byte order."""
    data: ByteBuffer
    validity: ByteBuffer | None = None
    """Bit `start + i`, lowest first, is 0 where row i is null; None: no row is."""
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
    """int32, or int64 where `wide`."""
    keys: SentBinary
    """UTF-8 names, none null; entry 0 is at `keys.start`."""
    values: SentBinary
    entries: int
    """How many entries `keys` and `values` have."""
    validity: ByteBuffer | None = None
    """A null list is an empty one."""
    start: int = 0
    wide: bool = False


class SentColumns(NamedTuple):
    """`count` rows. The buffers must stay as they are while an encoder reads them."""

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    values: SentBinary | None
    """None: every value is null."""
    keys: SentBinary | None = None
    headers: SentHeaders | None = None
    partitions: SentNumbers | None = None
    """int32; a null lets the key decide."""
    timestamps_ms: SentNumbers | None = None
    """int64; a null means the time that `encode` is given."""
    first_row: int = 0
    """Number of row 0 in errors: a table comes in pieces."""

    def __repr__(self) -> str:
        return f"<SentColumns: {self.count} rows>"  # the buffers may hold megabytes


def only_bytes(items: list[Any], first: int, last: int) -> bool:
    """Whether the items from `first` on, up to `last`, are bytes or None."""
    return {bytes, type(None)}.issuperset(map(type, items[first:last]))


def gather(
    items: list[Any], first: int, last: int, most: int
) -> tuple[int, SentBinary | None] | None:
    """Return a column of the items from `first` on, up to `last` or a total of `most` bytes.

    Returns their number, at least one, and the column, None if all are None. Returns None for a
    list with items other than bytes and None.
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
    """Why `ColumnEncoder.encode` came back."""

    DONE = 0
    """All rows up to `stop` are in batches."""
    BATCH = 1
    """The row isn't written: its partition needs a batch.

    It has none, or one that is closed, full, or took others' records meanwhile. Set it with `use`
    (in the last case the same again).
    """
    FULL = 2
    """The row before is in, and with it the batch of `partition` has reached its limit."""
    ROOM = 3
    """The row isn't in: `size` bytes are more than what is left of `room`."""
    STICKY = 4
    """The row isn't in: it has no key, and the sticky partition has had its bytes."""


class Encoded(NamedTuple):
    """How far one call of `encode` came."""

    row: int
    """The row to continue with."""
    reason: StopReason
    partition: int
    """Which partition BATCH and FULL speak of, else -1."""
    size: int
    """For BATCH and ROOM: an upper bound of the bytes of the row that isn't in, else 0."""
    added_bytes: int
    """Bytes put into batches by this call, their headers not counted."""
    sticky_bytes: int
    """How many of them went to the sticky partition for want of a key."""


class Piece(NamedTuple):
    """A run of an encoder's rows within one batch."""

    partition: int
    first: int
    """Index in the batch of the first one."""
    count: int  # type: ignore[assignment]  # tuples have a method of this name
