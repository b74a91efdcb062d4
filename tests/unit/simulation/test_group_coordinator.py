from __future__ import annotations

from typing import Any

import pytest
from tests.unit.simulation.raw_client import RawClient

from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.messages import join_group as j
from odradek.protocol.messages import leave_group as lg
from odradek.protocol.messages import offset_commit as oc
from odradek.protocol.messages import offset_fetch as of
from odradek.protocol.messages import sync_group as sg
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.coordinators.shards import GROUP

GROUP_ID = "g"


class Setting:
    """Three brokers, topic t, and raw clients of the group's coordinator, one for each member."""

    def __init__(self) -> None:
        self.world = World(11)
        self.cluster = SimulatedCluster(self.world, 3)
        self.topic = self.cluster.create_topic("t", 3)
        self.groups = self.cluster.coordinators[GROUP]
        self.groups.create()
        self.index = self.groups.index(GROUP_ID)

    @property
    def node(self) -> int:
        """Return the id of the broker that coordinates the group."""
        return self.cluster.topics["__consumer_offsets"].partitions[self.index].leader

    def client(self) -> Any:
        """Return a client that is connected to the coordinator."""
        made = RawClient(self.world)
        made.dial(self.cluster.brokers[self.node].address.host)
        return made

    def fail_over(self) -> None:
        """Kill the coordinator and wait for the next one."""
        self.cluster.crash(self.node)
        self.world.advance(self.cluster.session_timeout + 0.2)


class Member:
    """A member of a classic group that sends a request only when a test asks for it."""

    def __init__(self, setting: Setting, instance_id: str | None = None) -> None:
        self.setting = setting
        self.client = setting.client()
        self.id = ""
        self.instance_id = instance_id
        self.generation = -1

    def send_join(self, *protocols: str, version: int = 9, **fields: Any) -> None:
        self.client.send(
            j.JoinGroupRequest(
                GROUP_ID,
                fields.get("session", 10_000),
                fields.get("rebalance", 20_000) if version >= 1 else -1,
                self.id,
                self.instance_id if version >= 5 else None,
                "consumer",
                [j.JoinGroupRequestProtocol(p, p.encode()) for p in protocols or ("range",)],
            ),
            version,
        )

    def joined(self) -> Any:
        """Wait for the response to a JoinGroup request, and return it."""
        seen = len(self.client.answers)
        if not seen or not isinstance(self.client.answers[-1][1], j.JoinGroupResponse):
            self.setting.world.run_while(lambda: len(self.client.answers) == seen, 60.0)
        answer = self.client.answers[-1][1]
        self.client.answers.clear()
        if answer.member_id:
            self.id = answer.member_id
        self.generation = answer.generation_id
        return answer

    def join(self, *protocols: str, version: int = 9, **fields: Any) -> Any:
        """Join, and join again with the member id of the first response."""
        self.client.answers.clear()
        self.send_join(*protocols, version=version, **fields)
        answer = self.joined()
        if answer.error_code == errors.MemberIdRequiredError.code:
            self.send_join(*protocols, version=version, **fields)
            answer = self.joined()
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> Any:
        """Send SyncGroup: with assignments as the leader, without them as a follower."""
        request = sg.SyncGroupRequest(
            GROUP_ID,
            self.generation,
            self.id,
            self.instance_id if version >= 3 else None,
            assignments=[
                sg.SyncGroupRequestAssignment(k, v) for k, v in (assignments or {}).items()
            ],
        )
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        return self.client.ask(request, version, wait=30.0)

    def heartbeat(self, version: int = 4) -> int:
        """Send a heartbeat and return the response's error code."""
        request = HeartbeatRequest(GROUP_ID, self.generation, self.id)
        if version >= 3:
            request.group_instance_id = self.instance_id
        return int(self.client.ask(request, version).error_code)

    def leave(self, version: int = 5) -> Any:
        """Leave the group."""
        if version < 3:
            return self.client.ask(lg.LeaveGroupRequest(GROUP_ID, self.id), version)
        one = lg.MemberIdentity(self.id, self.instance_id)
        return self.client.ask(lg.LeaveGroupRequest(GROUP_ID, members=[one]), version)

    def commit(self, offset: int, version: int = 9, generation: int | None = None) -> int:
        """Commit an offset of t-0 and return the response's error code."""
        request = oc.OffsetCommitRequest(
            GROUP_ID, self.generation if generation is None else generation, self.id
        )
        if version >= 7:
            request.group_instance_id = self.instance_id
        topic = oc.OffsetCommitRequestTopic(
            "t" if version < 10 else "",
            self.setting.topic.id if version >= 10 else bytes(16),
            [oc.OffsetCommitRequestPartition(0, offset, committed_metadata="m")],
        )
        request.topics = [topic]
        answer = self.client.ask(request, version)
        return int(answer.topics[0].partitions[0].error_code)

    def committed(self, version: int = 9, *, stable: bool = False) -> tuple[int, int]:
        """Fetch the committed offset of t-0; return the error code and the offset."""
        request = of.OffsetFetchRequest()
        if version >= 7:
            request.require_stable = stable
        if version >= 8:
            topic = of.OffsetFetchRequestTopics(
                "t" if version < 10 else "",
                self.setting.topic.id if version >= 10 else bytes(16),
                [0],
            )
            request.groups = [of.OffsetFetchRequestGroup(GROUP_ID, topics=[topic])]
            request.topics = []
            found = self.client.ask(request, version).groups[0]
        else:
            request.group_id = GROUP_ID
            request.topics = [of.OffsetFetchRequestTopic("t", [0])]
            found = self.client.ask(request, version)
        part = found.topics[0].partitions[0]
        return part.error_code, part.committed_offset


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.fixture
def pair(setting: Setting) -> tuple[Member, Member]:
    """Return the two members of a stable group; the first is the leader."""
    first, second = Member(setting), Member(setting)
    first.join()
    first.sync({first.id: b"all"})
    stabilise(first, second)
    return first, second


