"""Check that long loops leak no memory, and closed clients no descriptors, threads or memory.

`LEAK_CLIENTS=10000` is the long form (two minutes).
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest
from tests.volume import WHOLE

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import ClientForkedError
from odradek.common.types import TopicPartition
from odradek.testing import FakeCluster, LocalCluster

CLIENTS = int(os.environ.get("LEAK_CLIENTS", "300" if WHOLE else "100"))
ROUNDS, WARM_UP = (25, 9) if WHOLE else (11, 4)
MEGABYTE = 1 << 20


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_half_a_million_records_leak_no_memory(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=2)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    parts = [TopicPartition(topic, p) for p in range(2)]
    value, each = bytes(100), 20_000
    after_warm_up = 0
    with Producer(config) as producer, Consumer(config, auto_offset_reset="earliest") as consumer:
        consumer.assign(parts)
        for turn in range(ROUNDS):
            for n in range(each):
                producer.send(topic, value, partition=n % 2)
            producer.flush(timeout=60)
            seen = 0
            while seen < each:
                seen += len(consumer.poll(timeout=30.0, max_records=each))
            assert seen == each
            if turn == WARM_UP:
                after_warm_up = resident()
        grown = resident() - after_warm_up
    assert grown < 2 * MEGABYTE + 20 * (ROUNDS - WARM_UP - 1) * each  # 20 bytes per record


@pytest.mark.timeout(900)
def test_opening_and_closing_clients_leaks_nothing(cluster: LocalCluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=1)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    before: tuple[int, int, int] | None = None
    for n in range(CLIENTS):
        match n % 3:
            case 0:
                with Producer(config, linger_ms=0) as producer:
                    producer.send(topic, b"x").result(timeout=30)
            case 1:
                with Consumer(config, auto_offset_reset="earliest") as consumer:
                    consumer.assign([TopicPartition(topic, 0)])
                    assert consumer.poll(timeout=30.0, max_records=1)
            case _:
                with Consumer(config, group_id=f"{topic}-{n % 5}") as member:
                    assert member.committed([TopicPartition(topic, 0)], timeout=30.0)
        if n == CLIENTS // 4:
            before = descriptors(), threading.active_count(), resident()
    assert before is not None
    fds, threads, memory = before
    # The cluster's front door runs in this process, and closes its ends after the clients did.
    deadline = time.monotonic() + 30.0
    while descriptors() > fds and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors() <= fds
    assert threading.active_count() <= threads
    assert resident() - memory < 20 * MEGABYTE


def test_calls_in_a_forked_child_raise_and_the_parent_continues(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.create_topic(topic, partitions=1)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with (
        Producer(config) as producer,
        Consumer(config, group_id=f"{topic}-group", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe([topic])
        producer.send(topic, b"before").result(timeout=30)
        assert [r.value for r in consumer.poll(timeout=30.0)] == [b"before"]
        connections = len(producer._engine.network.connections)
        child = os.fork()
        if child == 0:  # pragma: no cover
            refused = 0
            for call in (
                lambda: producer.send(topic, b"child"),
                lambda: producer.flush(timeout=1.0),
                lambda: consumer.poll(timeout=1.0),
                lambda: consumer.commit(timeout=1.0),
            ):
                try:
                    call()
                except ClientForkedError:
                    refused += 1
            producer.close()
            consumer.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        producer.send(topic, b"after").result(timeout=30)
        assert [r.value for r in consumer.poll(timeout=30.0)] == [b"after"]
        assert len(producer._engine.network.connections) == connections
        consumer.commit()


@pytest.mark.parametrize("fails", [False, True])
def test_records_with_slow_delivery_callbacks_stay_within_buffer_memory(
    fails: bool,
) -> None:
    size, buffer = 1000, 1 << 16
    told, most = 0, 0

    def note(_: object, __: object) -> None:
        nonlocal told
        time.sleep(0.001)
        told += 1

    with FakeCluster(1, topics={"t": 1}) as fake:
        options = {"bootstrap.servers": fake.bootstrap_servers, "buffer.memory": buffer}
        options |= {"linger.ms": 0, "request.timeout.ms": 100, "delivery.timeout.ms": 200}
        with Producer(options) as producer:
            producer.partitions_for("t")
            if fails:
                fake.pause(1)
            for sent in range(600):
                producer.send("t", bytes(size), on_delivery=note)
                most = max(most, sent + 1 - told)
            fake.resume(1)
    assert 10 < most < 3 * buffer // size
