"""Compute a digest of a set of rows, independent of their order and their division into batches.

In: Arrow batches with the columns that are written. Out: 64 bits for each batch, to be added up
modulo 2**64. Each row is hashed separately and hashes are summed, because a shuffle may deliver the
same rows in another order when it runs again. It finds accidents, not forgeries: it isn't
cryptographic. The result is stored in the cluster and compared by later releases: `VERSION` changes
with anything that changes it. Must not: make Python objects of rows: the record kernel, or else
numpy, works on Arrow's buffers, eight bytes at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek import record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Hashes = np.ndarray[Any, np.dtype[np.uint64]]

VERSION = 1
MASK = (1 << 64) - 1
PIECE = 256 << 10
"""Bytes hashed at a time, so that numpy's arrays (eight bytes for each of them) stay in a core's
cache, which halves the time. The digest doesn't depend on it.
"""
WHOLE, SPREAD, MIX = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93
"""Odd multipliers: from the golden ratio, from xxHash (second prime), and from rrmxmx."""
NULL = 0xA0761D6478BD642F
"""Hash of a null; no empty value has it."""


def digest(batch: pa.RecordBatch) -> int:
    """Return the sum of the hashes of a batch's rows, independent of the order of columns."""
    rows = batch.num_rows
    step = max(1, rows * PIECE // max(PIECE, batch.nbytes))
    return sum(_digest(batch.slice(at, step)) for at in range(0, rows, step)) & MASK


def _digest(batch: pa.RecordBatch) -> int:
    import numpy as np

    rows = np.zeros(batch.num_rows, np.uint64)
    for name in sorted(batch.schema.names):
        salt = int.from_bytes(name.encode()[:8].ljust(8, b"\0"), "little")
        rows = _mixed((rows ^ np.uint64(salt)) + _hashes(batch.column(name)))
    return int(rows.sum(dtype=np.uint64))


def _mixed(hashes: Hashes) -> Hashes:
    """Mix the bits of each hash in place: each input bit affects all output bits.

    Without mixing, the sums of different rows' hashes could be equal.
    """
    import numpy as np

    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(MIX)
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _hashes(array: Any) -> Hashes:
    """Hash each entry of a column."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    t = pa.types
    kind = array.type
    if t.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if t.is_integer(kind):
        found = _mixed(pc.fill_null(array, 0).to_numpy().astype(np.uint64) * np.uint64(WHOLE))
    elif t.is_list(kind) or t.is_large_list(kind):
        found = _lists(array)
    else:
        found = _texts(array)
    if array.null_count:
        found = np.where(pc.is_null(array).to_numpy(zero_copy_only=False), np.uint64(NULL), found)
    return found


def _offsets(array: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the offset of each entry in the array's data or children, and the last entry's end."""
    import numpy as np
    import pyarrow as pa

    t = pa.types
    wide = t.is_large_binary(array.type) or t.is_large_string(array.type)
    wide = wide or t.is_large_list(array.type)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _texts(array: Any) -> Hashes:
    """Hash binary or string entries in words of eight bytes, the last one padded with zeros.

    The compiled `text_hashes` returns the same hashes, four to nine times as fast.
    """
    import numpy as np
    import pyarrow as pa

    t = pa.types
    if t.is_binary_view(array.type) or t.is_string_view(array.type):
        array = array.cast(pa.large_binary())
    if not len(array):
        return np.zeros(0, np.uint64)
    offsets = _offsets(array)
    begin, end = int(offsets[0]), int(offsets[-1])
    source = array.buffers()[2]
    whole = np.frombuffer(b"" if source is None else source, np.uint8)
    if record.text_hashes is not None:
        found = np.empty(len(array), np.uint64)
        record.text_hashes(whole, offsets, found)
        return found
    data = whole[begin:end]
    lengths = np.diff(offsets)
    if (lengths == lengths[0]).all():
        sums = _table(data, len(array), int(lengths[0]))
    else:
        sums = _words(data, offsets - begin, lengths)
    return _mixed(sums + lengths.astype(np.uint64) * np.uint64(WHOLE))


def _table(data: Any, count: int, length: int) -> Hashes:
    """Hash entries of equal length as a table of words; a row's last word is partial or empty."""
    import numpy as np

    width = (length >> 3) + 1
    table = np.zeros((count, width * 8), np.uint8)
    table[:, :length] = data.reshape(count, length)
    words = table.view("<u8")
    words += np.arange(1, width + 1, dtype=np.uint64) * np.uint64(SPREAD)
    sums: Hashes = _mixed(words).sum(axis=1, dtype=np.uint64)
    return sums


def _words(data: Any, offsets: Any, lengths: Any) -> Hashes:
    """Hash entries of different lengths: hash all words at once, then add them up by entry."""
    import numpy as np

    padded = np.zeros(len(data) + 8, np.uint8)  # words may extend beyond the last byte
    padded[: len(data)] = data
    counts = (lengths >> 3) + 1
    firsts = np.cumsum(counts) - counts
    place = np.arange(int(counts.sum()), dtype=np.int64)
    place -= np.repeat(firsts, counts)
    words = np.ndarray((len(data) + 1,), "<u8", padded, strides=(1,))
    found = words[np.repeat(offsets[:-1], counts) + (place << 3)]
    rest = (lengths & 7).astype(np.uint64)
    found[firsts + counts - 1] &= (np.uint64(1) << (rest << np.uint64(3))) - np.uint64(1)
    place += 1
    found += place.view(np.uint64) * np.uint64(SPREAD)
    return np.add.reduceat(_mixed(found), firsts)


def _lists(array: Any) -> Hashes:
    """Hash lists of headers: each pair with its index in the list."""
    import numpy as np

    offsets = _offsets(array)
    begin, end = int(offsets[0]), int(offsets[-1])
    lengths = np.diff(offsets)
    found = _mixed(lengths.astype(np.uint64) + np.uint64(WHOLE))
    if end == begin:
        return _mixed(found)
    pairs = array.values.slice(begin, end - begin)
    children = dict(zip([f.name for f in pairs.type], pairs.flatten(), strict=True))
    hashes = _mixed(_hashes(children["key"]) * np.uint64(SPREAD) + _hashes(children["value"]))
    place = np.arange(end - begin, dtype=np.int64) - np.repeat(offsets[:-1] - begin, lengths)
    hashes = _mixed(hashes + (place.astype(np.uint64) + np.uint64(1)) * np.uint64(SPREAD))
    sums = np.concatenate(([np.uint64(0)], np.cumsum(hashes, dtype=np.uint64)))
    return _mixed(found + sums[offsets[1:] - begin] - sums[offsets[:-1] - begin])
