"""Test JSON columns: rows are decoded as by `JSONDeserializer`; errors have row numbers."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.registry_server import RegistryServer
from tests.volume import examples

from odradek import ConfigurationError
from odradek.errors import DeserializationError, InvalidSchemaError, RegistryUnreachableError
from odradek.serialization import (
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    PlainJSONSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    arrow_to_json,
    json_to_arrow,
    plain_json_to_arrow,
)
from odradek.serialization.columns import column_room
from odradek.serialization.columns.column_room import LARGE
from odradek.serialization.json.lines import ArrowJson

VALUE = SerializationContext("t", MessageField.VALUE)
FRAME = b"\0\0\0\0\1"
FLIGHT = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": -(2**63)},
        "cost": {"type": "number"},
        "to": {"type": ["null", "string"], "maxLength": 3},
        "late": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "plane": {"$ref": "#/definitions/plane"},
        "maybe": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/plane"}]},
        "any": {},
        "free": {"type": "object"},
    },
    "required": ["id"],
    "definitions": {"plane": {"type": "object", "properties": {"tail": {"type": "string"}}}},
}
PLANE = pa.struct([("tail", pa.string())])
TYPES = pa.struct(
    [
        ("id", pa.int64()), ("cost", pa.float64()), ("to", pa.string()), ("late", pa.bool_()),
        ("tags", pa.list_(pa.string())), ("plane", PLANE), ("maybe", PLANE), ("any", pa.string()),
        ("free", pa.string()),
    ]
)  # fmt: skip
NOTHING = dict.fromkeys(TYPES.names)


class Answers(SchemaRegistryClient):
    """A fake registry client that returns the given schemas."""

    def __init__(self, *schemas: Any) -> None:
        super().__init__({"schema.registry.url": "http://127.0.0.1:1"})
        self._there = [Schema(json.dumps(one), "JSON") for one in schemas]

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Schema:
        return self._there[schema_id - 1]


def column(*rows: bytes | None) -> pa.Array:
    return pa.array(rows, pa.binary())


def framed(*values: Any) -> list[bytes]:
    return [FRAME + (one if isinstance(one, bytes) else json.dumps(one).encode()) for one in values]


@pytest.mark.parametrize("validate", [True, False])
def test_json_values_of_every_type_are_decoded_to_columns(validate: bool) -> None:
    full = {
        "id": 2**63 - 1, "cost": 1, "to": "JFK", "late": True, "tags": ["ä", "b"],
        "plane": {"tail": "N1", "more": 1}, "maybe": {"tail": "N2"}, "any": "text",
        "free": '{"a":[1]}', "unknown": [{}],
    }  # fmt: skip
    raw = json.dumps(full).encode().replace(b'"{\\"a\\":[1]}"', b'{"a": [1]}')
    rows = [*framed(raw, {"id": -(2**63)}, b' {"id":\n 1.0, "cost": 1e2} '), None]
    given = column(*rows)
    for one in (
        given,
        pa.array(rows, pa.large_binary()),
        pa.array(rows, pa.binary_view()),
        pa.chunked_array([given[:1], given[1:1], given[1:]]),
    ):
        read = json_to_arrow(one, Answers(FLIGHT), validate=validate)
        assert read.errors == {}
        assert read.values.type == TYPES
        first, second, third, fourth = read.values.to_pylist()
        assert first == {k: v for k, v in full.items() if k != "unknown"} | {
            "plane": {"tail": "N1"}
        }
        assert second == NOTHING | {"id": -(2**63)}
        assert third == NOTHING | {"id": 1, "cost": 100.0}
        assert fourth is None


BAD: list[tuple[bytes, str]] = [
    (b"", "the data isn't valid JSON"),
    (b"{", "the data isn't valid JSON"),
    (b'{"id":1}{"id":2}', "the data isn't valid JSON"),
    (b'{"id":1},"w":{"id":2}', "the data isn't valid JSON"),
    (b'{"id":1}}\n{"v":{"id":1}', "the data isn't valid JSON"),
    (b'{"id":1}\n{"id":1}', "the data isn't valid JSON"),
    (b'{"id":01}', "the data isn't valid JSON"),
    (b'{"id":"\xff"}', "the data isn't valid JSON"),
    (b'{"id":"1"}', "id"),
    (b'{"id":true}', "id"),
    (b'{"id":1.5}', "id"),
    (b'{"id":9223372036854775808}', "field id isn't int64"),
    (b'{"id":1,"tags":{}}', "tags"),
    (b'{"id":1,"tags":[["a"], 2]}', "tags"),
    (b'{"id":1,"late":1}', "late"),
    (b'{"id":1,"plane":"N1"}', "plane"),
    (b'{"id":1,"any":"\\ud800"}', "field any isn't string"),
    (b"[]", ""),
    (b"1", ""),
    (b'"{}"', ""),
]
"""Data that doesn't fit the schema FLIGHT, and a part of the error's text."""


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("beside", [2, 3000])
def test_an_invalid_row_does_not_affect_other_rows(validate: bool, beside: int) -> None:
    good = framed({"id": 7})
    bad = [row for row in BAD if validate or row[0] != b'{"id":1,"tags":[["a"], 2]}']
    frames = [b"", b"\0\0", b"\1" + bytes(16), b'{"id":1}']
    rows = [*good * beside, *framed(*(row for row, _ in bad)), *frames, *good * beside]
    read = json_to_arrow(column(*rows), Answers(FLIGHT), validate=validate)
    wrong = range(beside, beside + len(bad) + len(frames))
    assert list(read.errors) == list(wrong)
    assert [at for at, one in enumerate(read.values.to_pylist()) if one is None] == list(wrong)
    for at, (_, told) in zip(wrong, bad, strict=False):
        assert told in read.errors[at]
    assert "identified by a GUID" in read.errors[wrong[-2]]
    assert "Confluent's serializers" in read.errors[wrong[-1]]


def test_values_are_validated_unless_validation_is_disabled() -> None:
    """Validation errors have the same text as the deserializer's errors."""
    rows = framed({"id": 1, "to": "long"}, {"cost": 1.5}, {"id": 1, "to": "JFK"}, b"null")
    checked = json_to_arrow(column(*rows), Answers(FLIGHT))
    deserialize = JSONDeserializer(None, None, Answers(FLIGHT))
    for at in (0, 1, 3):
        with pytest.raises(DeserializationError) as caught:
            deserialize(rows[at], VALUE)
        assert checked.errors[at] == str(caught.value)
    assert list(checked.errors) == [0, 1, 3]
    free = json_to_arrow(column(*rows), Answers(FLIGHT), validate=False)
    assert free.errors == {}
    assert [one and one["to"] for one in free.values.to_pylist()] == ["long", None, "JFK", None]


