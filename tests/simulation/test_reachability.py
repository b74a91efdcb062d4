"""`Admin.describe_reachability()` connects to every address, and checks the partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.produce_script import every_broker

from odradek.clients.admin.reachability import OUT_OF_REACH, PARTLY, WELL
from odradek.common.errors import (
    ClusterIdMismatchError,
    ConnectionRefusedByPeerError,
    NoBrokerAvailableError,
)
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.simulation import SimulatedCluster, World


@pytest.fixture
def admin(cluster: SimulatedCluster, simulated_client: Callable[..., Any]) -> Any:
    cluster.create_topic("flights", partitions=6)
    return simulated_client("admin")


def test_all_brokers_are_reachable(admin: Any, world: World, cluster: SimulatedCluster) -> None:
    found = admin.describe_reachability(timeout=5.0)
    assert found.state == WELL
    assert [a.brokers for a in found.addresses] == [*((i,) for i in cluster.brokers), ()]
    assert sum(a.leads for a in found.addresses) == 6
    dialled = {d.ip for d in world.dials}
    assert dialled >= {b.address.host for b in cluster.brokers.values()}
    assert world.now < 1.0


def test_a_broker_that_refuses_connections_is_reported(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    """Metadata lists the broker, but its advertised listener is wrong for this client."""
    broker = next(iter(cluster.brokers.values()))
    leads = sum(cluster.leader("flights", p) is broker for p in range(6))
    cluster_address, broker.address = broker.address, world.new_address()
    found = admin.describe_reachability(timeout=10.0)
    assert found.state == PARTLY
    (failing,) = [a for a in found.addresses if a.error is not None]
    assert failing.brokers == (broker.id,)
    assert failing.address != str(cluster_address)
    assert isinstance(failing.error, ConnectionRefusedByPeerError)
    assert failing.leads == leads > 0
    assert world.now < 3.0, "an address that fails again and again isn't waited for to the end"


def test_a_broker_that_drops_connection_attempts_is_reported(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    broker = next(iter(cluster.brokers.values()))
    broker.address = world.new_address()
    world.black_hole(broker.address, True)
    found = admin.describe_reachability(timeout=4.0)
    assert found.state == PARTLY
    (failing,) = [a for a in found.addresses if a.error is not None]
    assert failing.brokers == (broker.id,)
    assert world.now <= 4.0


def test_a_crashed_broker_is_reported_with_its_replicas(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    cluster.crash(1)
    world.run_until(world.now + 10.0)
    found = admin.describe_reachability(timeout=5.0)
    assert found.state == PARTLY
    assert found.absent == (1,)
    assert len(found.brokers) == 2
    assert all(a.error is None for a in found.addresses)


def test_partitions_without_a_leader_are_reported(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    cluster.create_topic("alone", partitions=3, replication_factor=1)
    leader = cluster.leader("alone", 1)
    assert leader is not None
    cluster.crash(leader.id)
    world.run_until(world.now + 10.0)
    found = admin.describe_reachability(timeout=5.0)
    assert found.state == PARTLY
    (topic,) = found.topics
    assert (topic.topic, topic.partitions, topic.leaderless) == ("alone", 3, (1,))
    found = admin.describe_reachability("flights", timeout=5.0)
    assert found.topics == ()


def test_a_missing_topic_is_reported_with_similar_names(admin: Any) -> None:
    found = admin.describe_reachability(["flight", "flights"], timeout=5.0)
    assert found.state == PARTLY
    (topic,) = found.topics
    assert isinstance(topic.error, UnknownTopicOrPartitionError)
    assert topic.near == ("flights",)


def test_brokers_that_advertise_the_same_address_are_reported(
    admin: Any, cluster: SimulatedCluster
) -> None:
    first, second, _ = cluster.brokers.values()
    second.address = first.address
    found = admin.describe_reachability(timeout=5.0)
    assert found.state == PARTLY
    assert found.addresses[0].brokers == (first.id, second.id)


def test_other_servers_at_all_advertised_addresses_are_reported(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    for broker in cluster.brokers.values():
        broker.address = world.new_address()
    found = admin.describe_reachability(timeout=10.0)
    assert found.state == OUT_OF_REACH
    assert [a.error is None for a in found.addresses] == [False, False, False, True]
    assert found.topics_error is not None


def test_an_error_is_raised_if_no_address_is_reachable(
    admin: Any, world: World, cluster: SimulatedCluster
) -> None:
    every_broker(cluster, "crash")
    with pytest.raises(NoBrokerAvailableError):
        admin.describe_reachability(timeout=3.0)
    assert 3.0 <= world.now < 3.1


def test_a_bootstrap_address_of_another_cluster_is_reported(
    world: World, cluster: SimulatedCluster, simulated_client: Callable[..., Any]
) -> None:
    other = SimulatedCluster(
        world, brokers=1, name="other", cluster_id="another-one", bootstrap_name=None
    )
    ours = simulated_client(
        "admin",
        bootstrap_servers=f"{cluster.bootstrap_servers},{other.bootstrap_servers}",
        cluster_id_expected=cluster.cluster_id,
    )
    found = ours.describe_reachability(timeout=5.0)
    assert found.state == PARTLY
    (failing,) = [a for a in found.addresses if a.error is not None]
    assert failing.address == other.bootstrap_servers
    assert isinstance(failing.error, ClusterIdMismatchError)
    assert ours.ended is None
