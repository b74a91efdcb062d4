"""Measure the peak of the memory that Python itself allocates."""

from __future__ import annotations

import gc
import sysconfig
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Assert that a block allocates at most `limit` bytes at its peak.

    Without a GIL the garbage collector allocates memory for its own traversal (700 KB in a pytest
    process), so it is disabled there, and memory that it would have freed counts.
    """
    waits = bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and gc.isenabled()
    if waits:
        gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        if waits:
            gc.enable()
    assert peak - before < limit