def test_rows_of_several_schemas_need_a_reader_schema() -> None:
    newer = {"type": "object", "properties": {"id": {"type": "number"}}}
    registry = Answers(FLIGHT, newer, FLIGHT)
    first, other = framed({"id": 1}, {"id": 2})
    same, other = b"\0\0\0\0\3" + first[5:], b"\0\0\0\0\2" + other[5:]
    with pytest.raises(InvalidSchemaError, match="several schemas"):
        json_to_arrow(column(first, other), registry)
    assert json_to_arrow(column(first, same), registry).errors == {}
    read = json_to_arrow(column(first, other), registry, json.dumps(newer))
    assert read.values.to_pylist() == [{"id": 1.0}, {"id": 2.0}]


def test_rows_of_schemas_of_other_types_than_object_are_decoded() -> None:
    """Arrow gets each row inside a JSON object; hostile rows try to close that object."""
    for schema, kind, rows in (
        ({"type": "integer"}, pa.int64(), {b"1": 1, b" -5 ": -5, b"2.0": 2}),
        ({"type": "string"}, pa.string(), {b'"a"': "a", b'"\\n"': "\n"}),
        (True, pa.string(), {b"[1, 2]": "[1,2]", b'"a"': "a", b"null": None}),
        ({"type": "array", "items": {"type": "number"}}, pa.list_(pa.float64()), {b"[1]": [1.0]}),
    ):
        evil = [b'1,"w":2', b'"a","w":2', b'[1],"w":2', b'null,"w":2', b"1}\n"]
        for validate in (True, False):
            given = column(*framed(*rows, *evil))
            read = json_to_arrow(given, Answers(schema), validate=validate)
            assert read.values.type == kind
            assert read.values.to_pylist() == [*rows.values(), *[None] * len(evil)]
            assert list(read.errors) == list(range(len(rows), len(given)))
            for one in evil:  # separately: together, Arrow would decode no row
                given = column(*framed(*rows, one))
                assert list(json_to_arrow(given, Answers(schema), validate=validate).errors) == [
                    len(rows)
                ]


