"""Rows of columns as named tuples: the plain builder, and the native one where it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.clients.consumer.records import ConsumerRecord
from odradek.record import build_rows, decode, rows
from odradek.record.columns import EMPTY, RecordColumns, Row, ViewColumn
from odradek.record.reference import encode

BUILDERS = [rows.build_rows, *([build_rows] if build_rows is not rows.build_rows else [])]
LONG = b"a value that doesn't fit into twelve bytes"
ROWS: list[Row] = [
    (5, 1000, 0, b"k", b"", ()),
    (6, 999, 0, None, LONG, (("name", b"x"), ("none", None))),
    (9, 2000, 0, b"", None, ()),
    (10, 2001, 0, b"\xff" * 300, b"v", (("", b""),)),
]


@pytest.fixture(params=BUILDERS, ids=lambda builder: builder.__module__)
def build(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    found: Callable[..., list[Any]] = request.param
    return found


def decoded(**options: Any) -> RecordColumns:
    return decode(memoryview(encode(ROWS)), start_offset=0, **options).columns


def expected(epochs: list[int]) -> list[ConsumerRecord]:
    return [ConsumerRecord("t", 3, *row, epoch) for row, epoch in zip(ROWS, epochs, strict=True)]


def test_all_parts_of_all_rows(build: Callable[..., list[Any]]) -> None:
    made = build(ConsumerRecord, "t", 3, decoded(), 7)
    assert made == expected([7] * 4)
    assert all(type(record) is ConsumerRecord for record in made)
    assert made[1].headers[1] == ("none", None)
    assert build(ConsumerRecord, "t", 3, decoded(), [1, 1, 2, 3]) == expected([1, 1, 2, 3])


def test_slices_and_columns_that_are_not_there(build: Callable[..., list[Any]]) -> None:
    part = build(ConsumerRecord, "t", 3, decoded().slice(1, 3), 7)
    assert part == expected([7] * 4)[1:3]
    bare = build(ConsumerRecord, "t", 3, decoded(want_key=False, want_headers=False), 7)
    assert bare == [r._replace(key=None, headers=()) for r in expected([7] * 4)]
    assert build(ConsumerRecord, "t", 3, EMPTY, 7) == []


def test_views_are_copied_out(build: Callable[..., list[Any]]) -> None:
    columns = decoded()
    inline = b"\1\0\0\0k" + bytes(11)
    there = len(LONG).to_bytes(4, "little") + LONG[:4] + bytes(4) + (2).to_bytes(4, "little")
    views = ViewColumn(memoryview(inline + there + bytes(16) + inline), (b"__" + LONG,), b"\x0b")
    made = build(ConsumerRecord, "t", 3, replace(columns, values=views), 7)
    assert [record.value for record in made] == [b"k", LONG, None, b"k"]
