"""Choose the encoder: the compiled kernel, or plain Python.

In: `ODRADEK_KERNEL`. Out: `BatchBuilder`, `ColumnEncoder`, `OpenBatches`. `odradek.record` exports
these names to all other packages, and imports this module on the first use of one of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from odradek.record import kernel_sources
from odradek.record.builder import estimate_record_size
from odradek.record.kernel_sources import choose_kernel
from odradek.record.sent_columns import (
    Encoded,
    InvalidRowError,
    Piece,
    SentBinary,
    SentColumns,
    SentHeaders,
    SentNumbers,
    StopReason,
)

__all__ = [
    "KERNEL",
    "BatchBuilder",
    "ColumnEncoder",
    "Encoded",
    "InvalidRowError",
    "Notes",
    "OpenBatches",
    "Piece",
    "Room",
    "SentBinary",
    "SentColumns",
    "SentHeaders",
    "SentNumbers",
    "StopReason",
    "build_reports",
    "estimate_record_size",
    "gather",
    "murmur2",
    "only_bytes",
    "partition_for_key",
]

_asked = os.environ.get("ODRADEK_KERNEL")
_encoder = choose_kernel(_asked, kernel_sources.ENCODER)
KERNEL = choose_kernel(_asked, kernel_sources.DECODER) if _encoder == "native" else "python"
"""Name of the decoder and encoder in use in this process; `odradek version` prints it."""

if TYPE_CHECKING:
    from odradek.record.builder import BatchBuilder
    from odradek.record.encoder import ColumnEncoder
    from odradek.record.key_hash import murmur2, partition_for_key
    from odradek.record.open_batches import Notes, OpenBatches, Room, build_reports
    from odradek.record.sent_columns import gather, only_bytes
elif _encoder == "native":
    from odradek.record.kernel_encode import (
        BatchBuilder,
        ColumnEncoder,
        Notes,
        OpenBatches,
        Room,
        build_reports,
        gather,
        murmur2,
        only_bytes,
        partition_for_key,
    )
else:
    from odradek.record import builder
    from odradek.record.encoder import ColumnEncoder
    from odradek.record.key_hash import murmur2, partition_for_key
    from odradek.record.open_batches import Notes, OpenBatches, Room, build_reports
    from odradek.record.sent_columns import gather, only_bytes

    class BatchBuilder(builder.BatchBuilder):
        """The builder in Python, which warns once if `ODRADEK_KERNEL` doesn't request it."""

        __slots__ = ()

        def __init__(self, *arguments: Any) -> None:
            kernel_sources.warn_once(_asked)
            super().__init__(*arguments)
