"""Run a user's coroutine functions, which process records, as tasks of the event loop.

In: records to process. Out: results. A task is cancelled if the partition of its record is assigned
to another group member. Must not: decide which records are processed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

from odradek.clients.consumer.fetching.delivery import Convert
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.traces import Traces
from odradek.clients.workers.work_queue import WorkItem
from odradek.clients.workers.work_run import Outcome, WorkFlow
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.in_thread import at_hand

T = TypeVar("T")

NOTHING = nullcontext()
CLOSE_TIMEOUT = 1.0
"""Seconds within which cancelled tasks must end."""


class WorkerTasks:
    """The tasks of one call of `run` (implements `WorkerPool`)."""

    def __init__(
        self,
        work: Callable[[ConsumerRecord], Awaitable[object]],
        producer: Any,
        now: Callable[[], float],
        convert: Convert | None,
        outcome: Callable[[], None],
        traces: Traces | None = None,
    ) -> None:
        """Set the functions and clients of the run, as in `WorkerThreads`."""
        self._work, self._producer, self._now = work, producer, now
        self._convert, self._outcome, self._traces = convert, outcome, traces
        self.busy: dict[WorkItem, asyncio.Task[None]] = {}
        self._came: list[Outcome] = []
        self._event = asyncio.Event()
        self._owner: asyncio.Task[Any] | None = None
        """The task that called `run`: the first one that requests results."""

    @property
    def arrived(self) -> bool:
        """Whether results are available."""
        return bool(self._came)

    def start(self, item: WorkItem) -> None:
        """Start a task that processes a record."""
        where = f"{item.tp} offset {item.record.offset}"
        task = asyncio.get_running_loop().create_task(self._attempt(item), name=where)
        self.busy[item] = task
        task.add_done_callback(partial(self._ended, item))

    async def _attempt(self, item: WorkItem) -> None:
        record, convert, traces = item.record, self._convert, self._traces
        if item.letter is not None:
            with NOTHING if traces is None else traces.burying(record):
                await self._producer.send_and_wait(**item.letter)
            return
        with NOTHING if traces is None else traces.working(record):
            if convert is not None:
                record = await self._read(convert, record)
            await self._work(record)

    @staticmethod
    async def _read(convert: Convert, record: ConsumerRecord) -> ConsumerRecord:
        async def read() -> ConsumerRecord:
            return convert([record])[0]

        return await at_hand(read)

    def _ended(self, item: WorkItem, task: asyncio.Task[None]) -> None:
        cancelled = RuntimeError("the task was cancelled") if task.cancelled() else None
        self._came.append((item, cancelled or task.exception()))
        self._event.set()
        self._outcome()

    async def taken(self) -> list[Outcome]:
        """Let tasks run, then return the results that are available."""
        self._owner = self._owner or asyncio.current_task()
        await asyncio.sleep(0)
        came, self._came = self._came, []
        self._event.clear()
        for item, _ in came:
            self.busy.pop(item, None)
        return came

    async def done(self, seconds: float) -> list[Outcome]:
        """Return results; wait at most this number of seconds for the first result."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        return await self.taken()

    def abandon(self, items: Collection[WorkItem]) -> None:
        """Cancel the tasks that process these records."""
        for item in items:
            self.busy[item].cancel()

    async def close(self) -> None:
        """Cancel the remaining tasks, and wait for their end."""
        self.abandon(list(self.busy))
        if self.busy:
            await asyncio.wait(list(self.busy.values()), timeout=CLOSE_TIMEOUT)

    def callback(
        self, flow: Callable[[list[TopicPartition]], WorkFlow[None]]
    ) -> Callable[[Any, list[TopicPartition]], Coroutine[Any, Any, None]]:
        """Return a rebalance callback.

        If a task that processes a record closes the consumer, the callback does nothing, as with
        threads.
        """

        async def call(_: Any, partitions: list[TopicPartition]) -> None:
            if asyncio.current_task() is self._owner:
                await carried_out(flow(partitions), self._now)

        return call


async def carried_out(flow: WorkFlow[T], now: Callable[[], float]) -> T:
    """Call the functions that a generator yields and await their results, until it ends.

    An error that occurs meanwhile, also a cancellation, is raised in the generator.
    """
    resume: Callable[[Any], Callable[[], Any]] = flow.send
    given: Any = None
    try:
        while True:
            action = resume(given)
            try:
                came = action()
                if isawaitable(came):
                    came = await came
                resume, given = flow.send, (now(), came)
            except GeneratorExit:  # the loop is closed, so nothing can be awaited
                raise
            except BaseException as error:
                resume, given = flow.throw, error
    except StopIteration as end:  # the flow has ended with this result
        result: T = end.value
        return result
    finally:
        given = came = None  # an error's traceback mustn't refer to it
        flow.close()
