"""Store records as column buffers, in a layout that Arrow can wrap without copying.

In: buffers that a decoder filled. Out: row tuples for `poll()`, or buffers for `record/arrow.py`.
Must not: know batches, or import pyarrow, which clients without Arrow needn't have.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from struct import Struct
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, overload

from odradek.record.varint import read_varint

IntBuffer: TypeAlias = "array[int] | memoryview"
ByteBuffer = bytes | bytearray | memoryview
Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[int, int, int, bytes | None, bytes | None, Headers]
"""Type of a row: offset, timestamp_ms, timestamp_type, key, value, headers."""

Layout = Literal["binary", "binary_view"]
"""Layout of keys and values: each column in its own contiguous buffer, or as views into the bytes
of the response."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
"""Values of `timestamp_type`, as in Kafka; -1 is for messages of format 0, without a timestamp."""

_ROWS_AT_ONCE = 1024
_VIEW = Struct("<i4sii")
"""Layout of a view: length, first four bytes, number of the buffer, position in the buffer."""
_SHORT = Struct("<i12s")
_INLINE = 12


class BinaryColumn(NamedTuple):
    """Byte strings in Arrow's layout `binary`: entry i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: IntBuffer
    """Positions as int32; one more than there are entries."""
    data: ByteBuffer
    validity: ByteBuffer | None = None
    """One bit per entry, lowest bit first, 0 for null; None if no entry is null."""

    def values(self, start: int, stop: int) -> list[bytes | None]:
        """Return the entries from `start` to `stop`, copied into `bytes` objects."""
        data = self.data if isinstance(self.data, bytes) else memoryview(self.data)
        spans = pairwise(self.offsets[start : stop + 1])
        if isinstance(data, bytes):
            found: list[bytes | None] = [data[a:b] for a, b in spans]
        else:
            found = [data[a:b].tobytes() for a, b in spans]
        if self.validity is not None:
            bits = self.validity
            for i in range(start, stop):
                if not bits[i >> 3] >> (i & 7) & 1:
                    found[i - start] = None
        return found


class ViewColumn(NamedTuple):
    """Byte strings in Arrow's layout `binary_view`: 16 bytes for each entry.

    The 16 bytes contain an entry of up to 12 bytes, or the position of a longer entry in `buffers`.
    The buffers are usually a Fetch response, which is kept in memory as long as one of its rows is
    used.
    """

    views: ByteBuffer
    buffers: tuple[ByteBuffer, ...]
    validity: ByteBuffer | None = None

    @classmethod
    def of(cls, column: BinaryColumn) -> ViewColumn:
        """Create a view column from a column with one contiguous buffer."""
        data = bytes(column.data)
        views = bytearray()
        for a, b in pairwise(column.offsets):
            if b - a <= _INLINE:
                views += _SHORT.pack(b - a, data[a:b])
            else:
                views += _VIEW.pack(b - a, data[a : a + 4], 0, a)
        return cls(views, (column.data,), column.validity)

    def values(self, start: int, stop: int) -> list[bytes | None]:
        """Return the entries from `start` to `stop`, copied into `bytes` objects."""
        views, bits = memoryview(self.views).cast("B"), self.validity
        buffers = [memoryview(buffer).cast("B") for buffer in self.buffers]
        found: list[bytes | None] = []
        for i in range(start, stop):
            length, _, number, at = _VIEW.unpack_from(views, 16 * i)
            if bits is not None and not bits[i >> 3] >> (i & 7) & 1:
                found.append(None)
            elif length <= _INLINE:
                found.append(views[16 * i + 4 : 16 * i + 4 + length].tobytes())
            else:
                found.append(buffers[number][at : at + length].tobytes())
        return found


class HeaderColumn(NamedTuple):
    """Headers in Arrow's layout `list<struct<key, value>>`; null for a row without headers."""

    offsets: IntBuffer
    """Position of each row's first header in `keys` and `values`, as int32; the last is the
    total."""
    keys: BinaryColumn
    """Names of headers; the decoder has replaced invalid UTF-8."""
    values: BinaryColumn
    validity: ByteBuffer | None = None

    def lists(self, start: int, stop: int) -> list[Headers]:
        """Return each row's headers as a tuple, which is empty if the row has none."""
        offsets = self.offsets[start : stop + 1]
        first, last = offsets[0], offsets[-1]
        keys = (str(key, "utf-8") for key in self.keys.values(first, last) if key is not None)
        pairs = tuple(zip(keys, self.values.values(first, last), strict=True))
        return [pairs[a - first : b - first] for a, b in pairwise(offsets)]


