"""Benchmark driver of kafka-python; METHOD.md explains its settings."""

from __future__ import annotations

import argparse
import queue
import threading
import time
from typing import Any

import kafka
from driver import TIMEOUT, Found, Rows, Watch, main, pool, round_trip
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from moving import Calls, called, moves


def reader(options: argparse.Namespace) -> Any:
    """Return a consumer that has all partitions and starts at their beginnings."""
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        enable_auto_commit=False,
        max_partition_fetch_bytes=8 << 20,
        fetch_max_bytes=50 << 20,
        max_poll_records=10_000,
    )
    partitions = [TopicPartition(options.topic, p) for p in range(options.partitions)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    return consumer


def consume(options: argparse.Namespace) -> Found:
    """Read one object per record, with key and value."""
    watch = Watch()
    consumer = reader(options)
    records = size = 0
    while records < options.records:
        for found in consumer.poll(timeout_ms=100).values():
            watch.seen()
            records += len(found)
            for message in found:
                size += len(message.key) + len(message.value)
    return watch.stop("objects, CRC checked", records, size)


def arrow(options: argparse.Namespace) -> Found:
    """Convert messages to Python lists, and the lists to Arrow batches."""
    rows = Rows()
    watch = Watch()
    consumer = reader(options)
    while len(rows) < options.records:
        for found in consumer.poll(timeout_ms=100).values():
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


def produce(options: argparse.Namespace) -> Found:
    """Send record by record, each with a future."""
    keys, values = pool(options.pool)
    watch = Watch()
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        batch_size=options.batch_size or 128 << 10,
        compression_type=None if options.codec == "none" else options.codec,
    )
    size = 0
    future = None
    for i in range(options.records):
        key, value = keys[i % len(keys)], values[i % len(keys)]
        size += len(key) + len(value)
        future = producer.send(options.topic, value, key)
    producer.flush(TIMEOUT)
    if future is None or not future.succeeded():
        raise RuntimeError("the last record wasn't acknowledged")
    watch.seen()
    return watch.stop("a future per record", options.records, size)


def latency(options: argparse.Namespace) -> Found:
    """Measure latency with a consumer in its own thread and a producer without linger."""
    arrived: queue.Queue[float] = queue.Queue()

    def read() -> None:
        for _ in reader(options):
            arrived.put(time.perf_counter())

    threading.Thread(target=read, daemon=True).start()
    producer = KafkaProducer(bootstrap_servers=options.bootstrap, linger_ms=0)
    return round_trip(options, arrived, lambda: producer.send(options.topic, b"ping"))


def start(options: argparse.Namespace) -> Found:
    """Time new clients until the first acknowledged and the first read record."""
    watch = Watch()
    producer = KafkaProducer(bootstrap_servers=options.bootstrap)
    producer.send(options.topic, b"first").get(TIMEOUT)
    watch.seen()
    acknowledged = watch.first
    watch = Watch()
    next(reader(options))
    watch.seen()
    return {"first_acknowledged_ms": 1000 * acknowledged, "first_read_ms": 1000 * watch.first}


def seek(options: argparse.Namespace) -> Found:
    """Time a consumer's calls while the broker delays the response to its fetch."""
    consumer = reader(options)
    first = TopicPartition(options.topic, 0)
    calls = Calls(
        poll=lambda timeout: sum(map(len, consumer.poll(timeout_ms=1000 * timeout).values())),
        seek=lambda: consumer.seek(first, 0),
        pause=lambda: consumer.pause(first),
        resume=lambda: consumer.resume(first),
        end=lambda: consumer.end_offsets([first])[first],
    )
    return called(moves(options, calls))


if __name__ == "__main__":
    main(
        "kafka-python",
        kafka.__version__,
        {
            "consume": consume,
            "arrow": arrow,
            "produce": produce,
            "round-trip": latency,
            "start": start,
            "seek": seek,
        },
    )
