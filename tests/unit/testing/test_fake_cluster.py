"""`FakeCluster`, which has real sockets: its methods take effect at once; wrong use raises."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from odradek import Admin, Consumer, Producer, TopicPartition
from odradek.admin import AclBinding
from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as kafka_errors
from odradek.testing import ClusterStartError, FakeCluster
from odradek.testing.fake.memory_limits import TRIMMED_EVERY

PATIENCE = 60.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(topics=["flights:3", "one"]) as cluster:
        yield cluster


def producer(cluster: FakeCluster, **more: object) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **more})


def send(producer: Producer, value: bytes = b"JFK", partition: int = 0) -> int:
    future = producer.send("flights", value, partition=partition)
    return future.result(timeout=PATIENCE).offset


def refused(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) != 0


def test_sent_records_can_be_read(cluster: FakeCluster) -> None:
    with producer(cluster) as ours:
        assert [send(ours, b"JFK"), send(ours, b"LGA")] == [0, 1]
    assert [row[4] for row in cluster.records("flights")] == [b"JFK", b"LGA"]
    assert cluster.requests()["Produce"] == 2
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        told = admin.describe_cluster()
        assert told.cluster_id == cluster.cluster_id
        assert {b.id: f"{b.host}:{b.port}" for b in told.brokers} == cluster.addresses
        assert sorted(admin.list_topics()) == ["flights", "one"]


@pytest.mark.slow
def test_a_broker_can_be_killed_started_and_moved(cluster: FakeCluster) -> None:
    leader = cluster.leader("flights")
    with producer(cluster) as ours:
        send(ours)
        before = cluster.addresses
        cluster.kill(leader)
        assert refused(before[leader])
        assert send(ours) == 1
        assert cluster.leader("flights") != leader
        cluster.start(leader)
        assert not refused(before[leader])
        cluster.move(leader)
        assert cluster.addresses[leader] != before[leader]
        assert refused(before[leader])
        cluster.stop(1)
        cluster.heal()
        assert send(ours) == 2


def test_a_paused_broker_answers_after_it_resumes(cluster: FakeCluster) -> None:
    leader = cluster.leader("flights")
    with producer(cluster) as ours:
        send(ours)
        cluster.pause(leader)
        future = ours.send("flights", b"kept", partition=0)
        assert not refused(cluster.addresses[leader])
        cluster.resume(leader)
        assert future.result(timeout=PATIENCE).offset == 1


@pytest.mark.slow
def test_injected_errors_and_delays_apply_until_they_are_removed(cluster: FakeCluster) -> None:
    with producer(cluster) as ours:
        cluster.refuse("Produce", "not_leader_or_follower", times=2)
        assert send(ours) == 0
        cluster.refuse("Produce", kafka_errors.TopicAuthorizationError)
        with pytest.raises(kafka_errors.TopicAuthorizationError):
            send(ours)
        cluster.refuse("Produce", 29, times=None, broker=cluster.leader("flights"))
        for _ in range(2):
            with pytest.raises(BrokerError):
                send(ours)
        cluster.heal()
        cluster.delay("Produce", 0.2)
        cluster.delay("ApiVersions", 0.01)
        send(ours)
        cluster.delay("Produce", 0)
        cluster.delay("ApiVersions", 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_groups_and_transactions_are_supported(
    cluster: FakeCluster, protocol: str
) -> None:
    servers = cluster.bootstrap_servers
    with producer(cluster, **{"transactional.id": "t"}) as ours:
        ours.init_transactions()
        for n in range(4):
            ours.begin_transaction()
            send(ours, b"%d" % n)
            if n % 2:
                ours.abort_transaction()
            else:
                ours.commit_transaction()
    config = {"bootstrap.servers": servers, "group.id": "g", "group.protocol": protocol,
              "auto.offset.reset": "earliest", "isolation.level": "read_committed"}  # fmt: skip
    with Consumer(config) as consumer:
        consumer.subscribe(["flights"])
        seen: list[bytes | None] = []
        while len(seen) < 2:
            seen += [record.value for record in consumer.poll(PATIENCE)]
        consumer.commit()
        assert seen == [b"0", b"2"]
        assert consumer.committed([TopicPartition("flights", 0)])


def test_retention_bytes_deletes_the_oldest_records() -> None:
    with FakeCluster(topics=["flights"], retention_bytes=2 * TRIMMED_EVERY) as small:
        with producer(small) as ours:
            offsets = [send(ours, bytes(100_000)) for _ in range(60)]
        with Consumer({"bootstrap.servers": small.bootstrap_servers}) as consumer:
            (found,) = consumer.beginning_offsets([TopicPartition("flights", 0)]).values()
        assert offsets == list(range(60))
        assert 20 < found < 60
        assert [row[0] for row in small.records("flights")] == list(range(found, 60))


@pytest.mark.parametrize(
    ("api", "call"),
    [
        ("ListGroups", lambda admin: admin.list_groups()),
        (
            "CreateAcls",
            lambda admin: admin.create_acls([AclBinding("TOPIC", "t", "User:a", "READ")]),
        ),
    ],
)
def test_refuse_makes_admin_requests_fail(
    cluster: FakeCluster, api: str, call: Callable[[Admin], object]
) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        cluster.refuse(api, "CLUSTER_AUTHORIZATION_FAILED", times=None)
        with pytest.raises(kafka_errors.ClusterAuthorizationError):
            call(admin)
        cluster.heal()
        call(admin)


def test_wrong_use_of_a_fake_cluster_raises_errors(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    with pytest.raises(IndexError, match="there is no broker 0; the ids are 1 to 3"):
        cluster.kill(0)
    with pytest.raises(ValueError, match="topic 'one' already exists"):
        cluster.create_topic("one")
    with pytest.raises(ValueError, match="'a b' isn't a valid topic name"):
        cluster.create_topic("a b")
    with pytest.raises(ValueError, match="replication_factor must be 1 to 3"):
        cluster.create_topic("two", replication_factor=4)
    with pytest.raises(ValueError, match="there is no topic 'two'"):
        cluster.records("two")
    with pytest.raises(IndexError, match="one has partitions 0 to 0"):
        cluster.records("one", 1)
    with pytest.raises(ValueError, match="'Prodcue' can't be refused; use one of .*Produce"):
        cluster.refuse("Prodcue", 6)
    with pytest.raises(ValueError, match="'NO_SUCH' isn't the name of a Kafka error"):
        cluster.refuse("Produce", "NO_SUCH")
    with pytest.raises(ValueError, match="times must be 1 or more"):
        cluster.refuse("Produce", 6, times=0)
    with pytest.raises(ValueError, match="can't be delayed"):
        cluster.delay("Prodcue", 1)
    with pytest.raises(ValueError, match="seconds must be 0 or more"):
        cluster.delay("Produce", -1)
    with pytest.raises(RuntimeError, match="already open"):
        cluster.open()
    cluster.kill(1)
    with pytest.raises(RuntimeError, match=r"broker 1 isn't running: call start\(1\)"):
        cluster.pause(1)
    with pytest.raises(ClusterStartError, match="port .*in use"):
        FakeCluster(port=int(servers.split(":")[1])).open()
    cluster.close()
    cluster.close()
    with pytest.raises(RuntimeError, match="not open"):
        cluster.kill(1)
    assert refused(servers)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"brokers": 0}, "brokers must be 1 to 100"),
        ({"port": -1}, "port must be 0"),
        ({"topics": "flights"}, "must be a list of names"),
        ({"topics": ["flights:x"]}, "must be a number"),
        ({"topics": {"flights": 0}}, "partitions must be 1 to"),
        ({"heartbeat_interval": 0}, "heartbeat_interval must be"),
        ({"retention_bytes": 1}, "retention_bytes must be"),
    ],
)
def test_invalid_options_of_a_fake_cluster_are_rejected(
    options: dict[str, object], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        FakeCluster(**options)  # type: ignore[arg-type]
