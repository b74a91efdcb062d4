"""Tasks that request records of one consumer, each of its own partitions or of all.

In: the partitions that each task reads. Out: the end of its wait, when there may be records for it.
Must not: take records: each task takes its own, so records of a cancelled task aren't lost.

Only one call of the wrapped consumer can wait. One of the tasks makes it on behalf of all; when it
ends, all of them check for records, and one of the others makes the next (R-HO-6).
"""

from __future__ import annotations

import asyncio
import math

from odradek.common.types import TopicPartition
from odradek.compat.aiokafka.consumer.wrapped_state import AIOKafkaConsumer as KnowingConsumer
from odradek.compat.aiokafka.translation import raising

Reads = frozenset[TopicPartition] | None
"""Partitions that a task reads; None: all assigned."""


class Readers:
    """Tasks that wait for records of one consumer."""

    def __init__(self, consumer: KnowingConsumer) -> None:
        self._consumer = consumer
        self._reading: dict[asyncio.Future[None], Reads] = {}
        """Partitions of each waiting task."""
        self.asked = False
        """Whether a task waits in the wrapped consumer."""

    async def wait(self, some: Reads, seconds: float) -> None:
        """Wait until these partitions may have records, at most `seconds`.

        Raises aiokafka's exception if the group fails or the client is closed.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading[turn] = some
        try:
            if self.asked:
                await asyncio.wait((turn,), timeout=None if seconds == math.inf else seconds)
            else:
                await self.ask(seconds)
        finally:
            del self._reading[turn]
            if some is not None:
                self._consumer.look_again(self._read_or_all)

    async def ask(self, seconds: float) -> None:
        """Wait in the wrapped consumer, which runs the group's callbacks meanwhile."""
        self.asked = True
        try:
            with raising():
                await self._consumer.there(seconds, self._read)
        finally:
            self.asked = False
            for turn in self._reading:
                if not turn.done():
                    turn.set_result(None)
        await asyncio.sleep(0)  # other tasks check first: the records may be theirs

    def _read(self) -> Reads:
        """Return the partitions of all tasks that wait; None: all."""
        read: set[TopicPartition] = set()
        for some in self._reading.values():
            if some is None:
                return None
            read |= some
        return frozenset(read)

    def _read_or_all(self) -> Reads:
        """Return the same, but all if no task waits, as any may be read next."""
        return self._read() or None
