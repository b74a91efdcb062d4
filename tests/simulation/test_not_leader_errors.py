"""R-RB-8: an address leads to another broker of the cluster than metadata names.

That broker responds NOT_LEADER or NOT_COORDINATOR. Brokers before 4.4 don't report the mismatch
(KIP-1242).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.simulation.produce_script import leader_of
from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.producer import Producer
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import NotLeaderOrFollowerError
from odradek.common.events import Event
from odradek.common.types import Address, TopicPartition
from odradek.simulation import SimulatedCluster
from odradek.simulation.brokers import broker_faults
from odradek.simulation.brokers.broker import SimulatedBroker

BOTH = [TopicPartition("t", 0), TopicPartition("t", 1)]
LAG = 5.0
"""Seconds after a restart in which a name still resolves to the old address."""
AGES = pytest.mark.parametrize("release", ["3.9", "newest"])


class Pods(Stage):
    """Two brokers with host names, each of which leads a partition of topic t."""

    def __init__(self, release: str = "3.9", partitions: int = 2, **more: Any) -> None:
        super().__init__(1, 2, partitions, **more)
        broker_faults.release_of_all(self.cluster, release)
        self.ips = {i: broker.address for i, broker in self.cluster.brokers.items()}
        for i, broker in self.cluster.brokers.items():
            broker.address = Address(f"pod-{i}", self.ips[i].port)
            self.world.listen(broker.address, broker)
            self.stands(i, at=i)
            self.is_named(i, at=i)

    def stands(self, i: int, *, at: int) -> None:
        """Move a broker to the initial address of the broker `at`."""
        self.world.divert(self.ips[at], self.cluster.brokers[i])

    def is_named(self, i: int, *, at: int) -> None:
        """Let the broker's name resolve to that address."""
        self.world.dns_change(f"pod-{i}", [self.ips[at].host])

    def swap(self, lag: float = LAG) -> None:
        """Restart both brokers with swapped addresses; DNS follows after `lag`."""
        for i in (1, 2):
            self.cluster.crash(i)
            self.stands(i, at=3 - i)
            self.cluster.restart(i, after=0.5)
            self.world.after(lag, partial(self.is_named, i, at=3 - i))

    def numbers(self) -> list[list[int]]:
        return [[int(value or b"") for value in self.values(p)] for p in (0, 1)]


def dials_of(scene: Stage, client: str, since: float) -> int:
    return sum(d.client == client and d.at >= since for d in scene.world.dials)


