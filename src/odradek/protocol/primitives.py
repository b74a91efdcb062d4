"""Encode and decode the parts of Kafka's messages: varints, strings, counts, records, tags.

In: a memoryview and a position (reading), or an `Output` (writing). Out: the value and the position
after it. The generated modules call these functions for all fields without a fixed width. Must not:
allocate memory for a length or count before checking that as many bytes are left.

Readers raise `WireError`, `struct.error`, `IndexError` or `UnicodeDecodeError`; `Message.decode`
turns each into `MalformedMessageError`. In each reader, the local variable for the position is
named `pos`, because the error's text contains its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack_from
from typing import Any, Final, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[bytes | memoryview]
Records: TypeAlias = Buffer | Sequence[Buffer] | None
"""Value of a `records` field; a decoded message has a memoryview or None."""

T = TypeVar("T")
One: TypeAlias = tuple[T, int]
"""Result of a reader: an object, and the position after its bytes."""
Many: TypeAlias = tuple[list[T], int]
"""Result of a reader of an array: the elements, and the position after their bytes."""

ZERO_UUID: Final = bytes(16)
_MAX_VARINT: Final = 0x7FFFFFFF

_read_int16 = Struct(">h").unpack_from
_read_int32 = Struct(">i").unpack_from
_pack_int16 = Struct(">h").pack
_pack_int32 = Struct(">i").pack


class WireError(Exception):
    """The bytes violate the protocol; `Message.decode` converts this error."""


class AbsentFieldError(Exception):
    """A field has a value, but the version to encode doesn't have this field."""


class Output(bytearray):
    """Encoded bytes, and buffers with records to insert between them without a copy."""

    __slots__ = ("splices",)

    def __init__(self) -> None:
        super().__init__()
        self.splices: list[tuple[int, bytes | memoryview]] = []

    def buffers(self) -> Buffers:
        """Return a list of buffers, in order: written bytes, and the record buffers in between."""
        if not self.splices:
            return [bytes(self)]
        made: Buffers = []
        start = 0
        with memoryview(self) as view:
            for position, buffer in self.splices:
                if position > start:
                    made.append(bytes(view[start:position]))
                    start = position
                made.append(buffer)
            if start < len(view):
                made.append(bytes(view[start:]))
        return made


def packing(
    codes: str,
) -> tuple[Callable[..., bytes], Callable[[memoryview, int], tuple[Any, ...]]]:
    """Return the functions that pack and unpack consecutive fields of fixed width."""
    run = Struct(f">{codes}")
    return run.pack, run.unpack_from


# --- reading -----------------------------------------------------------------------------------


