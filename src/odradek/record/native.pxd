# cython: language_level=3
"""Inline functions that the kernels share: encoded numbers, copies, the checksum.

Cimported by `kernel.py` and `kernel_encode.py` and compiled into each of them.
"""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "native.h" nogil:
    const char* odradek_digest
    void odradek_crc_prepare()
    uint32_t odradek_crc32c(const uint8_t* data, size_t size)
    uint32_t odradek_crc_by_table(const uint8_t* data, size_t size)
    uint32_t odradek_crc32(const uint8_t* data, size_t size)
    void* odradek_block_take(size_t size)
    void* odradek_block_grow(void* block, size_t old, size_t size)
    void odradek_block_give(void* block, size_t size)
    void odradek_hash_unknown(void* row)
    ctypedef struct odradek_mutex:
        pass
    odradek_mutex odradek_pool
    void odradek_lock(odradek_mutex* mutex)
    void odradek_unlock(odradek_mutex* mutex)
    const bint odradek_free_threads


cdef extern from "native.h":
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data
    ctypedef struct odradek_lent:
        int64_t capacity
        int views
        Py_buffer view[9]
        ArrowArray column[7]
        ArrowArray* columns[7]
        const void* buffers[7][3]
        const void* none[1]


cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)
    int PyGC_Disable()
    int PyGC_Enable()
    void PyObject_GC_UnTrack(object)
    void PyObject_GC_Track(object)
    bint PyObject_GC_IsTracked(object)
    bint PyObject_IS_GC(object)
    void Py_SET_TYPE(object, PyTypeObject* kind)
    bint Py_IsInitialized() nogil


cdef extern from "native.h":
    object odradek_new_tuple(PyTypeObject* kind, Py_ssize_t items)
    int odradek_read_as_slots(object kind, object names) except -1
    void odradek_make_long(object kind)
    Py_ssize_t odradek_slot(object kind, object name)
    object odradek_slot_get(object of, Py_ssize_t at, object name)
    void odradek_slot_fill(object of, Py_ssize_t at, object value)


cdef inline uint32_t get32(const uint8_t* at) noexcept nogil:
    """Read four bytes, big-endian."""
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline uint64_t get64(const uint8_t* at) noexcept nogil:
    """Read eight bytes, big-endian."""
    return (<uint64_t>get32(at) << 32) | get32(at + 4)


cdef inline uint64_t low64(const uint8_t* at) noexcept nogil:
    """Read eight bytes, little-endian: one load on a little-endian processor."""
    return (
        <uint64_t>at[0] | (<uint64_t>at[1] << 8) | (<uint64_t>at[2] << 16)
        | (<uint64_t>at[3] << 24) | (<uint64_t>at[4] << 32) | (<uint64_t>at[5] << 40)
        | (<uint64_t>at[6] << 48) | (<uint64_t>at[7] << 56)
    )


cdef inline void put32(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = value >> 24
    at[1] = (value >> 16) & 255
    at[2] = (value >> 8) & 255
    at[3] = value & 255


cdef inline void put64(uint8_t* at, uint64_t value) noexcept nogil:
    put32(at, <uint32_t>(value >> 32))
    put32(at + 4, <uint32_t>value)


cdef inline uint8_t* put_varint(uint8_t* at, int64_t value) noexcept nogil:
    """Write a zigzag number, up to ten bytes, into sufficient memory; return where it ends."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while rest >= 128:
        at[0] = <uint8_t>(rest | 128)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1


cdef inline int64_t varint_size(int64_t value) noexcept nogil:
    """Return the number of bytes that `put_varint` writes."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int64_t size = 1
    while rest >= 128:
        rest >>= 7
        size += 1
    return size


cdef inline void copy_near(
    uint8_t* to, const uint8_t* source, int64_t size, bint slack
) noexcept nogil:
    """Copy; short pieces in fixed steps of 32 bytes, which need no call and no loop over bytes.

    `slack`: at least 32 bytes behind both pieces may be read and written. What is written there
    is rubbish, to be overwritten by what comes next.
    """
    cdef int64_t at = 0
    if slack and size <= 256:
        while at < size:
            memcpy(to + at, source + at, 32)
            at += 32
    else:
        memcpy(to, source, size)
