"""Benchmark driver of Odradek's asyncio clients, with the public API; settings: METHOD.md.

`--loop uvloop` runs them in uvloop if it is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from driver import TIMEOUT, Found, Idle, Watch, latencies, main, payload, pool
from moving import Calls, awaited, moves

import odradek
from odradek import AsyncConsumer, AsyncProducer, TopicPartition  # imported before the clock starts

POLL_RECORDS = 1_000
WAITING = 20_000
"""Number of deliveries that are awaited together."""
CALLERS = 1_000
CLIENTS = 10
TICK = 0.001
"""Seconds for which a task sleeps between two measurements of the event loop's lag."""


class Lag:
    """Measures the event loop's lag with a task that sleeps for a millisecond each time."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            due = time.perf_counter() + TICK
            await asyncio.sleep(TICK)
            self._late.append(time.perf_counter() - due)

    async def stop(self) -> Found:
        """Return the measured lag in milliseconds."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        late = sorted(self._late)
        return {
            "lag_p99_ms": 1000 * late[int(0.99 * (len(late) - 1))],
            "lag_max_ms": 1000 * late[-1],
        }


def reader(options: argparse.Namespace) -> AsyncConsumer:
    """Return a consumer that has all partitions and starts at their beginnings."""
    consumer = AsyncConsumer(
        {"bootstrap.servers": options.bootstrap, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(options.topic, p) for p in range(options.partitions)])
    return consumer


def writer(options: argparse.Namespace, **more: Any) -> AsyncProducer:
    """Return a producer with the default `batch.size` unless an option sets another."""
    if options.batch_size:
        more["batch.size"] = options.batch_size
    return AsyncProducer(
        {
            "bootstrap.servers": options.bootstrap,
            "linger.ms": 5,
            "compression.type": options.codec,
            **more,
        }
    )


async def consume(options: argparse.Namespace) -> Found:
    """Read one object per record, with key and value, and measure the loop's lag."""
    lag, watch = Lag(), Watch()
    consumer = reader(options)
    records = size = 0
    while records < options.records:
        found = await consumer.poll(timeout=TIMEOUT, max_records=POLL_RECORDS)
        watch.seen()
        for record in found:
            size += len(record.key) + len(record.value)  # type: ignore[arg-type]
        records += len(found)
    found_ = watch.stop("objects, CRC checked", records, size)
    return found_ | await lag.stop()


async def each(options: argparse.Namespace) -> Found:
    """Read record by record with `async for`."""
    lag, watch = Lag(), Watch()
    records = size = 0
    async for record in reader(options):
        size += len(record.key) + len(record.value)  # type: ignore[arg-type]
        records += 1
        if records == 1:
            watch.seen()
        if records >= options.records:
            break
    return watch.stop("objects, CRC checked", records, size) | await lag.stop()


async def arrow(options: argparse.Namespace) -> Found:
    """Read batches and drop each after counting; all work is done in the loop's thread."""
    import pyarrow  # noqa: F401  before the clock starts, as in the sync driver

    lag, watch = Lag(), Watch()
    consumer = reader(options)
    records = size = 0
    while records < options.records:
        batch = await consumer.poll_arrow(timeout=TIMEOUT, layout=options.layout)
        if batch is None:
            raise RuntimeError(f"{records} records of {options.records}")
        watch.seen()
        records += batch.num_rows
        size += payload(batch)
    return watch.stop("Arrow record batches, CRC checked", records, size) | await lag.stop()


async def produce(options: argparse.Namespace) -> Found:
    """Send record by record, each with a delivery to await, and await all deliveries."""
    keys, values = pool(options.pool)
    lag, watch = Lag(), Watch()
    producer = writer(options)
    send, topic = producer.send, options.topic
    size = 0
    waiting = []
    for i in range(options.records):
        key, value = keys[i % len(keys)], values[i % len(keys)]
        size += len(key) + len(value)
        waiting.append(await send(topic, value, key))
        if len(waiting) >= WAITING:
            for delivery in waiting:
                await delivery
            watch.seen()
            waiting = []
    for delivery in waiting:
        await delivery
    watch.seen()
    return watch.stop("a delivery per record", options.records, size) | await lag.stop()


