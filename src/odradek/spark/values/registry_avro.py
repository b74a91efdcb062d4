"""Decode Avro keys and values with the schemas of a registry, by the schema id in each record.

In: a column of framed Avro. Out: a column of the reader's type, by the rules of Spark's
`from_avro`; schemas may change from record to record (evolution). Must not: misread a record
because its schema is unavailable: a schema that the registry doesn't have is that record's error,
and an unreachable registry fails the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.common.errors import IllegalStateError
from odradek.serialization import (
    DeserializationError,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from odradek.serialization.avro.rows import AvroRows
from odradek.serialization.columns.converted_column import NoSchema
from odradek.serialization.framing import written_schema
from odradek.serialization.registry.rules import READ, check_rules
from odradek.serialization.registry.schemas import AVRO
from odradek.serialization.wire_format import ID_SIZE, schema_of
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.registries import query_key, shared_client
from odradek.spark.values.avro_resolution import clash
from odradek.spark.values.avro_schema import AvroSchema, avro_schema, texts_referred
from odradek.spark.values.avro_values import shaped
from odradek.spark.values.decoding import ValueDecodeError, kept_where

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType


@dataclass(frozen=True, slots=True)
class RegistryAvroFormat:
    """How a column of framed Avro is decoded; can be pickled for tasks."""

    settings: Mapping[str, Any] = field(repr=False)
    """Settings of the registry's client; not in repr, since they may contain a secret."""
    subject: str
    """Subject whose latest version is the reader's schema, unless `read_text` is set."""
    read_text: str | None = None
    """The reader's schema; None until `resolved` has looked it up."""
    others: tuple[str, ...] = ()
    """Texts of the schemas that the reader's schema references."""
    whence: str = "option avroSchema"
    """Source of the reader's schema, for errors."""
    record: bool = True
    """Whether the reader's schema must be a record."""
    corrupt: str | None = None
    """Field for the bytes of values that can't be decoded."""
    fail_fast: bool = False
    query: str = field(default_factory=query_key, repr=False, compare=False, kw_only=True)
    """Key of the query whose tasks share a client of the registry."""

    def resolved(self) -> RegistryAvroFormat:
        """Return the same format with the reader schema, looked up in the registry if not given.

        Raises `SchemaRegistryError`, and `OptionError` for a schema that can't be used.
        """
        found = self
        if self.read_text is None:
            registry = SchemaRegistryClient(self.settings)
            latest = registry.get_latest_version(self.subject)
            check_rules(latest.schema, READ)
            schema, whence = latest.schema, f"version {latest.version} of subject {self.subject}"
            if schema.schema_type != AVRO:
                raise OptionError(f"{whence} has type {schema.schema_type}, not AVRO")
            others = texts_referred(schema, registry)
            found = replace(self, read_text=schema.schema_str, others=others, whence=whence)
        found.schema()  # only checks the schema
        return found

    def read(self) -> AvroSchema:
        """Return the reader schema. Raises `OptionError`."""
        if self.read_text is None:
            raise IllegalStateError("the reader schema hasn't been looked up yet")
        return avro_schema(self.read_text, self.whence, record=self.record, others=self.others)

    def schema(self) -> DataType:
        """Return the type of the decoded column."""
        from pyspark.sql import types as t

        found = self.read().spark
        if self.corrupt is None:
            return found
        if not isinstance(found, t.StructType) or self.corrupt in found.fieldNames():
            raise OptionError(
                f"option columnNameOfCorruptRecord is {self.corrupt}, but {self.whence} isn't a "
                "record or already has a field of that name"
            )
        return t.StructType([*found.fields, t.StructField(self.corrupt, t.BinaryType())])

    def decoder(self, target: pa.DataType) -> RegistryAvroDecoder:
        """Return the decoder for the values of one task."""
        return RegistryAvroDecoder(target, self)


class RegistryAvroDecoder:
    """Decodes a column of one task; each schema is requested once per process."""

    def __init__(self, target: pa.DataType, form: RegistryAvroFormat) -> None:
        import pyarrow as pa

        self._registry = shared_client(form.query, form.settings)
        self._target, self._form, self._read = target, form, form.read()
        self._plain = target
        if form.corrupt is not None:
            self._plain = pa.struct(list(target)[:-1])
        self._rows = AvroRows(self._read.raw, self._read.parsed, self._written_of)
        self._written: dict[bytes, Any] = {}
        """By framed id, the writer's schema, or the reason why it can't be used.

        Not bounded, unlike the client's cache: the records of a task use few schemas."""
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Return the decoded values; null for null, a struct of nulls for an undecodable value.

        Raises `ValueDecodeError` with FAILFAST, and `SchemaRegistryError` if the registry can't be
        reached.
        """
        import pyarrow as pa

        raw, self.bad = self._rows.read(values)
        numbers = list(range(len(raw)))
        found = self._shaped(raw, numbers)
        if self.bad:
            self.bad = dict(sorted(self.bad.items()))
            if self._form.fail_fast:
                raise ValueDecodeError(*next(iter(self.bad.items())))
        if not pa.types.is_struct(self._target):
            return found
        columns = found.flatten()  # a child is null where the struct is null
        if self._form.corrupt is not None:
            columns.append(kept_where(self.bad, values))
        return pa.StructArray.from_arrays(columns, fields=list(self._target), mask=values.is_null())

    def _shaped(self, raw: pa.Array, numbers: list[int]) -> pa.Array:
        """Convert plain columns to logical types; bisect the rows to find those that don't fit."""
        import pyarrow as pa

        try:
            return shaped(raw, self._plain)
        except (pa.ArrowInvalid, ValueError, OverflowError) as error:
            if len(numbers) == 1:
                self.bad[numbers[0]] = str(error)
                return pa.nulls(1, self._plain)
        half = len(numbers) // 2
        parts = (range(half), range(half, len(numbers)))
        # Use `take` instead of slices: the children of a slice are those of the whole array.
        return pa.concat_arrays(
            [
                self._shaped(raw.take(pa.array(part, pa.int64())), [numbers[at] for at in part])
                for part in parts
            ]
        )

    def _written_of(self, data: bytes) -> Any:
        prefix = data[:ID_SIZE]
        found = self._written.get(prefix)
        if found is None:
            try:
                found = self._schema(data)
            except SchemaRegistryError as error:
                if not error.blames_record:
                    raise
                return NoSchema(str(error))  # not cached: the id may be registered later
            if prefix[:1] == b"\0":
                self._written[prefix] = found
        return found

    def _schema(self, data: bytes) -> Any:
        try:
            of, _ = schema_of(data)
            if of.id is None:
                return NoSchema("its schema is identified by a GUID, which columns don't support")
            schema = written_schema(self._registry, of)
            if schema.schema_type != AVRO:
                return NoSchema(f"its schema {of.id} has type {schema.schema_type}, not AVRO")
            others = texts_referred(schema, self._registry)
            whence = f"its schema {of.id}"
            written = avro_schema(schema.schema_str, whence, record=False, others=others)
        except (DeserializationError, OptionError) as error:
            return NoSchema(str(error))
        why = clash(written.parsed, self._read.parsed)
        if why:
            return NoSchema(f"its schema {of.id} can't be read as {self._form.whence}: {why}")
        return written.parsed
