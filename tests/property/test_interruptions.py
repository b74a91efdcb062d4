"""R-HO-1: after an exception at any bytecode locks are free and the client is usable.

`ODRADEK_EVERY_BYTECODE=1` tries all bytecodes (`make fuzz-interruptions`), otherwise a sample.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.property.interrupting import OURS, At, Interruption, places
from tests.unit.api.loopback_scene import PATIENCE, fill, one_broker
from tests.volume import WHOLE, pairs

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition

TP = TopicPartition("t", 0)
MOST = 40 if WHOLE else 16


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with one_broker(partitions=2) as (_, servers):
        fill(servers, 500)
        yield servers


def free(lock: Any) -> bool:
    """Assert that another thread can take the lock."""
    got: list[bool] = []

    def take() -> None:
        with lock:
            got.append(True)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(got)


def length(action: Callable[[], object], inside: str = OURS) -> int:
    """Count the bytecodes of this thread in files whose paths begin with `inside`."""
    with At(float("inf"), inside) as tracer:
        action()
    return tracer.seen


def interrupted(action: Callable[[], object], number: int, inside: str = OURS) -> str:
    """Interrupt an action at a bytecode; return the place, or "" if the action ended before."""
    with At(number, inside) as tracer:
        try:
            action()
        except Interruption:
            return tracer.where
    return ""


def rows(count: int) -> Any:
    import pyarrow as pa

    return pa.table({"value": [b"r" * 100] * count, "key": [str(n).encode() for n in range(count)]})


def sends(producer: Producer) -> None:
    """Send with batches of 500 bytes, which are created, widened, filled and closed."""
    for number in range(3):
        producer.send("t", b"x" * 200, partition=number % 2)


def flushes(producer: Producer) -> None:
    producer.send("t", b"1")
    producer.flush(PATIENCE)


def goes_on(producer: Producer, where: str) -> None:
    """Check that the producer sends to both partitions, and then accounts for no buffered bytes."""
    assert free(producer._host.lock), where
    for partition in (0, 1):
        assert producer.send("t", b"next", partition=partition).result(PATIENCE), where
    producer.flush(PATIENCE)
    accumulator = producer._engine.accumulator
    assert (accumulator.used, accumulator.granted) == (0, {}), where
    assert not accumulator.untaken(), where
    assert producer._engine.early.incomplete() == [], where
    assert producer._engine.ended is None, where


PRODUCES: dict[str, Callable[[Producer], object]] = {
    "send": sends,
    "send_arrow": lambda producer: producer.send_arrow("t", rows(12)),
    "send_many": lambda producer: producer.send_many("t", [b"r" * 100] * 12, [b"k", None] * 6),
    "flush": flushes,
    "result": lambda producer: producer.send("t", b"1").result(PATIENCE),
    "explain": lambda producer: producer.explain(),
}


@pytest.mark.parametrize(
    ("what", "inside"),
    [*((what, OURS) for what in PRODUCES), ("send", f"{OURS}/clients/producer/record_accumulator")],
    ids=[*PRODUCES, "send-in-the-accumulator"],
)
def test_a_producer_continues_after_an_interruption(servers: str, what: str, inside: str) -> None:
    """Try more bytecodes in the accumulator, whose accounting could become wrong."""
    action = PRODUCES[what]
    most = MOST if inside == OURS else 4 * MOST
    with Producer(bootstrap_servers=servers, batch_size=500, linger_ms=1) as producer:
        producer.send("t", b"warm").result(PATIENCE)
        action(producer)
        total = max(length(lambda: action(producer), inside) for _ in range(2))
        for number in places(total, most, seed=1):
            where = interrupted(lambda: action(producer), number, inside)
            goes_on(producer, where)


def test_an_interrupted_send_to_an_unknown_partition_leaves_no_record_behind(servers: str) -> None:
    def action() -> None:
        producer.send("t", b"early", partition=9)

    with Producer(bootstrap_servers=servers, max_block_ms=50, linger_ms=0) as producer:
        producer.partitions_for("t", PATIENCE)
        action()
        total = max(length(action) for _ in range(2))
        for number in places(total, MOST, seed=1):
            where = interrupted(action, number)
            goes_on(producer, where)


def waits(producer: Producer) -> None:
    """Send twice; the second record waits for buffer memory."""
    for _ in range(2):
        producer.send("t", bytes(30_000))


def test_an_interrupted_wait_for_memory_leaves_no_waiter(servers: str) -> None:
    options: dict[str, Any] = {"buffer_memory": 40_000, "max_request_size": 40_000}
    with Producer(
        bootstrap_servers=servers, max_block_ms=int(PATIENCE * 1000), **options
    ) as producer:
        producer.partitions_for("t")
        accumulator = producer._engine.accumulator

        def left() -> tuple[object, ...]:
            mine = accumulator
            return (mine.used, mine.granted, len(mine.waiters), producer._calls.in_line)

        waits(producer)
        producer.flush(PATIENCE)
        total = length(lambda: waits(producer))
        for number in places(total, 3 * MOST, seed=1):
            producer.flush(PATIENCE)
            where = interrupted(lambda: waits(producer), number)
            producer.flush(PATIENCE)
            until = time.monotonic() + PATIENCE  # abandoned waiters are removed in a later step
            while left() != (0, {}, 0, {}) and time.monotonic() < until:
                time.sleep(0.001)
            assert left() == (0, {}, 0, {}), where


def read(consumer: Consumer) -> None:
    consumer.seek(TP, 0)
    assert consumer.poll(PATIENCE)


def pauses(consumer: Consumer) -> None:
    consumer.pause([TP])
    consumer.resume([TP])


def columns(consumer: Consumer) -> None:
    consumer.seek(TP, 0)
    consumer.poll_arrow(PATIENCE)


READS: dict[str, Callable[[Consumer], object]] = {
    "poll": read,
    "pause": pauses,
    "poll_arrow": columns,
    "end_offsets": lambda consumer: consumer.end_offsets([TP], PATIENCE),
    "explain": lambda consumer: consumer.explain(),
}


@pytest.mark.parametrize(("what", "background"), pairs(READS, [False, True]))
def test_a_consumer_continues_after_an_interruption(
    servers: str, what: str, background: bool
) -> None:
    action = READS[what]
    options: dict[str, Any] = {"fetch_max_wait_ms": 5, "background": background}
    with Consumer(bootstrap_servers=servers, **options) as consumer:
        consumer.assign([TP])
        read(consumer)
        action(consumer)
        total = max(length(lambda: action(consumer)) for _ in range(2))
        for number in places(total, MOST, seed=2):
            where = interrupted(lambda: action(consumer), number)
            assert free(consumer._host.lock), where
            consumer.resume([TP])
            consumer.seek(TP, 10)
            records = consumer.poll(PATIENCE)
            assert records, where
            assert records[0].offset == 10, where


CLIENTS: dict[str, Callable[[str], Any]] = {
    "producer": lambda servers: Producer(bootstrap_servers=servers),
    "consumer": lambda servers: Consumer(bootstrap_servers=servers, fetch_max_wait_ms=5),
    "background": lambda servers: Consumer(
        bootstrap_servers=servers, fetch_max_wait_ms=5, background=True
    ),
}


def used(kind: str, servers: str) -> Any:
    client = CLIENTS[kind](servers)
    if isinstance(client, Producer):
        client.send("t", b"1").result(PATIENCE)
    else:
        client.assign([TP])
        read(client)
    return client


def io_threads() -> int:
    return sum(t.name == "odradek-io" for t in threading.enumerate())


@pytest.mark.parametrize("kind", CLIENTS)
def test_close_can_be_repeated_after_an_interruption(servers: str, kind: str) -> None:
    total = length(used(kind, servers).close)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count is enough
    for number in places(total, MOST // 2, seed=3):
        client = used(kind, servers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            where = interrupted(client.close, number)
            client.close(PATIENCE)
        assert free(client._host.lock), where
        assert not client._host.in_use, where
    assert io_threads() == 0
    gc.collect()
    left = len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208
    assert left < 10  # the brokers' ends of the last connections
