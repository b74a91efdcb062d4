"""Test the core of the client on Kafka 3.9, and in `make test-long` on 4.1 and 4.3 too.

Records are written and read, alone, in groups and in transactions, topics are described and
deleted, and the brokers move. Features that a release doesn't have raise an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.calls_of_releases import CALLS, refusals, write_in_a_transaction
from tests.interop.our_client import read
from tests.late_proxy import LateProxy
from tests.unit.test_admin_page import OF_ALL, public_methods

import odradek
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

RECORDS = 200
PATIENCE = 60.0


LATER = [pytest.param(version, marks=pytest.mark.long) for version in ("4.1", "4.3")]


@pytest.fixture(scope="module", params=["3.9", *LATER])
def older(request: pytest.FixtureRequest, clusters: SharedClusters) -> LocalCluster:
    cluster = clusters.shared({"brokers": 1, "version": request.param})
    assert cluster.version.startswith(f"{request.param}.")
    return cluster


@pytest.fixture
def name(older: LocalCluster, topic: str) -> str:
    older.create_topic(topic, 3)
    return topic


def write(cluster: LocalCluster, topic: str, numbers: range, **config: Any) -> None:
    with odradek.Producer(cluster.client_config(), **config) as producer:
        if config:
            producer.init_transactions(timeout=PATIENCE)
            producer.begin_transaction()
        for n in numbers:
            producer.send(topic, b"%d" % n, key=b"%d" % n)
        if config:
            producer.commit_transaction(timeout=PATIENCE)
        else:
            producer.flush(timeout=PATIENCE)


def numbers(consumer: odradek.Consumer, count: int) -> list[int]:
    return sorted(int(record.value or b"") for record in read(consumer, count, PATIENCE))


@pytest.mark.long  # shorter tests: test_outages.py (a move), and two tests below
def test_records_are_written_and_read_before_and_after_a_move(
    older: LocalCluster, name: str
) -> None:
    write(older, name, range(RECORDS))
    with odradek.Consumer(older.client_config(), auto_offset_reset="earliest") as consumer:
        partitions = consumer.partitions_for(name, timeout=PATIENCE)
        consumer.assign(partitions)
        assert numbers(consumer, RECORDS) == list(range(RECORDS))
        assert sum(consumer.end_offsets(partitions).values()) == RECORDS
        older.move()
        write(older, name, range(RECORDS, RECORDS + 50))
        assert numbers(consumer, 50) == list(range(RECORDS, RECORDS + 50))


@pytest.fixture
def late_producer(older: LocalCluster, name: str) -> Iterator[tuple[odradek.Producer, LateProxy]]:
    """Return a transactional producer and the proxy between it and its brokers."""
    with LateProxy() as proxy:
        config = {**older.client_config(), "transactional.id": name}
        with odradek.Producer(config, proxy_url=proxy.url("socks5")) as producer:
            producer.init_transactions(timeout=PATIENCE)
            yield producer, proxy


def end(producer: odradek.Producer, *, commit: bool) -> None:
    (producer.commit_transaction if commit else producer.abort_transaction)(timeout=PATIENCE)


@pytest.mark.parametrize("commit", [True, False])
def test_a_late_end_txn_does_not_end_a_later_transaction(
    older: LocalCluster, name: str, late_producer: tuple[odradek.Producer, LateProxy], commit: bool
) -> None:
    """Check R-TX-1: a late duplicate of an EndTxn ends no later transaction (KAFKA-17754)."""
    producer, proxy = late_producer
    producer.begin_transaction()
    producer.send(name, b"1", partition=0).result(PATIENCE)
    proxy.keep(EndTxnRequest.API_KEY)
    end(producer, commit=commit)
    producer.begin_transaction()
    producer.send(name, b"2", partition=0).result(PATIENCE)
    proxy.deliver(PATIENCE)
    producer.send(name, b"3", partition=1).result(PATIENCE)
    end(producer, commit=not commit)
    with producer.transaction():
        for partition in (0, 1):
            producer.send(name, b"9", partition=partition)
    config = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with odradek.Consumer({**older.client_config(), **config}) as consumer:
        consumer.assign([odradek.TopicPartition(name, partition) for partition in (0, 1)])
        expected = [1, 9, 9] if commit else [2, 3, 9, 9]
        found: list[int] = []
        while found.count(9) < 2:
            found += numbers(consumer, 1)
        assert sorted(found) == expected


@pytest.mark.long  # shorter tests: the test above, simulation/test_late_transaction_offsets.py
def test_late_offsets_of_a_transaction_do_not_replace_newer_ones(
    older: LocalCluster, name: str, late_producer: tuple[odradek.Producer, LateProxy]
) -> None:
    """Check R-TX-1 and R-TX-2: late offsets replace no offsets of later transactions."""
    producer, proxy = late_producer
    place = odradek.TopicPartition(name, 0)
    proxy.keep(TxnOffsetCommitRequest.API_KEY)
    with producer.transaction():
        producer.send_offsets_to_transaction({place: 10}, name)
    with producer.transaction():
        producer.send_offsets_to_transaction({place: 20}, name)
        proxy.deliver(PATIENCE)
    if older.version.startswith("3."):
        # The coordinator rejects the late offsets, but forgets the transaction's pending offsets
        # until it reads its log again (`GroupMetadata.failPendingTxnOffsetCommit`).
        older.stop(0)
        older.start(0)
    stable = {"group.id": name, "isolation.level": "read_committed"}
    with odradek.Consumer({**older.client_config(), **stable}) as consumer:
        found = consumer.committed([place], timeout=PATIENCE)[place]
        assert found is not None
        assert found.offset == 20
    producer.begin_transaction()
    proxy.keep(TxnOffsetCommitRequest.API_KEY)
    producer.send_offsets_to_transaction({place: 30}, name, PATIENCE)
    with pytest.raises(odradek.errors.AbortableTransactionError, match="offset 30 had no answer"):
        producer.send_offsets_to_transaction({place: 40}, name, PATIENCE)
    end(producer, commit=False)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_resumes_at_its_committed_offsets(
    older: LocalCluster, name: str, protocol: str
) -> None:
    write(older, name, range(RECORDS))
    config = {"group.id": f"{name}-{protocol}", "group.protocol": protocol}
    given = {**older.client_config(), "auto.offset.reset": "earliest", **config}
    with odradek.Consumer(given) as member:
        member.subscribe([name])
        if protocol == "consumer" and older.version.startswith("3."):
            with pytest.raises(odradek.KafkaError, match=r"KIP-848|group\.protocol=classic"):
                read(member, RECORDS)
            return
        assert numbers(member, RECORDS) == list(range(RECORDS))
        member.commit(timeout=PATIENCE)
    write(older, name, range(RECORDS, RECORDS + 20))
    with odradek.Consumer(given) as member:
        member.subscribe([name])
        assert numbers(member, 20) == list(range(RECORDS, RECORDS + 20))


def test_a_transaction_is_atomic(older: LocalCluster, name: str) -> None:
    write(older, name, range(RECORDS), transactional_id=name)
    with odradek.Producer(older.client_config(), transactional_id=name) as producer:
        producer.init_transactions(timeout=PATIENCE)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(name, b"-1").result(PATIENCE)
            raise ZeroDivisionError
    committed = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with odradek.Consumer({**older.client_config(), **committed}) as consumer:
        consumer.assign(consumer.partitions_for(name, timeout=PATIENCE))
        assert numbers(consumer, RECORDS) == list(range(RECORDS))
        assert consumer.poll(1.0) == []


def test_topics_are_described_and_deleted(older: LocalCluster, name: str) -> None:
    with odradek.Admin(older.client_config()) as admin:
        assert len(admin.describe_topics(name, timeout=PATIENCE)[name].partitions) == 3
        assert admin.describe_cluster(timeout=PATIENCE).cluster_id == older.cluster_id
        admin.delete_topics(name, timeout=PATIENCE)
        # The controller answers before the broker has applied the change.
        end = time.monotonic() + PATIENCE
        while name in admin.list_topics(timeout=PATIENCE):
            assert time.monotonic() < end
            time.sleep(0.1)
        with pytest.raises(odradek.UnknownTopicOrPartitionError):
            admin.describe_topics(name, timeout=PATIENCE)


def test_each_admin_call_returns_or_raises_the_expected_error(
    older: LocalCluster, name: str
) -> None:
    """Check that a release without an API raises `UnsupportedVersionError` at once.

    The other failures are those of any broker without an authorizer, without tokens and with a
    static quorum.
    """
    assert {*CALLS, "close"} == public_methods(odradek.Admin) - OF_ALL
    refused = refusals(older.version)
    settings = {**older.client_config(), "default.api.timeout.ms": 30_000}
    with odradek.Admin(settings) as admin:
        (broker,) = (b.id for b in admin.describe_cluster().brokers)
        write_in_a_transaction(settings, name)
        for call, ask in CALLS.items():
            if call not in refused:
                ask(admin, name, broker)
                continue
            began = time.monotonic()
            with pytest.raises(refused[call]) as error:
                ask(admin, name, broker)
            assert str(error.value), call
            assert time.monotonic() - began < 15.0, call
