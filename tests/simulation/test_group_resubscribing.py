"""Members of groups in odd moments: subscribed twice, back in time, behind markers, in outages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.group_scene import PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker

from odradek.common.errors import IllegalStateError
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.simulation.brokers.broker_faults import slow_api
from odradek.simulation.world.environment import ReceivedRequest


def sticky(protocol: str) -> dict[str, Any]:
    """So that what stays is kept."""
    return {"partition_assignment_strategy": "cooperative-sticky"} if protocol == "classic" else {}


@PROTOCOLS
def test_a_second_subscription_before_the_first_has_led_to_anything(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    scene.cluster.create_topic("u", partitions=1)
    with scene.member("a") as a:
        a.subscribe(["u"])
        a.subscribe(["t"], **scene.callbacks("a"))
        assert scene.read(a, 40) == list(range(40))


@PROTOCOLS
@pytest.mark.parametrize("closes", [False, True])
def test_who_leaves_before_it_knows_its_id_holds_up_nobody(protocol: str, closes: bool) -> None:
    """A coordinator waits for members that have their ids and nothing else (KIP-394), as Kafka's
    does: for the time of a session.
    """
    scene = Scene(protocol)
    scene.write(range(40))
    asked = False

    def note(broker: object, client: str, request: ReceivedRequest) -> None:
        nonlocal asked
        asked = asked or isinstance(request.body, JoinGroupRequest | ConsumerGroupHeartbeatRequest)

    scene.cluster.observers.append(note)
    a = scene.subscribed("a")
    while not asked:
        a.poll(0.0)
        scene.world.advance(0.0005)
    begun = scene.world.now
    a.close() if closes else a.unsubscribe()
    with scene.member("b") if closes else a as again:
        again.subscribe(["t"], **scene.callbacks("b"))
        assert scene.read(again, 40) == list(range(40))
        assert scene.world.now - begun < 5


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_join_that_was_given_up_is_not_made_once_brokers_are_back(instance: str | None) -> None:
    scene = Scene("classic")
    asked: list[type[object]] = []
    scene.cluster.observers.append(lambda _, __, request: asked.append(type(request.body)))
    with scene.subscribed("a", group_instance_id=instance) as a:
        while FindCoordinatorRequest not in asked:
            a.poll(0.0)
            scene.world.advance(0.0005)
        every_broker(scene.cluster, "stop")
        a.unsubscribe()
        every_broker(scene.cluster, "restart")
        for _ in range(20):
            a.list_topics(30.0)
            scene.world.advance(1.0)
        assert JoinGroupRequest not in asked


@PROTOCOLS
def test_a_topic_that_is_subscribed_again_before_it_was_given_back(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("x", partitions=1)
    scene.write(range(40))
    with scene.subscribed("a", **sticky(protocol)) as a:
        assert scene.read(a, 40) == list(range(40))
        a.subscribe(["x"], **scene.callbacks("a"))
        a.subscribe(["t", "x"], **scene.callbacks("a"))
        scene.write(range(40, 80))
        assert scene.read(a, 40) == list(range(40, 80))


@PROTOCOLS
def test_who_waits_behind_an_aborted_transaction_holds_up_no_rebalance(protocol: str) -> None:
    scene = Scene(protocol)
    reads = {"isolation_level": "read_committed", **sticky(protocol)}
    a = scene.subscribed("a", **reads)
    with scene.transactional() as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for n in range(8):
                producer.send("t", b"%d" % n, partition=n % 4)
            producer.flush(timeout=30)
            end(timeout=30)
    assert scene.read(a, 8) == list(range(8))
    b = scene.subscribed("b", **reads)
    a.poll(30.0)  # one call, in which nothing comes but the end of what was aborted
    b.poll(5.0)
    assert len(a.assignment()) == len(b.assignment()) == 2
    b.close()
    a.close()
    assert scene.committed() == [6, 6, 6, 6]  # markers, too


def test_a_pattern_is_looked_up_again_soon_after_an_outage() -> None:
    scene = Scene("classic")
    scene.write(range(40))
    every_broker(scene.cluster, "stop")
    with scene.member("a") as a:
        a.subscribe(pattern="t.*")
        scene.world.advance(70)
        every_broker(scene.cluster, "restart")
        begun = scene.world.now
        assert scene.read(a, 40) == list(range(40))
        assert scene.world.now - begun < 20


def test_a_topic_that_went_before_an_outage_leaves_no_leader_turning() -> None:
    scene = Scene("classic")
    scene.cluster.create_topic("u", partitions=1)
    scene.write(range(8))
    often = {"metadata_max_age_ms": 1000, "metadata_recovery_rebootstrap_trigger_ms": 1000}
    a = scene.member("a", **often)
    a.subscribe(["t", "u"])
    scene.read(a, 8)
    scene.cluster.delete_topic("u")
    for _ in range(30):
        a.poll(0.1)
    every_broker(scene.cluster, "stop")
    for _ in range(30):
        a.poll(1.0)
    assert a._engine.ended is None
    assert not scene.world.hot_loops


def test_who_was_overdue_is_given_nothing_before_it_hears_of_it() -> None:
    scene = Scene("consumer")
    scene.write(range(400))
    a = scene.subscribed("a", max_poll_interval_ms=10000, enable_auto_commit=False)
    while not a.poll(1.0, 10):
        pass
    scene.world.advance(9.9)
    coordinator = a._engine.group.coordinator.broker  # type: ignore[union-attr]
    assert coordinator is not None
    scene.cluster.go_silent(coordinator)
    scene.world.advance(0.3)
    assert a.assignment() == []
    assert a.poll(0.2, 10) == []
    assert scene.log[-1].startswith("a lost")


@pytest.mark.parametrize("answer", ["Heartbeat", "SyncGroup"])
def test_leaving_in_the_very_step_of_an_answer(answer: str) -> None:
    """What the answer would have begun doesn't begin any more."""
    scene = Scene("classic")
    scene.write(range(8))
    a = scene.member("a", enable_auto_commit=False)
    a.subscribe(["t"])
    engine, host = a._engine, a._host
    group = engine.group
    assert group is not None
    if answer == "Heartbeat":
        assert scene.read(a, 8) == list(range(8))
        group.membership._identity.member_id = "nobody"  # type: ignore[union-attr]
    left: list[Any] = []
    before = engine.buffer_updated

    def leaving(number: int, count: int) -> None:
        connection = next(c for c in engine.network.connections.values() if c.id == number)
        head = connection.in_flight.head
        if head is not None and answer == head.body.API_NAME and not left:
            left.append(group.leave(host.now() + 5))
        before(number, count)

    engine.buffer_updated = leaving  # type: ignore[assignment]
    with pytest.raises(IllegalStateError, match="nothing to read"):
        for _ in range(10):
            a.poll(1.0)
    assert left
    assert engine.ended is None
    assert a.assignment() == []


