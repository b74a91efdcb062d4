"""Record batches: the seam that chooses who decodes and encodes them.

In: `ODRADEK_KERNEL`: `native`, `python`, or unset for native where it is built. Out: `decode`,
`BatchBuilder` and the name of what runs. All other rooms import from here, so a faster kernel
changes nothing for them. Must not import pyarrow: `record/arrow.py` does, on its first call.
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
        """Return a view of the same bytes that another thread may use.

        Views that were sliced from one another share a count of themselves, which CPython changes
        without a lock (python/cpython#127716): if two threads have such views, both may lose their
        memory. The kernel's view refers to the same memory, this one to a copy.
        """
        return memoryview(bytes(view))

    def decode(buffer: memoryview, **options: Any) -> DecodedRecords:
        """Decode in plain Python, and say once that it is slow unless that was asked for."""
        kernel_sources.warn_once(_asked)
        return reference.decode(buffer, **options)

    def arrow_batch(columns: RecordColumns, wanted: bytes, topic: str, partition: int) -> None:
        """Leave it to pyarrow."""

    def microseconds(milliseconds: IntBuffer, start: int, count: int) -> None:
        """Leave it to pyarrow."""

    def wide_types(types: ByteBuffer, start: int, count: int) -> None:
        """Leave it to pyarrow."""

    def pool_state() -> PoolState:
        """There is no pool: Python's own memory is used."""
        return PoolState()


text_hashes: Callable[[Any, Any, Any], None] | None = None
"""Where there is no kernel, `odradek.spark.sink.row_digest` has numpy do it."""
if DECODER == "native":
    from odradek.record import batch, kernel

    text_hashes = kernel.text_hashes
    batch.check_by(kernel.crc32c)


def column_reader(columns: bytes) -> ColumnReader | None:
    """Return a reader of the kernel for columns of this layout; None if it is unavailable."""
    made = _columns_kernel()
    return None if made is None else made(columns)


@cache
def _columns_kernel() -> type[ColumnReader] | None:
    if sys.byteorder != "little":
        return None  # it copies Avro's numbers without conversion
    if choose_kernel(_asked, kernel_sources.COLUMNS) == "python":
        kernel_sources.warn_once(_asked)
        return None
    from odradek.record.kernel_columns import ColumnReader

    return ColumnReader


def __getattr__(name: str) -> Any:
    """Import the sending half on its first use: consumers start without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek.record import sending

    found = globals()[name] = getattr(sending, name)
    return found
