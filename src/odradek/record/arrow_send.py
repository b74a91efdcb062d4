"""Arrow to records: what `send_arrow` takes, checked and brought to one form.

In: whatever speaks Arrow. Out: rows for the producer.
pyarrow is imported on the first call of a function here and never at import.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from odradek.record.arrow import ArrowSchemaError
from odradek.record.columns import BinaryColumn, Headers

SENT_COLUMNS = ("value", "key", "headers", "partition", "timestamp")
"""What `send_arrow` understands; only `value` must be there."""
SentRow = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""key, value, headers, partition, timestamp_ms"""

_ROWS_AT_ONCE = 4096


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
