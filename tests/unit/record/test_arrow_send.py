"""Test the conversion of Arrow data to columns to send: column types, names, slices."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import polars
import pyarrow as pa
import pytest

from odradek.record.arrow import ArrowSchemaError
from odradek.record.arrow_send import USUAL, ColumnNames, columns_from_arrow
from odradek.record.columns import Headers
from odradek.record.encoder import Rows
from odradek.record.sent_columns import InvalidRowError

Sent = tuple[bytes | None, bytes | None, Headers, int | None, int | None]


def records_from_arrow(data: Any, names: ColumnNames = USUAL) -> list[Sent]:
    """Return key, value, headers, partition and timestamp of each row for the encoder."""
    found: list[Sent] = []
    for columns in columns_from_arrow(data, names):
        assert columns.first_row == len(found)
        rows = Rows(columns, 100, 1 << 20)
        found += [rows.get(i)[:5] for i in range(columns.count)]
    return found


KEYS = [b"a", None, "é".encode()]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", [*BINARY_TYPES, *TEXT_TYPES], ids=str)
@pytest.mark.parametrize("chunked", [False, True])
def test_keys_and_values_of_every_binary_and_string_type_are_sent(
    kind: pa.DataType, chunked: bool
) -> None:
    values: list[Any] = KEYS if kind in BINARY_TYPES else ["a", None, "é"]
    batch = pa.record_batch({"value": pa.array(values, kind), "key": pa.array(values, kind)})
    data = pa.Table.from_batches([batch, batch.slice(1), batch.slice(0, 0)]) if chunked else batch
    expected = KEYS + KEYS[1:] if chunked else KEYS
    records = records_from_arrow(data)
    assert len(records) == len(expected)
    assert records == [(k, k, (), None, None) for k in expected]
    assert records_from_arrow(data.slice(1)) == [(k, k, (), None, None) for k in expected[1:]]


def test_dictionary_and_fixed_size_binary_columns_are_sent() -> None:
    coded = pa.array(["x", "y", "x", None]).dictionary_encode()
    fixed = pa.array([b"12", None, b"34", b"56"], pa.binary(2))
    assert [r[:2] for r in records_from_arrow(pa.table({"key": coded, "value": fixed}))] == [
        (b"x", b"12"),
        (b"y", None),
        (b"x", b"34"),
        (None, b"56"),
    ]


def test_partition_and_timestamp_columns_of_several_types_are_sent() -> None:
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
    assert records_from_arrow(numbers)[0][4] == 5
    seconds = pa.table({"value": ["v"], "timestamp": pa.array([5], pa.timestamp("s"))})
    assert records_from_arrow(seconds)[0][4] == 5000


HEADER_TYPES = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("value", pa.large_string()), ("key", pa.binary())])),
    pa.map_(pa.string(), pa.binary()),
    pa.map_(pa.large_string(), pa.string()),
]


@pytest.mark.parametrize("kind", HEADER_TYPES, ids=str)
def test_headers_as_maps_or_lists_of_structs_are_sent(kind: pa.DataType) -> None:
    pairs = [[("a", "1"), ("é", None)], None, []]
    given: list[Any] = pairs
    if not pa.types.is_map(kind):
        given = [p and [{"key": k, "value": v} for k, v in p] for p in pairs]
    table = pa.table({"value": ["x", "y", "z"], "headers": pa.array(given, kind)})
    assert [r[2] for r in records_from_arrow(table)] == [(("a", b"1"), ("é", None)), (), ()]


def test_a_header_without_key_is_rejected() -> None:
    table = pa.table(
        {"value": ["x"], "headers": pa.array([[{"key": None, "value": b""}]], HEADER_TYPES[0])}
    )
    with pytest.raises(InvalidRowError, match="row 0: a header has no key"):
        records_from_arrow(table)
    null = pa.table({"value": ["x"], "headers": pa.array([[None]], HEADER_TYPES[0])})
    with pytest.raises(InvalidRowError, match="row 0: a header has no key"):
        records_from_arrow(null)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": ["a"]}, "'value' is missing; the data has key"),
        ({}, "'value' is missing; the data has no columns"),
        ({"value": ["a"], "Key": ["a"]}, "'Key' is unknown; .* value, key, headers"),
        (
            {"value": ["a"], "offset": [1], "topic": ["t"]},
            r"columns 'offset', 'topic' are unknown; .* for example table.select\(\['value'\]\)",
        ),
        ({"value": [1]}, "'value' has type int64, but must be binary or string"),
        ({"value": ["a"], "key": [1.5]}, "'key' has type double"),
        ({"value": ["a"], "partition": ["0"]}, "'partition' has type string, .* an integer"),
        ({"value": ["a"], "timestamp": [1.0]}, "'timestamp' has type double"),
        ({"value": ["a"], "headers": [["x"]]}, "'headers' has type list"),
        ({"value": ["a"], "headers": ["x"]}, "'headers' has type string"),
    ],
)
def test_invalid_columns_are_rejected(columns: dict[str, list[Any]], reason: str) -> None:
    with pytest.raises(ArrowSchemaError, match=reason):
        records_from_arrow(pa.table(columns))


@pytest.mark.parametrize(
    ("column", "array", "value"),
    [
        ("partition", pa.array([0, 2**31, 2**40]), "2147483648"),
        ("timestamp", pa.array([0, 2**63, None], pa.uint64()), "9223372036854775808"),
        ("timestamp", pa.array([0, 18446744073709552], pa.timestamp("s")), "18446744073709552"),
        ("timestamp", pa.array([0, 2**62, 2**62], pa.timestamp("s", "UTC")), "4611686018427387904"),
        ("timestamp", pa.array([0, 2**62]).cast(pa.timestamp("s")).dictionary_encode(), "46116860"),
    ],
    ids=str,
)
def test_a_number_that_does_not_fit_is_reported_with_its_row(
    column: str, array: pa.Array[Any], value: str
) -> None:
    """An unchecked cast of seconds to milliseconds would overflow and yield another time."""
    batch = pa.record_batch({"value": ["v"] * len(array), column: array})
    good = batch.slice(0, 1)
    said = f"row 3: column '{column}': .*{value}"
    with pytest.raises(InvalidRowError, match=said) as told:
        records_from_arrow(pa.Table.from_batches([good, good, batch.slice(0, 2)]))
    assert told.value.row == 3


def test_the_bytes_of_a_null_row_are_ignored() -> None:
    numbers = pa.py_buffer(struct.pack("<qq", 2**62, 5))
    times = pa.Array.from_buffers(pa.timestamp("s"), 2, [pa.py_buffer(b"\x02"), numbers])
    views = pa.py_buffer(struct.pack("<i4sii", 100, b"abcd", 7, 0) * 2)
    values = pa.Array.from_buffers(pa.binary_view(), 2, [pa.py_buffer(b"\0"), views])
    batch = pa.record_batch({"value": values, "timestamp": times})
    assert [r[1::3] for r in records_from_arrow(batch)] == [(None, None), (None, 5000)]


def bad_views(kind: pa.DataType, size: int, buffer: int, offset: int) -> pa.Array[Any]:
    """Build a column of three binary views: two valid short ones, and one into 20 bytes of data."""
    good = struct.pack("<i12s", 3, b"abc")
    bad = struct.pack("<i4sii", size, b"abcd", buffer, offset)
    buffers = [None, pa.py_buffer(good + good + bad), pa.py_buffer(b"abcdefghijklmnopqrst")]
    return pa.Array.from_buffers(kind, 3, buffers)


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()], ids=str)
@pytest.mark.parametrize(
    ("size", "buffer", "offset"),
    [(100, 0, 0), (20, 0, 1), (13, 0, -4), (13, 0, 2**30), (-5, 0, 0), (13, -1, 0), (13, 7, 0)],
)
def test_string_and_binary_views_are_validated_before_they_are_read(
    kind: pa.DataType, size: int, buffer: int, offset: int
) -> None:
    """Arrow's functions would follow invalid views into other or unmapped memory."""
    array = bad_views(kind, size, buffer, offset)
    for column in ({"value": array}, {"value": ["x"] * 3, "key": array}):
        with pytest.raises(InvalidRowError, match=f"row 2: column '{list(column)[-1]}'"):
            records_from_arrow(pa.record_batch(column))
        good = [r[:2] for r in records_from_arrow(pa.record_batch(column).slice(0, 2))]
        assert good == [(b"abc" if "key" in column else None, good[0][1])] * 2
    text = array.view(pa.binary_view()) if kind == pa.string_view() else array
    names = pa.array(["a", "b", "c"])
    pairs = pa.StructArray.from_arrays([names, text], names=["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pairs)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), names, text)
    for headers in (lists, maps):
        with pytest.raises(InvalidRowError, match="column 'headers': .*[Vv]iew"):
            records_from_arrow(pa.record_batch({"value": ["x"] * 3, "headers": headers}))


def test_dictionary_indices_and_values_are_validated_before_they_are_used() -> None:
    words = pa.array([b"a", b"b"])
    short = pa.py_buffer(struct.pack("<iiii", 0, 1, 1, -2))
    kind = pa.dictionary(pa.int32(), pa.binary())
    bad_index = pa.DictionaryArray.from_buffers(kind, 4, [None, short], words)
    with pytest.raises(InvalidRowError, match="row 3: column 'value': .*-2 out of bounds"):
        records_from_arrow(pa.record_batch({"value": bad_index}))
    falling = pa.py_buffer(struct.pack("<iii", 0, 1_000_000, 3))
    text = pa.Array.from_buffers(pa.binary(), 2, [None, falling, pa.py_buffer(b"abc")])
    views = bad_views(pa.string_view(), 100, 0, 0)
    for dictionary in (text, views):
        coded = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), dictionary)
        with pytest.raises(InvalidRowError, match="^column 'value'") as told:
            records_from_arrow(pa.record_batch({"value": coded}))
        assert told.value.row is None


