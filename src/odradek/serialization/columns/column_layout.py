"""Columns that a kernel fills: their memory layout, their size and the resulting arrays.

In: an Arrow type. Out: the layout that `record.kernel_columns` takes, the number of bytes that a
value needs, and arrays of the filled columns. Must not: know a format.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.record.column_program import NONE, Keeping

if TYPE_CHECKING:
    import pyarrow as pa

_OWN = {Keeping.BITS: 1, Keeping.BINARY: 4, Keeping.LIST: 4}
"""Bytes per entry of columns without a fixed width, not counting validity and the data itself."""


class UnplannedError(Exception):
    """The kernel doesn't support this schema, so the format's library reads its rows."""


class Columns:
    """Columns of an Arrow type in depth-first order."""

    def __init__(self, kind: pa.DataType) -> None:
        self._numbers: list[list[int]] = []
        self.root = PlannedColumn(kind, self._numbers)

    def layout(self) -> bytes:
        """Return the description of all columns as 64-bit integers for the kernel."""
        return array("q", [one for column in self._numbers for one in column]).tobytes()


class PlannedColumn:
    """One column and its child columns."""

    def __init__(self, kind: pa.DataType, numbers: list[list[int]]) -> None:
        self.kind, self.number = kind, len(numbers)
        how, width, inner = kept(kind)
        own = [how, width, NONE, NONE]
        numbers.append(own)
        self.children: list[PlannedColumn] = []
        for one in inner:
            child = PlannedColumn(one, numbers)
            if self.children:
                numbers[self.children[-1].number][3] = child.number
            else:
                own[2] = child.number
            self.children.append(child)
        self.of_null = 1 + _OWN.get(how, width)
        """Bytes of a null entry, including those of its child columns; rounded up."""
        if how is Keeping.STRUCT:
            self.of_null += sum(one.of_null for one in self.children)
        self.is_flat = how in (Keeping.NOTHING, Keeping.BITS, Keeping.FIXED)
        self.size_of = self._sizing(how)
        """Function that returns how many bytes a value takes in these columns."""

    def _sizing(self, how: Keeping) -> Callable[[Any], int]:
        """Return a function that measures values that the format's library has read."""
        import pyarrow as pa

        of_null, inner = self.of_null, self.children
        if how is Keeping.BINARY:
            return lambda one: of_null if one is None else of_null + len(one)
        if how is Keeping.STRUCT:
            names = [field.name for field in self.kind]
            own = 1 + sum(one.of_null for one in inner if one.is_flat)
            parts = [
                (name, one.size_of)
                for name, one in zip(names, inner, strict=True)
                if not one.is_flat
            ]
            return lambda one: (
                of_null if one is None else own + sum([size(one[name]) for name, size in parts])
            )
        if pa.types.is_map(self.kind):
            key, value = inner[0].children
            return lambda one: (
                of_null
                if not one
                else sum(map(key.size_of, one), of_null + len(one))
                + sum(map(value.size_of, one.values()))
            )
        if how is Keeping.LIST and not inner[0].is_flat:
            return lambda one: of_null if not one else sum(map(inner[0].size_of, one), of_null)
        if how is Keeping.LIST:
            return lambda one: of_null + inner[0].of_null * len(one or ())
        return lambda one: of_null


def kept(kind: pa.DataType) -> tuple[Keeping, int, list[pa.DataType]]:
    """Return how a column of a type is stored, the bytes per entry, and its child types."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return Keeping.NOTHING, 0, []
    if pa.types.is_boolean(kind):
        return Keeping.BITS, 0, []
    if pa.types.is_struct(kind):
        return Keeping.STRUCT, 0, [one.type for one in kind]
    if pa.types.is_map(kind):
        return Keeping.LIST, 0, [_entries(kind)]
    if pa.types.is_list(kind):
        return Keeping.LIST, 0, [kind.value_type]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return Keeping.BINARY, 0, []
    return Keeping.FIXED, kind.bit_width // 8, []


def _entries(kind: pa.MapType) -> pa.DataType:
    import pyarrow as pa

    return pa.struct([kind.key_field, kind.item_field])


def array_of(columns: Columns, reader: Any) -> pa.Array:
    """Return the array that the kernel's reader has filled; the reader is empty afterwards."""
    return _array_of(columns.root, reader)


def _array_of(column: PlannedColumn, reader: Any) -> pa.Array:
    import pyarrow as pa

    count, nulls, *blocks = reader.column(column.number)
    valid, ends, data = (None if one is None else pa.py_buffer(one) for one in blocks)
    inner = [_array_of(one, reader) for one in column.children]
    kind = column.kind
    if pa.types.is_null(kind):
        return pa.nulls(count)
    buffers = [valid]
    if ends is not None:
        buffers.append(ends)
    if data is not None:
        buffers.append(data)
    return pa.Array.from_buffers(kind, count, buffers, nulls, children=inner or None)
