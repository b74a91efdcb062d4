"""Decode Avro values to columns on the way to Spark.

In: the column `value` as it was fetched. Out: a struct column of the Avro schema's type, by the
rules of Spark's `from_avro`. Must not: know Kafka or a cluster, or access a schema registry.

fastavro decodes the bytes to plain values, and Arrow makes columns of them: dates, times, decimals
and maps are reinterpreted columns, not objects (see `avro_schema`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.option_values import INT_MAX, choice, integer_option
from odradek.spark.values.avro_resolution import clash
from odradek.spark.values.avro_schema import AvroSchema, avro_schema
from odradek.spark.values.decoding import ValueDecodeError, in_parts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

WRITER, READER = "valueSchema", "avroSchema"
_ID_AT, _RECORD_AT = 1, 5
"""Confluent's wire format: a zero, the schema's id in four bytes, the record."""
_UNREADABLE = (EOFError, IndexError, ValueError, OverflowError, KeyError, struct.error)
"""Errors that fastavro raises for bytes that don't match the schema."""


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """How Avro values are decoded; can be pickled for tasks."""

    written_text: str
    read_text: str | None = None
    """The schema as which values are read; None: the one they were written with."""
    confluent: bool = False
    ids: tuple[int, ...] = ()
    """Ids in Confluent's format that the writer schema is valid for; empty for all."""
    fail_fast: bool = False

    def resolved(self) -> AvroFormat:
        """Return itself: the options contain both schemas."""
        return self

    def schemas(self) -> tuple[AvroSchema, AvroSchema | None]:
        """Return the writer schema, and the reader schema or None."""
        written = avro_schema(self.written_text, f"option {WRITER}")
        if self.read_text is None:
            return written, None
        read = avro_schema(self.read_text, f"option {READER}")
        why = clash(written.parsed, read.parsed)
        if why:
            raise OptionError(
                f"option {READER} can't read values written with option {WRITER}: {why}"
            )
        return written, read

    def schema(self) -> DataType:
        """Return the type of the column `value`."""
        written, read = self.schemas()
        return (read or written).spark

    def decoder(self, target: pa.StructType) -> AvroDecoder:
        """Return the decoder for the values of one task."""
        return AvroDecoder(target, self)


def parse_avro_format(plain: Mapping[str, str], *, fail_fast: bool) -> AvroFormat:
    """Read the options of Avro values (names in lower case)."""
    require_fastavro()
    written = plain.get("valueschema", "").strip()
    if not written:
        raise OptionError(
            "option valueFormat=avro needs option valueSchema (the Avro schema, as JSON, that the "
            "values were written with) or option schemaRegistryUrl"
        )
    confluent = choice(plain, "avroWireFormat", "plain", "confluent") == "confluent"
    ids = [text for text in plain.get("avroschemaid", "").split(",") if text.strip()]
    if ids and not confluent:
        raise OptionError("option avroSchemaId needs avroWireFormat=confluent")
    made = AvroFormat(
        written,
        plain.get("avroschema", "").strip() or None,
        confluent,
        tuple(integer_option("avroSchemaId", text, INT_MAX, least=0) for text in ids),
        fail_fast,
    )
    made.schemas()  # only checks the schemas
    return made


def require_fastavro() -> None:
    """Raise `OptionError` if fastavro isn't installed on this machine."""
    try:
        import fastavro  # noqa: F401
    except ImportError:
        raise OptionError(
            "option valueFormat=avro needs the package fastavro on the driver and on each "
            "executor: pip install 'odradek[avro]'"
        ) from None


