# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=True, freethreading_compatible=True
"""Read framed Avro and Protobuf values into Arrow's buffers natively; compiled by setup.py.

In: columns to fill, a program for each schema id (`column_program`), and a binary column. Out:
buffers of the columns, and the rows that were left. The reader is strict: a row that isn't encoded
in the usual way (a boolean of 2, a number of eleven bytes, a duplicate key in a map, a duplicate
Protobuf field) is null and left to the library, which reads it or raises its own error. So each row
that this reader accepts, the library accepts, too, with the same result. Nothing here trusts a
length: each is compared with the remaining bytes first. The size of a row isn't trusted either: one
byte may mean a null in thousands of columns, so the caller passes the number of bytes that all
columns may take together (`room`). A row that needs more is left before memory is allocated.

The GIL is released for as many successive rows as have known schemas.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    raise ImportError("odradek.record.kernel_columns isn't compiled, and can't run as Python")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uint64_t
from cython.cimports.libc.string import memcmp, memcpy, memset
from cython.cimports.odradek.record.native import (
    get32,
    low64,
    odradek_block_give,
    odradek_block_grow,
    odradek_digest,
)

from odradek.record.column_program import (
    COLUMN_NUMBERS,
    LARGEST_SECONDS,
    STEP_NUMBERS,
    UUID_TEXT,
    FieldKind,
    Keeping,
    Label,
    Number,
    Op,
)

SOURCES: str = odradek_digest.decode().partition(":")[2]

Bytes = cython.typedef(cython.pointer(uint8_t))
Source = cython.typedef(cython.pointer(cython.const[uint8_t]))

FRAME = cython.declare(int64_t, 5)
MAPPED = cython.declare(int64_t, 1 << 17)
PAGE = cython.declare(int64_t, 4096)
FIRST_ROOM = cython.declare(int64_t, 64)
FEW = cython.declare(int64_t, 16)
CROWDED = cython.declare(int64_t, 16)
MOST_PROGRAMS = cython.declare(int64_t, 1000)
LEFT = cython.declare(int64_t, -1)
UNBOUNDED = cython.declare(int64_t, 0x7FFFFFFFFFFFFFFF)
HIGH_BITS = cython.declare(uint64_t, 0x8080808080808080)
ALL_BITS = cython.declare(uint64_t, 0xFFFFFFFFFFFFFFFF)
FNV_START = cython.declare(uint64_t, 0xCBF29CE484222325)
FNV_PRIME = cython.declare(uint64_t, 0x100000001B3)

NOTHING = cython.declare(int64_t, Keeping.NOTHING)
BITS = cython.declare(int64_t, Keeping.BITS)
FIXED = cython.declare(int64_t, Keeping.FIXED)
BINARY = cython.declare(int64_t, Keeping.BINARY)
LIST = cython.declare(int64_t, Keeping.LIST)
STRUCT = cython.declare(int64_t, Keeping.STRUCT)

READ_NULL = cython.declare(int64_t, Op.NULL)
OF_UUID = cython.declare(int64_t, UUID_TEXT)
READ_NUMBER = cython.declare(int64_t, Op.NUMBER)
READ_BINARY = cython.declare(int64_t, Op.BINARY)
READ_UNION = cython.declare(int64_t, Op.UNION)
READ_STRUCT = cython.declare(int64_t, Op.STRUCT)
READ_FLOAT = cython.declare(int64_t, Op.FLOAT)
READ_DOUBLE = cython.declare(int64_t, Op.DOUBLE)
READ_LIST = cython.declare(int64_t, Op.LIST)
READ_BOOLEAN = cython.declare(int64_t, Op.BOOLEAN)
READ_ENUM = cython.declare(int64_t, Op.ENUM)
READ_FIXED = cython.declare(int64_t, Op.FIXED)
READ_DECIMAL = cython.declare(int64_t, Op.DECIMAL)
READ_CONSTANT = cython.declare(int64_t, Op.CONSTANT)
READ_SWITCH = cython.declare(int64_t, Op.SWITCH)
JUMP = cython.declare(int64_t, Op.JUMP)
READ_SAME = cython.declare(int64_t, Op.SAME)
READ_MESSAGE = cython.declare(int64_t, Op.MESSAGE)

WIRE_INT32 = cython.declare(int64_t, FieldKind.INT32)
WIRE_UINT32 = cython.declare(int64_t, FieldKind.UINT32)
WIRE_UINT64 = cython.declare(int64_t, FieldKind.UINT64)
WIRE_SINT32 = cython.declare(int64_t, FieldKind.SINT32)
WIRE_SINT64 = cython.declare(int64_t, FieldKind.SINT64)
WIRE_BOOL = cython.declare(int64_t, FieldKind.BOOL)
WIRE_ENUM = cython.declare(int64_t, FieldKind.ENUM)
WIRE_FIXED32 = cython.declare(int64_t, FieldKind.FIXED32)
WIRE_FIXED64 = cython.declare(int64_t, FieldKind.FIXED64)
WIRE_STRING = cython.declare(int64_t, FieldKind.STRING)
WIRE_BYTES = cython.declare(int64_t, FieldKind.BYTES)
WIRE_MESSAGE = cython.declare(int64_t, FieldKind.MESSAGE)
MOST_SECONDS = cython.declare(int64_t, LARGEST_SECONDS)
LABEL_NULL = cython.declare(int64_t, Label.NULL)
LABEL_LEFT = cython.declare(int64_t, Label.LEFT)
LABEL_MAP = cython.declare(int64_t, Label.MAP)

VARINT = cython.declare(int64_t, 0)
EIGHT = cython.declare(int64_t, 1)
SIZED = cython.declare(int64_t, 2)
FOUR = cython.declare(int64_t, 5)
LARGEST_TAG = cython.declare(uint64_t, 0xFFFFFFFF)

AS_INT = cython.declare(int64_t, Number.INT)
AS_LONG = cython.declare(int64_t, Number.LONG)
AS_FLOAT = cython.declare(int64_t, Number.FLOAT)

# ---------------------------------------------------------------- memory

Block = cython.struct(data=Bytes, capacity=int64_t)
Column = cython.struct(
    kind=int64_t, width=int64_t, child=int64_t, next=int64_t,
    count=int64_t, room=int64_t, used=int64_t,
    valid=Block, ends=Block, data=Block,
)  # fmt: skip
Step = cython.struct(
    op=int64_t, column=int64_t, stop=int64_t, low=int64_t, high=int64_t, more=int64_t
)
Program = cython.struct(
    schema=int64_t, length=int64_t, steps=cython.pointer(Step), constants=Source
)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def grown(block: cython.pointer(Block), size: int64_t) -> cython.bint:
    """Grow a block to `size` bytes in all; return False without memory."""
    data: Bytes
    if size <= block.capacity:
        return True
    size = max(size, 2 * block.capacity)
    if size >= MAPPED:
        size = (size + PAGE - 1) // PAGE * PAGE
    data = cython.cast(Bytes, odradek_block_grow(block.data, block.capacity, size))
    if not data:
        return False
    block.data = data
    block.capacity = size
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def given_back(block: cython.pointer(Block)) -> cython.void:
    """Free a block."""
    if block.data:
        odradek_block_give(block.data, block.capacity)
    block.data = cython.NULL
    block.capacity = 0


@cython.final
@cython.cclass
class OwnedBlock:
    """One buffer of a column, for Arrow; frees its memory at the end."""

    block: Block
    items: cython.Py_ssize_t

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.block.data, self.items, True, flags)

    def __dealloc__(self) -> None:
        given_back(cython.address(self.block))


@cython.cfunc
def taken(block: cython.pointer(Block), size: int64_t) -> OwnedBlock:
    """Return a block as an object that owns it."""
    found: OwnedBlock = OwnedBlock()
    found.block = block[0]
    found.items = size
    block.data = cython.NULL
    block.capacity = 0
    return found


# ---------------------------------------------------------------- bytes


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_number(at: Source, end: Source, value: cython.pointer(int64_t)) -> Source:
    """Read a zigzag number of up to 64 bits; return where it ends, or NULL if it is invalid."""
    byte: uint64_t
    found: uint64_t = 0
    shift: cython.int = 0
    while True:
        if at >= end:
            return cython.NULL
        byte = at[0]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift >= 64:
            break
    # The tenth byte has room for one bit.
    if byte > 1 and shift == 70:
        return cython.NULL
    value[0] = cython.cast(int64_t, (found >> 1) ^ (0 - (found & 1)))
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_varint(at: Source, end: Source, value: cython.pointer(uint64_t)) -> Source:
    """Read a Protobuf number of up to 64 bits; return where it ends, or NULL if it is invalid."""
    byte: uint64_t
    found: uint64_t = 0
    shift: cython.int = 0
    while True:
        if at >= end:
            return cython.NULL
        byte = at[0]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift >= 64:
            break
    if byte > 1 and shift == 70:
        return cython.NULL
    value[0] = found
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_short(at: Source, end: Source, value: cython.pointer(uint64_t)) -> Source:
    """Read a tag or a size; Protobuf refuses more than five bytes, whatever their value."""
    begin: Source = at
    at = get_varint(at, end, value)
    if not at or at - begin > 5 or value[0] > LARGEST_TAG:
        return cython.NULL
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_size(at: Source, end: Source, size: cython.pointer(int64_t)) -> Source:
    """Read a size; return where its bytes begin, or NULL if there are fewer."""
    value: uint64_t = 0
    at = get_short(at, end, cython.address(value))
    if not at or value > cython.cast(uint64_t, end - at):
        return cython.NULL
    size[0] = cython.cast(int64_t, value)
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def skipped(at: Source, end: Source, wire: int64_t) -> Source:
    """Return where an unknown field ends; NULL if that isn't known, as for a group."""
    value: uint64_t = 0
    size: int64_t = 0
    if wire == VARINT:
        return get_varint(at, end, cython.address(value))
    if wire == SIZED:
        at = get_size(at, end, cython.address(size))
        if not at:
            return cython.NULL
    elif wire == EIGHT:
        size = 8
    elif wire == FOUR:
        size = 4
    else:
        return cython.NULL
    if size > end - at:
        return cython.NULL
    return at + size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def wire_of(kind: int64_t) -> int64_t:
    """Return the wire type of a field's single values."""
    if kind < WIRE_FIXED32:
        return VARINT
    if kind < WIRE_FIXED64:
        return FOUR
    if kind < WIRE_STRING:
        return EIGHT
    return SIZED


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_uuid(data: Source, size: int64_t) -> cython.bint:
    """Return whether bytes are the text of a UUID as `str` writes it: lower case, four hyphens."""
    at: int64_t
    byte: uint8_t
    if size != 36:
        return False
    for at in range(36):
        byte = data[at]
        if at == 8 or at == 13 or at == 18 or at == 23:
            if byte != 0x2D:
                return False
        elif not (0x30 <= byte <= 0x39 or 0x61 <= byte <= 0x66):
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_text(data: Source, size: int64_t) -> cython.bint:
    """Return whether bytes are valid UTF-8 for Python: the shortest form, and no surrogates."""
    at: int64_t = 0
    need: int64_t
    byte: uint8_t
    least: uint8_t
    most: uint8_t
    while at < size:
        byte = data[at]
        if byte < 0x80:
            if size - at >= 8 and low64(data + at) & HIGH_BITS == 0:
                at += 8
            else:
                at += 1
            continue
        least = 0x80
        most = 0xBF
        if byte < 0xC2 or byte > 0xF4:
            return False
        if byte < 0xE0:
            need = 1
        elif byte < 0xF0:
            need = 2
            if byte == 0xE0:
                least = 0xA0
            elif byte == 0xED:
                most = 0x9F
        else:
            need = 3
            if byte == 0xF0:
                least = 0x90
            elif byte == 0xF4:
                most = 0x8F
        if size - at <= need:
            return False
        if data[at + 1] < least or data[at + 1] > most:
            return False
        if need > 1 and data[at + 2] & 0xC0 != 0x80:
            return False
        if need > 2 and data[at + 3] & 0xC0 != 0x80:
            return False
        at += need + 1
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def clear_bit(bits: Bytes, index: int64_t) -> cython.void:
    """Set a bit to 0."""
    bits[index >> 3] &= ~(1 << (index & 7)) & 255


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def set_bit(bits: Bytes, index: int64_t) -> cython.void:
    """Set a bit to 1."""
    bits[index >> 3] |= 1 << (index & 7)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def bit(column: cython.pointer(Column), index: int64_t) -> cython.int:
    """Return an entry of a column of bits."""
    return column.data.data[index >> 3] >> (index & 7) & 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def ends_of(column: cython.pointer(Column)) -> cython.pointer(int32_t):
    """Return where the entries of a column end, after a first 0."""
    return cython.cast(cython.pointer(int32_t), column.ends.data)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def hashed(data: Source, size: int64_t) -> uint64_t:
    """Compute an FNV-1a hash, which is good enough for the keys of one map."""
    found: uint64_t = FNV_START
    at: int64_t
    for at in range(size):
        found = (found ^ data[at]) * FNV_PRIME
    return found ^ (found >> 29)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def key_of(keys: cython.pointer(Column), one: int64_t, size: cython.pointer(int64_t)) -> Source:
    """Return the bytes of a key, which is a text or a number."""
    ends: cython.pointer(int32_t)
    if keys.kind == FIXED:
        size[0] = keys.width
        return keys.data.data + one * keys.width
    ends = ends_of(keys)
    size[0] = ends[one + 1] - ends[one]
    return keys.data.data + ends[one]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def same_key(keys: cython.pointer(Column), one: int64_t, other: int64_t) -> cython.bint:
    """Return whether two keys have the same bytes."""
    size: int64_t = 0
    other_size: int64_t = 0
    first: Source = key_of(keys, one, cython.address(size))
    second: Source = key_of(keys, other, cython.address(other_size))
    return size == other_size and memcmp(first, second, size) == 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def field_at(
    fields: cython.pointer(Step), count: int64_t, number: int64_t, near: int64_t
) -> int64_t:
    """Return the index of a field by number, or of the next larger one.

    The field at `near` is tried first, because most messages have their fields in order.
    """
    low: int64_t = 0
    high: int64_t = count
    middle: int64_t
    if near < count and fields[near].low <= number:
        if fields[near].low == number:
            return near
        low = near + 1
        if low < count and fields[low].low == number:
            return low
    while low < high:
        middle = (low + high) // 2
        if fields[middle].low < number:
            low = middle + 1
        else:
            high = middle
    return low


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def framed(data: Source, size: int64_t, begin: int64_t, end: int64_t) -> cython.bint:
    """Return whether a row is within the data and begins like those of Confluent's serializers."""
    if begin < 0 or end > size:
        return False
    if end - begin < FRAME:
        return False
    return data[begin] == 0


