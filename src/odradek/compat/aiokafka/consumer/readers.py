"""Tasks that ask one consumer for records, each for partitions of its own or for all.

In: what each task reads. Out: the end of its wait, when there may be something for it. Must not:
take records: each task takes its own, so that what a cancelled task would have got stays there.

Only one call of the consumer beneath can wait. One of the tasks makes it, on behalf of all that
wait; when it ends, all of them look for their records, and one of the rest makes the next.
"""

from __future__ import annotations

import asyncio
import math

from odradek.common.types import TopicPartition
from odradek.compat.aiokafka.consumer.known import AIOKafkaConsumer as KnowingConsumer
from odradek.compat.aiokafka.translation import raising

Reads = frozenset[TopicPartition] | None
"""Partitions that a task reads; None: all that are assigned."""


class Readers:
    """The tasks that wait for records of one consumer."""

    def __init__(self, consumer: KnowingConsumer) -> None:
        self._consumer = consumer
        self._reading: dict[asyncio.Future[None], Reads] = {}
        """The partitions of each task that waits."""
        self.asked = False
        """A task waits in the consumer beneath."""

    async def wait(self, some: Reads, seconds: float) -> None:
        """Wait until these partitions may have records, at most `seconds`.

        Raises aiokafka's errors for what the group, or the end of the client, has to say.
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
        """Wait in the consumer beneath, which runs callbacks of its group in there, too."""
        self.asked = True
        try:
            with raising():
                await self._consumer.there(seconds, self._read)
        finally:
            self.asked = False
            for turn in self._reading:
                if not turn.done():
                    turn.set_result(None)
        await asyncio.sleep(0)  # the other tasks look first: it may have been for them

    def _read(self) -> Reads:
        """Return the partitions of all tasks that wait; None: all."""
        read: set[TopicPartition] = set()
        for some in self._reading.values():
            if some is None:
                return None
            read |= some
        return frozenset(read)

    def _read_or_all(self) -> Reads:
        """The same; all where no task waits, as any may be read next."""
        return self._read() or None
