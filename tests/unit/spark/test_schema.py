"""The source's columns: the JVM connector's schema, and subsets of it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from odradek.record.arrow import arrow_schema as client_schema
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.values.schema import arrow_schema, check_schema, fit, full_schema

HEADERS = "array<struct<key:string,value:binary>>"


def struct(*columns: tuple[str, DataType], nullable: bool = True) -> StructType:
    return StructType([StructField(name, kind, nullable) for name, kind in columns])


def test_the_schema_is_that_of_the_jvm_connector() -> None:
    assert full_schema(include_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        f"timestamp:timestamp,timestampType:int,headers:{HEADERS}>"
    )
    assert full_schema(include_headers=False).fieldNames()[-1] == "timestampType"
    assert all(field.nullable for field in full_schema(include_headers=True))


@pytest.mark.parametrize("headers", [True, False])
def test_the_arrow_schema_equals_that_of_the_client(headers: bool) -> None:
    assert arrow_schema(full_schema(headers)).equals(client_schema(include_headers=headers))


def test_a_schema_may_select_any_columns_in_any_order() -> None:
    headers = full_schema(include_headers=True)["headers"].dataType
    asked = struct(("offset", LongType()), ("VALUE", BinaryType()), ("headers", headers))
    assert check_schema(asked) == ("offset", "value", "headers")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (struct(("valeu", BinaryType())), "column 'valeu' doesn't exist.*timestampType"),
        (struct(("value", StringType())), "value has type binary, not string"),
        (struct(("offset", IntegerType())), "offset has type bigint, not int"),
        (struct(("value", BinaryType()), ("Value", BinaryType())), "twice"),
        (struct(("key", BinaryType()), nullable=False), "key can't be NOT NULL"),
        (struct(), "at least one"),
    ],
)
def test_unknown_and_mistyped_columns_are_rejected(asked: StructType, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_schema(asked)


def test_a_batch_is_converted_to_the_exact_schema_without_copying() -> None:
    asked = StructType(
        [StructField("Offset", LongType(), nullable=False), StructField("value", BinaryType())]
    )
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"a", None], pa.binary()), "offset": pa.array([1, 2], pa.int64())}
    )
    found = fit(batch, check_schema(asked), arrow_schema(asked))
    assert found.schema.equals(arrow_schema(asked))
    after, before = found.column(1).buffers()[2], batch.column(0).buffers()[2]
    assert after is not None
    assert before is not None
    assert after.address == before.address
    assert found.to_pydict() == {"Offset": [1, 2], "value": [b"a", None]}
