"""Test row access and slices of column buffers."""

from __future__ import annotations

from array import array

import pytest

from odradek.record import BinaryColumn, HeaderColumn, RecordColumns, decode
from odradek.record.columns import EMPTY, Row
from odradek.record.reference import encode

ROWS: list[Row] = [
    (
        i,
        10 * i,
        0,
        None if i % 4 == 0 else b"k%d" % i,
        None if i % 5 == 1 else b"v" * i,
        tuple((f"h{j}", None if j else b"x%d" % i) for j in range(i % 3)),
    )
    for i in range(3000)
]


@pytest.fixture(scope="module")
def columns() -> RecordColumns:
    return decode(memoryview(encode(ROWS)), start_offset=0).columns


def test_rows_and_slices_contain_the_encoded_records(columns: RecordColumns) -> None:
    assert list(columns) == list(columns.rows()) == ROWS
    for start, stop in ((0, 0), (0, 1), (7, 8), (1000, 2100), (2999, 3000), (2990, 9999), (5, 2)):
        assert list(columns.rows(start, stop)) == ROWS[start:stop]
        part = columns.slice(start, stop)
        assert (len(part), list(part)) == (len(ROWS[start:stop]), ROWS[start:stop])
    nested = columns.slice(100, 200).slice(10, 20)
    assert list(nested) == ROWS[110:120]
    assert nested.offsets is columns.offsets


def test_offset_at_returns_the_offset_of_a_row(columns: RecordColumns) -> None:
    part = columns.slice(100, 200)
    assert (part.offset_at(0), part.offset_at(99)) == (100, 199)
    for row in (-1, 100):
        with pytest.raises(IndexError):
            part.offset_at(row)


def test_columns_may_use_any_object_with_the_buffer_protocol() -> None:
    """The native decoder and the Python decoder create different kinds of buffers."""
    ints = memoryview(array("i", [0, 1, 1, 3]))
    text = BinaryColumn(ints, memoryview(bytearray(b"abc")), memoryview(b"\x05"))
    names = BinaryColumn(memoryview(array("i", [0, 1])), bytearray(b"n"))
    contents = BinaryColumn(memoryview(array("i", [0, 0])), bytearray(), b"\0")
    headers = HeaderColumn(memoryview(array("i", [0, 0, 1, 1])), names, contents, b"\x02")
    longs = memoryview(array("q", [5, 6, 9]))
    columns = RecordColumns(3, longs, longs, memoryview(b"\0\1\0"), text, text, headers)
    assert list(columns) == [
        (5, 5, 0, b"a", b"a", ()),
        (6, 6, 1, None, None, (("n", None),)),
        (9, 9, 0, b"bc", b"bc", ()),
    ]


def test_empty_columns_have_no_rows() -> None:
    assert list(EMPTY) == []
    assert len(EMPTY.slice(0, 5)) == 0