@pytest.mark.slow
def test_columns_without_a_usable_schema_contain_errors(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    server.schemas = [{"schema": '"int"'}, {"schema": '{"type": 7}', "schemaType": "JSON"}]
    rows = column(None, b"x", b"\0\0\0\0\x63{}", b"\0\0\0\0\1{}", b"\0\0\0\0\2{}")
    read = json_to_arrow(rows, registry)
    assert read.values.to_pylist() == [None] * 5
    told = ("Confluent's", "404", "type AVRO, not JSON", "isn't usable")
    for (at, why), word in zip(read.errors.items(), told, strict=True):
        assert word in why, at
    assert json_to_arrow(column(), registry).values.type == pa.null()
    assert json_to_arrow(column(), registry, json.dumps(FLIGHT)).values.type == TYPES
    with pytest.raises(InvalidSchemaError, match="isn't usable"):
        json_to_arrow(column(), registry, '{"type": 7}')
    server.rule = lambda _: (503, {})
    brief = {"schema.registry.url": server.url, "default.api.timeout.ms": 300}
    with pytest.raises(RegistryUnreachableError):
        json_to_arrow(column(b"\0\0\0\0\x07{}"), SchemaRegistryClient(brief))


PLAIN = pa.struct(
    [
        ("i", pa.int32()), ("f", pa.float32()), ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")), ("l", pa.timestamp("ms")), ("s", pa.string()),
        ("many", pa.list_(pa.struct([("x", pa.int64())]))),
    ]
)  # fmt: skip


def test_json_without_a_schema_id_is_decoded() -> None:
    row = {
        "i": 1, "f": 0.5, "d": "2026-01-02", "t": "2026-01-02T03:04:05Z", "s": "x",
        "l": "2026-01-02T03:04:05", "many": [{"x": 2**53 + 1}, None, {}],
    }  # fmt: skip
    expected = row | {
        "d": date(2026, 1, 2), "t": datetime(2026, 1, 2, 3, 4, 5, 0, UTC),
        "l": datetime(2026, 1, 2, 3, 4, 5), "many": [{"x": 2**53 + 1}, None, {"x": None}],  # noqa: DTZ001
    }  # fmt: skip
    good = json.dumps(row).encode()
    read = plain_json_to_arrow(column(good, None, b"{}", b"null", good), PLAIN)
    assert read.errors == {}
    assert read.values.type == PLAIN
    nothing = dict.fromkeys(PLAIN.names)
    assert read.values.to_pylist() == [expected, None, nothing, None, expected]
    bad = [b'{"i": 2147483648}', b'{"d": "x"}', b"", b'{"i":1},"w":{"i":2}', b'null,"w":2']
    mixed = plain_json_to_arrow(column(good, *bad, good, b'{"i":1,"i":2}'), PLAIN)
    assert list(mixed.errors) == [1, 2, 3, 4, 5]
    assert mixed.errors[1] == "field i isn't int32"
    framed = plain_json_to_arrow(column(b"\0\0\0\0\1" + good), PLAIN)
    assert "starts with a zero byte, like data that is framed with a schema id" in framed.errors[0]
    assert mixed.values.to_pylist() == [expected, *[None] * 5, expected, nothing | {"i": 2}]


@pytest.mark.parametrize("deep", ["[" * 5000 + "]" * 5000, '{"x":' * 5000 + "1" + "}" * 5000])
def test_a_row_nested_too_deeply_for_python_is_decoded_the_same_alone_and_with_others(
    deep: str,
) -> None:
    """Arrow decodes such rows in a batch, so decoding rows one by one must also accept them."""
    row, kind = f'{{"s":"a","w":{deep}}}'.encode(), pa.struct([("s", pa.string())])
    assert plain_json_to_arrow(column(row), kind).values.to_pylist() == [{"s": "a"}]
    beside = plain_json_to_arrow(column(row, b"{", row[:-1]), kind)
    assert beside.values.to_pylist() == [{"s": "a"}, None, None]
    assert list(beside.errors) == [1, 2]


@pytest.mark.parametrize(
    "kind", [pa.decimal128(5), pa.uint8(), pa.struct([("x", pa.binary())]), pa.list_(pa.null())]
)
def test_types_without_json_values_are_rejected(kind: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match="can't be read from JSON"):
        plain_json_to_arrow(column(), kind)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-5, 5), st.floats(), st.text(),
    st.sampled_from(["JFK", "\0", "\ud800", 1.0, -0.0, 2**53 + 1, 2**63, -(2**63), 1e300]),
)  # fmt: skip
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "cost", "to", "late", "tags", "plane", "tail", "any", "free", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
SPOILS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([b"", b",", b"}", b'"', b"\n", b"\xff", b"1e5"])),
    max_size=1,
)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(DOCUMENTS, SPOILS), min_size=1, max_size=6), st.booleans())
def test_arrow_decodes_the_same_values_as_python(
    rows: list[tuple[Any, Any]], validate: bool
) -> None:
    """Values and errors must be the same as if Python decoded the rows one by one."""
    texts = []
    for document, spoils in rows:
        text = bytearray(json.dumps(document, ensure_ascii=True).encode())
        for at, spoil in spoils:
            text[at : at + 1] = spoil
        texts.append(bytes(text))
    registry = Answers(FLIGHT)
    whole = json_to_arrow(column(*framed(*texts)), registry, validate=validate)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ArrowJson, "read", lambda *_, **__: None)
        alone = json_to_arrow(column(*framed(*texts)), registry, validate=validate)
    assert repr(whole.values.to_pylist()) == repr(alone.values.to_pylist())
    assert whole.errors == alone.errors


