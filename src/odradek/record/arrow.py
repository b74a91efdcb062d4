"""Columns to and from Arrow: `poll_arrow` and the Spark source above, `send_arrow` below.

In: `RecordColumns`, or whatever speaks Arrow. Out: a `pyarrow.RecordBatch` with the columns of
Spark's Kafka source, or rows for the producer. Buffers are wrapped, not copied.
pyarrow is imported on the first call of a function here and never at import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from odradek.common.errors import KafkaError
from odradek.record.columns import BinaryColumn, Headers, RecordColumns

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
SENT_COLUMNS = ("value", "key", "headers", "partition", "timestamp")
"""What `send_arrow` understands; only `value` must be there."""
SentRow = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""key, value, headers, partition, timestamp_ms"""

_ROWS_AT_ONCE = 4096


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


@dataclass(frozen=True, slots=True)
class ArrowRecords:
    """Checked Arrow data for `send_arrow`: iterate for `SentRow` tuples.

    A null partition or timestamp is None: the partitioner and the clock decide then.
    """

    count: int
    _batches: tuple[Any, ...]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[SentRow]:
        for batch in self._batches:
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield from _sent_rows(batch.slice(start, _ROWS_AT_ONCE))


def records_from_arrow(data: Any) -> ArrowRecords:
    """Check Arrow data and make it iterable as records.

    Takes a pyarrow RecordBatch, Table or RecordBatchReader, or any object with the Arrow
    PyCapsule interface (Polars, DuckDB, pandas 3). Columns: `value` and, if wanted, `key`
    (binary or string of any width), `headers` (list of struct key, value; or map), `partition`
    (integer), `timestamp` (timestamp of any unit, or integer milliseconds).
    """
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif isinstance(data, pa.Table):
        table = data
    elif hasattr(data, "__arrow_c_stream__"):
        table = pa.RecordBatchReader.from_stream(data).read_all()
    elif hasattr(data, "__arrow_c_array__"):
        table = pa.Table.from_batches([pa.record_batch(data)])
    else:
        raise TypeError(f"send_arrow takes Arrow data, not {type(data).__name__}")
    names = table.column_names
    if "value" not in names:
        raise ArrowSchemaError(f"column 'value' is missing; there are {', '.join(names) or 'none'}")
    for name in names:
        if name not in SENT_COLUMNS or names.count(name) > 1:
            raise ArrowSchemaError(
                f"column {name!r} has no meaning here or stands twice; a record is made of "
                f"{', '.join(SENT_COLUMNS)}. Select and rename before sending."
            )
    arrays = [_normal(name, table.column(name)) for name in names]
    normal = pa.Table.from_arrays(arrays, names=names)
    return ArrowRecords(normal.num_rows, tuple(normal.to_batches()))


def _normal(name: str, column: Any) -> Any:
    """Bring one column to the one type that rows are read from, or say what is wrong with it."""
    import pyarrow as pa

    kind, t = column.type, pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    text = {pa.binary(), pa.string(), pa.large_binary(), pa.large_string()}
    text |= {pa.binary_view(), pa.string_view()}
    try:
        if name in ("key", "value"):
            if kind in text or t.is_fixed_size_binary(kind):
                return column.cast(pa.large_binary())
            wanted = "binary or string"
        elif name == "partition":
            if t.is_integer(kind):
                return column.cast(pa.int32())
            wanted = "an integer"
        elif name == "timestamp":
            if t.is_timestamp(kind):
                return column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64())
            if t.is_integer(kind):
                return column.cast(pa.int64())
            wanted = "timestamp or integer milliseconds"
        else:
            if _is_headers(kind, text):
                return column
            wanted = "list<struct<key: string, value: binary>> or map<string, binary>"
    except pa.ArrowInvalid as error:
        raise ArrowSchemaError(f"column {name!r}: {error}") from None
    raise ArrowSchemaError(f"column {name!r} has type {column.type}; it must be {wanted}")


def _is_headers(kind: Any, text: set[Any]) -> bool:
    import pyarrow as pa

    if pa.types.is_map(kind):
        return kind.key_type in text and kind.item_type in text
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    pair = kind.value_type
    if not pa.types.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        return False
    return all(field.type in text for field in pair)


def _sent_rows(batch: Any) -> Iterator[SentRow]:
    n = batch.num_rows
    names = batch.schema.names

    def numbers(name: str) -> Any:
        return batch.column(name).to_pylist() if name in names else repeat(None, n)

    def texts(name: str) -> Any:
        return _byte_values(batch.column(name)) if name in names else repeat(None, n)

    nothing: Headers = ()
    headers: Any = repeat(nothing, n)
    if "headers" in names:
        headers = map(_sent_headers, batch.column("headers").to_pylist())
    ways = numbers("partition"), numbers("timestamp")
    return zip(texts("key"), texts("value"), headers, *ways, strict=True)


def _byte_values(array: Any) -> list[bytes | None]:
    """Read a large_binary array by its buffers: `to_pylist` makes a scalar object of each entry."""
    validity, offsets, data = array.buffers()
    ends = memoryview(offsets).cast("q")
    column = BinaryColumn(
        ends,
        b"" if data is None else memoryview(data),
        None if validity is None else memoryview(validity),
    )
    return column.values(array.offset, array.offset + len(array))


def _sent_headers(pairs: Any) -> Headers:
    """Turn one row's list of dicts (or of tuples, from a map) into header tuples."""
    if not pairs:
        return ()
    found = []
    for pair in pairs:
        name, value = (
            (None, None)
            if pair is None
            else (pair["key"], pair["value"])
            if isinstance(pair, dict)
            else pair
        )
        if name is None:
            raise ArrowSchemaError("a header has no key")
        name = name if isinstance(name, str) else name.decode("utf-8")
        found.append((name, value.encode() if isinstance(value, str) else value))
    return tuple(found)
