"""How much memory something takes at its peak, of what Python itself allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def peak_below(limit: int) -> Iterator[None]:
    """Assert that at most `limit` bytes are allocated at a time beyond what there was before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < limit
