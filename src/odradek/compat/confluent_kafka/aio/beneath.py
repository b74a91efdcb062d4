"""The asyncio clients beneath confluent-kafka's, as `beneath` has those for threads.

In: options. Out: our consumer, and our producer whose `put` says where a record is. Must not:
decide anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.api.asyncio_producer import AsyncProducer
from odradek.common.types import TopicPartition
from odradek.compat.confluent_kafka.message import Message
from odradek.compat.loop_at_hand import LoopConsumer
from odradek.compat.placed import Place, never, place


class AIOProducer(AsyncProducer):
    """`odradek.AsyncProducer`; texts and warnings say this name."""

    put: Callable[..., Place | Awaitable[Place]] = AsyncProducer._put

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._set_up_sending(self._calls, place, never)

    async def send(self, *record: Any) -> Place:  # type: ignore[override]  # no future
        """Give one record; where it is."""
        found = self.put(*record)
        return found if isinstance(found, tuple) else await found


class AIOConsumer(LoopConsumer[Message]):
    """`odradek.AsyncConsumer`; texts and warnings say this name."""

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether there is nothing more to read, by an answer that came since the last seek."""
        return self._engine.subscription.at_end(partition)
