"""Check and normalize the Arrow data passed to `send_arrow`, for the encoder.

In: any object with an Arrow interface, read batch by batch. Out: `SentColumns` that refer to
Arrow's buffers; only types that the encoder can't read (views, dictionaries, other units of time)
are converted. Must not: let Arrow convert unvalidated data, because Arrow's kernels trust each
index and offset, and with a wrong one they would read other memory. The encoder checks each index
and offset itself. pyarrow is imported when a function is first called, not with this module.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.common.arguments import refusal
from odradek.record.arrow import NULL_TIMES, ArrowSchemaError
from odradek.record.sent_columns import (
    InvalidRowError,
    SentBinary,
    SentColumns,
    SentHeaders,
    SentNumbers,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES = "binary or string"
_HEADERS = "list<struct<key: string, value: binary>> or map<string, binary>"


class ColumnNames(NamedTuple):
    """Name of the column for each part of a record; None if there is no such column."""

    value: str | None = "value"
    key: str | None = "key"
    headers: str | None = "headers"
    partition: str | None = "partition"
    timestamp: str | None = "timestamp"

    def chosen(self, names: list[str]) -> dict[str, str]:
        """Return which part of a record each column contains; raise if the names are wrong.

        With the default names, every column must be a part of a record. If a caller passes other
        names, these columns must exist, and all other columns are left out.
        """
        usual = ColumnNames()
        found: dict[str, str] = {}
        for field, name in self._asdict().items():
            if name in names:
                found[field] = name
            elif name is not None and (name != getattr(usual, field) or name == "value"):
                raise ArrowSchemaError(
                    f"column {name!r} is missing; the data has {', '.join(names) or 'no columns'}"
                )
        strange = [n for n in names if self == usual and n not in found.values()]
        twice = [name for name in found.values() if names.count(name) > 1]
        for wrong, one, more in (
            (strange, "is unknown", "are unknown"),
            (twice, "occurs twice", "occur twice"),
        ):
            if wrong:
                kept = [name for name in dict.fromkeys(names) if name not in wrong]
                raise ArrowSchemaError(
                    f"{'columns' if wrong[1:] else 'column'} {', '.join(map(repr, wrong))} "
                    f"{more if wrong[1:] else one}; a record has {', '.join(self._fields)}. "
                    f"Select and rename columns before sending, for example table.select({kept}), "
                    "or pass the column names to the call."
                )
        return found


USUAL = ColumnNames()


def columns_from_arrow(data: Any, names: ColumnNames = USUAL) -> Iterator[SentColumns]:
    """Check the schema of Arrow data at once, then yield its rows batch by batch.

    Takes a pyarrow RecordBatch, Table or RecordBatchReader, or any object with the Arrow PyCapsule
    interface (Polars, DuckDB, pandas 3). A stream is read as it is iterated.
    """
    schema, batches = _batches(data)
    chosen = names.chosen(list(schema.names))
    for what, name in chosen.items():
        _check(what, name, schema.field(name).type)
    time = chosen.get("timestamp")
    read = time is not None and NULL_TIMES.items() <= (schema.field(time).metadata or {}).items()
    return _pieces(batches, chosen, time if read else None)


def _batches(data: Any) -> tuple[Any, Iterator[Any]]:
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return batch.schema, iter([batch])
    raise refusal(
        "data", "Arrow data (a Table, a RecordBatch, or an object with the Arrow C interface)", data
    )


def _pieces(
    batches: Iterator[Any], chosen: dict[str, str], read_time: str | None
) -> Iterator[SentColumns]:
    """Yield the columns of each batch; `read_time` is the name of timestamps from a consumer."""
    first = 0
    for batch in batches:
        if batch.num_rows:
            if read_time is not None and (times := batch.column(read_time)).null_count:
                raise InvalidRowError(
                    f"column {read_time!r} is null, because the record that was read has a "
                    "timestamp that Arrow's microseconds can't hold (after the year 294246): the "
                    "present time would be written. Read such records with poll(), or replace "
                    "the column (Table.set_column)",
                    first + times.is_null().to_pylist().index(True),
                )
            arrays = {what: batch.column(name) for what, name in chosen.items()}
            yield _columns(arrays, chosen, batch.num_rows, first)
            first += batch.num_rows


def _columns(arrays: dict[str, Any], names: dict[str, str], count: int, first: int) -> SentColumns:
    def converted(what: str, convert: Callable[[Any], Any]) -> Any:
        return _told(lambda array: convert(_normal(what, array)), arrays[what], names[what], first)

    def binary(what: str) -> SentBinary | None:
        return converted(what, _binary) if what in arrays else None

    def numbers(what: str) -> SentNumbers | None:
        return converted(what, _numbers) if what in arrays else None

    return SentColumns(
        count,
        binary("value"),
        binary("key"),
        converted("headers", _headers) if "headers" in arrays else None,
        numbers("partition"),
        numbers("timestamp"),
        first,
    )


def _check(what: str, name: str, kind: Any) -> None:
    """Raise an error if a column's type doesn't fit its part of a record."""
    import pyarrow as pa

    t = pa.types
    plain = kind.value_type if t.is_dictionary(kind) else kind
    if what in ("key", "value"):
        fits, wanted = _is_text(plain) or t.is_fixed_size_binary(plain), _BYTES
    elif what == "partition":
        fits, wanted = t.is_integer(plain), "an integer"
    elif what == "timestamp":
        fits = t.is_timestamp(plain) or t.is_integer(plain)
        wanted = "timestamp or integer milliseconds"
    else:
        fits, wanted = _is_headers(plain), _HEADERS
    if not fits:
        raise ArrowSchemaError(f"column {name!r} has type {kind}, but must be {wanted}")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return kind in (
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    )


def _is_headers(kind: Any) -> bool:
    import pyarrow as pa

    t = pa.types
    if t.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if not (t.is_list(kind) or t.is_large_list(kind)):
        return False
    pair = kind.value_type
    if not t.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        return False
    return all(_is_text(field.type) for field in pair)


def _told(convert: Callable[[Any], Any], array: Any, name: str, first: int) -> Any:
    """Convert a column; if Arrow raises an error, raise one that names the column and the row."""
    import pyarrow as pa

    wrong = (pa.ArrowInvalid, pa.ArrowIndexError)

    def words(low: int, high: int) -> str | None:
        try:
            convert(array.slice(low, high - low))
        except wrong as error:
            return str(error)
        return None

    try:
        return convert(array)
    except pa.ArrowNotImplementedError as error:
        raise ArrowSchemaError(f"column {name!r}: {error}") from None
    except wrong as error:
        said = str(error)
    # The invalid data is shared by all rows: a dictionary, or the texts of headers.
    if words(0, 0) is not None:
        raise InvalidRowError(f"column {name!r}: {said}")
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if words(low, middle) is None else (low, middle)
    raise InvalidRowError(f"column {name!r}: {words(low, high) or said}", first + low)


def _normal(what: str, array: Any) -> Any:
    """Convert one column to a type that the encoder reads, which most columns already have."""
    import pyarrow as pa

    array.validate()  # quick: checks the buffers' lengths
    t = pa.types
    if t.is_dictionary(array.type):
        array = _decoded(array)
    kind = array.type
    if what == "headers":
        return array
    if what in ("key", "value"):
        return _plain_text(array)
    if what == "partition":
        return array if kind == pa.int32() else array.cast(pa.int32())
    if t.is_timestamp(kind):
        if kind.unit != "ms":
            # Finer units are truncated to milliseconds on purpose. Seconds may be too large for
            # milliseconds: without the check, they would overflow silently.
            array = array.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s")
        return array.view(pa.int64())
    return array if kind == pa.int64() else array.cast(pa.int64())


def _decoded(array: Any) -> Any:
    """Replace a dictionary's indices by its values, after validating both."""
    import pyarrow as pa

    values, t = array.dictionary, pa.types
    values.validate()
    if _is_text(values.type) or t.is_fixed_size_binary(values.type):
        values = _plain_text(_as_bytes(values))
    values.validate(full=True)
    indices = array.indices
    indices.validate()
    return pa.DictionaryArray.from_arrays(indices, values).dictionary_decode()


