"""Hold records as plain column buffers, in a layout that Arrow can wrap without copying.

In: buffers that a decoder filled. Out: row tuples for `poll()`, or buffers for `record/arrow.py`.
Knows nothing of batches, and must not import pyarrow: clients without Arrow work without it.
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
"""offset, timestamp_ms, timestamp_type, key, value, headers"""

Layout = Literal["binary", "binary_view"]
"""Layout of keys and values: each column in its own contiguous buffer, or as views into the fetched
bytes."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
"""Values of `timestamp_type`, with Kafka's numbers; messages of format 0 have no timestamp."""

_ROWS_AT_ONCE = 1024
_VIEW = Struct("<i4sii")
"""Length, first four bytes, number of the buffer, position in it."""
_SHORT = Struct("<i12s")
_INLINE = 12


class BinaryColumn(NamedTuple):
    """Byte strings in Arrow's layout `binary`: entry i is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: IntBuffer
    """int32; one more than there are entries."""
    data: ByteBuffer
    validity: ByteBuffer | None = None
    """One bit for each entry, lowest first, 0 for null; None if no entry is null."""

    def values(self, start: int, stop: int) -> list[bytes | None]:
        """Copy the entries from `start` to `stop` into `bytes` objects."""
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
    """Byte strings in Arrow's layout `binary_view`: 16 bytes for each.

    These hold up to 12 bytes themselves, or the position of longer ones in `buffers`. The buffers
    are usually a Fetch response: all of them are kept alive as long as one of their rows is used.
    """

    views: ByteBuffer
    buffers: tuple[ByteBuffer, ...]
    validity: ByteBuffer | None = None

    @classmethod
    def of(cls, column: BinaryColumn) -> ViewColumn:
        """Create views of a column that has one contiguous buffer."""
        data = bytes(column.data)
        views = bytearray()
        for a, b in pairwise(column.offsets):
            if b - a <= _INLINE:
                views += _SHORT.pack(b - a, data[a:b])
            else:
                views += _VIEW.pack(b - a, data[a : a + 4], 0, a)
        return cls(views, (column.data,), column.validity)

    def values(self, start: int, stop: int) -> list[bytes | None]:
        """Copy the entries from `start` to `stop` out as `bytes`."""
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
    """Headers in Arrow's layout `list<struct<key, value>>`; the list is null without headers."""

    offsets: IntBuffer
    """int32, one more than there are rows: where each row's headers begin in `keys` and
    `values`."""
    keys: BinaryColumn
    """UTF-8, made valid by the decoder."""
    values: BinaryColumn
    validity: ByteBuffer | None = None

    def lists(self, start: int, stop: int) -> list[Headers]:
        """Return each row's headers as a tuple, empty if the row has none."""
        offsets = self.offsets[start : stop + 1]
        first, last = offsets[0], offsets[-1]
        keys = (str(key, "utf-8") for key in self.keys.values(first, last) if key is not None)
        pairs = tuple(zip(keys, self.values.values(first, last), strict=True))
        return [pairs[a - first : b - first] for a, b in pairwise(offsets)]


MOST_READ = 16
"""Up to this number of headers, creating objects for them costs no more than the rest of the
record."""


def read_headers(raw: bytes, most: int) -> Headers | None:
    """Return one record's headers; None if there are more than `most`.

    The decoder of the record has checked the lengths.
    """
    at, end = 0, len(raw)
    found: list[tuple[str, bytes | None]] = []
    while at < end:
        if len(found) == most:
            return None
        size, at = read_varint(raw, at)
        name, at = raw[at : at + size].decode("utf-8", "replace"), at + size
        size, at = read_varint(raw, at)
        if size == -1:  # encoded in one byte, or in more bytes than necessary
            found.append((name, None))
        else:
            found.append((name, raw[at : at + size]))
            at += size
    return tuple(found)