UTC_TIMES = pa.timestamp("us", "UTC")
OF_ONE_MIND = [
    (pa.timestamp("us"), b'"2026-01-02T03:04:05Z"', None),
    (pa.timestamp("s"), b'"2026-01-02T03:04+02:00"', None),
    (pa.timestamp("ms"), b'"2026-01-02 03:04:05.678"', 1767323045678),
    (pa.timestamp("us"), b'"0000-01-02T03:04:05"', None),
    (pa.timestamp("us"), b'"9999-12-31T23:59:59.999999"', 253402300799999999),
    (UTC_TIMES, b'"2026-01-02T03:04:05"', 1767323045000000),
    (UTC_TIMES, b'"2026-01-02T03:04:05.5-02:00"', 1767330245500000),
    (UTC_TIMES, b'"0001-01-01T00:00:00+02:00"', None),
    (UTC_TIMES, b'"9999-12-31T23:59:59-02:00"', None),
    (UTC_TIMES, b'"9999-12-31T23:59:59Z"', 253402300799000000),
    (pa.timestamp("ns"), b'"2026-01-02T03:04:05.123456789"', 1767323045123456789),
    (pa.timestamp("ns", "UTC"), b'"1969-12-31T23:59:59.0000001Z"', -999999900),
    (pa.date32(), b'"0000-01-02"', None),
    (pa.date32(), b'"9999-12-31"', 2932896),
    (pa.float64(), b"-0", 0.0),
    (pa.float64(), b"-0.0", -0.0),
    (pa.float64(), b"1" * 400, None),
    (pa.float32(), b"1.00000005960464477540", 1.0),
    (pa.float32(), b"3.4028235677973366e38", float("inf")),
    (pa.int64(), b'1,"w":[' + b"1" * 5000 + b"]", None),
]
"""A type, JSON that Arrow and Python would decode differently, and the expected value."""


@pytest.mark.parametrize("beside", [b"", b'{"a":'])
def test_a_row_is_decoded_the_same_alone_and_together_with_an_invalid_row(beside: bytes) -> None:
    """Arrow decodes the row if it is alone; Python decodes it if another row is invalid."""
    for kind, text, expected in OF_ONE_MIND:
        for within in (False, True):
            of = pa.struct([("a", pa.list_(kind) if within else kind)])
            row = b'{"a":[' + text + b"]}" if within else b'{"a":' + text + b"}"
            if within and b"w" in text:
                continue
            read = plain_json_to_arrow(column(*([row, beside] if beside else [row])), of)
            plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
            plain = plain if pa.types.is_temporal(kind) else kind
            shown = read.values.cast(pa.struct([("a", pa.list_(plain) if within else plain)]))
            got = shown[0].as_py() and shown[0].as_py()["a"]
            assert (0 in read.errors) == (expected is None), (kind, text, beside)
            wanted = [expected] if within and expected is not None else expected
            assert repr(got) == repr(wanted), (kind, text, beside)


