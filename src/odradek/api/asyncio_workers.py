"""Workers for asyncio: await a coroutine function for each record of a consumer.

In: a consumer, a coroutine function, topics. Out: a loop that passes each record to the function
until the run is stopped. Must not: decide anything; `clients/workers` does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.workers import K, V, WorkersState
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.workers.work_options import Ordering, work_function, work_options
from odradek.runtime.hosts.worker_tasks import WorkerTasks, carried_out


class AsyncWorkers(WorkersState):
    """Awaits a coroutine function for each record, concurrently; records of a key in order.

    Order, commits, attempts and dead letters are those of `Workers`. Each record being processed is
    a task of the event loop that runs `run`; it is cancelled if its partition goes to another
    member before it has finished.

        consumer = AsyncConsumer(config, group_id="board", enable_auto_commit=False)
        async with consumer:
            await AsyncWorkers(consumer, work, concurrency=500).run("arrivals")
    """

    def __init__(
        self,
        consumer: AsyncConsumer[K, V],
        work: Callable[[ConsumerRecord[K, V]], Awaitable[object]],
        *,
        concurrency: int = 16,
        ordering: Ordering = "key",
        max_attempts: int = 10,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        retry_backoff: float = 0.1,
        retry_backoff_max: float = 10.0,
        producer: AsyncProducer | None = None,
        dead_letter_topic: str | None = None,
        buffer_records: int = 10_000,
        buffer_bytes: int = 64 * 1024 * 1024,
        commit_interval: float = 1.0,
        drain_timeout: float = 20.0,
    ) -> None:
        """Check the arguments; nothing starts before `run`.

        `work` is an `async def`; the other arguments are those of `Workers`.
        """
        options = work_options(dict(locals()), AsyncConsumer, AsyncProducer)
        hands = partial(WorkerTasks, work_function(work, awaited=True), producer)
        super().__init__(consumer, producer, options, hands)

    async def run(
        self,
        topics: Collection[str] | str = (),
        pattern: str | re.Pattern[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Subscribe, process records until the run ends, and leave the group.

        Cancelling the task ends the run as `stop()` does, and then raises `CancelledError`. Records
        still being processed after `drain_timeout` are cancelled. See `Workers.run`.
        """
        await carried_out(self._run.run(topics, pattern, timeout), self._now)
