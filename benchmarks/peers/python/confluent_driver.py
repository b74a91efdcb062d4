"""Benchmark driver of confluent-kafka; METHOD.md explains its settings."""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from driver import GROUPS, TIMEOUT, Found, Rows, Watch, main, pool, round_trip
from moving import Calls, called, moves


def access(options: argparse.Namespace) -> dict[str, Any]:
    """Return the broker's address, and TLS settings if an authority is given."""
    config = {"bootstrap.servers": options.bootstrap}
    if options.ca:
        config |= {"security.protocol": "SSL", "ssl.ca.location": options.ca}
    return config


def reader(options: argparse.Namespace) -> Any:
    """Return a consumer that has all partitions and starts at their beginnings."""
    consumer = Consumer(
        {
            **access(options),
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
    consumer.assign([TopicPartition(options.topic, p, 0) for p in range(options.partitions)])
    return consumer


def messages(consumer: Any, watch: Watch, most: int = 10_000) -> Any:
    """Return the next messages; raise the error of a message that has one."""
    found = consumer.consume(most, 0.1)
    if found:
        watch.seen()
    for message in found:
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
    return found


def consume(options: argparse.Namespace, most: int = 10_000) -> Found:
    """Read one object per record, with key and value."""
    watch = Watch()
    consumer = reader(options)
    records = size = 0
    while records < options.records:
        found = messages(consumer, watch, most)
        for message in found:
            size += len(message.key()) + len(message.value())
        records += len(found)
    return watch.stop("objects, CRC not checked", records, size)


def poll(options: argparse.Namespace) -> Found:
    """Read one message per call, as most programs do."""
    watch = Watch()
    consumer = reader(options)
    records = size = 0
    while records < options.records:
        message = consumer.poll(0.1)
        if message is None:
            continue
        watch.seen()
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        size += len(message.key()) + len(message.value())
        records += 1
    return watch.stop("objects, CRC not checked", records, size)


def arrow(options: argparse.Namespace) -> Found:
    """Convert messages to Python lists, and the lists to Arrow batches, as users have to."""
    rows = Rows()
    watch = Watch()
    consumer = reader(options)
    while len(rows) < options.records:
        found = messages(consumer, watch)
        key, value, offset, partition, timestamp = rows.columns
        key += [m.key() for m in found]
        value += [m.value() for m in found]
        offset += [m.offset() for m in found]
        partition += [m.partition() for m in found]
        timestamp += [m.timestamp()[1] for m in found]
        rows.made()
    rows.made(all_rows=True)
    return watch.stop("Arrow by way of lists, CRC not checked", rows.records, rows.size)


def writer(options: argparse.Namespace, **more: Any) -> Any:
    """Return a producer with Java's murmur2, and default `batch.size` unless an option sets it."""
    if options.batch_size:
        more["batch.size"] = options.batch_size
    return Producer(
        {
            **access(options),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "compression.type": options.codec,
            "partitioner": "murmur2_random",
            **more,
        }
    )


def produce(options: argparse.Namespace, *, callback: bool = True) -> Found:
    """Send record by record; wait while the queue is full, as the library's users do."""
    keys, values = pool(options.pool)
    done = failed = size = 0

    def told(error: Any, _: Any) -> None:
        nonlocal done, failed
        watch.seen()
        if error is None:
            done += 1
        else:
            failed += 1

    more = {"on_delivery": told} if callback else {}
    watch = Watch()
    producer = writer(options)
    send, poll, topic = producer.produce, producer.poll, options.topic
    for i in range(options.records):
        key, value = keys[i % len(keys)], values[i % len(keys)]
        size += len(key) + len(value)
        while True:
            try:
                send(topic, value, key, **more)
                break
            except BufferError:
                poll(0.01)
        if not i & 1023:
            poll(0)
    left = producer.flush(TIMEOUT)
    if left or failed or (callback and done != options.records):
        raise RuntimeError(f"{left} records left, {failed} failed")
    what = "a callback per record" if callback else "nothing per record"
    return watch.stop(what, options.records, size)


def produce_quiet(options: argparse.Namespace) -> Found:
    """Send records without a delivery callback, so that the program doesn't learn the results."""
    return produce(options, callback=False)


def latency(options: argparse.Namespace) -> Found:
    """Measure latency with a consumer in its own thread and a producer without linger."""
    arrived: queue.Queue[float] = queue.Queue()

    def read() -> None:
        consumer = reader(options)
        while True:
            for _ in consumer.consume(1, 1.0):
                arrived.put(time.perf_counter())

    threading.Thread(target=read, daemon=True).start()
    producer = writer(options, **{"linger.ms": 0})

    def send() -> None:
        producer.produce(options.topic, b"ping")
        producer.poll(0)

    return round_trip(options, arrived, send)


def start(options: argparse.Namespace) -> Found:
    """Time new clients until the first acknowledged and the first read record."""
    watch = Watch()
    producer = Producer(access(options))
    producer.produce(options.topic, b"first")
    if producer.flush(TIMEOUT):
        raise RuntimeError("the first record wasn't acknowledged")
    watch.seen()
    acknowledged = watch.first
    watch = Watch()
    consumer = reader(options)
    while not messages_of_start(consumer):
        pass
    watch.seen()
    groups = {f"first_in_{p}_group_ms": 1000 * first_in_group(options, p) for p in GROUPS}
    return {
        "first_acknowledged_ms": 1000 * acknowledged,
        "first_read_ms": 1000 * watch.first,
        **groups,
    }


def first_in_group(options: argparse.Namespace, protocol: str) -> float:
    """Return the seconds until the only member of a new group has its first record."""
    watch = Watch()
    member = Consumer(
        {
            **access(options),
            "auto.offset.reset": "earliest",
            "group.id": f"{options.topic}-{protocol}-confluent-{os.getpid()}",
            "group.protocol": protocol,
            "fetch.queue.backoff.ms": 10,
        }
    )
    member.subscribe([options.topic])
    while not messages_of_start(member):
        pass
    watch.seen()
    return watch.first


def seek(options: argparse.Namespace) -> Found:
    """Time a consumer's calls while the broker delays a fetch; ends are watermark offsets."""
    consumer = reader(options)
    first, place = TopicPartition(options.topic, 0), TopicPartition(options.topic, 0, 0)

    def poll(timeout: float) -> int:
        message = consumer.poll(timeout)
        if message is not None and message.error() is not None:
            raise RuntimeError(str(message.error()))
        return message is not None

    calls = Calls(
        poll=poll,
        seek=lambda: consumer.seek(place),
        pause=lambda: consumer.pause([first]),
        resume=lambda: consumer.resume([first]),
        end=lambda: consumer.get_watermark_offsets(first, timeout=TIMEOUT)[1],
    )
    return called(moves(options, calls))


def messages_of_start(consumer: Any) -> Any:
    """Return at most one message, because `consume` waits for the requested number."""
    return consumer.consume(1, 1.0)


if __name__ == "__main__":
    main(
        confluent_kafka.__name__.replace("confluent_kafka", "confluent-kafka"),
        f"{confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})",
        {
            "consume": consume,
            "consume-500": partial(consume, most=500),
            "poll": poll,
            "arrow": arrow,
            "produce": produce,
            "produce-quiet": produce_quiet,
            "round-trip": latency,
            "start": start,
            "seek": seek,
        },
    )
