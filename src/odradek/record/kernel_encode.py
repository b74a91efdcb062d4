# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=True, freethreading_compatible=True
"""Encode records and columns to batches natively; compiled by setup.py, never run as Python.

In: single records, or `SentColumns`. Out: complete batches. It does the same as `builder.py`,
`encoder.py` and `key_hash.py`, to the byte; tests compare it with these, and they run if it isn't
built. Must not trust a number of a column, or hold the GIL for more than one row. Each offset is
read once, into a local variable, and compared with the size of its buffer before anything is read
there: another thread may write to the columns meanwhile, which corrupts records but never reads
foreign memory.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import (
    PyBUF_ND,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.cpython.list import PyList_GET_SIZE
from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
from cython.cimports.cpython.ref import Py_DECREF, Py_INCREF, PyObject
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.libc.stdint import int16_t, int32_t, int64_t, uint8_t, uint32_t
from cython.cimports.libc.stdlib import calloc, free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.odradek.record.native import (
    PyObject_GC_UnTrack,
    PyObject_IS_GC,
    PyType_GenericAlloc,
    PyTypeObject,
    copy_near,
    odradek_crc32c,
    odradek_crc_prepare,
    odradek_digest,
    odradek_free_threads,
    odradek_lock,
    odradek_mutex,
    odradek_pool,
    odradek_slot,
    odradek_slot_fill,
    odradek_slot_get,
    odradek_unlock,
    put32,
    put64,
    put_varint,
    varint_size,
)

from odradek.common.errors import (
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    RecordTooLargeError,
)
from odradek.record.builder import header_name, no_bytes, plain_bytes, whole_time
from odradek.record.compression import codec_number, compress
from odradek.record.encoder import Rows
from odradek.record.sent_columns import Encoded, InvalidRowError, Piece, SentBinary, StopReason

odradek_crc_prepare()

SOURCES: str = odradek_digest.decode().partition(":")[2]

HEADER_SIZE = cython.declare(cython.longlong, 61)
CRC_START = cython.declare(cython.longlong, 21)
LENGTH_END = cython.declare(cython.longlong, 12)
TRANSACTIONAL = cython.declare(cython.int, 0x10)
INT64_MAX = cython.declare(cython.longlong, (1 << 63) - 1)
LARGEST_BATCH = cython.declare(cython.longlong, (1 << 31) - 1)
RECORD_LIMIT = cython.declare(cython.longlong, (1 << 31) - 1 - 61)
RECORD_OVERHEAD = cython.declare(cython.longlong, 36)
HEADER_OVERHEAD = cython.declare(cython.longlong, 10)
SLACK = cython.declare(cython.longlong, 64)

NULL_SPAN = cython.declare(cython.longlong, -1)
BAD_SPAN = cython.declare(cython.longlong, -2)

AHEAD = cython.declare(cython.longlong, 8)

NO_ROOM = cython.declare(cython.longlong, -1)
NO_MEMORY = cython.declare(cython.longlong, -2)

DONE = cython.declare(cython.int, 0)
BATCH = cython.declare(cython.int, 1)
FULL = cython.declare(cython.int, 2)
ROOM = cython.declare(cython.int, 3)
STICKY = cython.declare(cython.int, 4)
GROW = cython.declare(cython.int, 5)
BAD = cython.declare(cython.int, 6)

_REASONS = tuple(StopReason)

Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))

Batch = cython.struct(
    data=cython.pointer(uint8_t),
    size=int64_t,
    capacity=int64_t,
    limit=int64_t,
    count=int64_t,
    base_time=int64_t,
    latest=int64_t,
    closed=cython.bint,
    owner=cython.p_void,  # the last encoder that uses the batch, to be compared only
)
Slot = cython.struct(batch=cython.pointer(Batch), first=int64_t, count=int64_t)
Binary = cython.struct(
    there=cython.bint,
    wide=cython.bint,
    start=int64_t,
    offsets=Bytes,
    bits=Bytes,
    data=Bytes,
    size=int64_t,
)
Numbers = cython.struct(there=cython.bint, start=int64_t, data=Bytes, bits=Bytes)
# The positions and sizes of one row, -1 for null; `headers` is the encoded size of the headers,
# `most` the maximum size of the whole record. If the row doesn't set them, `partition` is -1 and
# `timed` false.
Row = cython.struct(
    key_at=int64_t,
    key=int64_t,
    value_at=int64_t,
    value=int64_t,
    header_first=int64_t,
    header_last=int64_t,
    headers=int64_t,
    most=int64_t,
    partition=int64_t,
    timed=cython.bint,
    time=int64_t,
)


# Memory: blocks of a power of two (and some slack), kept for the next batch. Writing to fresh pages
# takes ten times as long as to pages that were written before. All functions need the GIL or the
# pool's mutex.

SMALLEST = cython.declare(cython.int, 12)
CLASSES = cython.declare(cython.int, 13)
Block = cython.struct(next=cython.p_void)
_free = cython.declare(cython.p_void[13])  # lists, one for each class; C sets them to NULL
_held = cython.declare(cython.longlong, 0)
_limit = cython.declare(cython.longlong, 32 << 20)
_lent = cython.declare(cython.longlong, 0)
_hits = cython.declare(cython.longlong, 0)
_misses = cython.declare(cython.longlong, 0)


@cython.cfunc
@cython.exceptval(check=False)
def _class_of(size: int64_t) -> cython.int:
    """Return the class of the smallest block for `size` bytes, CLASSES if none suffices."""
    index: cython.int = 0
    while index < CLASSES and cython.cast(int64_t, 1) << (SMALLEST + index) < size:
        index += 1
    return index


@cython.cfunc
@cython.exceptval(check=False)
def _take_memory(size: int64_t, capacity: cython.pointer(int64_t)) -> cython.pointer(uint8_t):
    """Return at least `size` bytes plus SLACK; NULL if there is no memory."""
    global _held, _lent, _hits, _misses
    index: cython.int = _class_of(size)
    found: cython.p_void = cython.NULL
    odradek_lock(cython.address(odradek_pool))
    if index < CLASSES:
        size = cython.cast(int64_t, 1) << (SMALLEST + index)
        found = _free[index]
    if found:
        _free[index] = cython.cast(cython.pointer(Block), found).next
        _held -= size
        _hits += 1
    else:
        found = malloc(size + SLACK)
        _misses += found != cython.NULL
    if found:
        _lent += size
        capacity[0] = size
    odradek_unlock(cython.address(odradek_pool))
    return cython.cast(cython.pointer(uint8_t), found)


@cython.cfunc
def _no_memory(size: int64_t) -> cython.int:
    raise MemoryError(f"a record batch needs {size} bytes of memory")


@cython.cfunc
@cython.exceptval(check=False)
def _give_memory(data: cython.pointer(uint8_t), capacity: int64_t) -> cython.void:
    """Return a block to the pool for the next batch, or to the system."""
    global _held, _lent
    index: cython.int = _class_of(capacity)
    if not data:
        return
    odradek_lock(cython.address(odradek_pool))
    _lent -= capacity
    if index == CLASSES or capacity > _limit:
        free(data)
    else:
        _drop_memory(_limit - capacity)
        cython.cast(cython.pointer(Block), data).next = _free[index]
        _free[index] = data
        _held += capacity
    odradek_unlock(cython.address(odradek_pool))


@cython.cfunc
@cython.exceptval(check=False)
def _drop_memory(limit: int64_t) -> cython.void:
    """Free idle blocks, the largest first, until no more than `limit` bytes are idle.

    Needs the mutex.
    """
    global _held
    index: cython.int = CLASSES - 1
    block: cython.p_void
    while _held > limit:
        block = _free[index]
        if not block:
            index -= 1
            continue
        _free[index] = cython.cast(cython.pointer(Block), block).next
        _held -= cython.cast(int64_t, 1) << (SMALLEST + index)
        free(block)


def pool_state() -> tuple[int, int, int, int, int]:
    """Return idle bytes, their limit, bytes used by batches, hits and misses."""
    odradek_lock(cython.address(odradek_pool))
    held, limit, lent, hits, misses = _held, _limit, _lent, _hits, _misses
    odradek_unlock(cython.address(odradek_pool))
    return held, limit, lent, hits, misses


def set_pool_limit(limit: cython.longlong) -> None:
    """Set the maximum number of idle bytes."""
    global _limit
    odradek_lock(cython.address(odradek_pool))
    _limit = max(0, limit)
    _drop_memory(_limit)
    odradek_unlock(cython.address(odradek_pool))


@cython.final
@cython.cclass
class _Sealed:
    """A complete batch; its memory returns to the pool with the last view of it."""

    data: cython.pointer(uint8_t)
    size: int64_t
    capacity: int64_t

    def __cinit__(self):
        self.data = cython.NULL
        self.size = self.capacity = 0

    def __dealloc__(self):
        _give_memory(self.data, self.capacity)

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


# Murmur2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(data: Bytes, size: int64_t) -> uint32_t:
    m: uint32_t = 0x5BD1E995
    h: uint32_t = cython.cast(uint32_t, 0x9747B28C) ^ cython.cast(uint32_t, size)
    k: uint32_t
    while size >= 4:
        k = (
            data[0]
            | (cython.cast(uint32_t, data[1]) << 8)
            | (cython.cast(uint32_t, data[2]) << 16)
            | (cython.cast(uint32_t, data[3]) << 24)
        )
        k *= m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
        data += 4
        size -= 4
    if size == 3:
        h ^= cython.cast(uint32_t, data[2]) << 16
    if size >= 2:
        h ^= cython.cast(uint32_t, data[1]) << 8
    if size >= 1:
        h ^= data[0]
        h *= m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


@cython.cfunc
def _hash(data: object) -> uint32_t:
    if type(data) is not bytes:
        data = plain_bytes(data)
    return _murmur2(cython.cast(Bytes, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data))


def murmur2(data) -> int:
    """Return the 32-bit hash of `data`, signed like Java's `int`."""
    return cython.cast(int32_t, _hash(data))


