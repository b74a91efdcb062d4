from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.common.errors import kafka as errors
from odradek.protocol.messages import consumer_group_heartbeat as h
from odradek.protocol.messages import offset_commit as oc
from odradek.simulation import SimulatedBroker, SimulatedCluster, World
from odradek.simulation.coordinators.consumer_protocol_group import (
    ConsumerProtocolGroup,
    Reconciliation,
)
from odradek.simulation.coordinators.server_assignors import ASSIGNORS
from odradek.simulation.coordinators.shards import GROUP

GROUP_ID = "g"


class Setting:
    """Two topics, and a raw client of the group's coordinator."""

    def __init__(self) -> None:
        self.world = World(12)
        self.cluster = SimulatedCluster(self.world, 3)
        self.topic = self.cluster.create_topic("t", 4)
        self.groups = self.cluster.coordinators[GROUP]
        self.groups.create()
        self.index = self.groups.index(GROUP_ID)
        self.reconnect()

    def reconnect(self) -> None:
        """Connect to the current coordinator."""
        self.client = RawClient(self.world)
        self.client.dial(self.node.address.host)

    @property
    def node(self) -> SimulatedBroker:
        """Return the id of the broker that coordinates the group."""
        node = self.cluster.leader("__consumer_offsets", self.index)
        assert node is not None
        return node

    @property
    def group(self) -> ConsumerProtocolGroup:
        group = self.groups.shard(self.node, GROUP_ID).groups[GROUP_ID]
        assert isinstance(group, ConsumerProtocolGroup)
        return group

    def check(self) -> None:
        """Assert that no partition belongs to two members, even while it has to be revoked."""
        held: set[Any] = set()
        group = self.groups.shard(self.node, GROUP_ID).groups.get(GROUP_ID)
        for member in group.members.values() if group is not None else ():
            mine = member.assigned | member.revoking
            assert not held & mine
            held |= mine


