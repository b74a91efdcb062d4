"""Convert rows of framed Protobuf to Arrow arrays of one message type.

In: the message's descriptor, and a function that says whether a schema's indexes mean this message.
Out: arrays and errors as in `framed_rows`. Fields that only other versions of the message have are
left out, and fields that they lack have Protobuf's default. Must not: read bytes of another message
as this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.serialization.columns.column_layout import UnplannedError
from odradek.serialization.columns.framed_rows import FramedRows
from odradek.serialization.errors import (
    DeserializationError,
    SchemaRegistryError,
)
from odradek.serialization.framing import written_schema
from odradek.serialization.protobuf.messages import messages_at
from odradek.serialization.protobuf.plan import ProtobufProgram
from odradek.serialization.protobuf.serializers import message_indexes
from odradek.serialization.protobuf.types import protobuf_type
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.schema_cache import kept
from odradek.serialization.wire_format import ID_SIZE, SchemaId, schema_of


class ProtobufRows(FramedRows):
    """Reads columns of framed Protobuf; all results have the same type."""

    def __init__(
        self, descriptor: Any, wrong: Callable[[SchemaId], str | None], *, empty: bool = True
    ) -> None:
        """Read rows of one message type; `wrong(schema)`: why a row isn't of this type, or None.

        An error that `wrong` raises ends the whole call. `empty`: see `protobuf_type`. Raises
        `InvalidSchemaError`.
        """
        from google.protobuf.message_factory import GetMessageClass

        found = protobuf_type(descriptor, empty=empty)
        super().__init__(found.kind)
        self._value_of, self._class = found.value, GetMessageClass(descriptor)
        self._descriptor, self._wrong = descriptor, wrong
        self._indexes = message_indexes(descriptor)
        self._program: ProtobufProgram | None = None

    def _program_of(self, row: bytes) -> tuple[bytes, bytes]:
        plain = SchemaId(int.from_bytes(row[1:ID_SIZE], "big"), None, self._indexes)
        try:
            of, at = schema_of(row, indexed=True)
        except DeserializationError:  # only this row's message indexes may be invalid
            of, at = plain, 0
        indexes = row[ID_SIZE:at]
        if not at or self._wrong(of) is not None:
            if self._wrong(plain) is not None:
                raise UnplannedError("its schema isn't the message's")
            indexes = plain.prefix()[ID_SIZE:]
        if self._program is None:
            self._program = ProtobufProgram(self._descriptor, self._columns)
        return self._program.after(indexes)

    def _by_library(self, row: bytes) -> Any:
        from google.protobuf.message import DecodeError

        of, at = schema_of(row, indexed=True)
        why = self._wrong(of)
        if why is not None:
            raise DeserializationError(why)
        message = self._class()
        try:
            message.ParseFromString(row[at:])
            return self._value_of(message)
        # A proto2 string may be invalid UTF-8, which raises ValueError when the field is read.
        except (DecodeError, ValueError) as error:
            raise DeserializationError(
                f"the data isn't a {self._descriptor.full_name}: {error}"
            ) from None


class NamedBySchemas:
    """Check by a row's schema and message indexes whether it contains the message `name`."""

    def __init__(self, registry: SchemaRegistryClient, name: str) -> None:
        self._registry, self._name = registry, name
        self._checked: dict[SchemaId, str | None] = {}

    def __call__(self, of: SchemaId) -> str | None:
        """Return why a row isn't the message, or None. Raises errors that the row didn't cause."""
        if of not in self._checked:
            try:
                why = self._why(of)
            except SchemaRegistryError as error:
                if not error.blames_record:
                    raise
                if error.status is not None:
                    return str(error)  # not cached: the schema may be registered later
                why = str(error)
            kept(self._checked, of, why)
        return self._checked[of]

    def _why(self, of: SchemaId) -> str | None:
        if of.id is None:
            return "its schema is identified by a GUID, which columns don't support"
        names = messages_at(written_schema(self._registry, of), of.indexes or (0,))
        if self._name in names:
            return None
        said = " or ".join(sorted(names)) or f"the unknown message {list(of.indexes or ())}"
        return f"according to its schema {of.id} it is {said}, not {self._name}"
