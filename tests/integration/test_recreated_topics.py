"""Test topics that are deleted and recreated while a group on real brokers reads them (R-ID-3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import AbortableTransactionError
from odradek.common.errors.kafka import UnknownTopicIdError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Recreated:
    """Topic with one partition, and members of one group."""

    def __init__(self, cluster: LocalCluster, topic: str, admin: Admin) -> None:
        self.cluster, self.topic, self.admin = cluster, topic, admin
        self.partition = TopicPartition(topic, 0)
        self.create()

    def create(self) -> None:
        self.admin.create_topics([NewTopic(self.topic, 1, 1)])

    def delete(self) -> None:
        """Delete the topic and wait until no broker lists it."""
        self.admin.delete_topics([self.topic])
        until = time.monotonic() + 20
        while self.topic in self.admin.list_topics() and time.monotonic() < until:
            pass

    def fill(self, count: int, name: str) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap_servers) as producer:
            for n in range(count):
                producer.send(self.topic, b"%s %d" % (name.encode(), n), partition=0)

    @contextmanager
    def member(self, protocol: str, **config: Any) -> Iterator[Consumer]:
        given = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "group_id": f"group-{self.topic}",
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            **config,
        }
        with Consumer(**given) as consumer:
            consumer.subscribe([self.topic])
            yield consumer

    def read(self, consumer: Consumer, count: int, within: float) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        until = time.monotonic() + within
        while len(found) < count and time.monotonic() < until:
            found += consumer.poll(0.5)
        return found

    def stored(self) -> int | None:
        group = f"group-{self.topic}"
        found = self.admin.list_group_offsets(group)[group].get(self.partition)
        return None if found is None else found.offset


@pytest.fixture
def recreated(cluster: LocalCluster, topic: str) -> Iterator[Recreated]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield Recreated(cluster, topic, admin)


@PROTOCOLS
def test_a_group_reads_all_records_of_a_topic_that_was_recreated(
    recreated: Recreated, protocol: str
) -> None:
    """Use default settings; the topic is missing for four seconds."""
    recreated.fill(20, "old")
    with recreated.member(protocol) as member:
        assert len(recreated.read(member, 20, 20)) == 20
        recreated.delete()
        assert recreated.read(member, 1, 4) == []
        recreated.create()
        recreated.fill(6, "new")
        found = [record.value for record in recreated.read(member, 6, 40)]
        assert found == [b"new %d" % n for n in range(6)]
    assert recreated.stored() == 6


@PROTOCOLS
def test_committing_offsets_of_the_deleted_topic_raises_and_stores_nothing(
    recreated: Recreated, protocol: str
) -> None:
    recreated.fill(50, "old")
    with (
        recreated.member(protocol, enable_auto_commit=False) as member,
        Producer(
            bootstrap_servers=recreated.cluster.bootstrap_servers,
            transactional_id=f"id-{recreated.topic}",
        ) as producer,
    ):
        old = recreated.read(member, 50, 20)
        assert len(old) == 50
        producer.init_transactions()
        recreated.delete()
        recreated.create()
        recreated.fill(100, "new")
        with pytest.raises(TopicRecreatedError) as caught:
            member.commit(old)
        assert caught.value.read_id != caught.value.current_id
        with pytest.raises(TopicRecreatedError):
            member.commit({recreated.partition: 50})
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError) as aborted:
            producer.send_offsets_to_transaction(old, member.group_metadata())
        assert isinstance(aborted.value, UnknownTopicIdError)
        producer.abort_transaction()
        assert recreated.stored() is None
        new = recreated.read(member, 100, 40)
        assert [record.value for record in new] == [b"new %d" % n for n in range(100)]
        member.commit(new)
    assert recreated.stored() == 100
