"""The plain reader of aiokafka, by assignment and with its defaults."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from odradek.cli.demo.versus.reader import Reporter


def read(bootstrap: str, topic: str, partitions: list[int], reporter: Reporter) -> None:
    """Read for ever."""

    async def run() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, n) for n in partitions])
        await consumer.start()
        while True:
            try:
                async for record in consumer:
                    reporter.got(record.value or b"")
            except KafkaError as error:
                reporter.failed(str(error))
                await asyncio.sleep(0.1)  # it may raise the same again at once

    asyncio.run(run())