def test_dictionaries_of_string_or_binary_views_are_sent() -> None:
    for kind in (pa.string_view(), pa.binary_view()):
        words = pa.array(["x" * 20, "y"]).cast(kind)
        coded = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), words)
        table = pa.table({"value": coded})
        assert [r[1] for r in records_from_arrow(table)] == [b"y", None, b"x" * 20]


def test_a_repeated_column_is_rejected() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(ArrowSchemaError, match="occurs twice"):
        records_from_arrow(table)


def test_data_of_any_arrow_library_is_sent_and_other_objects_are_rejected() -> None:
    frame = polars.DataFrame({"value": ["a", None], "key": [b"k", b"l"]})
    assert [r[:2] for r in records_from_arrow(frame)] == [(b"k", b"a"), (b"l", None)]
    reader = pa.table({"value": ["a"]}).to_reader()
    assert [r[1] for r in records_from_arrow(reader)] == [b"a"]
    with pytest.raises(TypeError, match="data must be Arrow data .*, not list"):
        records_from_arrow([b"v"])


def test_slices_of_tables_with_all_columns_are_sent() -> None:
    """A slice's offset applies to all buffers, child arrays and validity bitmaps."""
    count = 40
    headers: list[Any] = [
        None if n % 7 == 0 else [{"key": f"k{n}-{i}", "value": None} for i in range(n % 3)]
        for n in range(count)
    ]
    table = pa.table(
        {
            "value": pa.array([None if n % 5 == 0 else b"%d" % n for n in range(count)]),
            "key": pa.array([None if n % 3 == 0 else f"key {n}" for n in range(count)]),
            "headers": pa.array(headers, HEADER_TYPES[0]),
            "partition": pa.array([None if n % 4 == 0 else n for n in range(count)], pa.int32()),
            "timestamp": pa.array(
                [None if n % 6 == 0 else n for n in range(count)], pa.timestamp("ms")
            ),
        }
    )
    whole = records_from_arrow(table)
    assert whole[11] == (b"key 11", b"11", (("k11-0", None), ("k11-1", None)), 11, 11)
    for start in range(count):
        for stop in (start + 1, start + 9, count):
            assert records_from_arrow(table.slice(start, stop - start)) == whole[start:stop]


