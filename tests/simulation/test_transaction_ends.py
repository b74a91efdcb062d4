"""Ends of transactions in virtual time: no needless waits, and late requests are fenced."""

from __future__ import annotations

import math

import pytest
from tests.simulation.produce_script import every_broker, leader_of
from tests.simulation.transactional import P0, PROTOCOLS, Scene, send

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import (
    FatalTransactionError,
    IllegalStateError,
    KafkaTimeoutError,
    TransactionAbortedError,
)
from odradek.common.types import TopicPartition
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.simulation.brokers.broker_faults import late_packets
from odradek.simulation.world.environment import ReceivedRequest

P1 = TopicPartition("t", 1)


@PROTOCOLS
@pytest.mark.parametrize("first", [True, False], ids=["only", "beside another"])
@pytest.mark.parametrize("wait", [0.0, 0.3, 3.0])
def test_an_abort_succeeds_although_a_partition_cannot_be_added(
    version: int, first: bool, wait: float
) -> None:
    """The topic was deleted, so the coordinator always refuses to add the partition."""
    scene = Scene(version)
    scene.cluster.create_topic("gone")
    producer = scene.producer()
    producer.partitions_for("gone")
    with producer.transaction():
        send(producer, range(100, 103))
    scene.cluster.delete_topic("gone")
    producer.begin_transaction()
    if not first:
        producer.send("t", b"0", partition=0).result(timeout=10)
    lost = producer.send("gone", b"1", partition=0)
    scene.world.advance(wait)
    begin = scene.world.now
    producer.abort_transaction()
    assert scene.world.now - begin < 0.5
    assert isinstance(lost.exception(timeout=0), TransactionAbortedError)
    with producer.transaction():
        send(producer, range(3))
    assert scene.visible() == [0, 1, 2, 100, 101, 102]


def test_partitions_are_added_again_until_their_topic_exists() -> None:
    scene = Scene(0)
    scene.cluster.create_topic("new")
    producer = scene.producer()
    producer.partitions_for("new")
    every_broker(scene.cluster, "stale_metadata")
    scene.cluster.delete_topic("new")
    scene.world.after(2.0, lambda: scene.cluster.create_topic("new"))
    scene.world.after(2.1, scene.cluster.heal)
    with producer.transaction():
        producer.send("new", b"1", partition=0)
    assert 2.0 < scene.world.now < 10.0
    assert len(scene.cluster.records("new", 0)) == 1


@PROTOCOLS
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_that_timed_out_are_not_part_of_a_later_transaction(
    version: int, commit: bool
) -> None:
    """The group's coordinator hangs, and handles the request while another transaction is open."""
    scene = Scene(version)
    cluster, groups = scene.cluster, scene.cluster.groups
    producer = scene.producer()
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 1}, "g")
    leader = scene.coordinator_of_group()
    if leader.id == scene.coordinator():
        other = leader.id % 3 + 1
        cluster.move_leader("__consumer_offsets", groups.index("g"), to=other)
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 1}, "g")
        leader = cluster.brokers[other]
    for p in range(3):
        cluster.move_leader("t", p, to=scene.coordinator())
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=10)
    before = producer._engine.sender.identity.current
    cluster.pause(leader.id)
    with pytest.raises(KafkaTimeoutError):
        producer.send_offsets_to_transaction({P1: 99}, "g", timeout=0.5)
    if commit:
        scene.world.after(0.3, lambda: cluster.repair(leader.id))
        with pytest.raises(IllegalStateError, match="t-1 for group 'g'"):
            producer.commit_transaction()
        producer.send_offsets_to_transaction({P0: 2}, "g")
        with pytest.raises(IllegalStateError, match="t-1 for group 'g'"):
            producer.commit_transaction()
        producer.send_offsets_to_transaction({P1: 99}, "g")
        producer.commit_transaction()
    else:
        producer.abort_transaction(timeout=5)
        scene.world.after(0.3, lambda: cluster.repair(leader.id))
    # (Before version 2, only the transaction's coordinator was asked, and has responded.)
    assert (producer._engine.sender.identity.current > before) is (version == 2)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 3}, "g")
    producer.close()
    newest, late = scene.committed(P0, P1)
    assert newest == OffsetAndMetadata(3)
    assert late == (OffsetAndMetadata(99) if commit else None)


