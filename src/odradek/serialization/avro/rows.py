"""Convert rows of framed Avro to Arrow arrays of one type.

In: a type, the reader schema, and a function that returns the writer schema of a row. Out: arrays
and errors as in `framed_rows`; programs are compiled once per schema, so one object serves many
batches. Must not: fail all rows because of one of them.
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

    def __init__(
        self,
        kind: pa.DataType,
        wanted: Any,
        written_of: Callable[[bytes], Any],
        *,
        text_decimals: bool = False,
    ) -> None:
        """Read values of type `kind` with a parsed reader schema; None: with each writer schema.

        `written_of(row)` returns the parsed schema whose id the row begins with, or a `NoSchema`;
        an exception that it raises ends the call. `text_decimals`: see `arrow_type`.
        """
        super().__init__(kind)
        self._wanted, self._written_of = wanted, written_of
        self._reading = AvroReading(("uuid", "decimal") if text_decimals else ("uuid",))

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
