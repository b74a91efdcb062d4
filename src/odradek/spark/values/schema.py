"""Define the JVM connector's schema, and select the columns that a user requests.

In: a user's schema, or whether headers are included. Out: Spark's schema, and batches cast to
exactly the Arrow schema that Spark will compare with. Must not: copy column data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from odradek.spark.checkpoint_errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

MAY_BE_NULL = frozenset(("key", "value", "headers"))


def full_schema(
    include_headers: bool, decoded: Mapping[str, t.DataType] = MappingProxyType({})
) -> t.StructType:
    """Return the schema of the JVM connector, all columns nullable.

    `decoded` contains the types of key and value if they are decoded.
    """
    fields = [
        t.StructField("key", decoded.get("key", t.BinaryType())),
        t.StructField("value", decoded.get("value", t.BinaryType())),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField("timestampType", t.IntegerType()),
    ]
    if include_headers:
        header = t.StructType(
            [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
        )
        fields.append(t.StructField("headers", t.ArrayType(header)))
    return t.StructType(fields)


def check_schema(
    asked: t.StructType, decoded: Mapping[str, t.DataType] = MappingProxyType({})
) -> tuple[str, ...]:
    """Check a schema: columns of the full schema in any order. Return the names to read.

    A schema of fewer columns is column pruning: Spark can't push it down to a Python source by
    itself, and every column costs time for every row.
    """
    full = full_schema(include_headers=True, decoded=decoded)
    known = {field.name.lower(): field for field in full.fields}
    found: list[str] = []
    for field in asked.fields:
        model = known.get(field.name.lower())
        if model is None:
            raise OptionError(
                f"schema: column {field.name!r} doesn't exist; use "
                f"{', '.join(f.name for f in known.values())}"
            )
        given, wanted = field.dataType.simpleString(), model.dataType.simpleString()
        if given != wanted:
            raise OptionError(f"schema: column {model.name} has type {wanted}, not {given}")
        if not field.nullable and model.name in MAY_BE_NULL:
            raise OptionError(f"schema: column {model.name} can't be NOT NULL")
        if model.name in found:
            raise OptionError(f"schema: column {model.name} occurs twice")
        found.append(model.name)
    if not found:
        raise OptionError("schema: name at least one column")
    return tuple(found)


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects: names, order, types and nullability."""
    return to_arrow_schema(schema, timezone="UTC")


def arrow_type(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark passes a column."""
    return to_arrow_type(kind, timezone="UTC")


def fit(
    batch: pa.RecordBatch,
    columns: Sequence[str],
    target: pa.Schema,
    decoded: Mapping[str, pa.Array] = MappingProxyType({}),
) -> pa.RecordBatch:
    """Return the batch with columns in the user's order and the exact schema, without copying.

    `decoded`: the decoded columns, by name.
    """
    import pyarrow as pa

    arrays: list[Any] = []
    for name, field in zip(columns, target, strict=True):
        array = decoded[name] if name in decoded else batch.column(name)
        if array.type != field.type:  # also if only a list's field names or nullability differ
            array = array.cast(field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def without_rows(batch: pa.RecordBatch, rows: Collection[int]) -> pa.RecordBatch:
    """Return the batch without these rows."""
    import pyarrow as pa

    return batch.filter(pa.array([row not in rows for row in range(batch.num_rows)], pa.bool_()))
