"""The result of a decoder for a case, in a form that can be compared between two decoders.

In: a decoder and a case of `frames`. Out: plain tuples: errors by type and text, results by rows
(the layout of a column's buffers may differ, as long as it is valid).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from tests.fuzz.frames import Arguments

from odradek.common.errors import CorruptRecordError
from odradek.record.columns import (
    BinaryColumn,
    ByteBuffer,
    DecodedRecords,
    RawHeaderColumn,
    RecordColumns,
    ViewColumn,
)

Decode: TypeAlias = Callable[..., DecodedRecords]
Outcome: TypeAlias = tuple[Any, ...]


def plain(buffer: object, item: Literal["i", "q"]) -> memoryview:
    """Return a buffer's items in a format, for any kind of buffer."""
    view = memoryview(buffer)  # type: ignore[arg-type]
    return view if view.format == item else view.cast("B").cast(item)


def nulls(validity: ByteBuffer | None, start: int, count: int) -> int | None:
    """Return the validity bits of the entries as a number; None if no entry is null."""
    if validity is None:
        return None
    bits = int.from_bytes(memoryview(validity).tobytes(), "little") >> start
    bits &= (1 << count) - 1
    return None if bits == (1 << count) - 1 else bits


def binary(column: BinaryColumn | None, start: int, count: int) -> Outcome | None:
    """Return the ends of the entries, their bytes, and which are null."""
    if column is None:
        return None
    offsets = plain(column.offsets, "i")[start : start + count + 1].tolist()
    assert len(offsets) == count + 1, "an offset is missing"
    first, last = offsets[0], offsets[-1]
    data = memoryview(column.data)
    assert data.itemsize == 1
    assert 0 <= first <= last <= len(data), (first, last, len(data))
    ends = [end - first for end in offsets]
    assert all(a <= b for a, b in pairwise(ends)), "offsets go back"
    return ends, data[first:last].tobytes(), nulls(column.validity, start, count)


def views(column: ViewColumn, start: int, count: int) -> Outcome:
    """Return the entries, after checking the prefixes that views of long entries repeat."""
    found = column.values(start, start + count)
    raw = memoryview(column.views).cast("B")
    assert len(raw) >= 16 * (start + count), "a view is missing"
    for i, entry in enumerate(found, start):
        if entry is not None and len(entry) > 12:
            assert raw[16 * i + 4 : 16 * i + 8] == entry[:4], "another prefix than the entry's"
    return "views", found


def column(column: BinaryColumn | ViewColumn | None, start: int, count: int) -> Outcome | None:
    """Return the entries of a column of either layout."""
    if isinstance(column, ViewColumn):
        return views(column, start, count)
    return binary(column, start, count)


def content(columns: RecordColumns) -> Outcome:
    """Return the content of all columns; their buffers may be larger than necessary."""
    start, count = columns.start, columns.count
    end = start + count
    types = memoryview(columns.timestamp_types).cast("B")[start:end].tobytes()
    offsets = plain(columns.offsets, "q")[start:end].tobytes()
    times = plain(columns.timestamps_ms, "q")[start:end].tobytes()
    assert (len(offsets), len(times), len(types)) == (8 * count, 8 * count, count)
    headers: Outcome | None = None
    if isinstance(columns.headers, RawHeaderColumn):
        raw = BinaryColumn(columns.headers.offsets, columns.headers.data)
        read = [tuple(each) for each in columns.headers.lists(start, end)]
        headers = binary(raw, start, count), read
    elif columns.headers is not None:
        ends = plain(columns.headers.offsets, "i")[start : end + 1].tolist()
        first, last = ends[0], ends[-1]
        assert len(ends) == count + 1
        assert ends == sorted(ends)
        headers = (
            [at - first for at in ends],
            binary(columns.headers.keys, first, last - first),
            binary(columns.headers.values, first, last - first),
            nulls(columns.headers.validity, start, count),
        )
    keys, values = column(columns.keys, start, count), column(columns.values, start, count)
    return count, offsets, times, types, keys, values, headers


def result(found: DecodedRecords) -> Outcome:
    """Return the result of a decoder's call in comparable form."""
    return (
        content(found.columns),
        found.next_offset,
        found.finished,
        found.batches,
        found.control_batches,
        found.aborted_batches,
        found.bytes_consumed,
        found.last_leader_epoch,
        found.needed_bytes,
        found.aborted_left,
    )


def outcome(decode: Decode, buffer: memoryview, arguments: Arguments) -> Outcome:
    """Return the result of a call, or its error; other errors propagate.

    The text of a codec library's error depends on the size of its output buffer, so it isn't
    compared.
    """
    try:
        found = decode(buffer, **arguments)
    except CorruptRecordError as error:
        return type(error).__name__, re.sub(
            r" data is corrupt \(.*", " data is corrupt", str(error)
        )
    return result(found)


def all_outcomes(decode: Decode, buffer: memoryview, arguments: Arguments) -> list[Outcome]:
    """Return the results of up to forty calls, each of which continues after the last one."""
    found: list[Outcome] = []
    arguments = dict(arguments)
    for _ in range(40):
        one = outcome(decode, buffer, arguments)
        found.append(one)
        if len(one) == 2 or one[2]:
            return found
        before = arguments["start_offset"], len(buffer)
        arguments |= {"start_offset": one[1], "aborted": one[9]}
        buffer = buffer[one[6] :]
        if before == (arguments["start_offset"], len(buffer)):
            raise AssertionError(f"no progress at offset {before[0]}, {before[1]} bytes left")
    return found
