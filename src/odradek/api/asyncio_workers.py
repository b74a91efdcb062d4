"""Workers for asyncio: a coroutine function on the records of a consumer, as `Workers` has it.

In: a consumer, a coroutine function, topics. Out: the loop around them, until it is stopped. Must
not: decide anything; `clients/workers` does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.workers import WorkersState
from odradek.clients.consumer.records import ConsumerRecord
from odradek.clients.workers.work_options import Ordering, work_function, work_options
from odradek.runtime.hosts.worker_tasks import WorkerTasks, carried_out


class AsyncWorkers(WorkersState):
    """Awaits a coroutine function with each record: several at a time, one of a key at a time.

    What `Workers` says holds here, too: order, commits, attempts, dead letters. Each record in work
    is a task of the loop that runs `run`; where its partition goes to another member before it has
    ended, it is cancelled.

        consumer = AsyncConsumer(config, group_id="board", enable_auto_commit=False)
        async with consumer:
            await AsyncWorkers(consumer, work, concurrency=500).run("arrivals")
    """

    def __init__(
        self,
        consumer: AsyncConsumer,
        work: Callable[[ConsumerRecord], Awaitable[object]],
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
        """Check what is given; nothing is begun before `run`.

        `work` is an `async def`. All else as `Workers` has it.
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
        """Subscribe, work on what comes, and leave the group at the end; gives nothing back.

        A task that is cancelled ends it as `stop()` does, and then the cancellation comes out; what
        is still in work after `drain_timeout` is cancelled, too.

        As `Workers.run`.
        """
        await carried_out(self._run.run(topics, pattern, timeout), self._now)
