"""Decode Protobuf keys and values whose schemas are in a registry.

In: a column of framed Protobuf. Out: a struct column of one message's fields. Additional fields of
other versions of the message are dropped, and missing ones have their default, as in Protobuf. Must
not: read bytes of another message as this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.common.errors import IllegalStateError
from odradek.serialization import InvalidSchemaError, SchemaRegistryClient
from odradek.serialization.protobuf.files import described, message_named
from odradek.serialization.protobuf.rows import NamedBySchemas, ProtobufRows
from odradek.serialization.protobuf.types import protobuf_type
from odradek.serialization.registry.rules import READ, check_rules
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.registries import query_key, shared_client
from odradek.spark.values.decoding import ValueDecodeError, kept_where

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from odradek.serialization import RegisteredSchema


@dataclass(frozen=True, slots=True)
class RegistryProtobufFormat:
    """How a column of framed Protobuf is decoded; can be pickled for tasks."""

    settings: Mapping[str, Any] = field(repr=False)
    """Settings of the registry's client; not in repr, since they may contain a secret."""
    subject: str
    """Subject whose latest version contains the message."""
    message: str | None = None
    """Full name of the message; None: the file's first."""
    files: tuple[bytes, ...] = ()
    """Descriptors of the imported files, followed by that of the message's own file."""
    corrupt: str | None = None
    """Field for the bytes of values that can't be decoded."""
    fail_fast: bool = False
    query: str = field(default_factory=query_key, repr=False, compare=False, kw_only=True)
    """Key of the query whose tasks share a client of the registry."""

    def resolved(self) -> RegistryProtobufFormat:
        """Return the format with registered `files`. Raises registry and option errors."""
        registry = SchemaRegistryClient(self.settings)
        latest = registry.get_latest_version(self.subject)
        check_rules(latest.schema, READ)
        files = files_of(latest, registry)
        found = replace(self, files=files)
        found.schema()  # only checks the schema
        return found

    def descriptor(self) -> Any:
        """Return the message's descriptor. Raises `OptionError`."""
        if not self.files:
            raise IllegalStateError("the message's file hasn't been looked up yet")
        return message_of(self.files, self.message, self.subject)

    def schema(self) -> DataType:
        """Return the type of the decoded column."""
        from pyspark.sql import types as t

        found = message_type(self.descriptor())
        if self.corrupt is None:
            return found
        if self.corrupt in found.fieldNames():
            raise OptionError(
                f"option columnNameOfCorruptRecord is {self.corrupt}, but the message already has "
                "a field of that name"
            )
        return t.StructType([*found.fields, t.StructField(self.corrupt, t.BinaryType())])

    def decoder(self, target: pa.StructType) -> RegistryProtobufDecoder:
        """Return the decoder for the values of one task."""
        return RegistryProtobufDecoder(target, self)


def files_of(found: RegisteredSchema, registry: SchemaRegistryClient) -> tuple[bytes, ...]:
    """Return a subject's descriptors. Raises `SchemaRegistryError`, `OptionError`."""
    try:
        return described(found.schema, found.schema_id, f"{found.subject}.proto", registry)
    except InvalidSchemaError as error:
        raise OptionError(f"version {found.version} of subject {found.subject}: {error}") from None


def message_of(files: tuple[bytes, ...], message: str | None, subject: str) -> Any:
    """Return a message's descriptor (None: the file's first message). Raises `OptionError`."""
    try:
        return message_named(files, message, f"subject {subject}")
    except InvalidSchemaError as error:
        raise OptionError(str(error)) from None


def message_type(descriptor: Any) -> StructType:
    """Return the column type of a message. Raises `OptionError` if it has none."""
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        found = protobuf_type(descriptor, empty=False).kind
    except InvalidSchemaError as error:
        raise OptionError(str(error)) from None
    made: StructType = from_arrow_type(found)  # type: ignore[assignment]  # a struct's is one
    return made


class RegistryProtobufDecoder:
    """Decodes a column of one task; each schema is requested once per process."""

    def __init__(self, target: pa.StructType, form: RegistryProtobufFormat) -> None:
        descriptor = form.descriptor()
        registry = shared_client(form.query, form.settings)
        named = NamedBySchemas(registry, descriptor.full_name)
        self._rows = ProtobufRows(descriptor, named, empty=False)
        self._target, self._form = target, form
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Return the decoded structs; null for null, nulls in all fields for a bad value.

        Raises `ValueDecodeError` with FAILFAST, and `SchemaRegistryError` if the registry can't be
        reached.
        """
        import pyarrow as pa

        found, self.bad = self._rows.read(values)
        if self.bad and self._form.fail_fast:
            raise ValueDecodeError(*next(iter(self.bad.items())))
        columns = found.flatten()  # a child is null where the struct is null
        if self._form.corrupt is not None:
            columns.append(kept_where(self.bad, values))
        plain = pa.StructArray.from_arrays(
            columns, names=[one.name for one in self._target], mask=values.is_null()
        )
        return plain.cast(self._target)
