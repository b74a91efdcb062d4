"""Less frequent garbage collections while a simulation runs.

In: nothing. Out: a context manager. Simulations create few reference cycles, and most of their
objects live until the end, so with default thresholds the collector takes a tenth of the run time.
Must not: keep the changed thresholds after the block.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 100_000
"""Threshold of new objects for a collection of the youngest generation (default: 700)."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Raise the collector's threshold inside the block."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