def test_short_data_cannot_use_much_memory_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty object may become hundreds of fields; only rows with many objects are rejected."""
    monkeypatch.setattr(column_room, "FREE", 1 << 20)
    wide = {"type": "object", "properties": {f"f{at}": {"type": "number"} for at in range(500)}}
    schema = {"type": "object", "properties": {"w": {"type": "array", "items": wide}}}
    good, bad = framed({"w": [{}]}, {"w": [{}] * 3000})
    for validate in (True, False):
        rows = column(good, bad, good, bad)
        read = json_to_arrow(rows, Answers(schema), validate=validate)
        assert list(read.errors) == [1, 3]
        assert "in columns" in read.errors[1]
        assert [one and len(one["w"]) for one in read.values.to_pylist()] == [1, None, 1, None]
        assert pa.total_allocated_bytes() < 20 << 20
    with pytest.raises(InvalidSchemaError, match="fewer rows"):
        json_to_arrow(column(good, *[None] * 2000), Answers(wide), validate=False)


@pytest.mark.slow
def test_a_row_that_needs_too_much_memory_is_rejected_before_it_is_built() -> None:
    """The objects of 300 KB once took five minutes and 4 GB before they were rejected."""
    wide = pa.struct([(f"f{at}", pa.int64()) for at in range(500)])
    kind = pa.struct([("l", pa.list_(wide)), ("s", wide)])
    row = b'{"l":[' + b",".join([b"{}"] * 100_000) + b"]}"
    tracemalloc.start()
    try:
        read = plain_json_to_arrow(column(row), kind)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "would need more than" in read.errors[0]
    assert most < 64 << 20


@pytest.mark.slow
def test_a_row_with_many_nulls_is_decoded_by_arrow_only() -> None:
    wide = pa.struct([(f"f{at}", pa.int64()) for at in range(500)])
    kind = pa.struct([("l", pa.list_(wide))])
    items = b",".join([b"{}"] * 10_000)
    good, bad = b'{"l":[{"f1":7},' + items + b"]}", b'{"l":[{"f1":"x"},' + items + b"]}"
    read = plain_json_to_arrow(column(b'{"l":[]}', good, b"{", None, bad, b'{"l":[]}'), kind)
    assert read.values.is_null().to_pylist() == [False, False, True, True, True, False]
    assert len(read.values[1]["l"]) == 10_001
    assert list(read.errors) == [2, 4]
    assert read.errors[4] == LARGE


def test_definitions_with_exponentially_many_fields_are_rejected() -> None:
    """Each definition refers to the previous one twice: 2**30 fields."""
    made = {
        f"a{at}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/a{at - 1}"} for name in "xy"},
        }
        for at in range(1, 30)
    }
    schema = {"$ref": "#/$defs/a29", "$defs": {"a0": {"type": "integer"}} | made}
    with pytest.raises(InvalidSchemaError, match="more than 20000 types"):
        json_to_arrow(column(), Answers(), json.dumps(schema), validate=False)


def test_columns_encoded_as_json_round_trip(registry: SchemaRegistryClient) -> None:
    """Nulls are omitted, unless the schema requires the field."""
    schema = json.dumps(FLIGHT | {"required": ["id", "to"]})
    write = JSONSerializer(schema, registry, conf={"auto.register.schemas": True})
    rows = [
        NOTHING | {"id": 1, "to": "JFK", "tags": ["a"], "plane": {"tail": "N1"}, "cost": 0.5},
        None,
        NOTHING | {"id": 2, "to": "long"},
        NOTHING | {"id": 3},
    ]
    found = arrow_to_json(pa.array(rows, TYPES), write, "t")
    assert list(found.errors) == [2]
    assert "doesn't match its JSON schema" in found.errors[2]
    assert found.values[3].as_py() == FRAME + b'{"id":3,"to":null}'
    read = json_to_arrow(found.values, registry)
    assert read.values.to_pylist() == [rows[0], None, None, rows[3]]
    kind = pa.struct([("t", pa.timestamp("us", "UTC")), ("x", pa.int64())])
    moment = pa.array([{"t": datetime(2026, 1, 2, tzinfo=UTC), "x": None}, None], kind)
    plain = arrow_to_json(moment, PlainJSONSerializer(), "t")
    assert plain.values.to_pylist() == [b'{"t":"2026-01-02T00:00:00Z"}', None]
    assert plain_json_to_arrow(plain.values, kind).values.equals(moment)
    exact = arrow_to_json(pa.array([Decimal("0.50")]), PlainJSONSerializer(), "t")
    assert exact.values.to_pylist() == [b"0.50"]
    with pytest.raises(ConfigurationError, match="can't represent exactly"):
        arrow_to_json(pa.array([None], pa.time64("us")), PlainJSONSerializer(), "t")


@pytest.mark.parametrize(
    ("column", "written"),
    [
        *((pa.array(["a"], kind), b'"a"') for kind in (pa.large_string(), pa.string_view())),
        *((pa.array([b"ab"], kind), b'"YWI="') for kind in (pa.large_binary(), pa.binary(2))),
        (pa.array([b"ab"], pa.binary_view()), b'"YWI="'),
        (pa.array(["a"]).dictionary_encode(), b'"a"'),
        (pa.RunEndEncodedArray.from_arrays([1], ["a"]), b'"a"'),
        *(
            (pa.array([[1, None]], kind), b"[1,null]")
            for kind in (pa.large_list(pa.int64()), pa.list_(pa.int64(), 2))
        ),
        (pa.array([[1, None]], pa.list_view(pa.int64())), b"[1,null]"),
        (pa.array([{"s": "a"}], pa.struct([("s", pa.large_string())])), b'{"s":"a"}'),
        (pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int64())), b'{"k":1}'),
        (polars.DataFrame({"s": ["a"]}).to_struct().to_arrow(), b'{"s":"a"}'),
    ],
)
def test_all_arrow_types_of_strings_bytes_and_lists_are_written(
    column: pa.Array, written: bytes
) -> None:
    """Arrow has several types of each; Polars and pandas use types that others don't use."""
    found = arrow_to_json(column, PlainJSONSerializer(), "t")
    assert (found.values.to_pylist(), found.errors) == ([written], {})


