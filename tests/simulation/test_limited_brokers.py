"""Brokers that close on a version of ApiVersions that they don't know, as Azure Event Hubs does."""

from __future__ import annotations

import pytest

from odradek.api.producer import Producer
from odradek.common.errors import KafkaTimeoutError
from odradek.common.events import Event
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation import SimulatedCluster, World

pytestmark = pytest.mark.simulation


class Scene:
    """One broker that speaks ApiVersions up to a version, and a producer's events."""

    def __init__(self, newest: int) -> None:
        self.world = World(1)
        spoken = {ApiVersionsRequest.API_KEY: (0, newest)}
        self.cluster = SimulatedCluster(self.world, 1, versions=spoken)
        self.cluster.create_topic("t")
        self.broker = self.cluster.brokers[1]
        self.broker.closes_on_unknown = True
        self.events: list[Event] = []

    def producer(self) -> Producer:
        made = Producer(
            bootstrap_servers=str(self.broker.address), linger_ms=0, _host=self.world.host("p")
        )
        made._engine.events.listen(self.events.append)
        return made

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)


@pytest.mark.parametrize(("newest", "dials"), [(5, 1), (4, 2), (3, 3), (2, 4), (0, 4)])
def test_a_broker_that_closes_on_a_new_version_is_asked_in_an_older_one(
    newest: int, dials: int
) -> None:
    scene = Scene(newest)
    with scene.producer() as producer:
        began = scene.world.now
        assert producer.send("t", b"x").result(10.0).offset == 0
        assert scene.world.now - began < 1.0
        assert scene.count("dial") == dials
        assert scene.count("dial_failed") == scene.count("rebootstrap") == 0  # no outage
        # It is remembered: the next connection asks rightly at once.
        scene.broker.disconnect_all()
        assert producer.send("t", b"y").result(10.0).offset == 1
        assert scene.count("dial") == dials + 1


def test_what_an_answer_says_is_asked_for_next() -> None:
    """A load balancer without a broker ends connections as well, and brokers are upgraded."""
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


def test_one_that_says_it_knows_what_it_closes_on_is_believed_once() -> None:
    scene = Scene(3)
    with scene.producer() as producer:
        producer.send("t", b"x").result(10.0)
        record = producer._engine.network.states.state(scene.broker.address)
        record.api_versions = record.api_versions_answered = 0  # as after ends for other reasons
        record.stepped_up = True
        scene.broker.disconnect_all()
        producer.send("t", b"y").result(10.0)
        assert record.api_versions == 0


def test_kip_511_costs_one_question_more_and_only_once() -> None:
    scene = Scene(4)
    scene.broker.closes_on_unknown = False
    with scene.producer() as producer:
        for asked in (2, 3, 4):
            producer.send("t", b"x").result(10.0)
            assert scene.broker.requests["ApiVersions"] == asked
            scene.broker.disconnect_all()


def test_brokers_that_all_close_are_no_reason_for_a_storm() -> None:
    """R-CS-8 holds for ends that say nothing against the address, too."""
    scene = Scene(5)
    cluster = SimulatedCluster(scene.world, 20, "large-0002", name="large", bootstrap_name=None)
    cluster.create_topic("wide", 20)
    host = scene.world.host("q")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, _host=host) as producer:
        producer._engine.events.listen(scene.events.append)
        producer.partitions_for("wide", 5.0)
        for broker in cluster.brokers.values():
            broker.versions = {**cluster.versions, ApiVersionsRequest.API_KEY: (9, 9)}
            broker.closes_on_unknown = True
            broker.disconnect_all()
        for partition in range(20):
            producer.send("wide", b"x", partition=partition)
        scene.world.advance(20.0)
        times = [event.at for event in scene.events if event.kind == "dial"]
        with pytest.raises(KafkaTimeoutError):
            producer.close(0)
    later = [at for at in times if at > min(times) + 0.01]  # not those before the first end
    assert len(later) > 20
    assert max(sum(at <= t < at + 1.0 for t in later) for at in later) <= 6


def test_one_that_closes_whatever_it_is_asked_is_a_failure_after_the_first_pass() -> None:
    scene = Scene(5)
    scene.cluster.versions[ApiVersionsRequest.API_KEY] = (9, 9)
    with scene.producer() as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.partitions_for("t", timeout=20.0)
        free = scene.count("dial") - scene.count("dial_failed")
        assert free <= 4  # three excused ones, and perhaps one that is under way
        assert scene.count("dial_failed") >= 8
        # Versions go round, so that it is met rightly once it is there.
        scene.cluster.versions[ApiVersionsRequest.API_KEY] = (0, 3)
        assert producer.partitions_for("t", timeout=20.0)


def test_who_has_answered_a_version_is_asked_in_no_older_one() -> None:
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
