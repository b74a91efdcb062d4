"""The result of `explain()` during each kind of fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker, leader_of

from odradek.api.base import on_host
from odradek.api.producer import Producer
from odradek.clients.explain.explanation import AddressExplanation, Explanation
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World


@pytest.fixture
def admin(cluster: SimulatedCluster, simulated_client: Callable[..., Any]) -> Any:
    client = simulated_client("admin")
    client.describe_cluster(5.0)
    return client


def during(admin: Any, world: World, after: float, timeout: float) -> Explanation:
    """Return the result of explain() at this time during a call that waits."""
    pictures: list[Explanation] = []
    world.after(after, lambda: pictures.append(admin.explain()))
    with pytest.raises(KafkaError):
        admin.describe_cluster(timeout)
    return pictures[0]


def brokers(picture: Explanation) -> list[AddressExplanation]:
    return [a for a in picture.addresses if "broker" in a.role]


def test_explain_without_a_fault_says_that_the_client_works(
    admin: Any, cluster: SimulatedCluster
) -> None:
    picture = admin.explain()
    assert picture.outage is None
    assert picture.attempts == ()
    assert picture.diagnosis.startswith(f"It works: cluster {cluster.cluster_id}, 1 of 3 brokers")
    assert picture.metadata_why is None
    assert 290 < picture.next_attempt_in < 300
    assert "(metadata.max.age.ms)" in str(picture)


def test_explain_reports_refused_connections(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    every_broker(cluster, "crash")
    picture = during(admin, world, 3.0, 5.0)
    assert picture.diagnosis.startswith("No broker has answered for ")
    assert "nothing listens there" in picture.diagnosis
    for a in brokers(picture):
        assert a.ip == a.address.partition(":")[0]
        assert a.failures >= 1
    (front,) = [a for a in picture.addresses if a.role == "bootstrap"]
    assert front.ip == world.dns["kafka.simulated"][0]
    outage = picture.outage
    assert outage is not None
    assert outage.total
    assert 2.5 < outage.seconds <= 3.0
    seen = [d.ip for d in world.dials if world.now - 5.0 <= d.at <= world.now - 2.0]
    assert outage.dials_of_bootstrap == seen.count(front.ip or "")
    assert outage.dials_of_known == len(seen) - seen.count(front.ip or "")
    (rebootstrap,) = picture.rebootstraps
    assert rebootstrap.seconds is None
    assert "none of the 3 known brokers" in rebootstrap.why
    assert {a.address for a in picture.attempts} == {a.address for a in picture.addresses}
    assert picture.attempts[-1].age < 1.5
    assert [what for what, _ in picture.waiting] == ["the description of the cluster"]
    assert json.loads(json.dumps(picture.to_dict()))["outage"]["total"] is True


def test_explain_reports_connection_attempts_without_a_response(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    cluster.move(after=1000.0, old="blackholed")
    world.black_hole(cluster.front_door.address, True)
    picture = during(admin, world, 9.0, 10.0)
    pending = [a for a in picture.addresses if a.pending_for is not None]
    assert pending
    for a in pending:
        assert a.state == "connecting"
        assert a.setup_left is not None
        if a.silent:
            assert a.meaning is not None
            assert "firewall" in a.meaning
    assert "a firewall drops them, the network is wrong" in picture.diagnosis


def test_explain_reports_the_next_attempt_while_attempts_hang(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    cluster.move(after=1000.0, old="blackholed")
    world.black_hole(cluster.front_door.address, True)
    pictures: list[Explanation] = []
    looks: list[float] = []

    def look() -> None:
        pictures.append(admin.explain())
        looks.append((admin._engine.updater.next_attempt_at or 0.0) - world.now)

    for n in range(1, 60):
        world.after(n / 2, look)
    with pytest.raises(KafkaError):
        admin.describe_cluster(30.0)
    hanging = [p for p in pictures if p.outage and any(a.setup_left for a in p.addresses)]
    assert len(hanging) > 20
    assert max(looks) > 200, "what the updater itself waits for is another matter"
    for picture in hanging:
        assert picture.next_attempt_in is not None
        assert picture.next_attempt_in <= min(a.setup_left or 99 for a in picture.addresses)
        said = f"The next attempt is in {picture.next_attempt_in:.1f} s"
        assert picture.outage is not None
        assert (said in picture.diagnosis) is picture.outage.total


def test_explain_reports_brokers_that_never_respond(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    every_broker(cluster, "go_silent")
    picture = during(admin, world, 9.0, 10.0)
    assert "never answers" in picture.diagnosis
    assert any(a.silent and a.state == "ready" for a in picture.addresses)
    assert "ready, no response" in str(picture)


def test_explain_reports_connections_closed_at_the_first_request(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    every_broker(cluster, "ready_then_close")
    picture = during(admin, world, 4.0, 5.0)
    assert "No broker has answered" in picture.diagnosis
    assert "closes the connection at the first request" in picture.diagnosis
    assert all(a.last_error for a in brokers(picture))
    assert " times, last " in str(picture)


def test_explain_reports_names_that_do_not_resolve(
    world: World, cluster: SimulatedCluster, simulated_client: Callable[..., Any]
) -> None:
    del world.dns["kafka.simulated"]
    client = simulated_client("admin")
    picture = during(client, world, 1.0, 2.0)
    assert "The cluster can't be reached: bootstrap address kafka.simulated:9092" in str(picture)
    assert "the name doesn't resolve on this machine" in picture.diagnosis
    world.dns_silent.add("kafka.simulated")
    silent = during(client, world, 9.0, 10.0)
    assert "the name server doesn't answer" in silent.diagnosis


def test_explain_reports_a_wrong_cluster(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    cluster.replace_with_foreign()
    with pytest.raises(KafkaError):
        admin.describe_cluster(5.0)
    picture = admin.explain()
    assert picture.diagnosis.startswith("The client has stopped: ClusterIdMismatchError")
    assert "foreign-cluster-0002" in str(picture)


def test_explain_reports_one_broker_of_three_that_is_down(
    world: World, cluster: SimulatedCluster, simulated_client: Callable[..., Any]
) -> None:
    cluster.create_topic("t", partitions=3)
    consumer = simulated_client("consumer")
    consumer.assign([TopicPartition("t", i) for i in range(3)])
    consumer.poll(1.0)
    cluster.crash(2)
    world.advance(1.0)
    picture = consumer.explain()
    assert picture.diagnosis.startswith("It works in part: ")
    assert "2 of 3 brokers connected; broker " in picture.diagnosis
    assert "other brokers answer" in str(picture)


def test_explain_says_that_no_call_was_made_yet(simulated_client: Callable[..., Any]) -> None:
    picture = simulated_client("admin").explain()
    assert "this client has had no call so far" in picture.diagnosis
    assert "no call is waiting" in str(picture)


def test_explain_reports_waiting_records(
    world: World, cluster: SimulatedCluster, simulated_client: Callable[..., Any]
) -> None:
    cluster.create_topic("t", partitions=3)
    producer = simulated_client("producer")
    producer.send("t", b"first", partition=0).result(timeout=5.0)
    assert producer.explain().waiting == ()
    every_broker(cluster, "crash")
    for n in range(5):
        producer.send("t", b"more", partition=n % 2)
    world.advance(10.0)
    ((what, left),) = producer.explain().waiting
    assert what == "the acknowledgement of 5 records for 2 partitions, the oldest first"
    assert left == pytest.approx(110.0, abs=0.1)
    every_broker(cluster, "restart")
    producer.flush(timeout=10.0)
    assert producer.explain().waiting == ()


def oldest(producer: Producer) -> str:
    picture = producer.explain()
    assert picture.records is not None
    assert str(picture.records) in str(picture)
    return picture.records.waits_for


def test_explain_reports_why_the_oldest_record_waits(
    world: World, cluster: SimulatedCluster, simulated_client: Callable[..., Any]
) -> None:
    cluster.create_topic("t", partitions=1, replication_factor=1)
    leader = leader_of(cluster)
    producer = simulated_client("producer", linger_ms=5000)
    producer.send("t", b"first", partition=0)
    assert oldest(producer) == "the metadata of the cluster, which no broker has returned yet"
    producer.partitions_for("t", timeout=5)
    assert producer.explain().records.records == 1
    assert oldest(producer) == "more records in its batch (linger.ms)"
    producer.flush(10.0)
    assert producer.explain().records is None
    cluster.go_silent(leader.id)
    producer.send("t", b"second", partition=0)
    world.advance(8.0)
    waits_for = oldest(producer)
    assert waits_for.startswith(f"the response of broker {leader.id} (")
    assert waits_for.endswith("the oldest request in flight there is 3.0 s old")
    assert (
        "But 1 record isn't acknowledged yet; the oldest, for partition 0 of topic t, is 8.0 s old"
        in (producer.explain().diagnosis)
    )
    cluster.crash(leader.id)
    world.advance(0.5)
    waits_for = oldest(producer)
    assert waits_for.startswith(f"a connection to broker {leader.id} (")
    assert "connection refused, next connection attempt in 0." in waits_for
    world.advance(15.0)
    assert oldest(producer) == "a leader of its partition to be elected"
    cluster.restart(leader.id)
    producer.flush(20.0)


def test_explain_names_the_broker_that_a_record_waits_for(
    world: World, cluster: SimulatedCluster, simulated_client: Callable[..., Any]
) -> None:
    cluster.create_topic("t", partitions=3)
    producer = simulated_client("producer")
    broker = leader_of(cluster, 1)
    old = broker.address
    broker.address = world.new_address()
    producer.send("t", b"v", partition=1)
    world.advance(4.0)
    found = producer.explain()
    assert oldest(producer).startswith(
        f"a connection to broker {broker.id} ({broker.address}, the leader of its partition): "
    )
    assert found.records.left == pytest.approx(116.0, abs=0.2)
    assert "connection refused" in found.records.waits_for
    broker.address = old
    producer.flush(60.0)


def test_explain_reports_the_result_of_a_rebootstrap(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    cluster.move(after=3.0)
    admin.describe_cluster(10.0)
    (rebootstrap,) = admin.explain().rebootstraps
    assert rebootstrap.address == "kafka.simulated:9092"
    assert rebootstrap.seconds is not None
    assert 2.5 < rebootstrap.seconds < 6.0
    assert "answered after" in str(admin.explain())
    assert not world.hot_loops


def test_explain_reports_the_state_of_a_transaction(
    world: World, cluster: SimulatedCluster
) -> None:
    cluster.create_topic("t", partitions=1)
    servers, host = cluster.bootstrap_servers, world.host("transactional")
    producer = on_host(host, Producer, bootstrap_servers=servers, transactional_id="x")
    assert "transactional id x: uninitialized (call init_transactions() first)" in str(
        producer.explain()
    )
    producer.init_transactions()
    producer.begin_transaction()
    picture = producer.explain().transaction
    assert picture is not None
    assert str(picture) == (
        f"transactional id x: in transaction; producer {picture.producer_id}, epoch "
        f"{picture.producer_epoch}; coordinator: broker {picture.coordinator}"
    )
    assert picture.producer_id >= 0
    producer.send("t", b"x")
    producer.flush(5.0)
    every_broker(cluster, "crash")
    with pytest.raises(KafkaError):
        producer.commit_transaction(timeout=2)
    text = str(producer.explain().transaction)
    assert "committing transaction" in text
    assert "commit_transaction() is still running: call it again to wait for it" in text
    producer.close(0)
