"""Odradek's producer, wrapped by the aiokafka producer of the same name.

In: options. Out: `odradek.AsyncProducer` whose `send` returns aiokafka's futures. Must not: decide
anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.api.asyncio_producer import AsyncProducer
from odradek.clients.producer.record_arguments import NO_HEADERS, HeadersInput
from odradek.compat.aiokafka.producer.delivery_futures import Outcome, Outcomes


class AIOKafkaProducer(AsyncProducer):
    """`AsyncProducer`; error messages and warnings use the name of this class."""

    def __init__(
        self, settings: dict[str, Any], loop: asyncio.AbstractEventLoop, *, answered: bool
    ) -> None:
        """Take the settings; `answered`: brokers return offsets (not with `acks=0`)."""
        super().__init__(settings)
        outcomes = Outcomes(loop, answered=answered)
        self._set_up_sending(self._calls, outcomes.future, _never)
        self.put: Callable[..., Outcome | Awaitable[Outcome]] = self._put
        """Like `send`, but returns the future at once and an awaitable only if it has to wait."""
        self._numbers: dict[str, list[int]] = {}
        self._numbers_of: object = None

    async def send(  # type: ignore[override]  # another kind of future
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: HeadersInput = NO_HEADERS,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Outcome:
        """Send a record as `AsyncProducer.send` does; return aiokafka's future."""
        found = self.put(topic, value, key, headers, partition, timestamp_ms)
        return found if isinstance(found, asyncio.Future) else await found

    def known_partitions(self, topic: str) -> list[int] | None:
        """Return the numbers of a topic's partitions, or None if metadata doesn't contain it."""
        snapshot = self._metadata.snapshot
        if snapshot is not self._numbers_of:
            self._numbers, self._numbers_of = {}, snapshot
        numbers = self._numbers.get(topic)
        if numbers is None and snapshot is not None:
            found = snapshot.topic(topic)
            if found is not None and found.partitions:
                numbers = self._numbers[topic] = list(range(len(found.partitions)))
        return numbers


def _never(*_: object) -> None:
    """Do nothing: deliveries are only reported by their futures."""
