"""Topics that both connectors read: one for each unusual state of a topic.

confluent-kafka writes them. The second phase changes some of them while queries are running.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.spark.conftest import Topics

BASE = 1_700_000_000_000
SIDES = ("jvm", "ours", "older")
PREFIX = "parity-"


class ParityTopics:
    """Create all topics, and keep a transaction open."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._settings: dict[str, Any] = {**topics.cluster.librdkafka_config(), "log_level": 0}
        self._admin = AdminClient(self._settings)
        self._producer = self._new_producer()
        self._unfinished: Producer | None = None

    def _new_producer(self) -> Producer:
        """Return an idempotent producer, so that a rejected batch keeps its position in the log."""
        return Producer({**self._settings, "linger.ms": 5, "enable.idempotence": True})

    def create(self, name: str, partitions: int, **config: str) -> str:
        return self._topics.create(partitions, PREFIX + name, **config)

    def send(self, topic: str, partition: int, rows: range, **more: Any) -> None:
        """Send rows with every kind of key and value, each with a timestamp 10 ms later."""
        for n in rows:
            key = None if n % 5 == 0 else b"" if n % 5 == 1 else f"k{n}".encode()
            value = None if n % 7 == 3 else b"" if n % 7 == 4 else f"v{n}".encode()
            stamp = BASE + 10 * n + partition
            self._producer.produce(
                PREFIX + topic, value, key, partition=partition, timestamp=stamp, **more
            )

    def first_phase(self) -> None:
        """Create everything that exists when queries start."""
        self._quick_cleaner()
        self._compacted()
        self.create("plain", 3)
        self.send("plain", 0, range(40))
        self.send("plain", 1, range(25))
        self.create("empty", 2)
        self.create("appended", 1, message_timestamp_type="LogAppendTime")
        self.send("appended", 0, range(5))
        for name in ("pattern-a", "pattern-b", "grown", "fresh", "doomed"):
            self.create(name, 1)
            self.send(name, 0, range(10))
        self._headers()
        self.create("wild", 1, message_timestamp_after_max_ms=str(2**63 - 1))
        self._producer.produce(PREFIX + "wild", b"v", b"k", partition=0, timestamp=10**17)
        self.create("headless", 1)
        self.create("aged", 1)
        self.send("headless", 0, range(60))
        self.send("aged", 0, range(50))
        for side in SIDES:
            self.create(f"sink-{side}", 3)
        assert self._producer.flush(60) == 0
        self._topics.forget(PREFIX + "headless", 30)
        self._transactions()
        self._wait_until_compacted(24)

    def second_phase(self) -> None:
        """Make the changes between two runs of a query."""
        self.create("pattern-c", 1)
        self._topics.grow(PREFIX + "grown", 2)
        self._wait_for_partitions("grown", 2)
        self._producer = self._new_producer()  # this producer knows the new partitions
        self.send("pattern-c", 0, range(4))
        self.send("aged", 0, range(50, 100))
        self.send("fresh", 0, range(10, 15))
        self.send("grown", 0, range(10, 12))
        self.send("grown", 1, range(6))
        assert self._producer.flush(60) == 0
        self._topics.forget(PREFIX + "aged", 70)
        self._topics.delete(PREFIX + "doomed")

    def close(self) -> None:
        """Abort the open transaction."""
        if self._unfinished is not None:
            self._unfinished.abort_transaction(30)

    def written(self, side: str) -> list[tuple[Any, ...]]:
        """Return the records of a sink's topic; the partitions of keyless records are random."""
        name = f"{PREFIX}sink-{side}"
        consumer = Consumer({**self._settings, "group.id": "parity", "enable.auto.commit": False})
        found = []
        try:
            for partition in range(3):
                place = TopicPartition(name, partition, 0)
                end = consumer.get_watermark_offsets(place, timeout=30)[1]
                consumer.assign([place])
                while end and consumer.position([place])[0].offset < end:
                    for message in consumer.consume(200, 1.0):
                        where = None if message.key() is None else partition
                        headers = message.headers()
                        found.append((message.value(), message.key(), where, headers))
        finally:
            consumer.close()
        return sorted(found, key=repr)

    def _wait_for_partitions(self, name: str, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self._admin.list_topics(PREFIX + name, 10).topics[PREFIX + name].partitions) < (
            count
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _quick_cleaner(self) -> None:
        """Let the log cleaner compact within a second instead of 15."""
        entry = ConfigEntry(
            "log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET
        )
        for n in range(len(self._topics.cluster.broker_addresses)):
            wanted = ConfigResource(ResourceType.BROKER, str(n), incremental_configs=[entry])
            self._admin.incremental_alter_configs([wanted])[wanted].result(30)

    def _compacted(self) -> None:
        """Write three segments, of which the older two keep the last record of each key."""
        self.create(
            "compacted",
            1,
            cleanup_policy="compact",
            segment_ms="1000",
            min_cleanable_dirty_ratio="0.01",
        )
        for segment in range(3):
            for n in range(20):
                stamp = BASE + 60_000 * segment + n
                self._producer.produce(
                    PREFIX + "compacted", f"{segment}-{n}", f"k{n % 4}", timestamp=stamp
                )
            assert self._producer.flush(30) == 0

    def _wait_until_compacted(self, left: int) -> None:
        place = TopicPartition(PREFIX + "compacted", 0, 0)
        deadline = time.monotonic() + 40
        while True:
            consumer = Consumer(
                {**self._settings, "group.id": "parity", "enable.auto.commit": False}
            )
            consumer.assign([place])
            count = 0
            while consumer.position([place])[0].offset < 60:
                count += len(consumer.consume(100, 0.2))
            consumer.close()
            if count <= left:
                return
            assert time.monotonic() < deadline, f"{count} records are still there"
            time.sleep(0.2)

    def _headers(self) -> None:
        self.create("headers", 1)
        kinds: list[list[tuple[str, bytes | None]]] = [
            [("a", b"1"), ("a", b"2")],
            [("null", None)],
            [("empty", b"")],
            [("", b"no name"), ("b", b"\xff\x00")],
        ]
        for headers in kinds:
            self.send("headers", 0, range(2), headers=headers)
        self.send("headers", 0, range(3))

    def _transactions(self) -> None:
        """Write committed and aborted transactions in turns, and a topic with an open one."""
        self.create("transactions", 2)
        self.create("unfinished", 1)
        settings = {"transactional.id": "parity", "linger.ms": 0}
        # The open transaction stays open during all queries, on slow machines too.
        settings["transaction.timeout.ms"] = 900_000
        producer = Producer({**self._settings, **settings})
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            for n in range(6):
                stamp = BASE + 1000 * number + n
                producer.produce(
                    PREFIX + "transactions",
                    f"{number}-{n}",
                    f"k{n}",
                    partition=n % 3 % 2,
                    timestamp=stamp,
                )
            assert producer.flush(30) == 0
            producer.commit_transaction(30) if number % 2 == 0 else producer.abort_transaction(30)
        for number in range(2):
            producer.begin_transaction()
            for n in range(5):
                producer.produce(PREFIX + "unfinished", f"{number}-{n}", timestamp=BASE + n)
            assert producer.flush(30) == 0
            if number == 0:
                producer.commit_transaction(30)
        self._unfinished = producer
