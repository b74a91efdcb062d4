"""Wait for a task that continues if the waiting caller is cancelled.

In: a task. Out: its result or exception. Must not: cancel it, or report the exception of a task
that continues to the loop's handler, as the next call raises it. `asyncio.shield` reports it in
CPython 3.14.7 (not in 3.11 or 3.14.10).
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def outcome(task: asyncio.Task[T]) -> T:
    """Return the task's result; raises its exception, and `CancelledError` if it was cancelled."""
    await asyncio.wait([task])
    return task.result()
