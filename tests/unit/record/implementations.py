"""The two implementations of the record encoder, so that tests can run with each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odradek.record import builder, encoder, kernel_sources, open_batches
from odradek.record.key_hash import murmur2, partition_for_key


@dataclass(frozen=True)
class Encoding:
    """The classes and functions of one implementation of the encoder."""

    name: str
    BatchBuilder: Any
    ColumnEncoder: Any
    murmur2: Callable[[Any], int]
    partition_for_key: Callable[[Any, int], int]
    module: str
    """Name of the module whose `compress` function this `BatchBuilder` calls."""
    OpenBatches: Any
    Room: Any
    build_reports: Any
    Notes: Any


PYTHON = Encoding(
    "python",
    builder.BatchBuilder,
    encoder.ColumnEncoder,
    murmur2,
    partition_for_key,
    builder.__name__,
    open_batches.OpenBatches,
    open_batches.Room,
    open_batches.build_reports,
    open_batches.Notes,
)


def _native() -> list[Encoding]:
    """Return the native encoder if it is built; `test_kernel` checks whether it has to be."""
    found = kernel_sources.load("odradek.record.kernel_encode")
    if isinstance(found, str):
        return []
    parts: Any = found
    classes = (parts.BatchBuilder, parts.ColumnEncoder)
    functions = (parts.murmur2, parts.partition_for_key)
    of_messages = (parts.OpenBatches, parts.Room, parts.build_reports, parts.Notes)
    return [Encoding("native", *classes, *functions, parts.__name__, *of_messages)]


NATIVE = _native()
ENCODINGS = [PYTHON, *NATIVE]
