"""Run coroutines of a user's token provider in an event loop that isn't closed afterwards.

In: an awaitable, from a worker thread, and the event loop of the program if it has one. Out: the
result. An HTTP session that a provider keeps open belongs to one event loop, so that with a new
loop for each call, the second call would fail. Must not: close a loop.
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
"""The background event loop by process id; a forked child needs a new loop and thread."""


def result_in(loop: asyncio.AbstractEventLoop | None, given: Awaitable[Any]) -> object:
    """Run an awaitable in `loop`, or in a background loop, and return its result."""
    if loop is None or loop is _running():  # in simulations, this is the loop's thread
        loop = _background()
    call = _awaited(given)
    try:
        future = asyncio.run_coroutine_threadsafe(call, loop)
    except RuntimeError:  # the loop is closed
        call.close()
        getattr(given, "close", bool)()  # no warning "never awaited"
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
    """Return the result or error; raising an error like SystemExit would end the event loop."""
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
        if found is not made:  # another thread has set a loop
            made.close()
            return found
        threading.Thread(target=_run, args=(found,), name="odradek-tokens", daemon=True).start()
    return found


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is closed, even if a provider's task stops it or raises SystemExit."""
    while not loop.is_closed():
        with suppress(BaseException):
            loop.run_forever()
