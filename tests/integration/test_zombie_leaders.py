"""Test consumers that start at a broker that was frozen and believes that it leads (R-ID-4)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

CONSUMERS = 6
SETTINGS = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition didn't become true"
        time.sleep(0.05)


class Zombie:
    """Partition whose leader is frozen and is the leader of the controllers too.

    After waking up, it learns of its successor only from brokers that this test has stopped.
    """

    def __init__(self, cluster: LocalCluster, admin: Admin, producer: Producer) -> None:
        self.cluster, self._admin, self._producer = cluster, admin, producer
        self.broker = admin.describe_metadata_quorum().leader_id
        for number in itertools.count():
            self.partition = TopicPartition(f"t{number}", 0)
            admin.create_topics([NewTopic(self.partition.topic, 1, 3)])
            if self.leader() == self.broker:
                break
        at = next(b for b in admin.describe_cluster().brokers if b.id == self.broker)
        self.address = f"{at.host}:{at.port}"

    def leader(self) -> int | None:
        topic = self.partition.topic
        return self._admin.describe_topics([topic])[topic].partitions[0].leader

    def write(self, count: int, value: bytes = b"old") -> None:
        for _ in range(count):
            self._producer.send(self.partition.topic, value)
        self._producer.flush()

    def fail_over(self) -> OffsetAndMetadata:
        """Freeze the leader, write to its successor; return the log end offset with its epoch."""
        self.cluster.pause(self.broker)
        until(lambda: self.leader() not in (None, self.broker))
        self.write(50)
        with Consumer(bootstrap_servers=self.cluster.bootstrap_servers) as consumer:
            consumer.assign([self.partition])
            consumer.seek(self.partition, 149)
            last = consumer.poll(30, max_records=1)[-1]
        return OffsetAndMetadata(last.offset + 1, leader_epoch=last.leader_epoch)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Resume the broker while the other brokers are stopped."""
        others = [i for i in self.cluster.running if i != self.broker]
        for i in others:
            self.cluster.pause(i)
        self.cluster.resume(self.broker)
        try:
            yield
        finally:
            for i in others:
                self.cluster.resume(i)


class Reading:
    """Consumer at the end of the partition that only knows the frozen broker's address."""

    def __init__(self, zombie: Zombie, position: OffsetAndMetadata) -> None:
        self.records: list[ConsumerRecord] = []
        self.consumer = Consumer(
            bootstrap_servers=zombie.address, auto_offset_reset="earliest", client_id="reading"
        )
        self.consumer.assign([zombie.partition])
        self.consumer.seek(zombie.partition, position)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            self.records += self.consumer.poll(0.2)

    def is_waiting(self) -> bool:
        """Return whether the broker has accepted the connection and sent no response."""
        return "never answers" in str(self.consumer.explain())

    def has_decided(self) -> bool:
        """Return whether the consumer has rejected the broker's metadata or read a record."""
        return bool(self.records) or "older" in str(self.consumer.explain())

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.consumer.close()


@pytest.mark.long
def test_a_broker_that_wakes_up_causes_no_duplicate_reads() -> None:
    """Check R-ID-4: without it 24 of 24 consumers read all 150 records again (Kafka 4.4)."""
    with LocalCluster(brokers=3, config=SETTINGS) as cluster, ExitStack() as closing:
        admin = closing.enter_context(Admin(bootstrap_servers=cluster.bootstrap_servers))
        # A producer that starts while the controller is frozen gets its id after 30 s.
        producer = closing.enter_context(Producer(bootstrap_servers=cluster.bootstrap_servers))
        zombie = Zombie(cluster, admin, producer)
        zombie.write(100)
        position = zombie.fail_over()
        readings = [Reading(zombie, position) for _ in range(CONSUMERS)]
        for reading in readings:
            closing.callback(reading.close)
        until(lambda: all(reading.is_waiting() for reading in readings))
        with zombie.awake():
            until(lambda: all(reading.has_decided() for reading in readings))
        zombie.write(1, b"new")
        until(lambda: all(reading.records for reading in readings))
        assert [[r.value for r in reading.records] for reading in readings] == [
            [b"new"]
        ] * CONSUMERS
