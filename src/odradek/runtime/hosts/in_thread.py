"""Run a blocking function in a thread while the event loop continues.

In: a function. Out: its result. Must not: be used if an I/O host can do the work without a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from odradek.common.errors.records import SchemaNotAtHandError
from odradek.common.shared_deadline import share_deadline

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Call a function in a thread of the loop's executor.

    If the wait is cancelled, the function continues.
    """
    return await asyncio.to_thread(function, *arguments, **keywords)


async def at_hand(call: Callable[[], Awaitable[T]]) -> T:
    """Await a call; if it needs a schema, fetch the schema in a thread and repeat the call.

    All fetches for one call share one time limit.
    """
    with share_deadline():
        while True:
            try:
                return await call()
            except SchemaNotAtHandError as missing:
                fetch = missing.fetch
            await in_thread(fetch)
