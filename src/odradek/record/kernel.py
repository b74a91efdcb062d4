# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=True, freethreading_compatible=True
"""Decode record batches to columns natively; compiled by setup.py, never run as Python.

In: the records of one partition from a Fetch response, in any of the formats 0, 1 and 2. Out: the
same as `reference.decode` returns, bit for bit, errors included. Each record is checked and copied
in one pass, into buffers that are large enough from the start or grow; the rows of a corrupt batch
are removed again. Nothing here trusts a length: each is compared with the remaining bytes before a
byte after it is read.

The GIL is released for as many successive batches as don't need Python: compressed ones do, and
control and transactional ones while aborted transactions are known. Buffers come from a pool,
because copying into pages that the system has to clear first is ten times slower.

Must not read the buffer after returning: the result owns its bytes or, with the layout
`binary_view`, keeps the buffer alive.
"""

from __future__ import annotations

from array import array

import cython

if not cython.compiled:
    raise ImportError("odradek.record.kernel isn't compiled, and can't run as Python")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_SIMPLE,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.list import PyList_New, PyList_SET_ITEM
from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
from cython.cimports.cpython.ref import Py_DECREF, Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_New, PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.record.native import (
    ArrowArray,
    Py_IsInitialized,
    Py_SET_TYPE,
    PyGC_Disable,
    PyGC_Enable,
    PyObject_GC_IsTracked,
    PyObject_GC_Track,
    PyObject_GC_UnTrack,
    PyObject_IS_GC,
    PyType_GenericAlloc,
    PyTypeObject,
    copy_near,
    get32,
    get64,
    low64,
    odradek_block_give,
    odradek_block_grow,
    odradek_block_take,
    odradek_crc32,
    odradek_crc32c,
    odradek_crc_by_table,
    odradek_crc_prepare,
    odradek_digest,
    odradek_free_threads,
    odradek_lent,
    odradek_lock,
    odradek_make_long,
    odradek_new_tuple,
    odradek_pool,
    odradek_read_as_slots,
    odradek_unlock,
)

from odradek.common.errors import CorruptRecordError
from odradek.record import reference
from odradek.record.aborted import AbortedTransactions
from odradek.record.batch import BadBatchError, batch_size, corrupt, read_header
from odradek.record.columns import (
    LAYOUTS,
    MOST_READ,
    BinaryColumn,
    DecodedRecords,
    HeaderColumn,
    PoolState,
    RawHeaderColumn,
    RawHeaders,
    RecordColumns,
    ViewColumn,
)
from odradek.record.compression import Scratch, unpack
from odradek.record.limits import HEADER_COST as COST_OF_A_HEADER
from odradek.record.limits import NO_LIMITS, BeyondLimitError
from odradek.record.reference import _LARGEST_OLD_CODEC, _is_abort_marker

odradek_crc_prepare()

SOURCES: str = odradek_digest.decode().partition(":")[2]

Bytes = cython.typedef(cython.pointer(uint8_t))
Source = cython.typedef(cython.pointer(cython.const[uint8_t]))

INT64_MAX = cython.declare(int64_t, 0x7FFFFFFFFFFFFFFF)
HEADER = cython.declare(int64_t, 61)
CHECKED = cython.declare(int64_t, 21)
SMALLEST_RECORD = cython.declare(int64_t, 7)
SMALLEST_MESSAGE = cython.declare(int64_t, 26)
USUAL_MESSAGE = cython.declare(int64_t, 64)
PAD = cython.declare(int64_t, 64)
INLINE = cython.declare(int64_t, 12)
VIEW = cython.declare(int64_t, 16)
LARGEST_VIEWED = cython.declare(int64_t, 0x7FFFFFFF)
HEADER_COST = cython.declare(int64_t, COST_OF_A_HEADER)
MOST_LENT = cython.declare(int64_t, 1 << 15)
MOST_TOGETHER = cython.declare(int64_t, 1 << 18)

# ---------------------------------------------------------------- memory

