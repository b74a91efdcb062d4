"""KIP-1242 (R-RB-8): requests name the expected broker, and other brokers report the mismatch."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import KafkaTimeoutError
from odradek.common.events import Event
from odradek.common.types import Address, TopicPartition
from odradek.network.effects import OutgoingRequest
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.simulation import SimulatedCluster

OLDER = {ApiVersionsRequest.API_KEY: (0, 4)}
Meant = tuple[str, int, str | None, int]
"""An address, and the version, cluster id and node id of an ApiVersions request to it."""


class Overheard:
    """Record the ApiVersions requests of clients."""

    def __init__(self) -> None:
        self.meant: list[Meant] = []
        self._places: dict[int, str] = {}

    def opened(self, number: int, address: Address, ip: str) -> None:
        self._places[number] = str(address)

    def connected(self, number: int) -> None:
        """Record nothing."""

    def sent(self, number: int, request: OutgoingRequest) -> None:
        body = request.body
        if isinstance(body, ApiVersionsRequest):
            place = self._places[number]
            self.meant.append((place, request.version, body.cluster_id, body.node_id))

    def came(self, number: int, size: int, throttle: float = 0.0) -> None:
        """Record nothing."""

    def answered(self, number: int, correlation_id: int, throttle: float = 0.0) -> None:
        """Record nothing."""

    def ended(self, number: int) -> None:
        """Record nothing."""


class Scene(Stage):
    """A cluster with topic `t`, and its ApiVersions requests by address."""

    def __init__(self, brokers: int, **more: Any) -> None:
        super().__init__(1, brokers, brokers, **more)
        self.overheard = Overheard()
        self.events: list[Event] = []

    def producer(self, **more: Any) -> Producer:
        made = super().producer(linger_ms=0, **more)
        self.world.hosts["producer"].watcher = self.overheard
        made._engine.events.listen(self.events.append)
        return made

    def elsewhere(self, brokers: int = 1, **more: Any) -> SimulatedCluster:
        """Create another cluster."""
        named: Any = {"name": "other", "bootstrap_name": None, **more}
        return SimulatedCluster(self.world, brokers, "other-0009", **named)

    @property
    def meant(self) -> list[Meant]:
        return self.overheard.meant

    def swap(self) -> None:
        """Restart brokers 1 and 2 at each other's address."""
        one, two = self.cluster.brokers[1], self.cluster.brokers[2]
        self.cluster.crash(1)
        self.cluster.crash(2)
        one.address, two.address = two.address, one.address
        self.cluster.restart(1, after=0.1)
        self.cluster.restart(2, after=0.1)


def all_partitions(producer: Producer, count: int) -> list[int]:
    return [producer.send("t", b"x", partition=p).result(30).partition for p in range(count)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, True),
        ({"metadata_cluster_check_enable": False}, False),
        ({"metadata_recovery_strategy": "none"}, False),
    ],
)
def test_requests_to_known_brokers_name_the_expected_broker(
    options: dict[str, Any], told: bool
) -> None:
    scene = Scene(3)
    with scene.producer(**options) as producer:
        all_partitions(producer, 3)
    cluster_id = scene.cluster.cluster_id
    ids = {str(broker.address): broker.id for broker in scene.cluster.brokers.values()}
    assert {place for place, *_ in scene.meant} > set(ids)  # the bootstrap address was used too
    for place, version, cluster, node in scene.meant:
        learned = told and place in ids
        assert version == 5
        assert (cluster, node) == ((cluster_id, ids[place]) if learned else (None, -1))


def test_requests_to_a_bootstrap_address_name_no_expected_broker() -> None:
    scene = Scene(1)
    with scene.producer(bootstrap_servers=str(scene.cluster.brokers[1].address)) as producer:
        all_partitions(producer, 1)
        scene.cluster.brokers[
            1
        ].disconnect_all()  # at the next attempt, the client knows the cluster
        all_partitions(producer, 1)
    assert len(scene.meant) > 1
    assert {(c, n) for _, _, c, n in scene.meant} == {(None, -1)}


def test_requests_to_a_shared_address_name_no_expected_broker() -> None:
    """If all brokers advertise one load balancer, any broker may respond."""
    scene = Scene(2)
    scene.cluster.brokers[2].address = scene.cluster.brokers[1].address
    with scene.producer() as producer:
        producer.partitions_for("t", 5.0)
        assert producer._engine.network.meant_by(scene.cluster.brokers[1].address) == (None, -1)


