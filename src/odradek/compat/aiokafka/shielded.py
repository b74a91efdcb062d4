"""Waiting for a task without cancelling the task if the caller is cancelled.

In: a task. Out: its result or exception. Must not: cancel the task, or pass its exception to the
loop's exception handler, because the next call raises it. `asyncio.shield` does pass it on in
CPython 3.14.7 (not in 3.11 or 3.14.10).
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def outcome(task: asyncio.Task[T]) -> T:
    """Return the task's result, or raise its exception (`CancelledError` if it was cancelled)."""
    await asyncio.wait([task])
    return task.result()
