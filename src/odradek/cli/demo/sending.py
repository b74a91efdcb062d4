"""Senders of the demo's rows: a producer in a thread, or an asyncio producer in an event loop.

In: the clients' settings, the rows, the duration in seconds. Out: counts of rows that were sent,
acknowledged and, in the event loop, read. Must not: know that the cluster will move.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.producer import Producer
from odradek.cli.demo.data import PARTITIONS, TOPIC, Flights
from odradek.cli.demo.loop_thread import LoopThread
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.delivery_future import DeliveryFuture
from odradek.runtime.hosts.record_future import RecordFuture

PRODUCER, CONSUMER = "demo-producer", "demo-consumer"
CHUNK = 500
FLUSH_S = 120.0


class Sending(threading.Thread):
    """Sends the rows, spread over `seconds`, and counts the acknowledged ones."""

    who = "the producer"

    def __init__(self, config: Mapping[str, Any], flights: Flights, seconds: float) -> None:
        """`config` contains the clients' settings."""
        super().__init__(name="demo-producer", daemon=True)
        self._config = {**config, "client.id": PRODUCER}
        self._flights = flights
        self._seconds = seconds
        self.sent = 0
        self.acknowledged = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._producer = Producer(self._config)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer.__exit__(kind, error, trace)

    @property
    def over(self) -> bool:
        """Whether all sent rows have outcomes, or sending has ended."""
        return not self.is_alive()

    def rows(self) -> dict[str, int]:
        """Return the number of rows by state."""
        return {"acknowledged": self.acknowledged}

    def readings(self) -> list[tuple[int, int]]:
        """Return the numbers of rows and of distinct rows, for each consumer."""
        return []

    def run(self) -> None:
        """Send in even steps; then wait for all acknowledgements."""
        try:
            for wait, records in self._steps():
                time.sleep(wait)
                for key, value in records:
                    self._producer.send(TOPIC, value=value, key=key).add_done_callback(self._count)
                    self.sent += 1
            self._producer.flush(timeout=FLUSH_S)
        except BaseException as error:  # the main thread reports the error
            self.error = error

    def _steps(self) -> Iterator[tuple[float, Iterator[tuple[bytes | None, bytes]]]]:
        """Yield the time to wait in seconds, and the rows to be sent after it."""
        begin, rows = time.monotonic(), self._flights.rows
        for start in range(0, rows, CHUNK):
            due = begin + self._seconds * start / rows
            yield max(0.0, due - time.monotonic()), self._flights.records(start, start + CHUNK)

    def _count(self, future: RecordFuture | DeliveryFuture) -> None:
        if future.exception() is None:
            self.acknowledged += 1


class LoopSending(LoopThread, Sending):
    """`Sending` in an event loop, with a consumer that reads all rows."""

    who = "a client in the event loop"

    def __init__(self, config: Mapping[str, Any], flights: Flights, seconds: float) -> None:
        """`config` contains the clients' settings."""
        super().__init__(config, flights, seconds)
        self.read = 0
        self._rows: set[int] = set()
        self._all_sent = False

    @property
    def over(self) -> bool:
        """Whether all sent rows have outcomes, or sending has ended."""
        return self._all_sent or not self.is_alive()

    def rows(self) -> dict[str, int]:
        """Return the number of rows by state."""
        return {"acknowledged": self.acknowledged, "read": len(self._rows)}

    def readings(self) -> list[tuple[int, int]]:
        """Return the numbers of rows and of distinct rows, for each consumer."""
        return [(self.read, len(self._rows))]

    async def main(self) -> None:
        """Send and read rows at the same time; continue to read after all rows are sent."""
        reads = {**self._config, "client.id": CONSUMER, "auto.offset.reset": "earliest"}
        async with (
            AsyncProducer(self._config) as producer,
            AsyncConsumer(reads) as consumer,
            asyncio.TaskGroup() as group,
        ):
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            group.create_task(self._read(consumer))
            await self._send(producer)
            self._all_sent = True

    async def _send(self, producer: AsyncProducer) -> None:
        for wait, records in self._steps():
            await asyncio.sleep(wait)
            for key, value in await asyncio.to_thread(list, records):
                delivery = await producer.send(TOPIC, value=value, key=key)
                delivery.add_done_callback(self._count)
                self.sent += 1
        await producer.flush(timeout=FLUSH_S)

    async def _read(self, consumer: AsyncConsumer) -> None:
        async for record in consumer:
            self.read += 1
            self._rows.add(json.loads(record.value or b"")["row"])
