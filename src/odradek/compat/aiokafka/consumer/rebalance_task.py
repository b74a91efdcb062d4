"""Background task for rebalances while the program doesn't request records, as in aiokafka.

In: events of the wrapped consumer. Out: polls that take no records, during which partitions are
revoked and assigned and listeners run; exceptions are raised by the next call that requests
records. Must not: keep a member in its group if the program exceeds `max_poll_interval_ms`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import ref

from odradek.common.events import Event
from odradek.compat.aiokafka.consumer.reader_tasks import Readers
from odradek.compat.aiokafka.consumer.wrapped_state import AIOKafkaConsumer as KnowingConsumer
from odradek.compat.clock import monotonic

TURN = 0.05
"""Timeout of a background poll, and interval of checks while another task polls, in seconds."""


class Attendant:
    """Background task that polls a consumer with a group."""

    def __init__(self, consumer: KnowingConsumer, readers: Readers, patience: float) -> None:
        """Take the consumer.

        `patience`: time in seconds that the program has to process its records after a rebalance
        began; then their offsets are committed and the partitions revoked.
        """
        self._consumer = consumer
        self._readers = readers
        self._patience = patience
        self._news = asyncio.Event()
        self.trouble: BaseException | None = None
        """Exception of a background poll, which the program's next call raises; else None."""
        self._in_hand_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        news = ref(self._news)  # the engine must not keep an unclosed consumer alive
        consumer.listen(lambda event: _heard(event, news()))

    def start(self) -> None:
        """Start polling."""
        self._task = asyncio.create_task(self._attend())

    async def end(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def handed_out(self, *, some: bool) -> None:
        """Record that the program has requested records, and whether `some` were returned."""
        self._in_hand_since = monotonic() if some else None
        self._news.set()

    def raise_trouble(self) -> None:
        """Raise the exception of a background poll, once."""
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble

    async def _attend(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            began = monotonic()
            while self._consumer.rebalances and self.trouble is None:
                if self._waits(began):
                    await asyncio.sleep(TURN)
                    continue
                self._consumer.through()
                if self._readers.asked:
                    await asyncio.sleep(TURN)
                    continue
                try:
                    with self._consumer.attended():
                        await self._readers.ask(TURN)
                except Exception as error:
                    self.trouble = error

    def _waits(self, began: float) -> bool:
        """Return whether the program still has time to process its records before the rebalance."""
        since = self._in_hand_since
        return since is not None and monotonic() - began < self._patience


def _heard(event: Event, news: asyncio.Event | None) -> None:
    if event.kind == "group" and news is not None:
        news.set()
