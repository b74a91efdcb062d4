"""Whole columns of framed Protobuf to columns of structs, and back.

In: an Arrow column of bytes as `Consumer.poll_arrow` gives it, or of structs. Out: a column of the
other kind of the same length, and by row why one can't be had. Must not: fail all rows for one of
them, or take rows of another message for this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.serialization.columns.converted_column import (
    ConvertedColumn,
    check_bytes,
    check_column,
    check_registry,
    context_of,
    written_rows,
)
from odradek.serialization.context import MessageField
from odradek.serialization.errors import (
    DeserializationError,
    InvalidSchemaError,
    SchemaNotFoundError,
    SerializationError,
)
from odradek.serialization.protobuf.files import message_of
from odradek.serialization.protobuf.rows import NamedBySchemas, ProtobufRows
from odradek.serialization.protobuf.serializers import ProtobufSerializer, message_descriptor
from odradek.serialization.protobuf.shapes import message_shape
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.wire_format import SchemaId, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.serialization.registry.schemas import Schema


def protobuf_to_arrow(
    column: pa.Array | pa.ChunkedArray,
    registry: SchemaRegistryClient,
    message_type: type | None = None,
) -> ConvertedColumn:
    """Make a column of structs of a column of framed Protobuf.

    `column`: binary of any kind, in Confluent's wire format. Rows are read as `message_type`, a
    class that protoc has generated, whatever version of the message they are; without one as the
    message of the first row, by the descriptor that the registry gives, and then they must all be
    of one schema. Types are those of `protobuf_types.protobuf_type`. Rows that can't be read, or
    are another message, are null, and among the result's `errors`.

    Raises `InvalidSchemaError` for several schemas without a class, or a message that Arrow has no
    type for; `SchemaRegistryError` where a registry can't be asked. A schema that the registry
    doesn't have is the row's error.

    >>> read = protobuf_to_arrow(batch.column("value"), registry)
    >>> read.values.type, dict(read.errors)
    (StructType(struct<to: string>), {})
    """
    check_bytes(column)
    check_registry(registry)
    if message_type is not None:
        descriptor = message_descriptor(message_type)
        wrong = NamedBySchemas(registry, descriptor.full_name)
        return ConvertedColumn(*ProtobufRows(descriptor, wrong).read(column))
    return _OneSchema(registry).converted(column)


class _OneSchema:
    """One call without a class: the rows' own schema says what they are."""

    def __init__(self, registry: SchemaRegistryClient) -> None:
        self._registry = registry
        self._schema: Schema | None = None
        self._known: set[int] = set()
        """Ids of that schema."""
        self._named: NamedBySchemas | None = None

    def converted(self, column: pa.Array | pa.ChunkedArray) -> ConvertedColumn:
        """The column, and what is wrong with it."""
        import pyarrow as pa

        errors: dict[int, str] = {}
        for number, one in enumerate(column):
            data = one.as_py()
            if data is None:
                continue
            try:
                descriptor = self._first(data)
            except (DeserializationError, SchemaNotFoundError) as error:
                errors[number] = str(error)
                continue
            return ConvertedColumn(*ProtobufRows(descriptor, self._wrong).read(column))
        return ConvertedColumn(pa.nulls(len(column)), errors)

    def _first(self, data: bytes) -> Any:
        """The message of a row. Raises `DeserializationError` where it says none."""
        of, _ = schema_of(data, indexed=True)
        descriptor = message_of(of, self._registry)
        assert of.id is not None  # noqa: S101 - `message_of` has looked
        self._schema, self._known = self._registry.get_schema(of.id), {of.id}
        self._named = NamedBySchemas(self._registry, descriptor.full_name)
        return descriptor

    def _wrong(self, of: SchemaId) -> str | None:
        if of.id is not None and of.id not in self._known:
            try:
                found = self._registry.get_schema(of.id)
            except SchemaNotFoundError as error:
                return str(error)
            if found != self._schema:
                raise InvalidSchemaError(
                    "the column has records of several schemas",
                    None,
                    "Give the message_type by which all of them are read.",
                )
            self._known.add(of.id)
        assert self._named is not None  # noqa: S101 - rows are read after the first one
        return self._named(of)


def arrow_to_protobuf(
    column: pa.Array | pa.ChunkedArray,
    serializer: ProtobufSerializer[Any],
    topic: str,
    field: MessageField = MessageField.VALUE,
) -> ConvertedColumn:
    """Make a column of framed Protobuf, as `Producer.send_arrow` takes it, of a column of structs.

    `serializer` has the class; the subject is that of `topic` and `field`. The structs' fields are
    the message's, in any order, of the types that `protobuf_to_arrow` gives them; a null is a field
    that isn't there. Null stays null. Rows that are no such message are null, and among the
    result's `errors`: look before you send, for a null value deletes.

    Raises `SchemaRegistryError` where the schema can't be had.

    >>> written = arrow_to_protobuf(table.column("flight"), serialize, "flights")
    >>> written.values.type
    DataType(binary)
    """
    check_column(column)
    if not isinstance(serializer, ProtobufSerializer):
        raise ConfigurationError(
            f"serializer must be a ProtobufSerializer, not {type(serializer).__name__}"
        )
    context = context_of(topic, field)
    made = serializer.message_type
    descriptor = message_descriptor(made)
    shape, known = message_shape(descriptor), set(descriptor.fields_by_name)

    def written(value: Any) -> bytes | None:
        try:
            message = made(**shape(value))
        # What is of another type, or has a field that the message hasn't, a class says in its ways.
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
            others = sorted(value.keys() - known) if isinstance(value, dict) else []
            why = f"it has no field {', '.join(others)}" if others else _words(error)
            raise SerializationError(f"it doesn't fit the message: {why}") from None
        return serializer(message, context)

    return written_rows(column, written)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
