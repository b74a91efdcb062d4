"""Waiting for a task that goes on where whoever waits is cancelled.

In: a task. Out: what it gives or raises. Must not: cancel it, or tell the loop's handler of errors
of one that goes on. `asyncio.shield` does the latter in CPython 3.14.7 (not in 3.11 or 3.14.10),
though such an error is told by the next call.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def outcome(task: asyncio.Task[T]) -> T:
    """What the task gives; raises what it raised, and `CancelledError` if it was cancelled."""
    await asyncio.wait([task])
    return task.result()
