/* C code of the kernels that Cython can't express: the digest of their sources, and CRC-32C by the
   processor's instruction if it has one. Only the marked functions are compiled for more than the
   baseline, and they run only after a check of the processor: a binary that was built elsewhere
   must never fail with an illegal instruction. */
#ifndef ODRADEK_NATIVE_H
#define ODRADEK_NATIVE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap */
#endif
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef ODRADEK_DIGEST
#define ODRADEK_DIGEST "unknown"
#endif

/* Found in the binary by setup.py, read by the package at import. */
static const char odradek_digest[] = "odradek-kernel-sources:" ODRADEK_DIGEST;

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#if defined(__clang__) && __clang_major__ >= 14 /* a separate feature, off in zig's baseline */
#define ODRADEK_CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define ODRADEK_CRC_TARGET __attribute__((target("sse4.2")))
#endif
#define ODRADEK_CRC_64(crc, word) _mm_crc32_u64((crc), (word))
#define ODRADEK_CRC_8(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
/* By cpuid and not __builtin_cpu_supports, whose table some linkers don't bring. */
static int odradek_has_crc(void) {
    unsigned int a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#if defined(__clang__)
#define ODRADEK_CRC_TARGET __attribute__((target("crc")))
#else
#define ODRADEK_CRC_TARGET __attribute__((target("+crc")))
#endif
ODRADEK_CRC_TARGET static inline uint64_t odradek_arm_64(uint64_t crc, uint64_t word) {
    __asm__("crc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
ODRADEK_CRC_TARGET static inline uint64_t odradek_arm_8(uint64_t crc, uint8_t byte) {
    __asm__("crc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}
#define ODRADEK_CRC_64(crc, word) odradek_arm_64((crc), (word))
#define ODRADEK_CRC_8(crc, byte) odradek_arm_8((crc), (byte))
static int odradek_has_crc(void) { return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; }
#else
static int odradek_has_crc(void) { return 0; }
#endif

/* Mutexes for Pythons without a GIL; with a GIL they do nothing. A thread that holds one runs no
   foreign code, and may only take a second one in this order: a builder's, that of an encoder's
   turn, the pool's. */
#ifdef Py_GIL_DISABLED
typedef PyMutex odradek_mutex;
#define odradek_lock(mutex) PyMutex_Lock(mutex)
#define odradek_unlock(mutex) PyMutex_Unlock(mutex)
#define odradek_free_threads 1
#else
typedef char odradek_mutex;
#define odradek_lock(mutex) ((void)(mutex))
#define odradek_unlock(mutex) ((void)(mutex))
#define odradek_free_threads 0
#endif

/* Arrow's C data interface; its specification defines the structure. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

/* Head of a record batch that Arrow uses: the buffers it refers to. The columns written for it follow. */
typedef struct {
    int64_t capacity; /* bytes, including those after this structure */
    int views;
    Py_buffer view[9];
    struct ArrowArray column[7];
    struct ArrowArray *columns[7];
    const void *buffers[7][3];
    const void *none[1];
} odradek_lent;

/* Each kernel has a separate pool; this is its mutex. */
static odradek_mutex odradek_pool;

/* From 3.14 on a tuple caches its hash, with -1 for an unknown one; PyType_GenericAlloc sets it to
   zero. */
#if PY_VERSION_HEX >= 0x030E0000
#define odradek_hash_unknown(row) (((PyTupleObject *)(row))->ob_hash = -1)
#else
#define odradek_hash_unknown(row) ((void)(row))
#endif

/* Create a tuple of this class, which must have only items; the caller fills all of them at once.
   The garbage collector doesn't track it. */
static inline PyObject *odradek_new_tuple(PyTypeObject *kind, Py_ssize_t items) {
    PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, kind, items);
    if (made != NULL)
        odradek_hash_unknown(made);
    return (PyObject *)made;
}

/* Slots are read without a check of the tuple's size, but `tuple.__new__` creates a tuple of any
   class with any number of items. So memory for the items of the longest class is always allocated;
   missing items are NULL, which reads as a missing attribute. */
static Py_ssize_t odradek_most_items;

static PyObject *odradek_long_tuple(PyTypeObject *kind, Py_ssize_t items) {
    Py_ssize_t most = items < odradek_most_items ? odradek_most_items : items;
    PyObject *made = PyType_GenericAlloc(kind, most);
    if (made != NULL)
        Py_SET_SIZE((PyVarObject *)made, items);
    return made;
}

/* Let objects of this class be allocated that way. Subclasses don't inherit this. */
static void odradek_make_long(PyObject *kind) {
    ((PyTypeObject *)kind)->tp_alloc = odradek_long_tuple;
}

/* Let the fields of a named tuple's class be read like slots: the interpreter does so in a tenth of
   the time that a property takes. Their descriptors are never freed. */
static int odradek_read_as_slots(PyObject *kind, PyObject *names) {
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    PyMemberDef *members = PyMem_Calloc(count + 1, sizeof(PyMemberDef));
    if (members == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (odradek_most_items < count)
        odradek_most_items = count;
    odradek_make_long(kind);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i), *reader;
        const char *text = PyUnicode_AsUTF8(name);
        char *copy = text == NULL ? NULL : PyMem_Malloc(strlen(text) + 1);
        int failed;
        if (copy == NULL) {
            if (text != NULL)
                PyErr_NoMemory();
            return -1;
        }
        members[i].name = strcpy(copy, text);
        members[i].type = T_OBJECT_EX;
        members[i].offset = offsetof(PyTupleObject, ob_item) + i * sizeof(PyObject *);
        members[i].flags = READONLY;
        reader = PyDescr_NewMember((PyTypeObject *)kind, &members[i]);
        if (reader == NULL)
            return -1;
        failed = PyObject_SetAttr(kind, name, reader);
        Py_DECREF(reader);
        if (failed)
            return -1;
    }
    return 0;
}

/* Return the position of a slot in a class's objects, in bytes; 0 if the name isn't a slot. Looking
   an attribute up by name takes ten times as long as reading or filling a slot. */
static Py_ssize_t odradek_slot(PyObject *kind, PyObject *name) {
    PyObject *found = PyObject_GetAttr(kind, name);
    Py_ssize_t at = 0;
    if (found == NULL) {
        PyErr_Clear();
        return 0;
    }
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && PyType_Check(kind) &&
        PyType_IsSubtype((PyTypeObject *)kind, PyDescr_TYPE(found))) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX && !(member->flags & READONLY))
            at = member->offset;
    }
    Py_DECREF(found);
    return at;
}

