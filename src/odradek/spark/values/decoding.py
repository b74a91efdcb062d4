"""Decode JSON values to columns on the way to Spark, whole batches at a time.

In: the column `value` as it was fetched. Out: a struct column of the type in option valueSchema, by
the rules of Spark's `from_json`. Must not: know Kafka or a cluster; create objects for rows whose
batch decodes as a whole. Avro is in `avro_values`, the options are in
`spark.options.value_options`.

A batch is written as lines of JSON and read by Arrow at once. Arrow reads all lines or none, so a
part with a line that Arrow rejects is decoded value by value, and the values that fit are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from odradek.common.errors import KafkaError
from odradek.serialization.columns.column_room import FREE, LARGE, ColumnRoom, JsonRoom
from odradek.serialization.errors import DeserializationError
from odradek.serialization.json.lines import ArrowJson
from odradek.serialization.json.values import JsonValues
from odradek.spark.values.value_schema import value_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

CORRUPT = "_corrupt_record"
"""Name of a string field for the text of values that can't be decoded, as in `from_json`."""
TOGETHER = 1024
"""Number of values that are read together, and then one by one if one of them is invalid."""


class ValueDecodeError(KafkaError):
    """A value doesn't match option valueSchema, and option valueMode is FAILFAST."""

    def __init__(self, row: int, why: str) -> None:
        self.row, self.why = row, why
        super().__init__(f"value {row} of a batch: {why}")


class ValueDecoder(Protocol):
    """Decodes the values of one task."""

    bad: dict[int, str]
    """Reason by row why the last `decode` couldn't decode a value, which is null or partial."""

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each value; null for a null value."""


class Format(Protocol):
    """How a column is decoded; can be pickled for tasks."""

    def resolved(self) -> Format:
        """Return the same format, with schemas that the options lack looked up in the registry."""

    def schema(self) -> DataType:
        """Return the type of the decoded column."""

    def decoder(self, target: Any) -> ValueDecoder:
        """Return the decoder for the values of one task, to this Arrow type."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """How JSON values are decoded; can be pickled for tasks."""

    schema_text: str
    fail_fast: bool = False

    def resolved(self) -> JsonFormat:
        """Return itself: the options contain the schema."""
        return self

    def schema(self) -> StructType:
        """Return the type of the column `value`."""
        return value_schema(self.schema_text)

    def decoder(self, target: pa.StructType) -> JsonDecoder:
        """Return the decoder for the values of one task."""
        return JsonDecoder(target, fail_fast=self.fail_fast)


def in_parts(
    part: Callable[[pa.Array, int], pa.Array], values: pa.Array, target: pa.DataType
) -> pa.Array:
    """Decode `TOGETHER` values at a time; `part` also gets the index of its first value."""
    import pyarrow as pa

    parts = [part(values.slice(at, TOGETHER), at) for at in range(0, len(values), TOGETHER)]
    if not parts:
        return pa.nulls(0, target)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def kept_where(rows: Collection[int], values: pa.Array) -> pa.Array:
    """Return the array with the values of these rows, and null in all other rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = pa.array([at in rows for at in range(len(values))], pa.bool_())
    return pc.if_else(kept, values, pa.scalar(None, values.type))


class _LargeError(Exception):
    """A JSON value with too many missing fields: filling in nulls would take Python seconds."""


class JsonDecoder:
    """Decodes the JSON values of one task."""

    def __init__(self, target: pa.StructType, *, fail_fast: bool) -> None:
        import pyarrow as pa

        self._target, self._fail_fast = target, fail_fast
        self._fields = [field for field in target if field.name != CORRUPT]
        self._corrupt = len(self._fields) < target.num_fields
        plain = pa.struct(self._fields)
        self._lines, self._room = ArrowJson(plain), JsonRoom(plain)
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each value; null for a null value."""
        self.bad = {}
        return in_parts(self._part, values, self._target)

    def _part(self, values: pa.Array, first: int) -> pa.Array:
        import pyarrow as pa

        if len(values) > 1 and len(values) * self._room.root.of_null > FREE:
            half = len(values) // 2
            parts = (self._part(values[:half], first), self._part(values[half:], first + half))
            return pa.concat_arrays(parts)
        rows = values.to_pylist()
        room = ColumnRoom(self._room.root, len(rows), sum(len(one or b"") for one in rows))
        # If the field for corrupt records is the only one, Arrow finds no object.
        small = self._fields and self._room.is_small(rows, room)
        found = self._lines.read(values) if small else None
        if found is None:
            return self._one_by_one(values, first, room)
        return self._whole(found)

    def _whole(self, found: pa.Array) -> pa.Array:
        """Return Arrow's result, with a field for the corrupt record if one is configured."""
        import pyarrow as pa

        if not self._corrupt:
            return found
        columns = dict(zip((f.name for f in self._fields), found.flatten(), strict=True))
        columns[CORRUPT] = pa.nulls(len(found), pa.string())
        return pa.StructArray.from_arrays(
            [columns[field.name] for field in self._target],
            fields=list(self._target),
            mask=found.is_null(),
        )

    def _one_by_one(self, values: pa.Array, first: int, room: ColumnRoom) -> pa.Array:
        import pyarrow as pa

        rows: list[dict[str, Any] | None] = []
        parts: list[pa.Array] = []
        for number, value in enumerate(values):
            given: bytes | None = value.as_py()
            try:
                row, why = self._decoded(given, room)
            except (RecursionError, _LargeError) as error:
                # The value is too deep or too large for Python, so let Arrow decode it. Among other
                # rows Arrow decodes it too, and a row's result must not depend on other rows.
                large = isinstance(error, _LargeError)
                one = values[number : number + 1]
                found = self._lines.read(one, parsed=large) if self._fields else None
                if found is not None:
                    parts += [pa.array(rows, self._target), self._whole(found)]
                    rows = []
                    continue
                row = dict.fromkeys(field.name for field in self._fields)
                why = LARGE if large else f"not JSON: {error}"
            if why and self._fail_fast:
                raise ValueDecodeError(first + number, why)
            if why:
                self.bad[first + number] = why
            if why and self._corrupt and row is not None and given is not None:
                row[CORRUPT] = given.decode(errors="replace")
            rows.append(row)
        return pa.concat_arrays([*parts, pa.array(rows, self._target)])

    def _decoded(self, given: bytes | None, room: ColumnRoom) -> tuple[dict[str, Any] | None, str]:
        """Decode one value as `from_json` does; return the row, and its error ("" if valid).

        Raises `RecursionError` if the value is too deep for Python, and `_LargeError` if it would
        take too long.
        """
        nothing = dict.fromkeys((field.name for field in self._fields), None)
        if given is None or not given.strip():
            return None, ""  # `from_json` returns null for an empty text
        try:
            document = json.loads(given)
        except ValueError as error:
            return dict(nothing), f"not JSON: {error}"
        if document is None:
            return dict(nothing), ""
        if not isinstance(document, dict):
            return dict(nothing), f"a JSON {type(document).__name__}, not an object"
        try:
            self._room.check(document, len(given), room)
        except DeserializationError as error:
            return dict(nothing), str(error)
        if self._room.is_large(document, len(given)):
            raise _LargeError
        problems: list[str] = []
        return JsonValues().struct(document, self._fields, "", problems), "; ".join(problems)
