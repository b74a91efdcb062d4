"""Group membership of a consumer in both protocols: callbacks, topics, close; in virtual time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene

from odradek.api.consumer import Consumer
from odradek.clients.consumer.group.topic_watch import with_flags
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import (
    CommitFailedError,
    ConfigurationError,
    IllegalStateError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import (
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    UnreleasedInstanceIdError,
)
from odradek.common.types import TopicPartition

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@PROTOCOLS
def test_a_single_member_reads_all_records_and_commits_at_close(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    started = scene.world.now
    with scene.subscribed() as a:
        assert a.subscription() == {"t"}
        assert scene.read(a, 40) == list(range(40))
        assert scene.world.now - started < 1.5
        who = a.group_metadata()
        assert (who.group_id, who.group_instance_id) == ("g", None)
        assert who.generation_id > 0
        assert who.member_id
        assert sorted(a.assignment()) == PARTITIONS
    assert scene.log == ["a assigned 0 1 2 3", "a revoked 0 1 2 3"]
    assert scene.committed() == [10, 10, 10, 10]
    scene.write(range(40, 44))
    with scene.subscribed("b") as b:
        assert scene.read(b, 4) == list(range(40, 44))


@PROTOCOLS
def test_offsets_of_revoked_partitions_are_committed_and_kept_partitions_are_read_on(
    protocol: str,
) -> None:
    scene = Scene(protocol)
    config = COOPERATIVE if protocol == "classic" else {}
    scene.write(range(400))
    a = scene.subscribed("a", **config)
    b: Consumer | None = None
    got: dict[int, list[int]] = {p: [] for p in range(4)}
    end = scene.world.now + 60
    while (b is None or len(b.assignment()) < 2) and scene.world.now < end:
        for r in a.poll(0.05, 7):
            got[r.partition].append(r.offset)
        if b is None and len(a.assignment()) == 4:
            b = scene.subscribed("b", **config)
        elif b is not None:
            assert b.poll(0.05, 1) == [] or b.assignment()
    assert b is not None
    assert len(a.assignment()) == len(b.assignment()) == 2
    # No record is lost or duplicated in kept or moved partitions.
    for offsets in got.values():
        assert offsets == list(range(len(offsets)))
    for tp in b.assignment():
        assert b.committed([tp])[tp] == OffsetAndMetadata(len(got[tp.partition]), "", 0)
    revoked = next(line for line in scene.log if line.startswith("a revoked"))
    assert sorted(int(n) for n in revoked.split()[2:]) == [p.partition for p in b.assignment()]
    assert "a lost" not in " ".join(scene.log)


@PROTOCOLS
def test_rebalance_callbacks_may_call_the_consumer(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    seen: list[Any] = []

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seen.append([consumer.position(p) for p in sorted(partitions)])
        for p in partitions:
            consumer.seek(p, 8)
        consumer.pause(PARTITIONS[:1])
        seen.append(consumer.committed(PARTITIONS[:1]))
        seen.append(sorted(consumer.assignment()))
        with pytest.raises(IllegalStateError, match=r"poll\(\) can't be called inside on_assigned"):
            consumer.poll(0)
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.unsubscribe()

    def on_revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seen.append(consumer.commit({PARTITIONS[3]: OffsetAndMetadata(9, "mine")}))

    a = scene.member(enable_auto_commit=False)
    a.subscribe(["t"], on_assigned=on_assigned, on_revoked=on_revoked)
    assert scene.read(a, 6) == [n for n in range(32, 40) if n % 4]
    a.close()
    assert seen == [
        [0, 0, 0, 0],
        {PARTITIONS[0]: None},
        PARTITIONS,
        {PARTITIONS[3]: OffsetAndMetadata(9, "mine")},
    ]
    assert scene.committed() == [None, None, None, 9]


@PROTOCOLS
def test_poll_raises_an_exception_of_a_callback_and_the_member_continues(
    protocol: str,
) -> None:
    scene = Scene(protocol)
    scene.write(range(40))

    def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError("mine")

    a = scene.member()
    a.subscribe(["t"], on_assigned=on_assigned)
    with pytest.raises(ZeroDivisionError, match="mine"):
        scene.read(a, 40)
    assert scene.read(a, 40) == list(range(40))


def test_subscribe_accepts_a_listener_object_like_kafka_pythons() -> None:
    scene = Scene()
    scene.write(range(4))

    class Listener:
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            scene.log.append(f"assigned {len(assigned)}")

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            scene.log.append(f"revoked {len(revoked)}")

    a = scene.member()
    with pytest.raises(IllegalStateError, match="a listener or callbacks"):
        a.subscribe(["t"], listener=Listener(), on_lost=lambda _, __: None)
    a.subscribe("t", listener=Listener())
    scene.read(a, 4)
    a.close()
    assert scene.log == ["assigned 4", "revoked 4"]


@PROTOCOLS
def test_partitions_lost_during_on_revoked_are_not_reported_again(
    protocol: str,
) -> None:
    scene = Scene(protocol)
    scene.write(range(40))

    def slow(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        scene.log.append(f"a revoked {len(partitions)}")
        scene.world.advance(20)

    a = scene.member("a", max_poll_interval_ms=10_000)
    told = {**scene.callbacks("a"), "on_revoked": slow}
    a.subscribe(["t"], **told)
    scene.read(a, 40)
    b = scene.subscribed("b")
    end = scene.world.now + 60
    while len(b.assignment()) < 4 and scene.world.now < end:
        b.poll(0.1)
        if not any("revoked" in line for line in scene.log):
            a.poll(0.1)
    gone = next(int(line.split()[-1]) for line in scene.log if line.startswith("a revoked"))
    a.poll(0.1)
    lost = [line for line in scene.log if line.startswith("a lost")]
    assert sum(len(line.split()) - 2 for line in lost) == 4 - gone


@PROTOCOLS
def test_a_loop_revokes_partitions_between_two_records(protocol: str) -> None:
    scene = Scene(protocol)
    config = COOPERATIVE if protocol == "classic" else {}
    scene.write(range(400))
    a, b = scene.subscribed("a", **config), scene.subscribed("b", **config)
    found: list[tuple[int, int]] = []
    revoked_after: list[int] = []
    loop = a.records(timeout=5.0)
    for record in loop:
        found.append((record.partition, record.offset))
        if "a revoked" in " ".join(scene.log):
            revoked_after.append(record.partition)
        found += [(r.partition, r.offset) for r in b.poll(0.05, 3)]
    revoked = next(line for line in scene.log if line.startswith("a revoked"))
    assert not {str(p) for p in revoked_after} & set(revoked.split()[2:])
    while len(found) < 400:
        found += [(r.partition, r.offset) for r in b.poll(1.0)]
    assert sorted(found) == [(p, o) for p in range(4) for o in range(100)]


@PROTOCOLS
def test_a_pattern_finds_topics_that_are_created_later(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("orders-eu", partitions=2)
    a = scene.member(metadata_max_age_ms=5000)
    a.subscribe(pattern="orders-.*", **scene.callbacks("a"))
    a.poll(3.0)
    if protocol == "classic":
        assert a.subscription() == {"orders-eu"}
    scene.cluster.create_topic("orders-us", partitions=1)
    scene.cluster.create_topic("my-orders-us", partitions=1)
    a.poll(15.0)
    assert {tp.topic for tp in a.assignment()} == {"orders-eu", "orders-us"}


def test_flags_of_a_pattern_are_sent_to_the_broker_or_refused() -> None:
    assert with_flags("a.*") == "a.*"
    assert with_flags(re.compile("a.*", re.ASCII)) == "a.*"
    assert with_flags(re.compile("a.*", re.IGNORECASE | re.DOTALL)) == "(?is)a.*"
    scene = Scene("consumer")
    scene.cluster.create_topic("ORDERS", 1)
    a = scene.member()
    with pytest.raises(ConfigurationError, match="no flag VERBOSE"):
        a.subscribe(pattern=re.compile("orders # all", re.VERBOSE))
    a.subscribe(pattern=re.compile("orders", re.IGNORECASE))
    a.poll(3.0)
    assert {p.topic for p in a.assignment()} == {"ORDERS"}
    a.close()


@pytest.mark.parametrize("internal", [False, True])
@PROTOCOLS
def test_a_pattern_excludes_internal_topics(protocol: str, internal: bool) -> None:
    """Brokers that evaluate a pattern (KIP-848) include their internal topics."""
    scene = Scene(protocol)
    scene.write(range(4))
    with scene.subscribed() as first:
        scene.read(first, 4)  # __consumer_offsets exists now
    a = scene.member(exclude_internal_topics=not internal)
    a.subscribe(pattern=re.compile(r"T|__.*", re.IGNORECASE))
    a.poll(3.0)
    a.poll(3.0)
    expected = {"t", "__consumer_offsets"} if internal else {"t"}
    assert {partition.topic for partition in a.assignment()} == expected
    if protocol == "classic":
        assert a.subscription() == expected
    a.close()


@PROTOCOLS
def test_an_internal_topic_can_be_subscribed_by_its_name(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(4))
    with scene.subscribed() as first:
        scene.read(first, 4)
    a = scene.member()
    a.subscribe(["__consumer_offsets"])
    a.poll(3.0)
    assert {partition.topic for partition in a.assignment()} == {"__consumer_offsets"}
    a.close()


@PROTOCOLS
def test_a_subscribed_topic_is_read_soon_after_it_is_created(protocol: str) -> None:
    scene = Scene(protocol)
    a = scene.member()
    a.subscribe(["later", "t"])
    a.poll(2.0)
    assert sorted(a.assignment()) == PARTITIONS
    scene.cluster.create_topic("later", partitions=4)
    scene.write(range(4), "later")
    assert scene.read(a, 4) == list(range(4))


@PROTOCOLS
def test_a_second_subscription_replaces_the_first(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("u", partitions=1)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 20, most=20)
    a.subscribe(["u"], **scene.callbacks("a2"))
    assert a.poll(10.0) == []
    assert a.assignment() == [TopicPartition("u", 0)]
    assert scene.log == ["a assigned 0 1 2 3", "a2 revoked 0 1 2 3", "a2 assigned 0"]
    assert list(a._engine.metadata.topics) == ["u"]
    assert sum(o or 0 for o in scene.committed()) == 20


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs topics or a pattern"),
        ({"topics": ["t"], "pattern": "x"}, "not both"),
        ({"pattern": "("}, r"pattern '\('"),
        ({"pattern": ""}, "is empty"),
    ],
)
def test_invalid_subscriptions_are_refused(given: dict[str, Any], says: str) -> None:
    scene = Scene()
    a = scene.member()
    with pytest.raises(ConfigurationError, match=says):
        a.subscribe(**given)
    with pytest.raises(IllegalStateError, match="nothing to read"):
        a.poll(0)


@PROTOCOLS
def test_no_partition_or_record_is_lost_if_the_coordinator_crashes(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed()
    scene.read(a, 40)
    broker = a._engine.group.coordinator.broker  # type: ignore[union-attr]
    assert broker is not None
    scene.cluster.crash(broker)
    scene.write(range(40, 80))
    assert scene.read(a, 40) == list(range(40, 80))
    a.commit(timeout=60)
    assert scene.committed() == [20, 20, 20, 20]
    assert scene.log == ["a assigned 0 1 2 3"]


def test_on_revoked_is_not_called_for_partitions_without_on_assigned() -> None:
    scene = Scene()
    a = scene.subscribed()
    scene.world.advance(3)
    assert sorted(a.assignment()) == PARTITIONS
    a.close()
    assert scene.log == []


@PROTOCOLS
def test_every_poll_of_a_fenced_static_member_raises(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    a = scene.subscribed(group_instance_id="one")
    scene.read(a, 40)
    b = scene.subscribed("b", group_instance_id="one")
    # With KIP-848 the second member first waits for the first one to leave, and then raises.
    scene.world.advance(10 if protocol == "classic" else 70)
    fenced = a if protocol == "classic" else b
    for _ in range(2):
        with pytest.raises((FencedInstanceIdError, UnreleasedInstanceIdError)) as told:
            fenced.poll(5.0)
        assert "group 'g'" in str(told.value)
        assert "different group.instance.id" in str(told.value)
        assert "odradek groups members g --bootstrap-server " in str(told.value)
    found = fenced.health()
    assert not found.ok
    assert "different group.instance.id" in (found.cure or "")
    assert ".." not in fenced.explain().diagnosis
    assert fenced.ended is None  # subscribe() joins the group again
    with pytest.raises(
        CommitFailedError, match=r"poll\(\) raises the same error.*different group.instance.id"
    ) as no:
        fenced.commit({PARTITIONS[0]: 1})
    assert "joins the group again" not in str(no.value)
    fenced.close()
    (b if fenced is a else a).close()


@pytest.mark.parametrize("first", ["another assignor", "group.protocol=consumer"])
def test_the_error_of_a_member_with_the_wrong_protocol_names_the_option(first: str) -> None:
    scene = Scene()
    other = first == "another assignor"
    given = {"partition_assignment_strategy": "range"} if other else {"group_protocol": "consumer"}
    a = scene.subscribed("a", **given)
    while not a.assignment():
        a.poll(0.2)
    b = scene.subscribed("b", partition_assignment_strategy="sticky")
    says = (
        r"use another group\.protocol, or no assignor in partition\.assignment\.strategy.*"
        "odradek groups members g --bootstrap-server "
    )
    with pytest.raises(InconsistentGroupProtocolError, match=says):
        for _ in range(20):
            b.poll(0.2)


@PROTOCOLS
def test_explain_reports_the_state_of_the_membership(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(8))
    a = scene.member()
    picture = a.explain().group
    assert picture is not None
    assert (picture.state, picture.generation, picture.last_poll) == (None, -1, None)
    assert "not a member, only commits offsets" in str(a.explain())
    a.subscribe(["t"], **scene.callbacks("a"))
    scene.world.advance(2)
    assert "a rebalance callback will run in the next poll()" in str(a.explain())
    scene.read(a, 8)
    scene.world.advance(3)
    picture = a.explain().group
    assert picture is not None
    assert picture.member_id == a.group_metadata().member_id
    text = str(picture)
    assert text.startswith(f"group g ({protocol}): stable, generation {picture.generation}, member")
    assert f"4 partitions of t; coordinator: broker {picture.coordinator}; last poll() 3.0" in text
    assert a.explain().to_dict()["group"]["assigned"] == 4


def test_calls_time_out_and_work_again_if_the_background_thread_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.write(range(4))
    a = scene.subscribed()
    with monkeypatch.context() as busy:
        busy.setattr(a._host, "run", lambda completion, deadline: False)
        assert a.poll(0.01) == []
        with pytest.raises(KafkaTimeoutError):
            a.commit({PARTITIONS[0]: 1})
    assert scene.read(a, 4) == list(range(4))


def test_enforce_rebalance_starts_a_new_generation() -> None:
    scene = Scene("classic")
    scene.write(range(40))
    with scene.subscribed(**COOPERATIVE) as a:
        assert scene.read(a, 40) == list(range(40))
        before = a.group_metadata().generation_id
        a.enforce_rebalance("a colleague said so")
        scene.write(range(40, 80))
        assert scene.read(a, 40) == list(range(40, 80))
        end = scene.world.now + 10
        while a.group_metadata().generation_id == before and scene.world.now < end:
            a.poll(0.1)
        assert a.group_metadata().generation_id > before
    assert scene.log == ["a assigned 0 1 2 3", "a assigned", "a revoked 0 1 2 3"]
    with pytest.raises(IllegalStateError, match="call subscribe"):
        scene.member("c").enforce_rebalance()