@cython.ccall
def partition_for_key(key, partitions: cython.longlong):
    """Return the partition that Java chooses: the sign bit of the hash is dropped, not negated."""
    if partitions < 1:
        raise ValueError(f"a topic can't have {partitions} partitions")
    return (_hash(key) & 0x7FFFFFFF) % partitions


# Record by record

_NO_HEADERS = ()


@cython.cfunc
def _encode_headers(headers: tuple) -> bytes:
    """Encode header count, names and contents: sizes first, then all into one object."""
    name: str
    text: cython.pointer(cython.const[cython.char])
    length: cython.Py_ssize_t = 0
    size: int64_t = varint_size(len(headers))
    pairs: list = []
    at: cython.pointer(uint8_t)
    for given, content in headers:
        name = given if type(given) is str else header_name(given)
        if content is not None and type(content) is not bytes:
            content = plain_bytes(content)
        PyUnicode_AsUTF8AndSize(name, cython.address(length))
        size += varint_size(length) + length
        if content is None:
            size += 1
        else:
            size += varint_size(PyBytes_GET_SIZE(content)) + PyBytes_GET_SIZE(content)
        pairs.append((name, content))
    encoded: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    at = put_varint(cython.cast(cython.pointer(uint8_t), PyBytes_AS_STRING(encoded)), len(pairs))
    for name, content in pairs:
        text = PyUnicode_AsUTF8AndSize(name, cython.address(length))
        at = put_varint(at, length)
        memcpy(at, text, length)
        at += length
        if content is None:
            at = put_varint(at, -1)
        else:
            length = PyBytes_GET_SIZE(content)
            at = put_varint(at, length)
            memcpy(at, PyBytes_AS_STRING(content), length)
            at += length
    return encoded


@cython.cfunc
@cython.exceptval(check=False)
def _grow(batch: cython.pointer(Batch), need: int64_t, generous: cython.bint) -> cython.bint:
    """Grow a batch to `need` bytes in all; small batches never take much memory.

    Needs the GIL or the builder's mutex; returns false if there is no memory.
    """
    capacity: int64_t = 0
    wanted: int64_t = 4 * batch.capacity
    if generous or 2 * wanted > batch.limit:
        wanted = batch.limit
    if wanted < need:
        wanted = need
    data: cython.pointer(uint8_t) = _take_memory(wanted, cython.address(capacity))
    if not data:
        return False
    if batch.data:
        memcpy(data, batch.data, batch.size)
        _give_memory(batch.data, batch.capacity)
    batch.data = data
    batch.capacity = capacity
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _fits(batch: cython.pointer(Batch), size: int64_t) -> cython.bint:
    """Return whether `size` bytes may be added; the first record always fits."""
    return batch.count == 0 or size <= batch.limit - batch.size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _length(size: int64_t) -> int64_t:
    """Return the number of bytes of a length, which is -1 for null."""
    return max(0, size)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _body_size(
    batch: cython.pointer(Batch), key: int64_t, value: int64_t, headers: int64_t, time: int64_t
) -> int64_t:
    """Return the size of a record without its own length, which precedes it."""
    delta: int64_t = time - batch.base_time if batch.count else 0
    size: int64_t = 1 + varint_size(delta) + varint_size(batch.count) + headers
    return size + varint_size(key) + _length(key) + varint_size(value) + _length(value)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_too_far(batch: cython.pointer(Batch), time: int64_t) -> cython.bint:
    """Return whether the difference to the base time needs more than 64 bits.

    That is only so from -1 (no time) to the largest time.
    """
    return batch.count != 0 and batch.base_time < 0 and time == INT64_MAX


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _begin(batch: cython.pointer(Batch), body: int64_t, time: int64_t) -> cython.pointer(uint8_t):
    """Write the part of a record before its key; the caller has allocated memory for the record."""
    at: cython.pointer(uint8_t) = put_varint(batch.data + batch.size, body)
    at[0] = 0
    at = put_varint(at + 1, time - batch.base_time if batch.count else 0)
    return put_varint(at, batch.count)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(
    batch: cython.pointer(Batch),
    at: cython.pointer(uint8_t),
    data: Bytes,
    size: int64_t,
    readable: int64_t,
) -> cython.pointer(uint8_t):
    """Write a length and `size` bytes of `data`, of which `readable` may be read."""
    left: int64_t
    at = put_varint(at, size)
    if size > 0:
        left = batch.data + batch.capacity + SLACK - at
        copy_near(at, data, size, left - size >= 32 and readable - size >= 32)
        at += size
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _end(batch: cython.pointer(Batch), at: cython.pointer(uint8_t), time: int64_t) -> cython.void:
    batch.size = at - batch.data
    if batch.count == 0:
        batch.base_time = batch.latest = time
    elif time > batch.latest:
        batch.latest = time
    batch.count += 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _append(
    batch: cython.pointer(Batch),
    key: Bytes,
    key_size: int64_t,
    value: Bytes,
    value_size: int64_t,
    headers: Bytes,
    header_size: int64_t,
    time: int64_t,
) -> int64_t:
    """Write a record and return its index, NO_ROOM or NO_MEMORY."""
    index: int64_t = batch.count
    body: int64_t = _body_size(batch, key_size, value_size, header_size, time)
    size: int64_t = varint_size(body) + body
    at: cython.pointer(uint8_t)
    if not _fits(batch, size) or _is_too_far(batch, time):
        return NO_ROOM
    if batch.capacity - batch.size < size and not _grow(batch, batch.size + size, False):
        return NO_MEMORY
    at = _begin(batch, body, time)
    at = _put(batch, at, key, key_size, key_size)
    at = _put(batch, at, value, value_size, value_size)
    if headers:
        memcpy(at, headers, header_size)
        at += header_size
    else:
        at[0] = 0
        at += 1
    _end(batch, at, time)
    return index


@cython.final
@cython.cclass
class _Turn:
    """Whether an encoder is writing at this moment, without the GIL."""

    running: cython.bint
    mutex: odradek_mutex
    """Held by other writers of the batch, so that the encoder doesn't begin in between."""


