"""Convert columns to Arrow record batches, for `poll_arrow` and the Spark source.

In: `RecordColumns`. Out: a `pyarrow.RecordBatch` with the columns of Spark's Kafka source, whose
buffers are wrapped, not copied. `record/arrow_send` converts in the other direction. pyarrow is
imported when a function is first called, not with this module.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.common.errors import KafkaError
from odradek.record import arrow_batch, microseconds, wide_types
from odradek.record.columns import (
    LAYOUTS,
    BinaryColumn,
    Layout,
    RawHeaderColumn,
    RecordColumns,
    ViewColumn,
)

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
"""All columns, in the order of Spark's Kafka source; `headers` is only included on request."""


_LETTERS = dict(zip(COLUMN_NAMES, ("k", "v", "t", "p", "o", "m", "y"), strict=False))
"""The letters by which the kernel knows the columns that it can build."""

NULL_TIMES = {b"odradek.null": b"out of range"}
"""Metadata of the column of timestamps, which says what a null means."""


class ArrowSchemaError(KafkaError, ValueError):
    """Arrow data, or requested column names, don't have the required columns or types."""


@cache
def _fields(layout: Layout) -> dict[str, pa.DataType]:
    import pyarrow as pa

    binary = pa.binary_view() if layout == "binary_view" else pa.binary()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        "key": binary,
        "value": binary,
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }


def _projection(include_headers: bool, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return COLUMN_NAMES if include_headers else COLUMN_NAMES[:-1]
    for name in names:
        if name not in COLUMN_NAMES:
            raise ArrowSchemaError(f"unknown column {name!r}; use {', '.join(COLUMN_NAMES)}")
    if include_headers and "headers" not in names:
        raise ArrowSchemaError("include_headers=True needs 'headers' in columns: add it")
    if len(set(names)) < len(names):
        raise ArrowSchemaError(f"columns contains a name twice: {', '.join(names)}")
    return tuple(names)


class ArrowColumns(NamedTuple):
    """Columns to build, and what `to_record_batch` needs for them."""

    schema: pa.Schema
    types: dict[str, pa.DataType]
    """Types by column name, in order."""
    layout: Layout
    letters: bytes | None
    """The letters of the columns for the kernel; None if only pyarrow can build these columns."""
    take_over: Any
    """Function of pyarrow that imports a batch from C structures, which the kernel fills."""


def arrow_schema(
    include_headers: bool = False, names: Sequence[str] | None = None, layout: Layout = "binary"
) -> pa.Schema:
    """Return the schema of `to_record_batch`; `names` chooses columns and their order.

    Spark compares this schema with its own exactly: names, order, types, and that every field is
    nullable. The layout `binary_view` changes only the types of `key` and `value`.
    """
    return arrow_columns(include_headers, names, layout).schema


def arrow_columns(
    include_headers: bool = False, names: Sequence[str] | None = None, layout: Layout = "binary"
) -> ArrowColumns:
    """Return the schema and all other data that `to_record_batch` needs."""
    if layout not in LAYOUTS:
        raise ArrowSchemaError(f"unknown layout {layout!r}; use {', '.join(LAYOUTS)}")
    return _columns(_projection(include_headers, names), layout)


@lru_cache(64)
def _columns(names: tuple[str, ...], layout: Layout) -> ArrowColumns:
    import pyarrow as pa

    types = {name: _fields(layout)[name] for name in names}
    letters = None
    # Arrow's documentation of the C data interface uses this method; pyarrow doesn't guarantee it.
    take_over = getattr(pa.RecordBatch, "_import_from_c", None)
    if take_over and names and layout == "binary" and "headers" not in names:
        letters = "".join(_LETTERS[name] for name in names).encode()
    fields = [
        pa.field(name, kind, metadata=NULL_TIMES if name == "timestamp" else None)
        for name, kind in types.items()
    ]
    return ArrowColumns(pa.schema(fields), types, layout, letters, take_over)


def to_record_batch(
    columns: RecordColumns,
    topic: str,
    partition: int,
    *,
    include_headers: bool = False,
    names: Sequence[str] | None = None,
    layout: Layout = "binary",
    wanted: ArrowColumns | None = None,
) -> pa.RecordBatch:
    """Wrap columns as a record batch that keeps their buffers alive.

    `wanted` is the result of `arrow_columns` for these arguments, if the caller has one already.

    A timestamp that microseconds in 64 bits can't hold (beyond the year 294246) becomes null, so
    that one producer's wrong clock doesn't stop a reader. The field's metadata says so, and
    `send_arrow` refuses such a null, which would mean the current time.
    """
    if wanted is None:
        wanted = arrow_columns(include_headers, names, layout)
    n = columns.count
    if n < FEW and wanted.letters is not None:  # calls of pyarrow would take too long
        made = arrow_batch(columns, wanted.letters, topic, partition)
        if made is not None:
            taken: pa.RecordBatch = wanted.take_over(made.address, wanted.schema)
            return taken
    import pyarrow as pa

    arrays: list[Any] = []
    for name, kind in wanted.types.items():
        if name in ("key", "value"):
            arrays.append(_payload(columns, name, kind))
        elif name == "topic":
            arrays.append(_constants.array(topic, kind, n))
        elif name == "partition":
            arrays.append(_constants.array(partition, kind, n))
        elif name == "offset":
            arrays.append(_numbers(columns.offsets, kind, columns))
        elif name == "timestamp":
            arrays.append(_timestamps(columns, kind))
        elif name == "timestampType":
            arrays.append(_types(columns, kind))
        else:
            arrays.append(_headers(columns, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)


def _repeated(value: str | int, kind: Any, count: int) -> Any:
    """Create a column that repeats one text or int32.

    The column is built from buffers, because `pa.scalar` and `pa.array` import pandas if it is
    installed, which takes a third of a second at the first batch of a process.
    """
    import pyarrow as pa

    if isinstance(value, int):
        return pa.Array.from_buffers(
            kind, count, [None, pa.py_buffer(value.to_bytes(4, sys.byteorder, signed=True) * count)]
        )
    text = value.encode()
    size = len(text)
    ends = array("i", range(0, size * count + 1, size) if size else [0] * (count + 1))
    return pa.Array.from_buffers(
        kind, count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)]
    )


