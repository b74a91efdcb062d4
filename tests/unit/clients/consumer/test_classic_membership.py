"""A classic membership against a scripted coordinator: joining, leading, and being put out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.spec.world import up
from tests.unit.clients.consumer.classic_script import (
    B1,
    HEARTBEAT,
    ILLEGAL,
    REBALANCE,
    SESSION,
    UNKNOWN,
    Script,
    parts,
)

from odradek.clients.consumer.group.assignors import EAGER
from odradek.clients.consumer.group.embedded_protocol import decode_assignment, decode_subscription

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
    w.run(w.now + 10.0, lambda: w.withheld() == 0)  # a dial from the outage hangs for a while yet
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