# All threads share the variables below: they are accessed under the GIL or the pool's mutex.
SMALLEST_CLASS = cython.declare(int64_t, 1 << 14)
CLASSES = cython.declare(cython.int, 80)
_idle = cython.declare(Bytes[80])
_idle_used = cython.declare(uint64_t[80])
_clock = cython.declare(uint64_t, 0)
_limit = cython.declare(int64_t, 64 << 20)
_held = cython.declare(int64_t, 0)
_lent = cython.declare(int64_t, 0)
_hits = cython.declare(int64_t, 0)
_misses = cython.declare(int64_t, 0)
_key_bytes = cython.declare(int64_t, 16)
_value_bytes = cython.declare(int64_t, 128)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def size_class(size: int64_t) -> cython.int:
    """Return the index of the class with blocks of `size` bytes; -1 for small sizes.

    There are four classes for each doubling of the size.
    """
    base: int64_t = SMALLEST_CLASS
    index: cython.int = 0
    if size <= base:
        return -1 if size < base else 0
    while base * 2 < size:
        base *= 2
        index += 4
    return index + cython.cast(cython.int, (size - base + base // 4 - 1) // (base // 4))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def class_size(index: cython.int) -> int64_t:
    """Return the size of a class's blocks in bytes."""
    base: int64_t = SMALLEST_CLASS << (index // 4)
    return base + (base // 4) * (index % 4)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def rounded(size: int64_t) -> int64_t:
    """Round up to the real size of such a block; malloc rounds small ones itself."""
    index: cython.int = size_class(size)
    return size if index < 0 else class_size(index)


@cython.cfunc
@cython.exceptval(check=False)
def pool_take(size: int64_t) -> Bytes:
    """Return a block of `rounded(size)` bytes, or NULL if there is no memory."""
    global _clock, _held, _hits, _misses
    index: cython.int = size_class(size)
    block: Bytes = cython.NULL
    if index < 0:
        return cython.cast(Bytes, odradek_block_take(size))
    odradek_lock(cython.address(odradek_pool))
    if index < CLASSES:
        _clock += 1
        _idle_used[index] = _clock
        block = _idle[index]
    if block:
        memcpy(cython.address(_idle[index]), block, cython.sizeof(Bytes))
        _held -= class_size(index)
        _hits += 1
    else:
        _misses += 1
    odradek_unlock(cython.address(odradek_pool))
    return block or cython.cast(Bytes, odradek_block_take(rounded(size)))


@cython.cfunc
@cython.exceptval(check=False)
def pool_give(block: Bytes, size: int64_t) -> cython.void:
    """Return a block to the pool, or free it if the pool would exceed its limit."""
    global _held
    index: cython.int = size_class(size)
    if index < 0 or index >= CLASSES:
        odradek_block_give(block, size)
        return
    odradek_lock(cython.address(odradek_pool))
    if size > _limit:
        odradek_block_give(block, size)
    else:
        while _held + size > _limit:
            pool_drop()
        # A free block's first bytes point to the next one.
        memcpy(block, cython.address(_idle[index]), cython.sizeof(Bytes))
        _idle[index] = block
        _held += size
    odradek_unlock(cython.address(odradek_pool))


@cython.cfunc
@cython.exceptval(check=False)
def pool_drop() -> cython.void:
    """Free one idle block, of the class whose last request is the oldest. Needs the mutex."""
    global _held
    oldest: cython.int = -1
    index: cython.int
    block: Bytes
    for index in range(CLASSES):
        if _idle[index] and (oldest < 0 or _idle_used[index] < _idle_used[oldest]):
            oldest = index
    block = _idle[oldest]
    memcpy(cython.address(_idle[oldest]), block, cython.sizeof(Bytes))
    _held -= class_size(oldest)
    odradek_block_give(block, class_size(oldest))


def pool_state():
    """Return how much memory columns use and how often it was reused."""
    odradek_lock(cython.address(odradek_pool))
    held, limit, lent, hits, misses = _held, _limit, _lent, _hits, _misses
    odradek_unlock(cython.address(odradek_pool))
    return PoolState(held, limit, lent, hits, misses)


def set_pool_limit(limit: int64_t) -> None:
    """Set the maximum number of idle bytes."""
    global _limit
    odradek_lock(cython.address(odradek_pool))
    _limit = max(0, limit)
    while _held > _limit:
        pool_drop()
    odradek_unlock(cython.address(odradek_pool))


@cython.cfunc
@cython.exceptval(check=False)
def note_lent(size: int64_t) -> cython.void:
    """Add to the memory that columns use."""
    global _lent
    odradek_lock(cython.address(odradek_pool))
    _lent += size
    odradek_unlock(cython.address(odradek_pool))


@cython.final
@cython.freelist(64)
@cython.cclass
class Buffer:
    """The bytes of one column; the block returns to the pool with the last view of it."""

    data: Bytes
    capacity: int64_t
    items: cython.Py_ssize_t
    width: cython.Py_ssize_t
    kind: cython.p_char

    def __cinit__(self) -> None:
        self.data = cython.NULL

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        if flags & PyBUF_WRITABLE:
            raise BufferError("columns are read-only")
        view.buf = self.data
        view.len = self.items * self.width
        view.itemsize = self.width
        view.readonly = True
        view.ndim = 1
        view.format = self.kind if flags & PyBUF_FORMAT else cython.NULL
        view.shape = cython.address(self.items) if flags & PyBUF_ND else cython.NULL
        view.strides = (
            cython.address(self.width) if flags & PyBUF_STRIDES == PyBUF_STRIDES else cython.NULL
        )
        view.suboffsets = cython.NULL
        view.internal = cython.NULL
        view.obj = self

    def __dealloc__(self) -> None:
        if self.data:
            note_lent(-self.capacity)
            pool_give(self.data, self.capacity)


# ---------------------------------------------------------------- one batch

Block = cython.struct(data=Bytes, capacity=int64_t)

OFFSETS = cython.declare(cython.int, 0)
TIMES = cython.declare(cython.int, 1)
TYPES = cython.declare(cython.int, 2)
KEY_ENDS = cython.declare(cython.int, 3)
KEY_DATA = cython.declare(cython.int, 4)
KEY_BITS = cython.declare(cython.int, 5)
VALUE_ENDS = cython.declare(cython.int, 6)
VALUE_DATA = cython.declare(cython.int, 7)
VALUE_BITS = cython.declare(cython.int, 8)
LIST_ENDS = cython.declare(cython.int, 9)
LIST_BITS = cython.declare(cython.int, 10)
NAME_ENDS = cython.declare(cython.int, 11)
NAME_DATA = cython.declare(cython.int, 12)
CONTENT_ENDS = cython.declare(cython.int, 13)
CONTENT_DATA = cython.declare(cython.int, 14)
CONTENT_BITS = cython.declare(cython.int, 15)
BLOCKS = cython.declare(cython.int, 16)

# Why the loop over batches stopped.
FINISHED = cython.declare(cython.int, 0)
LATER = cython.declare(cython.int, 1)
BAD_HEADER = cython.declare(cython.int, 2)
TRACKED = cython.declare(cython.int, 3)
COMPRESSED = cython.declare(cython.int, 4)
BAD_RECORDS = cython.declare(cython.int, 5)
CUT = cython.declare(cython.int, 6)
WRAPPED = cython.declare(cython.int, 7)

# Errors in a batch; `reason` returns the texts.
NO_MEMORY = cython.declare(cython.int, 1)
RAN_OUT = cython.declare(cython.int, 2)
OVER_32 = cython.declare(cython.int, 3)
OVER_64 = cython.declare(cython.int, 4)
RECORD_SIZE = cython.declare(cython.int, 5)
DELTA = cython.declare(cython.int, 6)
PIECE_SIZE = cython.declare(cython.int, 7)
HEADER_COUNT = cython.declare(cython.int, 8)
HEADER_NAME = cython.declare(cython.int, 9)
RECORD_END = cython.declare(cython.int, 10)
TIMESTAMP = cython.declare(cython.int, 11)
BATCH_END = cython.declare(cython.int, 12)
CHECKSUM = cython.declare(cython.int, 13)
MANY_HEADERS = cython.declare(cython.int, 14)
MANY_RECORDS = cython.declare(cython.int, 15)
COSTLY_HEADERS = cython.declare(cython.int, 16)
MESSAGE_FORMAT = cython.declare(cython.int, 17)
NESTED = cython.declare(cython.int, 18)
EMPTY_SET = cython.declare(cython.int, 19)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_varint(
    at: Source, end: Source, value: cython.pointer(int64_t), error: cython.pointer(cython.int)
) -> Source:
    """Read a zigzag number of up to 32 bits; return where it ends, or NULL if it is invalid."""
    byte: uint64_t
    found: uint64_t
    shift: cython.int = 7
    if at >= end:
        error[0] = RAN_OUT
        return cython.NULL
    byte = at[0]
    at += 1
    if byte < 0x80:
        value[0] = cython.cast(int64_t, (byte >> 1) ^ (0 - (byte & 1)))
        return at
    found = byte & 0x7F
    while True:
        if at >= end:
            error[0] = RAN_OUT
            return cython.NULL
        byte = at[0]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift >= 32:
            break
    if byte >= 0x80 or found >> 32:
        error[0] = OVER_32
        return cython.NULL
    value[0] = cython.cast(int64_t, (found >> 1) ^ (0 - (found & 1)))
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_varlong(
    at: Source, end: Source, value: cython.pointer(int64_t), error: cython.pointer(cython.int)
) -> Source:
    """Read a zigzag number of up to 64 bits; return where it ends, or NULL if it is invalid."""
    byte: uint64_t
    found: uint64_t = 0
    shift: cython.int = 0
    while True:
        if at >= end:
            error[0] = RAN_OUT
            return cython.NULL
        byte = at[0]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift >= 64:
            break
    # The tenth byte has room for one bit.
    if byte >= 0x80 or (shift == 70 and byte > 1):
        error[0] = OVER_64
        return cython.NULL
    value[0] = cython.cast(int64_t, (found >> 1) ^ (0 - (found & 1)))
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def clear_bit(bits: Bytes, index: int64_t) -> cython.void:
    """Mark an entry as null."""
    bits[index >> 3] &= ~(1 << (index & 7)) & 255


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def set_bits(bits: Bytes, start: int64_t, stop: int64_t) -> cython.void:
    """Mark entries as not null."""
    while start < stop:
        bits[start >> 3] |= 1 << (start & 7)
        start += 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_view(
    to: Bytes, data: Source, size: int64_t, buffer: cython.int, at: int64_t
) -> cython.void:
    """Write one entry of a `binary_view` column: short bytes themselves, or their position."""
    numbers: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), to)
    numbers[0] = cython.cast(int32_t, size)
    if size > INLINE:
        memcpy(numbers + 1, data, 4)
        numbers[2] = buffer
        numbers[3] = cython.cast(int32_t, at)
    else:
        memset(numbers + 1, 0, INLINE)
        memcpy(numbers + 1, data, size)


Header = cython.struct(
    base=int64_t,
    size=int64_t,
    last_delta=int64_t,
    base_time=int64_t,
    max_time=int64_t,
    count=int64_t,
    epoch=int32_t,
    crc=uint32_t,
    attributes=cython.int,
)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_fields(at: Source, header: cython.pointer(Header)) -> cython.bint:
    """Read the header of a complete batch; return False if it is invalid.

    `batch.read_header` raises the error.
    """
    header.base = cython.cast(int64_t, get64(at))
    header.size = cython.cast(int64_t, cython.cast(int32_t, get32(at + 8))) + 12
    if at[16] != 2 or header.size < HEADER:
        return False
    header.epoch = cython.cast(int32_t, get32(at + 12))
    header.crc = get32(at + 17)
    header.attributes = at[22]
    header.last_delta = cython.cast(int32_t, get32(at + 23))
    header.base_time = cython.cast(int64_t, get64(at + 27))
    header.max_time = cython.cast(int64_t, get64(at + 35))
    header.count = cython.cast(int32_t, get32(at + 57))
    return (
        header.base >= 0
        and header.last_delta >= 0
        and header.base < INT64_MAX - header.last_delta
        and 0 <= header.count <= header.last_delta + 1
    )


# A message of format 0 or 1; a negative size means null.
Message = cython.struct(
    offset=int64_t,
    time=int64_t,
    key=Source,
    key_size=int64_t,
    value=Source,
    value_size=int64_t,
    stop=Source,
    magic=cython.int,
    attributes=cython.int,
)


@cython.final
@cython.cclass
class Decoder:
    """State of one call of `decode`: the wanted range, the position and the result."""

    # The buffer, the position in it, and the range of wanted offsets.
    source: Source
    size: int64_t
    at: int64_t
    position: int64_t
    until: int64_t
    most: int64_t
    enough: int64_t
    columns_limit: int64_t
    want_key: cython.bint
    want_value: cython.bint
    want_headers: cython.bint
    raw_headers: cython.bint
    most_headers: int64_t
    most_records: int64_t
    most_bytes: int64_t
    tracked: cython.bint
    viewed: cython.bint
    # Results so far.
    header: Header
    outer: Message  # of a batch that is a message of format 0 or 1
    batches: int64_t
    control: int64_t
    hidden: int64_t
    decompressed: int64_t
    needed: int64_t
    epoch: int32_t
    left_out: cython.bint
    # The error, and the numbers for its text.
    error: cython.int
    claimed: int64_t
    limit: int64_t
    headers_met: int64_t
    # The columns.
    blocks: Block[16]
    rows: int64_t
    key_end: int64_t
    key_nulls: int64_t
    value_end: int64_t
    value_nulls: int64_t
    headers: int64_t  # their number; with raw_headers their size in bytes
    header_room: int64_t  # maximum of `headers` after the current batch
    name_end: int64_t
    content_end: int64_t
    content_nulls: int64_t
    refers: cython.bint

    def __dealloc__(self) -> None:
        index: cython.int
        for index in range(BLOCKS):
            if self.blocks[index].data:
                pool_give(self.blocks[index].data, self.blocks[index].capacity)

    @cython.cfunc
    @cython.exceptval(check=False)
    def start_with(self, index: cython.int, size: int64_t) -> cython.void:
        """Take a block from the pool for a column; if there is none, `grow` fails later."""
        self.blocks[index].data = pool_take(size + PAD)
        if self.blocks[index].data:
            self.blocks[index].capacity = rounded(size + PAD)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def grow(self, index: cython.int, size: int64_t) -> cython.bint:
        """Grow a block to `size` bytes in all, plus padding; return False without memory."""
        block: cython.pointer(Block) = cython.address(self.blocks[index])
        data: Bytes
        size += PAD
        if size <= block.capacity:
            return True
        size = rounded(max(size, 2 * block.capacity))
        data = cython.cast(Bytes, odradek_block_grow(block.data, block.capacity, size))
        if not data:
            self.error = NO_MEMORY
            return False
        block.data = data
        block.capacity = size
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def ends_size(self, rows: int64_t) -> int64_t:
        """Return the bytes that the positions of a column's entries take."""
        return VIEW * rows if self.viewed else 4 * rows + 4

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def room_for(self, rows: int64_t) -> cython.bint:
        """Grow all columns with a number for each row to this number of rows."""
        if not (
            self.grow(OFFSETS, 8 * rows)
            and self.grow(TIMES, 8 * rows)
            and self.grow(TYPES, rows)
            and (not self.want_key or self.grow(KEY_ENDS, self.ends_size(rows)))
            and (not self.want_value or self.grow(VALUE_ENDS, self.ends_size(rows)))
        ):
            return False
        if self.key_nulls and not self.room_for_bits(KEY_BITS, rows):
            return False
        if self.value_nulls and not self.room_for_bits(VALUE_BITS, rows):
            return False
        return self.headers == 0 or self.grow(LIST_ENDS, 4 * rows + 4)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def room_for_bits(self, index: cython.int, entries: int64_t) -> cython.bint:
        """Grow a bitmap to this number of entries; new bits are set, which means not null."""
        had: int64_t = self.blocks[index].capacity
        if not self.grow(index, (entries + 7) // 8):
            return False
        memset(self.blocks[index].data + had, 255, self.blocks[index].capacity - had)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fail(self, error: cython.int, claimed: int64_t, limit: int64_t) -> cython.bint:
        """Record the error and its numbers; return False."""
        self.error = error
        self.claimed = claimed
        self.limit = limit
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def walk(self, at: Source, end: Source, readable: Source, stays: cython.bint) -> cython.bint:
        """Check all records from `at` to `end`, and add the wanted ones.

        Copies may read up to `readable`; views may refer to the bytes if `stays` is set, because
        they remain in the buffer. If one record is corrupt, none is added.
        """
        headers: int64_t = self.headers
        name_end: int64_t = self.name_end
        content_end: int64_t = self.content_end
        content_nulls: int64_t = self.content_nulls
        # Decompressed bytes need memory in addition to the columns.
        room: int64_t = self.most_bytes - (0 if stays else end - at)
        self.header_room = headers + max(room, 0) // HEADER_COST
        if self.records(at, end, readable, stays):
            if not self.raw_headers:
                self.decompressed += HEADER_COST * (self.headers - headers)
            return True
        # For the error that `bad_records` returns.
        self.headers_met = self.headers - headers
        self.headers = headers
        self.name_end = name_end
        self.content_end = content_end
        self.content_nulls = content_nulls
        self.restore_bits(KEY_BITS, self.rows)
        self.restore_bits(VALUE_BITS, self.rows)
        self.restore_bits(CONTENT_BITS, headers)
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def restore_bits(self, index: cython.int, first: int64_t) -> cython.void:
        """Set all bits from this one on again, as for entries that aren't null."""
        block: Block = self.blocks[index]
        byte: int64_t = (first + 7) >> 3
        if block.data and byte <= block.capacity:
            set_bits(block.data, first, min(byte, block.capacity) << 3)
            memset(block.data + byte, 255, block.capacity - byte)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def records(self, at: Source, end: Source, readable: Source, stays: cython.bint) -> cython.bint:
        """Do the work of `walk`, which undoes the changes of a failed call."""
        count: int64_t = self.header.count
        base: int64_t = self.header.base
        last_delta: int64_t = self.header.last_delta
        append_time: cython.bint = (self.header.attributes & 0x08) != 0
        base_time: int64_t = self.header.max_time if append_time else self.header.base_time
        low: int64_t = self.position
        high: int64_t = self.until
        first: int64_t = self.rows
        row: int64_t = first
        full: int64_t
        expected: int64_t = 0
        length: int64_t = 0
        time: int64_t = 0
        delta: int64_t = 0
        key_size: int64_t = 0
        value_size: int64_t = 0
        header_count: int64_t = 0
        keep: cython.bint
        error: cython.int = 0
        stop: Source
        key: Source
        value: Source
        entry: Bytes
        _index: int64_t
        want_key: cython.bint = self.want_key
        want_value: cython.bint = self.want_value
        viewed: cython.bint = self.viewed
        refer: cython.bint = viewed and stays
        copy_key: cython.bint = want_key and not refer
        copy_value: cython.bint = want_value and not refer
        key_end: int64_t = self.key_end
        value_end: int64_t = self.value_end
        key_nulls: int64_t = self.key_nulls
        value_nulls: int64_t = self.value_nulls
        # These bytes limit the number of rows, whatever the header claims.
        full = min(min(count, (end - at) // SMALLEST_RECORD), self.most - first) + first
        if not self.room_for(full):
            return False
        offsets: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), self.blocks[OFFSETS].data
        )
        times: cython.pointer(int64_t) = cython.cast(
            cython.pointer(int64_t), self.blocks[TIMES].data
        )
        key_ends: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), self.blocks[KEY_ENDS].data
        )
        value_ends: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), self.blocks[VALUE_ENDS].data
        )
        key_data: Bytes = self.blocks[KEY_DATA].data
        key_room: int64_t = self.blocks[KEY_DATA].capacity - PAD
        value_data: Bytes = self.blocks[VALUE_DATA].data
        value_room: int64_t = self.blocks[VALUE_DATA].capacity - PAD
        if first == 0 and not viewed:
            if want_key:
                key_ends[0] = 0
            if want_value:
                value_ends[0] = 0
        for _index in range(count):
            at = get_varint(at, end, cython.address(length), cython.address(error))
            if not at:
                return self.fail(error, 0, 0)
            if length <= 0 or length > end - at:
                return self.fail(RECORD_SIZE, length, end - at)
            stop = at + length
            # Numbers may be read beyond the record, but not beyond the batch: the check of the end
            # finds it. The first byte has attributes, which are unused so far.
            at = get_varlong(at + 1, end, cython.address(time), cython.address(error))
            if not at:
                return self.fail(error, 0, 0)
            at = get_varint(at, end, cython.address(delta), cython.address(error))
            if not at:
                return self.fail(error, 0, 0)
            if delta < expected or delta > last_delta:
                return self.fail(DELTA, delta, expected)
            expected = delta + 1
            keep = low <= base + delta and base + delta < high
            if keep and row >= full:
                keep = False
                self.left_out = True
            at = get_varint(at, end, cython.address(key_size), cython.address(error))
            if not at:
                return self.fail(error, 0, 0)
            key = at
            if key_size >= 0 and key_size <= stop - at:
                at += key_size
                if keep and copy_key:
                    if key_size > key_room - key_end:
                        if not self.grow(KEY_DATA, key_end + key_size):
                            return False
                        key_data = self.blocks[KEY_DATA].data
                        key_room = self.blocks[KEY_DATA].capacity - PAD
                    copy_near(key_data + key_end, key, key_size, readable - at >= 32)
            elif key_size != -1:
                return self.fail(PIECE_SIZE, key_size, stop - at)
            at = get_varint(at, end, cython.address(value_size), cython.address(error))
            if not at:
                return self.fail(error, 0, 0)
            value = at
            if value_size >= 0 and value_size <= stop - at:
                at += value_size
                if keep and copy_value:
                    if value_size > value_room - value_end:
                        if not self.grow(VALUE_DATA, value_end + value_size):
                            return False
                        value_data = self.blocks[VALUE_DATA].data
                        value_room = self.blocks[VALUE_DATA].capacity - PAD
                    copy_near(value_data + value_end, value, value_size, readable - at >= 32)
            elif value_size != -1:
                return self.fail(PIECE_SIZE, value_size, stop - at)
            at = get_varint(at, end, cython.address(header_count), cython.address(error))
            if not at:
                return self.fail(error, 0, 0)
            if header_count:
                at = self.read_headers(
                    at,
                    stop,
                    end,
                    header_count,
                    keep and self.want_headers,
                    full,
                    row,
                    base + expected - 1,
                )
                if not at:
                    return False
            if at != stop:
                return self.fail(RECORD_END, at - stop, 0)
            if append_time:
                time = base_time
            else:
                delta = time
                time = cython.cast(
                    int64_t, cython.cast(uint64_t, base_time) + cython.cast(uint64_t, delta)
                )
                if ((base_time ^ time) & (delta ^ time)) < 0:
                    return self.fail(TIMESTAMP, 0, 0)
            if not keep:
                continue
            offsets[row] = base + expected - 1
            times[row] = time
            if want_key:
                if key_size < 0:
                    if key_nulls == 0 and not self.room_for_bits(KEY_BITS, full):
                        return False
                    key_nulls += 1
                    clear_bit(self.blocks[KEY_BITS].data, row)
                    key_size = 0
                if refer:
                    entry = cython.cast(Bytes, key_ends + 4 * row)
                    put_view(entry, key, key_size, 0, key - self.source)
                elif viewed:
                    entry = cython.cast(Bytes, key_ends + 4 * row)
                    put_view(entry, key, key_size, 1, key_end)
                    key_end += key_size if key_size > INLINE else 0
                else:
                    key_end += key_size
                    key_ends[row + 1] = cython.cast(int32_t, key_end)
            if want_value:
                if value_size < 0:
                    if value_nulls == 0 and not self.room_for_bits(VALUE_BITS, full):
                        return False
                    value_nulls += 1
                    clear_bit(self.blocks[VALUE_BITS].data, row)
                    value_size = 0
                if refer:
                    put_view(
                        cython.cast(Bytes, value_ends + 4 * row),
                        value,
                        value_size,
                        0,
                        value - self.source,
                    )
                elif viewed:
                    put_view(
                        cython.cast(Bytes, value_ends + 4 * row), value, value_size, 1, value_end
                    )
                    value_end += value_size if value_size > INLINE else 0
                else:
                    value_end += value_size
                    value_ends[row + 1] = cython.cast(int32_t, value_end)
            if self.headers:
                cython.cast(cython.pointer(int32_t), self.blocks[LIST_ENDS].data)[row + 1] = (
                    cython.cast(int32_t, self.headers)
                )
            row += 1
        if at != end:
            return self.fail(BATCH_END, end - at, 0)
        memset(self.blocks[TYPES].data + first, append_time, row - first)
        self.refers = self.refers or (refer and row > first)
        self.rows = row
        self.key_end = key_end
        self.value_end = value_end
        self.key_nulls = key_nulls
        self.value_nulls = value_nulls
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def read_headers(
        self,
        at: Source,
        stop: Source,
        end: Source,
        count: int64_t,
        keep: cython.bint,
        rows: int64_t,
        row: int64_t,
        offset: int64_t,
    ) -> Source:
        """Read the headers of one record; return where they end, or NULL if they are invalid."""
        name_size: int64_t = 0
        size: int64_t = 0
        name: Source
        error: cython.int = 0
        first: Source = at
        raw: cython.bint = keep and self.raw_headers
        new: cython.bint = keep and self.headers == 0
        # A header takes two bytes and records are smaller than 2 GB, so this limit is safe.
        if count < 0 or stop < at or count > (stop - at) // 2:
            self.fail(HEADER_COUNT, count, stop - at)
            return cython.NULL
        if keep and count > self.most_headers:
            self.fail(MANY_HEADERS, count, offset)
            return cython.NULL
        if keep and not raw and count > self.header_room - self.headers:
            self.fail(COSTLY_HEADERS, count, offset)
            return cython.NULL
        if new:
            if not self.grow(LIST_ENDS, 4 * rows + 4):
                return cython.NULL
            memset(self.blocks[LIST_ENDS].data, 0, 4 * row + 4)
        while count > 0:
            count -= 1
            at = get_varint(at, end, cython.address(name_size), cython.address(error))
            if not at:
                self.fail(error, 0, 0)
                return cython.NULL
            if name_size == -1:
                self.fail(HEADER_NAME, 0, 0)
                return cython.NULL
            if name_size < 0 or name_size > stop - at:
                self.fail(PIECE_SIZE, name_size, stop - at)
                return cython.NULL
            name = at
            at = get_varint(at + name_size, end, cython.address(size), cython.address(error))
            if not at:
                self.fail(error, 0, 0)
                return cython.NULL
            if size != -1 and (size < 0 or size > stop - at):
                self.fail(PIECE_SIZE, size, stop - at)
                return cython.NULL
            if keep and not raw and not self.add_header(name, name_size, at, size):
                return cython.NULL
            if size > 0:
                at += size
        if raw:
            if not self.grow(CONTENT_DATA, self.headers + (at - first)):
                return cython.NULL
            memcpy(self.blocks[CONTENT_DATA].data + self.headers, first, at - first)
            self.headers += at - first
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_header(
        self, name: Source, name_size: int64_t, content: Source, size: int64_t
    ) -> cython.bint:
        """Add one header; `size` is -1 for null."""
        ends: cython.pointer(int32_t)
        index: int64_t
        high: uint8_t = 0
        headers: int64_t = self.headers
        if not (
            self.grow(NAME_ENDS, 4 * headers + 8)
            and self.grow(CONTENT_ENDS, 4 * headers + 8)
            and self.grow(NAME_DATA, self.name_end + name_size)
            and self.grow(CONTENT_DATA, self.content_end + max(size, 0))
        ):
            return False
        for index in range(name_size):
            high |= name[index]
        if high < 0x80:
            memcpy(self.blocks[NAME_DATA].data + self.name_end, name, name_size)
            self.name_end += name_size
        elif not self.add_name(name, name_size):
            return False
        if size >= 0:
            memcpy(self.blocks[CONTENT_DATA].data + self.content_end, content, size)
            self.content_end += size
        else:
            if not self.room_for_bits(CONTENT_BITS, headers + 1):
                return False
            clear_bit(self.blocks[CONTENT_BITS].data, headers)
            self.content_nulls += 1
        ends = cython.cast(cython.pointer(int32_t), self.blocks[NAME_ENDS].data)
        ends[0] = 0
        ends[headers + 1] = cython.cast(int32_t, self.name_end)
        ends = cython.cast(cython.pointer(int32_t), self.blocks[CONTENT_ENDS].data)
        ends[0] = 0
        ends[headers + 1] = cython.cast(int32_t, self.content_end)
        self.headers = headers + 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_name(self, name: Source, size: int64_t) -> cython.bint:
        """Add a name that isn't ASCII: invalid UTF-8 in it is replaced, as in Java."""
        with cython.gil:
            try:
                text = cython.cast(
                    bytes, PyBytes_FromStringAndSize(cython.cast(cython.p_char, name), size)
                )
                text = text.decode("utf-8", "replace").encode()
            except MemoryError:
                return self.fail(NO_MEMORY, 0, 0)
            if not self.grow(NAME_DATA, self.name_end + len(text)):
                return False
            memcpy(
                self.blocks[NAME_DATA].data + self.name_end,
                PyBytes_AS_STRING(text),
                len(text),
            )
            self.name_end += len(text)
            return True

    # ------------------------------------------------------------ messages of formats 0 and 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def message_size(self, at: Source, end: Source, smallest: int64_t) -> int64_t:
        """Return the size of the message at `at`, by its length; 0 if it doesn't fit."""
        left: int64_t = end - at
        size: int64_t
        if left < SMALLEST_MESSAGE:
            self.fail(RAN_OUT, 0, 0)
            return 0
        size = cython.cast(int64_t, cython.cast(int32_t, get32(at + 8))) + 12
        if size < smallest or size > left:
            self.fail(RECORD_SIZE, size - 12, left - 12)
            return 0
        return size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def read_message(
        self, at: Source, end: Source, message: cython.pointer(Message)
    ) -> cython.bint:
        """Read the message at `at`; return False if it is corrupt."""
        size: int64_t = self.message_size(at, end, SMALLEST_MESSAGE)
        if size == 0:
            return False
        message.magic = at[16]
        if message.magic > 1:
            return self.fail(MESSAGE_FORMAT, message.magic, 0)
        if self.message_size(at, end, SMALLEST_MESSAGE + 8 * message.magic) == 0:
            return False
        if odradek_crc32(at + 16, size - 16) != get32(at + 12):
            return self.fail(CHECKSUM, 0, 0)
        message.stop = at + size
        message.offset = cython.cast(int64_t, get64(at))
        message.attributes = at[17]
        message.time = cython.cast(int64_t, get64(at + 18)) if message.magic else -1
        at += 18 + 8 * message.magic
        # The length of the value follows the key.
        message.key_size = cython.cast(int64_t, cython.cast(int32_t, get32(at)))
        message.key = at + 4
        if message.key_size < -1 or message.key_size > message.stop - message.key - 4:
            return self.fail(PIECE_SIZE, message.key_size, message.stop - message.key - 4)
        at = message.key + max(message.key_size, 0)
        message.value_size = cython.cast(int64_t, cython.cast(int32_t, get32(at)))
        message.value = at + 4
        if message.value_size < -1 or message.value_size > message.stop - message.value:
            return self.fail(PIECE_SIZE, message.value_size, message.stop - message.value)
        at = message.value + max(message.value_size, 0)
        if at != message.stop:
            return self.fail(RECORD_END, at - message.stop, 0)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def measure_set(self, at: Source, end: Source, last: cython.pointer(int64_t)) -> cython.bint:
        """Count the messages of a decompressed set, and find the offset of the last one."""
        size: int64_t
        self.header.count = 0
        while at < end:
            size = self.message_size(at, end, SMALLEST_MESSAGE)
            if size == 0:
                return False
            last[0] = cython.cast(int64_t, get64(at))
            at += size
            self.header.count += 1
        if self.header.count == 0:
            return self.fail(EMPTY_SET, 0, 0)
        if self.header.count > self.most_records:
            return self.fail(MANY_RECORDS, 0, 0)
        if last[0] < 0 or last[0] > self.outer.offset:
            self.header.last_delta = self.outer.offset
            return self.fail(DELTA, last[0], 0)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def unwrapped(self, at: Source, end: Source) -> cython.bint:
        """Add the messages of a wrapper, after decompression; return False if one is corrupt."""
        last: int64_t = 0
        if not self.measure_set(at, end, cython.address(last)):
            return False
        base: int64_t = self.outer.offset - last if self.outer.magic else 0
        return self.messages(at, end, base, last, False)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def messages(
        self, at: Source, end: Source, base: int64_t, last: int64_t, stays: cython.bint
    ) -> cython.bint:
        """Check all messages from `at` to `end`, and add the wanted ones.

        Their offsets are relative to `base`, up to `last`. Views may refer to the bytes if `stays`
        is set. If one message is corrupt, none is added.
        """
        first: int64_t = self.rows
        key_end: int64_t = self.key_end
        value_end: int64_t = self.value_end
        key_nulls: int64_t = self.key_nulls
        value_nulls: int64_t = self.value_nulls
        if self.add_messages(at, end, base, last, self.viewed and stays):
            return True
        self.rows = first
        self.key_end = key_end
        self.value_end = value_end
        self.key_nulls = key_nulls
        self.value_nulls = value_nulls
        self.restore_bits(KEY_BITS, first)
        self.restore_bits(VALUE_BITS, first)
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_messages(
        self, at: Source, end: Source, base: int64_t, last: int64_t, refer: cython.bint
    ) -> cython.bint:
        """Do the work of `messages`, which undoes the changes of a failed call."""
        message: Message
        expected: int64_t = 0
        offset: int64_t
        appended: cython.bint = self.outer.magic == 1 and (self.outer.attributes & 8) != 0
        while at < end:
            if not self.read_message(at, end, cython.address(message)):
                return False
            at = message.stop
            if self.outer.attributes & 7 and message.attributes & 7:
                return self.fail(NESTED, 0, 0)
            if message.offset < expected or message.offset > last:
                self.header.last_delta = last
                return self.fail(DELTA, message.offset, expected)
            expected = message.offset + 1
            offset = base + message.offset
            if offset < self.position or offset >= self.until:
                continue
            if self.rows >= self.most:
                self.left_out = True
                continue
            if appended and message.magic:
                message.time = self.outer.time
            if not self.add_message(cython.address(message), offset, appended, refer):
                return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_message(
        self,
        message: cython.pointer(Message),
        offset: int64_t,
        appended: cython.bint,
        refer: cython.bint,
    ) -> cython.bint:
        """Add the row of one message; return False without memory."""
        row: int64_t = self.rows
        if not self.room_for(row + 1):
            return False
        cython.cast(cython.pointer(int64_t), self.blocks[OFFSETS].data)[row] = offset
        cython.cast(cython.pointer(int64_t), self.blocks[TIMES].data)[row] = message.time
        # 255 means -1: format 0 has no timestamps.
        self.blocks[TYPES].data[row] = appended if message.magic else 255
        if self.want_key and not self.add_piece(
            KEY_ENDS,
            message.key,
            message.key_size,
            cython.address(self.key_end),
            cython.address(self.key_nulls),
            refer,
        ):
            return False
        if self.want_value and not self.add_piece(
            VALUE_ENDS,
            message.value,
            message.value_size,
            cython.address(self.value_end),
            cython.address(self.value_nulls),
            refer,
        ):
            return False
        if self.headers:
            cython.cast(cython.pointer(int32_t), self.blocks[LIST_ENDS].data)[row + 1] = (
                cython.cast(int32_t, self.headers)
            )
        self.refers = self.refers or refer
        self.rows = row + 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_piece(
        self,
        ends: cython.int,
        piece: Source,
        size: int64_t,
        end: cython.pointer(int64_t),
        nulls: cython.pointer(int64_t),
        refer: cython.bint,
    ) -> cython.bint:
        """Add one key or value of a message; the blocks of data and bits follow that of `ends`."""
        row: int64_t = self.rows
        numbers: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), self.blocks[ends].data
        )
        if row == 0 and not self.viewed:
            numbers[0] = 0
        if size < 0:
            if not self.room_for_bits(ends + 2, row + 1):
                return False
            nulls[0] += 1
            clear_bit(self.blocks[ends + 2].data, row)
            size = 0
        elif not refer:
            if not self.grow(ends + 1, end[0] + size):
                return False
            memcpy(self.blocks[ends + 1].data + end[0], piece, size)
        if refer:
            put_view(cython.cast(Bytes, numbers + 4 * row), piece, size, 0, piece - self.source)
        elif self.viewed:
            put_view(cython.cast(Bytes, numbers + 4 * row), piece, size, 1, end[0])
            end[0] += size if size > INLINE else 0
        else:
            end[0] += size
            numbers[row + 1] = cython.cast(int32_t, end[0])
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def read_old(self, at: Source, size: int64_t) -> cython.bint:
        """Read the header of a complete message of format 0 or 1; return False if it is invalid.

        `batch.read_header` raises the error.
        """
        if at[16] > 1 or size < SMALLEST_MESSAGE + 8 * at[16]:
            return False
        self.header.base = cython.cast(int64_t, get64(at))
        self.header.size = size
        self.header.last_delta = 0
        self.header.epoch = -1
        return self.header.base >= 0 and self.header.base < INT64_MAX

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def old_message(self) -> cython.int:
        """Add the record of a message, unless it is before the position; return 0 on success."""
        at: Source = self.source + self.at
        end: Source = at + self.header.size
        offset: int64_t = self.header.base
        if not self.read_message(at, end, cython.address(self.outer)):
            return BAD_RECORDS
        if offset < self.position:
            return 0
        if self.outer.attributes & 7:
            return WRAPPED
        self.decompressed += self.header.size
        if not self.messages(at, end, 0, offset, True):
            return BAD_RECORDS
        return 0

    # ------------------------------------------------------------ all batches

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def run(self) -> cython.int:
        """Consume batches until one needs Python or decoding stops; return which."""
        left: int64_t
        size: int64_t
        first: int64_t
        at: Source
        status: cython.int
        old: cython.bint
        while True:
            left = self.size - self.at
            at = self.source + self.at
            self.needed = -1
            if left < 12:
                return FINISHED
            size = cython.cast(int64_t, cython.cast(int32_t, get32(at + 8))) + 12
            if size < SMALLEST_MESSAGE:
                return BAD_HEADER
            if size > left:
                if self.at == 0:
                    self.needed = size
                return FINISHED
            old = False
            if not read_fields(at, cython.address(self.header)):
                old = self.read_old(at, size)
                if not old:
                    return BAD_HEADER
            # The first offset in a wrapper is only known once it is decompressed.
            first = 0 if old and at[17] & 7 else self.header.base
            if first >= self.until:
                self.position = max(self.position, self.until)
                return FINISHED
            if self.rows >= self.enough or (
                self.rows > 0 and self.decompressed + size > self.columns_limit
            ):
                return LATER
            if old:
                status = self.old_message()
                if status:
                    return status
                if not self.passed():
                    return CUT
                continue
            if odradek_crc32c(at + CHECKED, size - CHECKED) != self.header.crc:
                self.fail(CHECKSUM, 0, 0)
                return BAD_RECORDS
            if self.tracked:
                return TRACKED
            if self.header.attributes & 0x20:
                self.control += 1
            else:
                status = self.visible()
                if status:
                    return status
            if not self.passed():
                return CUT

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def visible(self) -> cython.int:
        """Add the records of the batch unless they are before the position; return 0 on success."""
        at: Source = self.source + self.at
        size: int64_t = self.header.size
        if self.header.base + self.header.last_delta < self.position:
            return 0
        if self.header.count > self.most_records:
            self.fail(MANY_RECORDS, 0, 0)
            return BAD_RECORDS
        if self.header.attributes & 7 and (self.header.count or size > HEADER):
            return COMPRESSED
        self.decompressed += size - CHECKED
        if not self.walk(at + HEADER, at + size, self.source + self.size, True):
            return BAD_RECORDS
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def passed(self) -> cython.bint:
        """Move the position after the batch; return False if some of its records were left out."""
        last: int64_t = self.header.base + self.header.last_delta
        self.epoch = self.header.epoch
        if self.left_out:
            self.position = (
                cython.cast(cython.pointer(int64_t), self.blocks[OFFSETS].data)[self.rows - 1] + 1
            )
            return False
        self.position = max(self.position, min(last + 1, self.until))
        if last >= self.until:
            return False
        self.at += self.header.size
        self.batches += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def prepare(self) -> cython.void:
        """Estimate the sizes of the columns from the batches' headers, and take such blocks."""
        header: Header
        rows: int64_t = 0
        payload: int64_t = 0
        at: int64_t = 0
        claimed: int64_t
        packed: cython.bint = False
        key_bytes: int64_t
        value_bytes: int64_t
        odradek_lock(cython.address(odradek_pool))
        key_bytes = _key_bytes
        value_bytes = _value_bytes
        odradek_unlock(cython.address(odradek_pool))
        if self.size >= SMALLEST_MESSAGE and self.source[16] < 2:
            payload = min(self.size, self.columns_limit)
            rows = min(payload // USUAL_MESSAGE, self.enough)
        while self.size - at >= HEADER and rows < self.enough and payload < self.columns_limit:
            if not read_fields(self.source + at, cython.address(header)):
                break
            if header.size > self.size - at or header.base >= self.until:
                break
            at += header.size
            if header.attributes & 0x20 or header.base + header.last_delta < self.position:
                continue
            claimed = header.size - HEADER
            if header.attributes & 7:
                packed = True
                rows += min(header.count, 4 * claimed)
            else:
                rows += min(header.count, claimed // SMALLEST_RECORD)
            payload += claimed
        rows = min(rows, self.most)
        if rows <= 0:
            return
        if packed:
            rows = min(rows, 1 << 20)
            payload = rows * (value_bytes + value_bytes // 4) + 4096
        self.start_with(OFFSETS, 8 * rows)
        self.start_with(TIMES, 8 * rows)
        self.start_with(TYPES, rows)
        if self.want_key:
            self.start_with(KEY_ENDS, self.ends_size(rows))
        if self.want_value:
            self.start_with(VALUE_ENDS, self.ends_size(rows))
        if self.viewed and not packed:
            return
        if self.want_key:
            claimed = rows * (key_bytes + key_bytes // 4) + 256
            self.start_with(KEY_DATA, claimed if packed else min(claimed, payload))
        if self.want_value:
            self.start_with(VALUE_DATA, payload)

    # ------------------------------------------------------------ the result

    @cython.cfunc
    def column(self, index: cython.int, items: int64_t, kind: cython.p_char, width: int64_t):
        """Return a block as a view of `items` numbers or bytes, and give up its ownership."""
        block: cython.pointer(Block) = cython.address(self.blocks[index])
        found: Buffer = Buffer()
        if not block.data:
            self.start_with(index, items * width)
            if not block.data:
                raise MemoryError
        found.data = block.data
        found.capacity = block.capacity
        found.items = items
        found.width = width
        found.kind = kind
        block.data = cython.NULL
        block.capacity = 0
        note_lent(found.capacity)
        return memoryview(found)

    @cython.cfunc
    def bits(self, index: cython.int, entries: int64_t):
        """Return a bitmap, with all bits after its entries cleared."""
        if entries & 7:
            self.blocks[index].data[entries >> 3] &= (1 << (entries & 7)) - 1
        return self.column(index, (entries + 7) // 8, b"B", 1)

    @cython.cfunc
    def payload(
        self,
        ends: cython.int,
        data: cython.int,
        bits: cython.int,
        size: int64_t,
        nulls: int64_t,
        whole: memoryview,
    ):
        """Return the keys or the values; `whole` is the buffer that views refer to."""
        rows: int64_t = self.rows
        validity = self.bits(bits, rows) if nulls else None
        if not self.viewed:
            return Column(
                self.column(ends, rows + 1, b"i", 4), self.column(data, size, b"B", 1), validity
            )
        buffers = (whole if self.refers else b"",)
        if size:
            buffers = (buffers[0], self.column(data, size, b"B", 1))
        return ViewColumn(self.column(ends, VIEW * rows, b"B", 1), buffers, validity)

    @cython.cfunc
    def columns(self, whole: memoryview):
        """Return all columns."""
        global _key_bytes, _value_bytes
        rows: int64_t = self.rows
        keys = values = None
        if not rows:
            nothing = _NO_VIEWS if self.viewed else _NO_BINARY
            keys = nothing if self.want_key else None
            values = nothing if self.want_value else None
            return RecordColumns(0, _NO_NUMBERS, _NO_NUMBERS, b"", keys, values, None)
        if rows >= 64:
            odradek_lock(cython.address(odradek_pool))
            _key_bytes = self.key_end // rows + 1 if self.key_end else _key_bytes
            _value_bytes = self.value_end // rows + 1 if self.value_end else _value_bytes
            odradek_unlock(cython.address(odradek_pool))
        if self.want_key:
            keys = self.payload(KEY_ENDS, KEY_DATA, KEY_BITS, self.key_end, self.key_nulls, whole)
        if self.want_value:
            values = self.payload(
                VALUE_ENDS, VALUE_DATA, VALUE_BITS, self.value_end, self.value_nulls, whole
            )
        return RecordColumns(
            rows,
            self.column(OFFSETS, rows, b"q", 8),
            self.column(TIMES, rows, b"q", 8),
            self.column(TYPES, rows, b"B", 1),
            keys,
            values,
            self.header_column() if self.headers else None,
        )

    @cython.cfunc
    def header_column(self):
        """Return the headers; a row without headers has a null list."""
        rows: int64_t = self.rows
        if self.raw_headers:
            return RawColumn(
                self.column(LIST_ENDS, rows + 1, b"i", 4),
                self.column(CONTENT_DATA, self.headers, b"B", 1),
            )
        index: int64_t
        empty: int64_t = 0
        ends: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), self.blocks[LIST_ENDS].data
        )
        if not self.room_for_bits(LIST_BITS, rows) or (
            self.content_nulls and not self.room_for_bits(CONTENT_BITS, self.headers)
        ):
            raise MemoryError
        with cython.nogil:
            for index in range(rows):
                if ends[index] == ends[index + 1]:
                    clear_bit(self.blocks[LIST_BITS].data, index)
                    empty += 1
        return HeaderColumn(
            self.column(LIST_ENDS, rows + 1, b"i", 4),
            Column(
                self.column(NAME_ENDS, self.headers + 1, b"i", 4),
                self.column(NAME_DATA, self.name_end, b"B", 1),
                None,
            ),
            Column(
                self.column(CONTENT_ENDS, self.headers + 1, b"i", 4),
                self.column(CONTENT_DATA, self.content_end, b"B", 1),
                self.bits(CONTENT_BITS, self.headers) if self.content_nulls else None,
            ),
            self.bits(LIST_BITS, rows) if empty else None,
        )


class Column(BinaryColumn):
    """A binary column whose entries the kernel extracts."""

    __slots__ = ()

    def values(self, start: int, stop: int) -> list[bytes | None]:
        """Copy the entries from `start` to `stop` into `bytes` objects."""
        return binary_values(self.offsets, self.data, self.validity, start, stop)


class RawColumn(RawHeaderColumn):
    """Raw headers that the kernel reads."""

    __slots__ = ()

    def lists(self, start: int, stop: int) -> list:
        """Return each row's headers as a tuple, or as `RawHeaders` if there are many."""
        return header_lists(self.offsets, self.data, start, stop)


class Unread(RawHeaders):
    """Headers that the kernel reads at the first access."""

    __slots__ = ()

    def read(self) -> tuple:
        """Return all headers."""
        raw: bytes = self._raw
        size: int64_t = len(raw)  # refuses None
        at: Source = cython.cast(Source, PyBytes_AS_STRING(raw))
        return headers_between(at, at + size, size)


_NO_NUMBERS = array("q")
_NO_BINARY = BinaryColumn(array("i", (0,)), b"", None)
_NO_COLUMN = Column(array("i", (0,)), b"", None)
_NO_VIEWS = ViewColumn(b"", (b"",), None)
_scratches: list[Scratch] = []
"""Memory to decompress into, one for each thread that decodes at this moment."""


@cython.cfunc
def idle_scratch() -> Scratch:
    """Return an idle `Scratch`; without the GIL another thread may take the last one first."""
    try:
        return _scratches.pop()
    except IndexError:
        return Scratch()


@cython.cfunc
def reason(work: Decoder) -> str:
    """Return what is wrong with the records of a batch, in the same words as the reference."""
    claimed = work.claimed
    limit = work.limit
    if work.error == RAN_OUT:
        return "a record runs past its end"
    if work.error == OVER_32:
        return "a number has more than 32 bits"
    if work.error == OVER_64:
        return "a number has more than 64 bits"
    if work.error == RECORD_SIZE:
        return f"the length of a record is {claimed}, but {limit} bytes are left"
    if work.error == DELTA:
        return f"offset delta {claimed} isn't in {limit} to {work.header.last_delta}"
    if work.error == PIECE_SIZE:
        return f"the length of a key, value or header is {claimed}, but {limit} bytes are left"
    if work.error == HEADER_COUNT:
        return f"the header count of a record is {claimed}, but {limit} bytes are left"
    if work.error == HEADER_NAME:
        return "a header has no name"
    if work.error == RECORD_END:
        return f"the fields of a record end {claimed:+} bytes from its end"
    if work.error == TIMESTAMP:
        return "a timestamp doesn't fit into 64 bits"
    if work.error == BATCH_END:
        return f"{claimed} bytes follow its last record"
    if work.error == MESSAGE_FORMAT:
        return f"it contains a message of format {claimed}"
    if work.error == NESTED:
        return "it contains a compressed message"
    if work.error == EMPTY_SET:
        return "it contains no message"
    return "its checksum is wrong"


@cython.cfunc
def raise_bad_header(buffer: memoryview, at: int64_t):
    """Raise the error of `batch` about a header that the kernel found invalid."""
    batch_size(buffer, at)
    read_header(buffer, at)
    raise AssertionError("the kernel refused a header that is sound")


@cython.cfunc
def bad_records(work: Decoder, limits):
    """Return the error for the records of a batch."""
    if work.error == NO_MEMORY:
        return MemoryError()
    if work.error == MANY_HEADERS:
        return limits.too_many_headers(work.limit, work.claimed)
    if work.error == COSTLY_HEADERS:
        return limits.costly_headers(work.limit, work.headers_met + work.claimed)
    if work.error == MANY_RECORDS:
        limits.check_count(work.header.count)
    return BadBatchError(reason(work))


@cython.cfunc
def unpack_and_walk(work: Decoder, buffer: memoryview, scratch: Scratch, limits, old: cython.bint):
    """Decompress a batch, or a wrapper if `old` is set, and add its records."""
    view: Py_buffer
    good: cython.bint
    codec = work.outer.attributes & 7 if old else work.header.attributes & 7
    first = work.outer.value - work.source if old else work.at + HEADER
    if old and codec > _LARGEST_OLD_CODEC:
        raise BadBatchError(f"it has the unknown codec number {codec}")
    if old and work.outer.value_size < 0:
        raise BadBatchError("it is compressed, but has no value")
    data = unpack(codec, buffer[first : work.at + work.header.size], scratch, limits)
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        work.decompressed += view.len
        begin: Source = cython.cast(Source, view.buf)
        end: Source = begin + view.len
        with cython.nogil:
            good = work.unwrapped(begin, end) if old else work.walk(begin, end, end, False)
    finally:
        PyBuffer_Release(cython.address(view))
    if not good:
        raise bad_records(work, limits)


@cython.cfunc
def track(work: Decoder, buffer: memoryview, transactions) -> cython.int:
    """Handle a batch by the state of its producer's aborted transactions; return as `visible`."""
    status: cython.int = 0
    header = read_header(buffer, work.at)
    transactions.advance(header)
    if header.control:
        if transactions.open_for(header):
            data = bytes(buffer[work.at + CHECKED : work.at + work.header.size])
            if _is_abort_marker(header, data):
                transactions.end(header)
        work.control += 1
    elif header.transactional and transactions.open_for(header):
        work.hidden += 1
    else:
        with cython.nogil:
            status = work.visible()
    return status


@cython.cfunc
def consume(work: Decoder, buffer: memoryview, transactions, limits) -> cython.bint:
    """Consume the available batches; return True if nothing is left for another call.

    An error after good batches isn't raised: the next call finds it first.
    """
    status: cython.int
    scratch = None
    try:
        while True:
            with cython.nogil:
                status = work.run()
            try:
                if status == TRACKED:
                    status = track(work, buffer, transactions)
                    if status == 0:
                        if work.passed():
                            continue
                        status = CUT
                if status in (COMPRESSED, WRAPPED):
                    if scratch is None:
                        scratch = idle_scratch()
                    unpack_and_walk(work, buffer, scratch, limits, status == WRAPPED)
                    if work.passed():
                        continue
                    status = CUT
                elif status == BAD_HEADER:
                    raise_bad_header(buffer, work.at)
                elif status == BAD_RECORDS:
                    raise bad_records(work, limits)
            except CorruptRecordError:
                if not work.batches:
                    raise
                return False
            except BeyondLimitError as error:
                if not work.batches:
                    raise error.of(work.header.base) from None
                return False
            except (BadBatchError, IndexError) as error:
                if not work.batches:
                    why = "a record runs past its end"
                    why = why if isinstance(error, IndexError) else str(error)
                    raise corrupt(work.header.base, why) from error
                return False
            if status == CUT:
                return work.position >= work.until
            return status == FINISHED
    finally:
        if scratch is not None:
            _scratches.append(scratch)


def decode(
    buffer,
    *,
    start_offset: int64_t,
    until_offset=None,
    aborted=(),
    want_key: cython.bint = True,
    want_value: cython.bint = True,
    want_headers: cython.bint = True,
    raw_headers: cython.bint = False,
    max_records=None,
    stop_after=None,
    layout: str = "binary",
    limits=NO_LIMITS,
):
    """Decode one partition's records; the same as `reference.decode`."""
    work: Decoder = Decoder()
    view: Py_buffer
    finished: cython.bint
    transactions = AbortedTransactions(aborted) if aborted else None
    work.position = start_offset
    work.until = INT64_MAX if until_offset is None else until_offset
    work.most = INT64_MAX if max_records is None else max_records
    work.enough = work.most if stop_after is None else min(work.most, stop_after)
    work.columns_limit = reference.COLUMNS_LIMIT
    work.want_key = want_key
    work.want_value = want_value
    work.want_headers = want_headers
    work.raw_headers = raw_headers
    work.most_headers = limits.headers
    work.most_records = limits.records
    work.most_bytes = limits.decompressed
    work.tracked = transactions is not None
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; use {', '.join(LAYOUTS)}")
    work.epoch = -1
    whole = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    PyObject_GetBuffer(whole, cython.address(view), PyBUF_SIMPLE)
    try:
        work.source = cython.cast(Source, view.buf)
        work.size = view.len
        # A view has 31 bits for the position of its bytes.
        work.viewed = layout == "binary_view" and view.len <= LARGEST_VIEWED
        work.prepare()
        finished = consume(work, whole, transactions, limits)
    finally:
        PyBuffer_Release(cython.address(view))
    return DecodedRecords(
        work.columns(whole),
        work.position,
        finished,
        work.batches,
        work.control,
        work.hidden,
        work.at,
        work.epoch,
        None if work.needed < 0 else work.needed,
        () if transactions is None else transactions.left(),
    )


# ---------------------------------------------------------------- other functions


def apart(view: memoryview) -> memoryview:
    """Return a view of the same bytes that another thread may use: see `odradek.record.apart`."""
    whole: memoryview = memoryview(view.obj).cast("B")
    at = cython.cast(Source, PyMemoryView_GET_BUFFER(view).buf) - cython.cast(
        Source, PyMemoryView_GET_BUFFER(whole).buf
    )
    return whole[at : at + view.nbytes]


def survey_batches(
    buffer, offset: int64_t
) -> tuple[int, int, int | None, bool, list[tuple[int, int]]]:
    """Read the headers of a Fetch response that begins at `offset`, as `survey.survey_batches`."""
    view: Py_buffer
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    source: Source = cython.cast(Source, view.buf)
    left: int64_t = view.len
    at: int64_t = 0
    size: int64_t
    smallest: int64_t
    base: int64_t
    delta: int64_t
    epoch: int32_t
    last_epoch: int32_t = 0
    magic: cython.int
    needed = None
    odd = False
    epochs: list = []
    try:
        while left >= 12:
            size = cython.cast(int64_t, cython.cast(int32_t, get32(source + 8))) + 12
            # The next bytes of a format that isn't known yet may be those of the shortest message.
            magic = source[16] if left > 16 else 0
            smallest = SMALLEST_MESSAGE + 8 * magic if magic < 2 else HEADER
            if size < smallest:
                odd = True
                break
            if left < 27 and size > left:
                needed = size if at == 0 else None
                break
            base = cython.cast(int64_t, get64(source))
            delta = 0
            epoch = -1
            if magic >= 2:
                delta = cython.cast(int32_t, get32(source + 23))
                epoch = cython.cast(int32_t, get32(source + 12))
            if magic > 2 or base < 0 or delta < 0 or delta >= INT64_MAX - base:
                odd = True
                break
            if size > left:
                needed = size if at == 0 else None
                break
            at += size
            left -= size
            offset = max(offset, base + delta + 1)
            if not epochs or epoch != last_epoch:
                epochs.append((base, epoch))
                last_epoch = epoch
            source += size
    finally:
        PyBuffer_Release(cython.address(view))
    return offset, at, needed, odd, epochs


def binary_values(offsets, data, validity, start: int64_t, stop: int64_t) -> list:
    """Copy the entries from `start` to `stop` of a binary column into `bytes`, None for null."""
    cells: _Cells = _Cells()
    cells.begin(offsets, data, validity, start, stop)
    found: list = PyList_New(stop - start)
    index: int64_t
    for index in range(stop - start):
        cell = cells.next()
        Py_INCREF(cell)
        PyList_SET_ITEM(found, index, cell)
    return found


@cython.final
@cython.cclass
class _Cells:
    """An iterator over the entries of a binary column, or over a list of them."""

    items: list

    ends: cython.const[int32_t][::1]
    content: cython.const[uint8_t][::1]
    bits: cython.const[uint8_t][::1]
    nulls: cython.bint
    source: cython.p_char
    index: int64_t
    at: int64_t
    size: int64_t

    @cython.cfunc
    def begin(self, offsets, data, validity, start: int64_t, stop: int64_t) -> cython.int:
        """Iterate from entry `start` to `stop`."""
        self.ends = offsets
        self.content = data
        self.size = self.content.shape[0]
        self.source = cython.NULL
        if not 0 <= start <= stop < self.ends.shape[0]:
            raise IndexError(f"entries {start} to {stop} of {self.ends.shape[0] - 1}")
        if self.ends[start] < 0 or self.ends[stop] > self.size:
            raise ValueError("a column's offsets reach beyond its data")
        if self.size:
            self.source = cython.cast(cython.p_char, cython.address(self.content[0]))
        self.nulls = validity is not None
        if self.nulls:
            self.bits = validity
            if self.bits.shape[0] * 8 < stop:
                raise ValueError("a column's bitmap is too short")
        self.index = start
        self.at = self.ends[start]
        return 0

    @cython.cfunc
    def next(self):
        """Return the next entry; the caller knows how many there are."""
        index: int64_t = self.index
        a: int64_t = self.at
        b: int64_t
        if self.items is not None:
            self.index = index + 1
            return self.items[index]
        b = self.ends[index + 1]
        if b < a or b > self.size:
            raise ValueError("a column's offsets aren't in order")
        self.at = b
        self.index = index + 1
        if self.nulls and not self.bits[index >> 3] >> (index & 7) & 1:
            return None
        return PyBytes_FromStringAndSize(self.source + a, b - a)


HeaderPlace = cython.struct(name=Source, name_size=int64_t, content=Source, size=int64_t)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def find_header(at: Source, end: Source, found: cython.pointer(HeaderPlace)) -> Source:
    """Find the next header and return where it ends; NULL if that isn't before `end`."""
    error: cython.int = 0
    at = get_varint(at, end, cython.address(found.name_size), cython.address(error))
    if not at or found.name_size < 0 or found.name_size > end - at:
        return cython.NULL
    found.name = at
    at = get_varint(at + found.name_size, end, cython.address(found.size), cython.address(error))
    if not at or found.size < -1 or found.size > end - at:
        return cython.NULL
    found.content = at
    return at + max(found.size, 0)


@cython.cfunc
def headers_between(at: Source, end: Source, most: int64_t):
    """Return one record's headers as a tuple; None if there are more than `most`.

    The decoder has checked them, but the caller passes the bytes again, so they are checked again,
    twice: to count them and to read them, because creating a name may run any code in between.
    """
    place: HeaderPlace
    here: Source = at
    count: int64_t = 0
    index: int64_t
    while here < end:
        if count >= most:
            return None
        here = find_header(here, end, cython.address(place))
        if not here:
            raise ValueError("these bytes aren't the headers of a record")
        count += 1
    if count == 0:
        return ()
    found = PyTuple_New(count)
    PyObject_GC_UnTrack(found)  # its items can't refer back to it
    for index in range(count):
        at = find_header(at, end, cython.address(place))
        if not at:
            raise ValueError("these bytes aren't the headers of a record")
        name = PyUnicode_DecodeUTF8(
            cython.cast(cython.p_char, place.name), place.name_size, "replace"
        )
        content = None
        if place.size >= 0:
            content = PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, place.content), place.size
            )
        pair = PyTuple_New(2)
        PyObject_GC_UnTrack(pair)
        put_item(pair, 0, name)
        put_item(pair, 1, content)
        put_item(found, index, pair)
    return found


def header_lists(offsets, data, start: int64_t, stop: int64_t) -> list:
    """Read the raw headers of the rows from `start` to `stop`: as tuples, unless there are many."""
    ends: cython.const[int32_t][::1] = offsets
    content: cython.const[uint8_t][::1] = data
    index: int64_t
    a: int64_t
    b: int64_t
    most: int64_t = MOST_READ
    source: Source = cython.NULL
    nothing = ()
    found: list = []
    if not 0 <= start <= stop < ends.shape[0]:
        raise IndexError(f"rows {start} to {stop} of {ends.shape[0] - 1}")
    if ends[start] < 0 or ends[stop] > content.shape[0]:
        raise ValueError("a column's offsets reach beyond its data")
    if content.shape[0]:
        source = cython.address(content[0])
    a = ends[start]
    for index in range(start, stop):
        b = ends[index + 1]
        if b < a or b > content.shape[0]:
            raise ValueError("a column's offsets aren't in order")
        if a == b:
            found.append(nothing)
            continue
        item = headers_between(source + a, source + b, most)
        if item is None:
            item = Unread(PyBytes_FromStringAndSize(cython.cast(cython.p_char, source + a), b - a))
        found.append(item)
        a = b
    return found


@cython.cfunc
def new_column(items: int64_t, kind: cython.p_char, width: int64_t):
    """Allocate a column of `items` numbers from the pool."""
    found: Buffer = Buffer()
    found.capacity = rounded(items * width + PAD)
    found.data = pool_take(items * width + PAD)
    if not found.data:
        raise MemoryError
    found.items = items
    found.width = width
    found.kind = kind
    note_lent(found.capacity)
    return found


def microseconds(milliseconds, start: int64_t, count: int64_t):
    """Multiply timestamps by a thousand, as int64; return None if a result is too large."""
    source: cython.const[int64_t][::1] = milliseconds
    index: int64_t
    time: int64_t
    large: cython.bint = False
    if start < 0 or count < 0 or count > source.shape[0] - start:
        raise IndexError("there are fewer timestamps than requested")
    found: Buffer = new_column(count, b"q", 8)
    to: cython.pointer(int64_t) = cython.cast(cython.pointer(int64_t), found.data)
    with cython.nogil:
        for index in range(count):
            time = source[start + index]
            large |= (time > INT64_MAX // 1000) | (time < -(INT64_MAX // 1000))
            to[index] = cython.cast(int64_t, cython.cast(uint64_t, time) * 1000)
    return None if large else memoryview(found)


def wide_types(types, start: int64_t, count: int64_t):
    """Convert timestamp types to int32."""
    source: cython.const[uint8_t][::1] = types
    index: int64_t
    if start < 0 or count < 0 or count > source.shape[0] - start:
        raise IndexError("there are fewer timestamp types than requested")
    found: Buffer = new_column(count, b"i", 4)
    to: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), found.data)
    with cython.nogil:
        for index in range(count):
            to[index] = cython.cast(int8_t, source[start + index])
    return memoryview(found)


