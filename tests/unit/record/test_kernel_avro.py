"""Test which rows the Avro kernel decodes, and which it leaves to fastavro to decode."""

from __future__ import annotations

import json
from array import array
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from tests.fuzz.avro import Answers, Avros, parsed, without_kernel
from tests.fuzz.kernels import native
from tests.fuzz.sent import exact

from odradek.common.errors import KafkaError
from odradek.serialization import avro_to_arrow
from odradek.serialization.avro.plan import program
from odradek.serialization.avro.types import arrow_type
from odradek.serialization.columns.column_layout import Columns, array_of
from odradek.serialization.wire_format import varint

kernel = native("kernel_columns")
FRAME = b"\0\0\0\0\1"
CUT = {
    "type": "record",
    "name": "Cut",
    "fields": [
        {"name": "s", "type": "string"},
        {"name": "f", "type": {"type": "fixed", "name": "One", "size": 1}},
    ],
}
"""A string, then a fixed field whose byte could continue the string's last character."""
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 3}


def followed(kind: Any) -> Any:
    """Return the schema of a record with a field of type `kind` and then an int field."""
    fields = [{"name": "x", "type": kind}, {"name": "y", "type": "int"}]
    return {"type": "record", "name": "Followed", "fields": fields}


def numbers(*ends: int) -> Any:
    return exact(array("i", ends).tobytes())


def filled(
    schema: Any, *payloads: bytes, most: int = 1 << 30, room: int = 1 << 30
) -> tuple[list[Any], list[int]]:
    """Return the values that the kernel decodes, and the indexes of rows left to fastavro."""
    written = parsed(schema)
    columns = Columns(arrow_type(written))
    reader = kernel.ColumnReader(columns.layout(), most)
    reader.add(1, *program(written, None, columns))
    rows = [FRAME + one for one in payloads]
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    marks = bytearray(len(rows))
    size = len(rows)
    data = exact(b"".join(rows))
    assert reader.read(data, numbers(*ends), None, False, 0, size, 0, marks, room) == size
    return array_of(columns, reader).to_pylist(), [at for at, mark in enumerate(marks) if mark]


def a_map(*keys: str) -> bytes:
    items = b"".join(bytes((2 * len(one),)) + one.encode() + b"\2" for one in keys)
    return bytes((2 * len(keys),)) + items + b"\0"


def test_rows_in_the_usual_encoding_are_decoded() -> None:
    """Rows left to fastavro are only slower, so no other test would notice too many of them."""
    text = "plain, ä € \U0001f600 and a long rest".encode()
    size = bytes((2 * len(text),))
    assert filled("string", size + text) == ([text.decode()], [])
    keys = [f"k{at}" for at in range(30)]
    found, left = filled(
        {"type": "map", "values": "int"}, a_map(*keys), a_map("a", "b"), a_map("a")
    )
    assert left == []
    assert [len(one) for one in found] == [30, 2, 1]
    assert filled({"type": "map", "values": "int"}, a_map("k1", "k"))[1] == []
    blocks = b"\1\2\2" + b"\2\4" + b"\0"  # a block with its size in bytes, a block without
    assert filled({"type": "array", "items": "int"}, blocks) == ([[1, 2]], [])
    found, left = filled(MONEY, b"\4\3\xe7", b"\4\xfc\x19", b"\0")
    assert ([str(one) for one in found], left) == (["999", "-999", "0"], [])


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ("boolean", b"\2"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("long", b"\xff" * 9 + b"\2"),
        ("string", b"\4\xc3\x28"),
        ("string", b"\6\xed\xa0\x80"),
        ("string", b"\4\xc0\x80"),
        ("string", b"\4\xc1\x80"),
        ("string", b"\6\xe0\x9f\x80"),
        ("int", b"\x81\x80\x80\x80\x10"),
        (followed("bytes"), b"\1"),
        (followed(MONEY), b"\1"),
        (MONEY, b"\x12\1" + bytes(8)),
        ("string", b"\x08\xf5\x80\x80\x80"),
        ("string", b"\6\xe2\x82\x28"),
        ("string", b"\x08\xf0\x9f\x98\x28"),
        (CUT, b"\2\xc3\x80"),
        ("bytes", b"\1"),
        ("int", b"\2\2"),
        ({"type": "map", "values": "int"}, a_map("k", "k")),
        ({"type": "map", "values": "int"}, a_map(*map(str, range(20)), "7")),
        ({"type": "array", "items": "int"}, b"\1\4\2\0"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1"),
        (MONEY, b"\4\3\xe8"),
        (MONEY, b"\x22\1" + bytes(15) + b"\5"),
        ({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\x7f"),
    ],
)
def test_rows_in_unusual_encodings_are_left_to_fastavro(schema: Any, payload: bytes) -> None:
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "s", "type": "string"}, {"name": "x", "type": schema}],
    }
    found, left = filled(record, b"\2a" + payload, b"\2b" + payload)
    assert (found, left) == ([None, None], [0, 1])