@PROTOCOLS
@pytest.mark.parametrize("what", [{"topics": ["t", "u"]}, {"pattern": "t|u"}], ids=str)
def test_the_same_subscription_again_replaces_the_callbacks_alone(
    protocol: str, what: dict[str, Any]
) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("u", partitions=1)
    a, b = scene.member("a"), scene.member("b")
    a.subscribe(**what, **scene.callbacks("old"))
    b.subscribe(**what)
    until = scene.world.now + 30
    while len(a.assignment()) + len(b.assignment()) < 5 or not b.assignment():
        a.poll(0.2), b.poll(0.2)
        assert scene.world.now < until
    for _ in range(10):
        a.poll(0.2), b.poll(0.2)
    generation, held = a.group_metadata().generation_id, len(a._engine.metadata.held_by)
    scene.log.clear()
    for _ in range(50):  # as loops do it that subscribe in each turn
        a.subscribe(**what, **scene.callbacks("new"))
        a.poll(0.2), b.poll(0.2)
    assert scene.log == []
    assert a.group_metadata().generation_id == b.group_metadata().generation_id == generation
    assert len(a._engine.metadata.held_by) == held
    b.close()
    while len(a.assignment()) < 5:
        a.poll(0.2)
    assert scene.log
    assert all(line.startswith("new ") for line in scene.log)


