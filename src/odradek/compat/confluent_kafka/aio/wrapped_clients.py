"""Odradek's asyncio clients, wrapped by the confluent-kafka clients of the same names.

In: options. Out: Odradek's consumer and producer. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.api.asyncio_producer import AsyncProducer
from odradek.common.types import TopicPartition
from odradek.compat.asyncio_buffered_records import LoopConsumer
from odradek.compat.batch_positions import BatchPosition, batch_position, never
from odradek.compat.confluent_kafka.message import Message


class AIOProducer(AsyncProducer):
    """`odradek.AsyncProducer`; error messages and warnings use the name of this class."""

    put: Callable[..., BatchPosition | Awaitable[BatchPosition]] = AsyncProducer._put

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._set_up_sending(self._calls, batch_position, never)

    async def send(self, *record: Any) -> BatchPosition:  # type: ignore[override]  # no future
        """Send one record; return its partition and offset."""
        found = self.put(*record)
        return found if isinstance(found, tuple) else await found


class AIOConsumer(LoopConsumer[Message]):
    """`odradek.AsyncConsumer`; error messages and warnings use the name of this class."""

    def at_end(self, partition: TopicPartition) -> bool:
        """Return whether a fetch response since the last seek shows that the end is reached."""
        return self._engine.subscription.at_end(partition)