@cython.final
@cython.cclass
class BatchBuilder:
    """Collects records up to `limit_bytes` (before compression, header included)."""

    ATOMIC = True
    """Whether threads may call `append` and `close` at the same time without a lock.

    While an encoder writes to this batch, `append` returns None, as if the batch were full.
    """

    batch: Batch
    codec: cython.int
    given_limit: object
    level: object
    plain: _Sealed
    sealed: _Sealed
    ids: tuple
    building: cython.bint
    released: cython.bint
    turn: _Turn
    mutex: odradek_mutex

    def __cinit__(self):
        self.batch.data = cython.NULL
        self.batch.capacity = 0
        # here, so that an object without __init__ has its header, too
        self.batch.size = HEADER_SIZE

    def __init__(self, limit_bytes, compression, level=None):
        if self.given_limit is not None:
            raise IllegalStateError("a builder can't be initialised twice")
        self.codec = codec_number(compression, level)
        self.level = level
        self.limit_bytes = limit_bytes
        self.batch.count = 0
        self.batch.base_time = self.batch.latest = -1
        self.batch.closed = False
        self.batch.owner = cython.NULL
        self.plain = self.sealed = self.ids = self.turn = None
        self.building = self.released = False

    def __dealloc__(self):
        _give_memory(self.batch.data, self.batch.capacity)

    @property
    def count(self) -> int:
        """Number of records so far."""
        found: int64_t
        odradek_lock(cython.address(self.mutex))
        found = self.batch.count
        odradek_unlock(cython.address(self.mutex))
        return found

    @property
    def estimated_size(self) -> int:
        """Bytes of the batch before compression, header included."""
        found: int64_t
        odradek_lock(cython.address(self.mutex))
        found = self.batch.size
        odradek_unlock(cython.address(self.mutex))
        return found

    @property
    def limit_bytes(self) -> int:
        """Limit of `estimated_size`; only a batch with a single record may exceed it.

        The accumulator raises it step by step, as it reserves memory.
        """
        turn: _Turn = self.seize()
        limit = self.given_limit
        self.leave(turn)
        return limit

    @limit_bytes.setter
    def limit_bytes(self, limit):
        bounded: int64_t = min(max(limit, 0), LARGEST_BATCH)
        turn: _Turn = self.seize()
        busy: cython.bint = turn is not None and turn.running
        _before = self.given_limit  # freed after the locks are released
        if not busy:
            self.batch.limit = bounded
            self.given_limit = limit
        self.leave(turn)
        self.check(busy)

    @property
    def closed(self) -> bool:
        """Whether `append` refuses further records."""
        return self.is_closed()

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_closed(self) -> cython.bint:
        found: cython.bint
        odradek_lock(cython.address(self.mutex))
        found = self.batch.closed
        odradek_unlock(cython.address(self.mutex))
        return found

    @property
    def max_timestamp_ms(self) -> int:
        """The latest timestamp so far, -1 without records."""
        found: int64_t
        odradek_lock(cython.address(self.mutex))
        found = self.batch.latest
        odradek_unlock(cython.address(self.mutex))
        return found

    @cython.ccall
    def append(self, key, value, headers, timestamp_ms):
        """Add a record and return its index in the batch, or None if it doesn't fit.

        The first record always fits: one above the limit gets its own batch.
        """
        time: int64_t
        encoded: bytes = None
        key_view: Py_buffer
        value_view: Py_buffer
        held: cython.int = 0
        key_data: Bytes = cython.NULL
        value_data: Bytes = cython.NULL
        key_size: int64_t = -1
        value_size: int64_t = -1
        if self.is_closed():
            return None
        if type(timestamp_ms) is not int:
            timestamp_ms = whole_time(timestamp_ms)
        try:
            time = timestamp_ms
        except OverflowError:
            time = -2
        if time < -1:
            raise ValueError(f"timestamp_ms is {timestamp_ms}, not 0 to 2^63-1 (or -1 for none)")
        # All calls that may run foreign code come first, because it could close this batch.
        if headers is not _NO_HEADERS and headers:
            encoded = _encode_headers(tuple(headers))
        if type(key) is bytes:
            key_data = cython.cast(Bytes, PyBytes_AS_STRING(key))
            key_size = PyBytes_GET_SIZE(key)
        if type(value) is bytes:
            value_data = cython.cast(Bytes, PyBytes_AS_STRING(value))
            value_size = PyBytes_GET_SIZE(value)
        if (key is None or key_data) and (value is None or value_data):
            return self.add(key_data, key_size, value_data, value_size, encoded, time)
        try:
            if key is not None and not key_data:
                PyObject_GetBuffer(key, cython.address(key_view), PyBUF_ND)
                held += 1
                if key_view.ndim == 0:
                    raise no_bytes(key)
                key_data = cython.cast(Bytes, key_view.buf)
                key_size = key_view.len
            if value is not None and not value_data:
                PyObject_GetBuffer(value, cython.address(value_view), PyBUF_ND)
                held += 2
                if value_view.ndim == 0:
                    raise no_bytes(value)
                value_data = cython.cast(Bytes, value_view.buf)
                value_size = value_view.len
            return self.add(key_data, key_size, value_data, value_size, encoded, time)
        finally:
            if held & 1:
                PyBuffer_Release(cython.address(key_view))
            if held & 2:
                PyBuffer_Release(cython.address(value_view))

    @cython.cfunc
    def add(
        self,
        key: Bytes,
        key_size: int64_t,
        value: Bytes,
        value_size: int64_t,
        headers: object,
        time: int64_t,
    ):
        index: int64_t
        header_data: Bytes = cython.NULL
        header_size: int64_t = 1
        turn: _Turn
        if headers is not None:
            header_data = cython.cast(Bytes, PyBytes_AS_STRING(headers))
            header_size = PyBytes_GET_SIZE(headers)
        if self.is_closed():
            return None
        if _length(key_size) + _length(value_size) + header_size > RECORD_LIMIT - RECORD_OVERHEAD:
            raise RecordTooLargeError("a record of 2 GiB is too large for a batch")
        turn = self.seize()
        if self.batch.closed or (turn is not None and turn.running):
            index = NO_ROOM
        else:
            index = _append(
                cython.address(self.batch),
                key,
                key_size,
                value,
                value_size,
                header_data,
                header_size,
                time,
            )
        self.leave(turn)
        if index == NO_ROOM:
            return None
        if index == NO_MEMORY:
            _no_memory(key_size + value_size + header_size)
        return index

    @cython.cfunc
    @cython.inline
    def seize(self) -> _Turn:
        """Keep all other writers, encoders included, from writing to this batch until `leave`.

        Nothing in between may raise or run foreign code.
        """
        turn: _Turn
        odradek_lock(cython.address(self.mutex))
        turn = self.turn
        if odradek_free_threads and turn is not None:
            odradek_lock(cython.address(turn.mutex))
        return turn

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def leave(self, turn: _Turn | None) -> cython.void:
        """Let others write again; `turn` is the result of `seize`."""
        if odradek_free_threads and turn is not None:
            odradek_unlock(cython.address(turn.mutex))
        odradek_unlock(cython.address(self.mutex))

    @cython.cfunc
    @cython.inline
    def check(self, busy: cython.bint) -> cython.int:
        if busy:
            raise IllegalStateError("an encoder is writing into this batch")
        return 0

    def close(self):
        """Refuse further records; `build` closes the batch, too."""
        turn: _Turn = self.seize()
        self.batch.closed = True
        self.leave(turn)

    def release(self):
        """Free the records of a batch with an outcome; its count and sizes can still be read.

        A view that `build` returned stays valid: the last attempt may still be in a send queue.
        """
        turn: _Turn = self.seize()
        busy: cython.bint = turn is not None and turn.running
        _plain: _Sealed = self.plain
        _sealed: _Sealed = self.sealed
        if not busy:
            self.batch.closed = self.released = True
            _give_memory(self.batch.data, self.batch.capacity)
            self.batch.data = cython.NULL
            self.batch.capacity = 0
            self.plain = self.sealed = None
        self.leave(turn)
        self.check(busy)

    def build(
        self,
        *,
        producer_id: int64_t = -1,
        producer_epoch: int16_t = -1,
        base_sequence: int32_t = -1,
        transactional: cython.bint = False,
    ):
        """Compress once and write the header; the same ids return the same bytes.

        With other ids (a bumped epoch), header and checksum are written to a copy, because the
        earlier view may still be in a connection's send queue.
        """
        batch: cython.pointer(Batch) = cython.address(self.batch)
        ids: tuple = (producer_id, producer_epoch, base_sequence, transactional)
        made: _Sealed
        turn: _Turn = self.seize()
        busy: cython.bint = turn is not None and turn.running
        built: cython.bint = self.building  # it compresses and seals without the GIL
        empty: cython.bint = batch.count == 0 or self.released
        if not (busy or built or empty):
            batch.closed = self.building = True
        self.leave(turn)
        self.check(busy)
        if built:
            raise IllegalStateError("the batch is built by another thread")
        if empty:
            raise IllegalStateError("a batch without records can't be built")
        try:
            if self.sealed is not None and self.ids == ids:
                return memoryview(self.sealed)
            if self.sealed is None:
                made = self.pack()
            else:
                made = _copied(self.sealed.data, self.sealed.size)
            with cython.nogil:
                _seal(
                    made.data,
                    made.size,
                    self.codec + (TRANSACTIONAL if transactional else 0),
                    batch,
                    producer_id,
                    producer_epoch,
                    base_sequence,
                )
            self.sealed = made
            self.ids = ids
            return memoryview(made)
        finally:
            turn = self.seize()
            self.building = False
            self.leave(turn)

    @cython.cfunc
    def pack(self) -> _Sealed:
        """Compress the records, or transfer their memory to the complete batch."""
        plain: _Sealed = self.plain
        made: _Sealed
        size: int64_t
        if plain is None:
            # From here on the memory belongs to the views of it, even if compressing fails.
            plain = self.plain = _Sealed()
            _hand_over(cython.address(self.batch), plain)
        if self.codec:
            packed: memoryview = memoryview(
                compress(self.codec, self.level, memoryview(plain)[HEADER_SIZE:])
            )
            size = HEADER_SIZE + PyMemoryView_GET_BUFFER(packed).len
            if size < plain.size:
                made = _Sealed()
                made.data = _take_memory(size, cython.address(made.capacity))
                if not made.data:
                    _no_memory(size)
                made.size = size
                memcpy(
                    made.data + HEADER_SIZE, PyMemoryView_GET_BUFFER(packed).buf, size - HEADER_SIZE
                )
                self.plain = None
                return made
            # Data that doesn't shrink is sent uncompressed, so a batch never exceeds its estimated
            # size.
            self.codec = 0
        self.plain = None
        return plain


