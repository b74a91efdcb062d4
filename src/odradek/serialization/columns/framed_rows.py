"""Convert rows of framed bytes to Arrow arrays with a kernel, or with the format's library.

In: a type, a program for each schema id, and a function that reads a row with the format's library.
Out: arrays, and by row number the reason why a row can't be read. Programs are compiled once per
schema, so one object serves many batches. Must not: fail all rows because of one of them, or use
more memory than `column_room` allows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from odradek.record import column_reader
from odradek.serialization.columns.column_layout import Columns, UnplannedError, array_of
from odradek.serialization.columns.column_room import TOGETHER, ColumnRoom, array_of_values
from odradek.serialization.errors import DeserializationError

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.record.kernel_columns import ColumnReader


class FramedRows(ABC):
    """Reads columns of framed values; all results have the same type."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._columns = Columns(kind)
        self._kernel = column_reader(self._columns.layout())

    @abstractmethod
    def _program_of(self, row: bytes) -> tuple[bytes, bytes]:
        """Return the kernel's program and its constants for all rows with this row's schema id.

        Raises `UnplannedError` if the library must read all of them.
        """

    @abstractmethod
    def _by_library(self, row: bytes) -> Any:
        """Read a row with the format's library. Raises `DeserializationError`."""

    def read(self, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
        """Return the values of a binary column; null for a null, and for a row with an error.

        Raises `InvalidSchemaError` if even nulls in all rows would be too large.
        """
        import pyarrow as pa

        errors: dict[int, str] = {}
        room = ColumnRoom(self._columns.root, len(column), column.nbytes)
        found, left = self._by_kernel(column, room.of_kernel)
        parts, there = [found], list[int]()
        for first in range(0, len(left), TOGETHER):
            numbers = left[first : first + TOGETHER]
            values = [
                self._value(number, column[number].as_py(), room, errors) for number in numbers
            ]
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

    def _by_kernel(
        self, column: pa.Array | pa.ChunkedArray, room: int
    ) -> tuple[pa.Array, list[int]]:
        """Read the column with the kernel; return the array, and which rows it couldn't read."""
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
            self._kernel = column_reader(self._columns.layout())  # drop the old reader's rows
            raise
        return array_of(self._columns, kernel), left

    def _chunk(self, chunk: pa.Array, kernel: ColumnReader, room: int) -> bytearray:
        """Read a chunk and return a byte for each row: 1 if the library has to read it."""
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

    def _value(
        self, number: int, data: bytes | None, room: ColumnRoom, errors: dict[int, str]
    ) -> Any:
        """Read a row with the library; return None and add to `errors` if it can't be read."""
        try:
            return None if data is None else room.fitting(self._by_library(data), len(data))
        except DeserializationError as error:
            errors[number] = str(error)
            return None
