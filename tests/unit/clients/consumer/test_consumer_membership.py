"""Test a member of a KIP-848 group against a scripted coordinator."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest
from tests.unit.clients.consumer.scripted_group import IDS, S, Scripted, assigns

from odradek.common.errors import ClientClosedError, KafkaError
from odradek.common.errors.kafka import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)


def test_heartbeats_after_the_acknowledged_assignment_contain_only_changed_fields() -> None:
    w = Scripted({"client.rack": "r1", "group.remote.assignor": "uniform"})
    w.join(assigns(3, orders=[0, 1]), until=12.0)
    first, second, third, fourth = w.beats
    assert (first.member_epoch, w.sent(first)) == (0, {})
    assert (first.rack_id, first.server_assignor) == ("r1", "uniform")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["orders"], None)
    assert first.rebalance_timeout_ms == 300_000
    assert (second.member_epoch, w.sent(second)) == (3, {"orders": [0, 1]})
    for short in (second, third, fourth):
        assert short.member_id == first.member_id == w.membership.member_id
        assert (short.subscribed_topic_names, short.rebalance_timeout_ms) == (None, -1)
        assert (short.server_assignor, short.rack_id) == (None, None)
    assert w.sent(third) is w.sent(fourth) is None
    times = [a.at for a in w.asks("ConsumerGroupHeartbeat")]
    assert times[1] - times[0] < 0.1
    assert [b - a for a, b in itertools.pairwise(times[1:])] == pytest.approx([5.0, 5.0])
    assert w.log == ["assigned orders-0 orders-1"]
    assert w.states() == [S.JOINING, S.RECONCILING, S.ACKNOWLEDGING, S.STABLE]
    assert w.membership.generation == 3


def test_a_new_member_sends_heartbeats_quickly_until_it_has_an_assignment() -> None:
    w = Scripted()
    w.join(0, 0, 0, assigns(2, orders=[0]), until=1.5)
    assert w.log == ["assigned orders-0"]
    assert w.kinds("group")[-1].at < 1.0
    # A member that gets no assignment for long returns to the normal heartbeat interval.
    w = Scripted()
    w.join(until=60.0)
    times = [a.at for a in w.asks("ConsumerGroupHeartbeat")]
    assert 5 <= len([t for t in times if t < 7.0]) <= 12
    assert len([t for t in times if t > 10.0]) == 10


def test_member_ids_are_uuids_from_the_clients_seeded_random_generator() -> None:
    ids = []
    for _ in range(2):
        w = Scripted()
        assert w.membership.member_id == ""
        w.join()
        ids.append(w.membership.member_id)
    assert ids[0] == ids[1], "the same seed"
    assert str(UUID(ids[0])) == ids[0]
    assert UUID(ids[0]).version == 4


def test_partitions_are_revoked_before_new_ones_are_assigned() -> None:
    w = Scripted()
    w.subscribed = ["orders", "users"]
    w.join(assigns(1, orders=[0, 1]))
    w.replies = [assigns(2, orders=[1, 2], users=[0])]
    w.log.clear()
    w.till(lambda: len(w.beats) == 4)
    assert w.log == ["revoking orders-0", "revoked orders-0", "assigned orders-2 users-0"]
    assert w.sent(w.beats[-1]) == {"orders": [1, 2], "users": [0]}


def test_heartbeats_continue_while_the_application_delays_a_revocation() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0, 1]))
    w.held_up = True
    w.replies = [assigns(2, orders=[1])]
    w.run(w.now + 21.0)
    assert w.log[-1] == "revoking orders-0"
    assert w.state == S.RECONCILING
    assert len(w.beats) == 6
    assert all(w.sent(b) is None for b in w.beats[2:]), "not acknowledged before it is revoked"
    # The coordinator changes the assignment again: only the newest one counts.
    w.replies = [assigns(2, orders=[1, 3])]
    w.run(w.now + 5.0)
    w.held_up = False
    w.engine.post(lambda _: w.poll_wanted.notify())
    w.run(w.now + 1.0)
    assert w.log[-2:] == ["revoked orders-0", "assigned orders-3"]
    assert w.sent(w.beats[-1]) == {"orders": [1, 3]}
    assert w.state == S.STABLE


def test_after_a_lost_response_heartbeats_contain_all_fields_for_a_minute() -> None:
    w = Scripted({"request.timeout.ms": 2000})
    w.join(assigns(1, orders=[0]))
    w.fall_silent(6.0)
    w.till(lambda: w.beats[-1].rebalance_timeout_ms > 0)
    assert w.sent(w.beats[-1]) == {"orders": [0]}
    w.run(w.now + 50.0)
    assert w.beats[-1].subscribed_topic_names == ["orders"]
    w.run(w.now + 20.0)
    assert w.beats[-1].subscribed_topic_names is None


def test_a_retried_heartbeat_contains_all_fields() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0]))
    count = len(w.beats)
    w.replies = [14, 0]
    w.run(w.now + 6.0)
    first, second = w.beats[count : count + 2]
    assert (w.sent(first), w.sent(second)) == (None, {"orders": [0]})


def test_a_new_assignment_replaces_an_assignment_with_unresolved_topic_ids() -> None:
    w = Scripted(pattern=".*")
    del w.picture.ids["users"]
    w.join(assigns(1, users=[1]), until=4.0)
    assert w.log == []
    w.replies = [assigns(2, orders=[3])]
    w.till(lambda: w.state == S.STABLE)
    assert w.log == ["assigned orders-3"]
    asked = len(w.asks("Metadata"))
    w.run(w.now + 3.0)
    assert len(w.asks("Metadata")) <= asked + 1, "the name is no longer needed"


def test_an_error_while_reconciling_is_raised_by_the_next_poll() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0, 1]))
    w.trouble = ClientClosedError("oh")
    w.replies = [assigns(2, orders=[1])]
    w.run(w.now + 6.0)
    assert w.failure is w.trouble
    assert w.state == S.FATAL
    assert w.log[-1] == "lost orders-0 orders-1"


@pytest.mark.parametrize("code", [25, 110, 69])
def test_a_removed_member_loses_its_partitions_and_rejoins(code: int) -> None:
    w = Scripted()
    w.join(assigns(4, orders=[0, 1]))
    w.replies = [code, assigns(6, orders=[1])]
    w.log.clear()
    w.till(lambda: w.membership.generation == 6)
    w.run(w.now + 0.5)
    assert w.log == ["lost orders-0 orders-1", "assigned orders-1"]
    rejoin = w.beats[-2]
    assert (rejoin.member_epoch, w.sent(rejoin)) == (0, {})
    assert rejoin.member_id == w.beats[0].member_id
    assert w.failure is None
    assert S.FENCED in w.states()


def test_a_repeatedly_removed_member_rejoins_with_backoff() -> None:
    w = Scripted()
    w.join(assigns(1), *[25] * 200, until=10.0)
    assert 8 <= len(w.beats) <= 25


def test_a_member_that_is_fenced_during_a_revocation_loses_its_partitions_and_rejoins() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0, 1]))
    w.held_up = True
    w.replies = [assigns(2, orders=[1]), 110, assigns(5, orders=[0])]
    w.till(lambda: w.membership.generation == 5)
    w.run(w.now + 1.0)
    assert w.log[-3:] == ["revoking orders-0", "lost orders-0 orders-1", "assigned orders-0"]
    w.held_up = False
    w.engine.post(lambda _: w.poll_wanted.notify())
    w.run(w.now + 1.0)
    assert w.log[-1] == "assigned orders-0"


@pytest.mark.parametrize(
    ("code", "error"),
    [(82, FencedInstanceIdError), (112, UnsupportedAssignorError), (69, GroupIdNotFoundError)],
)
def test_a_permanent_error_is_raised_by_the_next_poll(code: int, error: type[KafkaError]) -> None:
    w = Scripted()
    w.join(code)
    assert isinstance(w.failure, error)
    assert w.state == S.FATAL
    w.run(w.now + 20.0)
    assert len(w.beats) == 1
    w.leave()
    assert len(w.beats) == 1, "there is no group to leave"


def test_a_member_with_a_permanent_error_loses_its_partitions() -> None:
    w = Scripted({"group.instance.id": "i1"})
    w.join(assigns(1, orders=[0]), 0, 82, until=6.0)
    assert w.log[-1] == "lost orders-0"
    assert isinstance(w.failure, FencedInstanceIdError)


def test_if_brokers_do_not_support_kip_848_the_error_recommends_the_classic_protocol() -> None:
    for version, code in ((-1, 0), (1, 35)):
        w = Scripted(version=version)
        w.join(code)
        assert isinstance(w.failure, UnsupportedVersionError)
        assert "group.protocol=classic" in str(w.failure)
        assert ".." not in str(w.failure)


def test_if_a_group_uses_the_classic_protocol_the_error_names_the_migration_policy() -> None:
    w = Scripted()
    w.join(69)
    assert "group.consumer.migration.policy" in str(w.failure)


def test_with_heartbeat_version_0_the_coordinator_chooses_the_member_id() -> None:
    w = Scripted(version=0)
    w.join(ConsumerGroupHeartbeatResponse(0, 0, None, "theirs", 1, 3000, None), until=4.0)
    assert [b.member_id for b in w.beats][:3] == ["", "theirs", "theirs"]
    assert w.membership.member_id == "theirs"
    assert w.state == S.STABLE


def test_a_topic_pattern_is_sent_to_the_coordinator_which_assigns_topics_by_id() -> None:
    w = Scripted(pattern="ord.*|users")
    w.join(assigns(1, orders=[0], users=[3]))
    assert (w.beats[0].subscribed_topic_regex, w.beats[0].subscribed_topic_names) == (w.pattern, [])
    assert w.log == ["assigned orders-0", "assigned users-3"], "known topics don't wait"
    assert w.sent(w.beats[-1]) == {"orders": [0], "users": [3]}
    # A subscription by name replaces the pattern.
    w.pattern, w.subscribed = None, ["users"]
    w.engine.post(lambda now: w.membership.rejoin("subscription changed", now))
    w.run(w.now + 0.5)
    assert (w.beats[-1].subscribed_topic_regex, w.beats[-1].subscribed_topic_names) == (
        "",
        ["users"],
    )


def test_a_topic_pattern_that_the_coordinator_rejects_or_does_not_support_raises() -> None:
    w = Scripted(version=0, pattern="o.*")
    w.join()
    assert "subscribe to topics by name" in str(w.failure)
    w = Scripted(pattern="o(")
    w.join(128)
    assert w.failure is not None


def test_known_topics_are_assigned_while_other_topic_ids_are_unresolved() -> None:
    w = Scripted(pattern=".*")
    del w.picture.ids["users"]
    w.join(assigns(1, orders=[0], users=[1]), until=3.0)
    assert w.log == ["assigned orders-0"]
    assert w.sent(w.beats[-1]) == {"orders": [0]}
    asked = len(w.asks("Metadata"))
    assert asked < 20
    w.picture.ids["users"] = IDS["users"]
    w.till(lambda: len(w.log) == 2)
    w.run(w.now + 0.5)
    assert w.log[-1] == "assigned users-1"
    assert w.sent(w.beats[-1]) == {"orders": [0], "users": [1]}


def test_a_recreated_topic_is_revoked_and_assigned() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0]))
    again = b"again".ljust(16, b"\2")
    w.picture.ids["orders"] = again
    answer = assigns(2)
    assert answer.assignment is not None
    answer.assignment.topic_partitions = [ConsumerGroupHeartbeatResponseTopicPartitions(again, [0])]
    w.replies = [answer]
    w.run(w.now + 6.0)
    assert w.log == [
        "assigned orders-0",
        "revoking orders-0",
        "revoked orders-0",
        "assigned orders-0",
    ]


def test_leaving_sends_member_epoch_minus_1_or_minus_2_for_a_static_member() -> None:
    for instance, epoch in ((None, -1), ("i1", -2)):
        w = Scripted({"group.instance.id": instance} if instance else {})
        w.join(assigns(1, orders=[0]))
        w.leave()
        assert (w.beats[-1].member_epoch, w.beats[-1].instance_id) == (epoch, instance)
        assert w.state == S.UNJOINED
        count = len(w.beats)
        w.run(w.now + 20.0)
        assert len(w.beats) == count
        assert w.log == ["assigned orders-0"], "the caller revokes the assigned partitions"


def test_a_closing_member_sends_heartbeats_but_accepts_no_new_partitions() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0, 1]))
    w.held_up = True
    w.replies = [assigns(2, orders=[1])]
    w.run(w.now + 6.0)
    w.engine.post(lambda _: w.membership.hold())
    w.replies = [assigns(2, orders=[1, 2])]
    count = len(w.beats)
    w.run(w.now + 10.0)
    assert w.log == ["assigned orders-0 orders-1", "revoking orders-0"]
    assert len(w.beats) == count + 2
    w.replies = [25]
    w.run(w.now + 20.0)
    assert len(w.beats) == count + 3, "the member doesn't rejoin"
    assert w.log[-1] == "lost orders-0 orders-1"
    w.leave()


def test_leaving_ends_at_its_deadline() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0]))
    w.silent_until = begin = w.now
    w.silent_until += 60.0
    w.leave()
    assert w.now - begin == pytest.approx(5.0, abs=0.2)


def test_a_joining_member_waits_up_to_a_session_timeout_for_an_instance_id_in_use(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = Scripted({"group.instance.id": "i1"})
    w.join(*[111] * 12, assigns(1, orders=[0]), until=20.0)
    assert w.log == ["assigned orders-0"]
    caplog.clear()
    w = Scripted({"group.instance.id": "i1"})
    w.join(*[111] * 500, until=70.0)
    assert isinstance(w.failure, UnreleasedInstanceIdError)
    assert len(w.beats) < 100
    assert "'i1' (group.instance.id)" in str(w.failure)
    assert "odradek groups members g --bootstrap-server " in str(w.failure)
    told = [r for r in caplog.records if "i1" in r.getMessage()]
    assert len(told) == 1
    assert "group.consumer.session.timeout.ms" in told[0].getMessage()


def test_a_changed_subscription_is_sent_at_once() -> None:
    w = Scripted()
    w.join(assigns(1, orders=[0]))
    w.subscribed = ["orders", "users"]
    w.engine.post(lambda now: w.membership.rejoin("subscription changed", now))
    w.run(w.now + 0.1)
    assert w.beats[-1].subscribed_topic_names == ["orders", "users"]
    assert w.beats[-1].member_epoch == 1