@cython.cfunc
@cython.exceptval(check=False)
def _hand_over(batch: cython.pointer(Batch), to: _Sealed) -> cython.void:
    to.data = batch.data
    to.size = batch.size
    to.capacity = batch.capacity
    batch.data = cython.NULL
    batch.capacity = 0


@cython.cfunc
def _copied(data: Bytes, size: int64_t) -> _Sealed:
    made: _Sealed = _Sealed()
    made.data = _take_memory(size, cython.address(made.capacity))
    if not made.data:
        _no_memory(size)
    made.size = size
    memcpy(made.data, data, size)
    return made


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _seal(
    data: cython.pointer(uint8_t),
    size: int64_t,
    attributes: cython.int,
    batch: cython.pointer(Batch),
    producer_id: int64_t,
    producer_epoch: int16_t,
    base_sequence: int32_t,
) -> cython.void:
    """Write the header into the first 61 bytes, after the records were written."""
    put64(data, 0)  # the broker sets the base offset
    put32(data + 8, cython.cast(uint32_t, size - LENGTH_END))
    put32(data + 12, cython.cast(uint32_t, -1))  # the broker sets the leader epoch, too
    data[16] = 2  # magic
    data[21] = 0
    data[22] = attributes
    put32(data + 23, cython.cast(uint32_t, batch.count - 1))
    put64(data + 27, batch.base_time)
    put64(data + 35, batch.latest)
    put64(data + 43, producer_id)
    data[51] = (producer_epoch >> 8) & 255
    data[52] = producer_epoch & 255
    put32(data + 53, cython.cast(uint32_t, base_sequence))
    put32(data + 57, cython.cast(uint32_t, batch.count))
    put32(data + 17, odradek_crc32c(data + CRC_START, size - CRC_START))


# Single records into open batches


@cython.final
@cython.cclass
class Room:
    """Number of messages and bytes that may be accepted before they have to be counted."""

    messages = cython.declare(cython.longlong, visibility="public")
    size = cython.declare(cython.longlong, visibility="public")
    mutex: odradek_mutex

    def __init__(self, messages=0, size=0):
        self.messages = messages
        self.size = size

    def take(self, size: cython.longlong) -> bool:
        """Count a message of this size; return whether it still fits."""
        there: cython.bint
        odradek_lock(cython.address(self.mutex))
        self.messages -= 1
        self.size -= size
        there = self.messages >= 0 and self.size >= 0
        odradek_unlock(cython.address(self.mutex))
        return there

    def counted(self, messages: cython.longlong, left: cython.longlong, size) -> bool:
        """Set the number of messages and bytes that are left, and count one message."""
        odradek_lock(cython.address(self.mutex))
        self.messages = messages
        self.size = left
        odradek_unlock(cython.address(self.mutex))
        return self.take(size)


Note = cython.struct(
    index=int64_t,
    begun=cython.double,
    at=int64_t,
    key=cython.pointer(PyObject),
    value=cython.pointer(PyObject),
)


@cython.cclass
class Notes:
    """Data for the reports of messages; the same as `open_batches.Notes`."""

    size = cython.declare(cython.longlong, visibility="public")
    can_be_made = cython.declare(cython.bint, visibility="public")
    calls = cython.declare(list, visibility="readonly")
    notes: cython.pointer(Note)
    first: int64_t
    stop: int64_t
    capacity: int64_t
    mutex: odradek_mutex

    def __cinit__(self, *_) -> None:
        self.notes = cython.NULL
        self.first = self.stop = self.capacity = 0
        self.calls = []

    def __dealloc__(self) -> None:
        index: int64_t
        for index in range(self.first, self.stop):
            Py_DECREF(cython.cast(object, self.notes[index].key))
            Py_DECREF(cython.cast(object, self.notes[index].value))
        free(self.notes)

    @property
    def count(self) -> int:
        """Number of messages."""
        return self.stop - self.first

    @cython.cfunc
    def room_for(self, more: int64_t):
        """Allocate memory for `more` messages."""
        capacity: int64_t = max(2 * self.capacity, self.stop + more, 16)
        notes: cython.pointer(Note)
        if self.stop + more <= self.capacity:
            return
        notes = cython.cast(
            cython.pointer(Note), realloc(self.notes, capacity * cython.sizeof(Note))
        )
        if not notes:
            raise MemoryError
        self.notes = notes
        self.capacity = capacity

    @cython.cfunc
    def put(self, index: int64_t, begun: cython.double, at: int64_t, key, value) -> cython.void:
        """Add a message after `room_for`; its callback is stored separately."""
        note: cython.pointer(Note) = cython.address(self.notes[self.stop])
        note.index = index
        note.begun = begun
        note.at = at
        Py_INCREF(key)
        Py_INCREF(value)
        note.key = cython.cast(cython.pointer(PyObject), key)
        note.value = cython.cast(cython.pointer(PyObject), value)
        self.stop += 1

    @cython.cfunc
    def note(
        self,
        index: int64_t,
        begun: cython.double,
        at: int64_t,
        key,
        value,
        call,
        size: cython.longlong,
    ):
        odradek_lock(cython.address(self.mutex))
        try:
            self.room_for(1)
            self.calls.append(call)
            self.put(index, begun, at, key, value)
            self.size += size
        finally:
            odradek_unlock(cython.address(self.mutex))

    def add(self, message: tuple, size: cython.longlong) -> None:
        """Add a message: index, times, key, value and callback; and the bytes of key and value."""
        index, begun, at, key, value, call = message
        self.note(index, begun, at, key, value, call, size)

    def take(self, most: int64_t) -> Notes:
        """Remove and return the first messages, at most `most`."""
        made: Notes = Notes()
        count: int64_t
        odradek_lock(cython.address(self.mutex))
        try:
            count = max(0, min(most, self.stop - self.first))
            made.room_for(count)
            made.calls = self.calls[:count]
            del self.calls[:count]
            memcpy(made.notes, self.notes + self.first, count * cython.sizeof(Note))
            made.stop = count
            self.first += count
        finally:
            odradek_unlock(cython.address(self.mutex))
        return made

    def put_back(self, taken: Notes, told: int64_t) -> None:
        """Put the messages of the last `take` back to the front, without the first `told` ones."""
        count: int64_t = taken.stop - taken.first - told
        if told < 0 or count < 0 or count > self.first:
            raise ValueError("can't put back other records than were taken from this queue")
        odradek_lock(cython.address(self.mutex))
        try:
            self.calls[:0] = taken.calls[told:]
            self.first -= count
            memcpy(
                self.notes + self.first,
                taken.notes + taken.first + told,
                count * cython.sizeof(Note),
            )
            taken.stop -= count
            del taken.calls[told:]
        finally:
            odradek_unlock(cython.address(self.mutex))

    def items(self) -> list:
        """Return all messages as they were added."""
        index: int64_t
        found: list = []
        for index in range(self.first, self.stop):
            note = self.notes[index]
            found.append(
                (
                    note.index, note.begun, note.at, cython.cast(object, note.key),
                    cython.cast(object, note.value), self.calls[index - self.first],
                )
            )  # fmt: skip
        return found