async def callers(options: argparse.Namespace) -> Found:
    """Run a thousand tasks, each of which sends a record and waits for it, repeatedly."""
    keys, values = pool(options.pool)
    lag, watch = Lag(), Watch()
    producer = writer(options)
    turns = options.records // CALLERS
    size = 0

    async def caller(own: int) -> None:
        nonlocal size
        for turn in range(turns):
            at = (own * turns + turn) % len(keys)
            await producer.send_and_wait(options.topic, values[at], keys[at])
            size += len(keys[at]) + len(values[at])

    await asyncio.gather(*(caller(n) for n in range(CALLERS)))
    watch.seen()
    return watch.stop("a thousand callers", turns * CALLERS, size) | await lag.stop()


async def clients(options: argparse.Namespace) -> Found:
    """Run ten consumers in one event loop, each of which reads a share of the records."""
    lag, watch = Lag(), Watch()
    share = options.records // CLIENTS

    async def read() -> tuple[int, int]:
        consumer, records, size = reader(options), 0, 0
        while records < share:
            found = await consumer.poll(timeout=TIMEOUT, max_records=POLL_RECORDS)
            records += len(found)
            size += sum(len(r.key or b"") + len(r.value or b"") for r in found)
        return records, size

    found = await asyncio.gather(*(read() for _ in range(CLIENTS)))
    watch.seen()
    records, size = (sum(numbers) for numbers in zip(*found, strict=True))
    return watch.stop("ten clients in a loop", records, size) | await lag.stop()


async def idle(options: argparse.Namespace) -> Found:
    """Run clients in one event loop, each with a task that reads all records and then waits."""
    found = Idle()
    ready = asyncio.Semaphore(0)

    async def wait() -> None:
        consumer, records = reader(options), 0
        while records < options.records:
            records += len(await consumer.poll(timeout=TIMEOUT, max_records=POLL_RECORDS))
        ready.release()
        await consumer.poll(timeout=TIMEOUT)

    tasks = [asyncio.create_task(wait()) for _ in range(options.clients)]
    for _ in tasks:
        await ready.acquire()
    await asyncio.sleep(options.settle)
    found.begins()
    await asyncio.sleep(options.idle)
    told = found.ends()
    for task in tasks:
        if task.done():
            task.result()
    return told


async def latency(options: argparse.Namespace) -> Found:
    """Measure latency with the consumer as a task in the producer's event loop."""
    arrived: asyncio.Queue[float] = asyncio.Queue()
    consumer = AsyncConsumer(
        {"bootstrap.servers": options.bootstrap, "auto.offset.reset": "latest"}
    )
    consumer.assign([TopicPartition(options.topic, p) for p in range(options.partitions)])
    for partition in consumer.assignment():
        await consumer.position(partition)

    async def read() -> None:
        async for _ in consumer:
            arrived.put_nowait(time.perf_counter())

    reading = asyncio.create_task(read())
    producer = writer(options, **{"linger.ms": 0})
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


async def seek(options: argparse.Namespace) -> Found:
    """Time a consumer's calls while the broker delays the response to its fetch."""
    consumer = reader(options)
    first = TopicPartition(options.topic, 0)

    async def poll(timeout: float) -> int:
        return len(await consumer.poll(timeout=timeout))

    async def end() -> int:
        return (await consumer.end_offsets([first]))[first]

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
    """Return a function that runs a mode in asyncio's own event loop, or in uvloop."""

    def run(options: argparse.Namespace) -> Found:
        if options.loop == "uvloop":
            import uvloop

            return uvloop.run(mode(options))  # type: ignore[no-any-return]
        return asyncio.run(mode(options))

    return run


if __name__ == "__main__":
    modes = {
        "consume": consume,
        "each": each,
        "arrow": arrow,
        "produce": produce,
        "callers": callers,
        "clients": clients,
        "idle": idle,
        "round-trip": latency,
        "seek": seek,
    }
    main("odradek", odradek.__version__, {k: in_a_loop(mode) for k, mode in modes.items()})
