"""Choose the decoder and encoder of record batches: compiled kernels or plain Python.

In: `ODRADEK_KERNEL`: `native`, `python`, or unset, which means native if it is built. Out:
`decode`, `BatchBuilder` and others, and the name of the implementation in use. Other packages
import these names from here, and work with each implementation. Must not: import pyarrow, as
`record/arrow.py` does when needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from odradek.record import kernel_sources
from odradek.record.batch import BatchHeader, batch_size, read_header
from odradek.record.columns import (
    BinaryColumn,
    ByteBuffer,
    DecodedRecords,
    HeaderColumn,
    IntBuffer,
    PoolState,
    RecordColumns,
)
from odradek.record.kernel_sources import choose_kernel, kernel_warning

if TYPE_CHECKING:
    from odradek.record.kernel_columns import ColumnReader
    from odradek.record.sending import (
        KERNEL,
        BatchBuilder,
        ColumnEncoder,
        Encoded,
        InvalidRowError,
        Notes,
        OpenBatches,
        Piece,
        Room,
        SentBinary,
        SentColumns,
        SentHeaders,
        SentNumbers,
        StopReason,
        build_reports,
        estimate_record_size,
        gather,
        murmur2,
        only_bytes,
        partition_for_key,
    )

__all__ = [
    "KERNEL",
    "BatchBuilder",
    "BatchHeader",
    "BinaryColumn",
    "ColumnEncoder",
    "DecodedRecords",
    "Encoded",
    "HeaderColumn",
    "InvalidRowError",
    "Notes",
    "OpenBatches",
    "Piece",
    "PoolState",
    "RecordColumns",
    "Room",
    "SentBinary",
    "SentColumns",
    "SentHeaders",
    "SentNumbers",
    "StopReason",
    "apart",
    "arrow_batch",
    "batch_size",
    "become",
    "blanks",
    "build_reports",
    "build_rows",
    "collectable",
    "column_reader",
    "decode",
    "estimate_record_size",
    "gather",
    "kernel_warning",
    "microseconds",
    "murmur2",
    "only_bytes",
    "partition_for_key",
    "pool_state",
    "read_as_slots",
    "read_header",
    "survey_batches",
    "text_hashes",
    "wide_types",
]


_asked = os.environ.get("ODRADEK_KERNEL")
DECODER = choose_kernel(_asked, kernel_sources.DECODER)

if TYPE_CHECKING or DECODER == "native":
    from odradek.record.kernel import (
        apart,
        arrow_batch,
        become,
        blanks,
        build_rows,
        collectable,
        decode,
        microseconds,
        pool_state,
        read_as_slots,
        survey_batches,
        wide_types,
    )
else:
    from odradek.record import reference
    from odradek.record.rows import become, blanks, build_rows, collectable, read_as_slots
    from odradek.record.survey import survey_batches

    def apart(view: memoryview) -> memoryview:
        """Return a view with the bytes of a view, for use in another thread.

        Views that were sliced from one another share a reference count, which CPython changes
        without a lock (python/cpython#127716): if two threads have such views, both may lose their
        memory. The kernel's function returns a view of that memory, this one a view of a copy.
        """
        return memoryview(bytes(view))

    def decode(buffer: memoryview, **options: Any) -> DecodedRecords:
        """Decode in plain Python; warn once that it is slow unless `ODRADEK_KERNEL` requests it."""
        kernel_sources.warn_once(_asked)
        return reference.decode(buffer, **options)

    def arrow_batch(columns: RecordColumns, wanted: bytes, topic: str, partition: int) -> None:
        """Return None, because without the kernel, pyarrow builds the batch."""

    def microseconds(milliseconds: IntBuffer, start: int, count: int) -> None:
        """Return None, because without the kernel, pyarrow converts the timestamps."""

    def wide_types(types: ByteBuffer, start: int, count: int) -> None:
        """Return None, because without the kernel, pyarrow converts the types."""

    def pool_state() -> PoolState:
        """Return an empty state, because without the kernel, there is no memory pool."""
        return PoolState()


text_hashes: Callable[[Any, Any, Any], None] | None = None
"""Kernel function that hashes texts; if None, `odradek.spark.sink.row_digest` uses numpy."""
if DECODER == "native":
    from odradek.record import batch, kernel

    text_hashes = kernel.text_hashes
    batch.check_by(kernel.crc32c)


def column_reader(columns: bytes) -> ColumnReader | None:
    """Return the kernel's reader for columns of this layout; None if it is unavailable."""
    made = _columns_kernel()
    return None if made is None else made(columns)


@cache
def _columns_kernel() -> type[ColumnReader] | None:
    if sys.byteorder != "little":
        return None  # the kernel doesn't convert byte order
    if choose_kernel(_asked, kernel_sources.COLUMNS) == "python":
        kernel_sources.warn_once(_asked)
        return None
    from odradek.record.kernel_columns import ColumnReader

    return ColumnReader


def __getattr__(name: str) -> Any:
    """Import the encoders on their first use, because consumers don't need them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek.record import sending

    found = globals()[name] = getattr(sending, name)
    return found
