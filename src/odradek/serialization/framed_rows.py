"""Rows of framed bytes as Arrow arrays of one type: by a kernel, and by a library what it leaves.

In: a type, and of a format a program for each schema's id and what reads a row by its library. Out:
arrays, and by a row's number why it can't be read. Programs are made once for each schema, so
one object serves batch after batch. Must not: fail all rows for one of them, or take memory out of
proportion to bytes (R-IN-4): a byte may say that a list has one more record of thousands of fields,
all null, and 100 KB of them were 2 GB of columns. So the columns of a call have room for `FREE`
bytes, `RATIO` times the bytes of its rows, and a null for each row, which has to fit into the
former. A row that needs more than there is left goes by the library, and is measured before Arrow
gets it: it may have its own bytes' share, so those before it don't take that from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from odradek.record import column_reader
from odradek.record.limits import DECOMPRESSED_LIMIT
from odradek.serialization.column_layout import Columns, UnplannedError, array_of
from odradek.serialization.errors import DeserializationError, InvalidSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.record.kernel_columns import ColumnReader

SAID = 300
"""Characters of a type, which may have thousands of fields, and of Arrow's words about it."""
TOGETHER = 1024
"""Rows that are objects at a time: more of them keep the garbage collector busy."""
FREE = DECOMPRESSED_LIMIT
"""Bytes that columns of any rows may take: what a batch of records may become."""
RATIO = 64
"""Bytes of columns for each byte of a row, beyond those. A decimal of two bytes takes 16; a null
takes up to that for each column of a record that is null, most of which have few of them."""


class FramedRows(ABC):
    """Reads columns; the arrays are all of one type."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._columns = Columns(kind)
        self._kernel = column_reader(self._columns.layout())
        self._room = self._share = 0
        """Bytes that columns may still take in a call, and of those of each row."""

    @abstractmethod
    def _program_of(self, row: bytes) -> tuple[bytes, bytes]:
        """The kernel's program, and its constants, for all rows with the schema's id of this one.

        Raises `UnplannedError` where they are all the library's.
        """

    @abstractmethod
    def _by_library(self, row: bytes) -> Any:
        """The value of a row. Raises `DeserializationError`."""

    def read(self, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
        """The values of a binary column, null for null and where a row is among the errors.

        Raises `InvalidSchemaError` where so many rows of nothing but nulls were too large.
        """
        import pyarrow as pa

        errors: dict[int, str] = {}
        size = FREE + RATIO * column.nbytes
        self._check_nulls(len(column), size)
        self._room, self._share = size, FREE // max(len(column), 1)
        found, left = self._by_kernel(column, size + len(column) * self._columns.root.of_null)
        parts, there = [found], list[int]()
        for first in range(0, len(left), TOGETHER):
            numbers = left[first : first + TOGETHER]
            values = [self._value(number, column[number].as_py(), errors) for number in numbers]
            read = [at for at, value in enumerate(values) if value is not None]
            if read:
                places = [numbers[at] for at in read]
                there += places
                parts.append(
                    array_of_values([values[at] for at in read], self._kind, places, errors)
                )
        if there:
            order = list(range(len(column)))
            for at, number in enumerate(there, len(column)):
                order[number] = at
            found = pa.concat_arrays(parts).take(pa.array(order, pa.int64()))
        return found, dict(sorted(errors.items()))

    def _check_nulls(self, rows: int, most: int) -> None:
        of_null = self._columns.root.of_null
        if rows * of_null > most:
            raise InvalidSchemaError(
                f"{rows} rows of a type of which a null takes {of_null} bytes would take more than "
                f"the {most} that these rows may take",
                None,
                "Convert fewer rows at a time, or give a reader's schema with fewer fields.",
            )

    def _by_kernel(
        self, column: pa.Array | pa.ChunkedArray, room: int
    ) -> tuple[pa.Array, list[int]]:
        """What the kernel makes of the column, and the numbers of the rows that it leaves."""
        import pyarrow as pa

        if self._kernel is None:
            valid = column.is_valid().to_pylist()
            none = pa.nulls(len(column), self._kind)
            return none, [at for at, there in enumerate(valid) if there]
        left: list[int] = []
        first = 0
        kernel = self._kernel
        try:
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                marks = self._chunk(chunk, kernel, room) if len(chunk) else b""
                left += [first + at for at, mark in enumerate(marks) if mark] if 1 in marks else []
                first += len(chunk)
        except BaseException:
            self._kernel = column_reader(self._columns.layout())  # this one holds rows of no call
            raise
        return array_of(self._columns, kernel), left

    def _chunk(self, chunk: pa.Array, kernel: ColumnReader, room: int) -> bytearray:
        """Have the kernel read a chunk; gives a byte for each row, 1 where it is left."""
        import pyarrow as pa

        wide = not pa.types.is_binary(chunk.type)
        if wide and not pa.types.is_large_binary(chunk.type):
            chunk = chunk.cast(pa.large_binary())
        validity, offsets, data = chunk.buffers()
        marks, done, size = bytearray(len(chunk)), 0, len(chunk)
        while True:
            done = kernel.read(
                b"" if data is None else data,
                *(offsets, validity, wide, chunk.offset, size, done, marks, room),
            )
            if done == size:
                return marks
            number = kernel.unknown_schema
            try:
                kernel.add(number, *self._program_of(chunk[done].as_py()))
            except UnplannedError:
                kernel.add(number, None)

    def _value(self, number: int, data: bytes | None, errors: dict[int, str]) -> Any:
        """The value of a row by the library; None, and why, where it has none."""
        try:
            return None if data is None else self._fitting(self._by_library(data), len(data))
        except DeserializationError as error:
            errors[number] = str(error)
            return None

    def _fitting(self, value: Any, size: int) -> Any:
        """The value of `size` bytes, if columns have room for it. Raises `DeserializationError`."""
        root = self._columns.root
        own = root.of_null + RATIO * size + self._share
        most = max(own, self._room)
        try:
            found = root.size_of(value)
        except (TypeError, LookupError, AttributeError):
            return value  # Arrow says what is wrong with it
        if found > most:
            raise DeserializationError(
                f"its {size} bytes would take more than {most} in columns: its schema has a record "
                "of so many fields, or a text so long, for a byte"
            )
        self._room -= found
        return value


def array_of_values(
    values: list[Any], kind: pa.DataType, numbers: list[int], errors: dict[int, str]
) -> pa.Array:
    """An array of values; those that the type can't hold are found by halves."""
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(values) == 1:
            errors[numbers[0]] = f"Arrow's {str(kind)[:SAID]} can't hold it: {str(error)[:SAID]}"
            return pa.nulls(1, kind)
    half = len(values) // 2
    return pa.concat_arrays(
        [
            array_of_values(values[:half], kind, numbers[:half], errors),
            array_of_values(values[half:], kind, numbers[half:], errors),
        ]
    )