@pytest.mark.parametrize("more", [0, 20], ids=["few keys", "hash table"])
@pytest.mark.parametrize(
    "keys", [("ab", "a"), ("a", "ab"), ("a", "aa"), ("a", ""), ("", "a"), ("\0", ""), ("a\0", "a")]
)
def test_map_keys_that_are_prefixes_of_others_are_different_keys(
    keys: tuple[str, str], more: int
) -> None:
    others = [f"x{at}" for at in range(more)]
    found, left = filled({"type": "map", "values": "int"}, a_map(keys[0], *others, keys[1]))
    assert left == []
    assert [key for key, _ in found[0]] == [keys[0], *others, keys[1]]
    twice = (keys[0], keys[1], *others, keys[0])
    assert filled({"type": "map", "values": "int"}, a_map(*twice)) == ([None], [0])


def slot(key: str, size: int) -> int:
    """Return the index of a map key in the kernel's hash table, which uses FNV-1a."""
    found = 0xCBF29CE484222325
    for byte in key.encode():
        found = (found ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return (found ^ found >> 29) & (size - 1)


def test_rows_with_many_colliding_map_keys_are_left_to_fastavro() -> None:
    """Comparing each key with all others takes quadratic time: minutes for a megabyte."""
    crowd: list[str] = []
    number = 0
    while len(crowd) < 40:
        number += 1
        if slot(str(number), 128) == 7:
            crowd.append(str(number))
    schema = {"type": "map", "values": "int"}
    assert filled(schema, a_map(*crowd)) == ([None], [0])
    assert filled(schema, a_map(*crowd[:20]))[1] == []  # few colliding keys are accepted
    found = avro_to_arrow(pa.array([FRAME + a_map(*crowd)]), Answers([schema]))
    assert (len(found.values[0]), found.errors) == (40, {})


def test_a_row_that_does_not_fit_into_a_column_is_left_to_fastavro() -> None:
    """A column's offsets have 32 bits; the test lowers the limit of its size."""
    assert filled("string", b"\6abc", b"\4de", b"\2g", most=4) == (["abc", None, "g"], [1])
    items = {"type": "array", "items": "int"}
    assert filled(items, b"\4\2\2\0", b"\4\2\2\0", b"\2\2\0", most=3) == ([[1, 1], None, [1]], [1])


def test_rows_that_need_too_much_memory_are_left_to_fastavro_and_later_rows_are_decoded() -> None:
    """Each null, a byte in Avro, takes 500 bytes of columns; a null in the last rows takes none."""
    fields = [{"name": f"f{at}", "type": ["null", "double"]} for at in range(60)]
    wide = ["null", {"type": "record", "name": "Wide", "fields": fields}]
    items = {"type": "array", "items": wide}
    one = b"\2\2" + b"\0" * 60 + b"\0"
    many = varint(1000) + bytes(1001)
    found, left = filled(items, one, many, one, many, b"\2\0\0", room=200_000)
    assert left == [1, 3]
    read = [{field["name"]: None for field in fields}]
    assert found == [read, None, read, None, [None]]
    assert filled(items, many, room=1_000_000)[1] == []
    assert filled(wide, *[b"\0"] * 1000, room=200_000)[0] == [None] * 1000


def test_invalid_arguments_of_the_column_reader_are_rejected() -> None:
    columns = Columns(pa.int32())
    made = program("int", None, columns)
    row = exact(FRAME + b"\2")
    for ends in ((0, 7), (0, 1 << 30), (-1, 6), (6, 0), (3, 6)):
        reader = kernel.ColumnReader(columns.layout())
        reader.add(1, *made)
        marks = bytearray(1)
        assert reader.read(row, numbers(*ends), None, False, 0, 1, 0, marks) == 1
        assert marks == b"\1", ends
    reader = kernel.ColumnReader(columns.layout())
    one = numbers(0, 6)
    for arguments in (
        (row, numbers(0), None, False, 0, 1, 0, bytearray(1)),
        (row, one, None, True, 0, 1, 0, bytearray(1)),
        (row, one, b"", False, 0, 1, 0, bytearray(1)),
        (row, one, None, False, 0, 1, 0, bytearray(0)),
        (row, one, None, False, -1, 1, 0, bytearray(1)),
        (row, one, None, False, 0, -1, 0, bytearray(1)),
        (row, one, None, False, 0, 1, -1, bytearray(1)),
    ):
        with pytest.raises(ValueError, match=r"offsets|bits|bytes|negative"):
            reader.read(*arguments)
    for number in (-1, 1):
        with pytest.raises(ValueError, match="no such column"):
            reader.column(number)
    with pytest.raises(ValueError, match="at least one column"):
        kernel.ColumnReader(b"")


def test_reading_stops_at_an_unknown_schema_and_names_its_id() -> None:
    columns = Columns(pa.int32())
    reader = kernel.ColumnReader(columns.layout())
    rows = exact(b"\0\0\0\0\1\2" + b"\0\0\0\0\2\4" + b"\0\0\0\0\1\6")
    marks = bytearray(3)
    arguments = (rows, numbers(0, 6, 12, 18), None, False, 0, 3)
    assert reader.read(*arguments, 0, marks) == 0
    assert reader.unknown_schema == 1
    reader.add(1, *program("int", None, columns))
    assert reader.read(*arguments, 0, marks) == 1
    assert reader.unknown_schema == 2
    reader.add(2, None)
    assert reader.read(*arguments, 1, marks) == 3
    assert marks == b"\0\1\0"
    assert array_of(columns, reader).to_pylist() == [1, None, 3]


def test_at_most_a_thousand_schemas_are_cached() -> None:
    """More schemas in the data must neither use memory for ever nor slow down each row."""
    columns = Columns(pa.int32())
    reader = kernel.ColumnReader(columns.layout())
    made = program("int", None, columns)
    for schema in range(1, 1001):
        reader.add(schema, *made)
    row = (exact(FRAME + b"\2"), numbers(0, 6), None, False, 0, 1, 0, bytearray(1))
    assert reader.read(*row) == 1
    reader.add(1001, None)
    assert reader.read(*row) == 0
    assert reader.unknown_schema == 1
    reader.add(1, *made)
    assert reader.read(*row) == 1
    assert array_of(columns, reader).to_pylist() == [1, 1]


def test_every_kind_of_arrow_binary_column_is_read() -> None:
    rows = [FRAME + b"\2", None, FRAME + b"\4"]
    plain = pa.array(rows, pa.binary())
    for column in (plain, plain.cast(pa.large_binary()), plain.cast(pa.binary_view()), plain[1:]):
        expected = [1, None, 2][-len(column) :]
        assert avro_to_arrow(column, Answers(["int"])).values.to_pylist() == expected
        with without_kernel():
            assert avro_to_arrow(column, Answers(["int"])).values.to_pylist() == expected


class RecordingReader:
    """A reader that records which rows it left to fastavro."""

    marks: list[bytearray] = []  # noqa: RUF012 - of one test

    def __init__(self, layout: bytes) -> None:
        self._reader = kernel.ColumnReader(layout)

    def read(self, *arguments: Any) -> Any:
        self.marks.append(arguments[7])
        return self._reader.read(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def test_most_random_rows_are_decoded_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property tests would compare nothing if the kernel left all rows to fastavro."""
    monkeypatch.setattr("odradek.serialization.columns.framed_rows.column_reader", RecordingReader)
    taken = there = 0
    for seed in range(20):
        case = Avros(seed).case()
        wanted = None if case.wanted is None else json.dumps(case.wanted)
        with suppress(KafkaError):  # this schema can't be converted to a column
            avro_to_arrow(pa.array(case.rows, pa.binary()), Answers(case.written), wanted)
            there += len(case.rows)
            taken += len(case.rows) - sum(RecordingReader.marks[-1])
    assert taken > there // 2