def test_swapped_brokers_are_detected_before_other_requests() -> None:
    scene = Scene(2)
    with scene.producer() as producer:
        all_partitions(producer, 2)
        scene.swap()
        scene.world.advance(0.5)
        began = scene.world.now
        assert all_partitions(producer, 2) == [0, 1]
        assert scene.world.now - began < 1.5
    rebootstraps = [e for e in scene.events if e.kind == "rebootstrap"]
    assert len(rebootstraps) == 1
    assert "REBOOTSTRAP_REQUIRED" in str(rebootstraps[0])


def test_an_older_broker_gets_the_version_that_it_supports() -> None:
    scene = Scene(1, versions=OLDER)
    with scene.producer() as producer:
        all_partitions(producer, 1)
    assert [v for _, v, _, _ in scene.meant] == [5, 4] * (len(scene.meant) // 2)


def test_other_connections_stay_open_while_an_address_is_misrouted() -> None:
    """R-RB-3: there is only one rebootstrap, as further ones wouldn't find other addresses."""
    scene = Scene(3)
    other = scene.elsewhere()
    with scene.producer() as producer:
        all_partitions(producer, 3)
        astray = scene.cluster.brokers[1]
        scene.world.divert(astray.address, other.brokers[1])
        astray.disconnect_all()
        stuck = producer.send("t", b"y", partition=0)
        scene.world.advance(5.0)
        before = {b.id: set(b.sessions) for b in scene.cluster.brokers.values() if b is not astray}
        for _ in range(60):
            assert producer.send("t", b"x", partition=1).result(5.0).partition == 1
            scene.world.advance(1.0)
        assert all(set(scene.cluster.brokers[i].sessions) >= old for i, old in before.items())
        assert sum(event.kind == "rebootstrap" for event in scene.events) == 1
        assert not stuck.done()
        scene.world.divert(astray.address, None)
        assert stuck.result(10.0).offset == 1


@pytest.mark.parametrize("older", [False, True])
def test_no_topics_or_producer_ids_are_requested_from_a_wrong_cluster(older: bool) -> None:
    """R-RB-5: before KIP-1242, the cluster id of an address is checked before its first use."""
    scene = Scene(1)
    other = scene.elsewhere(versions=OLDER if older else None)
    address = scene.cluster.brokers[1].address
    with scene.client(Admin) as admin, scene.producer() as producer:
        admin.describe_cluster(10.0)
        producer.partitions_for("t", 10.0)
        scene.world.divert(address, other.brokers[1])
        scene.cluster.brokers[1].disconnect_all()
        with pytest.raises(KafkaTimeoutError):
            admin.create_topics([NewTopic("new", 1, 1)], timeout=5.0)
        with pytest.raises(KafkaTimeoutError):
            producer.send("t", b"x").result(5.0)
        asked = other.brokers[1].requests
        assert "new" not in other.topics
        assert asked["InitProducerId"] == asked["CreateTopics"] == asked["Produce"] == 0
        scene.world.divert(address, None)
        admin.create_topics([NewTopic("new", 1, 1)], timeout=10.0)
        producer.flush(10.0)
    assert "new" in scene.cluster.topics


def test_the_cluster_id_of_an_old_broker_without_known_topics_is_checked() -> None:
    """Topic ids protect the records, but a connection to a wrong cluster must not remain in use."""
    scene = Scene(2)
    other = scene.elsewhere(versions=OLDER)
    other.create_topic("t", 2)
    address = scene.cluster.brokers[1].address
    with scene.producer() as producer, scene.consumer() as consumer:
        consumer.assign([TopicPartition("t", 0)])
        all_partitions(producer, 2)
        assert len(consumer.poll(10.0)) == 1
        consumer.poll(0.2)
        scene.world.divert(address, other.brokers[1])
        scene.cluster.brokers[1].disconnect_all()
        future = producer.send("t", b"y", partition=0)
        assert consumer.poll(1.0) == []
        # open connections of other clients are kept unless they time out
        scene.world.divert(address, None)
        assert future.result(20.0).offset == 1
        assert len(consumer.poll(20.0)) == 1


def test_a_wrong_cluster_at_a_known_address_leads_to_the_bootstrap_address() -> None:
    """The broker at the known address reports the mismatch; the bootstrap address is right."""
    scene = Scene(2)
    other = scene.elsewhere(2)
    other.create_topic("t", 2)
    with scene.producer() as producer:
        all_partitions(producer, 2)
        old = [scene.cluster.brokers[i].address for i in (1, 2)]
        scene.cluster.move(after=0.2)
        for i, address in enumerate(old, start=1):
            other.stop(i)
            other.brokers[i].address = address
            other.restart(i)
        scene.world.advance(1.0)
        assert all_partitions(producer, 2) == [0, 1]
    assert not any(len(other.log("t", p).batches) for p in (0, 1))
    with scene.consumer() as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert len(consumer.poll(10.0)) == 2
