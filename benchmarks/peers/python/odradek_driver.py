"""Benchmark driver of Odradek, with the public API; METHOD.md explains its settings."""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from functools import partial
from importlib import import_module
from typing import Any

import pyarrow as pa
from driver import (
    GROUPS,
    TIMEOUT,
    Found,
    Idle,
    Watch,
    main,
    payload,
    pool,
    round_trip,
    status,
)
from moving import Calls, called, moves

import odradek
import odradek.runtime.hosts.selector_host
import odradek.runtime.hosts.thread_host
from odradek import Consumer, Producer  # imported before the clock starts
from odradek.record import KERNEL

POLL_RECORDS = 10_000
_OF_GROUPS = (
    "odradek.clients.descriptions",
    "odradek.clients.consumer.group.consumer_group",
    "odradek.clients.consumer.group.classic_leader",
    "odradek.clients.consumer.group.classic_membership",
    "odradek.clients.consumer.group.assignors.range_assignor",
    "odradek.clients.consumer.group.assignors.sticky_assignor",
)


def access(options: argparse.Namespace) -> dict[str, Any]:
    """Return the broker's address, and TLS settings if an authority is given."""
    config = {"bootstrap.servers": options.bootstrap}
    if options.ca:
        config |= {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": options.ca,
        }
    return config


def reader(options: argparse.Namespace, *, background: bool = False) -> Consumer:
    """Return a consumer that has all partitions and starts at their beginnings."""
    config = {**access(options), "auto.offset.reset": "earliest"}
    consumer = Consumer(config, background=background)
    consumer.assign([odradek.TopicPartition(options.topic, p) for p in range(options.partitions)])
    return consumer


def arrow(options: argparse.Namespace, *, background: bool = True) -> Found:
    """Read batches and drop each after counting; a thread receives while this one decodes."""
    watch = Watch()
    consumer = reader(options, background=background)
    records = size = 0
    while records < options.records:
        batch = consumer.poll_arrow(timeout=TIMEOUT, layout=options.layout)
        if batch is None:
            raise RuntimeError(f"{records} records of {options.records}")
        watch.seen()
        records += batch.num_rows
        size += payload(batch)
    return watch.stop("Arrow record batches, CRC checked", records, size)


def arrow_one(options: argparse.Namespace) -> Found:
    """Read batches with all work in the caller's thread, as in a task of Spark."""
    return arrow(options, background=False)


def consume(options: argparse.Namespace) -> Found:
    """Read one object per record, with key and value."""
    watch = Watch()
    consumer = reader(options, background=True)
    records = size = 0
    while records < options.records:
        found = consumer.poll(timeout=TIMEOUT, max_records=POLL_RECORDS)
        watch.seen()
        for record in found:
            size += len(record.key) + len(record.value)  # type: ignore[arg-type]
        records += len(found)
    return watch.stop("objects, CRC checked", records, size)


def soak(options: argparse.Namespace) -> Found:
    """Read Arrow batches in several passes, to check that memory doesn't grow."""
    watch = Watch()
    consumer = reader(options, background=True)
    levels = []
    for _ in range(options.passes):
        consumer.seek_to_beginning()
        records = 0
        while records < options.records:
            batch = consumer.poll_arrow(timeout=TIMEOUT)
            records += batch.num_rows if batch is not None else 0
        levels.append(status("VmRSS"))
    found = watch.stop("Arrow record batches, CRC checked", options.passes * options.records, 0)
    return {**found, "rss_after_pass": levels}


def writer(options: argparse.Namespace, **more: Any) -> Producer:
    """Return a producer with the default `batch.size` unless an option sets another."""
    if options.batch_size:
        more["batch.size"] = options.batch_size
    config = {
        **access(options),
        "linger.ms": 5,
        "compression.type": options.codec,
        **more,
    }
    return Producer(config)


def produce(options: argparse.Namespace) -> Found:
    """Send record by record, each with a future."""
    keys, values = pool(options.pool)
    watch = Watch()
    producer = writer(options)
    send, topic = producer.send, options.topic
    size = 0
    future = None
    for i in range(options.records):
        key, value = keys[i % len(keys)], values[i % len(keys)]
        size += len(key) + len(value)
        future = send(topic, value, key)
    producer.flush(timeout=TIMEOUT)
    if future is None or future.result(timeout=TIMEOUT).offset < 0:
        raise RuntimeError("the last record wasn't acknowledged")
    watch.seen()
    return watch.stop("a future per record", options.records, size)


def produce_many(options: argparse.Namespace) -> Found:
    """Send lists of ten thousand records, as a program does that has collected them."""
    keys, values = pool(options.pool)
    futures = []
    size = 0
    watch = Watch()
    producer = writer(options)
    left = options.records
    while left > 0:
        at = (options.records - left) % len(keys)
        some = slice(at, at + min(left, POLL_RECORDS))
        futures.append(producer.send_many(options.topic, values[some], keys[some]))
        size += sum(map(len, values[some])) + sum(map(len, keys[some]))
        left -= futures[-1].rows
    producer.flush(timeout=TIMEOUT)
    for future in futures:
        future.result(timeout=TIMEOUT)
    watch.seen()
    return watch.stop("offset ranges per list", options.records, size)


