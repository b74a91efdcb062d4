"""Convert whole columns of framed Avro to columns of values, and back.

In: an Arrow column of bytes, as `Consumer.poll_arrow` returns it, or of values. Out: a column of
the other kind with the same length, and by row the reason why it can't be converted. Each schema is
requested and parsed at most once per call. Must not: fail all rows because of one of them, or read
rows of one schema as another schema unless a reader schema is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.serialization.avro.parsing import parsed_avro
from odradek.serialization.avro.reading import is_bytes
from odradek.serialization.avro.rows import AvroRows
from odradek.serialization.avro.safe_schemas import guarded
from odradek.serialization.avro.serializers import AvroSerializer, given_schema
from odradek.serialization.avro.types import arrow_type
from odradek.serialization.columns.converted_column import (
    ConvertedColumn,
    RowSchemas,
    check_bytes,
    check_column,
    check_reader_schema,
    check_registry,
    context_of,
    written_rows,
)
from odradek.serialization.context import MessageField
from odradek.serialization.errors import (
    InvalidSchemaError,
    SchemaRegistryError,
    SerializationError,
)
from odradek.serialization.extras import fastavro
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.schemas import AVRO, Schema
from odradek.serialization.schema_limits import AvroLimits

if TYPE_CHECKING:
    import pyarrow as pa


def avro_to_arrow(
    column: pa.Array | pa.ChunkedArray,
    registry: SchemaRegistryClient,
    reader_schema: str | Schema | None = None,
    *,
    text_decimals: bool = False,
) -> ConvertedColumn:
    """Decode a column of framed Avro to a column of values: of structs, if the schema is a record.

    `column`: binary of any kind, in Confluent's wire format.
    `reader_schema`: the schema with which all rows are read (schema evolution). Without one, all
    rows must have the same schema.
    `text_decimals`: decimals of more than 38 digits become strings. Otherwise those of up to 76
    digits are `decimal256`, which many programs can't use, and larger ones raise an error.

    The values have the Arrow types of `avro.types.arrow_type`: all fields are nullable, and logical
    types become Arrow's. Rows that can't be read are null and listed in the result's `errors`, also
    if the registry doesn't have their schema.

    Raises `InvalidSchemaError` for several schemas without a reader schema, or for a schema without
    an Arrow type; `SchemaRegistryError` if the registry can't be reached.

    >>> read = avro_to_arrow(batch.column("value"), registry)
    >>> read.values.type, dict(read.errors)
    (StructType(struct<to: string>), {})
    """
    check_bytes(column)
    check_registry(registry)
    check_reader_schema(reader_schema)
    if not isinstance(text_decimals, bool):
        raise ConfigurationError(
            f"text_decimals must be true or false, not {type(text_decimals).__name__}"
        )
    return _Decoding(registry, reader_schema, text_decimals).converted(column)


class _Decoding:
    """State of one call of `avro_to_arrow`."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        reader_schema: str | Schema | None,
        text_decimals: bool,
    ) -> None:
        self._registry, self._text_decimals = registry, text_decimals
        self._reader: Any = None
        if reader_schema is not None:
            try:
                self._reader = parsed_avro(given_schema(reader_schema, AVRO), registry)
            except SchemaRegistryError as error:
                raise error.blameless() from error.__cause__
        self._rows = RowSchemas(registry, self._usable, several=reader_schema is not None)

    def converted(self, column: pa.Array | pa.ChunkedArray) -> ConvertedColumn:
        """Return the converted column and the errors of its rows."""
        import pyarrow as pa

        kind = self._kind(column)
        if kind is None:
            rows = enumerate(column.to_pylist())
            errors = {at: self._rows.of(data).why for at, data in rows if data is not None}
            return ConvertedColumn(pa.nulls(len(column)), errors)
        rows_read = AvroRows(kind, self._reader, self._rows.of, text_decimals=self._text_decimals)
        return ConvertedColumn(*rows_read.read(column))

    def _kind(self, column: pa.Array | pa.ChunkedArray) -> pa.DataType | None:
        """Return the type of the reader schema, or of the first row that has a schema."""
        if self._reader is not None:
            return self._type_of(self._reader)
        for one in column:
            data = one.as_py()
            if data is not None:
                self._rows.of(data)
            if self._rows.first is not None:
                return self._type_of(self._rows.first)
        return None

    def _type_of(self, parsed: Any) -> pa.DataType:
        return arrow_type(parsed, text_decimals=self._text_decimals)

    def _usable(self, schema: Schema) -> Any:
        found = parsed_avro(schema, self._registry)
        AvroLimits(found)
        return found


def arrow_to_avro(
    column: pa.Array | pa.ChunkedArray,
    serializer: AvroSerializer,
    topic: str,
    field: MessageField = MessageField.VALUE,
) -> ConvertedColumn:
    """Encode a column of values as framed Avro, as `Producer.send_arrow` takes it.

    `serializer` has the schema and settings; the subject is derived from `topic` and `field`. The
    schema is looked up, or registered, once. Null stays null. Fields that the schema lacks are left
    out, as the serializer does for dicts. Rows that don't match the schema are null and listed in
    the result's `errors`: check them before sending, because a null value is a tombstone. A value
    that would only match after a conversion (1.9 or 2**40 as an int, a string as a boolean) doesn't
    match.

    Raises `SchemaRegistryError` if the schema isn't available.

    >>> written = arrow_to_avro(table.column("flight"), serialize, "flights")
    >>> written.values.type
    DataType(binary)
    """
    check_column(column)
    if not callable(serializer):
        raise ConfigurationError(
            f"serializer must be an AvroSerializer, not {type(serializer).__name__}"
        )
    context = context_of(topic, field)
    given: Any = serializer
    if not isinstance(given, AvroSerializer):  # for example confluent-kafka's class
        return written_rows(column, lambda value: given(value, context))
    check = _Fitting(column.type).check
    return written_rows(column, lambda value: serializer.checked(value, context, check))


class _Fitting:
    """Check whether the values of a column match a schema, before fastavro writes them.

    Otherwise fastavro may write a number as a different number, and any object as a boolean.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._checked: dict[int, tuple[Any, Any]] = {}
        """By id() of a schema: that schema, and its copy for checks (None if none are needed)."""

    def check(self, value: Any, parsed: Any) -> None:
        """Raise `SerializationError` for a wrong value, if the column's type allows such values."""
        found = self._checked.get(id(parsed))
        if found is None:
            exact = is_bytes(parsed) or self._is_exact(parsed)
            found = self._checked[id(parsed)] = (parsed, None if exact else guarded(parsed))
        if found[1] is None:
            return
        try:
            fastavro().validation.validate(value, found[1])
        # fastavro may raise any exception for a program's value.
        except Exception as error:
            told = "; ".join(str(one).strip() for one in getattr(error, "errors", (error,)))
            raise SerializationError(f"the data doesn't match its Avro schema: {told}") from None

    def _is_exact(self, parsed: Any) -> bool:
        try:
            return bool(arrow_type(parsed) == self._kind)
        except InvalidSchemaError:
            return False