def stabilise(first: Member, second: Member) -> None:
    """Let both members rejoin and send SyncGroup, so that the group is stable again."""
    second.client.answers.clear()
    second.send_join()
    if second.joined().error_code:
        second.send_join()
    second.setting.world.advance(0.01)
    first.join()
    assert second.joined().error_code == 0
    second.client.send(
        sg.SyncGroupRequest(GROUP_ID, second.generation, second.id, None, "consumer", "range"), 5
    )
    assert first.sync({first.id: b"one", second.id: b"two"}).assignment == b"one"
    first.setting.world.advance(0.01)
    assert second.client.answers[-1][1].assignment == b"two"


def test_members_join_with_an_assigned_id(setting: Setting) -> None:
    member = Member(setting)
    member.send_join()
    answer = member.joined()
    assert answer.error_code == errors.MemberIdRequiredError.code
    assert answer.member_id
    answer = member.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, member.id)
    assert [m.metadata for m in answer.members] == [b"range"]
    assert member.sync({member.id: b"mine"}).assignment == b"mine"
    assert member.heartbeat() == 0


@pytest.mark.parametrize("version", range(10))
def test_members_join_commit_and_leave_with_every_request_version(
    setting: Setting, version: int
) -> None:
    member = Member(setting)
    answer = member.join(version=version)
    assert (answer.error_code, answer.leader, len(answer.members)) == (0, member.id, 1)
    assert member.sync({member.id: b"mine"}, min(version, 5)).assignment == b"mine"
    assert member.heartbeat(min(version, 4)) == 0
    assert member.commit(7, max(2, version)) == 0
    assert member.committed(max(1, version)) == (0, 7)
    left = member.leave(min(version, 5))
    assert left.error_code == 0
    assert [m.error_code for m in left.members] == [0] * (version >= 3)
    assert member.heartbeat(min(version, 4)) == errors.UnknownMemberIdError.code


def test_the_latest_request_versions_use_topic_ids(setting: Setting) -> None:
    member = Member(setting)
    member.join()
    member.sync({})
    assert member.commit(3, 10) == 0
    assert member.committed(10) == (0, 3)
    setting.topic.id = bytes([9]) * 16
    assert member.commit(3, 10) == errors.UnknownTopicIdError.code
    assert member.committed(10) == (errors.UnknownTopicIdError.code, -1)


def test_a_join_starts_a_rebalance_of_all_members(pair: tuple[Member, Member]) -> None:
    first, second = pair
    third = Member(first.setting)
    third.send_join("range", "other")
    third.joined()
    third.send_join("range", "other")
    first.setting.world.advance(0.01)
    assert first.heartbeat() == second.heartbeat() == errors.RebalanceInProgressError.code
    assert first.sync().error_code == errors.RebalanceInProgressError.code
    second.send_join()
    first.join()
    assert second.joined().generation_id == third.joined().generation_id == first.generation == 3


def test_a_member_that_does_not_rejoin_is_removed(pair: tuple[Member, Member]) -> None:
    first, second = pair
    second.send_join("range", "more")
    for _ in range(5):
        first.setting.world.advance(4.1)
        if first.heartbeat() != errors.RebalanceInProgressError.code:
            break
    answer = second.joined()
    assert (answer.generation_id, answer.leader) == (3, second.id)
    assert first.heartbeat() == errors.UnknownMemberIdError.code


def test_a_member_without_heartbeats_is_removed(pair: tuple[Member, Member]) -> None:
    first, second = pair
    for _ in range(3):
        first.setting.world.advance(4.0)
        code = first.heartbeat()
    assert code == errors.RebalanceInProgressError.code
    assert first.join().generation_id == 3
    assert second.heartbeat() == errors.UnknownMemberIdError.code


