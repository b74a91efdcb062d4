"""JSON values decoded to columns: a batch at once, or one by one if a value doesn't fit."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.spark.conftest import P0, options

from odradek.serialization.columns.column_room import LARGE
from odradek.spark.checkpoint_errors import OptionError, UndecodableValueError
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.value_options import parse_value_format
from odradek.spark.tasks.reading import RangeReader
from odradek.spark.values.decoding import TOGETHER, JsonDecoder, ValueDecodeError
from odradek.spark.values.schema import arrow_schema, check_schema, full_schema
from odradek.spark.values.value_schema import value_schema

DDL = "a bigint, b string, t timestamp, d date, n double, l array<int>, s struct<q: boolean>"


def decoder(ddl: str = DDL, *, fail_fast: bool = False) -> JsonDecoder:
    schema = full_schema(False, {"value": value_schema(ddl)})
    target: Any = arrow_schema(schema).field("value").type
    return JsonDecoder(target, fail_fast=fail_fast)


def decoded(*given: bytes | None, ddl: str = DDL, **more: Any) -> list[Any]:
    found = decoder(ddl, **more).decode(pa.array(given, pa.binary()))
    assert (
        found.type
        == arrow_schema(full_schema(False, {"value": value_schema(ddl)})).field("value").type
    )
    rows: list[Any] = found.to_pylist()
    return rows


ROWS: list[tuple[bytes | None, dict[str, Any] | None]] = [
    (
        (
            b'{"a":1,"b":"x","t":"2024-01-01T01:00:00+01:00","d":"2024-01-02","n":1.5,"l":[1,null],'
            b'"s":{"q":true},"more":[{}]}'
        ),
        {
            "a": 1,
            "b": "x",
            "t": datetime(2024, 1, 1, tzinfo=UTC),
            "d": date(2024, 1, 2),
            "n": 1.5,
            "l": [1, None],
            "s": {"q": True},
        },
    ),
    (None, None),
    (b" {\n} ", {}),
    (b'{"a":null,"n":3}', {"n": 3.0}),
    (b'{"t":"2024-01-01T00:00:00"}', {"t": datetime(2024, 1, 1, tzinfo=UTC)}),
]
MISFITS: list[tuple[bytes, dict[str, Any]]] = [
    (b"{", {}),
    (b"[1]", {}),
    (b"5", {}),
    (b"{}{}", {}),
    (b'{}}\n{"v":{}', {}),
    (b'{"b":"\xff"}', {}),
    (b'{"a":"x","b":"kept"}', {"b": "kept"}),
    (b'{"a":1.5,"n":2}', {"n": 2.0}),
    (b'{"a":9223372036854775808}', {}),
    (b'{"s":{"q":1},"a":7}', {"s": {"q": None}, "a": 7}),
    (b'{"l":[1,"x"],"a":7}', {"a": 7}),
    (b'{"d":"no date","a":7}', {"a": 7}),
    (b'{"b":"\\ud800","a":7}', {"a": 7}),
    (b'{"b":{"x":"\\udfff"},"a":7}', {"a": 7}),
]
EMPTY: dict[str, Any] = dict.fromkeys("abtdnls")


def full(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if row is None else {**EMPTY, **row}


def test_valid_values_of_a_batch_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonDecoder, "_decoded", None)  # decoding one by one would fail
    assert decoded(*(given for given, _ in ROWS)) == [full(row) for _, row in ROWS]
    assert decoded() == []


@pytest.mark.parametrize(("given", "wanted"), MISFITS)
def test_a_malformed_value_does_not_affect_other_rows(given: bytes, wanted: dict[str, Any]) -> None:
    found = decoded(ROWS[0][0], given, b'{"a":3}')
    assert found == [full(ROWS[0][1]), full(wanted), full({"a": 3})]


@pytest.mark.parametrize("given", [given for given, _ in MISFITS])
def test_failfast_mode_raises_an_error_that_names_the_row(given: bytes) -> None:
    with pytest.raises(ValueDecodeError) as caught:
        decoded(b'{"a":3}', given, fail_fast=True)
    assert caught.value.row == 1


def test_empty_values_and_null_are_decoded_as_by_from_json() -> None:
    given = (b'{"a":3}', b"", b" ", b"null", b" null ", None)
    wanted = [full({"a": 3}), None, None, full({}), full({}), None]
    assert decoded(*given) == decoded(*given, fail_fast=True) == wanted


def test_decoding_values_together_and_one_by_one_returns_the_same_rows() -> None:
    given = [g for g, _ in ROWS] * 2
    together = decoded(*given)
    apart = decoded(*given, b"{", fail_fast=False)[:-1]
    assert together == apart


def test_a_malformed_row_does_not_change_how_other_rows_are_decoded() -> None:
    """Unlike one-by-one decoding, Arrow accepts time zones in timestamp_ntz and the year 0."""
    ddl = "a int, l timestamp_ntz, d date, f float"
    deep = b"[" * 3000 + b"]" * 3000
    for given, wanted in (
        (b'{"a":1,"l":"2024-01-01T00:00:00Z"}', {"a": 1}),
        (b'{"a":1,"d":"0000-01-01"}', {"a": 1}),
        (b'{"a":1,"f":3.4028235677973366e38}', {"a": 1, "f": float("inf")}),
        (b'{"a":1,"q":' + deep + b"}", {"a": 1}),
    ):
        row = dict.fromkeys("aldf") | wanted
        assert decoded(given, ddl=ddl) == decoded(given, b"{", ddl=ddl)[:1] == [row]


def test_a_small_value_that_would_need_much_memory_is_malformed() -> None:
    """Decoding a record of 300 KB of empty objects once took 400 MB, which killed an executor."""
    ddl = f"a int, l array<struct<{', '.join(f'f{at}: bigint' for at in range(500))}>>"
    wide = b'{"a":1,"l":[' + b",".join([b"{}"] * 100_000) + b"]}"
    made = decoder(ddl)
    found = made.decode(pa.array([b'{"a":1}', wide, b'{"a":2,"l":[{"f1":3}]}']))
    assert found.field("a").to_pylist() == [1, None, 2]
    assert found[2].as_py()["l"][0]["f1"] == 3
    assert "300013 bytes would need more than" in made.bad.pop(1)
    assert made.bad == {}
    assert found.nbytes < 100_000


@pytest.mark.slow
def test_a_row_with_many_nulls_is_decoded_only_by_arrow() -> None:
    """One-by-one decoding in Python would take 20 s for this row of 30 KB."""
    ddl = f"l array<struct<{', '.join(f'f{at}: bigint' for at in range(500))}>>"
    items = b",".join([b"{}"] * 10_000)
    good, bad = b'{"l":[{"f1":7},' + items + b"]}", b'{"l":[{"f1":"x"},' + items + b"]}"
    made = decoder(f"{ddl}, _corrupt_record string")
    found = made.decode(pa.array([b'{"l":null}', good, b"{", bad, b'{"l":[]}']))
    lengths = pc.list_value_length(found.field("l")).to_pylist()
    assert lengths == [None, 10_001, None, None, 0]
    assert found[1]["l"][0]["f1"].as_py() == 7
    corrupt = found.field("_corrupt_record").to_pylist()
    assert corrupt == [None, None, "{", bad.decode(), None]
    assert list(made.bad) == [2, 3]
    assert made.bad[3] == LARGE


def test_a_string_column_contains_the_json_text_of_any_value() -> None:
    found = decoded(b'{"b":{"x":[1,2]}}', b'{"b":5}', b'{"b":true}', ddl="b string")
    assert [row["b"] for row in found] == ['{"x":[1,2]}', "5", "true"]


@pytest.mark.slow
def test_deeply_nested_values_do_not_fail_the_query() -> None:
    for depth in (
        100,
        *range(800, 1010),
        100_000,
    ):  # json can parse some depths that it can't write
        given = b'{"b":' + b"[" * depth + b"]" * depth + b"}"
        found = decoded(given, b"{", b'{"b":"x"}', ddl="b string")
        assert found[0]["b"] in (None, given[5:-1].decode())
        assert found[2] == {"b": "x"}


def test_a_lone_surrogate_is_malformed_and_kept_in_the_corrupt_record_column() -> None:
    half = b'{"a":"\\ud800"}'
    ddl = "a string, _corrupt_record string"
    assert decoded(half, ddl=ddl) == [{"a": None, "_corrupt_record": half.decode()}]
    with pytest.raises(ValueDecodeError, match="field a isn't string"):
        decoded(half, ddl="a string", fail_fast=True)


def test_the_corrupt_record_column_contains_the_text_of_malformed_values() -> None:
    ddl = "_corrupt_record string, a int"
    good = decoded(b'{"a":1}', None, ddl=ddl)
    assert good == [{"_corrupt_record": None, "a": 1}, None]
    mixed = decoded(b'{"a":1}', None, b"{\xff", b'{"a":3000000000}', ddl=ddl)
    assert mixed == [
        {"_corrupt_record": None, "a": 1},
        None,
        {"_corrupt_record": "{\ufffd", "a": None},
        {"_corrupt_record": '{"a":3000000000}', "a": None},
    ]
    assert decoded(b"{", b"{}", ddl="_corrupt_record string") == [
        {"_corrupt_record": "{"},
        {"_corrupt_record": None},
    ]


def test_a_malformed_value_causes_one_by_one_decoding_only_for_a_part_of_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    alone = JsonDecoder._decoded

    def counted(*given: Any) -> Any:
        asked.append(given)
        return alone(*given)

    monkeypatch.setattr(JsonDecoder, "_decoded", counted)
    rows = [json.dumps({"a": n}).encode() for n in range(3 * TOGETHER)]
    rows[TOGETHER + 5] = b"bad"
    found = decoder("a int").decode(pa.array([b"before", *rows], pa.binary()).slice(1))
    assert found.field("a").to_pylist() == [
        None if n == TOGETHER + 5 else n for n in range(3 * TOGETHER)
    ]
    assert len(asked) == TOGETHER


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("id bigint", "struct<id:bigint>"),
        (
            "a int NOT NULL, `odd name` string,b:array<struct<x:int,y:array<date>>>",
            "struct<a:int,odd name:string,b:array<struct<x:int,y:array<date>>>>",
        ),
        ("STRUCT<A: TIMESTAMP, b: timestamp_ntz>", "struct<A:timestamp,b:timestamp_ntz>"),
        (
            '{"type":"struct","fields":[{"name":"x","type":"long","nullable":false,"metadata":{}}]}',
            "struct<x:bigint>",
        ),
    ],
)
def test_value_schemas_are_parsed_from_ddl_and_json(text: str, wanted: str) -> None:
    found = value_schema(text)
    assert found.simpleString() == wanted
    assert all(field.nullable for field in found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id", "array<…> or struct<…>) after 'id', not the end"),
        ("id bigint,", "a field name"),
        ("id bigint b", "after 'id bigint', not 'b'"),
        ("id decimal(10,2)", "after 'id', not 'decimal'"),
        ("m map<string,int>", "after 'm', not 'map'"),
        ("a array<int", "expected > after"),
        ("a int, a int", "field a occurs twice"),
        ("a int not", "expected NULL after"),
        ("", "a field name"),
        ('{"type":"struct"}', "isn't the JSON of StructType.json"),
        (
            '{"type":"struct","fields":[{"name":"x","type":"binary","nullable":true,"metadata":{}}]}',
            "field x has the unsupported type binary",
        ),
    ],
)
def test_invalid_value_schemas_are_rejected(text: str, told: str) -> None:
    with pytest.raises(OptionError, match="valueSchema") as caught:
        value_schema(text)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"valueformat": "xml", "valueschema": "a int"}, "valueFormat must be json or avro"),
        ({"valueformat": "json"}, "needs option valueSchema.*; or option schemaRegistryUrl"),
        ({"valueformat": "protobuf"}, "valueFormat=protobuf needs option schemaRegistryUrl"),
        ({"valueschema": "a int"}, "valueSchema needs option valueFormat"),
        ({"valuemode": "FAILFAST"}, "valueMode needs option valueFormat"),
        ({"valueformat": "json", "valueschema": "a int", "valuemode": "x"}, "FAILFAST, not 'X'"),
    ],
)
def test_invalid_value_options_are_rejected(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_value_format(given)


def test_the_source_decodes_values_to_structs(cluster: Any, clock: Any) -> None:
    given = options(valueFormat="JSON", valueSchema="a int", valueMode="failfast")
    schema = full_schema(False, given.decoded_types())
    assert schema["value"].dataType.simpleString() == "struct<a:int>"
    assert check_schema(schema, given.decoded_types())[1] == "value"
    field = arrow_schema(schema).field("value")
    reader = RangeReader(cluster.connect({}), KafkaOffsetRange(P0, 7, 9), None, given, clock)
    made = JsonDecoder(field.type, fail_fast=True)
    with pytest.raises(UndecodableValueError, match=r"t-0: the value at offset 7 .*JSON int"):
        list(reader.batches(("value",), pa.schema([field]), {"value": made}))


@pytest.mark.parametrize(
    "given",
    [
        b'{"amount":1},"w":2',
        b'{"amount":1},"v":{"amount":2}',
        b'{"amount":1},{"amount":2}',
        b'{"amount":1}],"w":[2',
        b'{"amount":1}}\n{"v":{"amount":2}',
        b'{"amount":1}],"x":[{"amount":1}]}\n{"v":{"amount":1},"x":[{"amount":1}',
        b'{"amount":1},"w":"',
        b'{"amount":1},"w":"\\"',
        b'{"amount":1} trailing',
        b'{"amount":1}}',
    ],
)
def test_text_after_a_json_value_makes_it_malformed(given: bytes) -> None:
    """Spark's own from_json ignores text after the first value, also in FAILFAST mode."""
    good = b'{"amount":7}'
    fields = {"ddl": "amount bigint"}
    assert decoded(good, given, good, **fields) == [{"amount": 7}, {"amount": None}, {"amount": 7}]
    for neighbours in ((), (good,), (good, b'{"amount":1, "w":[2,{"v":"x"}]}')):
        with pytest.raises(ValueDecodeError, match=f"value {len(neighbours)} of a batch: not JSON"):
            decoded(*neighbours, given, **fields, fail_fast=True)
