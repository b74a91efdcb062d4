"""Sees to a group's rebalances while the program doesn't ask for records, as aiokafka does.

In: the events of the consumer beneath. Out: polls that hand out nothing, in which it gives back and
takes partitions and calls listeners; what they raise, for the next call that asks for records. Must
not: speak for a program that doesn't ask for `max_poll_interval_ms`: that one has left its group.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from weakref import ref

from odradek.common.events import Event
from odradek.compat.aiokafka.consumer.known import AIOKafkaConsumer as KnowingConsumer
from odradek.compat.aiokafka.consumer.readers import Readers

TURN = 0.05
"""Seconds of one such poll, and between two looks at a call that does its work."""


class Attendant:
    """Who polls for one consumer with a group."""

    def __init__(self, consumer: KnowingConsumer, readers: Readers, patience: float) -> None:
        """`patience`: seconds that a program has for the records that it works on, before the end
        of their assignment commits them.
        """
        self._consumer = consumer
        self._readers = readers
        self._patience = patience
        self._news = asyncio.Event()
        self.trouble: BaseException | None = None
        """What a poll has raised."""
        self._in_hand_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        news = ref(self._news)  # the engine beneath must not keep what nobody closed
        consumer.listen(lambda event: _heard(event, news()))

    def start(self) -> None:
        """From here on it looks."""
        self._task = asyncio.create_task(self._attend())

    async def end(self) -> None:
        """The consumer stops."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def handed_out(self, *, some: bool) -> None:
        """The program has asked for records, and got some, or none."""
        self._in_hand_since = time.monotonic() if some else None
        self._news.set()

    def raise_trouble(self) -> None:
        """Raise what a poll has raised, once."""
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble

    async def _attend(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            began = time.monotonic()
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
        """Records are in hand: the program has a while to come back by itself."""
        since = self._in_hand_since
        return since is not None and time.monotonic() - began < self._patience


def _heard(event: Event, news: asyncio.Event | None) -> None:
    if event.kind == "group" and news is not None:
        news.set()
