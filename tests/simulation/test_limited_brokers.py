"""Brokers that lack versions of ApiVersions, idempotence, KIP-848, KIP-890 or topic ids.

Azure Event Hubs closes the connection on unknown versions of ApiVersions instead of answering.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.producer import Producer
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import UnsupportedVersionError
from odradek.common.events import Event
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers import broker_faults


class Scene(Stage):
    """One broker with a maximum version of ApiVersions, and the events of a producer."""

    def __init__(self, newest: int) -> None:
        spoken = {ApiVersionsRequest.API_KEY: (0, newest)}
        super().__init__(brokers=1, partitions=1, versions=spoken)
        self.broker = self.cluster.brokers[1]
        self.broker.closes_on_unknown = True
        self.events: list[Event] = []

    def producer(self, **more: Any) -> Producer:
        given = {"bootstrap_servers": str(self.broker.address), "linger_ms": 0, **more}
        made = super().producer(**given)
        made._engine.events.listen(self.events.append)
        return made

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)


@pytest.mark.parametrize(("newest", "dials"), [(5, 1), (4, 2), (3, 3), (2, 4), (0, 4)])
def test_an_older_version_is_tried_if_a_broker_closes_the_connection_on_a_newer_one(
    newest: int, dials: int
) -> None:
    scene = Scene(newest)
    with scene.producer() as producer:
        began = scene.world.now
        assert producer.send("t", b"x").result(10.0).offset == 0
        assert scene.world.now - began < 1.0
        assert scene.count("dial") == dials
        assert scene.count("dial_failed") == scene.count("rebootstrap") == 0  # no outage
        # The version is remembered: the next connection uses it immediately.
        scene.broker.disconnect_all()
        assert producer.send("t", b"y").result(10.0).offset == 1
        assert scene.count("dial") == dials + 1


def test_the_highest_version_in_a_response_is_used_next() -> None:
    """A closed connection doesn't prove an old version: a load balancer may close it as well."""
    scene = Scene(0)
    with scene.producer() as producer:
        producer.send("t", b"x").result(10.0)
        record = producer._engine.network.states.state(scene.broker.address)
        assert record.api_versions == 0
        scene.cluster.versions[ApiVersionsRequest.API_KEY] = (0, 4)
        for n in range(2):
            scene.broker.disconnect_all()
            producer.send("t", b"y").result(10.0)
            assert (record.api_versions, record.api_versions_answered) == (4, (0, 4)[n])
        assert scene.count("dial_failed") == 0


def test_a_version_named_in_a_response_is_not_tried_again_after_it_failed() -> None:
    scene = Scene(3)
    with scene.producer() as producer:
        producer.send("t", b"x").result(10.0)
        record = producer._engine.network.states.state(scene.broker.address)
        record.api_versions = record.api_versions_answered = 0  # the state after closed connections
        record.stepped_up = True
        scene.broker.disconnect_all()
        producer.send("t", b"y").result(10.0)
        assert record.api_versions == 0


def test_kip_511_needs_one_additional_request_at_the_first_connection_only() -> None:
    scene = Scene(4)
    scene.broker.closes_on_unknown = False
    with scene.producer() as producer:
        for asked in (2, 3, 4):
            producer.send("t", b"x").result(10.0)
            assert scene.broker.requests["ApiVersions"] == asked
            scene.broker.disconnect_all()


@pytest.mark.parametrize("answered", [3, 5])
def test_attempts_are_limited_if_all_brokers_close_connections(answered: int) -> None:
    """R-CS-8 also limits attempts that don't count as failures of the address.

    Until an address answers the newest version (3), a closed connection doesn't count.
    """
    scene = Scene(5)
    cluster = SimulatedCluster(scene.world, 20, "large-0002", name="large", bootstrap_name=None)
    cluster.create_topic("wide", 20)
    for broker in cluster.brokers.values():
        broker.versions = {**cluster.versions, ApiVersionsRequest.API_KEY: (0, answered)}
        broker.closes_on_unknown = True
    with scene.producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.partitions_for("wide", 5.0)
        for broker in cluster.brokers.values():
            broker.versions = {**cluster.versions, ApiVersionsRequest.API_KEY: (9, 9)}
            broker.disconnect_all()
        for partition in range(20):
            producer.send("wide", b"x", partition=partition)
        scene.world.advance(20.0)
        times = [event.at for event in scene.events if event.kind == "dial"]
        with pytest.raises(KafkaTimeoutError):
            producer.close(0)
    # leave out attempts before the first connection was closed
    later = [at for at in times if at > min(times) + 0.01]
    assert len(later) > 20
    assert max(sum(at <= t < at + 1.0 for t in later) for at in later) <= 6


def test_a_broker_that_closes_on_every_version_counts_as_failed_once_all_were_tried() -> None:
    scene = Scene(5)
    scene.cluster.versions[ApiVersionsRequest.API_KEY] = (9, 9)
    with scene.producer() as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.partitions_for("t", timeout=20.0)
        free = scene.count("dial") - scene.count("dial_failed")
        assert free <= 4  # three attempts that don't count, and perhaps one in flight
        assert scene.count("dial_failed") >= 8
        # Versions are tried in turn, so a broker that starts gets a version that it supports.
        scene.cluster.versions[ApiVersionsRequest.API_KEY] = (0, 3)
        assert producer.partitions_for("t", timeout=20.0)