@cython.final
@cython.cclass
class _Route:
    """Cached data of a topic's lane."""

    lane: object
    snapshot: object
    opened: dict
    count: int64_t
    by_key: cython.bint

    @cython.cfunc
    def choose(self, key, value):
        if key is None or not self.by_key:
            return self.lane.place(key, value)
        return partition_for_key(key, self.count)


@cython.final
@cython.cclass
class OpenBatches:
    """Appends records to open batches; the same as `open_batches.OpenBatches`."""

    lanes: dict
    metadata: object
    process: object
    here_at: cython.Py_ssize_t
    clock: object
    make: object
    blank: tuple
    slots: cython.Py_ssize_t[12]
    route: _Route
    batches: object  # the class of the last batch
    builder_at: cython.Py_ssize_t
    mutex: odradek_mutex
    """For `route`, which all sending threads read and change."""

    def __init__(self, lanes, metadata, process, clock, make):
        self.lanes = lanes
        self.metadata = metadata
        self.process = process
        self.here_at = odradek_slot(type(process), "here")
        self.clock = clock
        self.make = make
        self.blank = getattr(make, "_blank", None)
        if self.blank is not None:
            if make.__new__ is not object.__new__ or make.__itemsize__:
                raise TypeError(f"{make!r} must be a plain class, without __new__")
            self.find_slots()

    @cython.cfunc
    def find_slots(self) -> cython.int:
        """Find the slots of a future's attributes; the first is 0 if one of them isn't a slot."""
        at: cython.int = 0
        names = (
            "_producer",
            "_batch",
            "_index",
            "_timestamp_ms",
            *(name for name, _ in self.blank),
        )
        if len(names) > 12:
            return 0
        for at, name in enumerate(names):
            self.slots[at] = odradek_slot(self.make, name)
            if self.slots[at] == 0:
                self.slots[0] = 0
                return 0
        return 0

    @cython.cfunc
    def found(self, topic) -> _Route:
        """Return the data of a topic; None if it is unknown or outdated."""
        route: _Route
        _last: _Route  # freed after the lock is released
        lane = self.lanes.get(topic)
        if lane is None:
            return None
        odradek_lock(cython.address(self.mutex))
        route = self.route
        odradek_unlock(cython.address(self.mutex))
        if route is None or route.lane is not lane:
            route = _Route()
            route.lane = lane
            route.snapshot = lane.snapshot
            route.opened = lane.open
            route.count = lane.count
            route.by_key = lane.by_key
            odradek_lock(cython.address(self.mutex))
            _last = self.route
            self.route = route
            odradek_unlock(cython.address(self.mutex))
        return route if route.snapshot is self.metadata.snapshot else None

    @cython.cfunc
    def batch(self, route: _Route, partition):
        """Return the open batch of a partition; None if there is none, or in a forked child."""
        if not odradek_slot_get(self.process, self.here_at, "here"):
            return None
        return route.opened.get(partition)

    @cython.cfunc
    def builder(self, batch) -> BatchBuilder:
        if type(batch) is not self.batches:
            if odradek_free_threads:  # nothing is cached that another thread could read meanwhile
                return batch.builder
            self.builder_at = odradek_slot(type(batch), "builder")
            self.batches = type(batch)
        return odradek_slot_get(batch, self.builder_at, "builder")

    @cython.cfunc
    def future(self, producer, batch, index, timestamp_ms):
        at: cython.int = 4
        if self.blank is None:
            return self.make(producer, batch, index, timestamp_ms)
        future = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), self.make), 0)
        if self.slots[0]:
            odradek_slot_fill(future, self.slots[0], producer)
            odradek_slot_fill(future, self.slots[1], batch)
            odradek_slot_fill(future, self.slots[2], index)
            odradek_slot_fill(future, self.slots[3], timestamp_ms)
            for _, nothing in self.blank:
                odradek_slot_fill(future, self.slots[at], nothing)
                at += 1
            return future
        future._producer = producer
        future._batch = batch
        future._index = index
        future._timestamp_ms = timestamp_ms
        for name, nothing in self.blank:
            setattr(future, name, nothing)
        return future

    def send(self, producer, topic, key, value, headers, timestamp_ms, partition):
        """Append a record to its open batch and return its future, or else its partition.

        The partition is an int if it is certain, or None. A partition is returned if the batch is
        full or missing, or the topic isn't known.
        """
        route: _Route = self.found(topic)
        if route is None:
            return partition
        if partition is None:
            partition = route.choose(key, value)
        batch = self.batch(route, partition)
        if batch is None:
            return partition
        if timestamp_ms is None:
            timestamp_ms = cython.cast(int64_t, cython.cast(cython.double, self.clock()) * 1000)
        index = self.builder(batch).append(key, value, headers, timestamp_ms)
        if index is None:
            return partition
        return self.future(producer, batch, index, timestamp_ms)

    def report(
        self,
        room: Room,
        by_batch: dict,
        begun,
        topic,
        key,
        value,
        partition,
        timestamp_ms,
        call,
    ):
        """Append a message to its open batch and note the data of its report; return True.

        If the batch is full or missing, or the message is unusual, its partition is returned as in
        `send`.
        """
        route: _Route
        notes: Notes
        given: int64_t
        size: int64_t = 0
        if type(topic) is not str:
            return partition
        if key is not None:
            if type(key) is not bytes:
                return partition
            size += PyBytes_GET_SIZE(key)
        if value is not None:
            if type(value) is not bytes:
                return partition
            size += PyBytes_GET_SIZE(value)
        if type(timestamp_ms) is not int:
            return partition
        try:
            given = timestamp_ms
        except OverflowError:
            return partition
        route = self.found(topic)
        if route is None:
            return partition
        if partition is None:
            partition = route.choose(key, value)
        batch = self.batch(route, partition)
        if batch is None:
            return partition
        notes = by_batch.get(batch)
        if notes is None or room.messages < 1 or room.size < size:
            return partition
        if given <= 0:
            given = cython.cast(int64_t, cython.cast(cython.double, self.clock()) * 1000)
            timestamp_ms = given
        index = self.builder(batch).append(key, value, _NO_HEADERS, timestamp_ms)
        if index is None:
            return partition
        if odradek_free_threads:  # other threads count messages at the same time
            room.take(size)
        else:
            room.messages -= 1
            room.size -= size
        notes.note(index, begun, given, key, value, call, size)
        if notes.can_be_made:
            notes.late()
        return True


