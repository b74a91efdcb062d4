"""Benchmark driver of confluent-kafka's asyncio clients; METHOD.md explains its settings."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer
from driver import Found, Watch, main, pool

CONSUMED = 500
"""Number of messages per `consume` call, as in the library's documentation."""
WAITING = 20_000
"""Number of futures that are awaited together."""


async def consume(options: argparse.Namespace) -> Found:
    """Read one object per record, with key and value."""
    watch = Watch()
    consumer = AIOConsumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.message.max.bytes": 8 << 20,
            "fetch.max.bytes": 50 << 20,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 10,
        }
    )
    await consumer.assign([TopicPartition(options.topic, p, 0) for p in range(options.partitions)])
    records = size = 0
    while records < options.records:
        found = await consumer.consume(CONSUMED, 0.1)
        if found:
            watch.seen()
        for message in found:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            size += len(message.key()) + len(message.value())
        records += len(found)
    return watch.stop("objects, no CRC check", records, size)


def writer(options: argparse.Namespace) -> Any:
    """Return a producer with the batch settings of the library's documentation."""
    return AIOProducer(
        {
            "bootstrap.servers": options.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": options.batch_size or 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": options.codec,
        }
    )


async def produce(options: argparse.Namespace) -> Found:
    """Send record by record, each with a future."""
    keys, values = pool(options.pool)
    watch = Watch()
    producer = writer(options)
    size = 0
    futures = []
    for i in range(options.records):
        key, value = keys[i % len(keys)], values[i % len(keys)]
        size += len(key) + len(value)
        futures.append(await producer.produce(options.topic, value, key))
        if len(futures) >= WAITING:
            await producer.flush()
            await asyncio.gather(*futures)
            watch.seen()
            futures = []
    await producer.flush()
    await asyncio.gather(*futures)
    watch.seen()
    return watch.stop("a future per record", options.records, size)


def in_a_loop(
    mode: Callable[[argparse.Namespace], Coroutine[Any, Any, Found]],
) -> Callable[[argparse.Namespace], Found]:
    """Return a function that runs a mode in asyncio's own event loop."""
    return lambda options: asyncio.run(mode(options))


if __name__ == "__main__":
    modes = {"consume": consume, "produce": produce}
    main(
        "confluent-kafka",
        confluent_kafka.__version__,
        {k: in_a_loop(mode) for k, mode in modes.items()},
    )
