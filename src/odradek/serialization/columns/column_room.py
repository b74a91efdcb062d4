"""Memory limit for the columns of a call.

In: the columns, the number of rows, and their bytes. Out: whether a value fits. One byte may add a
record of thousands of null fields to a list, so 100 KB could become 2 GB of columns (R-IN-4). So
the columns of a call may take `FREE` bytes plus `RATIO` times the bytes of its rows. Nulls for all
rows have to fit into this sum, and are then allowed in addition. Each value is measured before
Arrow converts it. Each row has a share of its own, even if earlier rows used up the rest. Must not:
depend on a format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.record.limits import DECOMPRESSED_LIMIT
from odradek.serialization.columns.column_layout import Columns, PlannedColumn
from odradek.serialization.errors import DeserializationError, InvalidSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

SAID = 300
"""Maximum number of characters of a type or of Arrow's message in an error."""
TOGETHER = 1024
"""Maximum number of rows that exist as Python objects at a time, for the garbage collector."""
FREE = DECOMPRESSED_LIMIT
"""Maximum size of all columns in bytes: the limit of a decompressed batch."""
RATIO = 64
"""Additional bytes of columns per byte of a row. A decimal of two bytes takes 16 bytes in a column,
and a null record takes up to 16 bytes for each of its fields, usually a few."""
LARGE = "the data doesn't match the type; the row is too large to find the value that doesn't match"
"""Error of a large row that Arrow can't convert: Python would be too slow to find the reason."""


class ColumnRoom:
    """Memory limit for the columns of one call."""

    def __init__(self, root: PlannedColumn, rows: int, size: int) -> None:
        """Set the limits for a number of rows that have `size` bytes together.

        Raises `InvalidSchemaError` if even nulls in all rows would be too large.
        """
        self._root = root
        self._left = FREE + RATIO * size
        self.share = FREE // max(rows, 1)
        """Bytes of `FREE` that are reserved for each row."""
        if rows * root.of_null > self._left:
            raise InvalidSchemaError(
                f"{rows} row{'' if rows == 1 else 's'} of this type would need more than "
                f"{self._left} bytes, because a null alone needs {root.of_null} bytes",
                None,
                "Convert fewer rows at a time, or use a reader schema with fewer fields.",
            )
        self.of_kernel = self._left + rows * root.of_null
        """Maximum number of bytes of the columns that the kernel fills."""

    def fitting(self, value: Any, size: int) -> Any:
        """Return the value, read from `size` bytes, and subtract its memory from the call's limit.

        Raises `DeserializationError` if the value needs too much memory.
        """
        try:
            found = self._root.size_of(value)
        except (TypeError, LookupError, AttributeError):
            return value  # the value doesn't match the type, which Arrow will report
        self.check(found, size)
        self._left -= found
        return value

    def check(self, found: int, size: int) -> None:
        """Raise `DeserializationError` if `found` bytes of memory are too much for `size` bytes."""
        most = max(self._root.of_null + RATIO * size + self.share, self._left)
        if found > most:
            raise DeserializationError(
                f"its {size} bytes would need more than {most} bytes in columns, because the "
                "schema has a record with very many fields or a very long string for few bytes "
                "of data"
            )


class JsonRoom:
    """The minimal memory that JSON values of one type need in columns.

    Two bytes may encode an object with thousands of null fields, which takes time and memory to
    create, so values are measured first.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.root = Columns(kind).root
        self._item = _largest_item(self.root, within=False)
        self._least = _least_of(self.root)

    def is_small(self, rows: list[bytes | None], room: ColumnRoom) -> bool:
        """Return whether rows fit into their share of memory, whatever their values are."""
        there = [one for one in rows if one is not None]
        items = sum(one.count(b",") + one.count(b"[") for one in there) if self._item else 0
        size = sum(map(len, there))
        share = room.share * len(rows)
        return items * self._item + size <= RATIO * size + share and size < FREE

    def check(self, given: Any, size: int, room: ColumnRoom) -> None:
        """Raise `DeserializationError` if a JSON value of `size` bytes needs too much memory."""
        room.check(self._least(given), size)

    def is_large(self, given: Any, size: int) -> bool:
        """Return whether Python would need seconds to create a value.

        Such a row is then read by Arrow, in a call of its own.
        """
        return self._least(given) > self.root.of_null + RATIO * size + FREE // TOGETHER


def _largest_item(column: PlannedColumn, *, within: bool) -> int:
    """Return how many bytes a null item may take at most in any list; 0 without lists."""
    import pyarrow as pa

    lists = pa.types.is_list(column.kind)
    inner = [_largest_item(one, within=lists) for one in column.children]
    return max([column.of_null if within else 0, *inner])


def _least_of(column: PlannedColumn) -> Callable[[Any], int]:
    """Return a function for a value's minimum size in columns, as if all its leaves were null.

    The function only visits the fields that an object has; the type has the size of the others.
    """
    import pyarrow as pa

    own, inner = column.of_null, column.children
    if pa.types.is_struct(column.kind):
        names = [field.name for field in column.kind]
        parts = [
            (name, _least_of(one), one.of_null)
            for name, one in zip(names, inner, strict=True)
            if one.children
        ]
        if not parts:
            return lambda _: own
        return lambda given: (
            own + sum([size(given[name]) - null for name, size, null in parts if name in given])
            if type(given) is dict
            else own
        )
    if pa.types.is_list(column.kind):
        item, each = _least_of(inner[0]), inner[0].of_null
        if not inner[0].children:
            return lambda given: own + each * len(given) if type(given) is list else own
        return lambda given: own + sum(map(item, given)) if type(given) is list else own
    return lambda _: own


def array_of_values(
    values: list[Any], kind: pa.DataType, numbers: list[int], errors: dict[int, str]
) -> pa.Array:
    """Return an array of values; finds values that don't fit the type by bisection."""
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(values) == 1:
            errors[numbers[0]] = (
                f"Arrow's {str(kind)[:SAID]} can't represent it: {str(error)[:SAID]}"
            )
            return pa.nulls(1, kind)
    half = len(values) // 2
    return pa.concat_arrays(
        [
            array_of_values(values[:half], kind, numbers[:half], errors),
            array_of_values(values[half:], kind, numbers[half:], errors),
        ]
    )
