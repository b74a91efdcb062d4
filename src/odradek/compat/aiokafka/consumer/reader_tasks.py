"""Coordinates concurrent tasks that wait for records of one consumer.

In: the partitions that each task reads. Out: wakes a task when there may be records for it. Must
not: take records: each task takes its own, so records of a cancelled task aren't lost.

The wrapped consumer allows one waiting call at a time. One task makes that call on behalf of all;
when it returns, all tasks check for records, and another task makes the next call (R-HO-6).
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
        """Whether a task currently makes the waiting call of the wrapped consumer."""

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
        """Make the waiting call of the wrapped consumer, which also runs rebalance callbacks."""
        self.asked = True
        try:
            with raising():
                await self._consumer.there(seconds, self._read)
        finally:
            self.asked = False
            for turn in self._reading:
                if not turn.done():
                    turn.set_result(None)
        await asyncio.sleep(0)  # let other tasks take their records first

    def _read(self) -> Reads:
        """Return the partitions of all waiting tasks; None: all assigned partitions."""
        read: set[TopicPartition] = set()
        for some in self._reading.values():
            if some is None:
                return None
            read |= some
        return frozenset(read)

    def _read_or_all(self) -> Reads:
        """Return the partitions of all waiting tasks, or None (all partitions) if no task waits."""
        return self._read() or None
