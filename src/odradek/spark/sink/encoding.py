"""Encode keys and values in a format, framed with the id of a schema in a registry.

In: Arrow batches whose key or value isn't bytes yet. Out: the batches with framed bytes. A task
looks up the schema, once in a process for as long as the query's client keeps it; nothing is
registered. Must not: write a value that doesn't fit a schema, or put a row's contents into an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.serialization.errors import SchemaRegistryError
from odradek.serialization.registry.rules import WRITE, check_rules
from odradek.spark.registries import query_key
from odradek.spark.sink.sink_errors import SinkRowError, SinkSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.serialization import RegisteredSchema, SchemaRegistryClient

Write = Callable[[Any], bytes]
"""Function that returns the framed bytes of a value of `to_pylist` (maps as dicts), or raises."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a column is encoded; each format has a subclass. Can be pickled for tasks."""

    settings: Mapping[str, Any] = field(repr=False)
    """Settings of the registry's client; not in repr, since they may contain a secret."""
    subject: str
    version: int | None = None
    """Version of the subject; None: the latest."""
    query: str = field(default_factory=query_key, repr=False, compare=False, kw_only=True)
    """Key of the query whose tasks share a client of the registry."""

    def registered(self, registry: SchemaRegistryClient) -> RegisteredSchema:
        """Return the schema to write with. Raises `SchemaRegistryError`."""
        found = self.chosen(registry)
        check_rules(found.schema, WRITE)
        return found

    def chosen(self, registry: SchemaRegistryClient) -> RegisteredSchema:
        """Return the version that the options name. Raises `SchemaRegistryError`."""
        if self.version is None:
            return registry.get_latest_version(self.subject)
        return registry.get_version(self.subject, self.version)

    def writer(self, name: str, given: pa.DataType) -> Write:
        """Return the function that encodes a column of this name and type; calls the registry.

        Raises `SinkSchemaError` if the column doesn't match the schema, and `SchemaRegistryError`.
        """
        raise NotImplementedError


def encoded(
    batches: Iterator[pa.RecordBatch], encodings: Mapping[str, Encoding]
) -> Iterator[pa.RecordBatch]:
    """Yield batches whose columns are encoded and framed.

    Raises `SinkRowError` with the row's number in its task, `SinkSchemaError` for columns that
    don't match the schema, and `SchemaRegistryError`.
    """
    made: dict[str, Write] = {}
    first = 0
    for batch in batches:
        for name, encoding in encodings.items():
            at = batch.schema.get_field_index(name)
            if at < 0:
                continue
            if name not in made:
                made[name] = encoding.writer(name, batch.schema.field(name).type)
            values = batch.column(name)
            batch = batch.set_column(
                at, name, _column(values, made[name], first, f"{name} doesn't fit the schema of "
                f"subject {encoding.subject}")
            )  # fmt: skip
        first += batch.num_rows
        yield batch


def _column(values: pa.Array, write: Write, first: int, what: str) -> pa.Array:
    """Return the framed bytes of values, null for null; `first` is the number of the first row."""
    import pyarrow as pa

    written: list[bytes | None] = []
    for row, value in enumerate(_objects(values, first, what), first):
        try:
            written.append(None if value is None else write(value))
        except (SchemaRegistryError, SinkSchemaError):
            raise
        # For a value that doesn't match the schema, a codec may raise any error.
        except Exception as error:
            raise _misfit(row, what, error) from error
    return pa.array(written, pa.binary())


def _objects(values: pa.Array, first: int, what: str) -> list[Any]:
    """Return the values as Python objects.

    A value without a Python object, like a time in the year 300000, raises an error that names its
    row.
    """
    try:
        return values.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    except (ValueError, OverflowError, KeyError):
        for at in range(len(values)):
            try:
                values.slice(at, 1).to_pylist(maps_as_pydicts="strict")
            except (ValueError, OverflowError, KeyError) as error:
                raise _misfit(first + at, what, error) from error
        raise


def _misfit(row: int, what: str, error: Exception) -> SinkRowError:
    return SinkRowError(f"row {row} of this task: the {what}: {type(error).__name__}", row)
