"""Record batches: the seam that chooses who decodes and encodes them.

In: `ODRADEK_KERNEL`. Out: `decode`, `BatchBuilder` and the name of what runs. All other rooms
import from here, so a faster kernel changes nothing for them.
Must not import pyarrow: `record/arrow.py` does, on its first call.
"""

from __future__ import annotations

import os

from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.record import kernel_sources
from odradek.record.batch import BatchHeader, batch_size, read_header
from odradek.record.builder import BatchBuilder, estimate_record_size
from odradek.record.columns import BinaryColumn, DecodedRecords, HeaderColumn, RecordColumns
from odradek.record.encoder import ColumnEncoder
from odradek.record.murmur2 import murmur2, partition_for_key
from odradek.record.reference import decode
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
    "BatchHeader",
    "BinaryColumn",
    "ColumnEncoder",
    "DecodedRecords",
    "Encoded",
    "HeaderColumn",
    "InvalidRowError",
    "Piece",
    "RecordColumns",
    "SentBinary",
    "SentColumns",
    "SentHeaders",
    "SentNumbers",
    "StopReason",
    "batch_size",
    "choose_kernel",
    "decode",
    "estimate_record_size",
    "kernel_warning",
    "murmur2",
    "partition_for_key",
    "read_header",
]


def choose_kernel(asked: str | None) -> str:
    """Turn `ODRADEK_KERNEL` into what will run; asking for what isn't there is an error.

    Falling back in silence would make a benchmark or a production job slow without a word.
    """
    if not asked or asked == "python":
        return "python"
    if asked == "native":
        raise UnsupportedFeatureError(
            "ODRADEK_KERNEL=native, but this release has no native kernel; unset the variable "
            "or set it to python"
        )
    raise ConfigurationError(f"ODRADEK_KERNEL={asked!r}; known are native and python")


KERNEL = choose_kernel(os.environ.get("ODRADEK_KERNEL"))
"""What decodes and encodes in this process; `odradek version` prints it."""


def kernel_warning() -> str | None:
    """Say what is wrong with the native kernels of this installation, None when nothing is."""
    loaded = {name: kernel_sources.load(name) for name in kernel_sources.KERNELS}
    reasons = [f"{name}: {why}" for name, why in loaded.items() if isinstance(why, str)]
    if not reasons:
        return None
    return (
        f"the native record kernel can't be used ({'; '.join(reasons)}); records go through plain "
        "Python, many times slower. See `make kernel`"
    )
