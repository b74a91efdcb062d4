"""Encode columns into open batches, in short and simple Python code.

In: `SentColumns` and one open `BatchBuilder` per partition. Out: the rows in these batches, in
order. Tests compare the kernel's fast encoder with this encoder, which is used if no kernel is
built. The caller must hold the lock of the batches during `use` and `encode`. Must not: open, close
or complete batches, wait, or know topics.
"""

from __future__ import annotations

from array import array

from odradek.common.errors import ConfigurationError, RecordTooLargeError
from odradek.record import batch as b
from odradek.record.builder import BatchBuilder
from odradek.record.columns import ByteBuffer, Headers
from odradek.record.key_hash import partition_for_key
from odradek.record.sent_columns import (
    Encoded,
    InvalidRowError,
    Piece,
    SentBinary,
    SentColumns,
    SentHeaders,
    SentNumbers,
    StopReason,
)

RECORD_OVERHEAD = 36
"""Maximum number of bytes that a record adds to its key, value and headers
(`estimate_record_size`)."""
HEADER_OVERHEAD = 10
RECORD_LIMIT = (1 << 31) - 1 - b.HEADER_SIZE
"""Maximum size of a batch's records in bytes, because its length is a 32-bit number."""


class _Slot:
    """The batch of a partition, and which of its records this encoder has written."""

    __slots__ = ("builder", "count", "first")

    def __init__(self, builder: BatchBuilder) -> None:
        self.builder = builder
        self.first = 0
        self.count = 0


class _Integers:
    """Integers in a buffer, which may be too short or not aligned."""

    def __init__(self, name: str, buffer: ByteBuffer, wide: bool, start: int, need: int) -> None:
        width = 8 if wide else 4
        view = memoryview(buffer).cast("B")
        if start < 0 or (start + need) * width > len(view):
            raise InvalidRowError(
                f"column {name}: its buffer of {len(view)} bytes is too short for {need} numbers "
                f"from {start} on"
            )
        self._numbers = view[start * width : (start + need) * width].cast("q" if wide else "i")

    def __getitem__(self, i: int) -> int:
        return int(self._numbers[i])


