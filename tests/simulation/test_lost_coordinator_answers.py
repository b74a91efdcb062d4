"""Requests of transactions that arrive after their retries: late packets (KAFKA-17754).

R-TX-1: before version 2 a late EndTxn or TxnOffsetCommit must find another epoch in the next
transaction. R-TX-2: at any version late offsets must not replace newer ones of their transaction.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.transactional import P0, Scene

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    KafkaTimeoutError,
)
from odradek.common.types import TopicPartition
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.registry import api_name
from odradek.simulation.brokers import broker_faults
from odradek.simulation.world.environment import ReceivedRequest

VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])
BEFORE_2 = pytest.mark.parametrize("version", [0, 1])
P1 = TopicPartition("t", 1)
LATE = 0.4
"""Seconds until the connection ends, and again until its requests arrive."""


class Apart(Scene):
    """The coordinators of transaction and group and the leader of topic t are different brokers."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.first = self.producer()
        with self.first.transaction():
            self.first.send_offsets_to_transaction({P0: 1}, "g")
        coordinator = self.coordinator()
        self.of_group, leader = [n for n in (1, 2, 3) if n != coordinator]
        index = self.cluster.groups.index("g")
        self.cluster.move_leader("__consumer_offsets", index, to=self.of_group)
        for partition in range(3):
            self.cluster.move_leader("t", partition, to=leader)
        with self.first.transaction():
            self.send(b"0")
            self.first.send_offsets_to_transaction({P0: 2}, "g")
        self.asked: Counter[str] = Counter()
        self.cluster.observers.append(self._observe)

    def _observe(self, _: object, __: str, request: ReceivedRequest) -> None:
        self.asked[api_name(request.api_key)] += 1

    def send(self, value: bytes, partition: int = 0) -> None:
        """Write a record and wait for its acknowledgement."""
        self.first.send("t", value, partition=partition).result(timeout=10)

    def late(self, broker: int) -> None:
        """Deliver requests on a broker's current connections after those on later connections."""
        broker_faults.late_packets(self.cluster, broker, LATE)

    def epoch(self) -> tuple[int, int]:
        """Return the producer's id and epoch."""
        return self.first._engine.sender.identity.current


@VERSIONS
def test_a_late_abort_removes_no_record_of_the_next_transaction(version: int) -> None:
    scene = Apart(version)
    producer = scene.first
    producer.begin_transaction()
    scene.send(b"1")
    scene.late(scene.coordinator())
    producer.abort_transaction()
    producer.begin_transaction()
    scene.send(b"2")
    scene.world.advance(3 * LATE)
    scene.send(
        b"3", partition=1
    )  # this record would begin its own transaction after the late abort
    producer.commit_transaction()
    assert scene.cluster.late["EndTxn"] == 1
    assert scene.visible() == [0, 2, 3]


@VERSIONS
def test_a_late_commit_exposes_no_record_of_an_aborted_transaction(version: int) -> None:
    scene = Apart(version)
    producer = scene.first
    producer.begin_transaction()
    scene.send(b"1")
    scene.late(scene.coordinator())
    producer.commit_transaction()
    producer.begin_transaction()
    scene.send(b"2")
    scene.world.advance(3 * LATE)
    scene.send(b"3", partition=1)
    producer.abort_transaction()
    assert scene.cluster.late["EndTxn"] == 1
    assert scene.visible() == [0, 1]


@VERSIONS
def test_late_offsets_are_not_part_of_a_later_transaction(version: int) -> None:
    scene = Apart(version)
    producer = scene.first
    producer.begin_transaction()
    scene.send(b"1")
    scene.late(scene.of_group)
    producer.send_offsets_to_transaction({P0: 10}, "g")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 20}, "g")
    scene.world.advance(3 * LATE)
    producer.commit_transaction()
    scene.world.advance(1.0)
    assert scene.cluster.late["TxnOffsetCommit"] == 1
    assert scene.committed(P0) == [OffsetAndMetadata(20)]


