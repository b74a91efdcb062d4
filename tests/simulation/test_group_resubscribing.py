"""Members that subscribe again, rejoin in time, skip transaction markers, or lose their brokers."""

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
    """Return settings with the cooperative-sticky assignor, which keeps partitions."""
    return {"partition_assignment_strategy": "cooperative-sticky"} if protocol == "classic" else {}


@PROTOCOLS
def test_a_second_subscription_replaces_one_that_has_had_no_effect_yet(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(40))
    scene.cluster.create_topic("u", partitions=1)
    with scene.member("a") as a:
        a.subscribe(["u"])
        a.subscribe(["t"], **scene.callbacks("a"))
        assert scene.read(a, 40) == list(range(40))


@PROTOCOLS
@pytest.mark.parametrize("closes", [False, True])
def test_a_member_that_leaves_during_its_first_join_does_not_delay_other_members(
    protocol: str, closes: bool
) -> None:
    """A coordinator waits for members that have an id (KIP-394) until their session ends."""
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
def test_an_abandoned_join_is_not_sent_after_brokers_return(instance: str | None) -> None:
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
def test_a_topic_subscribed_again_before_its_revocation_is_read_on(protocol: str) -> None:
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
def test_a_poll_that_only_reads_aborted_records_does_not_delay_a_rebalance(protocol: str) -> None:
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
    a.poll(30.0)  # one call that reads only aborted records
    b.poll(5.0)
    assert len(a.assignment()) == len(b.assignment()) == 2
    b.close()
    a.close()
    assert scene.committed() == [6, 6, 6, 6]  # includes transaction markers


def test_topics_of_a_pattern_are_found_soon_after_an_outage() -> None:
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


def test_a_group_leader_does_not_spin_if_a_topic_is_deleted_before_an_outage() -> None:
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


def test_a_member_that_exceeded_max_poll_interval_gets_no_records_without_a_coordinator() -> None:
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
def test_leaving_cancels_the_actions_that_a_response_would_have_begun(answer: str) -> None:
    """unsubscribe() and the response are handled in the same step of the engine."""
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
def test_an_equal_subscription_only_replaces_the_callbacks(
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
    for _ in range(50):  # some programs subscribe in each iteration of a loop
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
def test_a_subscription_removes_the_state_of_earlier_subscriptions(protocol: str) -> None:
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
def test_a_static_member_that_returns_with_other_topics_reads_them(
    protocol: str, others: int
) -> None:
    """KIP-345: the coordinator has kept the membership with the former assignment."""
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
def test_a_member_whose_first_join_is_answered_late_does_not_delay_other_members(
    how: str, late: float
) -> None:
    """Earlier, joins timed out after 1 s, and other members waited until the session ended."""
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
def test_assign_inside_a_callback_of_unsubscribe_is_refused(protocol: str) -> None:
    """The error names this callback; no rebalance was interrupted."""
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