/* Return the content of a slot, or else the attribute. Without the GIL another thread might remove
   the content in between. */
static inline PyObject *odradek_slot_get(PyObject *of, Py_ssize_t at, PyObject *name) {
#ifndef Py_GIL_DISABLED
    PyObject *found = at ? *(PyObject **)((char *)of + at) : NULL;
    if (found != NULL) {
        Py_INCREF(found);
        return found;
    }
#endif
    return PyObject_GetAttr(of, name);
}

/* Fill a slot of a new object, to which no other references exist. */
static inline void odradek_slot_fill(PyObject *of, Py_ssize_t at, PyObject *value) {
    Py_INCREF(value);
    *(PyObject **)((char *)of + at) = value;
}

/* One lane of this many bytes in each of three independent streams hides the instruction's
   latency of three cycles; tables that append n zero bytes join their results.
   Long lanes are for memory that isn't in the processor's cache, like bytes just read from a
   socket: the prefetcher needs long streams, and lanes of 1344 bytes are too short (6 GB/s, not 14). */
#define ODRADEK_LANES 3
#define ODRADEK_LONGEST 8064
#define ODRADEK_LONG 1344 /* a sixth of it: see odradek_crc_prepare */
#define ODRADEK_SHORT 256

static uint32_t odradek_crc_tables[8][256];
static uint32_t odradek_crc32_tables[8][256]; /* of zlib's polynomial, for old message formats */
static uint32_t odradek_crc_skip[ODRADEK_LANES][2][4][256]; /* lane, one or two, byte, value */
static int odradek_crc_kind = -1; /* -1 not prepared, 0 tables, 1 instruction */

static void odradek_crc_tabulate(uint32_t tables[8][256], uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) ? (crc >> 1) ^ polynomial : crc >> 1;
        tables[0][i] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = tables[table - 1][i];
            tables[table][i] = tables[0][crc & 255] ^ (crc >> 8);
        }
}

static uint32_t odradek_crc_zeros(uint32_t crc, size_t count) {
    while (count--)
        crc = odradek_crc_tables[0][crc & 255] ^ (crc >> 8);
    return crc;
}

static inline uint32_t odradek_crc_skipped(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^
           table[3][crc >> 24];
}

/* Appending zeros is linear: the results for 32 single bits determine all others. */
static void odradek_crc_fill(uint32_t table[4][256], const uint32_t bits[32]) {
    for (int byte = 0; byte < 4; byte++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (i >> bit & 1)
                    crc ^= bits[8 * byte + bit];
            table[byte][i] = crc;
        }
}

/* Called at import, under the GIL, so that no thread computes before the tables are complete. */
static void odradek_crc_prepare(void) {
    uint32_t bits[32];
    if (odradek_crc_kind >= 0)
        return;
    odradek_crc_tabulate(odradek_crc_tables, 0x82F63B78u);
    odradek_crc_tabulate(odradek_crc32_tables, 0xEDB88320u);
    for (int lane = ODRADEK_LANES - 1; lane >= 0; lane--) {
        uint32_t(*once)[256] = odradek_crc_skip[lane][0];
        for (int bit = 0; bit < 32; bit++) {
            bits[bit] = (uint32_t)1 << bit;
            if (lane) /* the shorter ones byte by byte */
                bits[bit] = odradek_crc_zeros(bits[bit], lane == 1 ? ODRADEK_LONG : ODRADEK_SHORT);
            else
                for (int part = 0; part < ODRADEK_LONGEST / ODRADEK_LONG; part++)
                    bits[bit] = odradek_crc_skipped(odradek_crc_skip[1][0], bits[bit]);
        }
        odradek_crc_fill(once, bits);
        for (int bit = 0; bit < 32; bit++)
            bits[bit] = odradek_crc_skipped(once, bits[bit]);
        odradek_crc_fill(odradek_crc_skip[lane][1], bits);
    }
    odradek_crc_kind = odradek_has_crc();
}