class AvroDecoder:
    """Decodes the values of one task."""

    def __init__(self, target: pa.StructType, form: AvroFormat) -> None:
        import pyarrow as pa

        require_fastavro()
        from fastavro import schemaless_reader
        from fastavro.read import SchemaResolutionError

        self._read: Any = schemaless_reader
        self._target, self._form = target, form
        written, read = form.schemas()
        self._written, self._wanted = written.parsed, read.parsed if read else None
        self._raw = (read or written).raw
        self._begin = _RECORD_AT if form.confluent else 0
        self._refused = (*_UNREADABLE, pa.ArrowInvalid, SchemaResolutionError)
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each value; null for a null value."""
        self.bad = {}
        return in_parts(self._part, values, self._target)

    def _part(self, values: pa.Array, first: int) -> pa.Array:
        rows: list[dict[str, Any] | None] = []
        for number, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else self._record(value))
            except self._refused as error:
                rows.append(self._misfit(first + number, error))
        return self._column(rows, first)

    def _record(self, value: bytes) -> dict[str, Any]:
        """Decode one record, and check that no bytes remain."""
        stream = io.BytesIO(value)
        if self._begin:
            self._check_header(value)
            stream.seek(self._begin)
        found: dict[str, Any] = self._read(stream, self._written, self._wanted)
        if stream.tell() != len(value):
            left = len(value) - stream.tell()
            raise ValueError(f"{left} byte{'' if left == 1 else 's'} left over after the record")
        return found

    def _check_header(self, value: bytes) -> None:
        if len(value) < _RECORD_AT or value[0] != 0:
            raise ValueError("the value doesn't start with a zero byte and a 4-byte schema id")
        number = int.from_bytes(value[_ID_AT:_RECORD_AT], "big")
        if self._form.ids and number not in self._form.ids:
            raise ValueError(f"its schema id {number} isn't in option avroSchemaId")

    def _column(self, rows: list[dict[str, Any] | None], first: int) -> pa.Array:
        """Return the rows as a column.

        Records that don't fit its type, like a time in year 300000, become misfits. They are found
        by bisection, because converting row by row would take a second.
        """
        import pyarrow as pa

        try:
            return shaped(pa.array(rows, self._raw), self._target)
        except self._refused as error:
            if len(rows) == 1:
                return shaped(pa.array([self._misfit(first, error)], self._raw), self._target)
        half = len(rows) // 2
        return pa.concat_arrays(
            [self._column(rows[:half], first), self._column(rows[half:], first + half)]
        )

    def _misfit(self, row: int, error: Exception) -> dict[str, Any]:
        why = "the value is truncated" if isinstance(error, EOFError) else str(error)
        self.bad[row] = why
        if not self._form.fail_fast:
            return {}  # becomes a struct of nulls
        raise ValueDecodeError(row, why) from None


def shaped(raw: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert plain columns to logical types; raises for a value that has none."""
    import pyarrow as pa

    if raw.type == target:
        return raw
    if pa.types.is_struct(target):
        children = zip(raw.flatten(), target, strict=True)
        return pa.StructArray.from_arrays(
            [shaped(child, field.type) for child, field in children],
            fields=list(target),
            mask=_nulls(raw),
        )
    if pa.types.is_list(target):
        items = shaped(raw.values, target.value_type)
        return pa.ListArray.from_arrays(raw.offsets, items, type=target, mask=_nulls(raw))
    if pa.types.is_map(target):
        return _map(raw, target)
    if pa.types.is_decimal(target):
        return _decimals(raw, target)
    return raw.cast(target)


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _map(raw: pa.Array, target: pa.MapType) -> pa.Array:
    """Convert lists of entries to maps; of equal keys the last one counts, as in Java."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, items = raw.values.flatten()
    offsets = raw.offsets
    rows = pc.list_parent_indices(raw)
    entries = pa.table({"row": rows, "key": keys, "at": pa.array(range(len(keys)), pa.int64())})
    last = entries.group_by(["row", "key"]).aggregate([("at", "max")]).column("at_max")
    if len(last) < len(keys):
        chosen = last.combine_chunks().sort()
        kept_rows = rows.take(chosen)
        counts = [0] * (len(raw) + 1)
        for row in kept_rows.to_pylist():
            counts[row + 1] += 1
        for n in range(len(raw)):
            counts[n + 1] += counts[n]
        keys, items, offsets = keys.take(chosen), items.take(chosen), pa.array(counts, pa.int32())
    found = pa.MapArray.from_arrays(
        offsets, shaped(keys, target.key_type), shaped(items, target.item_type), mask=_nulls(raw)
    )
    return found if found.type == target else found.cast(target)


def _decimals(raw: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Convert big-endian numbers of any length to decimals."""
    import pyarrow as pa

    most = 10**target.precision
    words: list[bytes] = []
    for given in raw.to_pylist():
        if given == b"":
            raise ValueError("a decimal is empty")
        number = int.from_bytes(given or b"", "big", signed=True)
        if not -most < number < most:
            raise ValueError(f"a decimal has more than {target.precision} digits")
        words.append(number.to_bytes(16, "little", signed=True))
    valid = raw.is_valid().buffers()[1] if raw.null_count else None
    return pa.Array.from_buffers(target, len(raw), [valid, pa.py_buffer(b"".join(words))])
