"""How often Python's garbage collector looks while a simulation runs.

In: nothing. Out: a context in which it looks seldom. Worlds leave few cycles, and much of what they
are made of lives until they end: at its usual pace the collector takes a tenth of the time.
Must not: leave the process of a caller (a test, for example) as it wasn't.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 100_000
"""Objects more than before at which it looks at the young ones; Python's own number is 700."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let the collector look seldom in here."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