def build_reports(cls, kind, topic, partition, outcome, error, now, notes: Notes) -> list:
    """Build the reports of messages; the same as `open_batches.build_reports`."""
    at: int64_t
    base: int64_t
    appended: int64_t
    end: cython.double = now
    note: cython.pointer(Note)
    found: list = []
    base, appended = outcome
    if cls.__new__ is not object.__new__ or cls.__itemsize__:
        raise TypeError(f"{cls!r} must be a plain class, without __new__")
    for at in range(notes.first, notes.stop):
        note = cython.address(notes.notes[at])
        offset = base + note.index if base >= 0 else None
        time = note.at if appended < 0 else appended
        key = cython.cast(object, note.key)
        value = cython.cast(object, note.value)
        made = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), cls), 0)
        record = (topic, partition, offset, time, kind, key, value, None, -1)
        # Nothing in them refers back to them, until a caller adds that (`collectable`).
        PyObject_GC_UnTrack(record)
        if PyObject_IS_GC(made):
            PyObject_GC_UnTrack(made)
        made._record = record
        made._error = error
        made._more = end - note.begun
        found.append(made)
    return found


# From lists


def only_bytes(items: list, first: int64_t, last: int64_t) -> bool:
    """Return whether items of a list are bytes or None; the same as `sent_columns.only_bytes`."""
    index: int64_t
    with cython.critical_section(items):
        if not 0 <= first <= last <= PyList_GET_SIZE(items):
            raise IndexError(f"items {first} to {last} of {len(items)}")
        for index in range(first, last):
            item = items[index]
            if type(item) is not bytes and item is not None:
                return False
    return True


def gather(items: list, first: int64_t, last: int64_t, most: int64_t):
    """Return a column of some items of a list; the same as `sent_columns.gather`."""
    with cython.critical_section(items):  # without a GIL another thread might change it
        return _gather(items, first, last, most)


