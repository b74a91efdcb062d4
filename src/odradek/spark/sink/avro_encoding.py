"""Keys and values written as Avro, framed with the id of a schema that a registry has.

In: Arrow batches whose key or value isn't bytes yet. Out: the same with framed bytes. The schema is
looked up in a task, once in a process for as long as the registry's client keeps it; nothing is
registered. Must not: write a number that its schema has no room for, or leave out a column that the
schema doesn't have: both are errors before the first row goes out.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.serialization import InvalidSchemaError, Schema, SchemaRegistryClient
from odradek.serialization.avro import parsed_avro
from odradek.serialization.avro_types import arrow_type
from odradek.serialization.wire_format import SchemaId
from odradek.spark.sink.sink_problems import SinkRowError, SinkSchemaError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AvroEncoding:
    """How a column is written; plain data, so it travels to tasks."""

    settings: Mapping[str, Any] = field(repr=False)
    """Of the registry's client; not in repr, since they may hold a secret."""
    subject: str
    text: str | None = None
    """The schema, which the subject must have; None: its latest version."""


def encoded(
    batches: Iterator[pa.RecordBatch], encodings: Mapping[str, AvroEncoding]
) -> Iterator[pa.RecordBatch]:
    """Give batches whose columns are framed. Raises `SinkRowError` with the row's number in its
    task, `SinkSchemaError` for columns that aren't of the schema, and `SchemaRegistryError`.
    """
    made: dict[str, _Encoder] = {}
    first = 0
    for batch in batches:
        for name, encoding in encodings.items():
            at = batch.schema.get_field_index(name)
            if at < 0:
                continue
            if name not in made:
                made[name] = _Encoder(name, encoding, batch.schema.field(name).type)
            batch = batch.set_column(at, name, made[name].column(batch.column(name), first))
        first += batch.num_rows
        yield batch


class _Encoder:
    """Writes one column of a task."""

    def __init__(self, name: str, encoding: AvroEncoding, given: pa.DataType) -> None:
        from fastavro import schemaless_writer

        registry = SchemaRegistryClient(encoding.settings)
        if encoding.text is None:
            found = registry.get_latest_version(encoding.subject)
        else:
            found = registry.lookup_schema(encoding.subject, Schema(encoding.text))
        self._name, self._subject, self._write = name, encoding.subject, schemaless_writer
        self._prefix = SchemaId(found.schema_id).prefix()
        self._parsed = parsed_avro(found.schema, registry)
        try:
            check_type(self._parsed, arrow_type(self._parsed), given, name)
        except InvalidSchemaError as error:
            raise SinkSchemaError(f"the schema of subject {encoding.subject}: {error}") from None

    def column(self, values: pa.Array, first: int) -> pa.Array:
        """The framed bytes of values, null for null; `first` is the number of the first row."""
        import pyarrow as pa

        written: list[bytes | None] = []
        for row, value in enumerate(values.to_pylist(maps_as_pydicts="strict"), first):
            written.append(None if value is None else self._row(value, row))
        return pa.array(written, pa.binary())

    def _row(self, value: Any, row: int) -> bytes:
        stream = io.BytesIO()
        stream.write(self._prefix)
        try:
            self._write(stream, self._parsed, value)
        # A value that isn't of the schema makes fastavro raise whatever Python has.
        except Exception as error:
            raise SinkRowError(
                f"row {row} of this task: the {self._name} doesn't fit the schema of subject "
                f"{self._subject}: {type(error).__name__}",
                row,
            ) from error
        return stream.getvalue()


def check_type(parsed: Any, wanted: pa.DataType, given: pa.DataType, where: str) -> None:
    """Refuse columns that a schema's type doesn't hold. Raises `SinkSchemaError`.

    `wanted` is the schema's Arrow type. Fields that aren't given must have a default; a number may
    be narrower than the schema's.
    """
    import pyarrow as pa

    if pa.types.is_struct(wanted) and pa.types.is_struct(given):
        _check_struct(parsed, wanted, given, where)
        return
    if pa.types.is_map(wanted) and pa.types.is_map(given):
        if not pa.types.is_string(given.key_type):
            raise _misfit(where, wanted, given)
        check_type(None, wanted.item_type, given.item_type, f"{where}'s values")
        return
    lists = pa.types.is_list(wanted) and pa.types.is_list(given)
    if lists and not pa.types.is_map(given):
        check_type(None, wanted.value_type, given.value_type, f"{where}'s items")
        return
    if not _holds(wanted, given):
        raise _misfit(where, wanted, given)


def _check_struct(parsed: Any, wanted: pa.StructType, given: pa.StructType, where: str) -> None:
    there = {one.name: one.type for one in given}
    for name in there.keys() - {one.name for one in wanted}:
        raise SinkSchemaError(
            f"{where}.{name} isn't in the schema that is written: leave it out, or register a "
            "version of the schema that has it"
        )
    fields = parsed.get("fields", ()) if isinstance(parsed, dict) else ()
    optional = {one["name"] for one in fields if "default" in one}
    inner = {one["name"]: one["type"] for one in fields}
    for one in wanted:
        if one.name in there:
            check_type(inner.get(one.name), one.type, there[one.name], f"{where}.{one.name}")
        elif one.name not in optional:
            raise SinkSchemaError(
                f"{where}.{one.name} is in the schema that is written, without a default, and "
                f"there is no such column: there are {', '.join(there) or 'none'}"
            )


def _holds(wanted: pa.DataType, given: pa.DataType) -> bool:
    """Whether each value of a column's type is one of the schema's."""
    import pyarrow as pa

    t = pa.types
    if t.is_null(given):
        return True
    if t.is_integer(given):
        wide = t.is_integer(wanted) and wanted.bit_width >= given.bit_width
        return bool(wide or (t.is_float64(wanted) and given.bit_width <= 32))
    if t.is_floating(given):
        return bool(t.is_floating(wanted) and wanted.bit_width >= given.bit_width)
    if t.is_decimal(given):
        whole = given.precision - given.scale
        return bool(
            t.is_decimal(wanted)
            and wanted.scale >= given.scale
            and wanted.precision - wanted.scale >= whole
        )
    if t.is_timestamp(given):
        return bool(t.is_timestamp(wanted) and (wanted.tz is None) == (given.tz is None))
    if t.is_binary(given):
        return bool(t.is_binary(wanted) or t.is_fixed_size_binary(wanted))
    return bool(given == wanted)


def _misfit(where: str, wanted: pa.DataType, given: pa.DataType) -> SinkSchemaError:
    return SinkSchemaError(
        f"{where} is {given}, and the schema that is written has {wanted} there: cast the column"
    )