FEW = 1024
"""Number of rows below which the kernel builds small batches with a single allocation."""


class _Constants:
    """Cache of columns that have one value in every row, such as the topic of a partition.

    A column is written once and then sliced; writing it takes as long as decoding numbers.
    """

    LARGEST = 8 << 20
    """Maximum size of the cache in bytes."""

    def __init__(self) -> None:
        self._kept: dict[str | int, Any] = {}
        self._bytes = 0

    def array(self, value: str | int, kind: Any, count: int) -> Any:
        """Return a column that repeats a value `count` times; its buffers mustn't be changed."""
        kept = self._kept.get(value)
        if kept is not None and len(kept) >= count:
            return kept.slice(0, count)
        made = _repeated(value, kind, max(FEW, 1 << (count - 1).bit_length()))
        self._keep(value, made)
        return made.slice(0, count)

    def _keep(self, value: str | int, made: Any) -> None:
        """Cache a column, and evict the oldest columns while the cache is too large.

        Clients in several threads share this cache without a lock; in the worst case, a column is
        evicted too early.
        """
        smaller = self._kept.pop(value, None)
        self._kept[value] = made
        self._bytes += made.nbytes - (0 if smaller is None else smaller.nbytes)
        while self._bytes > self.LARGEST and len(self._kept) > 1:
            with suppress(KeyError, RuntimeError, StopIteration):
                self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes


_constants = _Constants()


def _payload(columns: RecordColumns, name: str, kind: Any) -> Any:
    import pyarrow as pa

    column = columns.keys if name == "key" else columns.values
    if column is None:
        if columns.count:
            raise ArrowSchemaError(f"column {name!r} was requested but not decoded")
        return pa.nulls(0, kind)
    if isinstance(column, ViewColumn):
        validity = None if column.validity is None else pa.py_buffer(column.validity)
        buffers = [validity, pa.py_buffer(column.views), *map(pa.py_buffer, column.buffers)]
        views = pa.Array.from_buffers(
            pa.binary_view(), columns.count, buffers, offset=columns.start
        )
        return views if views.type == kind else views.cast(kind)
    wrapped = _wrap(column, pa.binary(), columns.start, columns.count)
    return wrapped if wrapped.type == kind else wrapped.cast(kind)  # no copy of the bytes


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


def _types(columns: RecordColumns, kind: pa.DataType) -> Any:
    import pyarrow as pa

    found = wide_types(columns.timestamp_types, columns.start, columns.count)
    if found is not None:
        return pa.Array.from_buffers(kind, columns.count, [None, pa.py_buffer(found)])
    return _numbers(columns.timestamp_types, pa.int8(), columns).cast(kind)


def _timestamps(columns: RecordColumns, kind: pa.DataType) -> Any:
    import pyarrow as pa

    found = microseconds(columns.timestamps_ms, columns.start, columns.count)
    if found is not None:
        return pa.Array.from_buffers(kind, columns.count, [None, pa.py_buffer(found)])
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
    if isinstance(headers, RawHeaderColumn):
        raise ArrowSchemaError("column 'headers' was requested but decoded as raw bytes")
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
