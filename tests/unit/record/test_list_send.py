"""Test lists as columns to send: their content, division into pieces, and errors."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.errors import ArgumentError, ConfigurationError
from odradek.record import gather, list_send, only_bytes, sent_columns
from odradek.record.columns import Headers
from odradek.record.encoder import Rows
from odradek.record.list_send import PIECE_BYTES, PIECE_RECORDS, RecordLists
from odradek.record.sent_columns import SentBinary, SentColumns

Sent = tuple[bytes | None, bytes | None, Headers, int | None, int | None]


def pieces(**lists: Any) -> list[SentColumns]:
    records = RecordLists.given(**lists)
    deque(records.check(), maxlen=0)
    return list(records.columns())


def sent(**lists: Any) -> list[Sent]:
    """Return key, value, headers, partition and timestamp of each record for the encoder."""
    found: list[Sent] = []
    for columns in pieces(**lists):
        assert columns.first_row == len(found)
        rows = Rows(columns, 100, 1 << 24)
        found += [rows.get(i)[:5] for i in range(columns.count)]
    return found


def or_none(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


BINARY = or_none(st.binary(max_size=12))
HEADERS = st.lists(st.tuples(st.text(max_size=3), BINARY), max_size=3)
RECORD = st.tuples(
    BINARY,
    BINARY,
    or_none(HEADERS),
    or_none(st.integers(0, 99)),
    or_none(st.integers(-1, 1 << 62)),
)


@given(st.lists(RECORD, max_size=20), st.integers(1, 7), st.integers(1, 40))
def test_lists_of_keys_values_and_headers_are_sent_completely(
    records: list[Any], most_records: int, most_bytes: int
) -> None:
    """The result must not depend on the size of the pieces that the lists are divided into."""
    keys, values, headers, partitions, times = ([one[n] for one in records] for n in range(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_send, "PIECE_RECORDS", most_records)
        patch.setattr(list_send, "PIECE_BYTES", most_bytes)
        found = sent(
            values=values, keys=keys, headers=headers, partitions=partitions, timestamps_ms=times
        )
        assert sent(values=values) == [(None, value, (), None, None) for value in values]
    assert found == [(k, v, tuple(h or ()), p, t) for k, v, h, p, t in records]


def test_lists_are_sent_in_small_pieces_whatever_they_contain() -> None:
    most = PIECE_BYTES // 4
    large = [b"x" * most] * 9 + [b"y" * (5 * most)] + [b"z"] * (2 * PIECE_RECORDS)
    found = pieces(values=large)
    assert [piece.count for piece in found][:4] == [4, 4, 1, 1]
    assert sum(piece.count for piece in found) == len(large)
    assert max(piece.count for piece in found) == PIECE_RECORDS
    for piece in found:
        assert isinstance(piece.values, SentBinary)
        assert piece.count == 1 or len(piece.values.data) <= PIECE_BYTES
    by_keys = pieces(values=[b"v"] * 8, keys=[b"k" * most] * 8)
    by_headers = pieces(values=[b"v"] * 8, headers=[[("h", b"x" * (most - 1))]] * 8)
    assert [p.count for p in by_keys] == [p.count for p in by_headers] == [4, 4]


def test_iterables_and_buffers_are_accepted() -> None:
    class Text(bytes):
        pass

    values = (one for one in (bytearray(b"a"), memoryview(array("h", [1])), Text(b"c"), None))
    found = sent(
        values=values,
        keys=deque([b"1", b"2", b"3", b"4"]),
        headers=([], {"h": b"x"}, iter([("i", None)]), None),
        partitions=np.arange(4),
        timestamps_ms=np.array([5, 6, 7, 8]),
    )
    assert found == [
        (b"1", b"a", (), 0, 5),
        (b"2", array("h", [1]).tobytes(), (("h", b"x"),), 1, 6),
        (b"3", b"c", (("i", None),), 2, 7),
        (b"4", None, (), 3, 8),
    ]


def test_the_caller_may_change_its_lists_after_the_call() -> None:
    values: list[Any] = [b"a", b"b"]
    headers: list[Any] = [[("h", b"x")], None]
    records = RecordLists.given(values=values, headers=headers)
    columns = records.columns()
    deque(records.check(), maxlen=0)
    headers[0][0] = ("other", None)
    values.clear()
    headers.clear()
    (piece,) = columns
    assert Rows(piece, 1, 1000).get(0)[:3] == (None, b"a", (("h", b"x"),))


@given(
    st.lists(or_none(st.binary(max_size=9)), max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 100),
)
def test_the_kernel_builds_the_same_columns_as_the_python_code(
    items: list[Any], one: int, other: int, most: int
) -> None:
    first, last = sorted((min(one, len(items)), min(other, len(items))))
    expected = sent_columns.gather(items, first, last, most)
    assert expected is not None
    assert plain(gather(items, first, last, most)) == plain(expected)
    assert only_bytes(items, first, last) is sent_columns.only_bytes(items, first, last) is True
    for wrong in ("text", bytearray(b"x"), 5):
        assert only_bytes([*items, wrong], first, last)
        assert not only_bytes([*items, wrong], first, len(items) + 1)
        assert not sent_columns.only_bytes([*items, wrong], first, len(items) + 1)
        assert gather([*items, wrong], 0, len(items) + 1, 1 << 20) is None
        assert sent_columns.gather([*items, wrong], 0, len(items) + 1, 1 << 20) is None


def plain(found: tuple[int, SentBinary | None] | None) -> Any:
    assert found is not None
    count, column = found
    if column is None:
        return count
    return count, column.offsets, column.data, column.validity, column.start, column.wide


def test_empty_lists_send_no_records() -> None:
    assert pieces(values=[], keys=[], headers=[], partitions=[], timestamps_ms=[]) == []


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ({"values": None}, "values must be a list"),
        ({"values": b"abc"}, "values must be a list"),
        ({"values": "abc"}, "values must be a list"),
        ({"values": {b"a": 1}}, "values must be a list"),
        ({"values": {b"a"}}, "values must be a list"),
        ({"values": [b"a"], "keys": 5}, "keys must be a list"),
        ({"values": [b"a"], "keys": []}, "keys and values must have the same length, not 0 and 1"),
        (
            {"values": [], "timestamps_ms": [1]},
            "timestamps_ms and values must have the same length, not 1 and 0",
        ),
        ({"values": [b"a", "b"]}, r"values\[1\] must be bytes .*not str: use .encode"),
        ({"values": [b"a"] * 9000 + [5]}, r"values\[9000\] must be bytes"),
        ({"values": [b"a", b"b"], "keys": [b"a", {}]}, r"keys\[1\] must be bytes"),
        ({"values": [b"a"], "headers": [5]}, r"headers\[0\]: headers must be pairs"),
        ({"values": [None], "headers": [[("a", 5)]]}, r"headers\[0\]: headers\[0\]\[1\] must be"),
        ({"values": [b"a"], "partitions": ["0"]}, r"partitions\[0\] must be a whole number"),
        ({"values": [b"a"], "timestamps_ms": [1.5]}, r"timestamps_ms\[0\] must be a whole number"),
    ],
)
def test_invalid_lists_are_rejected(lists: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        pieces(**lists)


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ({"values": [b"a"], "partitions": [-1]}, r"partitions\[0\] must be 0 or more"),
        ({"values": [b"a"], "partitions": [2**31]}, r"partitions\[0\] must be at most \d+"),
        ({"values": [b"a"], "timestamps_ms": [-2]}, r"timestamps_ms\[0\] must be -1 or more"),
        (
            {"values": [b"a"], "headers": [[("\ud800", b"")]]},
            r"headers\[0\]: headers\[0\]\[0\] contains",
        ),
    ],
)
def test_invalid_numbers_and_invalid_unicode_are_rejected(lists: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        pieces(**lists)