def test_a_stream_of_arrow_batches_is_read_one_batch_at_a_time() -> None:
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(3):
            read.append(n)
            yield pa.record_batch({"value": [f"{n}"]})

    schema = pa.schema([("value", pa.string())])
    pieces = columns_from_arrow(pa.RecordBatchReader.from_batches(schema, batches()))
    assert read == []
    assert next(pieces).first_row == 0
    assert next(pieces).first_row == 1
    assert read == [0, 1]


def test_columns_of_the_encoders_types_are_not_copied() -> None:
    batch = pa.record_batch(
        {
            "value": [b"a", b"b"],
            "timestamp": pa.array([1, 2], pa.timestamp("ms", "UTC")),
            "partition": pa.array([0, 1], pa.int32()),
        }
    )
    (columns,) = columns_from_arrow(batch)
    assert columns.values is not None
    assert columns.partitions is not None
    assert columns.timestamps_ms is not None
    for ours, name, index in (
        (columns.values.data, "value", 2),
        (columns.values.offsets, "value", 1),
        (columns.partitions.data, "partition", 1),
        (columns.timestamps_ms.data, "timestamp", 1),
    ):
        theirs = batch.column(name).buffers()[index]
        assert theirs is not None
        assert pa.py_buffer(ours).address == theirs.address


def test_columns_to_send_may_have_custom_names() -> None:
    table = pa.table({"id": ["a"], "text": ["x"], "value": ["other"], "ts": [7]})
    named = ColumnNames(value="text", key="id", timestamp="ts")
    assert records_from_arrow(table, named) == [(b"a", b"x", (), None, 7)]
    assert records_from_arrow(table, ColumnNames(key="id")) == [(b"a", b"other", (), None, None)]
    assert records_from_arrow(table, ColumnNames(value=None, key="id")) == [
        (b"a", None, (), None, None)
    ]
    for wrong in (ColumnNames(key="nowhere"), ColumnNames(partition="p")):
        with pytest.raises(ArrowSchemaError, match="is missing; the data has id, text, value, ts"):
            columns_from_arrow(table, wrong)
    with pytest.raises(ArrowSchemaError, match="'id', 'text', 'ts' are unknown"):
        columns_from_arrow(table)
