"""Test transactions with real brokers, with the current protocol and the previous one (KIP-890)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.interop.other_client import read_all
from tests.interop.our_client import read

from odradek.admin import FeatureUpdate
from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.common.errors import AbortableTransactionError, FatalTransactionError, KafkaError
from odradek.common.errors.kafka import (
    IllegalGenerationError,
    ProducerFencedError,
    UnknownMemberIdError,
)
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

PARTITIONS = 3


def change_protocol(cluster: LocalCluster, verb: str, to: int) -> None:
    """Change the cluster's transaction.version; `verb` is SAFE_DOWNGRADE or UPGRADE.

    The controller has applied the change when it answers; the broker applies it a little later.
    """
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.update_features({"transaction.version": FeatureUpdate(to, verb)}, timeout=30)
        until = time.monotonic() + 60.0
        while (admin.describe_features().features["transaction.version"].level or 0) != to:
            assert time.monotonic() < until
            time.sleep(0.05)


@contextmanager
def protocol(cluster: LocalCluster, level: int) -> Iterator[None]:
    """Run a block with another transaction.version."""
    change_protocol(cluster, "SAFE_DOWNGRADE", level)
    try:
        yield
    finally:
        change_protocol(cluster, "UPGRADE", 2)


class Story:
    """Events of one transactional id, and the records that others see."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.servers, self.topic = cluster.bootstrap_servers, topic
        cluster.create_topic(topic, partitions=PARTITIONS)
        self.committed: list[int] = []
        self.next = 0

    def producer(self, **config: Any) -> Producer:
        made = Producer(bootstrap_servers=self.servers, transactional_id=self.topic, **config)
        made.init_transactions()
        return made

    def consumer(self, **config: Any) -> Consumer:
        config = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", **config}
        return Consumer(bootstrap_servers=self.servers, **config)

    def send(self, producer: Producer, *, count: int = 30) -> list[int]:
        numbers = list(range(self.next, self.next + count))
        self.next += count
        for n in numbers:
            producer.send(self.topic, b"%d" % n, partition=n % PARTITIONS)
        return numbers

    def commit(self, producer: Producer, **offsets: Any) -> None:
        with producer.transaction():
            numbers = self.send(producer)
            if offsets:
                producer.send_offsets_to_transaction(**offsets)
        self.committed += numbers

    def check(self) -> None:
        """Check that read_committed consumers of both libraries see only the committed records."""
        expected = {
            p: [n for n in self.committed if n % PARTITIONS == p] for p in range(PARTITIONS)
        }
        ours: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
        with self.consumer() as consumer:
            consumer.assign([TopicPartition(self.topic, p) for p in ours])
            for record in read(consumer, len(self.committed)):
                ours[record.partition].append(int(record.value or b""))
            assert not consumer.poll(0.1)
        assert ours == expected
        theirs = read_all(self.servers, self.topic, PARTITIONS)
        assert {p: [int(r.value or b"") for r in rows] for p, rows in theirs.items()} == expected


def run_story(story: Story, running: Producer) -> None:
    """Commit, abort, send offsets, crash and fence a producer."""
    place = TopicPartition(story.topic, 0)
    story.commit(running)
    with pytest.raises(ZeroDivisionError), running.transaction():
        story.send(running)
        running.flush()
        story.send(running)
        raise ZeroDivisionError
    with story.consumer(group_id=story.topic, enable_auto_commit=False) as member:
        member.subscribe([story.topic])
        read(member)
        now = member.group_metadata()
        offset = OffsetAndMetadata(story.next, "kept", 0)
        story.commit(running, offsets={place: offset}, group=now)
        stale = ConsumerGroupMetadata(now.group_id, now.generation_id - 1, now.member_id)
        stranger = ConsumerGroupMetadata(now.group_id, now.generation_id, "somebody else")
        for zombie, error in ((stale, IllegalGenerationError), (stranger, UnknownMemberIdError)):
            with pytest.raises(error) as caught, running.transaction():  # by KIP-447
                story.send(running)
                running.send_offsets_to_transaction({place: 1}, zombie)
            assert isinstance(caught.value, AbortableTransactionError)
        assert member.committed([place]) == {place: offset}
    story.commit(running)
    running.begin_transaction()
    story.send(running)
    running.flush()
    with story.producer() as second:  # init_transactions aborts the first one's open transaction
        story.commit(second)
        with pytest.raises(KafkaError):
            running.commit_transaction()
        with pytest.raises(ProducerFencedError) as fenced:
            running.abort_transaction()
        assert isinstance(fenced.value, FatalTransactionError)
        story.commit(second)
    running.close()


