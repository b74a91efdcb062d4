"""Convert JSON values to Arrow arrays of one type, with Arrow's reader where possible, or Python.

In: JSON, a type. Out: an array, and by row number the reason why a row can't be read. Must not:
fail all rows because of one of them, or use memory out of proportion to the bytes (R-IN-4): two
bytes may be an object with thousands of fields, all null. If the numbers of commas and brackets
show that rows could need so much memory, Python reads and measures them before Arrow does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.serialization.columns.column_room import (
    LARGE,
    TOGETHER,
    ColumnRoom,
    JsonRoom,
    array_of_values,
)
from odradek.serialization.errors import DeserializationError
from odradek.serialization.json.lines import ArrowJson
from odradek.serialization.json.values import JsonValues
from odradek.serialization.plain import parsed_json

if TYPE_CHECKING:
    import pyarrow as pa


FEW = 64
"""Maximum number of rows that Python reads because Arrow's reader rejected one of them."""
DEEP = 100
"""Minimum number of opening brackets of a value that may be nested too deeply for Python."""


class JsonRows:
    """Reads JSON values; all results have the same type."""

    def __init__(self, kind: pa.DataType, *, parsed: bool) -> None:
        """Prepare for rows of type `kind`; with `parsed`, all rows are known to be valid JSON."""
        import pyarrow as pa

        self._kind, self._parsed = kind, parsed
        self._room = JsonRoom(kind)
        self._values = JsonValues(whole=True)
        self._whole = ArrowJson(kind)
        self._lines = self._whole if parsed or pa.types.is_struct(kind) else None

    def read(self, rows: list[bytes | None], errors: dict[int, str]) -> pa.Array:
        """Return the values; null for null, for JSON null, and for a row with an error.

        Raises `InvalidSchemaError` if even nulls in all rows would be too large.
        """
        import pyarrow as pa

        sizes = sum(len(one) for one in rows if one is not None)
        room = ColumnRoom(self._room.root, len(rows), sizes)
        parts = [
            self._part(rows[first : first + TOGETHER], first, room, errors)
            for first in range(0, len(rows), TOGETHER)
        ]
        if not parts:
            return pa.nulls(0, self._kind)
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _part(
        self, rows: list[bytes | None], first: int, room: ColumnRoom, errors: dict[int, str]
    ) -> pa.Array:
        import pyarrow as pa

        if self._lines is not None and self._room.is_small(rows, room):
            found = self._lines.read(pa.array(rows, pa.binary()), parsed=self._parsed)
            if found is not None:
                return found
            if len(rows) > FEW:
                half = len(rows) // 2
                parts = (
                    self._part(rows[:half], first, room, errors),
                    self._part(rows[half:], first + half, room, errors),
                )
                return pa.concat_arrays(parts)
        made: list[pa.Array] = []
        values: list[Any] = []
        begin = first
        for number, row in enumerate(rows, first):
            value = None if row is None else self._value(row, number, room, errors)
            if isinstance(value, pa.Array):
                made += [self._made(values, begin, errors), value]
                values, begin = [], number + 1
            else:
                values.append(value)
        made.append(self._made(values, begin, errors))
        return pa.concat_arrays(made)

    def _made(self, values: list[Any], first: int, errors: dict[int, str]) -> pa.Array:
        numbers = list(range(first, first + len(values)))
        return array_of_values(values, self._kind, numbers, errors)

    def _value(self, row: bytes, number: int, room: ColumnRoom, errors: dict[int, str]) -> Any:
        """Return a row's value, or an array of this row; None after adding to `errors`."""
        problems: list[str] = []
        try:
            given = parsed_json(row)
        except DeserializationError as error:
            deep = self._of_deep(row, room)
            if deep is None:
                errors[number] = str(error)
            return deep
        try:
            self._room.check(given, len(row), room)
            if self._room.is_large(given, len(row)):
                return self._of_large(row, number, errors)
            value = self._values.fitted(given, self._kind, problems)
            if not problems:
                return room.fitting(value, len(row))
            errors[number] = "; ".join(problems)
        except DeserializationError as error:
            errors[number] = str(error)
        return None

    def _of_large(self, row: bytes, number: int, errors: dict[int, str]) -> Any:
        """Read a valid row with Arrow, because Python would be slow; return an array of the row."""
        import pyarrow as pa

        found = self._whole.read(pa.array([row], pa.binary()), parsed=True)
        if found is None:
            errors[number] = LARGE
        return found

    def _of_deep(self, row: bytes, room: ColumnRoom) -> Any:
        """Read a row with Arrow that is nested too deeply for Python; return None if Arrow fails.

        Arrow also reads such a row together with others, and the result must not depend on them.
        """
        import pyarrow as pa

        deep = row.count(b"[") + row.count(b"{") >= DEEP
        if self._lines is None or not deep or not self._room.is_small([row], room):
            return None
        found = self._lines.read(pa.array([row], pa.binary()), parsed=self._parsed)
        return None if found is None else found[0].as_py()