@pytest.mark.parametrize("silent", [True, False])
def test_a_batch_of_an_aborted_transaction_does_not_delay_later_transactions(silent: bool) -> None:
    """The batch is in flight to a broker that hangs; the partition has a new leader."""
    scene = Scene(2)
    producer = scene.producer(linger_ms=0)
    coordinator = scene.coordinator()
    hung = next(b for b in (1, 2, 3) if b != coordinator)
    scene.cluster.move_leader("t", 0, to=hung)
    producer.begin_transaction()
    producer.send("t", b"0", partition=0).result(timeout=10)
    if silent:  # the old leader handles requests but sends no responses
        scene.cluster.go_silent(hung)
    else:
        scene.cluster.partition(hung, "producer")
    late = producer.send("t", b"1", partition=0)
    scene.world.advance(0.1)
    begin = scene.world.now
    producer.abort_transaction()
    assert scene.world.now - begin < 1.0  # KIP-890: the batch is fenced, so no wait is needed
    assert isinstance(late.exception(timeout=0), TransactionAbortedError)
    scene.cluster.move_leader("t", 0, to=coordinator)
    producer._engine.metadata.request("the leader changed")
    producer._host.wake()
    scene.world.advance(1.0)
    begin = scene.world.now
    for n in range(2, 5):
        with producer.transaction():
            for _ in range(3):
                producer.send("t", b"%d" % n, partition=0)
                scene.world.advance(0.01)
    assert scene.world.now - begin < 2.0
    scene.cluster.repair(hung)
    scene.world.advance(60.0)
    assert scene.visible() == [2] * 3 + [3] * 3 + [4] * 3


def test_a_flush_does_not_wait_for_an_empty_batch() -> None:
    """Another thread reserves the batch for Arrow columns, gets no memory, and releases it."""
    scene = Scene()
    with scene.uninitialised(transactional_id=None) as producer:
        engine = producer._engine
        claimed = engine.accumulator.claim(P0, 100, scene.world.now)
        flushed = engine.start(engine.flush(math.inf))
        scene.world.advance(0.1)
        waited = not flushed.done
        if engine.accumulator.yield_claims([claimed], 0, scene.world.now, hurry=False):
            producer._host.wake()
        scene.world.advance(0.1)
        assert waited
        assert flushed.done
        assert engine.accumulator.used == 0
        assert engine.incomplete() == []


def test_a_commit_does_not_wait_for_an_empty_batch() -> None:
    scene = Scene()
    producer = scene.producer()
    producer.begin_transaction()
    send(producer, range(3))
    accumulator = producer._engine.accumulator
    claimed = accumulator.claim(P0, 100, scene.world.now)
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction(timeout=1.0)  # rows may still be added to the batch
    if accumulator.yield_claims([claimed], 0, scene.world.now, hurry=False):
        producer._host.wake()
    producer.commit_transaction(timeout=1.0)
    assert scene.visible() == [0, 1, 2]


@pytest.mark.parametrize("commit", [True, False])
def test_a_producer_without_new_epochs_ends_after_a_transaction_with_late_offsets(
    commit: bool,
) -> None:
    """Before Kafka 2.5 late offsets can't be fenced, so no further transaction may begin."""
    scene = Scene(0)
    cluster = scene.cluster
    cluster.versions[InitProducerIdRequest.API_KEY] = (0, 2)
    producer = scene.producer()
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 1}, "g")
    producer.begin_transaction()
    send(producer, range(3))
    late_packets(cluster, scene.coordinator_of_group().id, 0.4)
    producer.send_offsets_to_transaction({P0: 3}, "g")
    if commit:
        producer.commit_transaction()
    else:
        with pytest.raises(FatalTransactionError, match=r"Kafka 2\.5"):
            producer.abort_transaction()
    assert scene.visible() == ([0, 1, 2] if commit else [])
    for call in (producer.begin_transaction, producer.abort_transaction):
        with pytest.raises(FatalTransactionError, match=r"Kafka 2\.5 .*init_transactions"):
            call()
    with pytest.raises(FatalTransactionError):
        producer.send("t", b"4")


def test_before_kip_890_an_abort_waits_for_batches_in_flight() -> None:
    """A batch written after the marker would block readers until the transaction times out."""
    scene = Scene(0)
    producer = scene.producer(linger_ms=0)
    coordinator = scene.coordinator()
    partition = next(
        p for p in range(3) if (b := scene.cluster.leader("t", p)) and b.id != coordinator
    )
    leader = leader_of(scene.cluster, partition)
    producer.begin_transaction()
    producer.send("t", b"0", partition=partition).result(timeout=5)
    written: list[int] = []

    def observe(_: object, client: str, request: ReceivedRequest) -> None:
        if request.api_key == EndTxnRequest.API_KEY:
            written.append(scene.written())

    scene.cluster.observers.append(observe)
    leader.processing = 2.0  # the leader is slower than the coordinator
    producer.send("t", b"1", partition=partition)
    scene.world.advance(0.1)
    producer.abort_transaction()
    assert written == [2]
    leader.processing = 0.0002
    with producer.transaction():
        send(producer, range(2, 5))
    assert scene.visible() == [2, 3, 4]