def test_wrong_generations_and_member_ids_are_rejected(pair: tuple[Member, Member]) -> None:
    first, second = pair
    assert first.commit(1, generation=1) == errors.IllegalGenerationError.code
    assert first.commit(1, generation=-1) == errors.IllegalGenerationError.code
    first.generation -= 1
    assert first.heartbeat() == errors.IllegalGenerationError.code
    assert first.join("roundrobin").error_code == errors.InconsistentGroupProtocolError.code
    assert second.join(session=10).error_code == errors.InvalidSessionTimeoutError.code
    second.id = "nobody"
    assert second.heartbeat() == errors.UnknownMemberIdError.code
    assert second.join().error_code == errors.UnknownMemberIdError.code
    assert second.commit(1) == errors.UnknownMemberIdError.code


def test_a_client_that_is_not_a_member_may_commit_only_if_the_group_is_empty(
    setting: Setting,
) -> None:
    stranger, member = Member(setting), Member(setting)
    assert stranger.commit(5) == 0
    assert stranger.committed() == (0, 5)
    member.join()
    assert stranger.commit(6) == errors.UnknownMemberIdError.code
    assert member.commit(6) == errors.RebalanceInProgressError.code
    member.sync({})
    assert member.commit(6) == 0


def test_static_members_rejoin_without_a_rebalance(setting: Setting) -> None:
    old, new = Member(setting, "i"), Member(setting, "i")
    assert old.join().error_code == 0
    old.sync({old.id: b"mine"})
    answer = new.join()
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert (answer.leader, answer.skip_assignment) == (new.id, True)
    assert new.id != old.id
    assert new.sync().assignment == b"mine"
    assert old.heartbeat() == errors.FencedInstanceIdError.code
    assert old.commit(1) == errors.FencedInstanceIdError.code
    old_version = Member(setting, "i")
    answer = old_version.join(version=8)
    assert answer.leader == new.id


def test_a_new_group_may_wait_for_members(setting: Setting) -> None:
    setting.cluster.group_settings.initial_rebalance_delay = 3.0
    first, second = Member(setting), Member(setting)
    for member in (first, second):
        member.send_join()
        member.joined()
        member.send_join()
        setting.world.advance(1.0)
    assert first.client.answers == []
    assert first.joined().generation_id == second.joined().generation_id == 1
    assert setting.world.now >= 6.0


def test_a_group_continues_after_its_coordinator_has_crashed(pair: tuple[Member, Member]) -> None:
    first, second = pair
    setting = first.setting
    assert first.commit(5) == 0
    setting.fail_over()
    for member in pair:
        member.client = setting.client()
    assert first.heartbeat() == second.heartbeat() == 0
    assert first.committed() == (0, 5)
    assert first.sync().assignment == b"one"


def test_waiting_joins_fail_when_the_coordinator_moves(pair: tuple[Member, Member]) -> None:
    first, second = pair
    second.send_join("range", "more")
    first.setting.world.advance(0.01)
    first.setting.cluster.move_leader("__consumer_offsets", first.setting.index)
    assert second.joined().error_code == errors.NotCoordinatorError.code
    assert first.heartbeat() == errors.NotCoordinatorError.code
    assert first.commit(1) == errors.NotCoordinatorError.code


def test_offsets_of_a_transaction_are_unstable_until_the_transaction_ends(setting: Setting) -> None:
    member = Member(setting)
    heard: list[Any] = []

    def begin(producer_id: int, offset: int) -> None:
        shard = setting.groups.shard(setting.cluster.brokers[setting.node], GROUP_ID)
        shard.commit_in_transaction(
            GROUP_ID, ("", -1, None), producer_id, 0,
            {TopicPartition("t", 0): Committed(offset)}, heard.append,
        )  # fmt: skip
        setting.world.advance(0.1)

    def end(producer_id: int, *, commit: bool) -> None:
        shard = setting.groups.shard(setting.cluster.brokers[setting.node], GROUP_ID)
        shard.end_transaction(producer_id, commit, heard.append)
        setting.world.advance(0.1)

    member.commit(1)
    begin(7, 10)
    assert member.committed() == (0, 1)
    assert member.committed(stable=True) == (errors.UnstableOffsetCommitError.code, -1)
    setting.fail_over()
    member.client = setting.client()
    assert member.committed(stable=True)[0] == errors.UnstableOffsetCommitError.code
    end(7, commit=True)
    assert member.committed(stable=True) == (0, 10)
    begin(8, 20)
    end(8, commit=False)
    assert member.committed(stable=True) == (0, 10)
    assert heard == [None, True, None, True]
