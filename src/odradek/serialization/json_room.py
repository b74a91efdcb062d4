"""Whether columns have room for what JSON says, before anybody makes it of that.

In: a type, JSON. Out: an answer. Two bytes may be an object of thousands of fields, all null, which
take time and memory where they are made (R-IN-4). Must not: make them to find that out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.serialization.column_layout import Columns, PlannedColumn
from odradek.serialization.column_room import FREE, RATIO, TOGETHER, ColumnRoom

if TYPE_CHECKING:
    import pyarrow as pa


LARGE = "it isn't of the type, and its columns would be too large to say where"
"""What is said of a row that is large, and that Arrow refuses."""


class JsonRoom:
    """Of values of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        self.root = Columns(kind).root
        self._item = _largest_item(self.root, within=False)
        self._least = _least_of(self.root)

    def is_small(self, rows: list[bytes | None], room: ColumnRoom) -> bool:
        """Whether rows can't take more than their share, whatever stands in them."""
        there = [one for one in rows if one is not None]
        items = sum(one.count(b",") + one.count(b"[") for one in there) if self._item else 0
        size = sum(map(len, there))
        share = room.share * len(rows)
        return items * self._item + size <= RATIO * size + share and size < FREE

    def check(self, given: Any, size: int, room: ColumnRoom) -> None:
        """See whether what JSON of so many bytes says fits. Raises `DeserializationError`."""
        room.check(self._least(given), size)

    def is_large(self, given: Any, size: int) -> bool:
        """Whether Python would take seconds to make it; Arrow is told to read such a row alone."""
        return self._least(given) > self.root.of_null + RATIO * size + FREE // TOGETHER


def _largest_item(column: PlannedColumn, *, within: bool) -> int:
    """Bytes of the largest null that stands for an item of a list; 0 where there is no list."""
    import pyarrow as pa

    lists = pa.types.is_list(column.kind)
    inner = [_largest_item(one, within=lists) for one in column.children]
    return max([column.of_null if within else 0, *inner])


def _least_of(column: PlannedColumn) -> Callable[[Any], int]:
    """What gives the bytes that a value takes at least: those of nulls, whatever it says of them.

    It looks at what is there alone: fields that an object lacks have been counted with the type.
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
