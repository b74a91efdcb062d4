"""Static members of classic groups: no partition is left without an owner (R-IN-6, KIP-345)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, Scene
from tests.volume import pairs

from odradek.api.consumer import Consumer
from odradek.common.errors.kafka import TopicAuthorizationError, UnknownServerError
from odradek.common.types import TopicPartition
from odradek.protocol.messages.metadata import MetadataResponseTopic
from odradek.simulation.brokers import broker_handlers
from odradek.simulation.brokers.broker_faults import answer_error, slow_api
from odradek.simulation.logs.topics import SimulatedTopic

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
BOTH = [*PARTITIONS, TopicPartition("u", 0), TopicPartition("u", 1)]
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
RETURNS = pytest.mark.parametrize(("strategy", "leads"), pairs(STRATEGIES, [True, False]))
QUIET: dict[str, Any] = {"fetch_max_wait_ms": 20_000}
"""Settings of members that wait long for records: few fetches."""


def owners(members: list[Consumer]) -> dict[TopicPartition, int]:
    owned = [p for m in members for p in m.assignment()]
    return {p: owned.count(p) for p in sorted(set(owned))}


def settle(scene: Scene, members: list[Consumer], wanted: list[TopicPartition]) -> float:
    """Poll until each partition has one owner and each member a partition; return the seconds."""
    started, each_once = scene.world.now, dict.fromkeys(wanted, 1)
    while owners(members) != each_once or not all(m.assignment() for m in members):
        assert scene.world.now < started + 15.0, owners(members)
        for member in members:
            member.poll(0.1)
    return scene.world.now - started


def busy_beside_a_join(scene: Scene, **config: Any) -> tuple[Consumer, Consumer]:
    """Let a static member with partitions to revoke process a batch while another member joins."""
    given = {**COOPERATIVE, "max.poll.interval.ms": 10_000, **config}
    a = scene.subscribed("a", group_instance_id="a", **given)
    scene.read(a, 40)
    b = scene.subscribed("b", **given)
    return a, b


def test_every_partition_has_an_owner_after_processing_exceeds_max_poll_interval() -> None:
    scene = Scene()
    scene.write(range(40))
    a, b = busy_beside_a_join(scene)
    until = scene.world.now + 15.0
    while scene.world.now < until:
        b.poll(0.5)
    settle(scene, [a, b], PARTITIONS)


@pytest.mark.parametrize("orderly", [True, False])
def test_every_partition_has_an_owner_after_a_restart_during_processing(orderly: bool) -> None:
    scene = Scene()
    scene.write(range(40))
    a, b = busy_beside_a_join(scene)
    until = scene.world.now + 3.0
    while scene.world.now < until:
        b.poll(0.5)
    if orderly:
        a.close()
    else:
        scene.world.hosts["a"].freeze()  # like a dead process
    again = scene.subscribed("c", group_instance_id="a", **COOPERATIVE)
    settle(scene, [again, b], PARTITIONS)


@pytest.mark.parametrize("fault", ["late", "refused"])
def test_every_partition_has_an_owner_despite_a_late_group_description(fault: str) -> None:
    scene = Scene()
    a = scene.subscribed("a", group_instance_id="a")
    settle(scene, [a], PARTITIONS)
    a.close()
    scene.cluster.add_partitions("t", 2)
    again = scene.member("c", group_instance_id="a")
    if fault == "late":
        slow_api(scene.cluster, "DescribeGroups", 25.0)
    else:
        answer_error(scene.cluster, "DescribeGroups", UnknownServerError.code, 12)
    again.subscribe(["t"])
    until = scene.world.now + (26.0 if fault == "late" else 15.0)
    while scene.world.now < until:
        again.poll(0.5)
    scene.cluster.heal()
    settle(scene, [again], [TopicPartition("t", p) for p in range(6)])


@pytest.mark.parametrize("fault", ["late", "refused"])
def test_a_leader_whose_group_cannot_be_described_assigns_added_partitions(fault: str) -> None:
    """The static leader is told to keep the assignment, so only a rebalance assigns them."""
    scene = Scene()
    a = scene.subscribed("a", group_instance_id="a")
    settle(scene, [a], PARTITIONS)
    a.close()
    scene.cluster.add_partitions("t", 2)
    again = scene.member("c", group_instance_id="a", **QUIET)
    if fault == "late":
        slow_api(scene.cluster, "DescribeGroups", 70.0)
    else:
        answer_error(scene.cluster, "DescribeGroups", UnknownServerError.code, 1000)
    again.subscribe(["t"])
    until = scene.world.now + 100.0
    while scene.world.now < until:
        again.poll(2.0)
    assert len(again.assignment()) == 6


@pytest.mark.parametrize("fault", ["late", "refused"])
def test_a_failed_describe_groups_request_is_rarely_repeated(fault: str) -> None:
    """Late responses delay the heartbeats, which use the same connection."""
    scene = Scene()
    a = scene.subscribed("a", group_instance_id="a")
    settle(scene, [a], PARTITIONS)
    a.close()
    again = scene.member("c", group_instance_id="a", **QUIET)
    looks: list[str] = []
    scene.cluster.observers.append(
        lambda _, client, request: looks.append(request.body.API_NAME if request.body else "")
    )
    if fault == "late":
        slow_api(scene.cluster, "DescribeGroups", 70.0)
    else:
        answer_error(scene.cluster, "DescribeGroups", UnknownServerError.code, 1000)
    again.subscribe(["t"])
    until = scene.world.now + 600.0
    while scene.world.now < until:
        again.poll(2.0)
    assert 0 < looks.count("DescribeGroups") <= {"late": 2, "refused": 16}[fault]


@RETURNS
def test_a_static_member_that_returns_with_more_topics_gets_their_partitions(
    strategy: str, leads: bool
) -> None:
    scene = Scene()
    scene.cluster.create_topic("u", 2)
    given = {"partition.assignment.strategy": strategy}
    names = ["a", "b"] if leads else ["b", "a"]
    made = {}
    for name in names:
        made[name] = scene.subscribed(name, group_instance_id=name, **given)
        settle(scene, list(made.values()), PARTITIONS)
    made["a"].close()
    again = scene.member("c", group_instance_id="a", **given)
    again.subscribe(["t", "u"])
    settle(scene, [again, made["b"]], BOTH)


@RETURNS
def test_a_static_member_that_returns_with_fewer_topics_revokes_the_others(
    strategy: str, leads: bool
) -> None:
    scene = Scene()
    scene.cluster.create_topic("u", 2)
    given = {"partition.assignment.strategy": strategy}
    a = scene.member("a", group_instance_id="a", **given)
    b = scene.member("b", group_instance_id="b", **given)
    members = [a, b] if leads else [b, a]
    for n, member in enumerate(members):
        member.subscribe(["t", "u"])
        settle(scene, members[: n + 1], BOTH)
    a.close()
    again = scene.subscribed("c", group_instance_id="a", **given)
    settle(scene, [again, b], BOTH)
    assert {p.topic for p in again.assignment()} <= {"t"}


@RETURNS
def test_a_static_member_returns_with_a_pattern_that_matches_a_new_topic(
    strategy: str, leads: bool
) -> None:
    scene = Scene()
    given = {"partition.assignment.strategy": strategy}
    made = {}
    for name in ["a", "b"] if leads else ["b", "a"]:
        made[name] = scene.member(name, group_instance_id=name, **given)
        if name == "a":
            made[name].subscribe(pattern="t|u")
        else:
            made[name].subscribe(["t"])
        settle(scene, list(made.values()), PARTITIONS)
    made["a"].close()
    scene.cluster.create_topic("u", 2)
    again = scene.member("c", group_instance_id="a", **given)
    again.subscribe(pattern="t|u")
    settle(scene, [again, made["b"]], BOTH)


@RETURNS
def test_a_static_member_that_returns_gets_a_topic_that_is_created_later(
    strategy: str, leads: bool
) -> None:
    """The member's return causes no rebalance, so no leader of the group knows the new topic."""
    scene = Scene()
    given = {"partition.assignment.strategy": strategy}
    made = {}
    for name in ["a", "b"] if leads else ["b", "a"]:
        made[name] = scene.subscribed(name, group_instance_id=name, **given)
        settle(scene, list(made.values()), PARTITIONS)
    made["a"].close()
    again = scene.member("c", group_instance_id="a", **given)
    again.subscribe(["t", "u"])
    settle(scene, [again, made["b"]], PARTITIONS)
    until = scene.world.now + 30.0
    while scene.world.now < until:
        again.poll(1.0)
        made["b"].poll(1.0)
    scene.cluster.create_topic("u", 2)
    settle(scene, [again, made["b"]], BOTH)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partitions_added_while_a_static_leader_was_away_are_assigned(
    strategy: str,
) -> None:
    scene = Scene()
    given = {"partition.assignment.strategy": strategy, "group_instance_id": "a"}
    a = scene.subscribed("a", **given)
    settle(scene, [a], PARTITIONS)
    a.close()
    scene.cluster.add_partitions("t", 2)
    again = scene.subscribed("c", **given)
    settle(scene, [again], [TopicPartition("t", p) for p in range(6)])


