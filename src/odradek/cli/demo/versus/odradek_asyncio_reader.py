"""The plain reader of Odradek's asyncio client. Must not: set what the other readers don't set."""

from __future__ import annotations

import asyncio

from odradek import AsyncConsumer, KafkaError, TopicPartition
from odradek.cli.demo.versus.reader import Reporter


def read(bootstrap: str, topic: str, partitions: list[int], reporter: Reporter) -> None:
    """Read for ever."""

    async def run() -> None:
        settings = {"bootstrap.servers": bootstrap, "client.id": "demo-reader"}
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        async with AsyncConsumer(settings) as consumer:
            consumer.assign(assigned)
            consumer.seek_to_beginning(assigned)
            while True:
                try:
                    async for record in consumer:
                        reporter.got(record.value or b"")
                except KafkaError as error:
                    reporter.failed(str(error))

    asyncio.run(run())