def test_invalid_arguments_of_json_columns_are_rejected(registry: SchemaRegistryClient) -> None:
    bad: Any = None
    number: Any = 7
    calls: list[tuple[Any, str]] = [
        (lambda: json_to_arrow(bad, registry), "column must be an Arrow array"),
        (lambda: json_to_arrow(column(), bad), "registry must be a SchemaRegistryClient"),
        (lambda: json_to_arrow(column(), registry, number), "reader_schema must be a string"),
        (lambda: plain_json_to_arrow(bad, PLAIN), "column must be an Arrow array"),
        (lambda: plain_json_to_arrow(column(), bad), "kind must be an Arrow type"),
        (
            lambda: plain_json_to_arrow(column(), pa.schema([])),
            r"not Schema: pass pa.struct\(schema\)",
        ),
        (lambda: arrow_to_json(column(), bad, "t"), "serializer must be a JSONSerializer"),
        (lambda: arrow_to_json(column(), PlainJSONSerializer(), bad), "topic must be a string"),
    ]
    for call, told in calls:
        with pytest.raises(ConfigurationError, match=told):
            call()


@pytest.mark.parametrize("far", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_beyond_year_9999_in_utc_is_an_error_of_its_row(far: str) -> None:
    column = pa.array([b'"2026-11-27T00:00:00Z"', json.dumps(far).encode()])
    read = plain_json_to_arrow(column, pa.timestamp("us", "UTC"))
    assert read.values.to_pylist() == [datetime(2026, 11, 27, tzinfo=UTC), None]
    assert list(read.errors) == [1]


@pytest.mark.parametrize(
    ("column", "good"),
    [
        (
            pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
            b'{"a":1}',
        ),
        (pa.array([0, 2**62], pa.timestamp("us")), b'"1970-01-01T00:00:00"'),
        (pa.array([0, 2**30], pa.date32()), b'"1970-01-01"'),
        (pa.array([b"a", b"\xff"]).view(pa.string()), b'"a"'),
    ],
    ids=["a key twice", "a time beyond all years", "a date beyond all years", "not UTF-8"],
)
def test_a_value_that_python_cannot_represent_is_an_error_of_its_row(
    column: pa.Array, good: bytes
) -> None:
    written = arrow_to_json(column, PlainJSONSerializer(), "t")
    assert written.values.to_pylist() == [good, None]
    assert list(written.errors) == [1]


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array(["1", "2"])])
def test_a_column_without_a_binary_type_is_rejected(column: pa.Array) -> None:
    with pytest.raises(ConfigurationError, match="column must have a binary type"):
        plain_json_to_arrow(column, pa.int64())


def test_a_type_with_duplicate_field_names_is_rejected() -> None:
    kind = pa.struct([("a", pa.int64()), ("a", pa.string())])
    with pytest.raises(ConfigurationError, match="two fields of the same name"):
        plain_json_to_arrow(pa.array([b'{"a":1}']), kind)
