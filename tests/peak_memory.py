"""How much memory something takes at its peak, of what Python itself allocates."""

from __future__ import annotations

import gc
import sysconfig
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Assert that at most `limit` bytes are allocated at a time beyond what there was before.

    Without a GIL the garbage collector itself allocates, for what it goes through: for all that a
    process of pytest has that is 700 KB. There it waits, and what it would have freed counts.
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
