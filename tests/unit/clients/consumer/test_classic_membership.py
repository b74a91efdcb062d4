"""A classic membership against a scripted coordinator, and with a scripted application."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any, cast

import pytest
from tests.spec.world import ClusterPicture, World, up

from odradek.clients.consumer.assignors import EAGER, MemberSubscription
from odradek.clients.consumer.classic_membership import ClassicMembership
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.clients.consumer.membership import Group, PollOverdueError
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import FencedInstanceIdError, InconsistentGroupProtocolError
from odradek.common.types import TopicPartition
from odradek.network.effects import Send
from odradek.network.flow import START, Flow, Signal, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.find_coordinator import Coordinator as Found
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

B1 = "b1:9092"
VERSIONS = {10: 6, 11: 9, 12: 4, 13: 5, 14: 5}
SESSION, HEARTBEAT, MAX_POLL = 10.0, 1.0, 30.0
UNKNOWN, ILLEGAL, REBALANCE, FENCED = 25, 22, 27, 82


def parts(*names: str) -> list[TopicPartition]:
    return [TopicPartition(n[0], int(n[1:])) for n in names]


class FakeGroup:
    """The glue, with an application that polls whenever it is asked to, unless `busy`."""

    def __init__(self, world: Script) -> None:
        self.engine = cast("ConsumerEngine", world.engine)
        self.config = self.engine.config
        self.group_id = "g"
        self.instance_id: str | None = self.config["group.instance.id"]
        self.coordinator = Coordinator(self.engine, CoordinatorKind.GROUP, "g")
        self.pattern = None
        self.poll_wanted = Signal()
        self.subscribed = ["t"]
        self.mine: list[TopicPartition] = []
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.error: KafkaError | None = None
        self.busy_since: float | None = None
        self.revoke_takes = 0.0

    @property
    def polled_at(self) -> float:
        return self.engine.now if self.busy_since is None else self.busy_since

    def busy(self, now: float) -> None:
        self.busy_since = now

    def poll(self) -> None:
        self.engine.post(self._poll)

    def _poll(self, _: float) -> None:
        self.busy_since = None
        self.poll_wanted.notify()

    def topics(self) -> list[str]:
        return sorted(self.subscribed)

    def owned(self) -> list[TopicPartition]:
        return sorted(self.mine)

    def _drop(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((what, sorted(partitions)))
        self.mine = [p for p in self.mine if p not in set(partitions)]
        self.engine.subscription.drop(partitions)

    def revoke(self, partitions: Collection[TopicPartition], now: float) -> Flow[float]:
        now = yield START
        until = now + self.revoke_takes
        while now < until or self.busy_since is not None:
            if self.busy_since is not None and now >= self.busy_since + MAX_POLL:
                raise PollOverdueError("busy")
            wake = self.busy_since + MAX_POLL if self.busy_since is not None else until
            now = yield Wait((self.poll_wanted,), max(now + 0.01, min(wake, max(until, now + 0.5))))
        self._drop("revoke", partitions)
        return now

    def lose(self, partitions: Collection[TopicPartition], now: float) -> Flow[float]:
        now = yield START
        self._drop("lose", partitions)
        return now

    def assign(self, partitions: Collection[TopicPartition], now: float) -> Flow[float]:
        now = yield START
        assert not set(partitions) & set(self.mine)
        self.calls.append(("assign", sorted(partitions)))
        self.mine += partitions
        self.engine.subscription.add(partitions)
        return now

    def failed(self, error: KafkaError, now: float) -> None:
        self.error = error


class Script(World):
    """One broker that coordinates a group; the other members are what the test says they are."""

    def __init__(self, **config: Any) -> None:
        given = {
            "bootstrap.servers": B1,
            "group.id": "g",
            "session.timeout.ms": SESSION * 1000,
            "heartbeat.interval.ms": HEARTBEAT * 1000,
            "max.poll.interval.ms": MAX_POLL * 1000,
            **{k.replace("_", "."): v for k, v in config.items()},
        }
        super().__init__(given)
        self.topics = {"t": [1, 1]}
        self.pictures["*"] = ClusterPicture(brokers={1: B1}, topics=self.topics)
        up(self, B1)
        self.spoken = dict(VERSIONS)
        self.codes: dict[str, list[int]] = {}
        self.generation = 0
        self.members: dict[str, JoinGroupResponseMember] = {}
        self.leader: str | None = None
        self.given: list[str] | None = None
        """What the next syncs give, when another member leads."""
        self.skip = False
        self.group = FakeGroup(self)
        self.membership = ClassicMembership(cast("Group", self.group))

    def begin(self, within: float = 1.0) -> None:
        self.engine.post(self.membership.start)
        self.run(self.now + within)

    def stable(self) -> None:
        self.begin()
        assert self.state == "stable"

    def code(self, api: str, *codes: int) -> None:
        self.codes[api] = list(codes)

    def other(self, name: str, *topics: str, owned: list[TopicPartition] | None = None) -> None:
        metadata = encode_subscription(MemberSubscription(topics, tuple(owned or ())))
        self.members[name] = JoinGroupResponseMember(name, None, metadata)

    def answer(self, address: str, body: Any, mode: str) -> Message | None:
        code = 0
        if (codes := self.codes.get(getattr(body, "API_NAME", ""))) and codes:
            code = codes.pop(0)
        if isinstance(body, FindCoordinatorRequest):
            if self.spoken[10] < 4:
                return FindCoordinatorResponse(node_id=1, host="b1", port=9092)
            return FindCoordinatorResponse(coordinators=[Found("g", 1, "b1", 9092)])
        if isinstance(body, JoinGroupRequest):
            return self._join(body, code)
        if isinstance(body, SyncGroupRequest):
            return self._sync(body, code)
        if isinstance(body, HeartbeatRequest):
            return HeartbeatResponse(error_code=code)
        if isinstance(body, LeaveGroupRequest):
            return LeaveGroupResponse(error_code=code)
        message = super().answer(address, body, mode)
        if isinstance(message, ApiVersionsResponse):
            message.api_keys += [ApiVersion(k, 0, v) for k, v in self.spoken.items()]
        return message

    def _send(self, effect: Send) -> None:
        effect.request.encode()  # raises when the version can't carry what is said
        super()._send(effect)

    def _join(self, body: JoinGroupRequest, code: int) -> JoinGroupResponse:
        if code:
            return JoinGroupResponse(error_code=code)
        member = body.member_id
        if not member:
            member = f"m{len(self.asks('JoinGroup'))}"
            if body.group_instance_id is None:
                return JoinGroupResponse(error_code=79, member_id=member)
        self.generation += 1
        me = JoinGroupResponseMember(member, None, body.protocols[0].metadata)
        leads = self.leader is None
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=body.protocols[0].name,
            leader=self.leader or member,
            member_id=member,
            members=[me, *self.members.values()] if leads else [],
            skip_assignment=self.skip,
        )

    def _sync(self, body: SyncGroupRequest, code: int) -> SyncGroupResponse:
        if code:
            return SyncGroupResponse(error_code=code)
        own = {a.member_id: a.assignment for a in body.assignments}.get(body.member_id, b"")
        if self.given is not None:
            own = encode_assignment(parts(*self.given))
        return SyncGroupResponse(0, 0, "consumer", body.protocol_name, own)

    # What the tests look at

    @property
    def state(self) -> str:
        return self.membership.state.value

    def bodies(self, api: str) -> list[Any]:
        return [a.body for a in self.asks(api)]

    def withheld(self) -> int:
        """Of how many partitions nothing is handed out."""
        states = self.group.engine.subscription.partitions.values()
        return sum(state.revoked for state in states)

    def calls(self) -> list[tuple[str, list[TopicPartition]]]:
        calls, self.group.calls = self.group.calls, []
        return calls

    def owned_in_join(self) -> list[TopicPartition]:
        last = self.bodies("JoinGroup")[-1]
        return list(decode_subscription(last.protocols[0].metadata).owned)

    def order(self) -> list[str]:
        apis = ("JoinGroup", "SyncGroup", "LeaveGroup")
        return [a.api for a in self.asked if a.api in apis]


# One member alone


def test_a_group_of_one_owns_everything_and_sends_heartbeats() -> None:
    w = Script(client_rack="r1")
    w.stable()
    assert w.calls() == [("assign", parts("t0", "t1"))]
    assert (w.membership.member_id, w.membership.generation) == ("m1", 1)
    first, second = w.bodies("JoinGroup")
    assert (first.member_id, second.member_id) == ("", "m1"), "KIP-394"
    assert [p.name for p in second.protocols] == ["range", "cooperative-sticky"]
    said = decode_subscription(second.protocols[0].metadata)
    assert (said.topics, said.rack) == (("t",), "r1")
    assert (second.session_timeout_ms, second.rebalance_timeout_ms) == (10_000, 30_000)
    assert second.reason == "the consumer has subscribed"
    w.run(w.now + 10.0)
    beats = w.asks("Heartbeat")
    assert 9 <= len(beats) <= 11
    assert all((b.body.generation_id, b.body.member_id) == (1, "m1") for b in beats)
    coordinator = {a.connection for a in w.asks("JoinGroup") + beats}
    assert len(coordinator) == 1
    assert not coordinator & {a.connection for a in w.asks("Metadata")}
    assert [e.fields["state"] for e in w.kinds("group")] == [
        "preparing_rebalance",
        "completing_rebalance",
        "stable",
    ]


def test_a_rebalance_of_an_eager_member_gives_back_everything_first() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.code("Heartbeat", REBALANCE)
    w.group.revoke_takes = 3.5
    w.run(w.now + 3.0)
    assert w.state == "preparing_rebalance"
    assert len(w.bodies("JoinGroup")) == 2, "R-GR-1: on_revoked completes before the join goes out"
    w.run(w.now + 3.0)
    assert w.calls() == [("revoke", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.owned_in_join() == []
    assert w.bodies("JoinGroup")[-1].reason == "the group is rebalancing"
    assert w.membership.generation == 2
    beats = [a.at for a in w.asks("Heartbeat")]
    assert max(b - a for a, b in pairwise(beats)) < 1.6, "meanwhile as well"


def test_a_cooperative_member_keeps_what_stays_and_joins_twice() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.leader, w.given = "other", ["t0", "t1"]
    w.stable()
    assert w.calls() == [("assign", parts("t0", "t1"))]
    w.given = ["t1"]
    w.code("Heartbeat", REBALANCE)
    w.run(w.now + 2.0)
    assert w.calls() == [("revoke", parts("t0")), ("assign", []), ("assign", [])]
    assert w.order()[2:] == ["SyncGroup", "JoinGroup", "SyncGroup", "JoinGroup", "SyncGroup"]
    owned = [decode_subscription(b.protocols[0].metadata).owned for b in w.bodies("JoinGroup")]
    assert [list(o) for o in owned[2:]] == [parts("t0", "t1"), parts("t1")]
    assert w.group.mine == parts("t1")


def test_a_cooperative_member_that_gains_joins_once() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.leader, w.given = "other", ["t0"]
    w.stable()
    w.given = ["t0", "t1"]
    w.code("Heartbeat", REBALANCE)
    w.run(w.now + 2.0)
    assert w.calls() == [("assign", parts("t0")), ("assign", parts("t1"))]
    assert w.membership.generation == 2


def test_partitions_of_topics_that_are_no_longer_subscribed_go_before_the_join() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.topics["u"] = [1]
    w.group.subscribed = ["t", "u"]
    w.stable()
    w.calls()
    w.group.subscribed = ["t"]
    w.engine.post(lambda now: w.membership.rejoin("another subscription", now))
    w.run(w.now + 1.0)
    assert w.calls() == [("revoke", parts("u0")), ("assign", [])]
    assert w.owned_in_join() == parts("t0", "t1")
    assert w.bodies("JoinGroup")[-1].reason == "another subscription"


def test_a_rebalance_during_the_sync_is_one_more_join() -> None:
    w = Script()
    w.code("SyncGroup", REBALANCE, REBALANCE)
    w.stable()
    assert w.order() == ["JoinGroup", *["JoinGroup", "SyncGroup"] * 3]
    assert w.calls() == [("assign", parts("t0", "t1"))]


# Leading


def test_the_leader_divides_also_topics_that_only_others_subscribe_to() -> None:
    w = Script()
    w.topics.update(u=[1, 1, 1], v=[1])
    w.other("x", "t", "u")
    w.other("y", "gone")
    w.stable()
    sync = w.bodies("SyncGroup")[-1]
    given = {a.member_id: decode_assignment(a.assignment).partitions for a in sync.assignments}
    assert {k: list(v) for k, v in given.items()} == {
        "m1": parts("t0"),
        "x": parts("t1", "u0", "u1", "u2"),
        "y": [],
    }
    assert sync.protocol_name == "range"
    w.topics["u"].append(1)
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 1.0)
    assert w.membership.generation == 2
    assert w.bodies("JoinGroup")[-1].reason == "topic u has 4 partitions, 3 before"


def test_a_topic_that_comes_later_and_one_that_goes() -> None:
    w = Script()
    w.group.subscribed = ["t", "u"]
    w.begin(8.0)
    assert w.state == "stable"
    w.topics["u"] = [1]
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 2.0)
    assert w.group.owned() == parts("t0", "t1", "u0")
    del w.topics["u"]
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 9.0)
    assert w.membership.generation == 2, "a broker that has just started may not know it yet"
    w.run(w.now + 3.0)
    assert w.membership.generation == 3
    assert w.group.owned() == parts("t0", "t1")


def test_followers_do_not_care_for_numbers_of_partitions() -> None:
    w = Script()
    w.leader, w.given = "other", ["t0"]
    w.stable()
    w.topics["t"].append(1)
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 2.0)
    assert w.membership.generation == 1
    assert w.bodies("SyncGroup")[-1].assignments == []


def test_a_static_leader_that_comes_back_divides_nothing() -> None:
    w = Script(group_instance_id="i")
    w.skip, w.given = True, ["t1"]
    w.stable()
    assert w.bodies("SyncGroup")[-1].assignments == []
    assert w.group.mine == parts("t1")
    w.topics["t"].append(1)
    w.skip, w.given = False, None
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 2.0)
    assert w.group.owned() == parts("t0", "t1", "t2"), "KIP-814: it watches all the same"


class Faulty:
    name, protocol = "faulty", EAGER

    def assign(self, members: Any, topics: Any) -> Any:
        raise ZeroDivisionError("by a user")


def test_an_assignor_that_raises_ends_the_membership_and_frees_the_others() -> None:
    w = Script(partition_assignment_strategy=[Faulty()])
    w.begin()
    assert w.state == "fatal"
    assert "ZeroDivisionError" in str(w.group.error)
    assert w.order()[-1] == "LeaveGroup"


# Being put out


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(("code", "member"), [(UNKNOWN, ""), (ILLEGAL, "m1")])
def test_a_member_that_was_put_out_loses_all_and_joins_again(
    strategy: str, code: int, member: str
) -> None:
    w = Script(partition_assignment_strategy=strategy)
    w.stable()
    w.calls()
    w.code("Heartbeat", code)
    w.run(w.now + 2.0)
    assert w.calls() == [("lose", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.bodies("JoinGroup")[2].member_id == member
    assert w.owned_in_join() == []
    assert w.state == "stable"


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_put_out_in_the_middle_of_a_rebalance(api: str) -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.stable()
    w.calls()
    w.code("Heartbeat", REBALANCE)
    w.code(api, UNKNOWN)
    w.run(w.now + 2.0)
    assert w.calls() == [("lose", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.state == "stable"


def test_a_group_that_wants_a_name_or_patience_again_and_again_is_no_hot_loop_either() -> None:
    w = Script()
    w.code("JoinGroup", *[79, REBALANCE] * 250)
    w.begin(5.0)
    assert 40 < len(w.bodies("JoinGroup")) < 60


def test_being_put_out_again_and_again_is_no_hot_loop() -> None:
    w = Script()
    w.code("SyncGroup", *[UNKNOWN] * 500)
    w.begin(5.0)
    assert 40 < len(w.bodies("SyncGroup")) < 60


def test_put_out_while_the_application_gives_back() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.group.revoke_takes = 4.0
    w.code("Heartbeat", REBALANCE, UNKNOWN)
    w.run(w.now + 3.0)
    assert w.calls() == [], "the application isn't overtaken"
    w.run(w.now + 4.0)
    assert w.calls() == [("revoke", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.bodies("JoinGroup")[2].member_id == ""


def test_a_session_without_an_answer_ends_on_this_side_too() -> None:
    """Nothing is handed out then, but nothing is given up either: perhaps nobody was there."""
    w = Script()
    w.stable()
    w.calls()
    w.mode(B1, "black_hole", cut=False)
    begin = w.now
    w.run(w.now + 30.0, lambda: w.withheld() == 2)
    assert SESSION - HEARTBEAT - 0.2 <= w.now - begin <= SESSION + 0.2
    w.run(w.now + 20.0)
    w.mode(B1, "refused")
    up(w, B1)
    w.run(w.now + 5.0, lambda: w.withheld() == 0)
    assert w.withheld() == 0
    assert w.calls() == []
    assert w.state == "stable"
    assert w.membership.generation == 1
    whys = [e.fields["event"] for e in w.kinds("group")]
    assert whys[-2:] == ["session_expired", "session_confirmed"]


def test_a_session_that_has_ended_on_the_other_side_too() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.mode(B1, "refused")
    w.run(w.now + 15.0)
    assert w.withheld() == 2
    w.code("Heartbeat", UNKNOWN)
    up(w, B1)
    w.run(w.now + 5.0)
    assert w.calls() == [("lose", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.withheld() == 0


def test_a_rebalance_in_the_middle_of_doubt() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.stable()
    w.calls()
    w.mode(B1, "refused")
    w.run(w.now + 15.0)
    w.engine.post(lambda now: w.membership.rejoin("a test", now))
    w.run(w.now + 5.0)
    assert w.withheld() == 2
    up(w, B1)
    w.run(w.now + 5.0)
    assert w.calls() == [("assign", [])]
    assert w.withheld() == 0


def test_an_interruption_that_is_shorter_than_the_session_changes_nothing() -> None:
    w = Script()
    w.stable()
    w.mode(B1, "refused")
    w.run(w.now + 5.0)
    up(w, B1)
    w.run(w.now + 20.0)
    assert w.membership.generation == 1
    assert w.calls() == [("assign", parts("t0", "t1"))]


# Static members


def test_a_static_member_does_not_leave() -> None:
    w = Script(group_instance_id="i")
    w.stable()
    assert [b.group_instance_id for b in w.bodies("JoinGroup")] == ["i"]
    assert w.bodies("SyncGroup")[0].group_instance_id == "i"
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert "LeaveGroup" not in w.order()
    assert w.state == "unjoined"


def test_a_static_member_whose_name_is_taken_is_refused_for_good() -> None:
    w = Script(group_instance_id="i")
    w.stable()
    w.calls()
    w.code("Heartbeat", FENCED)
    w.run(w.now + 5.0)
    assert isinstance(w.group.error, FencedInstanceIdError)
    assert w.calls() == [("lose", parts("t0", "t1"))]
    assert w.state == "fatal"
    assert w.order() == ["JoinGroup", "SyncGroup"]


# The application


def test_an_application_that_does_not_poll_loses_its_place_until_it_does() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.group.busy(w.now)
    w.run(w.now + MAX_POLL - 0.1)
    assert w.state == "stable"
    w.run(w.now + 5.0)
    assert w.state == "stale"
    assert w.calls() == [("lose", parts("t0", "t1"))]
    [leave] = w.bodies("LeaveGroup")
    assert leave.members[0].member_id == "m1"
    assert "max.poll.interval.ms" in leave.members[0].reason
    beats = len(w.bodies("Heartbeat"))
    w.run(w.now + 5.0)
    assert len(w.bodies("Heartbeat")) == beats
    w.group.poll()
    w.run(w.now + 1.0)
    assert w.state == "stable"
    assert w.membership.member_id == "m3"
    assert w.calls() == [("assign", parts("t0", "t1"))]


def test_one_that_is_busy_while_it_should_give_back() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.group.busy(w.now)
    w.code("Heartbeat", REBALANCE)
    w.run(w.now + MAX_POLL + 1.0)
    assert w.state == "stale"
    assert w.calls() == [("lose", parts("t0", "t1"))]
    w.group.poll()
    w.run(w.now + 1.0)
    assert w.state == "stable"


def test_errors_that_nothing_mends_reach_the_application() -> None:
    w = Script()
    w.code("JoinGroup", 23)
    w.begin()
    assert isinstance(w.group.error, InconsistentGroupProtocolError)
    assert w.state == "fatal"
    w.run(w.now + 5.0)
    assert w.order() == ["JoinGroup"]
    w.begin()
    assert w.state == "stable", "the application may subscribe once more"


# Leaving


def test_leaving() -> None:
    w = Script()
    w.stable()
    w.engine.post(w.membership.hold)
    w.run(w.now + 3.0)
    begin, beats = w.now, len(w.bodies("Heartbeat"))
    assert beats >= 3, "it stays a member until it leaves"
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert w.now - begin < 0.1
    assert w.bodies("LeaveGroup")[0].members[0].member_id == "m1"
    assert (w.membership.member_id, w.membership.generation) == ("", -1)
    w.run(w.now + 5.0)
    assert len(w.bodies("Heartbeat")) == beats


def test_no_join_begins_once_the_consumer_is_about_to_leave() -> None:
    w = Script()
    w.stable()
    w.group.revoke_takes = 2.0
    w.code("Heartbeat", REBALANCE)
    w.run(w.now + 1.5)
    assert w.state == "preparing_rebalance"
    w.calls()
    w.engine.post(w.membership.hold)
    w.run(w.now + 5.0)
    assert w.calls() == [], "the glue gives back by itself then"
    assert len(w.bodies("JoinGroup")) == 2
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert w.order()[-1] == "LeaveGroup"


def test_leaving_while_a_join_is_held() -> None:
    w = Script()
    w.stable()
    w.delays[B1] = 20.0
    w.engine.post(lambda now: w.membership.rejoin("a test", now))
    w.run(w.now + 1.0)
    assert len(w.bodies("JoinGroup")) == 3
    w.delays[B1] = 0.0
    begin = w.now
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert w.now - begin < 0.2
    assert w.order()[-1] == "LeaveGroup"


@pytest.mark.parametrize("code", [0, UNKNOWN, 16])
def test_leaving_never_raises_and_never_takes_longer_than_it_may(code: int) -> None:
    w = Script()
    w.stable()
    w.code("LeaveGroup", *[code] * 50)
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    w2 = Script()
    w2.stable()
    w2.mode(B1, "refused")
    begin = w2.now
    w2.wait(w2.membership.leave(w2.now + 1.0), 5.0).result()
    assert w2.now - begin <= 1.1


def test_leaving_before_anything_was_joined() -> None:
    w = Script()
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    w.modes[B1] = "refused"
    w.begin()
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    assert w.state == "unjoined"
    assert w.order() == []


@pytest.mark.parametrize(
    "spoken",
    [
        {10: 0, 11: 0, 12: 0, 13: 0, 14: 0},  # Kafka 0.10
        {10: 2, 11: 4, 12: 2, 13: 2, 14: 2},  # 2.2
        {10: 3, 11: 7, 12: 4, 13: 4, 14: 5},  # 2.8
    ],
)
def test_older_brokers(spoken: dict[int, int]) -> None:
    w = Script()
    w.spoken = spoken
    w.stable()
    assert w.group.owned() == parts("t0", "t1")
    w.run(w.now + 3.0)
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    [leave] = w.bodies("LeaveGroup")
    assert (leave.member_id == "m1") is (spoken[13] < 3)