def test_no_older_version_is_tried_at_an_address_that_answered_a_newer_one() -> None:
    scene = Scene(4)
    with scene.producer() as producer:
        producer.send("t", b"x").result(10.0)
        record = producer._engine.network.states.state(scene.broker.address)
        scene.cluster.versions[ApiVersionsRequest.API_KEY] = (9, 9)
        scene.broker.disconnect_all()
        with pytest.raises(KafkaTimeoutError):
            producer.send("t", b"y").result(5.0)
        assert (record.api_versions, record.api_versions_answered) == (4, 4)
        scene.cluster.versions[ApiVersionsRequest.API_KEY] = (0, 4)
        producer.flush(20.0)


# Missing features

WITHOUT_IDEMPOTENCE = ["Azure Event Hubs", "no idempotence"]
WARNING = "continues without idempotence"


class Limited(Stage):
    """Two brokers with a kind of limitation, and topic t."""

    def __init__(self, kind: str) -> None:
        super().__init__(2, brokers=2, partitions=2)
        broker_faults.limit(self.cluster, kind)

    def producer(self, **options: Any) -> Producer:
        return super().producer(linger_ms=0, **options)

    def send(self, producer: Producer, numbers: range) -> list[int]:
        sent = [producer.send("t", b"%d" % n, partition=n % 2) for n in numbers]
        producer.flush(30.0)
        return [f.result(0).offset for f in sent]


@pytest.mark.parametrize("kind", list(broker_faults.LIMITED))
def test_records_are_written_and_read_with_and_without_groups(kind: str) -> None:
    limited = Limited(kind)
    with limited.producer() as producer:
        assert limited.send(producer, range(20)) == [n // 2 for n in range(20)]
        with limited.consumer() as consumer:
            partitions = consumer.partitions_for("t", 10.0)
            consumer.assign(partitions)
            assert limited.read(consumer, 20) == list(range(20))
            assert sum(consumer.end_offsets(partitions, 10.0).values()) == 20
        with limited.consumer(group_id="g") as member:
            member.subscribe(["t"])
            assert limited.read(member, 20) == list(range(20))
            member.commit(timeout=10.0)
        limited.disconnect()
        limited.send(producer, range(20, 30))
    with limited.consumer(group_id="g") as member:
        member.subscribe(["t"])
        assert limited.read(member, 10) == list(range(20, 30))


@pytest.mark.parametrize("kind", WITHOUT_IDEMPOTENCE)
def test_records_are_written_with_one_warning_if_brokers_lack_idempotence(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    limited = Limited(kind)
    with caplog.at_level(logging.WARNING, "odradek"), limited.producer() as producer:
        limited.send(producer, range(4))
        limited.disconnect()
        limited.send(producer, range(4, 8))
        said, counts = str(producer.explain()), producer._engine.events.counts
    warnings = [r.getMessage() for r in caplog.records if WARNING in r.getMessage()]
    assert len(warnings) == counts["without"] == 1
    for word in ("InitProducerId", "records twice", "Set enable.idempotence=true"):
        assert word in warnings[0]
    assert "writes without idempotence, which the brokers don't support (InitProducerId: " in said


@pytest.mark.parametrize("kind", WITHOUT_IDEMPOTENCE)
def test_explicit_idempotence_raises_if_brokers_lack_it(kind: str) -> None:
    limited = Limited(kind)
    with limited.producer(enable_idempotence=True) as producer:
        with pytest.raises(UnsupportedVersionError, match=r"remove enable\.idempotence") as found:
            producer.send("t", b"x").result(10.0)
        assert "InitProducerId" in str(found.value)
    assert not limited.cluster.records("t", 0) + limited.cluster.records("t", 1)


def test_refusing_init_producer_id_counts_as_lacking_idempotence() -> None:
    limited = Limited("no KIP-848")
    unsupported = UnsupportedVersionError.code
    assert unsupported is not None
    broker_faults.answer_error(limited.cluster, "InitProducerId", unsupported, 9)
    with limited.producer() as producer:
        assert limited.send(producer, range(2)) == [0, 0]
        assert producer._engine.events.counts["without"] == 1


@pytest.mark.parametrize("kind", WITHOUT_IDEMPOTENCE)
def test_the_error_of_a_transaction_names_the_missing_feature(kind: str) -> None:
    limited = Limited(kind)
    with (
        limited.producer(transactional_id="x") as producer,
        pytest.raises(UnsupportedVersionError, match="InitProducerId"),
    ):
        producer.init_transactions(10.0)


@pytest.mark.parametrize("kind", ["no KIP-890", "Kafka 0.11"])
def test_transactions_are_atomic_without_kip_890(kind: str) -> None:
    limited = Limited(kind)
    with limited.producer(transactional_id="x") as producer:
        producer.init_transactions(10.0)
        with producer.transaction():
            producer.send("t", b"1", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("t", b"2", partition=0).result(10.0)
            raise ZeroDivisionError
    with limited.consumer(isolation_level="read_committed") as consumer:
        consumer.assign(consumer.partitions_for("t", 10.0))
        assert limited.read(consumer, 1) == [1]
        assert consumer.poll(1.0) == []


@pytest.mark.parametrize("kind", ["Azure Event Hubs", "no KIP-848"])
def test_the_error_of_a_group_without_kip_848_names_the_other_protocol(kind: str) -> None:
    limited = Limited(kind)
    with limited.consumer(group_id="g", group_protocol="consumer") as member:
        member.subscribe(["t"])
        with pytest.raises(KafkaError, match=r"group\.protocol=classic"):
            limited.read(member, 1)
