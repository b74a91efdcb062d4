"""Transactions of two clients: what one commits or aborts the other sees so, and fences."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from tests.interop.other_client import read_all, settings

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import FatalTransactionError
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster


def confluent(servers: str, transactional_id: str) -> Any:
    """librdkafka's producer of a transactional id."""
    producer = ConfluentProducer(settings(servers, **{"transactional.id": transactional_id}))
    producer.init_transactions(30)
    return producer


def write(producer: Any, topic: str, values: list[bytes], *, commit: bool) -> None:
    """One transaction of librdkafka's."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_each_reads_what_the_other_committed_and_takes_over_its_id(
    cluster: LocalCluster, topic: str
) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic(topic)
    ours = Producer(bootstrap_servers=servers, transactional_id=topic)
    ours.init_transactions()
    with ours.transaction():
        ours.send(topic, b"ours 1", partition=0)
    with pytest.raises(ZeroDivisionError), ours.transaction():
        ours.send(topic, b"aborted", partition=0).result(timeout=30)
        raise ZeroDivisionError
    ours.begin_transaction()
    ours.send(topic, b"left open", partition=0).result(timeout=30)
    theirs = confluent(servers, topic)
    write(theirs, topic, [b"theirs 1", b"theirs 2"], commit=True)
    write(theirs, topic, [b"aborted, too"], commit=False)
    with pytest.raises(FatalTransactionError):
        ours.abort_transaction()
    ours.close()
    with Producer(bootstrap_servers=servers, transactional_id=topic) as again:
        again.init_transactions()
        with again.transaction():
            again.send(topic, b"ours 2", partition=0)
        with pytest.raises(KafkaException) as fenced:
            write(theirs, topic, [b"of a zombie"], commit=True)
        assert fenced.value.args[0].fatal() or fenced.value.args[0].txn_requires_abort()
    expected = [b"ours 1", b"theirs 1", b"theirs 2", b"ours 2"]
    assert [row.value for row in read_all(servers, topic, 1)[0]] == expected
    printed = cluster.console_consumer(
        topic, "--isolation-level", "read_committed", max_messages=len(expected)
    )
    assert printed.splitlines() == [value.decode() for value in expected]
    found: list[bytes | None] = []
    with Consumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + 30
        while len(found) < len(expected):
            found += [record.value for record in consumer.poll(1.0)]
            assert time.monotonic() < deadline, str(consumer.explain())
        found += [record.value for record in consumer.poll(0.2)]
    assert found == expected
