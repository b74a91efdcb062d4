"""Test a member of a classic group against a scripted coordinator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.spec.world import up
from tests.unit.clients.consumer.classic_script import (
    B1,
    FENCED,
    ILLEGAL,
    MAX_POLL,
    REBALANCE,
    SESSION,
    UNKNOWN,
    Script,
    parts,
)

from odradek.clients.consumer.group.assignors import EAGER
from odradek.clients.consumer.group.embedded_protocol import decode_assignment, decode_subscription
from odradek.common.errors.kafka import FencedInstanceIdError

# A group with one member


def test_the_only_member_owns_all_partitions_and_sends_heartbeats() -> None:
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


def test_an_eager_member_revokes_all_partitions_before_it_rejoins() -> None:
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
    assert max(b - a for a, b in pairwise(beats)) < 1.6, "heartbeats continue meanwhile"


def test_a_cooperative_member_keeps_partitions_and_rejoins_after_it_has_revoked_others() -> None:
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


def test_a_member_rejoins_if_sync_group_fails_with_rebalance_in_progress() -> None:
    w = Script()
    w.code("SyncGroup", REBALANCE, REBALANCE)
    w.stable()
    assert w.order() == ["JoinGroup", *["JoinGroup", "SyncGroup"] * 3]
    assert w.calls() == [("assign", parts("t0", "t1"))]


# The leader


def test_the_leader_assigns_topics_that_only_other_members_subscribe_to() -> None:
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
    assert (
        w.bodies("JoinGroup")[-1].reason == "the partitions of topic u were increased from 3 to 4"
    )


def test_a_leader_rejoins_with_backoff_while_another_member_does_not_revoke_partitions() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.other("x", "t", owned=parts("t0", "t1"))
    w.begin(95.0)
    joins = [a.at for a in w.asks("JoinGroup")][1:]
    assert [round(b - a) for a, b in pairwise(joins)] == [2, 4, 8, 16, MAX_POLL, MAX_POLL]
    w.other("x", "t", owned=parts("t1"))
    w.run(w.now + MAX_POLL)
    assert w.group.owned() == parts("t0")
    count = len(w.asks("JoinGroup"))
    w.run(w.now + 2 * MAX_POLL)
    assert len(w.asks("JoinGroup")) == count


def test_a_rejoin_for_another_reason_does_not_delay_the_rejoin_for_unreleased_partitions() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.other("x", "t", owned=parts("t0", "t1"))
    w.begin(1.0)
    for _ in range(8):
        w.engine.post(lambda now: w.membership.rejoin("a test", now))
        w.run(w.now + 1.0)
    last = w.asks("JoinGroup")[-1].at
    w.run(last + 3.0)
    again = w.asks("JoinGroup")[-1]
    assert round(again.at - last) == 2
    assert "hasn't released them in time" in (w.bodies("JoinGroup")[-1].reason or "")


def test_the_leader_rejoins_when_a_subscribed_topic_is_created_or_deleted() -> None:
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


def test_a_member_that_is_not_the_leader_ignores_added_partitions() -> None:
    w = Script()
    w.leader, w.given = "other", ["t0"]
    w.stable()
    w.topics["t"].append(1)
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 2.0)
    assert w.membership.generation == 1
    assert w.bodies("SyncGroup")[-1].assignments == []


def test_a_static_leader_that_rejoins_keeps_its_assignment_and_notices_added_partitions() -> None:
    w = Script(group_instance_id="i")
    w.skip, w.given = True, ["t1"]
    w.stable()
    assert w.bodies("SyncGroup")[-1].assignments == []
    assert w.group.mine == parts("t1")
    w.topics["t"].append(1)
    w.skip, w.given = False, None
    w.engine.post(lambda _: w.engine.metadata.request("a test"))
    w.run(w.now + 2.0)
    assert w.group.owned() == parts("t0", "t1", "t2"), "KIP-814: it notices changes anyway"


class FailingAssignor:
    name, protocol = "faulty", EAGER

    def assign(self, members: Any, topics: Any) -> Any:
        raise ZeroDivisionError("by a user")


def test_a_leader_whose_assignor_raises_leaves_the_group_and_fails_permanently() -> None:
    w = Script(partition_assignment_strategy=[FailingAssignor()])
    w.begin()
    assert w.state == "fatal"
    assert "ZeroDivisionError" in str(w.group.error)
    assert w.order()[-1] == "LeaveGroup"


# Removal from the group


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(("code", "member"), [(UNKNOWN, ""), (ILLEGAL, "m1")])
def test_a_removed_member_loses_its_partitions_and_rejoins(
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
def test_a_member_that_is_removed_during_a_rebalance_loses_its_partitions(api: str) -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.stable()
    w.calls()
    w.code("Heartbeat", REBALANCE)
    w.code(api, UNKNOWN)
    w.run(w.now + 2.0)
    assert w.calls() == [("lose", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.state == "stable"


@pytest.mark.parametrize(
    ("api", "codes"),
    [("JoinGroup", [79, REBALANCE]), ("SyncGroup", [UNKNOWN]), ("SyncGroup", [REBALANCE])],
)
def test_repeated_join_and_sync_errors_are_retried_with_backoff(api: str, codes: list[int]) -> None:
    w = Script()
    w.code(api, *codes * 250)
    w.begin(5.0)
    assert 12 < len(w.bodies(api)) <= 20, "ten waits of 0.1 s, then exponential ones"


def test_on_lost_runs_after_on_revoked_if_the_member_is_removed_meanwhile() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.group.revoke_takes = 4.0
    w.code("Heartbeat", REBALANCE, UNKNOWN)
    w.run(w.now + 3.0)
    assert w.calls() == [], "on_lost waits for on_revoked"
    w.run(w.now + 4.0)
    revoked, lost, assigned = w.calls()
    assert revoked == ("revoke", parts("t0", "t1"))
    assert lost == ("lose", []), "the revoked partitions aren't lost again"
    assert assigned == ("assign", parts("t0", "t1"))
    assert w.bodies("JoinGroup")[2].member_id == ""


def test_partitions_are_lost_if_the_coordinator_removed_the_member_during_an_outage() -> None:
    w = Script()
    w.stable()
    w.calls()
    w.mode(B1, mode="refused")
    w.run(w.now + 15.0)
    assert w.withheld() == 2
    w.code("Heartbeat", UNKNOWN)
    up(w, B1)
    w.run(w.now + 5.0)
    assert w.calls() == [("lose", parts("t0", "t1")), ("assign", parts("t0", "t1"))]
    assert w.withheld() == 0


def test_partitions_are_kept_if_a_member_can_rejoin_after_its_session_timeout() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.stable()
    w.calls()
    w.mode(B1, mode="refused")
    w.run(w.now + 15.0)
    w.engine.post(lambda now: w.membership.rejoin("a test", now))
    w.run(w.now + 5.0)
    assert w.withheld() == 2
    up(w, B1)
    w.run(w.now + 5.0)
    assert w.calls() == [("assign", [])]
    assert w.withheld() == 0


# Static members


def test_a_static_member_does_not_send_leave_group() -> None:
    w = Script(group_instance_id="i")
    w.stable()
    assert [b.group_instance_id for b in w.bodies("JoinGroup")] == ["i"]
    assert w.bodies("SyncGroup")[0].group_instance_id == "i"
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert "LeaveGroup" not in w.order()
    assert w.state == "unjoined"


def test_a_static_member_that_does_not_poll_is_not_reported_as_leaving(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = Script(group_instance_id="i")
    w.stable()
    w.engine.post(w.group.busy)
    w.run(w.now + MAX_POLL + 1.0)
    assert w.state == "stale"
    (told,) = [r.getMessage() for r in caplog.records if "max.poll.interval.ms" in r.getMessage()]
    assert "leaving" not in told
    assert (
        "after session.timeout.ms (10 s), because the consumer is static (group.instance.id=i)"
        in told
    )


def test_leaving_retries_until_its_deadline_if_the_coordinator_is_unreachable() -> None:
    w = Script()
    w.stable()
    w.mode(B1, mode="refused")
    begin = w.now
    done = w.engine.start(w.membership.leave(begin + 30.0))
    w.run(begin + 12.0)
    assert not done.done
    up(w, B1)
    w.run(w.now + 5.0, lambda: done.done)
    done.result()
    assert w.order()[-1] == "LeaveGroup"
    assert w.state == "unjoined"


def test_a_member_can_leave_at_the_moment_its_session_expires() -> None:
    w = Script()
    w.stable()
    w.mode(B1, mode="mute", cut=False)
    expires = w.membership._expires

    def leave() -> None:
        w.engine.start(w.membership.leave(w.now + 5.0))

    w.simulation.at(expires, leave)
    w.run(expires - 0.1)
    assert w.bodies("Heartbeat"), "a heartbeat is in flight when the session ends"
    w.run(expires + 10.0)
    assert w.engine.ended is None
    assert w.state == "unjoined"


def test_a_fenced_static_member_fails_permanently() -> None:
    w = Script(group_instance_id="i")
    w.stable()
    w.calls()
    w.code("Heartbeat", FENCED)
    w.run(w.now + 5.0)
    assert isinstance(w.group.error, FencedInstanceIdError)
    assert w.calls() == [("lose", parts("t0", "t1"))]
    assert w.state == "fatal"
    assert w.order() == ["JoinGroup", "SyncGroup"]


# Leaving the group


def test_a_closing_consumer_does_not_rejoin() -> None:
    w = Script()
    w.stable()
    w.group.revoke_takes = 2.0
    w.code("Heartbeat", REBALANCE)
    w.run(w.now + 1.5)
    assert w.state == "preparing_rebalance"
    w.calls()
    w.engine.post(lambda _: w.membership.hold())
    w.run(w.now + 5.0)
    assert w.calls() == [], "the consumer revokes by itself then"
    assert len(w.bodies("JoinGroup")) == 2
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert w.order()[-1] == "LeaveGroup"


def test_leaving_does_not_wait_for_a_pending_join() -> None:
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
def test_leaving_never_raises_or_exceeds_its_timeout(code: int) -> None:
    w = Script()
    w.stable()
    w.code("LeaveGroup", *[code] * 50)
    begin = w.now
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    assert w.now - begin <= 1.1


def test_leaving_an_unreachable_coordinator_ends_at_its_timeout() -> None:
    w = Script()
    w.stable()
    w.mode(B1, mode="refused")
    begin = w.now
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    assert w.now - begin <= 1.1


def test_leaving_without_having_joined_sends_no_request() -> None:
    w = Script()
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    w.modes[B1] = "refused"
    w.begin()
    w.wait(w.membership.leave(w.now + 1.0), 5.0).result()
    assert w.state == "unjoined"
    assert w.order() == []


# Failing joins


def test_records_are_withheld_if_joins_fail_for_longer_than_the_session_timeout() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.stable()
    w.calls()
    w.code("JoinGroup", *[-1] * 1000)
    w.membership.rejoin("a test", w.now)
    w.run(w.now + SESSION / 2)
    assert (w.state, w.withheld()) == ("preparing_rebalance", 0)
    assert w.group.complaints
    w.run(w.now + SESSION)
    assert w.withheld() == 2, "other members may own them"
    joins = len(w.bodies("JoinGroup"))
    assert joins < 30
    w.code("JoinGroup")
    w.run(w.now + 2.0)
    assert (w.state, w.withheld()) == ("stable", 0)
    assert w.calls() == [("assign", [])], "no partition was lost"
    assert w.group.error is None