@cython.cfunc
def _gather(items: list, first: int64_t, last: int64_t, most: int64_t):
    count: int64_t = 0
    total: int64_t = 0
    there: int64_t = 0
    size: int64_t
    at: int64_t = 0
    index: int64_t
    ends: cython.pointer(int64_t)
    data: cython.p_char
    bits: cython.p_char = cython.NULL
    validity = None
    if not 0 <= first <= last <= PyList_GET_SIZE(items):
        raise IndexError(f"items {first} to {last} of {len(items)}")
    for index in range(first, last):
        item = items[index]
        size = 0
        if type(item) is bytes:
            size = PyBytes_GET_SIZE(item)
            there += 1
        elif item is not None:
            return None
        if count and total + size > most:
            there -= item is not None
            break
        total += size
        count += 1
    if there == 0:
        return count, None
    offsets = PyBytes_FromStringAndSize(cython.NULL, 8 * (count + 1))
    joined = PyBytes_FromStringAndSize(cython.NULL, total)
    ends = cython.cast(cython.pointer(int64_t), PyBytes_AS_STRING(offsets))
    data = PyBytes_AS_STRING(joined)
    if there < count:
        validity = PyBytes_FromStringAndSize(cython.NULL, (count + 7) // 8)
        bits = PyBytes_AS_STRING(validity)
        memset(bits, 0, (count + 7) // 8)
    # Since the sizes were added up, no code has run that could change the list or its items.
    ends[0] = 0
    for index in range(count):
        item = items[first + index]
        if item is not None:
            size = PyBytes_GET_SIZE(item)
            memcpy(data + at, PyBytes_AS_STRING(item), size)
            at += size
            if bits:
                bits[index >> 3] = bits[index >> 3] | (1 << (index & 7))
        ends[index + 1] = at
    return count, SentBinary(offsets, joined, validity, wide=True)


# From columns

_EMPTY = b""


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _integer(data: Bytes, wide: cython.bint, index: int64_t) -> int64_t:
    """Read a number at any address, aligned or not."""
    long: int64_t
    short: int32_t
    if wide:
        memcpy(cython.address(long), data + 8 * index, 8)
        return long
    memcpy(cython.address(short), data + 4 * index, 4)
    return short


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_null(bits: Bytes, index: int64_t) -> cython.bint:
    return bits != cython.NULL and not (bits[index >> 3] >> (index & 7)) & 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _span(column: cython.pointer(Binary), row: int64_t, first: cython.pointer(int64_t)) -> int64_t:
    """Return the length of an entry and set its beginning; -1 for null, -2 for wrong offsets."""
    at: int64_t = column.start + row
    last: int64_t
    first[0] = 0
    if not column.there or _is_null(column.bits, at):
        return NULL_SPAN
    first[0] = _integer(column.offsets, column.wide, at)
    last = _integer(column.offsets, column.wide, at + 1)
    if first[0] < 0 or last < first[0] or last > column.size:
        return BAD_SPAN
    return last - first[0]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _reaches(items: int64_t, start: int64_t, count: int64_t) -> cython.bint:
    """Return whether a buffer of `items` has `count` of them from `start` on."""
    return 0 <= start <= items and 0 <= count <= items - start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_utf8(data: Bytes, size: int64_t) -> cython.bint:
    """Return whether Python's strict decoder would accept the bytes."""
    at: int64_t = 0
    more: int64_t
    low: cython.int
    high: cython.int
    while at < size:
        byte: cython.int = data[at]
        at += 1
        if byte < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if byte < 0xC2 or byte > 0xF4:
            return False
        if byte < 0xE0:
            more = 1
        elif byte < 0xF0:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        else:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        if more > size - at:
            return False
        while more > 0:
            if data[at] < low or data[at] > high:
                return False
            low = 0x80
            high = 0xBF
            at += 1
            more -= 1
    return True


@cython.final
@cython.cclass
class ColumnEncoder:
    """Appends the rows of `columns` to batches, in order, one open batch per partition.

    The constructor checks all rows, so nothing is sent if one row is invalid: offsets outside of
    the data, partitions that the topic doesn't have, times before -1 ms, headers without a key
    (`InvalidRowError`), records above `max_record_bytes` (`RecordTooLargeError`).
    """

    rows: int64_t
    partition_count: int64_t
    limit: int64_t
    ignore_keys: cython.bint
    columns: object
    held: list
    builders: dict
    turn: _Turn
    slots: cython.pointer(Slot)
    keys: Binary
    values: Binary
    lists: Binary
    header_keys: Binary
    header_values: Binary
    partitions: Numbers
    timestamps: Numbers
    row: int64_t
    at_partition: int64_t
    size: int64_t
    added: int64_t
    sticky_bytes: int64_t

    def __cinit__(self):
        self.slots = cython.NULL
        self.rows = self.partition_count = 0

    def __dealloc__(self):
        free(self.slots)

    def __init__(
        self,
        columns,
        partition_count: int64_t,
        max_record_bytes: int64_t,
        *,
        ignore_keys: cython.bint = False,
    ):
        row: int64_t
        if self.held is not None:
            raise IllegalStateError("an encoder can't be initialised twice")
        if partition_count < 1 or partition_count > LARGEST_BATCH:
            raise ConfigurationError(f"a topic can't have {partition_count} partitions")
        self.held = []
        self.builders = {}
        self.turn = _Turn()
        self.columns = columns
        self.limit = min(max_record_bytes, RECORD_LIMIT)
        self.ignore_keys = ignore_keys
        self.partition_count = partition_count
        rows: int64_t = columns.count
        if rows < 0:
            raise InvalidRowError(f"the number of rows is {rows}")
        self.take_binary(cython.address(self.keys), columns.keys, rows)
        self.take_binary(cython.address(self.values), columns.values, rows)
        self.take_headers(columns.headers, rows)
        self.take_numbers(cython.address(self.partitions), columns.partitions, False, rows)
        self.take_numbers(cython.address(self.timestamps), columns.timestamps_ms, True, rows)
        self.slots = cython.cast(cython.pointer(Slot), calloc(partition_count, cython.sizeof(Slot)))
        if not self.slots:
            raise MemoryError(f"no memory for {partition_count} partitions")
        with cython.nogil:
            row = self.first_bad(rows)
        if row >= 0:
            raise self.complaint(row)
        self.rows = rows

    @property
    def count(self) -> int:
        """Number of rows of the columns."""
        return self.rows

    def use(self, partition: int64_t, builder: BatchBuilder):
        """Write rows of `partition` to `builder`; return the rows in its previous batch."""
        slot: cython.pointer(Slot)
        piece = None
        if builder is None:
            raise TypeError("a partition needs a BatchBuilder")
        self.check_turn()
        if not 0 <= partition < self.partition_count:
            raise IndexError(f"partition {partition} of {self.partition_count}")
        slot = self.slots + partition
        if slot.count:
            piece = Piece(partition, slot.first, slot.count)
        slot.first = slot.count = 0
        turn: _Turn = builder.seize()
        busy: cython.bint = turn is not None and turn.running
        if not busy:
            builder.turn = self.turn
            builder.batch.owner = cython.cast(cython.p_void, self.turn)
        builder.leave(turn)
        builder.check(busy)
        left: BatchBuilder = self.builders.get(partition)
        if left is not None and left is not builder:
            # The owner of the previous batch may complete it while this encoder continues
            # elsewhere.
            turn = left.seize()
            if turn is self.turn:
                left.turn = None
                left.batch.owner = cython.NULL
            left.leave(turn)
        # The pointer refers to the builder, which lives as long as it is in the dictionary.
        slot.batch = cython.address(builder.batch)
        self.builders[partition] = builder
        return piece

    def pieces(self) -> list:
        """Return the rows in the current batches that weren't returned yet, by partition."""
        found: list = []
        slot: cython.pointer(Slot)
        partition: int64_t
        self.check_turn()
        for partition in range(self.partition_count):
            slot = self.slots + partition
            if slot.count:
                found.append(Piece(partition, slot.first, slot.count))
                slot.count = 0
        return found

    def encode(
        self,
        start: int64_t,
        stop: int64_t,
        *,
        timestamp_ms,
        room: int64_t,
        sticky: int64_t = -1,
        sticky_room: int64_t = 0,
        places=None,
    ):
        """Append rows `start` to `stop`, up to the first one that doesn't fit; see `StopReason`.

        `timestamp_ms` is for rows without one, `room` the number of bytes that may be added,
        `sticky` the partition of rows without key and partition, until `sticky_room` bytes went
        there. `places` are writable integers (format `i`), one for each row: the partition of each
        appended row is written there.
        """
        reason: cython.int = GROW
        time: int64_t
        noted: cython.pointer(int32_t) = cython.NULL
        view: memoryview
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows {start} to {stop} of {self.rows}")
        if sticky >= self.partition_count:
            raise IndexError(f"partition {sticky} of {self.partition_count}")
        try:
            time = timestamp_ms
        except OverflowError:
            time = -2
        if time < -1:
            raise ValueError(f"timestamp_ms is {timestamp_ms}, not 0 to 2^63-1 (or -1 for none)")
        if places is not None:
            view = memoryview(places)
            if view.readonly or view.format != "i" or not view.contiguous:
                raise TypeError("places must be writable integers (format i)")
            if PyMemoryView_GET_BUFFER(view).len < 4 * (stop - start):
                raise IndexError(f"{len(view)} places for rows {start} to {stop}")
            noted = cython.cast(cython.pointer(int32_t), PyMemoryView_GET_BUFFER(view).buf)
        self.begin()
        self.row = start
        self.added = self.sticky_bytes = 0
        while reason == GROW:
            with cython.nogil:
                reason = self.run(stop, time, room, sticky, sticky_room, noted, start)
            if reason == GROW and not self.grow():
                break
        self.end()
        if reason == GROW:
            _no_memory(self.size)
        if reason == BAD:
            raise self.complaint(self.row)
        return Encoded(
            self.row,
            _REASONS[reason],
            self.at_partition if reason in (BATCH, FULL) else -1,
            self.size if reason in (BATCH, ROOM) else 0,
            self.added,
            self.sticky_bytes,
        )

    @cython.cfunc
    def check_turn(self) -> cython.int:
        if self.turn is None or self.turn.running:
            raise IllegalStateError("another thread is using this encoder")
        return 0

    @cython.cfunc
    def begin(self) -> cython.int:
        """Keep all others from writing to this encoder's batches until `end`."""
        busy: cython.bint = self.turn is None
        if not busy:
            odradek_lock(cython.address(self.turn.mutex))
            busy = self.turn.running
            self.turn.running = True
            odradek_unlock(cython.address(self.turn.mutex))
        if busy:
            raise IllegalStateError("another thread is using this encoder")
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def end(self) -> cython.void:
        odradek_lock(cython.address(self.turn.mutex))
        self.turn.running = False
        odradek_unlock(cython.address(self.turn.mutex))

    @cython.cfunc
    @cython.exceptval(check=False)
    def grow(self) -> cython.bint:
        """Grow a batch: to its limit if enough rows follow to fill it."""
        batch: cython.pointer(Batch) = self.slots[self.at_partition].batch
        coming: int64_t = (self.rows - self.row) // self.partition_count
        return _grow(batch, batch.size + self.size, coming >= (batch.limit >> 1) // (self.size + 1))

    # Checks

    @cython.cfunc
    def take_buffer(self, buffer, size: cython.pointer(int64_t)) -> Bytes:
        """Hold a buffer for as long as this encoder lives."""
        view: memoryview = memoryview(buffer).cast("B")
        self.held.append(view)
        size[0] = PyMemoryView_GET_BUFFER(view).len
        if size[0] == 0:
            return cython.cast(Bytes, PyBytes_AS_STRING(_EMPTY))
        return cython.cast(Bytes, PyMemoryView_GET_BUFFER(view).buf)

    @cython.cfunc
    def take_binary(self, to: cython.pointer(Binary), column, rows: int64_t) -> cython.int:
        """Hold a binary column, and check that its offsets and bits suffice for its rows."""
        size: int64_t = 0
        to.there = False
        to.data = cython.cast(Bytes, PyBytes_AS_STRING(_EMPTY))
        to.size = 0
        to.bits = cython.NULL
        if column is None:
            return 0
        to.wide = column.wide
        to.start = column.start
        to.offsets = self.take_buffer(column.offsets, cython.address(size))
        size //= 8 if to.wide else 4
        if not _reaches(size, to.start, rows + 1 if rows else 0):
            raise self.complaint(-1)
        if column.validity is not None:
            to.bits = self.take_buffer(column.validity, cython.address(size))
            if not _reaches(8 * size, to.start, rows):
                raise self.complaint(-1)
        to.data = self.take_buffer(column.data, cython.address(to.size))
        to.there = True
        return 0

    @cython.cfunc
    def take_headers(self, column, rows: int64_t) -> cython.int:
        """Hold the header columns; the lists are read as if their entries were bytes."""
        size: int64_t = 0
        entries: int64_t
        self.lists.there = False
        if column is None:
            return 0
        entries = column.entries
        if entries < 0:
            raise self.complaint(-1)
        self.lists.wide = column.wide
        self.lists.start = column.start
        self.lists.bits = cython.NULL
        self.lists.size = entries
        self.lists.offsets = self.take_buffer(column.offsets, cython.address(size))
        size //= 8 if self.lists.wide else 4
        if not _reaches(size, self.lists.start, rows + 1 if rows else 0):
            raise self.complaint(-1)
        if column.validity is not None:
            self.lists.bits = self.take_buffer(column.validity, cython.address(size))
            if not _reaches(8 * size, self.lists.start, rows):
                raise self.complaint(-1)
        self.take_binary(cython.address(self.header_keys), column.keys, entries)
        self.take_binary(cython.address(self.header_values), column.values, entries)
        self.lists.there = True
        return 0

    @cython.cfunc
    def take_numbers(
        self, to: cython.pointer(Numbers), column, wide: cython.bint, rows: int64_t
    ) -> cython.int:
        """Hold a column of integers, and check that it is long enough for its rows."""
        size: int64_t = 0
        to.there = False
        to.bits = cython.NULL
        if column is None:
            return 0
        to.start = column.start
        to.data = self.take_buffer(column.data, cython.address(size))
        if not _reaches(size // (8 if wide else 4), to.start, rows):
            raise self.complaint(-1)
        if column.validity is not None:
            to.bits = self.take_buffer(column.validity, cython.address(size))
            if not _reaches(8 * size, to.start, rows):
                raise self.complaint(-1)
        to.there = True
        return 0

    @cython.cfunc
    def complaint(self, row: int64_t):
        """Let the plain encoder raise the error: about a row, or about the columns' buffers."""
        try:
            rows = Rows(self.columns, self.partition_count, self.limit)
            if row >= 0:
                rows.get(row)
        except KafkaError as error:
            return error
        return InvalidRowError("the columns changed while they were read")

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def first_bad(self, rows: int64_t) -> int64_t:
        """Return the first row that can't become a record, -1 if all can."""
        row: Row
        index: int64_t
        for index in range(rows):
            if not self.measure(index, cython.address(row)):
                return index
            if row.headers > 1 and not self.names_are_text(row.header_first, row.header_last):
                return index
        return -1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def measure(self, index: int64_t, row: cython.pointer(Row)) -> cython.bint:
        """Read and check the positions of a row's parts; return whether it can become a record."""
        at: int64_t
        row.key = _span(cython.address(self.keys), index, cython.address(row.key_at))
        row.value = _span(cython.address(self.values), index, cython.address(row.value_at))
        if row.key == BAD_SPAN or row.value == BAD_SPAN:
            return False
        row.most = RECORD_OVERHEAD + _length(row.key) + _length(row.value)
        row.headers = 1
        row.header_first = row.header_last = 0
        if self.lists.there and not self.measure_headers(index, row):
            return False
        if row.most > self.limit:
            return False
        row.partition = -1
        if self.partitions.there:
            at = self.partitions.start + index
            if not _is_null(self.partitions.bits, at):
                row.partition = _integer(self.partitions.data, False, at)
                if row.partition < 0 or row.partition >= self.partition_count:
                    return False
        row.timed = False
        if self.timestamps.there:
            at = self.timestamps.start + index
            if not _is_null(self.timestamps.bits, at):
                row.timed = True
                row.time = _integer(self.timestamps.data, True, at)
                if row.time < -1:
                    return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def measure_headers(self, index: int64_t, row: cython.pointer(Row)) -> cython.bint:
        """Add up the size of a row's headers; return whether all of them can be sent."""
        name: int64_t
        value: int64_t
        place: int64_t = 0
        at: int64_t
        count: int64_t = _span(cython.address(self.lists), index, cython.address(row.header_first))
        if count == BAD_SPAN:
            return False
        if count <= 0:
            return True
        at = row.header_first
        row.header_last = at + count
        row.headers = varint_size(count)
        while at < row.header_last:
            name = _span(cython.address(self.header_keys), at, cython.address(place))
            value = _span(cython.address(self.header_values), at, cython.address(place))
            if name < 0 or value == BAD_SPAN:
                return False
            row.headers += varint_size(name) + name + varint_size(value) + _length(value)
            row.most += HEADER_OVERHEAD + name + _length(value)
            if row.most > self.limit:
                # at once, because millions of rows may refer to the same millions of headers
                return False
            at += 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def names_are_text(self, first: int64_t, last: int64_t) -> cython.bint:
        """Return whether the names of some headers are valid UTF-8."""
        size: int64_t
        place: int64_t = 0
        while first < last:
            size = _span(cython.address(self.header_keys), first, cython.address(place))
            if size < 0 or not _is_utf8(self.header_keys.data + place, size):
                return False
            first += 1
        return True

    # Rows into batches

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def run(
        self,
        stop: int64_t,
        given_time: int64_t,
        room: int64_t,
        sticky: int64_t,
        sticky_room: int64_t,
        noted: cython.pointer(int32_t),
        noted_from: int64_t,
    ) -> cython.int:
        """Append from `self.row` on and return why it stopped.

        GROW asks for memory and another call.
        """
        rows: Row[8]
        row: cython.pointer(Row)
        here: int64_t = 0
        ahead: int64_t = 0
        body: int64_t
        size: int64_t
        time: int64_t
        keyless: cython.bint
        slot: cython.pointer(Slot)
        batch: cython.pointer(Batch)
        owner: cython.p_void = cython.cast(cython.p_void, self.turn)
        while self.row < stop:
            if here == ahead:
                here = 0
                ahead = self.look_ahead(rows, min(stop - self.row, AHEAD))
                if ahead == 0:
                    return BAD
            row = cython.address(rows[here])
            keyless = row.partition < 0
            if keyless:
                if sticky < 0 or self.sticky_bytes >= sticky_room:
                    return STICKY
                row.partition = sticky
            self.size = row.most
            if row.most > room - self.added:
                return ROOM
            self.at_partition = row.partition
            slot = self.slots + row.partition
            batch = slot.batch
            if batch == cython.NULL or batch.closed or batch.owner != owner:
                return BATCH
            if slot.count != 0 and slot.first + slot.count != batch.count:
                return BATCH
            time = row.time if row.timed else given_time
            body = _body_size(batch, row.key, row.value, row.headers, time)
            size = varint_size(body) + body
            if not _fits(batch, size) or _is_too_far(batch, time):
                return BATCH
            if size > batch.capacity - batch.size:
                self.size = size
                return GROW
            if not self.put_row(batch, row, body, time):
                return BAD
            if slot.count == 0:
                slot.first = batch.count - 1
            slot.count += 1
            self.added += size
            if keyless:
                self.sticky_bytes += size
            if noted != cython.NULL:
                noted[self.row - noted_from] = cython.cast(int32_t, row.partition)
            self.row += 1
            here += 1
            if batch.size >= batch.limit:
                return FULL
        return DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def look_ahead(self, rows: cython.pointer(Row), most: int64_t) -> int64_t:
        """Measure some rows and hash their keys; return how many are valid.

        So the hashes of several rows are computed at once; a single one would only wait for its own
        multiplications.
        """
        found: int64_t = 0
        row: cython.pointer(Row)
        while found < most:
            row = rows + found
            if not self.measure(self.row + found, row):
                break
            if row.partition < 0 and row.key >= 0 and not self.ignore_keys:
                row.partition = (
                    _murmur2(self.keys.data + row.key_at, row.key) & 0x7FFFFFFF
                ) % cython.cast(uint32_t, self.partition_count)
            found += 1
        return found

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def put_row(
        self, batch: cython.pointer(Batch), row: cython.pointer(Row), body: int64_t, time: int64_t
    ) -> cython.bint:
        """Write a record into allocated memory; return false if its columns changed meanwhile."""
        at: cython.pointer(uint8_t) = _begin(batch, body, time)
        end: cython.pointer(uint8_t) = batch.data + batch.size + varint_size(body) + body
        at = _put(batch, at, self.keys.data + row.key_at, row.key, self.keys.size - row.key_at)
        at = _put(
            batch, at, self.values.data + row.value_at, row.value, self.values.size - row.value_at
        )
        if row.headers == 1:
            at[0] = 0
            at += 1
        else:
            at = self.put_headers(batch, at, end, row.header_first, row.header_last)
            if at == cython.NULL:
                return False
        _end(batch, at, time)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_headers(
        self,
        batch: cython.pointer(Batch),
        at: cython.pointer(uint8_t),
        end: cython.pointer(uint8_t),
        first: int64_t,
        last: int64_t,
    ) -> cython.pointer(uint8_t):
        """Write headers that were measured before; return NULL if they no longer end at `last`."""
        name: int64_t
        value: int64_t
        name_at: int64_t = 0
        value_at: int64_t = 0
        at = put_varint(at, last - first)
        while first < last:
            name = _span(cython.address(self.header_keys), first, cython.address(name_at))
            value = _span(cython.address(self.header_values), first, cython.address(value_at))
            if name < 0 or value == BAD_SPAN:
                return cython.NULL
            if varint_size(name) + name + varint_size(value) + _length(value) > end - at:
                return cython.NULL
            at = _put(
                batch,
                at,
                self.header_keys.data + name_at,
                name,
                self.header_keys.size - name_at,
            )
            at = _put(
                batch,
                at,
                self.header_values.data + value_at,
                value,
                self.header_values.size - value_at,
            )
            first += 1
        return at if at == end else cython.NULL
