"""Sessions of classic groups that end, or may have ended (R-RB-9)."""

from __future__ import annotations

import pytest
from tests.simulation.group_scene import PARTITIONS, PROTOCOLS, Scene
from tests.simulation.produce_script import every_broker

from odradek.clients.consumer.group.membership import MemberState
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.injected_errors import Injection
from odradek.simulation.world.environment import ReceivedRequest


def test_no_record_is_duplicated_by_an_outage_longer_than_the_session() -> None:
    """Java returns buffered records; Odradek returns none until the coordinator has responded."""
    scene = Scene()
    scene.write(range(40))
    a = scene.subscribed("a", session_timeout_ms=10_000, heartbeat_interval_ms=1000)
    assert len(scene.read(a, 20, most=20)) == 20
    for broker in (1, 2, 3):
        scene.cluster.pause(broker)
    a.poll(0.1, 1)  # buffered records are returned while the session can't have ended
    end = scene.world.now + 12.0
    while not a._engine.subscription.suspended and scene.world.now < end:
        a.poll(0.5, 1)
    assert a.poll(5.0) == []
    assert "poll() returns no records until one is" in str(a.explain())
    for broker in (1, 2, 3):
        scene.cluster.repair(broker)
    positions = {p: a.position(p) for p in PARTITIONS}
    left = 40 - sum(positions.values())
    scene.write(range(40, 44))
    assert len(scene.read(a, left + 4)) == left + 4
    assert [a.position(p) for p in PARTITIONS] == [11, 11, 11, 11]
    assert scene.log == ["a assigned 0 1 2 3"]


def test_a_session_starts_when_a_heartbeat_is_sent() -> None:
    """The coordinator restarts the session at the request, long before the response may arrive."""
    scene = Scene()
    scene.write(range(4))
    a = scene.subscribed("a", session_timeout_ms=10_000, heartbeat_interval_ms=3000)
    scene.read(a, 4)
    asked: list[float] = []
    ends: list[float] = []
    a._engine.events.listen(
        lambda e: ends.append(e.at) if e.fields.get("event") == "session_expired" else None
    )

    def note(broker: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
        if request.api_key == HeartbeatRequest.API_KEY:
            asked.append(scene.world.now)

    for broker in scene.cluster.brokers.values():
        broker.delays[HeartbeatRequest.API_KEY] = 6.0
    scene.cluster.observers.append(note)
    while not asked:
        a.poll(0.1)
    a.poll(asked[0] + 6.1 - scene.world.now)
    every_broker(scene.cluster, "blackhole")
    while not ends and scene.world.now < asked[0] + 20.0:
        a.poll(0.1)
    assert ends == [pytest.approx(asked[0] + 10.0, abs=0.1)]


def test_a_member_that_waits_for_a_dead_member_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(range(4))
    scene.read(scene.subscribed("a"), 4)
    scene.world.hosts["a"].freeze()  # like a killed process
    b = scene.subscribed("b")
    assert b.poll(60.0)  # the wait is logged meanwhile
    assert 30.0 < scene.world.now < 60.0, "session.timeout.ms is 45 s"
    told = [r.getMessage() for r in caplog.records if "has assigned this" in r.getMessage()]
    assert len(told) == 1
    assert "for 5 s (preparing rebalance)" in told[0]
    assert "session.timeout.ms, here 45 s" in told[0]
    over = [
        r.getMessage() for r in caplog.records if "all members have joined after" in r.getMessage()
    ]
    assert len(over) == 1
    assert "after 45 s" in over[0]


def test_a_response_to_an_earlier_heartbeat_does_not_confirm_a_revocation() -> None:
    """The coordinator and the next owner wait for the confirmation of the revocation."""
    scene = Scene("consumer")
    a = scene.subscribed("a")
    b = scene.subscribed("b")
    while len(a.assignment()) < 4:
        a.poll(0.1)
    asked: list[str] = []

    def state() -> MemberState:
        group = a._engine.group
        assert group is not None
        assert group.membership is not None
        return group.membership.state

    def note(broker: SimulatedBroker, client: str, request: ReceivedRequest) -> None:
        if request.api_key == ConsumerGroupHeartbeatRequest.API_KEY:
            asked.append(client)

    end = scene.world.now + 30.0
    while state() is not MemberState.RECONCILING:  # `a` isn't polled meanwhile
        b.poll(0.1)
        assert scene.world.now < end
    for broker in scene.cluster.brokers.values():
        broker.delays[ConsumerGroupHeartbeatRequest.API_KEY] = 3.0
    scene.cluster.observers.append(note)
    while "a" not in asked:
        b.poll(0.1)
    while len(a.assignment()) > 2:  # the heartbeat in flight doesn't confirm the revocation
        a.poll(0.1)
    end = scene.world.now + 15.0
    while len(b.assignment()) < 2:
        a.poll(0.1)
        b.poll(0.1)
        assert scene.world.now < end


@PROTOCOLS
def test_explain_reports_since_when_a_group_has_no_assignment(protocol: str) -> None:
    scene = Scene(protocol)
    scene.write(range(4))
    with scene.subscribed() as a:
        scene.read(a, 4)
        found = a.explain()
        assert found.group is not None
        assert found.group.unsettled_for is None
        assert found.diagnosis.endswith("connections are opened when they are needed.")
    api = "ConsumerGroupHeartbeat" if protocol == "consumer" else "JoinGroup"
    for broker in scene.cluster.brokers.values():
        broker.injections.append(Injection(api, 15, 1000))  # error COORDINATOR_NOT_AVAILABLE
    with scene.subscribed("b") as b:
        assert b.poll(20) == []
        picture = b.explain()
        assert "But the group has assigned it no partitions for " in picture.diagnosis
        assert picture.group is not None
        assert picture.group.unsettled_for == pytest.approx(20, abs=1)
        assert f"(not stable for {picture.group.unsettled_for:.1f} s)" in str(picture.group)
        for broker in scene.cluster.brokers.values():
            broker.injections.clear()


@PROTOCOLS
def test_explain_names_subscribed_topics_that_do_not_exist(protocol: str) -> None:
    scene = Scene(protocol)
    with scene.member() as a:
        a.subscribe(["tt"])
        assert a.poll(10) == []
        picture = a.explain()
        assert picture.group is not None
        assert picture.group.missing == ("tt",)
        assert picture.diagnosis.endswith("did you mean t?).")
        assert "topics not found: tt" in str(picture.group)
        a.subscribe(["t"])
        picture = a.explain()  # no broker has been asked for the topic yet
        assert picture.group is not None
        assert picture.group.missing == ()