def test_the_restart_of_a_static_leader_does_not_rebalance_the_group() -> None:
    scene = Scene()
    scene.cluster.create_topic("u", 2)
    a = scene.subscribed("a", group_instance_id="a")
    settle(scene, [a], PARTITIONS)
    b = scene.member("b", group_instance_id="b")
    b.subscribe(["t", "u"])
    settle(scene, [a, b], BOTH)
    generation = b.group_metadata().generation_id
    a.close()
    again = scene.subscribed("c", group_instance_id="a")
    settle(scene, [again, b], BOTH)
    until = scene.world.now + 20.0
    while scene.world.now < until:
        again.poll(0.2)
        b.poll(0.2)
    assert b.group_metadata().generation_id == generation


def test_a_static_leader_that_returned_notices_added_partitions_of_other_members_topics() -> None:
    scene = Scene()
    scene.cluster.create_topic("u", 2)
    a = scene.subscribed("a", group_instance_id="a")
    settle(scene, [a], PARTITIONS)
    b = scene.member("b", group_instance_id="b")
    b.subscribe(["t", "u"])
    settle(scene, [a, b], BOTH)
    a.close()
    again = scene.subscribed("c", group_instance_id="a", metadata_max_age_ms=2000)
    settle(scene, [again, b], BOTH)
    scene.cluster.add_partitions("u", 1)
    settle(scene, [again, b], [*BOTH, TopicPartition("u", 2)])