MOST_READ = 16
"""Maximum number of headers per record for which objects are created at once, as they cost no more
than the rest of the record."""


def read_headers(raw: bytes, most: int) -> Headers | None:
    """Return one record's headers; None if there are more than `most`.

    The decoder has already checked the lengths.
    """
    at, end = 0, len(raw)
    found: list[tuple[str, bytes | None]] = []
    while at < end:
        if len(found) == most:
            return None
        size, at = read_varint(raw, at)
        name, at = raw[at : at + size].decode("utf-8", "replace"), at + size
        size, at = read_varint(raw, at)
        if size == -1:  # null, even if -1 is encoded in too many bytes
            found.append((name, None))
        else:
            found.append((name, raw[at : at + size]))
            at += size
    return tuple(found)


class RawHeaders(Sequence[tuple[str, bytes | None]]):
    """One record's headers as encoded bytes, which are decoded at each access.

    The object is equal to the tuple of the headers. A hundred thousand headers take the memory of
    their bytes, and fifty times as much only while the program refers to them as objects.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @property
    def size(self) -> int:
        """Size of the encoded headers, in bytes."""
        return len(self._raw)

    def read(self) -> Headers:
        """Decode and return all headers."""
        return read_headers(self._raw, len(self._raw)) or ()

    @overload
    def __getitem__(self, index: int) -> tuple[str, bytes | None]: ...
    @overload
    def __getitem__(self, index: slice) -> Headers: ...
    def __getitem__(self, index: int | slice) -> tuple[str, bytes | None] | Headers:
        return self.read()[index]

    def __len__(self) -> int:
        return len(self.read())

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        return iter(self.read())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RawHeaders):
            return self.read() == other.read()
        return self.read() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.read())

    def __repr__(self) -> str:
        return repr(self.read())

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[Headers]]:
        return tuple, (self.read(),)


class RawHeaderColumn(NamedTuple):
    """Encoded headers as in the log: those of row i are `data[offsets[i]:offsets[i + 1]]`.

    This takes the memory of these bytes; a `HeaderColumn` takes eight more bytes per header.
    """

    offsets: IntBuffer
    """Positions as int32; one more than there are rows."""
    data: ByteBuffer

    def lists(self, start: int, stop: int) -> list[Headers | RawHeaders]:
        """Return each row's headers as a tuple, or as `RawHeaders` if there are many."""
        data = memoryview(self.data)
        spans = pairwise(self.offsets[start : stop + 1])
        each = (data[a:b].tobytes() for a, b in spans)
        return [
            RawHeaders(raw) if (found := read_headers(raw, MOST_READ)) is None else found
            for raw in each
        ]