@AGES
def test_producer_and_consumer_resume_after_dns_is_updated(release: str) -> None:
    """No record is lost, duplicated or out of order, and connection attempts are limited."""
    scene = Pods(release)
    with scene.producer(linger_ms=0) as producer, scene.consumer() as consumer:
        consumer.assign(BOTH)
        futures = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(10)]
        assert scene.read(consumer, 10) == [*range(10)]
        began, numbers = scene.world.now, [*range(10)]
        scene.swap()
        for n in range(10, 200):
            futures.append(producer.send("t", b"%d" % n, partition=n % 2))
            numbers += [int(r.value or b"") for r in consumer.poll(0.05)]
        right = began + LAG
        assert scene.world.now > right
        while len(numbers) < 200:
            numbers += [int(r.value or b"") for r in consumer.poll(0.05)]
            assert scene.world.now < right + 6.0, consumer.explain()
        assert [f.result(1.0).offset for f in futures] == [n // 2 for n in range(200)]
        for parity in (0, 1):
            assert [n for n in numbers if n % 2 == parity] == [*range(parity, 200, 2)]
        assert scene.numbers() == [[*range(0, 200, 2)], [*range(1, 200, 2)]]
        scene.world.advance(60.0)
        for client in ("producer", "consumer"):
            assert dials_of(scene, client, right + 6.0) <= 2
            assert dials_of(scene, client, began) <= (16 if release == "3.9" else 40)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_and_a_transaction_find_their_coordinators(protocol: str) -> None:
    """Heartbeats, commits and transactions get NOT_COORDINATOR meanwhile."""
    scene = Pods()
    own: dict[str, Any] = {"group_id": "g", "group_protocol": protocol}
    with (
        scene.client(Producer, transactional_id="x", linger_ms=0) as producer,
        scene.consumer(isolation_level="read_committed", **own) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["t"])
        for n in range(4):
            if n == 2:
                scene.swap()
            with producer.transaction():
                producer.send("t", b"%d" % n, partition=n % 2)
            if n % 2:
                assert scene.read(consumer, 2) == [n - 1, n]
                consumer.commit(timeout=20.0)
    assert [len(scene.cluster.log("t", p).visible_rows()) for p in (0, 1)] == [2, 2]
    with scene.client(Admin) as admin:
        found = admin.list_group_offsets("g", 10.0)["g"]
    assert {p: at.offset for p, at in found.items()} == dict.fromkeys(BOTH, 4)


def test_an_admin_client_finds_leaders_and_coordinators() -> None:
    scene = Pods()
    scene.write(range(6))
    with scene.consumer(group_id="g") as consumer:
        consumer.assign(BOTH)
        consumer.commit(dict.fromkeys(BOTH, 1), timeout=5.0)
    with scene.client(Admin) as admin:
        admin.describe_cluster(5.0)
        scene.swap()
        scene.world.advance(1.0)
        ends = admin.list_offsets(dict.fromkeys(BOTH, "LATEST"), timeout=20.0)
        assert {p: found.offset for p, found in ends.items()} == dict.fromkeys(BOTH, 3)
        assert admin.describe_consumer_groups(["g"], timeout=20.0)["g"].group_id == "g"


def test_connections_to_a_broker_that_always_responds_not_leader_back_off() -> None:
    """The broker is the right one, but it may, for example, have lost its controller."""
    scene = Pods()
    with scene.producer(linger_ms=0) as producer, scene.consumer() as consumer:
        producer.send("t", b"0", partition=0).result(5.0)
        broker = leader_of(scene.cluster, 0)
        for api in ("Produce", "ListOffsets"):
            broker_faults.answer_error(scene.cluster, api, 6, 100_000, i=broker.id)
        consumer.assign(BOTH)
        stuck, began = producer.send("t", b"1", partition=0), scene.world.now
        for n in range(60):
            producer.send("t", b"%d" % n, partition=1).result(1.0)
            consumer.poll(0.0)
            scene.world.advance(1.0)
        for client in ("producer", "consumer"):
            assert 6 <= dials_of(scene, client, began) <= 14
        assert not stuck.done()
        broker.injections.clear()
        assert stuck.result(5.0).offset == 1
        assert scene.read(consumer, 2) == [0, 1]


def test_elections_close_no_connection() -> None:
    """A new leader responds NOT_LEADER once or twice, until metadata is refreshed."""
    scene = Stage(1, 3, 3)
    broker_faults.release_of_all(scene.cluster, "3.5")  # errors of 3.5 don't name the leader
    with scene.producer(linger_ms=0) as producer:
        for n in range(3):
            producer.send("t", b"%d" % n, partition=n).result(5.0)
        began, retries = scene.world.now, list[Event]()
        producer._engine.events.listen(lambda e: retries.append(e) if e.kind == "retry" else None)
        for n in range(60):
            scene.world.advance(1.0)
            for i in (1, 2, 3):
                scene.cluster.stale_metadata(i)
                scene.world.after(0.05, partial(scene.cluster.stale_metadata, i, False))
            scene.cluster.move_leader("t", n % 3)
            producer.send("t", b"%d" % n, partition=n % 3).result(5.0)
        assert len(retries) > 60
        assert dials_of(scene, "producer", began) == 0


def test_unanswered_produce_requests_are_not_abandoned() -> None:
    """Without idempotence, their records would be written twice. The connection remains in use."""
    scene = Stage(1, 2, 4)
    broker_faults.release_of_all(scene.cluster, "3.5")  # errors of 3.5 don't name the leader
    with scene.producer(linger_ms=0, enable_idempotence=False, acks=1) as producer:
        producer.send("t", b"0", partition=0).result(5.0)
        broker = leader_of(scene.cluster, 0)
        (other,) = (p for p in (1, 2, 3) if leader_of(scene.cluster, p) is broker)
        broker_faults.slow_api(scene.cluster, "Produce", 0.25)
        for i in (1, 2):
            scene.cluster.stale_metadata(i)
        scene.cluster.move_leader("t", 0)
        stuck, futures, began = producer.send("t", b"1", partition=0), [], scene.world.now
        for n in range(200):
            futures.append(producer.send("t", b"%d" % n, partition=other))
            scene.world.advance(0.1)
        assert scene.world.now - began > 15.0
        assert not stuck.done()
        assert [f.result(5.0).offset for f in futures] == [*range(200)]
        assert scene.values(other) == [b"%d" % n for n in range(200)]
        for i in (1, 2):
            scene.cluster.stale_metadata(i, False)
        assert stuck.result(5.0).offset == 1


def test_the_connection_of_a_busy_producer_is_drained_before_it_is_closed() -> None:
    """Each partition is retried at a different time, so a request is always in flight."""
    scene = Pods(partitions=100)
    broker_faults.slow_api(scene.cluster, "Produce", 0.1)
    with scene.producer(linger_ms=0) as producer:
        for partition in range(100):
            producer.send("t", b"first", partition=partition).result(5.0)
        began, futures = scene.world.now, []
        scene.swap()
        for n in range(700):
            futures.append(producer.send("t", b"%d" % n, partition=n % 100))
            scene.world.advance(0.01)
        while not all(future.done() for future in futures):
            scene.world.advance(0.1)
            assert scene.world.now < began + LAG + 8.0
        assert [f.result(0.0).offset for f in futures] == [1 + n // 100 for n in range(700)]
        assert dials_of(scene, "producer", began) <= 16


def test_a_producer_without_retries_refreshes_metadata_after_not_leader() -> None:
    scene = Stage(1, 3, 3)
    broker_faults.release_of_all(scene.cluster, "3.5")  # errors of 3.5 don't name the leader
    once: dict[str, Any] = {"enable_idempotence": False, "acks": 1, "retries": 0}
    with scene.producer(linger_ms=0, **once) as producer:
        producer.send("t", b"0", partition=0).result(5.0)
        scene.cluster.move_leader("t", 0)
        with pytest.raises(NotLeaderOrFollowerError):
            producer.send("t", b"1", partition=0).result(5.0)
        scene.world.advance(1.0)
        assert producer.send("t", b"2", partition=0).result(5.0).offset == 1


class Abroad(Stage):
    """Two brokers of release 3.9, and another cluster with the same topic."""

    def __init__(self) -> None:
        super().__init__(1, 2, 2)
        broker_faults.release_of_all(self.cluster, "3.9")
        self.foreign = SimulatedCluster(self.world, 1, "foreign-1", name="f", bootstrap_name=None)
        broker_faults.release_of_all(self.foreign, "3.9")
        self.foreign.create_topic("t", partitions=2)
        self.foreign.groups.create()

    def leads_abroad(self, broker: SimulatedBroker) -> None:
        self.world.divert(broker.address, self.foreign.brokers[1])
        broker.disconnect_all()

    def leads_home(self, broker: SimulatedBroker) -> None:
        self.world.divert(broker.address, broker)
        self.foreign.brokers[1].disconnect_all()


def test_a_leader_of_a_wrong_cluster_changes_no_position() -> None:
    """OffsetForLeaderEpoch uses topic names, so it is sent to verified brokers only."""
    scene = Abroad()
    scene.write(range(20))
    broker = leader_of(scene.cluster, 0)
    other = 3 - broker.id
    with scene.consumer(auto_offset_reset="none") as consumer:
        consumer.assign({BOTH[0]: 0})
        assert scene.read(consumer, 10) == [*range(0, 20, 2)]
        scene.cluster.move_leader("t", 0, other)
        scene.cluster.move_leader("t", 0, broker.id)
        ours = scene.cluster.topics["t"].partitions[0].leader_epoch
        scene.foreign.topics["t"].partitions[0].leader_epoch = ours
        scene.leads_abroad(broker)
        for _ in range(6):
            assert consumer.poll(0.5) == []
        scene.leads_home(broker)
        scene.write(range(20, 24))
        assert scene.read(consumer, 2) == [20, 22]


def test_a_coordinator_of_a_wrong_cluster_gets_no_commit() -> None:
    scene = Abroad()
    place = BOTH[0]
    with scene.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([place])
        consumer.commit({place: 5}, timeout=5.0)
        broker = scene.cluster.leader(scene.cluster.groups.name, scene.cluster.groups.index("g"))
        assert broker is not None
        scene.leads_abroad(broker)
        with pytest.raises(KafkaError):
            consumer.commit({place: 9}, timeout=4.0)
        with pytest.raises(KafkaError):
            consumer.committed([place], timeout=4.0)
        scene.leads_home(broker)
        found = consumer.committed([place], timeout=10.0)[place]
        assert found is not None
        assert found.offset == 5
    logs = scene.foreign.topics[scene.foreign.groups.name].partitions
    assert all(not partition.log.batches for partition in logs)
