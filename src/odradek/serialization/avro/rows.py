"""Rows of framed Avro as Arrow arrays of one type.

In: a type, the schema that rows are read by, and what gives the schema that a row was written with.
Out: what `framed_rows` makes of them; programs are made once for each schema, so one object serves
batch after batch. Must not: fail all rows for one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.serialization.avro.plan import program
from odradek.serialization.avro.reading import AvroReading, is_bytes
from odradek.serialization.columns.column_layout import UnplannedError
from odradek.serialization.columns.converted_column import NoSchema
from odradek.serialization.columns.framed_rows import FramedRows
from odradek.serialization.errors import DeserializationError, InvalidSchemaError
from odradek.serialization.wire_format import ID_SIZE

if TYPE_CHECKING:
    import pyarrow as pa


class AvroRows(FramedRows):
    """Reads columns of framed Avro; all results have the same type."""

    def __init__(self, kind: pa.DataType, wanted: Any, written_of: Callable[[bytes], Any]) -> None:
        """`wanted`: the reader's schema, parsed, of type `kind`; None: as they were written.

        `written_of(row)` gives the schema that the bytes of a row begin with, parsed, or a
        `NoSchema`; what it raises ends the call.
        """
        super().__init__(kind)
        self._wanted, self._written_of = wanted, written_of
        self._reading = AvroReading()

    def _program_of(self, row: bytes) -> tuple[bytes, bytes]:
        written = self._written_of(row)
        if isinstance(written, NoSchema) or is_bytes(written):
            raise UnplannedError
        return program(written, self._wanted, self._columns)

    def _by_library(self, row: bytes) -> Any:
        written = self._written_of(row)
        if isinstance(written, NoSchema):
            raise DeserializationError(written.why)
        if is_bytes(written):
            return row[ID_SIZE:]
        try:
            return self._reading.value(row[ID_SIZE:], written, self._wanted)
        except InvalidSchemaError as error:
            raise DeserializationError(str(error)) from None