class _Validity:
    """Arrow's validity bitmap of a column."""

    def __init__(self, name: str, buffer: ByteBuffer | None, start: int, count: int) -> None:
        self._bits = None if buffer is None else memoryview(buffer).cast("B")
        self._start = start
        if self._bits is not None and (start < 0 or (start + count + 7) // 8 > len(self._bits)):
            raise InvalidRowError(f"column {name}: its validity bitmap is too short")

    def __getitem__(self, i: int) -> bool:
        at = self._start + i
        return self._bits is None or bool(self._bits[at >> 3] >> (at & 7) & 1)


class _Binary:
    """A column of byte strings; raises an error for offsets outside of the data."""

    def __init__(self, name: str, column: SentBinary, count: int) -> None:
        self._name = name
        need = count + 1 if count else 0
        self._offsets = _Integers(name, column.offsets, column.wide, column.start, need)
        self._valid = _Validity(name, column.validity, column.start, count)
        self._data = memoryview(column.data).cast("B")

    def get(self, i: int, row: int) -> bytes | None:
        """Return entry `i`; an error names the row `row`."""
        if not self._valid[i]:
            return None
        first, last = self._offsets[i], self._offsets[i + 1]
        if not 0 <= first <= last <= len(self._data):
            raise InvalidRowError(
                f"column {self._name}: its offsets {first} and {last} don't lie in "
                f"{len(self._data)} bytes of data",
                row,
            )
        return self._data[first:last].tobytes()


class _Numbers:
    """A column of nullable integers."""

    def __init__(self, name: str, column: SentNumbers, wide: bool, count: int) -> None:
        self._numbers = _Integers(name, column.data, wide, column.start, count)
        self._valid = _Validity(name, column.validity, column.start, count)

    def get(self, i: int) -> int | None:
        """Return the integer of row `i`; None for a null."""
        return self._numbers[i] if self._valid[i] else None


class _Headers:
    """A column of header lists."""

    def __init__(self, column: SentHeaders, count: int) -> None:
        if column.entries < 0:
            raise InvalidRowError(f"column headers: the number of entries is {column.entries}")
        need = count + 1 if count else 0
        self._offsets = _Integers("headers", column.offsets, column.wide, column.start, need)
        self._valid = _Validity("headers", column.validity, column.start, count)
        self._entries = column.entries
        self._keys = _Binary("headers.key", column.keys, column.entries)
        self._values = _Binary("headers.value", column.values, column.entries)

    def get(self, i: int, row: int) -> tuple[Headers, int]:
        """Return the headers of row `i`, and the maximum number of bytes that they take."""
        if not self._valid[i]:
            return (), 0
        first, last = self._offsets[i], self._offsets[i + 1]
        if not 0 <= first <= last <= self._entries:
            raise InvalidRowError(
                f"column headers: its offsets {first} and {last} don't lie in "
                f"{self._entries} entries",
                row,
            )
        found = []
        size = HEADER_OVERHEAD * (last - first)
        for at in range(first, last):
            name, value = self._keys.get(at, row), self._values.get(at, row)
            if name is None:
                raise InvalidRowError("a header has no key", row)
            size += len(name) + (0 if value is None else len(value))
            try:
                found.append((name.decode(), value))
            except UnicodeDecodeError:
                raise InvalidRowError("the key of a header isn't UTF-8", row) from None
        return tuple(found), size


class Rows:
    """Reader of rows, which checks each row; it also raises the errors for the fast encoder."""

    def __init__(self, columns: SentColumns, partition_count: int, max_record_bytes: int) -> None:
        if partition_count < 1:
            raise ConfigurationError(f"a topic can't have {partition_count} partitions")
        count = columns.count
        if count < 0:
            raise InvalidRowError(f"the number of rows is {count}")
        self._partition_count = partition_count
        self._limit = min(max_record_bytes, RECORD_LIMIT)
        self._first_row = columns.first_row
        c = columns
        self._keys = None if c.keys is None else _Binary("key", c.keys, count)
        self._values = None if c.values is None else _Binary("value", c.values, count)
        self._headers = None if c.headers is None else _Headers(c.headers, count)
        numbers = c.partitions
        self._partitions = None if numbers is None else _Numbers("partition", numbers, False, count)
        numbers = c.timestamps_ms
        self._timestamps = None if numbers is None else _Numbers("timestamp", numbers, True, count)

    def get(
        self, i: int
    ) -> tuple[bytes | None, bytes | None, Headers, int | None, int | None, int]:
        """Return the parts of row `i`: key, value, headers, partition, timestamp, maximum size."""
        name = self._first_row + i
        key = None if self._keys is None else self._keys.get(i, name)
        value = None if self._values is None else self._values.get(i, name)
        headers, size = ((), 0) if self._headers is None else self._headers.get(i, name)
        size += RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if size > self._limit:
            raise RecordTooLargeError(
                f"row {name}: a record of up to {size} bytes is above max.request.size "
                f"({self._limit})"
            )
        partition = None if self._partitions is None else self._partitions.get(i)
        if partition is not None and not 0 <= partition < self._partition_count:
            raise InvalidRowError(
                f"the topic has partitions 0 to {self._partition_count - 1}, not {partition}", name
            )
        timestamp = None if self._timestamps is None else self._timestamps.get(i)
        if timestamp is not None and timestamp < -1:
            raise InvalidRowError(
                f"its timestamp is {timestamp} ms, not 0 to 2^63-1 (or -1 for none)", name
            )
        return key, value, headers, partition, timestamp, size


class ColumnEncoder:
    """Encoder of `columns`, which appends the rows to batches in order, one batch per partition.

    The constructor checks all rows, so that no row is sent if one is invalid: offsets outside of
    the data, partitions that the topic doesn't have, times before -1 ms, headers without a key
    (`InvalidRowError`), or records above `max_record_bytes` (`RecordTooLargeError`).
    """

    def __init__(
        self,
        columns: SentColumns,
        partition_count: int,
        max_record_bytes: int,
        *,
        ignore_keys: bool = False,
    ) -> None:
        self._rows = Rows(columns, partition_count, max_record_bytes)
        self.count = columns.count
        self._partition_count = partition_count
        self._ignore_keys = ignore_keys
        self._slots: dict[int, _Slot] = {}
        for i in range(self.count):
            self._rows.get(i)

    def use(self, partition: int, builder: BatchBuilder) -> Piece | None:
        """Write rows of `partition` to `builder` from now on; return its previous batch's rows."""
        if not 0 <= partition < self._partition_count:
            raise IndexError(f"partition {partition} of {self._partition_count}")
        piece = self._piece(partition)
        self._slots[partition] = _Slot(builder)
        return piece

    def pieces(self) -> list[Piece]:
        """Return which rows are in each current batch, except rows that were returned before."""
        found = [self._piece(partition) for partition in sorted(self._slots)]
        for slot in self._slots.values():
            slot.count = 0
        return [piece for piece in found if piece is not None]

    def encode(
        self,
        start: int,
        stop: int,
        *,
        timestamp_ms: int,
        room: int,
        sticky: int = -1,
        sticky_room: int = 0,
        places: memoryview | array[int] | None = None,
    ) -> Encoded:
        """Append rows `start` to `stop`, up to the first row that doesn't fit; see `StopReason`.

        `timestamp_ms` is for rows without timestamp, `room` the number of bytes that may be added,
        `sticky` the partition of rows without key and partition, for at most `sticky_room` bytes.
        `places` is a writable buffer with an integer (format `i`) per row, in which the partition
        of each appended row is stored.
        """
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"rows {start} to {stop} of {self.count}")
        if sticky >= self._partition_count:
            raise IndexError(f"partition {sticky} of {self._partition_count}")
        if not -1 <= timestamp_ms <= b.INT64_MAX:
            raise ValueError(f"timestamp_ms is {timestamp_ms}, not 0 to 2^63-1 (or -1 for none)")
        noted = None if places is None else memoryview(places)
        if noted is not None:
            if noted.readonly or noted.format != "i" or not noted.contiguous:
                raise TypeError("places must be writable integers (format i)")
            if noted.nbytes < 4 * (stop - start):
                raise IndexError(f"{len(noted)} places for rows {start} to {stop}")
        added = sticky_bytes = 0
        for row in range(start, stop):
            key, value, headers, partition, timestamp, size = self._rows.get(row)
            keyless = partition is None and (key is None or self._ignore_keys)
            if keyless:
                if sticky_bytes >= sticky_room or sticky < 0:
                    return Encoded(row, StopReason.STICKY, -1, 0, added, sticky_bytes)
                partition = sticky
            elif partition is None:
                partition = partition_for_key(key or b"", self._partition_count)
            if added + size > room:
                return Encoded(row, StopReason.ROOM, -1, size, added, sticky_bytes)
            slot = self._slots.get(partition)
            before = 0 if slot is None else slot.builder.estimated_size
            if slot is None or not self._append(
                slot, key, value, headers, timestamp_ms if timestamp is None else timestamp
            ):
                return Encoded(row, StopReason.BATCH, partition, size, added, sticky_bytes)
            grown = slot.builder.estimated_size - before
            added += grown
            if keyless:
                sticky_bytes += grown
            if noted is not None:
                noted[row - start] = partition
            if slot.builder.estimated_size >= slot.builder.limit_bytes:
                return Encoded(row + 1, StopReason.FULL, partition, 0, added, sticky_bytes)
        return Encoded(stop, StopReason.DONE, -1, 0, added, sticky_bytes)

    def _append(
        self, slot: _Slot, key: bytes | None, value: bytes | None, headers: Headers, time: int
    ) -> bool:
        """Append a record; return False if the batch is full or other code has appended records."""
        if slot.count and slot.builder.count != slot.first + slot.count:
            return False
        index = slot.builder.append(key, value, headers, time)
        if index is None:
            return False
        if not slot.count:
            slot.first = index
        slot.count += 1
        return True

    def _piece(self, partition: int) -> Piece | None:
        slot = self._slots.get(partition)
        return Piece(partition, slot.first, slot.count) if slot is not None and slot.count else None