def read_uvarint(view: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned varint; raise if it is larger than Java's largest int."""
    value = view[pos]
    pos += 1
    if value < 0x80:
        return value, pos
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_VARINT:
                raise WireError(f"the varint {value} is too large")
            return value, pos
    raise WireError("a varint has more than five bytes")


def _slice_end(view: memoryview, pos: int, length: int) -> int:
    end = pos + length
    if length < 0:
        raise WireError(f"the length {length} is negative")
    if end > len(view):
        raise WireError(f"the length {length} exceeds the {len(view) - pos} bytes left")
    return end


def read_string(view: memoryview, pos: int) -> tuple[str, int]:
    """Read a string with a two-byte length."""
    (length,) = _read_int16(view, pos)
    pos += 2
    end = _slice_end(view, pos, length)
    return str(view[pos:end], "utf-8"), end


def read_nullable_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    """Read a string with a two-byte length; -1 means null."""
    if _read_int16(view, pos)[0] == -1:
        return None, pos + 2
    return read_string(view, pos)


def read_compact_string(view: memoryview, pos: int) -> tuple[str, int]:
    """Read a string after a varint with its length plus one."""
    length = view[pos]
    if length < 0x80:
        pos += 1
    else:
        length, pos = read_uvarint(view, pos)
    end = pos + length - 1
    if not pos <= end <= len(view):
        end = _slice_end(view, pos, length - 1)
    return str(view[pos:end], "utf-8"), end


def read_nullable_compact_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    """Read a compact string; length 0 means null."""
    if view[pos] == 0:
        return None, pos + 1
    return read_compact_string(view, pos)


def read_strings(view: memoryview, pos: int, count: int) -> tuple[list[str], int]:
    """Read `count` strings."""
    items = []
    for _ in range(count):
        item, pos = read_string(view, pos)
        items.append(item)
    return items, pos


def read_compact_strings(view: memoryview, pos: int, count: int) -> tuple[list[str], int]:
    """Read `count` compact strings."""
    items = []
    for _ in range(count):
        item, pos = read_compact_string(view, pos)
        items.append(item)
    return items, pos


def read_view(view: memoryview, pos: int) -> tuple[memoryview, int]:
    """Read bytes with a four-byte length; return a slice of the input, not a copy."""
    (length,) = _read_int32(view, pos)
    pos += 4
    end = _slice_end(view, pos, length)
    return view[pos:end], end


def read_nullable_view(view: memoryview, pos: int) -> tuple[memoryview | None, int]:
    """Read bytes with a four-byte length (-1 means null); return a slice of the input."""
    if _read_int32(view, pos)[0] == -1:
        return None, pos + 4
    return read_view(view, pos)


def read_compact_view(view: memoryview, pos: int) -> tuple[memoryview, int]:
    """Read bytes after a varint with their length plus one; return a slice of the input."""
    length, pos = read_uvarint(view, pos)
    end = _slice_end(view, pos, length - 1)
    return view[pos:end], end


def read_nullable_compact_view(view: memoryview, pos: int) -> tuple[memoryview | None, int]:
    """Read compact bytes (length 0 means null); return a slice of the input."""
    length = view[pos]  # `read_compact_view`, inlined for speed
    if length == 0:
        return None, pos + 1
    if length < 0x80:
        pos += 1
    else:
        length, pos = read_uvarint(view, pos)
    end = pos + length - 1
    if not pos <= end <= len(view):
        end = _slice_end(view, pos, length - 1)
    return view[pos:end], end


def read_bytes(view: memoryview, pos: int) -> tuple[bytes, int]:
    """Read bytes with a four-byte length; return a copy."""
    found, pos = read_view(view, pos)
    return bytes(found), pos


def read_nullable_bytes(view: memoryview, pos: int) -> tuple[bytes | None, int]:
    """Read bytes with a four-byte length (-1 means null); return a copy."""
    found, pos = read_nullable_view(view, pos)
    return None if found is None else bytes(found), pos


def read_compact_bytes(view: memoryview, pos: int) -> tuple[bytes, int]:
    """Read compact bytes; return a copy."""
    found, pos = read_compact_view(view, pos)
    return bytes(found), pos


def _check_count(view: memoryview, pos: int, count: int, smallest: int) -> None:
    # An element takes at least `smallest` bytes: a count for which too few bytes are left is
    # refused before the list is allocated, so that a hostile count allocates nothing.
    if count * smallest > len(view) - pos:
        raise WireError(f"the count {count} doesn't fit in the {len(view) - pos} bytes left")


def read_count(view: memoryview, pos: int, smallest: int) -> tuple[int, int]:
    """Read an array's four-byte count; `smallest` is the minimum size of an element."""
    (count,) = _read_int32(view, pos)
    if count < 0:
        raise WireError(f"the count {count} is negative")
    pos += 4
    _check_count(view, pos, count, smallest)
    return count, pos


def read_compact_count(view: memoryview, pos: int, smallest: int) -> tuple[int, int]:
    """Read an array's count from a varint that is the count plus one."""
    count = view[pos] - 1
    if count < 0x7F:
        pos += 1
    else:
        count, pos = read_uvarint(view, pos)
        count -= 1
    if count < 0:
        raise WireError("null where null isn't allowed")
    if count * smallest > len(view) - pos:
        _check_count(view, pos, count, smallest)
    return count, pos


def read_int32s(view: memoryview, pos: int, count: int) -> list[int]:
    """Read `count` int32 numbers, the most frequent kind of array (replicas)."""
    return list(unpack_from(f">{count}i", view, pos))


def read_numbers(view: memoryview, pos: int, count: int, code: str) -> list[int]:
    """Read `count` numbers of one type."""
    return list(unpack_from(f">{count}{code}", view, pos))


def read_uuids(view: memoryview, pos: int, count: int) -> list[bytes]:
    """Read `count` UUIDs; the caller must have checked that as many bytes are left."""
    return [bytes(view[at : at + 16]) for at in range(pos, pos + 16 * count, 16)]


def read_tag(view: memoryview, pos: int) -> tuple[int, int, int]:
    """Read the start of a tagged field: its tag, and the start and end of its value."""
    tag, pos = read_uvarint(view, pos)
    size, pos = read_uvarint(view, pos)
    return tag, pos, _slice_end(view, pos, size)


def check_tag(tag: int, pos: int, end: int) -> None:
    """Raise if the value of a known tagged field doesn't end at the given end."""
    if pos != end:
        raise WireError(f"the size of tagged field {tag} is wrong by {abs(end - pos)} bytes")


def skip_tags(view: memoryview, pos: int) -> int:
    """Skip a section of unknown tagged fields, which newer brokers may send."""
    if view[pos] == 0:  # the usual case
        return pos + 1
    tags, pos = read_uvarint(view, pos)
    for _ in range(tags):
        _, _, pos = read_tag(view, pos)
    return pos


# --- writing -----------------------------------------------------------------------------------


def write_uvarint(out: bytearray, value: int) -> None:
    """Write an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_string(out: bytearray, value: str) -> None:
    """Write a string with a two-byte length."""
    encoded = value.encode()
    out += _pack_int16(len(encoded))
    out += encoded


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """Write a string with a two-byte length; -1 means null."""
    if value is None:
        out += b"\xff\xff"
    else:
        encoded = value.encode()
        out += _pack_int16(len(encoded))
        out += encoded


def write_compact_string(out: bytearray, value: str) -> None:
    """Write a string after a varint with its length plus one."""
    encoded = value.encode()
    length = len(encoded) + 1
    if length < 0x80:
        out.append(length)
    else:
        write_uvarint(out, length)
    out += encoded


def write_nullable_compact_string(out: bytearray, value: str | None) -> None:
    """Write a compact string; length 0 means null."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_bytes(out: bytearray, value: bytes) -> None:
    """Write bytes with a four-byte length."""
    out += _pack_int32(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    """Write bytes with a four-byte length; -1 means null."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: bytes) -> None:
    """Write bytes after a varint with their length plus one."""
    write_uvarint(out, len(value) + 1)
    out += value


def as_bytes_view(buffer: Buffer) -> memoryview:
    """Return a view of a buffer as single bytes, whatever its item format."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 and view.contiguous else view.cast("B")


def _record_buffers(records: Buffer | Sequence[Buffer]) -> list[bytes | memoryview]:
    if isinstance(records, bytes):
        return [records]
    if isinstance(records, (bytearray, memoryview)):
        return [as_bytes_view(records)]
    return [item if isinstance(item, bytes) else as_bytes_view(item) for item in records]


def records_view(records: Records) -> memoryview | None:
    """Return a field of records as one memoryview; only a list of several buffers is copied."""
    if records is None:
        return None
    if isinstance(records, memoryview):  # the usual case
        plain = records.format == "B" and records.ndim == 1 and records.contiguous
        return records if plain else as_bytes_view(records)
    buffers = _record_buffers(records)
    return as_bytes_view(buffers[0] if len(buffers) == 1 else b"".join(buffers))


def _splice(out: Output, buffers: list[bytes | memoryview]) -> None:
    at = len(out)
    for item in buffers:
        if len(item):
            out.splices.append((at, item))


def write_nullable_records(out: Output, records: Records) -> None:
    """Write the four-byte length of records; insert their buffers without a copy."""
    if records is None:
        out += b"\xff\xff\xff\xff"
        return
    buffers = _record_buffers(records)
    out += _pack_int32(sum(map(len, buffers)))
    _splice(out, buffers)


def write_nullable_compact_records(out: Output, records: Records) -> None:
    """Write a varint with the length of records plus one; insert the buffers without a copy."""
    if records is None:
        out.append(0)
        return
    buffers = _record_buffers(records)
    write_uvarint(out, sum(map(len, buffers)) + 1)
    _splice(out, buffers)


def write_numbers(out: bytearray, values: Sequence[int], code: str) -> None:
    """Write numbers of one type."""
    out += pack(f">{len(values)}{code}", *values)


def write_strings(out: bytearray, values: Sequence[str]) -> None:
    """Write strings one after the other."""
    for value in values:
        write_string(out, value)


def write_compact_strings(out: bytearray, values: Sequence[str]) -> None:
    """Write compact strings one after the other."""
    for value in values:
        write_compact_string(out, value)


def write_uuids(out: bytearray, values: Sequence[bytes]) -> None:
    """Write uuids one after the other."""
    for value in values:
        out += checked_uuid(value)


def checked_uuid(value: bytes) -> bytes:
    """Return a UUID; raise unless it has 16 bytes, because `struct` would pad or cut it."""
    if len(value) != 16:
        raise ValueError(f"a UUID must have 16 bytes, not {len(value)}")
    return value


def write_count(out: bytearray, values: Sequence[object]) -> None:
    """Write an array's four-byte count."""
    out += _pack_int32(len(values))


def write_compact_count(out: bytearray, values: Sequence[object]) -> None:
    """Write an array's count plus one as a varint."""
    count = len(values) + 1
    if count < 0x80:
        out.append(count)
    else:
        write_uvarint(out, count)


def write_tags(out: bytearray, tags: Sequence[tuple[int, bytearray]]) -> None:
    """Write a section of tagged fields in ascending order of tags, as the protocol requires."""
    if not tags:
        out.append(0)
        return
    write_uvarint(out, len(tags))
    for tag, value in tags:
        write_uvarint(out, tag)
        write_uvarint(out, len(value))
        out += value


def not_null(value: T | None) -> T:
    """Raise if a value is null and the version to encode doesn't allow that."""
    if value is None:
        raise ValueError("null where this version doesn't allow it")
    return value
