"""Allow only one asyncio task at a time in a consumer's calls that return records (R-HO-3).

In: a call, as a generator. Out: its result, or an error that names both tasks, before any record is
returned. While a task processes a record in a loop, it isn't within a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from odradek.common.errors import IllegalStateError
from odradek.runtime.hosts.outcome_future import running_loop

if TYPE_CHECKING:
    from odradek.clients.caller_flow import CallerFlow
    from odradek.clients.calls.consumer_calls import ConsumerCalls
    from odradek.network.host import LoopHost

T = TypeVar("T")

STRETCH = 128
"""Number of records after which an iteration lets the event loop run other tasks."""


class OneTask:
    """The task whose call on a consumer is running now."""

    def __init__(self) -> None:
        self.woken = False
        """Whether the current iteration, or else the next one, must end without a record."""
        self._held: asyncio.Task[object] | None = None
        self._wakes = 0

    def wake(self) -> None:
        """End iterations before their next record; any thread or signal handler may call this."""
        self.woken = True
        self._wakes += 1

    def _check(self, what: str, callback: Callable[[], str | None] | None = None) -> None:
        held = self._held
        if held is None:
            return
        mine = asyncio.current_task()
        if held is mine:
            running = callback and callback()
            raise IllegalStateError(f"{what} can't be called inside {running or what}")
        name = "a callback" if mine is None else f"task {mine.get_name()!r}"
        raise IllegalStateError(
            f"{name} called {what} while task {held.get_name()!r} was using it: a consumer "
            "returns records to one task at a time. Other tasks may call pause(), seek(), "
            "commit() and close()"
        )

    async def inside(
        self,
        what: str,
        callback: Callable[[], str | None],
        run: Callable[[CallerFlow[T]], Awaitable[T]],
        flow: CallerFlow[T],
    ) -> T:
        """Run a call; while it runs, calls of other tasks raise."""
        self._check(what, callback)
        self._held = asyncio.current_task(running_loop())
        try:
            return await run(flow)
        finally:
            self._held = None

    async def records(
        self,
        more: Callable[[], Awaitable[Iterator[T] | None]],
        calls: ConsumerCalls,
        host: LoopHost,
    ) -> AsyncIterator[T]:
        """Iterate over records until no more are returned.

        After each record, note the time for the group, and run its waiting callbacks.
        """
        while (found := await more()) is not None:
            calls.engine.delivery.handed_over()
            group = calls.engine.group
            wakes, left = self._wakes, True
            while left:
                left = False
                for record in islice(found, STRETCH):
                    left = True
                    yield record
                    if group is not None:
                        group.given.append(host.now())
                        if group.callbacks.waiting:
                            left = False
                            break
                    if self._wakes != wakes:
                        left = False
                        break
                    self._check("records()")
                await host.breathe()

    @staticmethod
    async def batches(
        more: Callable[[], Awaitable[T | None]], calls: ConsumerCalls
    ) -> AsyncIterator[T]:
        """Iterate over large results; drop each reference before the next result is requested."""
        while (one := await more()) is not None:
            calls.engine.delivery.handed_over()
            yield one
            del one
