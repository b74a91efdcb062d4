"""Convert columns of JSON, framed with a JSON Schema or plain, to columns of values, and back.

In: an Arrow column of bytes, as `Consumer.poll_arrow` returns it, or of values. Out: a column of
the other kind with the same length, and by row the reason why it can't be converted. Must not: fail
all rows because of one of them, or read rows of one schema as another schema unless a reader schema
is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.serialization.avro.serializers import given_schema
from odradek.serialization.columns.converted_column import (
    ConvertedColumn,
    NoSchema,
    RowSchemas,
    check_bytes,
    check_column,
    check_reader_schema,
    check_registry,
    context_of,
    written_rows,
)
from odradek.serialization.context import MessageField, SerializationContext
from odradek.serialization.errors import (
    DeserializationError,
    SchemaRegistryError,
)
from odradek.serialization.json.rows import JsonRows
from odradek.serialization.json.serializers import JsonChecks, JSONSerializer, json_of
from odradek.serialization.json.shapes import JsonShapes
from odradek.serialization.json.types import json_type
from odradek.serialization.plain import parsed_json
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.schemas import JSON, Schema
from odradek.serialization.wire_format import ID_SIZE

if TYPE_CHECKING:
    import pyarrow as pa


def json_to_arrow(
    column: pa.Array | pa.ChunkedArray,
    registry: SchemaRegistryClient,
    reader_schema: str | Schema | None = None,
    *,
    validate: bool = True,
) -> ConvertedColumn:
    """Decode a column of framed JSON to a column of values: of structs, if the values are objects.

    `column`: binary of any kind, in Confluent's wire format.
    `reader_schema`: the JSON Schema that all rows are read with. Without one, all rows must have
    the same schema.
    `validate`: validate each row, as `JSONDeserializer` does. Without validation a row only has to
    match the type, which takes a third of the time.

    The values have the types of `json.types.json_type`: all fields are nullable. Rows that can't be
    read are null and listed in the result's `errors`, also if the registry doesn't have their
    schema.

    Raises `InvalidSchemaError` for several schemas without a reader schema, or for an unusable
    reader schema; `SchemaRegistryError` if the registry can't be reached.

    >>> read = json_to_arrow(batch.column("value"), registry)
    >>> read.values.type, dict(read.errors)
    (StructType(struct<to: string>), {})
    """
    check_bytes(column)
    check_registry(registry)
    check_reader_schema(reader_schema)
    if not isinstance(validate, bool):
        raise ConfigurationError(f"validate must be true or false, not {type(validate).__name__}")
    return _Decoding(registry, reader_schema, validate).converted(column)


def plain_json_to_arrow(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> ConvertedColumn:
    """Decode a column of JSON without a schema id to a column of values.

    `column`: binary of any kind.
    `kind`: the type of the values: structs, lists, booleans, signed integers, floats, strings,
    dates and timestamps (ISO 8601 in JSON). Members that the struct lacks are left out; fields that
    an object lacks are null; a string field holds the JSON text of a value that isn't a string.

    Rows that don't match are null and listed in the result's `errors`. Raises `ConfigurationError`
    for an unsupported type.

    >>> read = plain_json_to_arrow(batch.column("value"), pa.struct({"to": pa.string()}))
    >>> read.values.type, dict(read.errors)
    (StructType(struct<to: string>), {})
    """
    check_bytes(column)
    _check_kind(kind)
    errors: dict[int, str] = {}
    found = JsonRows(kind, parsed=False).read(column.to_pylist(), errors)
    return ConvertedColumn(found, errors)


def _check_kind(kind: Any) -> None:
    import pyarrow as pa

    if not isinstance(kind, pa.DataType):
        cure = ": pass pa.struct(schema)" if isinstance(kind, pa.Schema) else ""
        raise ConfigurationError(f"kind must be an Arrow type, not {type(kind).__name__}{cure}")
    if pa.types.is_struct(kind):
        if len({one.name for one in kind}) < kind.num_fields:
            raise ConfigurationError(f"kind has two fields of the same name: {kind}")
        for one in kind:
            _check_kind(one.type)
        return
    if pa.types.is_list(kind):
        _check_kind(kind.value_type)
        return
    known = ("signed_integer", "boolean", "float32", "float64", "string", "date32", "timestamp")
    if not any(getattr(pa.types, f"is_{name}")(kind) for name in known):
        raise ConfigurationError(
            f"kind contains {kind}, which can't be read from JSON; use structs, lists, booleans, "
            "signed integers, float32, float64, strings, date32 and timestamps"
        )


class _Decoding:
    """State of one call of `json_to_arrow`."""

    def __init__(
        self, registry: SchemaRegistryClient, reader_schema: str | Schema | None, validate: bool
    ) -> None:
        self._checks = JsonChecks(registry) if validate else None
        self._reader = None if reader_schema is None else given_schema(reader_schema, JSON)
        if self._reader is not None:
            try:
                self._usable(self._reader)
            except SchemaRegistryError as error:
                raise error.blameless() from error.__cause__
        self._rows = RowSchemas(registry, self._usable, instead=self._reader)

    def converted(self, column: pa.Array | pa.ChunkedArray) -> ConvertedColumn:
        """Return the converted column and the errors of its rows."""
        import pyarrow as pa

        errors: dict[int, str] = {}
        rows = [
            None if data is None else self._payload(data, number, errors)
            for number, data in enumerate(column.to_pylist())
        ]
        schema = self._reader or self._rows.first
        if schema is None:
            return ConvertedColumn(pa.nulls(len(column)), errors)
        reading = JsonRows(json_type(json_of(schema)), parsed=self._checks is not None)
        return ConvertedColumn(reading.read(rows, errors), dict(sorted(errors.items())))

    def _payload(self, data: bytes, number: int, errors: dict[int, str]) -> bytes | None:
        """Return the checked JSON of a row; return None and add to the errors if it is invalid."""
        schema = self._rows.of(data)
        if isinstance(schema, NoSchema):
            errors[number] = schema.why
            return None
        payload = data[ID_SIZE:]
        if self._checks is None:
            return payload
        try:
            why = self._checks.check(schema, parsed_json(payload))
        except DeserializationError as error:
            errors[number] = str(error)
            return None
        if why is not None:
            errors[number] = f"the data doesn't match its JSON schema: {why}"
            return None
        return payload

    def _usable(self, schema: Schema) -> Schema:
        """Return the schema if it can be used. Raises `InvalidSchemaError`."""
        json_type(json_of(schema))
        if self._checks is not None:
            self._checks.prepare(schema)
        return schema


def arrow_to_json(
    column: pa.Array | pa.ChunkedArray,
    serializer: Callable[[Any, SerializationContext], bytes | None],
    topic: str,
    field: MessageField = MessageField.VALUE,
) -> ConvertedColumn:
    """Encode a column of values as JSON, as `Producer.send_arrow` takes it.

    `serializer`: a `JSONSerializer`, which frames and validates, or a `PlainJSONSerializer`; the
    subject is derived from `topic` and `field`.

    Null stays null. A null field is left out unless the schema requires it; times are ISO 8601,
    bytes base64, decimals numbers with all their digits. Rows that don't match the schema are null
    and listed in the result's `errors`: check them before sending, because a null value is a
    tombstone.

    Raises `ConfigurationError` for a type that can't be written as JSON; `SchemaRegistryError` if
    the schema isn't available.

    >>> written = arrow_to_json(table.column("flight"), serialize, "flights")
    >>> written.values.type
    DataType(binary)
    """
    check_column(column)
    if not callable(serializer):
        raise ConfigurationError(
            f"serializer must be a JSONSerializer, not {type(serializer).__name__}"
        )
    context = context_of(topic, field)
    document = None
    if isinstance(serializer, JSONSerializer):
        document = json_of(serializer.schema(context))
    shape = JsonShapes(document).of(column.type, document, "the column")
    return written_rows(column, lambda value: serializer(shape(value), context))
