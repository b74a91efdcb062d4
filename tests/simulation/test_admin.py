"""The admin client in virtual time: retries, deadlines, lost responses, recovery."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.produce_script import every_broker

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors import (
    ClusterIdMismatchError,
    ConfigurationError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
)
from odradek.common.errors.kafka import (
    ClusterAuthorizationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.injected_errors import Injection


def make(seed: int, **config: Any) -> tuple[World, SimulatedCluster, Admin]:
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, **config}
    return world, cluster, on_host(world.host("admin", background=False), Admin, settings)


def test_topics_are_created_and_deleted() -> None:
    _, _, admin = make(1)
    with admin:
        made = admin.create_topics([NewTopic("a", 3, 2), NewTopic("b", 1, 1)])
        assert [len(made[name].partitions) for name in ("a", "b")] == [3, 1]
        assert made["a"].leaderless == 0
        assert all(len(p.replicas) == 2 for p in made["a"].partitions)
        assert admin.list_topics() == ["a", "b"]
        assert admin.describe_topics(["a"]) == {"a": made["a"]}
        admin.delete_topics(["a"])
        assert admin.list_topics() == ["b"]
        with pytest.raises(UnknownTopicOrPartitionError, match="a"):
            admin.describe_topics(["b", "a"])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["a"])


def test_errors_of_topic_creation_name_the_topic() -> None:
    _, cluster, admin = make(2)
    cluster.create_topic("there")
    with pytest.raises(TopicAlreadyExistsError, match="there"):
        admin.create_topics([NewTopic("there", 1, 1)])
    with pytest.raises(InvalidReplicationFactorError, match="wide"):
        admin.create_topics([NewTopic("wide", 1, 9)])
    with pytest.raises(InvalidPartitionsError, match="none"):
        admin.create_topics([NewTopic("none", 0, 1)])
    with pytest.raises(ConfigurationError, match="twice"):
        admin.create_topics([NewTopic("x"), NewTopic("x")])
    assert admin.create_topics([NewTopic("only", 1, 1)], validate_only=True) == {}
    assert admin.list_topics() == ["there"]


def test_describe_cluster_returns_the_brokers() -> None:
    _, cluster, admin = make(3)
    found = admin.describe_cluster()
    assert found.cluster_id == cluster.cluster_id == admin._engine.metadata.cluster_id
    assert [(b.id, b.host) for b in found.brokers] == [
        (b.id, b.address.host) for b in cluster.brokers.values()
    ]
    assert found.controller in cluster.brokers


def test_a_call_succeeds_although_a_broker_crashes_during_it() -> None:
    world, cluster, admin = make(4)
    admin.describe_cluster()
    for i in (1, 2):
        cluster.crash(i)
    begin = world.now
    assert admin.list_topics(timeout=20) == []
    assert world.now - begin < 5
    assert len(admin.create_topics([NewTopic("t", 2, 3)], timeout=20)) == 1


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("code", [7, 13])  # error codes: REQUEST_TIMED_OUT, NETWORK_EXCEPTION
def test_a_call_succeeds_if_its_change_was_made_despite_an_error_response(
    code: int, done: bool
) -> None:
    _, cluster, admin = make(4)

    def trouble(api: str) -> None:
        one = Injection(api, code, 1, done=done)
        for broker in cluster.brokers.values():
            broker.injections.append(one)

    with admin:
        trouble("CreateTopics")
        assert list(admin.create_topics([NewTopic("t", 1, 1)])) == ["t"]
        trouble("DeleteTopics")
        admin.delete_topics(["t"])
        assert list(cluster.topics) == []
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["t"])


@pytest.mark.parametrize("code", [89, 41])  # THROTTLING_QUOTA_EXCEEDED (KIP-599), NOT_CONTROLLER
def test_a_topic_created_by_another_client_during_retries_is_reported_as_existing(
    code: int,
) -> None:
    world, cluster, admin = make(5)
    one = Injection("CreateTopics", code, 1)
    for broker in cluster.brokers.values():
        broker.injections.append(one)

    def another(_: object) -> None:
        if not one.left and "t" not in cluster.topics:
            cluster.create_topic("t", partitions=7)

    admin.listen(another)
    with admin, pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("t", 1, 1)])
    assert world.now < 5


def test_a_create_and_a_delete_succeed_although_their_responses_are_lost() -> None:
    world, cluster, admin = make(5, **{"request.timeout.ms": 1000})
    admin.describe_cluster()
    every_broker(cluster, "go_silent")  # requests are handled, their responses dropped
    for i in cluster.brokers:
        world.after(1.5, lambda i=i: cluster.repair(i))  # type: ignore[misc]
    assert set(admin.create_topics([NewTopic("t", 2, 1)], timeout=30)) == {"t"}


def test_calls_time_out_and_list_the_attempts_if_every_broker_is_dead() -> None:
    world, cluster, admin = make(7)
    admin.describe_cluster()
    addresses = {str(b.address) for b in cluster.brokers.values()} | {cluster.bootstrap_servers}
    every_broker(cluster, "crash")
    for call in (
        lambda: admin.create_topics([NewTopic("t")], timeout=2),
        lambda: admin.delete_topics(["t"], timeout=2),
        lambda: admin.list_topics(timeout=2),
        lambda: admin.describe_topics(["t"], timeout=2),
        lambda: admin.describe_cluster(timeout=2),
    ):
        begin = world.now
        with pytest.raises(NoBrokerAvailableError) as caught:
            call()
        assert 1.999 <= world.now - begin <= 2.1
        found = {str(a.address) for a in caught.value.attempts}
    assert addresses <= found
    assert not world.hot_loops


@pytest.mark.parametrize("recycled", [False, True])
def test_no_topic_is_created_in_a_wrong_cluster(recycled: bool) -> None:
    _, cluster, admin = make(9)
    admin.describe_cluster()
    foreign = cluster.replace_with_foreign(after=0.2, recycle_addresses=recycled)
    with pytest.raises((ClusterIdMismatchError, KafkaTimeoutError)):
        admin.describe_cluster(timeout=20)
    with pytest.raises(ClusterIdMismatchError):
        admin.create_topics([NewTopic("t", 1, 1)], timeout=20)
    assert "t" not in foreign.topics


def test_a_silent_bootstrap_connection_is_replaced_by_a_new_one() -> None:
    """Route the bootstrap address to a dead broker first, then to a live one (load balancer)."""
    world, cluster, admin = make(10)
    cluster.answer_empty_brokers()
    with pytest.raises(NoBrokerAvailableError):
        admin.describe_cluster(timeout=1.0)
    (broken,) = [b for b in cluster.brokers.values() if b.sessions]
    cluster.blackhole(broken.id)
    cluster.answer_empty_brokers(False)
    world.advance(cluster.session_timeout)
    broken.alive = False  # the bootstrap address leads elsewhere without notice to the client
    begin = world.now
    assert broken.id not in {b.id for b in admin.describe_cluster(timeout=20).brokers}
    assert world.now - begin < 4.0


def test_the_error_of_a_call_that_names_no_resources_has_no_errors_per_resource() -> None:
    _, cluster, admin = make(12)
    for broker in cluster.brokers.values():
        broker.injections.append(Injection("DescribeCluster", 31, 9))
    with pytest.raises(ClusterAuthorizationError) as refused:
        admin.describe_cluster()
    assert (dict(refused.value.errors), dict(refused.value.results)) == ({}, {})
    with pytest.raises(UnknownTopicOrPartitionError) as absent:
        admin.describe_topics(["none"])
    assert list(absent.value.errors) == ["none"]


def test_an_error_response_without_topics_is_not_an_empty_list() -> None:
    """Brokers that refuse a request for all topics send a response without brokers and topics."""
    _, cluster, admin = make(11)
    cluster.create_topic("t", 1)
    assert admin.list_topics() == ["t"]
    cluster.answer_empty_brokers()
    with pytest.raises(KafkaTimeoutError, match="the response contains no brokers"):
        admin.list_topics(2.0)
    with pytest.raises(KafkaTimeoutError, match="the response contains no brokers"):
        admin.describe_topics(["t"], 2.0)
    cluster.answer_empty_brokers(False)
    assert admin.list_topics() == ["t"]


def test_a_second_connection_is_tried_if_the_bootstrap_address_leads_to_a_paused_broker() -> None:
    """A paused broker never responds; the next connection may reach another broker."""
    times = []
    for seed in range(20):
        world, cluster, admin = make(seed)
        cluster.pause(1)
        begin = world.now
        assert {2, 3} <= {b.id for b in admin.describe_cluster(timeout=15).brokers}
        times.append(world.now - begin)
    assert max(times) < 9.0  # at most three connections in a row reach the paused broker
    assert (
        0 < sum(time > 3.0 for time in times) < 5
    )  # fewer than 5 of 20 runs need a third connection


@pytest.mark.parametrize("code", [7, 13])
def test_validate_only_fails_for_an_existing_topic_after_a_lost_response(code: int) -> None:
    """Without validate_only, a topic that exists after a lost response may be the call's own."""
    _, cluster, admin = make(4)
    with admin:
        cluster.create_topic("t", partitions=1)
        for broker in cluster.brokers.values():
            broker.injections.append(Injection("CreateTopics", code, 1))
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic("t", 1, 1)], validate_only=True)