class Member:
    """A member of the group, which accepts each assignment at once."""

    def __init__(self, setting: Setting, name: str, instance_id: str | None = None) -> None:
        self.setting = setting
        self.id = name
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[int] = set()
        self.told: set[int] | None = None

    def ask(self, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat with these fields, and return its response."""
        request = h.ConsumerGroupHeartbeatRequest(
            GROUP_ID, self.id, epoch, self.instance_id, **fields
        )
        return self.setting.client.ask(request, 1)

    def join(self, topics: tuple[str, ...] = ("t",), **fields: Any) -> int:
        """Join as a member that owns no partition, and return the error code."""
        self.owned = set()
        answer = self.ask(
            0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
            **fields,
        )
        return self.take(answer)

    def beat(self, **fields: Any) -> int:
        """Send a heartbeat that reports the owned partitions; return the error code."""
        owned = [
            h.ConsumerGroupHeartbeatRequestTopicPartitions(
                self.setting.topic.id, sorted(self.owned)
            )
        ]
        return self.take(self.ask(self.epoch, topic_partitions=owned, **fields))

    def take(self, answer: Any) -> int:
        """Apply the assignment in a heartbeat response, and return the error code."""
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            self.owned = {p for t in parts for p in t.partitions}
        self.setting.check()
        return int(answer.error_code)


@pytest.fixture
def setting() -> Setting:
    return Setting()


def pair(setting: Setting, *, settled: bool = True) -> tuple[Member, Member]:
    """Return two members of the group; if `settled`, each owns its partitions."""
    a, b = Member(setting, "a"), Member(setting, "b")
    a.join()
    b.join()
    if settled:
        settle(a, b)
    return a, b


def settle(*members: Member) -> None:
    """Let each member send four heartbeats, after which assignments no longer change."""
    for _ in range(4):
        for member in members:
            assert member.beat() == 0


def test_a_single_member_gets_all_partitions(setting: Setting) -> None:
    member = Member(setting, "a")
    assert member.join() == 0
    assert (member.epoch, member.owned) == (1, {0, 1, 2, 3})
    answer = member.ask(member.epoch)
    assert (answer.error_code, answer.assignment, answer.heartbeat_interval_ms) == (0, None, 5000)


def test_partitions_are_revoked_before_another_member_gets_them(setting: Setting) -> None:
    a, b = Member(setting, "a"), Member(setting, "b")
    a.join()
    assert b.join() == 0
    assert (b.epoch, b.owned) == (2, set())
    before = set(a.owned)
    answer = a.ask(a.epoch)
    assert answer.member_epoch == 1  # a must revoke before its epoch increases
    left = set(answer.assignment.topic_partitions[0].partitions)
    assert len(left) == 2
    assert setting.group.members["a"].state is Reconciliation.UNREVOKED_PARTITIONS
    assert b.beat() == 0
    assert b.owned == set()
    a.owned = left
    assert a.beat() == 0
    assert (a.epoch, a.owned) == (2, left)
    b.beat()
    assert b.owned == before - left


def test_a_member_that_does_not_revoke_in_time_is_fenced(setting: Setting) -> None:
    a, b = pair(setting, settled=False)
    for _ in range(8):
        setting.world.advance(5)
        code = a.ask(a.epoch).error_code
        b.beat()
    assert code == errors.UnknownMemberIdError.code
    assert b.owned == {0, 1, 2, 3}


def test_a_member_without_heartbeats_is_fenced(setting: Setting) -> None:
    a, b = pair(setting)
    for _ in range(5):
        setting.world.advance(10)
        assert b.beat() == 0
    assert b.owned == {0, 1, 2, 3}
    assert a.beat() == errors.UnknownMemberIdError.code
    assert a.join() == 0
    settle(a, b)
    assert sorted([*a.owned, *b.owned]) == [0, 1, 2, 3]


def test_partitions_of_a_member_that_leaves_are_free_at_once(setting: Setting) -> None:
    a, b = pair(setting)
    answer = a.ask(-1)
    assert (answer.error_code, answer.member_epoch) == (0, -1)
    b.beat()
    assert b.owned == {0, 1, 2, 3}
    assert a.ask(a.epoch).error_code == errors.UnknownMemberIdError.code


def test_heartbeats_with_a_wrong_member_epoch_are_fenced(setting: Setting) -> None:
    a, _ = pair(setting)
    assert a.ask(a.epoch + 1).error_code == errors.FencedMemberEpochError.code
    assert (
        a.ask(a.epoch - 1).error_code == errors.FencedMemberEpochError.code
    )  # the former epoch, without owned partitions
    a.epoch -= 1  # as if the last response had been lost
    assert a.beat() == 0
    assert a.epoch == setting.group.epoch
    a.epoch -= 1
    a.owned = {0, 1, 2, 3}
    assert a.beat() == errors.FencedMemberEpochError.code
    assert a.join() == 0
    assert len(a.owned) == 2


@pytest.mark.parametrize("strict", [True, False])
def test_commits_need_the_member_epoch_of_the_assignment(setting: Setting, strict: bool) -> None:
    setting.cluster.group_settings.strict_epochs = strict
    a, b = pair(setting)

    def commit(member: Member, epoch: int) -> list[int]:
        parts = [oc.OffsetCommitRequestPartition(p, 1) for p in sorted(member.owned)]
        request = oc.OffsetCommitRequest(GROUP_ID, epoch, member.id)
        request.topics = [oc.OffsetCommitRequestTopic("t", partitions=parts)]
        answer = setting.client.ask(request, 9)
        return [p.error_code for p in answer.topics[0].partitions]

    stale = errors.StaleMemberEpochError.code
    assert commit(a, a.epoch) == commit(b, b.epoch) == [0, 0]
    assert commit(a, 1) == ([stale, stale] if strict else [0, 0])
    assert commit(b, 1) == [stale, stale]
    assert commit(a, a.epoch + 1) == [stale, stale]


def test_a_static_member_that_rejoins_gets_its_partitions_back(setting: Setting) -> None:
    a, b = Member(setting, "a", "i"), Member(setting, "b")
    a.join()
    b.join()
    settle(a, b)
    owned, epoch = set(a.owned), setting.group.epoch
    again = Member(setting, "a2", "i")
    assert again.join() == errors.UnreleasedInstanceIdError.code
    assert a.ask(-2).member_epoch == -2
    settle(b)
    assert again.join() == 0
    assert (again.owned, setting.group.epoch) == (owned, epoch)
    assert a.ask(epoch).error_code == errors.FencedInstanceIdError.code
    nobody = Member(setting, "n", "other")
    assert nobody.ask(3).error_code == errors.UnknownMemberIdError.code


def test_subscription_patterns_are_resolved_by_the_coordinator(setting: Setting) -> None:
    member = Member(setting, "a")
    fields = {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
    member.take(member.ask(0, subscribed_topic_regex="t.*", **fields))
    assert member.owned == set()
    setting.world.advance(0.1)
    member.beat()
    assert member.owned == {0, 1, 2, 3}
    setting.cluster.create_topic("t2", 2)
    answer = member.ask(member.epoch)
    assert len(answer.assignment.topic_partitions) == 2
    bad = Member(setting, "b").ask(0, subscribed_topic_regex="(", **fields)
    assert bad.error_code == errors.InvalidRegularExpressionError.code


def test_invalid_requests_are_refused(setting: Setting) -> None:
    member = Member(setting, "a")
    assert member.join(server_assignor="mine") == errors.UnsupportedAssignorError.code
    invalid = errors.InvalidRequestError.code
    assert member.ask(0).error_code == invalid
    assert member.ask(-3).error_code == invalid
    assert member.ask(-2).error_code == invalid
    assert member.ask(5).error_code == errors.GroupIdNotFoundError.code
    member.id = ""
    assert member.join() == invalid


def test_a_group_continues_after_its_coordinator_crashed(setting: Setting) -> None:
    a, b = pair(setting)
    owned, epoch = set(a.owned), a.epoch
    setting.cluster.crash(setting.node.id)
    setting.world.advance(3)
    setting.reconnect()
    settle(a, b)
    assert (a.owned, a.epoch) == (owned, epoch)


@pytest.mark.slow
def test_after_random_joins_and_leaves_every_partition_has_one_owner() -> None:
    for seed in range(15):
        rng = random.Random(seed)
        setting = Setting()
        members = [Member(setting, f"m{i}") for i in range(4)]
        here: list[Member] = []
        for _ in range(40):
            member = rng.choice(members)
            if member not in here:
                assert member.join(server_assignor=rng.choice(["uniform", "range"])) == 0
                here.append(member)
            elif rng.random() < 0.1:
                member.ask(-1)
                here.remove(member)
            else:
                assert member.beat() == 0
        settle(*here)
        assert sorted(p for m in here for p in m.owned) == ([0, 1, 2, 3] if here else [])


@pytest.mark.parametrize("name", ASSIGNORS)
def test_assignors_assign_each_partition_to_one_subscriber(name: str) -> None:
    rng = random.Random(5)
    target: dict[str, Any] = {}
    for _ in range(200):
        counts = {bytes([t]): rng.randint(1, 6) for t in range(rng.randint(1, 3))}
        subscriptions = {
            f"m{i}": {t: c for t, c in counts.items() if rng.random() < 0.7}
            for i in range(rng.randint(1, 5))
        }
        target = ASSIGNORS[name](subscriptions, target)
        given = sorted(place for places in target.values() for place in places)
        wanted = {t for topics in subscriptions.values() for t in topics}
        assert given == [(t, i) for t in sorted(wanted) for i in range(counts[t])]
        assert all(t in subscriptions[m] for m, places in target.items() for t, _ in places)


def test_the_uniform_assignor_moves_few_partitions() -> None:
    all_of_it = {b"t": 6}
    target = ASSIGNORS["uniform"]({"a": all_of_it, "b": all_of_it}, {})
    after = ASSIGNORS["uniform"]({"a": all_of_it, "b": all_of_it, "c": all_of_it}, target)
    assert sorted(len(p) for p in after.values()) == [2, 2, 2]
    assert after["a"] < target["a"]
    assert after["b"] < target["b"]
