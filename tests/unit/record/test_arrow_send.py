"""Arrow as records to send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars
import pyarrow as pa
import pytest

from odradek.record import decode
from odradek.record.arrow import ArrowSchemaError, to_record_batch
from odradek.record.arrow_send import records_from_arrow
from odradek.record.columns import Row
from odradek.record.reference import encode

ROWS: list[Row] = [
    (10, 1_700_000_000_123, 0, b"k", b"v", (("a", b"1"), ("b", None))),
    (11, 0, 0, None, b"", ()),
    (12, -1, 0, b"", None, (("", b""),)),
    (13, 1_700_000_000_999, 0, None, b"w", ()),
]

KEYS = [b"a", None, "é".encode()]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", [*BINARY_TYPES, *TEXT_TYPES], ids=str)
@pytest.mark.parametrize("chunked", [False, True])
def test_keys_and_values_of_every_width(kind: pa.DataType, chunked: bool) -> None:
    values: list[Any] = KEYS if kind in BINARY_TYPES else ["a", None, "é"]
    batch = pa.record_batch({"value": pa.array(values, kind), "key": pa.array(values, kind)})
    data = pa.Table.from_batches([batch, batch.slice(1), batch.slice(0, 0)]) if chunked else batch
    expected = KEYS + KEYS[1:] if chunked else KEYS
    records = records_from_arrow(data)
    assert len(records) == len(expected)
    assert list(records) == [(k, k, (), None, None) for k in expected]
    assert list(records_from_arrow(data.slice(1))) == [(k, k, (), None, None) for k in expected[1:]]


def test_dictionaries_and_fixed_sizes() -> None:
    coded = pa.array(["x", "y", "x", None]).dictionary_encode()
    fixed = pa.array([b"12", None, b"34", b"56"], pa.binary(2))
    assert [r[:2] for r in records_from_arrow(pa.table({"key": coded, "value": fixed}))] == [
        (b"x", b"12"),
        (b"y", None),
        (b"x", b"34"),
        (None, b"56"),
    ]


def test_partition_and_timestamp() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    milliseconds = int(moment.timestamp() * 1000)
    for kind in (
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns", "Europe/Berlin"),
        pa.timestamp("us"),
    ):
        table = pa.table(
            {
                "value": pa.array([b"v", b"w"]),
                "partition": pa.array([7, None], pa.int16()),
                "timestamp": pa.array([moment, None], pa.timestamp("us", "UTC")).cast(kind),
            }
        )
        assert [r[3:] for r in records_from_arrow(table)] == [(7, milliseconds), (None, None)]
    numbers = pa.table({"value": ["v"], "timestamp": pa.array([5], pa.uint32())})
    assert next(iter(records_from_arrow(numbers)))[4] == 5
    seconds = pa.table({"value": ["v"], "timestamp": pa.array([5], pa.timestamp("s"))})
    assert next(iter(records_from_arrow(seconds)))[4] == 5000


HEADER_TYPES = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("value", pa.large_string()), ("key", pa.binary())])),
    pa.map_(pa.string(), pa.binary()),
    pa.map_(pa.large_string(), pa.string()),
]


@pytest.mark.parametrize("kind", HEADER_TYPES, ids=str)
def test_headers(kind: pa.DataType) -> None:
    pairs = [[("a", "1"), ("é", None)], None, []]
    given: list[Any] = pairs
    if not pa.types.is_map(kind):
        given = [p and [{"key": k, "value": v} for k, v in p] for p in pairs]
    table = pa.table({"value": ["x", "y", "z"], "headers": pa.array(given, kind)})
    assert [r[2] for r in records_from_arrow(table)] == [(("a", b"1"), ("é", None)), (), ()]


def test_a_header_without_key() -> None:
    table = pa.table(
        {"value": ["x"], "headers": pa.array([[{"key": None, "value": b""}]], HEADER_TYPES[0])}
    )
    with pytest.raises(ArrowSchemaError, match="a header has no key"):
        list(records_from_arrow(table))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": ["a"]}, "'value' is missing; there are key"),
        ({}, "'value' is missing; there are none"),
        ({"value": ["a"], "Key": ["a"]}, "'Key' has no meaning here .* value, key, headers"),
        ({"value": [1]}, "'value' has type int64; it must be binary or string"),
        ({"value": ["a"], "key": [1.5]}, "'key' has type double"),
        ({"value": ["a"], "partition": ["0"]}, "'partition' has type string; .* an integer"),
        ({"value": ["a"], "partition": [2**31]}, "'partition': Integer value 2147483648"),
        ({"value": ["a"], "timestamp": [1.0]}, "'timestamp' has type double"),
        ({"value": ["a"], "headers": [["x"]]}, "'headers' has type list"),
        ({"value": ["a"], "headers": ["x"]}, "'headers' has type string"),
    ],
)
def test_what_is_wrong_is_said(columns: dict[str, list[Any]], reason: str) -> None:
    with pytest.raises(ArrowSchemaError, match=reason):
        records_from_arrow(pa.table(columns))


def test_twice_the_same_column() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(ArrowSchemaError, match="stands twice"):
        records_from_arrow(table)


def test_other_arrow_libraries_and_what_is_no_arrow() -> None:
    frame = polars.DataFrame({"value": ["a", None], "key": [b"k", b"l"]})
    assert [r[:2] for r in records_from_arrow(frame)] == [(b"k", b"a"), (b"l", None)]
    reader = pa.table({"value": ["a"]}).to_reader()
    assert [r[1] for r in records_from_arrow(reader)] == [b"a"]
    with pytest.raises(TypeError, match="takes Arrow data, not list"):
        records_from_arrow([b"v"])


def test_there_and_back() -> None:
    columns = decode(memoryview(encode(ROWS)), start_offset=0).columns
    batch = to_record_batch(columns, "t", 3, include_headers=True)
    records = records_from_arrow(
        batch.select(["key", "value", "partition", "timestamp", "headers"])
    )
    assert list(records) == [(k, v, headers, 3, ms) for _, ms, _, k, v, headers in ROWS]


def test_more_rows_than_are_read_at_once() -> None:
    values = [b"%d" % i for i in range(10_000)]
    assert [r[1] for r in records_from_arrow(pa.table({"value": values}))] == values
