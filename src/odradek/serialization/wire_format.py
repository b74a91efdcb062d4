"""Encode and decode Confluent's wire format, which names the schema of the bytes.

    0 | schema's id, 4 bytes | (Protobuf: message indexes) | payload
    1 | schema's GUID, 16 bytes | (Protobuf: message indexes)     in a header of the record

In: bytes, headers. Out: a `SchemaId` and the position of the payload, and back. Indexes are zigzag
varints after their number; a single 0 means the list [0], the file's first message. Must not:
access a registry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from odradek.serialization.context import MessageField, SerializationContext
from odradek.serialization.errors import DeserializationError, SerializationError

BY_ID, BY_GUID = 0, 1
"""Magic bytes, which say whether an id or a GUID follows."""
ID_SIZE, GUID_SIZE = 5, 17
"""Size of an id or GUID with its magic byte, in bytes."""
LARGEST_ID = 0xFFFFFFFF
MOST_INDEXES = 1024
"""Maximum number of indexes, which is the maximum nesting depth of a message."""
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
_PREFIX = struct.Struct(">BI")


@dataclass(frozen=True, slots=True)
class SchemaId:
    """Reference to a schema: the id in one registry, or the GUID, which is the same in all."""

    id: int | None = None
    guid: str | None = None
    indexes: tuple[int, ...] | None = None
    """Protobuf: which message of the file, from the outermost inwards; None for other formats."""

    def prefix(self) -> bytes:
        """Return the bytes that name the schema and precede the payload."""
        if self.id is None or not 0 <= self.id <= LARGEST_ID:
            raise SerializationError(f"a schema id must fit in four bytes, not {self.id}")
        return _PREFIX.pack(BY_ID, self.id) + _indexes(self.indexes)

    def header(self) -> bytes:
        """Return the value of a header that replaces the prefix."""
        if self.guid is None:
            raise SerializationError(
                "schema.id.location=header needs the schema's GUID, which this registry doesn't "
                "return (Confluent Platform 8 or newer does). Use schema.id.location=prefix"
            )
        return bytes((BY_GUID,)) + UUID(self.guid).bytes + _indexes(self.indexes)


def header_name(context: SerializationContext | None) -> str:
    """Return the name of the header for a key's or a value's schema."""
    key = context is not None and context.field == MessageField.KEY
    return KEY_HEADER if key else VALUE_HEADER


def add_header(schema: SchemaId, context: SerializationContext | None) -> None:
    """Add the header of a schema to a record's headers."""
    headers = None if context is None else context.headers
    if isinstance(headers, list):
        headers.append((header_name(context), schema.header()))
    elif isinstance(headers, dict):
        headers[header_name(context)] = schema.header()
    else:
        raise SerializationError(
            "schema.id.location=header needs the record's headers: pass a SerializationContext "
            "whose `headers` is a list or a dict"
        )


def schema_of(
    data: bytes, context: SerializationContext | None = None, *, indexed: bool = False
) -> tuple[SchemaId, int]:
    """Return the schema of a key or value, and the position of its payload.

    Set `indexed` for Protobuf. A header takes precedence over a prefix, as in confluent-kafka.
    Raises `DeserializationError`.
    """
    headers = None if context is None else context.headers
    if headers:
        wanted = header_name(context)
        for name, value in _pairs(headers):
            if name == wanted and value is not None:
                return _read(bytes(value), indexed=indexed)[0], 0
    return _read(data, indexed=indexed)


def _pairs(headers: Any) -> Iterable[tuple[str, bytes | None]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _read(data: bytes, *, indexed: bool) -> tuple[SchemaId, int]:
    magic = data[0] if data else None
    if magic == BY_ID and len(data) >= ID_SIZE:
        at, number, guid = ID_SIZE, int.from_bytes(data[1:ID_SIZE], "big"), None
    elif magic == BY_GUID and len(data) >= GUID_SIZE:
        at, number, guid = GUID_SIZE, None, str(UUID(bytes=bytes(data[1:GUID_SIZE])))
    else:
        found = (
            "it is empty"
            if magic is None
            else f"it has {len(data)} byte{'' if len(data) == 1 else 's'} and starts with "
            f"{bytes(data[:1])!r}"
        )
        raise DeserializationError(
            "the data doesn't start with a zero byte and a 4-byte schema id, as Confluent's "
            f"serializers write it: {found}"
        )
    indexes = None
    if indexed:
        indexes, at = _read_indexes(data, at)
    return SchemaId(number, guid, indexes), at


def _indexes(indexes: tuple[int, ...] | None) -> bytes:
    if indexes is None:
        return b""
    if indexes == (0,):
        return b"\0"
    return b"".join(map(varint, (len(indexes), *indexes)))


def varint(value: int) -> bytes:
    """Return a number as a zigzag varint."""
    left, found = value << 1 if value >= 0 else (~value << 1) | 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _read_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    count, at = _read_varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= MOST_INDEXES:
        raise DeserializationError(
            f"the data has {count} message indexes, so it isn't Protobuf. Check the topic."
        )
    found = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        found.append(index)
    return tuple(found), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise DeserializationError("the data ends within the message indexes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise DeserializationError("a message index has more than five bytes")
