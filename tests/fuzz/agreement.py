"""What a decoder made of a case, in a form in which two decoders' results can be compared.

In: a decoder and a case of `frames`. Out: plain tuples: errors by type and words, results by rows
(how a column's buffers are laid out is the decoder's own affair, as long as they are sound).
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
    """A buffer's items of a format, whatever kind of buffer it is."""
    view = memoryview(buffer)  # type: ignore[arg-type]
    return view if view.format == item else view.cast("B").cast(item)


def nulls(validity: ByteBuffer | None, start: int, count: int) -> int | None:
    """The bits of the entries as a number, None when none of them is null."""
    if validity is None:
        return None
    bits = int.from_bytes(memoryview(validity).tobytes(), "little") >> start
    bits &= (1 << count) - 1
    return None if bits == (1 << count) - 1 else bits


def binary(column: BinaryColumn | None, start: int, count: int) -> Outcome | None:
    """Where the entries end, their bytes, and which are null."""
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
    """The entries, after a look at what stands beside each: the first bytes of longer ones."""
    found = column.values(start, start + count)
    raw = memoryview(column.views).cast("B")
    assert len(raw) >= 16 * (start + count), "a view is missing"
    for i, entry in enumerate(found, start):
        if entry is not None and len(entry) > 12:
            assert raw[16 * i + 4 : 16 * i + 8] == entry[:4], "another prefix than the entry's"
    return "views", found


def column(column: BinaryColumn | ViewColumn | None, start: int, count: int) -> Outcome | None:
    """The entries of a column of either layout."""
    if isinstance(column, ViewColumn):
        return views(column, start, count)
    return binary(column, start, count)


def content(columns: RecordColumns) -> Outcome:
    """All that the columns hold; their buffers have to be large enough, and may be larger."""
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
    """What a call gave."""
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
    """What a call gave, or which error; other errors go through.

    A codec's library has words of its own, which depend on how much room it was given.
    """
    try:
        found = decode(buffer, **arguments)
    except CorruptRecordError as error:
        return type(error).__name__, re.sub(
            r" data is corrupt \(.*", " data is corrupt", str(error)
        )
    return result(found)


def all_outcomes(decode: Decode, buffer: memoryview, arguments: Arguments) -> list[Outcome]:
    """What the calls gave of which one goes on where the other one stopped; the first forty."""
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