@VERSIONS
def test_late_offsets_do_not_replace_newer_ones_of_their_transaction(version: int) -> None:
    scene = Apart(version)
    producer = scene.first
    producer.begin_transaction()
    scene.send(b"1")
    scene.late(scene.of_group)
    producer.send_offsets_to_transaction({P0: 10}, "g")
    for offsets in (
        {P0: 10},
        {P1: 5},
        {P0: 10, P1: 6},
    ):  # no late request may replace newer offsets
        producer.send_offsets_to_transaction(offsets, "g")
    producer.send_offsets_to_transaction({P0: 20}, "another")
    with pytest.raises(AbortableTransactionError, match=r"offset 20 of t-0 .* offset 10 had no"):
        producer.send_offsets_to_transaction({P0: 20}, "g")
    scene.world.advance(3 * LATE)
    with pytest.raises(AbortableTransactionError):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 20}, "g")
    assert scene.cluster.late["TxnOffsetCommit"] == 1
    assert scene.committed(P0, P1) == [OffsetAndMetadata(20), None]


@VERSIONS
def test_offsets_whose_response_was_late_may_be_replaced(version: int) -> None:
    """The broker was only slow (R-RB-9) and stores the earlier offsets before the newer ones."""
    scene = Apart(version)
    producer = scene.first
    before = scene.epoch()
    broker_faults.slow_api(scene.cluster, "TxnOffsetCommit", 3.0)
    with producer.transaction():
        with pytest.raises(KafkaTimeoutError):
            producer.send_offsets_to_transaction({P0: 10}, "g", timeout=1.0)
        with pytest.raises(IllegalStateError, match="t-0 for group 'g'"):
            producer.commit_transaction()
        broker_faults.slow_api(scene.cluster, "TxnOffsetCommit", 0)
        producer.send_offsets_to_transaction({P0: 20}, "g")
    assert (scene.epoch() > before) is (version == 2)
    assert scene.committed(P0) == [OffsetAndMetadata(20)]


@BEFORE_2
@pytest.mark.parametrize(
    "api", ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", ""]
)
def test_a_new_epoch_is_requested_only_after_a_lost_response(version: int, api: str) -> None:
    scene = Apart(version)
    producer = scene.first
    before = scene.epoch()
    if api:
        broker_faults.late_requests(scene.cluster, api, LATE)
    for _ in range(3):
        with producer.transaction():
            scene.send(b"1")
            producer.send_offsets_to_transaction({P0: 3}, "g")
    assert scene.epoch() == (before[0], before[1] + bool(api))
    # Two requests are possible: at the first request, the markers are still being written.
    assert bool(scene.asked["InitProducerId"]) is bool(api)
    assert scene.visible() == [0, 1, 1, 1]


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("with_end", [True, False])
def test_a_late_batch_is_not_part_of_a_later_transaction(
    version: int, commit: bool, with_end: bool
) -> None:
    """Leaders refuse the batch: its sequence is already known, or its epoch is fenced (R-PR-1)."""
    scene = Apart(version)
    producer = scene.first
    broker_faults.late_requests(scene.cluster, "Produce", LATE)
    if with_end:
        broker_faults.late_requests(scene.cluster, "EndTxn", LATE)
    producer.begin_transaction()
    scene.send(b"1")
    (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.begin_transaction()
    if commit:
        scene.send(b"2")
    scene.world.advance(3 * LATE)
    scene.send(b"3")
    producer.commit_transaction()
    assert scene.cluster.late["Produce"] == 1
    assert scene.visible() == ([0, 1, 2, 3] if commit else [0, 3])


@BEFORE_2
def test_a_commit_succeeds_although_the_request_for_a_new_epoch_fails(
    version: int,
) -> None:
    scene = Apart(version)
    producer = scene.first
    broker_faults.late_requests(scene.cluster, "EndTxn", LATE)
    broker_faults.answer_error(scene.cluster, "InitProducerId", 90)
    with producer.transaction():
        scene.send(b"1")
    with pytest.raises(FatalTransactionError, match="took over transactional.id"):
        producer.begin_transaction()
    assert scene.visible() == [0, 1]


def test_a_producer_that_gets_no_new_epoch_raises_a_fatal_error() -> None:
    scene = Apart(0)
    scene.cluster.versions[InitProducerIdRequest.API_KEY] = (0, 2)
    producer = scene.producer()
    scene.first = producer
    broker_faults.late_requests(scene.cluster, "EndTxn", LATE)
    with producer.transaction():
        scene.send(b"1")
    with pytest.raises(FatalTransactionError, match=r"Kafka 2\.5 .* init_transactions\(\)"):
        producer.begin_transaction()
    scene.first = scene.producer()
    with scene.first.transaction():
        scene.send(b"2")
        scene.world.advance(3 * LATE)
    assert scene.visible() == [0, 1, 2]
