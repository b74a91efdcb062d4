"""Benchmark driver of aiokafka; METHOD.md explains its settings."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from driver import Found, Rows, Watch, latencies, main, pool
from moving import Calls, awaited, moves

WAITING = 20_000
"""Number of futures that are awaited together."""
CALLERS = 1_000


async def reader(options: argparse.Namespace) -> Any:
    """Return a consumer that has all partitions and starts at their beginnings."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        enable_auto_commit=False,
        max_partition_fetch_bytes=8 << 20,
        fetch_max_bytes=50 << 20,
    )
    await consumer.start()
    partitions = [TopicPartition(options.topic, p) for p in range(options.partitions)]
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    return consumer


async def consume(options: argparse.Namespace) -> Found:
    """Read one object per record, with key and value."""
    watch = Watch()
    consumer = await reader(options)
    records = size = 0
    while records < options.records:
        for found in (await consumer.getmany(timeout_ms=100, max_records=10_000)).values():
            watch.seen()
            records += len(found)
            for message in found:
                size += len(message.key) + len(message.value)
    return watch.stop("objects, CRC checked", records, size)


async def each(options: argparse.Namespace) -> Found:
    """Read record by record with `async for`."""
    watch = Watch()
    records = size = 0
    async for message in await reader(options):
        size += len(message.key) + len(message.value)
        records += 1
        if records == 1:
            watch.seen()
        if records >= options.records:
            break
    return watch.stop("objects, CRC checked", records, size)


async def arrow(options: argparse.Namespace) -> Found:
    """Convert messages to Python lists, and the lists to Arrow batches."""
    rows = Rows()
    watch = Watch()
    consumer = await reader(options)
    while len(rows) < options.records:
        for found in (await consumer.getmany(timeout_ms=100, max_records=10_000)).values():
            watch.seen()
            key, value, offset, partition, timestamp = rows.columns
            key += [m.key for m in found]
            value += [m.value for m in found]
            offset += [m.offset for m in found]
            partition += [m.partition for m in found]
            timestamp += [m.timestamp for m in found]
        rows.made()
    rows.made(all_rows=True)
    return watch.stop("Arrow by way of lists, CRC checked", rows.records, rows.size)


async def produce(options: argparse.Namespace) -> Found:
    """Send record by record, each with a future."""
    keys, values = pool(options.pool)
    watch = Watch()
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        max_batch_size=options.batch_size or 128 << 10,
        compression_type=None if options.codec == "none" else options.codec,
    )
    await producer.start()
    size = 0
    futures = []
    for i in range(options.records):
        key, value = keys[i % len(keys)], values[i % len(keys)]
        size += len(key) + len(value)
        futures.append(await producer.send(options.topic, value, key))
        if len(futures) >= WAITING:
            await asyncio.gather(*futures)
            watch.seen()
            futures = []
    await asyncio.gather(*futures)
    watch.seen()
    return watch.stop("a future per record", options.records, size)


async def callers(options: argparse.Namespace) -> Found:
    """Run a thousand tasks, each of which sends a record and waits for it, repeatedly."""
    keys, values = pool(options.pool)
    watch = Watch()
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap, acks="all", enable_idempotence=True, linger_ms=5
    )
    await producer.start()
    turns = options.records // CALLERS

    async def caller(own: int) -> int:
        size = 0
        for turn in range(turns):
            at = (own * turns + turn) % len(keys)
            await producer.send_and_wait(options.topic, values[at], keys[at])
            size += len(keys[at]) + len(values[at])
        return size

    sizes = await asyncio.gather(*(caller(n) for n in range(CALLERS)))
    watch.seen()
    return watch.stop("a thousand callers", turns * CALLERS, sum(sizes))


async def latency(options: argparse.Namespace) -> Found:
    """Measure latency with the consumer as a task in the producer's event loop."""
    arrived: asyncio.Queue[float] = asyncio.Queue()
    consumer = await reader(options)

    async def read() -> None:
        async for _ in consumer:
            arrived.put_nowait(time.perf_counter())

    reading = asyncio.create_task(read())
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap, linger_ms=0)
    await producer.start()
    times = []
    due = time.perf_counter()
    for _ in range(options.records):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        await producer.send(options.topic, b"ping")
        times.append(await arrived.get() - sent)
        due = max(due, time.perf_counter() - 1 / options.rate) + 1 / options.rate
    reading.cancel()
    return latencies(times)


async def start(options: argparse.Namespace) -> Found:
    """Time new clients until the first acknowledged and the first read record."""
    watch = Watch()
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap)
    await producer.start()
    await producer.send_and_wait(options.topic, b"first")
    watch.seen()
    acknowledged = watch.first
    watch = Watch()
    consumer = await reader(options)
    await consumer.getone()
    watch.seen()
    return {"first_acknowledged_ms": 1000 * acknowledged, "first_read_ms": 1000 * watch.first}


async def seek(options: argparse.Namespace) -> Found:
    """Time a consumer's calls while the broker delays the response to its fetch."""
    consumer = await reader(options)
    first = TopicPartition(options.topic, 0)

    async def poll(timeout: float) -> int:
        return sum(map(len, (await consumer.getmany(timeout_ms=int(1000 * timeout))).values()))

    async def end() -> int:
        return (await consumer.end_offsets([first]))[first]  # type: ignore[no-any-return]

    calls = Calls(
        poll=poll,
        seek=lambda: consumer.seek(first, 0),
        pause=lambda: consumer.pause(first),
        resume=lambda: consumer.resume(first),
        end=end,
    )
    return await awaited(moves(options, calls))


def in_a_loop(
    mode: Callable[[argparse.Namespace], Coroutine[Any, Any, Found]],
) -> Callable[[argparse.Namespace], Found]:
    """Return a function that runs a mode in asyncio's own event loop."""
    return lambda options: asyncio.run(mode(options))


if __name__ == "__main__":
    modes = {
        "consume": consume,
        "each": each,
        "arrow": arrow,
        "produce": produce,
        "callers": callers,
        "round-trip": latency,
        "start": start,
        "seek": seek,
    }
    main(aiokafka.__name__, aiokafka.__version__, {k: in_a_loop(mode) for k, mode in modes.items()})
