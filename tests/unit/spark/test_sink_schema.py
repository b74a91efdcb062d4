"""The columns that the sink accepts, and the division of a batch by topic."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from odradek.spark.options.option_table import BATCH
from odradek.spark.sink.sink_errors import SinkRowError, SinkSchemaError
from odradek.spark.sink.sink_options import parse_sink_options
from odradek.spark.sink.sink_schema import SinkColumns, check_columns

HEADERS = t.ArrayType(
    t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
)
KINDS: dict[str, t.DataType] = {
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "headers": HEADERS,
    "swapped": t.ArrayType(t.StructType(list(reversed(HEADERS.elementType.fields)))),  # type: ignore[attr-defined]
    "struct": t.StructType([t.StructField("a", t.IntegerType())]),
}


def schema(text: str) -> t.StructType:
    """Parse `name type, name type` without a JVM."""
    pairs = [part.split() for part in text.split(",")]
    return t.StructType([t.StructField(name, KINDS[kind]) for name, kind in pairs])


def columns(text: str, **given: str) -> SinkColumns:
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", **given}, BATCH)
    return check_columns(schema(text), options)


def test_columns_of_the_jvm_connectors_sink_are_sent_and_others_ignored() -> None:
    found = columns(
        "offset bigint, topic string, value string, key binary, partition int, headers headers"
    )
    assert found == SinkColumns(("key", "value", "headers", "partition"), None)
    assert columns("value binary, topic int", topic="t") == SinkColumns(("value",), "t")


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        ("key string, topic string", {}, "'value' is missing"),
        ("Value string", {"topic": "t"}, "rename 'Value'"),
        ("value string", {}, "option topic"),
        ("value string", {"topic": "t", "includeHeaders": "true"}, "includeHeaders=true"),
        ("value struct", {"topic": "t"}, "column value has type struct<a:int>"),
        ("value string, key int", {"topic": "t"}, "must be string or binary"),
        ("value string, topic binary", {}, "column topic has type binary, but must be string"),
        ("value string, partition bigint", {"topic": "t"}, "but must be int"),
        ("value string, headers swapped", {"topic": "t"}, "column headers has type"),
    ],
)
def test_errors_name_missing_and_mistyped_columns(
    text: str, given: dict[str, str], words: str
) -> None:
    with pytest.raises(SinkSchemaError, match=words):
        columns(text, **given)


def batch(topics: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"value": [f"{n}".encode() for n in range(len(topics))], "topic": topics}
    )


def test_rows_of_each_topic_keep_their_order_and_row_numbers() -> None:
    by_column = SinkColumns(("value",), None)
    found = {p.topic: p for p in by_column.by_topic(batch(["b", "a", "b", "a", "b"]), 100)}
    values = {name: p.rows.column("value").to_pylist() for name, p in found.items()}
    assert values == {"b": [b"0", b"2", b"4"], "a": [b"1", b"3"]}
    assert found["b"].row(2) == 104
    assert found["a"].row(0) == 101
    (whole,) = by_column.by_topic(batch(["c", "c"]), 7)
    assert (whole.topic, whole.rows.num_rows, whole.row(1)) == ("c", 2, 8)


def test_a_null_topic_is_reported_with_its_row() -> None:
    with pytest.raises(SinkRowError, match=r"row 52 of this task has a null in column topic") as e:
        list(SinkColumns(("value",), None).by_topic(batch(["a", "b", None, None]), 50))
    assert e.value.row == 52


def test_errors_for_parts_of_a_large_batch_name_the_row_in_the_whole_batch() -> None:
    many: list[Any] = ["a", "b"] * 500
    for split in SinkColumns(("value",), None).by_topic(batch(many), 10):
        pieces = list(split.slices(1000))
        assert len(pieces) > 3
        assert sum(p.rows.num_rows for p in pieces) == 500
        last = pieces[-1]
        value = int(last.rows.column("value")[0].as_py())
        assert last.row(0) == value + 10