def test_transactions_work_in_both_protocols_and_during_an_upgrade(
    cluster: LocalCluster, topic: str
) -> None:
    """Run with both protocols, and upgrade the cluster while a producer is running."""
    new, old, between = (Story(cluster, f"{topic}-{name}") for name in ("new", "old", "between"))
    run_story(new, new.producer())
    with protocol(cluster, 0):
        running = old.producer()
        manager = running._engine.transactions
        assert manager is not None
        assert not manager.version_2
        run_story(old, running)
        changing = between.producer()
        between.commit(changing)
    between.commit(changing)
    changing.close()
    for story in (new, old, between):
        story.check()


@pytest.mark.long  # shorter tests: the test before, and test_releases.py (Kafka 3.9)
def test_transactions_work_with_kafka_4_1_and_its_older_protocol(topic: str) -> None:
    """Use Kafka 4.1, then transaction.version 1 as in an upgraded 3.x: epochs don't increase."""
    with LocalCluster(brokers=1, version="4.1") as cluster:
        assert cluster.version == "4.1.2"
        old, between = (Story(cluster, f"{topic}-{name}") for name in ("old", "between"))
        changing = between.producer()
        between.commit(changing)
        change_protocol(cluster, "SAFE_DOWNGRADE", 1)
        running = old.producer()
        manager = running._engine.transactions
        assert manager is not None
        assert not manager.version_2
        run_story(old, running)
        for _ in range(2):
            between.commit(changing)
        changing.close()
        for story in (old, between):
            story.check()


def test_a_crashed_producer_delays_readers_only_until_its_timeout(
    cluster: LocalCluster, topic: str
) -> None:
    story = Story(cluster, topic)
    gone = story.producer(transaction_timeout_ms=1000)
    gone.begin_transaction()
    story.send(gone)
    gone.flush()
    with Producer(bootstrap_servers=story.servers) as plain:
        for n in range(story.next, story.next + 3):
            plain.send(topic, b"%d" % n, partition=n % PARTITIONS).result(timeout=60)
            story.committed.append(n)
    gone.close(timeout=0)
    story.check()


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_removed_member_sends_no_offsets_to_the_transaction(
    group_protocol: str, cluster: LocalCluster, topic: str
) -> None:
    """Reject offsets of records that other members may have processed.

    The consumer itself rejects them; if only a copy of its metadata is passed, brokers do.
    """
    story, place = Story(cluster, topic), TopicPartition(topic, 0)
    running = story.producer()
    story.commit(running)
    with story.consumer(
        group_id=topic, group_protocol=group_protocol, max_poll_interval_ms=2000
    ) as member:
        member.subscribe([topic])
        read(member)
        deadline = time.monotonic() + 30
        while "0 partitions" not in str(member.explain()):  # max.poll.interval.ms passes
            assert time.monotonic() < deadline, str(member.explain())
            time.sleep(0.1)
        known = member.group_metadata()
        for error, group in (
            (UnknownMemberIdError, ConsumerGroupMetadata(*known)),
            (IllegalGenerationError, known),
        ):
            with pytest.raises(error), running.transaction():
                story.send(running)
                running.send_offsets_to_transaction({place: 10}, group)
        assert member.committed([place]) == {place: None}
    running.close()
    story.check()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_readers_of_committed_offsets_wait_for_the_pending_transaction(
    isolation: str, cluster: LocalCluster, topic: str
) -> None:
    """Start after the records that the open transaction has processed (KIP-447)."""
    story = Story(cluster, topic)
    running = story.producer()
    story.commit(running)
    first, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with story.consumer(group_id=topic, isolation_level=isolation) as reader:
        running.begin_transaction()
        running.send_offsets_to_transaction({first: 10}, ConsumerGroupMetadata(topic))
        reader.assign([first, other])
        seen = {r.partition for r in reader.poll(10)}
        assert seen == {1}  # only the partition without pending offsets
        told = ""
        for _ in range(5):  # on a busy machine the timeout may be reported before its reason
            with pytest.raises(KafkaError) as caught:
                reader.committed([first], timeout=3)  # longer than the longest backoff
            told += str(caught.value)
            if "UNSTABLE_OFFSET_COMMIT" in told:
                break
        assert "UNSTABLE_OFFSET_COMMIT" in told
        assert f"not reading {first}: " in str(reader.explain())
        running.commit_transaction()
        assert reader.position(first, timeout=60) == 10
    running.close()
    story.check()
