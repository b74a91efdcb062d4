"""What functions over whole columns give, and what they all ask of their arguments.

In: columns, and a serializer that writes one value. Out: `ConvertedColumn`. Must not: know a
format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError
from odradek.common.imports import loaded
from odradek.serialization.context import MessageField, SerializationContext
from odradek.serialization.errors import SerializationError
from odradek.serialization.registry_client import SchemaRegistryClient
from odradek.serialization.schemas import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ConvertedColumn:
    """A column that was made of another, row by row."""

    values: pa.Array
    """As many as there were rows; null for null, and where a row is among `errors`."""
    errors: Mapping[int, str]
    """By the row's number, from 0, why it can't be converted; in their order."""


@dataclass(frozen=True, slots=True)
class NoSchema:
    """Why the rows of one id can't be read; a schema may be a text itself."""

    why: str


def check_column(column: object) -> None:
    """Refuse what is no column. Raises `ConfigurationError`."""
    loaded("pyarrow")
    import pyarrow as pa

    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise ConfigurationError(
            "column must be an Arrow array, as table.column(name) gives it, not "
            f"{type(column).__name__}"
        )


def check_bytes(column: Any) -> None:
    """Refuse what is no column of bytes, or of nothing. Raises `ConfigurationError`."""
    check_column(column)
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    known = ("null", "binary", "large_binary", "binary_view", "fixed_size_binary")
    if not any(getattr(pa.types, f"is_{name}")(kind) for name in known):
        raise ConfigurationError(f"column must be of binary, as records' values are, not {kind}")


def check_registry(registry: object) -> None:
    """Refuse what is no client of a registry. Raises `ConfigurationError`."""
    if not isinstance(registry, SchemaRegistryClient):
        raise ConfigurationError(
            f"registry must be a SchemaRegistryClient, not {type(registry).__name__}"
        )


def check_reader_schema(reader_schema: object) -> None:
    """Refuse what is no schema. Raises `ConfigurationError`."""
    if not isinstance(reader_schema, str | Schema | None):
        raise ConfigurationError(
            f"reader_schema must be a text or a Schema, not {type(reader_schema).__name__}"
        )


def context_of(topic: str, field: MessageField) -> SerializationContext:
    """What serializers are told. Raises `ConfigurationError`."""
    if not (isinstance(topic, str) and isinstance(field, str) and field in tuple(MessageField)):
        raise ConfigurationError(
            f"topic must be a text and field a MessageField, not {topic!r} and {field!r}"
        )
    return SerializationContext(topic, field)


def written_rows(
    column: pa.Array | pa.ChunkedArray, write: Callable[[Any], bytes | None]
) -> ConvertedColumn:
    """What is written of each value but null; those that don't fit are null, and errors."""
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
    """Give one row's value. Raises `SerializationError` where Python has none: it is this row's."""
    try:
        return one.as_py(maps_as_pydicts="strict")
    except (KeyError, ValueError, OverflowError) as error:
        # A map's key that comes twice, a year beyond 9999, a text that isn't UTF-8.
        why = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise SerializationError(f"the value can't be had in Python: {why}") from None
