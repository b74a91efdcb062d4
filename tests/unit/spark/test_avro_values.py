"""Avro values decoded to columns: every type, both parse modes, readers' schemas, bad bytes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.spark.avro_examples import (
    EVERYTHING,
    READ,
    VARIANTS,
    WRITTEN,
    encoded,
    logical,
    record,
)
from tests.unit.spark.conftest import options
from tests.volume import examples

from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.value_options import parse_value_format
from odradek.spark.values.avro_values import AvroDecoder, AvroFormat
from odradek.spark.values.decoding import TOGETHER, ValueDecodeError
from odradek.spark.values.schema import arrow_schema, full_schema


def decoder(schema: Any = EVERYTHING, read_as: Any = None, **more: Any) -> AvroDecoder:
    form = AvroFormat(json.dumps(schema), json.dumps(read_as) if read_as else None, **more)
    return form.decoder(
        arrow_schema(full_schema(False, {"value": form.schema()})).field("value").type
    )


def decoded(*values: bytes | None, schema: Any = EVERYTHING, **more: Any) -> list[Any]:
    made = decoder(schema, **more)
    found = made.decode(pa.array([b"before", *values], pa.binary()).slice(1))
    found.validate(full=True)
    rows: list[Any] = found.to_pylist()
    return rows


def test_every_avro_type_is_decoded() -> None:
    values = [encoded(WRITTEN), None, *(encoded(WRITTEN | given) for given, _ in VARIANTS)]
    assert decoded(*values) == [READ, None, *(READ | wanted for _, wanted in VARIANTS)]
    assert decoded() == []
    assert decoded(*values, fail_fast=True) == decoded(*values)


SMALL = record(a="int", b="string")
GOOD = encoded({"a": 1, "b": "x"}, SMALL)
MISFITS = [
    (b"", "truncated"),
    (b"\x02", "truncated"),
    (GOOD + b"\x00", "1 byte left over after the record"),
    (b"\x02\x02\xff", "codec can't decode"),
    (b"\x80\x80\x80\x80\x20\x00", "4294967296"),
    (b"\x02" + b"\xfe" * 9 + b"\x01", ""),
    (b"\xff" * 20, ""),
]


@pytest.mark.parametrize(("value", "told"), MISFITS)
def test_a_malformed_value_becomes_nulls_but_raises_in_failfast_mode(
    value: bytes, told: str
) -> None:
    good, nothing = {"a": 1, "b": "x"}, {"a": None, "b": None}
    assert decoded(GOOD, value, None, GOOD, schema=SMALL) == [good, nothing, None, good]
    with pytest.raises(ValueDecodeError) as caught:
        decoded(GOOD, None, value, schema=SMALL, fail_fast=True)
    assert caught.value.row == 2
    assert told in caught.value.why


def test_out_of_range_timestamps_and_decimals_become_null() -> None:
    far = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # the largest Avro long
    times = record(t=logical("long", "timestamp-millis"))
    assert decoded(b"\x02", far, schema=times)[1] == {"t": None}
    digits = record(d=logical("bytes", "decimal", precision=4, scale=2))
    most, more = b"\x04\x27\x0f", b"\x04\x27\x10"  # 9999 and 10000
    low, lower = b"\x04\xd8\xf1", b"\x04\xd8\xf0"
    long = b"\x14" + b"\x00" * 9 + b"\x01"
    found = decoded(most, more, low, lower, long, b"\x00", schema=digits)
    wanted = [Decimal("99.99"), None, Decimal("-99.99"), None, Decimal("0.01"), None]
    assert [row["d"] for row in found] == wanted
    with pytest.raises(ValueDecodeError, match="more than 4 digits") as caught:
        decoded(most, more, schema=digits, fail_fast=True)
    assert caught.value.row == 1


def test_a_value_with_an_impossible_length_becomes_null() -> None:
    for kind, value in (
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("bytes", b"\x80\x80\x80\x80\x80\x80\x01"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01" + b"\x00"),
        ({"type": "map", "values": "null"}, b"\x80\x80\x80\x80\x80\x80\x01"),
        (["null", "string"], b"\x7e"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x7e"),
    ):
        assert decoded(value, schema=record(a=kind)) == [{"a": None}], kind


def test_the_last_of_duplicate_map_keys_is_kept() -> None:
    maps = record(m=["null", {"type": "map", "values": "int"}])
    twice = b"\x02\x06\x02k\x02\x02l\x04\x02k\x06\x00"
    once = encoded({"m": {"k": 9}}, maps)
    found = decoded(once, twice, b"\x00", None, once, schema=maps)
    wanted = [[("k", 9)], [("l", 2), ("k", 3)], None]
    assert [row and row["m"] for row in found] == [*wanted, None, [("k", 9)]]


@pytest.mark.parametrize("fail_fast", [False, True])
def test_the_confluent_wire_format_is_checked_and_removed(fail_fast: bool) -> None:
    def framed(number: int, magic: int = 0) -> bytes:
        return struct.pack(">BI", magic, number) + GOOD

    good = {"a": 1, "b": "x"}
    more: dict[str, Any] = {"schema": SMALL, "confluent": True, "fail_fast": fail_fast}
    assert decoded(framed(7), None, framed(2**31), **more) == [good, None, good]
    assert decoded(framed(7), framed(9), ids=(7, 9), **more) == [good, good]
    for value, told in (
        (framed(8), "schema id 8 isn't in option avroSchemaId"),
        (framed(7, magic=1), "the value doesn't start with a zero byte"),
        (b"\x00\x00\x00\x07", "the value doesn't start with a zero byte"),
        (GOOD, "the value doesn't start with a zero byte"),
    ):
        if fail_fast:
            with pytest.raises(ValueDecodeError, match=told):
                decoded(value, ids=(7,), **more)
        else:
            assert decoded(value, ids=(7,), **more) == [{"a": None, "b": None}]


def test_values_are_converted_to_the_reader_schema() -> None:
    union = ["null", "int", {"type": "array", "items": "string"}]
    written = record("old.R", a="int", gone="string", u=union, s="string", e="boolean")
    fields = [
        {"name": "s2", "type": "string", "aliases": ["s"]},
        {"name": "a", "type": ["null", "double"]},
        {"name": "raw", "type": "bytes", "default": "\u00ff\u0001"},
        {"name": "m", "type": {"type": "map", "values": "bytes"}, "default": {"k": "\u00fe"}},
        {"name": "n", "type": ["null", "string"], "default": None},
        {"name": "r", "type": record("Q", x="int", y="string"), "default": {"x": 1, "y": "z"}},
        {"name": "t", "type": logical("long", "timestamp-millis"), "default": 1000},
        {"name": "u", "type": [{"type": "array", "items": "string"}, "int", "null"]},
        {"name": "v", "type": ["int", "string"], "default": 4},
    ]
    read_as = {"type": "record", "name": "new.R", "fields": fields}
    value = {"a": 5, "gone": "x", "u": 3, "s": "text", "e": True}
    values = [encoded(value | {"u": u}, written) for u in (3, ["x"], None)]
    found = decoded(*values, None, b"\x00", schema=written, read_as=read_as)
    wanted = {
        "s2": "text",
        "a": 5.0,
        "raw": b"\xff\x01",
        "m": [("k", b"\xfe")],
        "n": None,
        "r": {"x": 1, "y": "z"},
        "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "u": {"member0": None, "member1": 3},
        "v": {"member0": 4, "member1": None},
    }
    others = [{"member0": ["x"], "member1": None}, None]
    assert found[:4] == [wanted, *(wanted | {"u": other} for other in others), None]
    assert found[4] == dict.fromkeys(wanted)


def test_a_union_branch_or_enum_symbol_that_the_reader_schema_lacks_is_malformed() -> None:
    letters = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record(s=["null", "string"], e=letters, u=["int", "boolean"])
    read_as = record(s="string", e=letters | {"symbols": ["A"]}, u=["int", "bytes"])
    good: dict[str, Any] = {"s": "x", "e": "A", "u": 1}
    rows = [good, good | {"s": None}, good | {"e": "B"}, good | {"u": True}]
    values = [encoded(row, schema) for row in rows]
    found = decoded(*values, schema=schema, read_as=read_as)
    assert found == [good | {"u": {"member0": 1, "member1": None}}, *[dict.fromkeys(good)] * 3]
    for row, value in enumerate(values):
        if row:
            with pytest.raises(ValueDecodeError):
                decoded(value, schema=schema, read_as=read_as, fail_fast=True)


@pytest.mark.parametrize(
    ("written", "read_as", "told"),
    [
        (
            record(a="int"),
            record(a="string"),
            "field a was written as int, which can't be read as st",
        ),
        (record(a="long"), record(a="int"), "written as long"),
        (
            record(a="int"),
            record(b="int"),
            "field b is missing in the writer schema and has no default",
        ),
        (
            record(a="int"),
            record("Q", a="int"),
            "types R and Q, and neither is an alias of the other",
        ),
        (record(a=["null", "int"]), record(a=["null", "string"]), None),
        (
            record(a=["string", "int"]),
            record(a="boolean"),
            "field a was written as a union of several types",
        ),
        (record(a="string"), record(a=["int", "string"]), "written as string"),
        (
            record(a={"type": "fixed", "name": "F", "size": 2}),
            record(a={"type": "fixed", "name": "F", "size": 3}),
            "field a was written with 2 bytes, not 3",
        ),
        (
            record(a={"type": "array", "items": "int"}),
            record(a={"type": "array", "items": "boolean"}),
            "written as int",
        ),
        (record(a="int", b="int"), record(a="double"), None),
    ],
)
def test_only_compatible_reader_schemas_are_accepted(
    written: Any, read_as: Any, told: str | None
) -> None:
    form = AvroFormat(json.dumps(written), json.dumps(read_as))
    if told is None:
        form.schemas()
        return
    with pytest.raises(
        OptionError, match="avroSchema can't read values written with option valueSchema"
    ) as c:
        form.schemas()
    assert told in str(c.value)


def test_malformed_values_among_many_do_not_affect_other_rows() -> None:
    schema = record(t=logical("long", "timestamp-millis"))
    rows = [encoded({"t": n}, schema) for n in range(2 * TOGETHER)]
    rows[TOGETHER + 5] = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    rows[7] = b"bad"
    found = decoder(schema).decode(pa.array(rows, pa.binary())).field("t").cast(pa.int64())
    wanted = [None if n in (7, TOGETHER + 5) else n * 1000 for n in range(2 * TOGETHER)]
    assert found.to_pylist() == wanted


PLAIN = st.sampled_from(["boolean", "int", "long", "double", "bytes", "string"])
VALUES = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=9),
    "string": st.text(max_size=9),
}


def extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
        PLAIN.map(lambda kind: ["null", kind]),
    )


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.none() | values_of(kind[1])
    if isinstance(kind, str):
        return VALUES[kind]
    if kind["type"] == "array":
        return st.lists(values_of(kind["items"]), max_size=3)
    return st.dictionaries(st.text(max_size=3), values_of(kind["values"]), max_size=3)


def as_arrow_gives(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, as_arrow_gives(each)) for key, each in value.items()]
    return [as_arrow_gives(each) for each in value] if isinstance(value, list) else value


TYPES = st.recursive(PLAIN, extended, max_leaves=4)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.lists(TYPES, min_size=1, max_size=4))
def test_random_values_are_decoded_as_they_were_encoded(
    data: st.DataObject, types: list[Any]
) -> None:
    schema = record(**{f"f{n}": kind for n, kind in enumerate(types)})
    one = st.fixed_dictionaries({f"f{n}": values_of(kind) for n, kind in enumerate(types)})
    rows = data.draw(st.lists(one | st.none(), max_size=4))
    values = [None if row is None else encoded(row, schema) for row in rows]
    wanted = [row and {name: as_arrow_gives(value) for name, value in row.items()} for row in rows]
    assert decoded(*values, schema=schema, fail_fast=True) == wanted


OF_EVERYTHING = decoder()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=4), st.integers(0, 200), st.binary(max_size=10))
def test_random_bytes_are_decoded_without_an_error(
    noise: list[bytes], at: int, patch: bytes
) -> None:
    whole = encoded(WRITTEN)
    values = [*noise, whole[:at] + patch + whole[at + len(patch) :], whole[:at], whole]
    found = OF_EVERYTHING.decode(pa.array(values, pa.binary()))
    found.validate(full=True)
    assert found[-1].as_py() == READ
    assert found.nbytes < 100_000


AVRO = {"valueformat": "avro", "valueschema": json.dumps(SMALL)}


@pytest.mark.parametrize(
    ("given_options", "told"),
    [
        ({"valueformat": "avro"}, "needs option valueSchema (the Avro schema"),
        ({"valueformat": "avro"}, "or option schemaRegistryUrl"),
        ({"valueformat": "avro", "valueschema": "a int"}, "option valueSchema isn't JSON"),
        (AVRO | {"avroschema": "{"}, "option avroSchema isn't JSON"),
        (
            AVRO | {"avroschema": json.dumps(record("Q", a="int"))},
            "neither is an alias of the other",
        ),
        (AVRO | {"avrowireformat": "glue"}, "avroWireFormat must be plain or confluent"),
        (AVRO | {"avroschemaid": "7"}, "needs avroWireFormat=confluent"),
        (
            AVRO | {"avrowireformat": "confluent", "avroschemaid": "x"},
            "avroSchemaId must be a whole",
        ),
        (AVRO | {"valuemode": "SKIP"}, "PERMISSIVE or DROPMALFORMED or FAILFAST"),
        ({"avroschema": "{}"}, "avroSchema needs valueFormat=avro"),
        ({"valueformat": "json", "avroschemaid": "1"}, "needs valueFormat=avro"),
    ],
)
def test_invalid_avro_options_are_rejected(given_options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_value_format(given_options)
    assert told in str(caught.value)


def test_the_error_for_a_missing_fastavro_names_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(
        OptionError, match=r"valueFormat=avro needs .*pip install 'odradek\[avro\]'"
    ):
        parse_value_format(AVRO)


def test_avro_options_of_the_source_are_parsed() -> None:
    """Values that don't fit the schema are handled as for JSON: see test_values."""
    given = {"valueFormat": "Avro", "valueSchema": json.dumps(SMALL), "valueMode": "failfast"}
    found = options(**given, avroWireFormat="Confluent", avroSchemaId="7, 9")
    assert found.formats["value"] == AvroFormat(json.dumps(SMALL), None, True, (7, 9), True)
    schema = full_schema(False, found.decoded_types())
    assert schema["value"].dataType.simpleString() == "struct<a:int,b:string>"


@pytest.mark.slow
def test_a_missing_avro_schema_is_reported_without_pyspark_installed() -> None:
    """`odradek pipeline plan` checks options without PySpark."""
    program = """
import sys
sys.modules["pyspark"] = sys.modules["pyarrow"] = None
from odradek.spark.options.source_options import parse_options
given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "valueFormat": "avro"}
try:
    parse_options(given, "batch")
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("option valueFormat=avro needs option valueSchema")
