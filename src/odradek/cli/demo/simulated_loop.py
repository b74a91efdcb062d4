"""The simulated demo with asyncio clients, in an event loop in virtual time.

In: the arguments of `Simulated`. Out: a `Story`. Must not: differ except in how the clients wait.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from odradek.api.asyncio_consumer import AsyncConsumer
from odradek.api.asyncio_producer import AsyncProducer
from odradek.api.base import on_host
from odradek.cli.demo.data import TOPIC
from odradek.cli.demo.simulated import CONSUMER, PRODUCER, Simulated
from odradek.testing import VirtualLoop


class SimulatedLoop(Simulated):
    """One run of the simulated demo: one task sends, another one reads."""

    def _live(self) -> None:
        """Run both clients concurrently."""
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.world, limit=math.inf)) as runner:
            runner.run(self._in_loop())

    async def _in_loop(self) -> None:
        world = self.world
        self._say(f"{PRODUCER} and {CONSUMER} run in one event loop")
        async with (
            on_host(world.host(PRODUCER), AsyncProducer, self._told(PRODUCER)) as producer,
            on_host(world.host(CONSUMER), AsyncConsumer, self._told(CONSUMER)) as consumer,
        ):
            partitions = await consumer.partitions_for(TOPIC)
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            self._starts()
            reading = asyncio.create_task(self._take_all(consumer))
            await self._publish(producer)
            reading.cancel()
            await asyncio.wait([reading])
            with suppress(asyncio.CancelledError):
                reading.result()

    async def _publish(self, producer: AsyncProducer) -> None:
        for end in self._steps():
            for key, value in self._due(end):
                delivery = await producer.send(TOPIC, value=value, key=key)
                delivery.add_done_callback(self._count)
            await asyncio.sleep(max(0.0, end - self.world.now))

    async def _take_all(self, consumer: AsyncConsumer) -> None:
        async for record in consumer:
            self._take([record])