@PROTOCOLS
def test_subscriptions_that_follow_each_other_leave_nothing_of_those_before(protocol: str) -> None:
    scene = Scene(protocol)
    scene.cluster.create_topic("u", partitions=1)
    a = scene.subscribed()
    until = scene.world.now + 30
    while len(a.assignment()) < 4:
        a.poll(0.2)
        assert scene.world.now < until
    waiting = []
    for n in range(30):
        a.subscribe(["t", "u"] if n % 2 else ["t"])
        a.poll(0.5)
        waiting.append(len(a._engine.metadata.changed._waiters))
    assert max(waiting) <= waiting[0] + 1
    held = []
    for _ in range(10):
        a.unsubscribe()
        a.subscribe(["t"])
        while not a.assignment():
            a.poll(0.2)
        held.append(len(a._engine.metadata.held_by))
    assert len(set(held)) == 1


@PROTOCOLS
@pytest.mark.parametrize("others", [0, 1])
def test_a_static_member_that_comes_back_with_other_topics_reads_them(
    protocol: str, others: int
) -> None:
    """KIP-345: its coordinator has kept its place, with what was assigned to it there."""
    scene = Scene(protocol)
    scene.cluster.create_topic("u", partitions=1)
    leader = [scene.subscribed("b", group_instance_id="b") for _ in range(others)]
    for one in leader:
        assert one.poll(5.0) == []
    a = scene.subscribed("a", group_instance_id="a")
    until = scene.world.now + 30
    while len(a.assignment()) != 4 // (1 + others):
        a.poll(0.2)
        [one.poll(0.2) for one in leader]
        assert scene.world.now < until
    for end in (a.unsubscribe, a.close):
        end()
        a = a if end == a.unsubscribe else scene.member("a", group_instance_id="a")
        topic = "u" if end == a.unsubscribe else "t"
        a.subscribe([topic])
        until = scene.world.now + 30
        while {p.topic for p in a.assignment()} != {topic}:
            a.poll(0.2)
            [one.poll(0.2) for one in leader]
            assert scene.world.now < until
    assert len(a.assignment()) == 4 // (1 + others)


@pytest.mark.parametrize(
    ("how", "late"), [("close", 3.0), ("unsubscribe", 3.0), ("unsubscribe", 9.0)]
)
def test_a_member_whose_first_join_is_answered_late_is_not_left_behind(
    how: str, late: float
) -> None:
    """With the old limit of 1 s others waited for it until its session had ended."""
    scene = Scene()
    a = scene.member(session_timeout_ms=45_000)
    slow_api(scene.cluster, "JoinGroup", late)
    a.subscribe(["t"])
    a.poll(1.0)
    getattr(a, how)()
    slow_api(scene.cluster, "JoinGroup", 0.0)
    scene.world.advance(late)
    scene.write(range(4))
    b = scene.member("b", auto_offset_reset="earliest")
    b.subscribe(["t"])
    begun = scene.world.now
    while not b.poll(1.0):
        pass
    assert scene.world.now - begun < 10.0


@PROTOCOLS
def test_assign_inside_a_callback_of_unsubscribe(protocol: str) -> None:
    """The error says which callback it is; nothing was interrupted."""
    scene = Scene(protocol)
    scene.write(range(4))
    texts: list[str] = []

    def revoked(consumer: Any, partitions: list[Any]) -> None:
        with pytest.raises(IllegalStateError) as caught:
            consumer.assign(partitions)
        texts.append(str(caught.value))

    a = scene.member()
    a.subscribe(["t"], on_revoked=revoked)
    scene.read(a, 4)
    held = a.assignment()
    a.unsubscribe()
    (text,) = texts
    assert text.startswith("assign() can't be called inside on_revoked while unsubscribe() leaves")
    a.assign(held)
    a.close()