def produce_arrow(options: argparse.Namespace) -> Found:
    """Send Arrow batches, whose columns exist before the clock starts."""
    keys, values = pool(options.pool)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    rows = pa.RecordBatch.from_pydict(columns)
    futures = []
    size = 0
    watch = Watch()
    producer = writer(options)
    left = options.records
    while left > 0:
        batch = rows if left >= rows.num_rows else rows.slice(0, left)
        futures.append(producer.send_arrow(options.topic, batch))
        size += payload(batch)
        left -= batch.num_rows
    producer.flush(timeout=TIMEOUT)
    for future in futures:
        future.result(timeout=TIMEOUT)
    watch.seen()
    return watch.stop("offset ranges per Arrow batch", options.records, size)


def load(options: argparse.Namespace) -> Found:
    """Fill a topic round-robin; if Go is installed, franz-go's driver does this instead."""
    keys, values = pool(options.pool)
    watch = Watch()
    producer = writer(options)
    for begin in range(0, options.records, len(keys)):
        count = min(len(keys), options.records - begin)
        partitions = [(begin + i) % options.partitions for i in range(count)]
        rows = {"key": keys[:count], "value": values[:count], "partition": partitions}
        producer.send_arrow(options.topic, pa.RecordBatch.from_pydict(rows))
    producer.flush(timeout=TIMEOUT)
    return watch.stop("", options.records, 0)


def latency(options: argparse.Namespace) -> Found:
    """Measure latency with a consumer in its own thread and a producer without linger."""
    arrived: queue.Queue[float] = queue.Queue()

    def read() -> None:
        consumer = reader(options)
        while True:
            for _ in consumer.poll(timeout=1.0):
                arrived.put(time.perf_counter())

    threading.Thread(target=read, daemon=True).start()
    producer = writer(options, **{"linger.ms": 0})
    return round_trip(options, arrived, lambda: producer.send(options.topic, b"ping"))


def start(options: argparse.Namespace) -> Found:
    """Time new clients until the first acknowledged and the first read record."""
    watch = Watch()
    producer = Producer(access(options))
    producer.send(options.topic, b"first").result(timeout=TIMEOUT)
    watch.seen()
    acknowledged = watch.first
    watch = Watch()
    consumer = reader(options)
    while not consumer.poll(timeout=1.0):
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
            "group.id": f"{options.topic}-{protocol}-odradek-{os.getpid()}",
            "group.protocol": protocol,
        }
    )
    member.subscribe([options.topic])
    while not member.poll(timeout=1.0):
        pass
    watch.seen()
    return watch.first


def seek(options: argparse.Namespace, *, background: bool = False) -> Found:
    """Time a consumer's calls while the broker delays the response to its fetch."""
    consumer = reader(options, background=background)
    first = odradek.TopicPartition(options.topic, 0)
    calls = Calls(
        poll=lambda timeout: len(consumer.poll(timeout=timeout)),
        seek=lambda: consumer.seek(first, 0),
        pause=lambda: consumer.pause(first),
        resume=lambda: consumer.resume(first),
        end=lambda: consumer.end_offsets([first])[first],
    )
    return called(moves(options, calls))


def idle(options: argparse.Namespace, *, background: bool = True) -> Found:
    """Run clients, each with a thread, which read all records and then are idle."""
    if options.pattern:
        for module in _OF_GROUPS:  # imported before the clock starts
            import_module(module)
        Consumer({**access(options), "group.id": "loaded"}).close()
    found = Idle()
    clients = [waiting(options, background=background) for _ in range(options.clients)]
    for client in clients:
        records = 0
        while records < options.records:
            records += len(client.poll(timeout=TIMEOUT, max_records=POLL_RECORDS))
    rest(clients, options.settle, polled=not background)
    found.begins()
    rest(clients, options.idle, polled=not background)
    return found.ends()


def waiting(options: argparse.Namespace, *, background: bool) -> Consumer:
    """Return a consumer of all partitions, assigned or as a member that subscribes a pattern."""
    if not options.pattern:
        return reader(options, background=background)
    config = {**access(options), "auto.offset.reset": "earliest", "group.id": f"g-{os.getpid()}"}
    consumer = Consumer(config, background=background)
    consumer.subscribe(pattern=options.pattern)
    return consumer


def rest(clients: list[Consumer], seconds: float, *, polled: bool) -> None:
    """Wait for `seconds`; if `polled`, poll the clients, which have no thread, once a second."""
    end = time.perf_counter() + seconds
    turn = time.perf_counter()
    while (now := time.perf_counter()) < end:
        if polled and now >= turn:
            turn += 1.0
            for client in clients:
                client.poll(timeout=0)
        time.sleep(max(0.0, min(end, turn if polled else end) - time.perf_counter()))


def idle_one(options: argparse.Namespace) -> Found:
    """Run idle clients in the caller's thread, which polls each of them once a second."""
    return idle(options, background=False)


if __name__ == "__main__":
    main(
        "odradek",
        f"{odradek.__version__} ({KERNEL} kernel)",
        {
            "arrow": arrow,
            "arrow-one": arrow_one,
            "consume": consume,
            "idle": idle,
            "idle-one": idle_one,
            "soak": soak,
            "load": load,
            "produce": produce,
            "produce-arrow": produce_arrow,
            "produce-many": produce_many,
            "round-trip": latency,
            "start": start,
            "seek": seek,
            "seek-background": partial(seek, background=True),
        },
    )