def test_a_leader_that_may_not_describe_another_members_topic_logs_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen, denied = broker_handlers._topic_metadata, True

    def describe(broker: Any, topic: SimulatedTopic) -> MetadataResponseTopic:
        if denied and topic.name == "u":
            return MetadataResponseTopic(TopicAuthorizationError.code or 0, topic.name)
        return seen(broker, topic)

    monkeypatch.setattr(broker_handlers, "_topic_metadata", describe)
    scene = Scene()
    scene.cluster.create_topic("u", 1)
    a = scene.subscribed("a")
    settle(scene, [a], PARTITIONS)
    b = scene.member("b")
    b.subscribe(["t", "u"])
    with pytest.raises(TopicAuthorizationError):  # the subscriber gets its own error
        for _ in range(100):
            b.poll(0.1)
            a.poll(0.1)
    for _ in range(100):
        b.poll(0.1)
        a.poll(0.1)
    settle(scene, [a, b], PARTITIONS)
    assert b.assignment()
    (told,) = [r.getMessage() for r in caplog.records if "lacks DESCRIBE" in r.getMessage()]
    assert "'u'" in told
    assert " --operation read --topic u --bootstrap-server " in told
    denied = False
    settle(scene, [a, b], [*PARTITIONS, TopicPartition("u", 0)])