def _plain_text(array: Any) -> Any:
    """Convert views and fixed-size values, which the encoder can't read, to offsets and data."""
    import pyarrow as pa

    kind, t = array.type, pa.types
    if kind in (pa.binary_view(), pa.string_view()):
        array = _as_bytes(array)
        array.validate(full=True)  # 20 ms for 1 M rows; the cast takes 30 ms
        return array.cast(pa.large_binary())
    if t.is_fixed_size_binary(kind):
        return array.cast(pa.large_binary())
    return array


def _as_bytes(array: Any) -> Any:
    """Reinterpret text as bytes, without a copy.

    The values needn't be valid UTF-8, and a check would take three times as long.
    """
    import pyarrow as pa

    bytes_of = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    kind = bytes_of.get(array.type)
    return array if kind is None else array.view(kind)


def _view(buffer: Any) -> Any:
    return b"" if buffer is None else memoryview(buffer)


def _bitmap(array: Any, validity: Any) -> Any:
    return None if validity is None or not array.null_count else memoryview(validity)


def _binary(array: Any) -> SentBinary:
    import pyarrow as pa

    validity, offsets, data = array.buffers()
    wide = array.type in (pa.large_binary(), pa.large_string())
    return SentBinary(_view(offsets), _view(data), _bitmap(array, validity), array.offset, wide)


def _numbers(array: Any) -> SentNumbers:
    validity, data = array.buffers()
    return SentNumbers(_view(data), _bitmap(array, validity), array.offset)


def _headers(array: Any) -> SentHeaders:
    """Split lists of headers into offsets, keys and values.

    The offsets count from the start of the children (keys, values), which aren't sliced.
    """
    import pyarrow as pa

    kind, t = array.type, pa.types
    if t.is_map(kind):
        keys, values = array.keys, array.items
    else:
        # With `flatten`, the fields of a null struct are null: a null header has no key.
        pairs = dict(zip([f.name for f in kind.value_type], array.values.flatten(), strict=True))
        keys, values = pairs["key"], pairs["value"]
    validity, offsets = array.buffers()[:2]
    return SentHeaders(
        _view(offsets),
        _binary(_plain_text(keys)),
        _binary(_plain_text(values)),
        len(keys),
        _bitmap(array, validity),
        array.offset,
        t.is_large_list(kind),
    )


def error_column(numbers: array[int], texts: Sequence[str]) -> pa.Array[Any]:
    """Return a column of the rows' errors; a number below 0 (the row was written) becomes null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
    known = pc.if_else(pc.less(given, pa.scalar(0, pa.int32())), pa.scalar(None, pa.int32()), given)
    return pa.DictionaryArray.from_arrays(known, pa.array(texts, pa.string()))
