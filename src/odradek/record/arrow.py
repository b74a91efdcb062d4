"""Columns to Arrow: for `poll_arrow` and the Spark source. The way back is `record/arrow_send`.

In: `RecordColumns`. Out: a `pyarrow.RecordBatch` with the columns of Spark's Kafka source.
Buffers are wrapped, not copied.
pyarrow is imported on the first call of a function here and never at import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.common.errors import KafkaError
from odradek.record.columns import BinaryColumn, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN_NAMES = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""All columns in the order of Spark's Kafka source; `headers` only where it was asked for."""


class ArrowSchemaError(KafkaError, ValueError):
    """Arrow data or a projection doesn't have the columns or types that are needed."""


def _fields() -> dict[str, pa.DataType]:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }


def _projection(include_headers: bool, names: Sequence[str] | None) -> Sequence[str]:
    if names is None:
        return COLUMN_NAMES if include_headers else COLUMN_NAMES[:-1]
    for name in names:
        if name not in COLUMN_NAMES:
            raise ArrowSchemaError(f"no column {name!r}; there are {', '.join(COLUMN_NAMES)}")
    if len(set(names)) < len(names):
        raise ArrowSchemaError(f"a column is named twice in {', '.join(names)}")
    return names


def arrow_schema(include_headers: bool = False, names: Sequence[str] | None = None) -> pa.Schema:
    """Give the schema of `to_record_batch`; `names` chooses columns and their order.

    Spark compares it with its own exactly: names, order, types, and every field nullable.
    """
    import pyarrow as pa

    types = _fields()
    return pa.schema([(name, types[name]) for name in _projection(include_headers, names)])


def to_record_batch(
    columns: RecordColumns,
    topic: str,
    partition: int,
    *,
    include_headers: bool = False,
    names: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Wrap columns as a record batch that keeps their buffers alive.

    A timestamp that microseconds in 64 bits can't hold (beyond the year 294246) is null, so that
    one producer's wrong clock doesn't stop a reader.
    """
    import pyarrow as pa

    schema = arrow_schema(include_headers, names)
    n = columns.count
    arrays: list[Any] = []
    for field in schema:
        if field.name in ("key", "value"):
            column = columns.keys if field.name == "key" else columns.values
            if column is None and n:
                raise ArrowSchemaError(f"column {field.name!r} is asked for but wasn't decoded")
            arrays.append(
                pa.nulls(n, field.type)
                if column is None
                else _wrap(column, field.type, columns.start, n)
            )
        elif field.name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, field.type), n))
        elif field.name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, field.type), n))
        elif field.name == "offset":
            arrays.append(_numbers(columns.offsets, field.type, columns))
        elif field.name == "timestamp":
            arrays.append(_timestamps(columns, field.type))
        elif field.name == "timestampType":
            arrays.append(_numbers(columns.timestamp_types, pa.int8(), columns).cast(field.type))
        else:
            arrays.append(_headers(columns, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _numbers(buffer: Any, kind: pa.DataType, columns: RecordColumns) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(
        kind, columns.count, [None, pa.py_buffer(buffer)], offset=columns.start
    )


def _wrap(column: BinaryColumn, kind: pa.DataType, start: int, count: int) -> Any:
    import pyarrow as pa

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, offset=start)


def _timestamps(columns: RecordColumns, kind: pa.DataType) -> Any:
    import pyarrow as pa

    milliseconds = _numbers(columns.timestamps_ms, pa.timestamp("ms", "UTC"), columns)
    try:
        return milliseconds.cast(kind)
    except pa.ArrowInvalid:
        limit = ((1 << 63) - 1) // 1000
        kept = [
            ms if -limit <= ms <= limit else None for ms in milliseconds.cast("int64").to_pylist()
        ]
        return pa.array(kept, pa.timestamp("ms", "UTC")).cast(kind)


def _headers(columns: RecordColumns, kind: Any) -> Any:
    import pyarrow as pa

    headers = columns.headers
    if headers is None:
        return pa.nulls(columns.count, kind)
    count = len(headers.keys.offsets) - 1
    struct = kind.value_type
    pairs = pa.StructArray.from_arrays(
        [_wrap(headers.keys, pa.string(), 0, count), _wrap(headers.values, pa.binary(), 0, count)],
        fields=list(struct),
    )
    validity = None if headers.validity is None else pa.py_buffer(headers.validity)
    return pa.Array.from_buffers(
        kind,
        columns.count,
        [validity, pa.py_buffer(headers.offsets)],
        offset=columns.start,
        children=[pairs],
    )