Lent = cython.typedef(cython.pointer(odradek_lent))
NOTED = cython.declare(int64_t, (cython.sizeof(odradek_lent) + 63) // 64 * 64)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def aligned(size: int64_t) -> int64_t:
    """Return the next position at which a column may begin."""
    return (size + 63) // 64 * 64


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def release_column(array: cython.pointer(ArrowArray)) -> cython.void:
    """Mark a column as released: its memory belongs to the batch."""
    array.release = cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def give_lent(lent: Lent) -> cython.void:
    """Free a batch that Arrow has released."""
    index: cython.int
    for index in range(lent.views):
        PyBuffer_Release(cython.address(lent.view[index]))
    note_lent(-lent.capacity)
    pool_give(cython.cast(Bytes, lent), lent.capacity)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def release_batch(array: cython.pointer(ArrowArray)) -> cython.void:
    """Release a batch; Arrow calls this in any thread, and perhaps after Python has ended."""
    lent: Lent = cython.cast(Lent, array.private_data)
    array.release = cython.NULL
    if Py_IsInitialized():
        with cython.gil:
            give_lent(lent)


@cython.cfunc
def hold(lent: Lent, buffer, least: int64_t) -> Bytes:
    """Keep a buffer of at least `least` bytes until Arrow releases the batch."""
    view: cython.pointer(Py_buffer) = cython.address(lent.view[lent.views])
    if lent.views == 9:
        raise ValueError("a column is named twice")
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    lent.views += 1
    if view.len < least:
        raise IndexError(f"a column has {view.len} bytes, but needs {least}")
    return cython.cast(Bytes, view.buf)


@cython.cfunc
def hold_binary(lent: Lent, index: cython.int, column, stop: int64_t) -> cython.bint:
    """Keep the buffers of keys or values up to a row; return False if they are large.

    Otherwise a column that is kept by the program would keep the large buffers alive, too.
    """
    ends: Bytes = hold(lent, column.offsets, 4 * (stop + 1))
    last: int64_t = cython.cast(cython.pointer(int32_t), ends)[stop]
    lent.buffers[index][1] = ends
    lent.buffers[index][2] = hold(lent, column.data, last)
    if lent.view[lent.views - 1].len > MOST_TOGETHER:
        return False
    lent.column[index].n_buffers = 3
    if column.validity is not None:
        lent.buffers[index][0] = hold(lent, column.validity, (stop + 7) // 8)
        lent.column[index].null_count = -1  # Arrow counts them on demand
    return True


@cython.final
@cython.cclass
class ArrowBatch:
    """A record batch in Arrow's C data interface, until Arrow imports it."""

    array: ArrowArray

    def __cinit__(self) -> None:
        self.array.release = cython.NULL

    @property
    def address(self) -> int:
        """Address of its structure."""
        return cython.cast(cython.size_t, cython.address(self.array))

    def __dealloc__(self) -> None:
        if self.array.release:
            self.array.release(cython.address(self.array))


def arrow_batch(columns, wanted: bytes, topic: str, partition: int32_t):
    """Build a record batch of some columns, or return None if pyarrow has to build it.

    Each column is named by a letter in `wanted`: `k`ey, `v`alue, `t`opic, `p`artition, `o`ffset,
    `m`oment (the timestamp) and `y` for its type. pyarrow builds batches of no rows, of views, of
    buffers that aren't the kernel's or have over 256 KiB, and of a time that microseconds can't
    hold. A column of the batch keeps all of it alive.
    """
    made: ArrowBatch = ArrowBatch()
    count: int64_t = columns.count
    start: int64_t = columns.start
    stop: int64_t = start + count
    kinds: int64_t = len(wanted)
    letters: Source = cython.cast(Source, PyBytes_AS_STRING(wanted))
    name_size: cython.Py_ssize_t
    name: cython.p_char
    lent: Lent
    here: Bytes
    bytes_: Bytes
    column: cython.pointer(ArrowArray)
    moments: cython.pointer(int64_t)
    numbers: cython.pointer(int32_t)
    source: cython.pointer(int64_t)
    size: int64_t = NOTED
    index: int64_t
    row: int64_t
    letter: uint8_t
    if start < 0 or count <= 0 or count > MOST_LENT or kinds > 7:
        return None
    if not isinstance(columns.keys or _NO_COLUMN, Column):
        return None
    if not isinstance(columns.values or _NO_COLUMN, Column):
        return None
    name = cython.cast(cython.p_char, PyUnicode_AsUTF8AndSize(topic, cython.address(name_size)))
    if name_size > MOST_LENT:
        return None
    for index in range(kinds):
        letter = letters[index]
        if letter == ord("t"):
            size += aligned(4 * (count + 1)) + aligned(name_size * count)
        elif letter == ord("p") or letter == ord("y"):
            size += aligned(4 * count)
        elif letter == ord("m"):
            size += aligned(8 * count)
    lent = cython.cast(Lent, pool_take(size))
    if not lent:
        raise MemoryError
    memset(lent, 0, cython.sizeof(odradek_lent))
    lent.capacity = rounded(size)
    note_lent(lent.capacity)
    made.array.private_data = lent
    made.array.release = release_batch  # from here on, releasing the array frees it in any case
    here = cython.cast(Bytes, lent) + NOTED
    for index in range(kinds):
        letter = letters[index]
        column = cython.address(lent.column[index])
        column.length = count
        column.n_buffers = 2
        column.buffers = lent.buffers[index]
        column.release = release_column
        lent.columns[index] = column
        numbers = cython.cast(cython.pointer(int32_t), here)
        if letter == ord("k") or letter == ord("v"):
            payload = columns.keys if letter == ord("k") else columns.values
            if payload is None or not hold_binary(lent, index, payload, stop):
                return None
            column.offset = start
        elif letter == ord("o"):
            lent.buffers[index][1] = hold(lent, columns.offsets, 8 * stop)
            column.offset = start
        elif letter == ord("t"):
            column.n_buffers = 3
            lent.buffers[index][1] = here
            here += aligned(4 * (count + 1))
            lent.buffers[index][2] = here
            for row in range(count):
                numbers[row] = cython.cast(int32_t, row * name_size)
                memcpy(here + row * name_size, name, name_size)
            numbers[count] = cython.cast(int32_t, count * name_size)
            here += aligned(name_size * count)
        elif letter == ord("p"):
            lent.buffers[index][1] = here
            for row in range(count):
                numbers[row] = partition
            here += aligned(4 * count)
        elif letter == ord("y"):
            bytes_ = hold(lent, columns.timestamp_types, stop)
            lent.buffers[index][1] = here
            for row in range(count):
                numbers[row] = cython.cast(int8_t, bytes_[start + row])
            here += aligned(4 * count)
        elif letter == ord("m"):
            source = cython.cast(
                cython.pointer(int64_t), hold(lent, columns.timestamps_ms, 8 * stop)
            )
            moments = cython.cast(cython.pointer(int64_t), here)
            lent.buffers[index][1] = here
            for row in range(count):
                if source[start + row] > INT64_MAX // 1000:
                    return None
                if source[start + row] < -(INT64_MAX // 1000):
                    return None
                moments[row] = source[start + row] * 1000
            here += aligned(8 * count)
        else:
            raise ValueError(f"unknown column {chr(letter)!r}")
    made.array.length = count
    made.array.n_buffers = 1
    made.array.buffers = lent.none
    made.array.n_children = kinds
    made.array.children = lent.columns
    return made


@cython.cfunc
@cython.inline
def put_item(row: object, index: cython.Py_ssize_t, item: object) -> cython.void:
    """Set one item of a new tuple."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(row, index, item)


@cython.cfunc
@cython.inline
def is_plain_tuple(cls: type) -> cython.bint:
    """Return whether tuples of this class have items and nothing else."""
    parts = ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
    return issubclass(cls, tuple) and all(getattr(cls, p) == getattr(tuple, p) for p in parts)


def build_rows(cls: type, topic, partition, columns, leader_epochs, unread=None) -> list:
    """Create a `cls` for each row; the same as `rows.build_rows`.

    The garbage collector doesn't track these tuples: their items can't refer back to them, and
    millions of kept records would make each collection slow.
    """
    start: int64_t = columns.start
    count: int64_t = columns.count
    offsets: cython.const[int64_t][:] = columns.offsets
    times: cython.const[int64_t][:] = columns.timestamps_ms
    types: cython.const[uint8_t][:] = columns.timestamp_types
    index: int64_t
    last: int64_t = -1
    place: int64_t
    keys: _Cells = None
    values: _Cells = None
    headers: list = None
    epochs: list = None
    nothing = ()
    key = value = None
    time = -1
    found: list
    other: type = cls if unread is None else unread
    kind: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), cls)
    unread_kind: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), other)
    if not is_plain_tuple(cls):
        raise TypeError(f"{cls!r} isn't a named tuple")
    if not is_plain_tuple(other):
        raise TypeError(f"{other!r} isn't a named tuple")
    if (
        start < 0
        or count < 0
        or count > min(offsets.shape[0], times.shape[0], types.shape[0]) - start
    ):
        raise IndexError("more rows than the columns have")
    if columns.keys is not None:
        keys = cells_of(columns.keys, start, start + count)
    if columns.values is not None:
        values = cells_of(columns.values, start, start + count)
    if columns.headers is not None:
        headers = columns.headers.lists(start, start + count)
    if not isinstance(leader_epochs, int):
        epochs = list(leader_epochs)
    for part in (headers, epochs):
        if part is not None and len(part) < count:
            raise IndexError("a column is shorter than the others")
    found = PyList_New(count)
    # Creating ten thousand tuples would trigger the garbage collector a dozen times, for objects
    # that it doesn't track. No foreign code runs before it is enabled again; without the GIL other
    # threads run, and may need it.
    collects = 0 if odradek_free_threads else PyGC_Disable()
    try:
        for index in range(count):
            # Everything that may fail comes before the tuple is created, which is then filled at
            # once.
            place = start + index
            # successive records often have the same time: they share one object
            if times[place] != last:
                last = times[place]
                time = last
            offset = offsets[place]
            its_type = cython.cast(int8_t, types[place])
            if keys is not None:
                key = keys.next()
            if values is not None:
                value = values.next()
            its_headers = nothing if headers is None else headers[index]
            epoch = leader_epochs if epochs is None else epochs[index]
            row = odradek_new_tuple(kind if type(its_headers) is tuple else unread_kind, 9)
            put_item(row, 0, topic)
            put_item(row, 1, partition)
            put_item(row, 2, offset)
            put_item(row, 3, time)
            put_item(row, 4, its_type)
            put_item(row, 5, key)
            put_item(row, 6, value)
            put_item(row, 7, its_headers)
            put_item(row, 8, epoch)
            Py_INCREF(row)
            PyList_SET_ITEM(found, index, row)
    finally:
        if collects:
            PyGC_Enable()
    return found


@cython.cfunc
def cells_of(column, start: int64_t, stop: int64_t) -> _Cells:
    """Return an iterator over a column of this kernel, or over the list of another column."""
    cells: _Cells = _Cells()
    if type(column) is Column:
        cells.begin(column.offsets, column.data, column.validity, start, stop)
        return cells
    cells.items = column.values(start, stop)
    if len(cells.items) < stop - start:
        raise IndexError("a column is shorter than the others")
    return cells


def read_as_slots(cls: type) -> None:
    """Make reading the fields of a class faster; the same as `rows.read_as_slots`."""
    if not is_plain_tuple(cls):
        raise TypeError(f"{cls!r} isn't a named tuple")

    def inherited(sub: type, **more: object) -> None:
        super(cls, sub).__init_subclass__(**more)
        odradek_make_long(sub)

    odradek_read_as_slots(cls, tuple(cls._fields))
    cls.__init_subclass__ = classmethod(inherited)


def blanks(cls: type, count: int) -> list:
    """Create `count` objects of a class, to be filled; the same as `rows.blanks`.

    The garbage collector doesn't track an object until `collectable` is called for it.
    """
    found: list = []
    kind: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), cls)
    if cls.__new__ is not object.__new__ or cls.__itemsize__:
        raise TypeError(f"{cls!r} must be a plain class, without __new__")
    for _ in range(count):
        made = PyType_GenericAlloc(kind, 0)
        if PyObject_IS_GC(made):
            PyObject_GC_UnTrack(made)
        found.append(made)
    return found


def become(things: list, base: type, cls: type) -> None:
    """Change objects of `base` into objects of `cls`; the same as `rows.become`."""
    kind: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), cls)
    parts = ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
    if cls.__base__ is not base or any(getattr(cls, p) != getattr(base, p) for p in parts):
        raise TypeError(f"{cls!r} must be a subclass of {base!r} that only adds methods")
    for thing in things:
        if type(thing) is not base:
            raise TypeError(f"{type(thing)!r} isn't {base!r}")
        Py_INCREF(cls)  # an object holds a reference to its class
        Py_SET_TYPE(thing, kind)
        Py_DECREF(base)


def collectable(thing: object) -> None:
    """Let the garbage collector track an object that may soon refer back to itself."""
    if PyObject_IS_GC(thing) and not PyObject_GC_IsTracked(thing):
        PyObject_GC_Track(thing)


def crc32c(data: cython.const[uint8_t][::1]) -> int:
    """Compute the checksum of any contiguous buffer."""
    crc: uint32_t
    if data.shape[0] == 0:
        return 0
    with cython.nogil:
        crc = odradek_crc32c(cython.address(data[0]), data.shape[0])
    return crc


def crc32c_by_table(data: cython.const[uint8_t][::1]) -> int:
    """Compute the checksum as on a processor without a CRC instruction."""
    if data.shape[0] == 0:
        return 0
    return odradek_crc_by_table(cython.address(data[0]), data.shape[0])


# ---------------------------------------------------------------- hashes of texts

WHOLE = cython.declare(uint64_t, 0x9E3779B97F4A7C15)
SPREAD = cython.declare(uint64_t, 0xC2B2AE3D27D4EB4F)
MIX = cython.declare(uint64_t, 0xD6E8FEB86659FD93)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _mixed(word: uint64_t) -> uint64_t:
    word ^= word >> 32
    word *= MIX
    return word ^ (word >> 29)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _text_hash(text: Source, size: int64_t) -> uint64_t:
    """Hash words of eight bytes by position, the last one partial or empty, then the length."""
    total: uint64_t = 0
    last: uint64_t = 0
    place: uint64_t = SPREAD
    words: int64_t = size >> 3
    index: int64_t
    for index in range(words):
        total += _mixed(low64(text + 8 * index) + place)
        place += SPREAD
    for index in range(words * 8, size):
        last |= cython.cast(uint64_t, text[index]) << (8 * (index & 7))
    return _mixed(total + _mixed(last + place) + cython.cast(uint64_t, size) * WHOLE)


def text_hashes(
    data: cython.const[uint8_t][::1],
    offsets: cython.const[int64_t][::1],
    found: uint64_t[::1],
) -> None:
    """Hash each entry of a binary column, as `odradek.spark.sink.row_digest` does without a kernel.

    `offsets` has one number more than `found`: entry i is `data[offsets[i]:offsets[i + 1]]`. Raises
    ValueError if the offsets aren't ascending positions in the data.
    """
    count: int64_t = found.shape[0]
    size: int64_t = data.shape[0]
    bad: int64_t = -1
    index: int64_t
    nothing: uint8_t = 0
    source: Source = cython.address(nothing)
    if offsets.shape[0] != count + 1:
        raise ValueError(f"{offsets.shape[0]} offsets for {count} entries")
    if size > 0:
        source = cython.address(data[0])
    with cython.nogil:
        for index in range(count):
            if offsets[index] < 0 or offsets[index + 1] > size:
                bad = index
                break
            if offsets[index + 1] < offsets[index]:
                bad = index
                break
            found[index] = _text_hash(source + offsets[index], offsets[index + 1] - offsets[index])
    if bad >= 0:
        raise ValueError(f"entry {bad} isn't within the {size} bytes of data")