class RecordColumns:
    """`count` records from row `start` of the buffers on; a slice shares the buffers.

    The buffers are never changed. A column that wasn't requested is None; `headers` is also None if
    no record has headers.
    """

    __slots__ = (
        "count", "headers", "keys", "offsets", "start", "timestamp_types", "timestamps_ms",
        "values",
    )  # fmt: skip

    def __init__(
        self,
        count: int,
        offsets: IntBuffer,
        timestamps_ms: IntBuffer,
        timestamp_types: ByteBuffer,
        keys: BinaryColumn | ViewColumn | None,
        values: BinaryColumn | ViewColumn | None,
        headers: HeaderColumn | RawHeaderColumn | None,
        start: int = 0,
    ) -> None:
        self.count = count
        self.offsets = offsets
        """The records' offsets, as int64."""
        self.timestamps_ms = timestamps_ms
        """The records' timestamps in milliseconds, as int64."""
        self.timestamp_types = timestamp_types
        """int8: 0 for create time, 1 for log append time, -1 for none (255 if read as a byte)."""
        self.keys = keys
        self.values = values
        self.headers = headers
        self.start = start

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<RecordColumns: {self.count} records>"  # without buffers, which may be large

    def offset_at(self, row: int) -> int:
        """Return one row's Kafka offset."""
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")
        return int(self.offsets[self.start + row])

    def slice(self, start: int = 0, stop: int | None = None) -> RecordColumns:
        """Return rows `start` to `stop` without a copy; bounds work as in Python's slices."""
        start, stop, _ = slice(start, stop).indices(self.count)
        # usual for a small response: all rows are wanted
        if start == 0 and stop == self.count:
            return self
        return RecordColumns(
            max(0, stop - start),
            self.offsets,
            self.timestamps_ms,
            self.timestamp_types,
            self.keys,
            self.values,
            self.headers,
            self.start + start,
        )

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Iterate over rows as plain tuples, which are created in groups of a thousand."""
        part = self.slice(start, stop)
        last = part.start + part.count
        for a in range(part.start, last, _ROWS_AT_ONCE):
            yield from self._rows_between(a, min(a + _ROWS_AT_ONCE, last))

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def types_between(self, a: int, b: int) -> memoryview:
        """Return the timestamp types of rows of the buffers, as signed numbers."""
        return memoryview(self.timestamp_types).cast("b")[a:b]

    def _rows_between(self, a: int, b: int) -> Iterable[Row]:
        empty: Headers = ()
        return zip(
            self.offsets[a:b],
            self.timestamps_ms[a:b],
            self.types_between(a, b),
            repeat(None, b - a) if self.keys is None else self.keys.values(a, b),
            repeat(None, b - a) if self.values is None else self.values.values(a, b),
            repeat(empty, b - a) if self.headers is None else self.headers.lists(a, b),
            strict=True,
        )


EMPTY = RecordColumns(0, array("q"), array("q"), b"", None, None, None)
"""A result without records and columns."""


class DecodedRecords(NamedTuple):
    """Records decoded from the beginning of a Fetch response, and how to decode the rest.

    While `finished` is False, `decode(buffer[bytes_consumed:], start_offset=next_offset,
    aborted=aborted_left, …)` returns more.
    """

    columns: RecordColumns
    next_offset: int
    """The offset to fetch or decode next, after any control, aborted and compacted records."""
    finished: bool
    """Whether the rest of the buffer has nothing to decode: only a cut batch, or later offsets."""
    batches: int = 0
    """Number of batches, of any kind, that were consumed completely."""
    control_batches: int = 0
    aborted_batches: int = 0
    bytes_consumed: int = 0
    """Position in the buffer of the first batch that isn't consumed completely."""
    last_leader_epoch: int = -1
    """The leader epoch of the last batch that was read; -1 if there was none."""
    needed_bytes: int | None = None
    """The size of the first batch if the buffer is too small for it, and so the size to fetch."""
    aborted_left: tuple[tuple[int, int], ...] = ()
    """Aborted transactions whose end marker wasn't reached yet, for the next call."""

    def next_offset_after(self, rows: int) -> int:
        """Return the offset that follows the first `rows` rows."""
        if rows >= self.columns.count:
            return self.next_offset
        return self.columns.offset_at(rows)


class PoolState(NamedTuple):
    """State of the memory pool for the columns of all clients in this process; sizes in bytes."""

    idle: int = 0
    """Size of the free memory that is kept for the next columns."""
    limit: int = 0
    """Maximum of `idle`."""
    lent: int = 0
    """Size of the memory of columns, and of Arrow arrays from them, that are still referenced."""
    reused: int = 0
    """Number of buffers that were reused."""
    made: int = 0
    """Number of buffers that were newly allocated; writing to new pages takes ten times as long."""
