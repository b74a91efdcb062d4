"""Run coroutines of a program's token provider in an event loop that outlives the call.

In: an awaitable, from a worker thread, and the loop of the client's program if it has one. Out: its
result. An HTTP session that a provider keeps open belongs to one loop, so a loop for each call
would break the provider at its second call. Must not: close a loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from odradek.network.sasl.renewal import LONGEST_CALL

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The background loop of each process; a forked child needs a new loop and thread."""


def result_in(loop: asyncio.AbstractEventLoop | None, given: Awaitable[Any]) -> object:
    """Run an awaitable in this loop, or else in a background loop, and return its result."""
    if loop is None or loop is _running():  # a simulation runs worker calls in the loop's thread
        loop = _background()
    call = _awaited(given)
    try:
        future = asyncio.run_coroutine_threadsafe(call, loop)
    except RuntimeError:  # the loop is closed
        call.close()
        getattr(given, "close", bool)()  # avoids Python's warning "never awaited"
        raise
    try:
        found, error = future.result(LONGEST_CALL)
    except TimeoutError:
        future.cancel()
        raise
    if error is not None:
        raise error
    return found


async def _awaited(given: Awaitable[Any]) -> tuple[object, BaseException | None]:
    """Return the result or the error, as raising e.g. SystemExit would end the loop."""
    try:
        return (await given), None
    except BaseException as error:
        return None, error


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _background() -> asyncio.AbstractEventLoop:
    found = _loops.get(os.getpid())
    if found is None or found.is_closed():
        _loops.pop(os.getpid(), None)
        made = asyncio.new_event_loop()
        found = _loops.setdefault(os.getpid(), made)
        if found is not made:  # another thread has created one
            made.close()
            return found
        threading.Thread(target=_run, args=(found,), name="odradek-tokens", daemon=True).start()
    return found


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is closed, even if a task of a provider stops it or raises SystemExit."""
    while not loop.is_closed():
        with suppress(BaseException):
            loop.run_forever()
