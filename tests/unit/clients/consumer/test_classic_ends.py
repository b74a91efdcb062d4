"""A classic membership against a scripted coordinator: static members, the application, leaving."""

from __future__ import annotations

import random
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

from odradek.common.kafka_errors import (
    ERRORS,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
)

# Static members


def test_a_static_member_does_not_leave() -> None:
    w = Script(group_instance_id="i")
    w.stable()
    assert [b.group_instance_id for b in w.bodies("JoinGroup")] == ["i"]
    assert w.bodies("SyncGroup")[0].group_instance_id == "i"
    w.wait(w.membership.leave(w.now + 5.0), 5.0).result()
    assert "LeaveGroup" not in w.order()
    assert w.state == "unjoined"


def test_leaving_takes_as_long_as_it_was_given() -> None:
    w = Script()
    w.stable()
    w.mode(B1, "refused")
    begin = w.now
    done = w.engine.start(w.membership.leave(begin + 30.0))
    w.run(begin + 12.0)
    assert not done.done
    up(w, B1)
    w.run(w.now + 5.0, lambda: done.done)
    done.result()
    assert w.order()[-1] == "LeaveGroup"
    assert w.state == "unjoined"


def test_leaving_at_the_very_end_of_a_session_that_nobody_confirmed() -> None:
    w = Script()
    w.stable()
    w.mode(B1, "silent", cut=False)
    expires = w.membership._expires

    def leave() -> None:
        w.engine.start(w.membership.leave(w.now + 5.0))

    w.at(expires, leave)
    w.run(expires - 0.1)
    assert w.bodies("Heartbeat"), "one is open when the session ends"
    w.run(expires + 10.0)
    assert w.engine.ended is None
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


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_coordinator_says_the_membership_is_stable_again_or_says_why_not(
    seed: int,
) -> None:
    check_random_answers(seed)


def check_random_answers(seed: int) -> None:
    """Any error code at any time, cuts and silence; then an hour in which all is well."""
    rng = random.Random(seed)
    strategy = rng.choice(["range", "cooperative-sticky", "range,cooperative-sticky"])
    config: dict[str, Any] = {"partition_assignment_strategy": strategy}
    if rng.random() < 0.3:
        config["group_instance_id"] = "i"
    w = Script(**config)
    codes = [*ERRORS, 999]
    mends = [0, 14, 15, 16, UNKNOWN, ILLEGAL, REBALANCE, 79]
    w.begin()
    for _ in range(rng.randrange(2, 8)):
        for api in ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"):
            few = codes if rng.random() < 0.05 else mends
            w.code(api, *rng.choices(few, k=rng.randrange(4)))
        w.mode(B1, rng.choice(["up", "up", "refused", "black_hole", "reset", "handshake"]))
        w.group.revoke_takes = rng.choice([0.0, 0.0, 2.0])
        if rng.random() < 0.3:
            w.engine.post(lambda now: w.membership.rejoin("a test", now))
        if rng.random() < 0.1:
            w.engine.post(w.group.busy)
        w.run(w.now + rng.choice([0.1, 1.0, 5.0, 15.0]))
        if rng.random() < 0.5:
            w.group.poll()
    w.codes.clear()
    up(w, B1)
    w.group.poll()
    w.run(w.now + 60.0)
    assert w.engine.ended is None
    assert w.state == ("fatal" if w.group.error is not None else "stable")
    if w.state == "stable":
        assert w.group.owned() == parts("t0", "t1")
        assert w.withheld() == 0
    else:
        assert w.group.owned() == []
    w.wait(w.membership.leave(w.now + 5.0), 6.0).result()
    assert w.state == "unjoined"
    asked = [a.at for a in w.asked if a.api in ("FindCoordinator", "JoinGroup", "Heartbeat")]
    assert all(b - a > 0.3 for a, b in zip(asked, asked[30:], strict=False)), "no hot loop"


# Mishaps


def test_what_a_member_keeps_in_a_mishap_it_keeps_until_its_session_is_over() -> None:
    w = Script(partition_assignment_strategy="cooperative-sticky")
    w.stable()
    w.calls()
    w.code("JoinGroup", *[-1] * 1000)
    w.membership.rejoin("a test", w.now)
    w.run(w.now + SESSION / 2)
    assert (w.state, w.withheld()) == ("preparing_rebalance", 0)
    assert w.group.complaints
    w.run(w.now + SESSION)
    assert w.withheld() == 2, "others may have them"
    joins = len(w.bodies("JoinGroup"))
    assert joins < 30
    w.code("JoinGroup")
    w.run(w.now + 2.0)
    assert (w.state, w.withheld()) == ("stable", 0)
    assert w.calls() == [("assign", [])], "nothing was lost"
    assert w.group.error is None