# ---------------------------------------------------------------- values


@cython.final
@cython.cclass
class ColumnReader:
    """Fills the columns of one call.

    `columns`: the numbers of each column; the first column contains all others. `most`: maximum
    number of bytes or items that a column's 32-bit offsets can reach. Raises `ValueError` for
    invalid numbers.
    """

    columns: cython.pointer(Column)
    layout: Block
    length: int64_t
    most: int64_t
    programs: Block
    known: int64_t
    table: Block
    steps: cython.pointer(Step)
    constants: Source
    unknown: int64_t
    failed: cython.bint
    room: int64_t
    held: int64_t
    owed: cython.bint
    kept: list

    def __cinit__(self, columns: bytes, most: int64_t = 0x7FFFFFFF) -> None:
        """Copy the layout of the columns."""
        numbers: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), PyBytes_AS_STRING(columns)
        )
        at: int64_t
        self.length = PyBytes_GET_SIZE(columns) // (8 * cython.cast(int64_t, COLUMN_NUMBERS))
        self.most = most
        self.kept = []
        if self.length == 0:
            raise ValueError("at least one column is needed")
        if not grown(cython.address(self.layout), self.length * cython.sizeof(Column)):
            raise MemoryError
        self.columns = cython.cast(cython.pointer(Column), self.layout.data)
        memset(self.layout.data, 0, self.length * cython.sizeof(Column))
        for at in range(self.length):
            self.columns[at].kind = numbers[4 * at]
            self.columns[at].width = numbers[4 * at + 1]
            self.columns[at].child = numbers[4 * at + 2]
            self.columns[at].next = numbers[4 * at + 3]

    def __dealloc__(self) -> None:
        at: int64_t
        if self.columns:
            for at in range(self.length):
                given_back(cython.address(self.columns[at].valid))
                given_back(cython.address(self.columns[at].ends))
                given_back(cython.address(self.columns[at].data))
        given_back(cython.address(self.layout))
        given_back(cython.address(self.programs))
        given_back(cython.address(self.table))

    def add(self, schema: int64_t, program: bytes | None, constants: bytes = b"") -> None:
        """Set the program that reads values of a schema id; None: all of them are left.

        After a thousand programs all are forgotten, and requested again if their ids appear again:
        a program is found by a linear search, and rows may have any number of ids.
        """
        found: cython.pointer(Program)
        if self.known == MOST_PROGRAMS:
            self.known = 0
            self.kept.clear()
        if not grown(cython.address(self.programs), (self.known + 1) * cython.sizeof(Program)):
            raise MemoryError
        found = cython.cast(cython.pointer(Program), self.programs.data) + self.known
        found.schema = schema
        found.length = LEFT
        if program is not None:
            self.kept.append((program, constants))
            found.length = PyBytes_GET_SIZE(program) // (8 * cython.cast(int64_t, STEP_NUMBERS))
            found.steps = cython.cast(cython.pointer(Step), PyBytes_AS_STRING(program))
            found.constants = cython.cast(Source, PyBytes_AS_STRING(constants))
        self.known += 1

    def read(self, data, offsets, validity, wide: cython.bint, first: int64_t, count: int64_t,
             done: int64_t, left: bytearray, room: int64_t = UNBOUNDED) -> int:  # fmt: skip
        """Read `count` rows of a binary column from its row `first` on, of which `done` are read.

        `wide`: its offsets have 64 bits. A byte of `left` is set to 1 for each row that is left.
        `room`: bytes that the columns may take in all. Beyond it only null rows are added, so the
        caller must limit the number of rows times the size of a null row. Returns the number of
        rows that are read: all, or those before a row whose schema id, in `unknown_schema`, needs a
        program first. Raises `ValueError` for buffers that are too small, and `MemoryError`.
        """
        views: Py_buffer[4]
        held: cython.int = 0
        given = (data, offsets, b"" if validity is None else validity, left)
        try:
            for one in given:
                PyObject_GetBuffer(
                    one,
                    cython.address(views[held]),
                    PyBUF_WRITABLE if held == 3 else PyBUF_SIMPLE,
                )
                held += 1
            entry: int64_t = 8 if wide else 4
            if first < 0 or count < 0 or done < 0:
                raise ValueError("numbers of rows can't be negative")
            if views[1].len // entry <= first + count:
                raise ValueError("there are fewer offsets than rows")
            if validity is not None and views[2].len < (first + count + 7) // 8:
                raise ValueError("the validity has fewer bits than there are rows")
            if views[3].len < count:
                raise ValueError("there are fewer bytes than rows")
            self.room = room
            with cython.nogil:
                done = self.rows(views, validity is not None, wide, first, count, done)
            if self.failed:
                raise MemoryError
            return done
        finally:
            while held > 0:
                held -= 1
                PyBuffer_Release(cython.address(views[held]))

    @property
    def unknown_schema(self) -> int:
        """The schema id that needs a program."""
        return self.unknown

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def rows(
        self, views: cython.pointer(Py_buffer), nulls: cython.bint, wide: cython.bint,
        first: int64_t, count: int64_t, done: int64_t,
    ) -> int64_t:  # fmt: skip
        """Run the loop of `read`."""
        data: Source = cython.cast(Source, views[0].buf)
        narrow_ends: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), views[1].buf)
        wide_ends: cython.pointer(int64_t) = cython.cast(cython.pointer(int64_t), views[1].buf)
        bits: Source = cython.cast(Source, views[2].buf)
        left: Bytes = cython.cast(Bytes, views[3].buf)
        program: cython.pointer(Program) = cython.NULL
        begin: int64_t
        end: int64_t
        schema: int64_t
        row: int64_t
        while done < count:
            row = first + done
            if nulls and not bits[row >> 3] >> (row & 7) & 1:
                if not self.put_no_row():
                    self.failed = True
                    return done
                done += 1
                continue
            begin = wide_ends[row] if wide else narrow_ends[row]
            end = wide_ends[row + 1] if wide else narrow_ends[row + 1]
            if not framed(data, views[0].len, begin, end):
                left[done] = 1
            else:
                schema = get32(data + begin + 1)
                if not program or program.schema != schema:
                    program = self.program_of(schema)
                    if not program:
                        self.unknown = schema
                        return done
                if program.length == LEFT or not self.value(
                    program, data + begin + FRAME, data + end
                ):
                    left[done] = 1
            if left[done] and not self.put_no_row():
                self.failed = True
                return done
            done += 1
        return done

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def program_of(self, schema: int64_t) -> cython.pointer(Program):
        """Return the program of a schema id; NULL if there is none yet."""
        at: int64_t
        found: cython.pointer(Program) = cython.cast(cython.pointer(Program), self.programs.data)
        for at in range(self.known):
            if found[at].schema == schema:
                return found + at
        return cython.NULL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value(self, program: cython.pointer(Program), at: Source, end: Source) -> cython.bint:
        """Read one value, all of its bytes; return False and restore the columns if that fails."""
        before: int64_t = self.columns[0].count
        self.steps = program.steps
        self.constants = program.constants
        at = self.run(0, program.length, at, end)
        if not at or at < end:
            self.restore(0, before)
            return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def run(self, number: int64_t, stop: int64_t, at: Source, end: Source) -> Source:
        """Run the steps before `stop`; return where the last one ends, or NULL if one fails."""
        step: cython.pointer(Step)
        value: int64_t = 0
        while number < stop:
            step = self.steps + number
            number += 1
            if step.op == READ_NUMBER:
                at = get_number(at, end, cython.address(value))
                if not at or value < step.low or value > step.high:
                    return cython.NULL
                if step.column >= 0 and not self.put_number(step, value):
                    return cython.NULL
            elif step.op == READ_BINARY:
                at = self.binary(step, at, end)
                if not at:
                    return cython.NULL
            elif step.op == READ_UNION:
                at = get_number(at, end, cython.address(value))
                if not at:
                    return cython.NULL
                if value == step.high:
                    continue
                if value != step.low or step.more:
                    return cython.NULL
                if step.column >= 0 and not self.put_null(step.column):
                    return cython.NULL
                number = step.stop
            elif step.op == READ_LIST:
                at = self.items(step, number, at, end)
                if not at:
                    return cython.NULL
                number = step.stop
            elif step.op == READ_MESSAGE:
                if not self.message(number - 1, at, end):
                    return cython.NULL
                at = end
                number = step.stop
            elif step.op == READ_CONSTANT:
                if not self.run(
                    number, step.stop, self.constants + step.low,
                    self.constants + step.low + step.high,
                ):  # fmt: skip
                    return cython.NULL
                number = step.stop
            elif step.op == READ_SWITCH:
                at = get_number(at, end, cython.address(value))
                if not at or value < 0 or value >= step.high:
                    return cython.NULL
                number = self.steps[number + value].stop
            elif step.op == JUMP:
                number = step.stop
            else:
                at = self.other(step, at, end)
                if not at:
                    return cython.NULL
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def other(self, step: cython.pointer(Step), at: Source, end: Source) -> Source:
        """Run a step that is always followed by the next one."""
        value: int64_t = 0
        if step.op == READ_STRUCT:
            if not self.put_struct(step.column):
                return cython.NULL
            return at
        if step.op == READ_NULL:
            if not self.put_null(step.column):
                return cython.NULL
            return at
        if step.op == READ_DOUBLE:
            if end - at < 8:
                return cython.NULL
            if step.column >= 0 and not self.put_fixed(step.column, at, 8):
                return cython.NULL
            return at + 8
        if step.op == READ_FLOAT:
            if end - at < 4:
                return cython.NULL
            if step.column >= 0 and not self.put_float(step, at):
                return cython.NULL
            return at + 4
        if step.op == READ_BOOLEAN:
            if at >= end or at[0] > 1:
                return cython.NULL
            if step.column >= 0 and not self.put_bit(step.column, at[0]):
                return cython.NULL
            return at + 1
        if step.op == READ_FIXED:
            if end - at < step.low:
                return cython.NULL
            if step.column >= 0 and not self.put_fixed(step.column, at, step.low):
                return cython.NULL
            return at + step.low
        if step.op == READ_ENUM:
            at = get_number(at, end, cython.address(value))
            if not at or value < 0 or value >= step.high:
                return cython.NULL
            if step.column >= 0 and not self.put_symbol(step, value):
                return cython.NULL
            return at
        if step.op == READ_DECIMAL:
            return self.decimal(step, at, end)
        if step.op == READ_SAME:
            if end - at < step.high or memcmp(at, self.constants + step.low, step.high) != 0:
                return cython.NULL
            return at + step.high
        return cython.NULL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def binary(self, step: cython.pointer(Step), at: Source, end: Source) -> Source:
        """Read a size and its bytes, or as many bytes as the step says."""
        size: int64_t = step.low
        if size == 0:
            at = get_number(at, end, cython.address(size))
            if not at:
                return cython.NULL
        if size < 0 or size > end - at:
            return cython.NULL
        if step.more == OF_UUID:
            if not is_uuid(at, size):
                return cython.NULL
        elif step.more and not is_text(at, size):
            return cython.NULL
        if step.column >= 0 and not self.put_bytes(step.column, at, size):
            return cython.NULL
        return at + size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def items(self, step: cython.pointer(Step), body: int64_t, at: Source, end: Source) -> Source:
        """Read the blocks of an array or a map; each item takes a byte at least."""
        count: int64_t = 0
        size: int64_t = 0
        items: uint64_t
        block: Source
        first: int64_t = 0
        if step.column >= 0:
            first = self.columns[self.columns[step.column].child].count
        while True:
            at = get_number(at, end, cython.address(count))
            if not at:
                return cython.NULL
            if count == 0:
                break
            items = cython.cast(uint64_t, count)
            if count < 0:
                items = 0 - items
                at = get_number(at, end, cython.address(size))
                if not at:
                    return cython.NULL
            if items > cython.cast(uint64_t, end - at):
                return cython.NULL
            block = at
            while items > 0:
                at = self.run(body, step.stop, at, end)
                if not at:
                    return cython.NULL
                items -= 1
            # A reader that skips blocks uses the size, others the number of items: they must agree.
            if count < 0 and at - block != size:
                return cython.NULL
        if step.column < 0:
            return at
        if step.more and not self.distinct(step.low, first):
            return cython.NULL
        if not self.put_list(step.column):
            return cython.NULL
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def decimal(self, step: cython.pointer(Step), at: Source, end: Source) -> Source:
        """Read a big-endian number of up to 16 bytes that is smaller than the bound."""
        size: int64_t = step.low
        index: int64_t
        high: uint64_t = 0
        low: uint64_t = 0
        positive_high: uint64_t
        positive_low: uint64_t
        both: uint64_t[2]
        if size < 0:
            at = get_number(at, end, cython.address(size))
            if not at or size < 0:
                return cython.NULL
        if size > 16 or size > end - at:
            return cython.NULL
        if size > 0 and at[0] >= 0x80:
            high = low = ALL_BITS
        for index in range(size):
            high = (high << 8) | (low >> 56)
            low = (low << 8) | at[index]
        positive_high = high
        positive_low = low
        if high >> 63:
            positive_low = 0 - low
            positive_high = ~high + (1 if low == 0 else 0)
        if positive_high > cython.cast(uint64_t, step.high) or (
            positive_high == cython.cast(uint64_t, step.high)
            and positive_low >= cython.cast(uint64_t, step.more)
        ):
            return cython.NULL
        both[0] = low
        both[1] = high
        if step.column >= 0 and not self.put_fixed(
            step.column, cython.cast(Source, cython.address(both[0])), 16
        ):
            return cython.NULL
        return at + size

    # Protobuf

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def message(self, number: int64_t, at: Source, end: Source) -> cython.bint:
        """Read all fields of a message in any order; return False for a duplicate or invalid one.

        Each field has its own column: if this column has one entry more than before, the field was
        read already.
        """
        step: cython.pointer(Step) = self.steps + number
        fields: cython.pointer(Step) = step + 1
        field: cython.pointer(Step)
        entry: int64_t = self.columns[step.column].count
        tag: uint64_t = 0
        found: int64_t
        place: int64_t = 0
        wire: int64_t
        if not self.put_struct(step.column):
            return False
        while at < end:
            at = get_short(at, end, cython.address(tag))
            if not at:
                return False
            found = cython.cast(int64_t, tag >> 3)
            wire = cython.cast(int64_t, tag & 7)
            if found == 0:
                return False
            place = field_at(fields, step.low, found, place)
            if place >= step.low or fields[place].low != found:
                if step.high:
                    return False
                at = skipped(at, end, wire)
                if not at:
                    return False
                continue
            field = fields + place
            if field.high > LABEL_LEFT:
                at = self.repeated(field, wire, at, end)
                if not at:
                    return False
                continue
            if self.columns[field.column].count > entry:
                return False
            at = self.single(field, field.column, wire, at, end)
            if not at or not self.put_others(field):
                return False
        place = 0
        while place < step.low:
            if not self.put_absent(fields + place, entry):
                return False
            place += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_others(self, field: cython.pointer(Step)) -> cython.bint:
        """Set the other fields of a oneof to null, so that a second one counts as a duplicate."""
        other: cython.pointer(Step) = field
        if field.more < 0:
            return True
        while True:
            other = self.steps + other.more
            if other == field:
                return True
            if not self.put_null(other.column):
                return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_absent(self, field: cython.pointer(Step), entry: int64_t) -> cython.bint:
        """Complete a field at the end of its message: its default, or the end of its list."""
        column: cython.pointer(Column) = self.columns + field.column
        first: int64_t = 0
        if field.high > LABEL_LEFT:
            if field.high == LABEL_MAP:
                if column.room > 0:
                    first = ends_of(column)[column.count]
                if not self.distinct(self.columns[column.child].child, first):
                    return False
            return self.put_list(field.column)
        if column.count > entry:
            return True
        if field.high == LABEL_NULL:
            return self.put_null(field.column)
        if field.high == LABEL_LEFT:
            return False
        if field.op == WIRE_ENUM:
            return self.put_name(field, field.column, 0)
        if column.kind == BITS:
            return self.put_bit(field.column, False)
        if column.kind == BINARY:
            return self.put_bytes(field.column, cython.NULL, 0)
        if column.count >= column.room and not self.grow(column):
            return False
        memset(column.data.data + column.count * column.width, 0, column.width)
        column.count += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def repeated(
        self, field: cython.pointer(Step), wire: int64_t, at: Source, end: Source
    ) -> Source:
        """Read an item of a repeated field, or several packed items."""
        item: int64_t = self.columns[field.column].child
        one: int64_t = wire_of(field.op)
        size: int64_t = 0
        stop: Source
        if wire != SIZED or one == SIZED:
            return self.single(field, item, wire, at, end)
        at = get_size(at, end, cython.address(size))
        if at == cython.NULL:
            return cython.NULL
        stop = at + size
        while at < stop:
            at = self.single(field, item, one, at, stop)
            if not at:
                return cython.NULL
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def single(
        self, field: cython.pointer(Step), column: int64_t, wire: int64_t, at: Source, end: Source
    ) -> Source:
        """Read one value of a field into a column; return NULL if the wire type is wrong."""
        value: uint64_t = 0
        size: int64_t = 0
        if wire != wire_of(field.op):
            return cython.NULL
        if wire == VARINT:
            at = get_varint(at, end, cython.address(value))
            if not at or not self.put_varint(field, column, value):
                return cython.NULL
            return at
        if wire == SIZED:
            at = get_size(at, end, cython.address(size))
            if not at or not self.put_sized(field, column, at, size):
                return cython.NULL
            return at + size
        size = 4 if wire == FOUR else 8
        if size > end - at or not self.put_flat(field, column, at):
            return cython.NULL
        return at + size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_flat(self, field: cython.pointer(Step), column: int64_t, data: Source) -> cython.bint:
        """Read four or eight bytes, little-endian."""
        both: uint64_t[2]
        both[0] = both[1] = 0
        if field.op == WIRE_FIXED32:
            memcpy(cython.address(both[0]), data, 4)
            return self.put_fixed(column, cython.cast(Source, cython.address(both[0])), 8)
        if field.op == WIRE_FIXED64:
            memcpy(cython.address(both[0]), data, 8)
            return self.put_fixed(column, cython.cast(Source, cython.address(both[0])), 16)
        return self.put_fixed(column, data, 4 if wire_of(field.op) == FOUR else 8)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_varint(
        self, field: cython.pointer(Step), column: int64_t, value: uint64_t
    ) -> cython.bint:
        """Add a number in its field's type; a number that is too large loses its highest bits."""
        kind: int64_t = field.op
        both: uint64_t[2]
        if kind == WIRE_BOOL:
            return self.put_bit(column, value != 0)
        if kind == WIRE_ENUM:
            return self.put_name(field, column, cython.cast(int32_t, value & LARGEST_TAG))
        if kind == WIRE_SINT32:
            value &= LARGEST_TAG
        if kind in (WIRE_SINT32, WIRE_SINT64):
            value = (value >> 1) ^ (0 - (value & 1))
        elif kind == WIRE_UINT32:
            value &= LARGEST_TAG
        both[0] = value
        both[1] = 0
        return self.put_fixed(
            column,
            cython.cast(Source, cython.address(both[0])),
            4 if kind in (WIRE_INT32, WIRE_SINT32) else 16 if kind == WIRE_UINT64 else 8,
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_name(self, field: cython.pointer(Step), column: int64_t, value: int32_t) -> cython.bint:
        """Add the name of an enum's number; return False for an unknown number."""
        table: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), cython.cast(Bytes, self.constants + field.stop)
        )
        low: int64_t = 0
        high: int64_t = table[0]
        middle: int64_t
        while low < high:
            middle = (low + high) // 2
            if table[3 * middle + 1] < value:
                low = middle + 1
            else:
                high = middle
        if low >= table[0] or table[3 * low + 1] != value:
            return False
        return self.put_bytes(column, self.constants + table[3 * low + 2], table[3 * low + 3])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_sized(
        self, field: cython.pointer(Step), column: int64_t, data: Source, size: int64_t
    ) -> cython.bint:
        """Add a text, bytes, or a message within the message."""
        if field.op == WIRE_MESSAGE:
            return self.message(field.stop, data, data + size)
        if field.op == WIRE_STRING:
            if not is_text(data, size):
                return False
            return self.put_bytes(column, data, size)
        if field.op == WIRE_BYTES:
            return self.put_bytes(column, data, size)
        return self.put_timestamp(column, data, data + size)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_timestamp(self, column: int64_t, at: Source, end: Source) -> cython.bint:
        """Add seconds and nanoseconds, of which either may be missing, as microseconds."""
        value: uint64_t = 0
        seconds: int64_t = 0
        nanos: int64_t = 0
        tag: int64_t
        while at < end:
            tag = at[0]
            if tag != 0x08 and tag != 0x10:
                return False
            at = get_varint(at + 1, end, cython.address(value))
            if not at:
                return False
            if tag == 0x08:
                seconds = cython.cast(int64_t, value)
            else:
                nanos = cython.cast(int32_t, value & LARGEST_TAG)
        if seconds > MOST_SECONDS or seconds < -MOST_SECONDS or nanos < 0:
            return False
        seconds = seconds * 1000000 + nanos // 1000
        return self.put_fixed(column, cython.cast(Source, cython.address(seconds)), 8)

    # Adding entries to columns

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def have(self, block: cython.pointer(Block), size: int64_t) -> cython.bint:
        """Grow a column's block to `size` bytes in all; return False without memory or `room`."""
        before: int64_t = block.capacity
        if size <= before:
            return True
        if max(size, 2 * before) - before > self.room - self.held and not self.owed:
            return False
        if not grown(block, size):
            return False
        self.held += block.capacity - before
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def grow(self, column: cython.pointer(Column)) -> cython.bint:
        """Double the entries of a column, none of them null; return False like `have`."""
        room: int64_t = max(FIRST_ROOM, 2 * column.room)
        if not self.have(cython.address(column.valid), room // 8):
            return False
        memset(column.valid.data + column.room // 8, 255, (room - column.room) // 8)
        if column.kind == FIXED:
            if not self.have(cython.address(column.data), max(room * column.width, 1)):
                return False
        elif column.kind == BITS:
            if not self.have(cython.address(column.data), room // 8):
                return False
        elif column.kind == BINARY or column.kind == LIST:
            if not self.have(cython.address(column.ends), 4 * room + 4):
                return False
            if column.room == 0:
                cython.cast(cython.pointer(int32_t), column.ends.data)[0] = 0
        column.room = room
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_null(self, index: int64_t) -> cython.bint:
        """Add a null entry, and one to each child of a struct."""
        column: cython.pointer(Column) = self.columns + index
        child: int64_t
        if column.count >= column.room and not self.grow(column):
            return False
        if column.kind == FIXED:
            memset(column.data.data + column.count * column.width, 0, column.width)
        elif column.kind == BITS:
            clear_bit(column.data.data, column.count)
        elif column.kind == BINARY or column.kind == LIST:
            ends_of(column)[column.count + 1] = ends_of(column)[column.count]
        elif column.kind == STRUCT:
            child = column.child
            while child >= 0:
                if not self.put_null(child):
                    return False
                child = self.columns[child].next
        # Last, because adding to a child may fail: the bit of this entry must not be cleared then.
        clear_bit(column.valid.data, column.count)
        column.count += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_no_row(self) -> cython.bint:
        """Add a null row, even beyond `room`: a column has an entry for each row."""
        found: cython.bint
        self.owed = True
        found = self.put_null(0)
        self.owed = False
        return found

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_struct(self, index: int64_t) -> cython.bint:
        """Add an entry whose children follow."""
        column: cython.pointer(Column) = self.columns + index
        if column.count >= column.room and not self.grow(column):
            return False
        column.count += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_number(self, step: cython.pointer(Step), value: int64_t) -> cython.bint:
        """Add a number to a column."""
        column: cython.pointer(Column) = self.columns + step.column
        if column.count >= column.room and not self.grow(column):
            return False
        if step.more == AS_INT:
            cython.cast(cython.pointer(int32_t), column.data.data)[column.count] = cython.cast(
                int32_t, value
            )
        elif step.more == AS_LONG:
            cython.cast(cython.pointer(int64_t), column.data.data)[column.count] = value
        elif step.more == AS_FLOAT:
            # Converted through a double, as in Python.
            cython.cast(cython.pointer(cython.float), column.data.data)[column.count] = cython.cast(
                cython.float, cython.cast(cython.double, value)
            )
        else:
            cython.cast(cython.pointer(cython.double), column.data.data)[column.count] = (
                cython.cast(cython.double, value)
            )
        column.count += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_fixed(self, index: int64_t, data: Source, size: int64_t) -> cython.bint:
        """Add an entry of `size` bytes, which is the column's width."""
        column: cython.pointer(Column) = self.columns + index
        if column.count >= column.room and not self.grow(column):
            return False
        memcpy(column.data.data + column.count * column.width, data, size)
        column.count += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_float(self, step: cython.pointer(Step), data: Source) -> cython.bint:
        """Add a float, as a float or as a double."""
        single: cython.float
        double: cython.double
        if not step.more:
            return self.put_fixed(step.column, data, 4)
        memcpy(cython.address(single), data, 4)
        double = single
        return self.put_fixed(
            step.column, cython.cast(Source, cython.cast(Bytes, cython.address(double))), 8
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_bit(self, index: int64_t, value: cython.bint) -> cython.bint:
        """Add a boolean."""
        column: cython.pointer(Column) = self.columns + index
        if column.count >= column.room and not self.grow(column):
            return False
        if value:
            set_bit(column.data.data, column.count)
        else:
            clear_bit(column.data.data, column.count)
        column.count += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_symbol(self, step: cython.pointer(Step), value: int64_t) -> cython.bint:
        """Add a symbol as text; return False for one that the reader's schema doesn't have."""
        place: int32_t[2]
        memcpy(cython.address(place[0]), self.constants + step.low + 8 * value, 8)
        if place[1] < 0:
            return False
        return self.put_bytes(step.column, self.constants + place[0], place[1])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_bytes(self, index: int64_t, data: Source, size: int64_t) -> cython.bint:
        """Add bytes or a text to a column."""
        column: cython.pointer(Column) = self.columns + index
        used: int64_t = column.used + size
        if used > self.most:
            return False
        if column.count >= column.room and not self.grow(column):
            return False
        if not self.have(cython.address(column.data), used):
            return False
        if size > 0:
            memcpy(column.data.data + column.used, data, size)
        column.used = used
        column.count += 1
        ends_of(column)[column.count] = cython.cast(int32_t, used)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_list(self, index: int64_t) -> cython.bint:
        """Add a list of all items since the previous list."""
        column: cython.pointer(Column) = self.columns + index
        items: int64_t = self.columns[column.child].count
        if items > self.most:
            return False
        if column.count >= column.room and not self.grow(column):
            return False
        column.count += 1
        ends_of(column)[column.count] = cython.cast(int32_t, items)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def distinct(self, index: int64_t, first: int64_t) -> cython.bint:
        """Return whether a map's keys, from entry `first` on, are all different.

        Also returns False if the keys collide in the hash table: otherwise an attacker could choose
        keys that take quadratic time. Such a row is left to the library, which uses dicts.
        """
        keys: cython.pointer(Column) = self.columns + index
        count: int64_t = keys.count - first
        size: int64_t = 32
        one: int64_t
        other: int64_t
        place: int64_t
        slots: cython.pointer(int64_t)
        key: Source
        length: int64_t = 0
        met: int64_t = 0
        if keys.kind == BITS:
            return count < 2 or (count == 2 and bit(keys, first) != bit(keys, first + 1))
        if count <= FEW:
            for one in range(first + 1, keys.count):
                for other in range(first, one):
                    if same_key(keys, one, other):
                        return False
            return True
        while size < 2 * count:
            size *= 2
        if not grown(cython.address(self.table), 8 * size):
            return False
        slots = cython.cast(cython.pointer(int64_t), self.table.data)
        memset(slots, 255, 8 * size)
        for one in range(first, keys.count):
            key = key_of(keys, one, cython.address(length))
            place = cython.cast(int64_t, hashed(key, length) & cython.cast(uint64_t, size - 1))
            while slots[place] >= 0:
                if same_key(keys, one, slots[place]):
                    return False
                met += 1
                if met > CROWDED * count:
                    return False
                place = (place + 1) & (size - 1)
            slots[place] = one
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def restore(self, index: int64_t, count: int64_t) -> cython.void:
        """Reduce a column and its children to `count` entries."""
        column: cython.pointer(Column) = self.columns + index
        child: int64_t = column.child
        at: int64_t
        ends: int64_t = 0
        for at in range(count, column.count):
            set_bit(column.valid.data, at)
        column.count = count
        if column.kind == STRUCT:
            while child >= 0:
                self.restore(child, count)
                child = self.columns[child].next
            return
        if column.room > 0 and (column.kind == BINARY or column.kind == LIST):
            ends = ends_of(column)[count]
        if column.kind == BINARY:
            column.used = ends
        elif column.kind == LIST:
            self.restore(child, ends)

    def column(self, index: int64_t):
        """Return a column: its entries, nulls, and the blocks of validity, ends and data.

        The validity is None if there are no nulls; ends and data are None if the kind has none. The
        column is empty afterwards. Raises `ValueError` for a column that doesn't exist.
        """
        column: cython.pointer(Column)
        at: int64_t
        nulls: int64_t = 0
        size: int64_t = 0
        if index < 0 or index >= self.length:
            raise ValueError("there is no such column")
        column = self.columns + index
        self.owed = True
        grown_one: cython.bint = column.room > 0 or self.grow(column)
        self.owed = False
        if not grown_one:
            raise MemoryError
        self.held -= column.valid.capacity + column.ends.capacity + column.data.capacity
        for at in range(column.count):
            nulls += not column.valid.data[at >> 3] >> (at & 7) & 1
        validity = ends = data = None
        if nulls and column.kind != NOTHING:
            validity = taken(cython.address(column.valid), (column.count + 7) // 8)
        if column.kind == BINARY or column.kind == LIST:
            ends = taken(cython.address(column.ends), 4 * (column.count + 1))
        if column.kind == FIXED:
            data = taken(cython.address(column.data), column.count * column.width)
        elif column.kind == BITS:
            data = taken(cython.address(column.data), (column.count + 7) // 8)
        elif column.kind == BINARY:
            if not grown(cython.address(column.data), 1):
                raise MemoryError
            data = taken(cython.address(column.data), column.used)
        size = column.count
        given_back(cython.address(column.valid))
        column.count = column.room = column.used = 0
        return size, nulls, validity, ends, data