class RawHeaders(Sequence[tuple[str, bytes | None]]):
    """One record's headers as bytes of the log, decoded at each access.

    It is equal to the tuple of the headers. A record with a hundred thousand headers costs the
    memory of their bytes, and fifty times as much only while the program holds them as objects.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @property
    def size(self) -> int:
        """Size of the encoded headers in bytes."""
        return len(self._raw)

    def read(self) -> Headers:
        """Return all headers."""
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
    """Headers in the log's encoding: those of row i are `data[offsets[i]:offsets[i + 1]]`.

    It takes the memory of these bytes, while `HeaderColumn` takes eight more bytes for each header.
    """

    offsets: IntBuffer
    """int32; one more than there are rows."""
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
    """`count` records from row `start` of the buffers; a slice shares its parent's buffers.

    The buffers are never changed afterwards. A column that wasn't requested is None; `headers` is
    None also if no record has headers.
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
        """int64."""
        self.timestamps_ms = timestamps_ms
        """int64."""
        self.timestamp_types = timestamp_types
        """int8: 0 create time, 1 log append time, -1 none; read as a byte, -1 is 255."""
        self.keys = keys
        self.values = values
        self.headers = headers
        self.start = start

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<RecordColumns: {self.count} records>"  # the buffers may hold megabytes

    def offset_at(self, row: int) -> int:
        """Return one row's Kafka offset."""
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")
        return int(self.offsets[self.start + row])

    def slice(self, start: int = 0, stop: int | None = None) -> RecordColumns:
        """Return rows `start` to `stop` without copying; bounds are cut as in Python's slices."""
        start, stop, _ = slice(start, stop).indices(self.count)
        # the usual case for a small response: no row is cut off
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
        """Iterate over rows as plain tuples, built a thousand at a time."""
        part = self.slice(start, stop)
        last = part.start + part.count
        for a in range(part.start, last, _ROWS_AT_ONCE):
            yield from self._rows_between(a, min(a + _ROWS_AT_ONCE, last))

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def types_between(self, a: int, b: int) -> memoryview:
        """Return the timestamp types of these rows of the buffers, as signed numbers."""
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
"""No records and no columns."""


class DecodedRecords(NamedTuple):
    """Decoded records of the beginning of a Fetch response, and how to continue after them.

    While `finished` is False, `decode(buffer[bytes_consumed:], start_offset=next_offset,
    aborted=aborted_left, …)` returns more.
    """

    columns: RecordColumns
    next_offset: int
    """The offset to fetch or decode next; it is after control, aborted and compacted records
    too."""
    finished: bool
    """Whether the rest of the buffer is empty, a cut batch, or offsets from `until_offset` on."""
    batches: int = 0
    """Number of whole batches that were passed, of any kind."""
    control_batches: int = 0
    aborted_batches: int = 0
    bytes_consumed: int = 0
    """Position of the first batch that isn't consumed completely."""
    last_leader_epoch: int = -1
    """The leader epoch of the last batch that was looked at, -1 if there was none."""
    needed_bytes: int | None = None
    """The size of the first batch if it is larger than the whole buffer: the size to fetch."""
    aborted_left: tuple[tuple[int, int], ...] = ()
    """Aborted transactions without an end marker so far, for the next call."""

    def next_offset_after(self, rows: int) -> int:
        """Return the position after the first `rows` rows."""
        if rows >= self.columns.count:
            return self.next_offset
        return self.columns.offset_at(rows)


class PoolState(NamedTuple):
    """State of the memory pool that columns of all clients of this process use. Sizes in bytes."""

    idle: int = 0
    """Free memory, kept for the next columns."""
    limit: int = 0
    """Maximum of `idle`."""
    lent: int = 0
    """Memory of columns, or of Arrow arrays made from them, that are still referenced."""
    reused: int = 0
    """Number of buffers that were reused."""
    made: int = 0
    """Number of buffers that were allocated: writing to their fresh pages takes ten times as
    long."""