static uint32_t odradek_crc_of(uint32_t tables[8][256], const uint8_t *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^
              tables[0][data[7]];
    }
    for (; size; data++, size--)
        crc = tables[0][(crc ^ *data) & 255] ^ (crc >> 8);
    return ~crc;
}

static uint32_t odradek_crc_by_table(const uint8_t *data, size_t size) {
    return odradek_crc_of(odradek_crc_tables, data, size);
}

static inline uint32_t odradek_crc32(const uint8_t *data, size_t size) {
    return odradek_crc_of(odradek_crc32_tables, data, size);
}

#ifdef ODRADEK_CRC_64
ODRADEK_CRC_TARGET static inline uint64_t odradek_crc_lanes(
    uint64_t crc, const uint8_t **data, size_t *size, size_t lane, uint32_t skip[2][4][256]) {
    for (; *size >= 3 * lane; *data += 3 * lane, *size -= 3 * lane) {
        uint64_t first = crc, second = 0, third = 0, word;
        const uint8_t *at = *data, *end = at + lane;
        for (; at < end; at += 8) {
            memcpy(&word, at, 8);
            first = ODRADEK_CRC_64(first, word);
            memcpy(&word, at + lane, 8);
            second = ODRADEK_CRC_64(second, word);
            memcpy(&word, at + 2 * lane, 8);
            third = ODRADEK_CRC_64(third, word);
        }
        crc = odradek_crc_skipped(skip[1], (uint32_t)first) ^
              odradek_crc_skipped(skip[0], (uint32_t)second) ^ (uint32_t)third;
    }
    return crc;
}

ODRADEK_CRC_TARGET static uint32_t odradek_crc_by_instruction(const uint8_t *data, size_t size) {
    uint64_t crc = 0xFFFFFFFFu, word;
    crc = odradek_crc_lanes(crc, &data, &size, ODRADEK_LONGEST, odradek_crc_skip[0]);
    crc = odradek_crc_lanes(crc, &data, &size, ODRADEK_LONG, odradek_crc_skip[1]);
    crc = odradek_crc_lanes(crc, &data, &size, ODRADEK_SHORT, odradek_crc_skip[2]);
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        crc = ODRADEK_CRC_64(crc, word);
    }
    for (; size; data++, size--)
        crc = ODRADEK_CRC_8(crc, *data);
    return ~(uint32_t)crc;
}
#endif

static inline uint32_t odradek_crc32c(const uint8_t *data, size_t size) {
#ifdef ODRADEK_CRC_64
    if (odradek_crc_kind == 1)
        return odradek_crc_by_instruction(data, size);
#endif
    return odradek_crc_by_table(data, size);
}

/* Each response allocates and frees blocks of about a megabyte. malloc would keep them in its heap,
   where one small allocation above them prevents hundreds of megabytes from being returned to the
   system. So large blocks are mapped: freeing returns them at once, and growing moves pages instead
   of bytes. (Huge pages were tried: sometimes 50 % faster, sometimes 30 %, with more memory.) */
#if defined(__linux__)
#include <sys/mman.h>
#define ODRADEK_MAPPED ((size_t)128 << 10)

static inline void *odradek_map(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}
#else
#define ODRADEK_MAPPED (~(size_t)0)
#define odradek_map(size) NULL
#endif

/* Sizes from ODRADEK_MAPPED on are multiples of a page: the kernel's size classes. */
static inline void *odradek_block_take(size_t size) {
    return size < ODRADEK_MAPPED ? malloc(size) : odradek_map(size);
}

static inline void odradek_block_give(void *block, size_t size) {
#if defined(__linux__)
    if (size >= ODRADEK_MAPPED) {
        munmap(block, size);
        return;
    }
#endif
    (void)size;
    free(block);
}

/* If NULL is returned, the old block is unchanged; an old size of 0 means that there is none. */
static inline void *odradek_block_grow(void *block, size_t old, size_t size) {
    void *larger;
    if (!old || size < ODRADEK_MAPPED)
        return old ? realloc(block, size) : odradek_block_take(size);
#if defined(__linux__)
    if (old >= ODRADEK_MAPPED) {
        larger = mremap(block, old, size, MREMAP_MAYMOVE);
        return larger == MAP_FAILED ? NULL : larger;
    }
#endif
    larger = odradek_map(size);
    if (larger) {
        memcpy(larger, block, old);
        free(block);
    }
    return larger;
}

#endif
