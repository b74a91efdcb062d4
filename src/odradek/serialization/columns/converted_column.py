"""The result of functions over whole columns, and the checks of their arguments.

In: columns, and a serializer that writes one value. Out: `ConvertedColumn`. Must not: know a
format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.common.extras import require_extra
from odradek.serialization.context import MessageField, SerializationContext
from odradek.serialization.errors import (
    DeserializationError,
    InvalidSchemaError,
    SchemaRegistryError,
    SerializationError,
)
from odradek.serialization.framing import written_schema
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.schemas import Schema
from odradek.serialization.wire_format import ID_SIZE, schema_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ConvertedColumn:
    """A column that was converted row by row, with the errors by row."""

    values: pa.Array
    """The converted values, one for each row: null for a null row and for a row in `errors`."""
    errors: Mapping[int, str]
    """The reasons why rows can't be converted, by row number (from 0), in ascending order."""


@dataclass(frozen=True, slots=True)
class NoSchema:
    """Reason why a row's schema is unavailable; a class, because schemas may be strings, too."""

    why: str


class RowSchemas:
    """Schemas that the rows of a column refer to; each is looked up once."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        use: Callable[[Schema], Any],
        *,
        several: bool = False,
        instead: Any = None,
    ) -> None:
        """Take `use`, called once for each schema; with `several`, rows may have different ones.

        `instead`, if given, is returned for all rows, whatever their schema id is.
        """
        self._registry, self._use, self._several = registry, use, several
        self._instead = instead
        self._by_prefix: dict[bytes, Any] = {}
        """By the prefix of a row: the result of `use` for its schema, or a `NoSchema`."""
        self.first: Any = None
        """The result of `use` for the first usable schema."""

    def of(self, data: bytes) -> Any:
        """Return the result of `use` for a row's schema, or a `NoSchema`.

        Raises `InvalidSchemaError` for a second schema unless `several`, and the errors of a
        registry that aren't caused by the row.
        """
        prefix = data[:ID_SIZE]
        found = self._by_prefix.get(prefix)
        if found is None:
            found = self._found(data)
            if prefix[:1] == b"\0":  # other bytes aren't framed and don't identify a schema
                self._by_prefix[prefix] = found
        return found

    def _found(self, data: bytes) -> Any:
        try:
            of, _ = schema_of(data)
            if of.id is None:
                return NoSchema("its schema is identified by a GUID, which columns don't support")
            if self._instead is not None:
                return self._instead
            found = self._use(written_schema(self._registry, of))
        except DeserializationError as error:
            return NoSchema(str(error))
        except SchemaRegistryError as error:
            if not error.blames_record:
                raise
            return NoSchema(str(error))
        if self.first is None:
            self.first = found
        elif not self._several and found != self.first:
            raise InvalidSchemaError(
                "the column contains records of several schemas",
                None,
                "Pass reader_schema=, the schema with which all records are decoded.",
            )
        return found


def check_column(column: object) -> None:
    """Raise `ConfigurationError` unless the argument is an Arrow column."""
    require_extra("pyarrow")
    import pyarrow as pa

    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise ConfigurationError(
            f"column must be an Arrow array, like table.column(name), not {type(column).__name__}"
        )


def check_bytes(column: Any) -> None:
    """Raise `ConfigurationError` unless the argument is a binary or null column."""
    check_column(column)
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    known = ("null", "binary", "large_binary", "binary_view", "fixed_size_binary")
    if not any(getattr(pa.types, f"is_{name}")(kind) for name in known):
        raise ConfigurationError(f"column must have a binary type, not {kind}")


def check_registry(registry: object) -> None:
    """Raise `ConfigurationError` unless the argument is a schema registry client."""
    if not isinstance(registry, SchemaRegistryClient):
        raise ConfigurationError(
            f"registry must be a SchemaRegistryClient, not {type(registry).__name__}"
        )


def check_reader_schema(reader_schema: object) -> None:
    """Raise `ConfigurationError` unless the argument is a schema or None."""
    if not isinstance(reader_schema, str | Schema | None):
        raise ConfigurationError(
            f"reader_schema must be a string or a Schema, not {type(reader_schema).__name__}"
        )


def context_of(topic: str, field: MessageField) -> SerializationContext:
    """Return the context for a serializer. Raises `ConfigurationError`."""
    if not (isinstance(topic, str) and isinstance(field, str) and field in tuple(MessageField)):
        raise ConfigurationError(
            f"topic must be a string and field a MessageField, not {topic!r} and {field!r}"
        )
    return SerializationContext(topic, field)


def written_rows(
    column: pa.Array | pa.ChunkedArray, write: Callable[[Any], bytes | None]
) -> ConvertedColumn:
    """Write each value except nulls; values that can't be written become null, with an error."""
    import pyarrow as pa

    errors: dict[int, str] = {}
    written: list[bytes | None] = []
    for number, one in enumerate(column):
        try:
            value = _python_value(one)
            written.append(None if value is None else write(value))
        except SerializationError as error:
            written.append(None)
            errors[number] = str(error)
    return ConvertedColumn(pa.array(written, pa.binary()), errors)


def _python_value(one: pa.Scalar) -> Any:
    """Return one row's value; raise `SerializationError` if Python has no such value."""
    try:
        return one.as_py(maps_as_pydicts="strict")
    except (KeyError, ValueError, OverflowError) as error:
        # Raised for a map's duplicate key, a year after 9999, or a string that isn't UTF-8.
        why = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise SerializationError(
            f"the value can't be converted to a Python object: {why}"
        ) from None
