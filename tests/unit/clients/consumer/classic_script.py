"""A scripted coordinator of a classic group, and a fake of the consumer's `Group`.

A test sets the next responses and the other members, and checks requests and calls of the group.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from tests.spec.world import ClusterPicture, World, up

from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.group.assignors import MemberSubscription
from odradek.clients.consumer.group.classic_membership import ClassicMembership
from odradek.clients.consumer.group.embedded_protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.clients.consumer.group.membership import Group, PollOverdueError
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.errors import KafkaError
from odradek.common.sampled import Sampled
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow, Signal, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
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
VERSIONS = {10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 5}
SESSION, HEARTBEAT, MAX_POLL = 10.0, 1.0, 30.0
UNKNOWN, ILLEGAL, REBALANCE, FENCED = 25, 22, 27, 82


def parts(*names: str) -> list[TopicPartition]:
    return [TopicPartition(n[0], int(n[1:])) for n in names]


class FakeGroup:
    """A fake of the consumer's group; its application polls when asked to, unless `busy`."""

    def __init__(self, world: Script) -> None:
        self.engine = world.consumer
        self.config = self.engine.config
        self.group_id = "g"
        self.instance_id: str | None = self.config["group.instance.id"]
        self.coordinator = Coordinator(self.engine.brokers, CoordinatorKind.GROUP, "g")
        self.pattern = None
        self.by_epoch = False
        self.poll_wanted = Signal()
        self.heartbeats = Sampled()
        self.subscribed = ["t"]
        self.mine: list[TopicPartition] = []
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.error: KafkaError | None = None
        self.complaints: list[KafkaError] = []
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

    def list_again(self) -> None: ...

    def owned(self) -> list[TopicPartition]:
        return sorted(self.mine)

    def _drop(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((what, sorted(partitions)))
        self.mine = [p for p in self.mine if p not in set(partitions)]
        self.engine.subscription.drop(partitions)

    def revoke(self, partitions: Collection[TopicPartition]) -> Flow[float]:
        now = yield START
        until = now + self.revoke_takes
        while now < until or self.busy_since is not None:
            if self.busy_since is not None and now >= self.busy_since + MAX_POLL:
                raise PollOverdueError("busy")
            wake = self.busy_since + MAX_POLL if self.busy_since is not None else until
            now = yield Wait((self.poll_wanted,), max(now + 0.01, min(wake, max(until, now + 0.5))))
        self._drop("revoke", partitions)
        return now

    def lose(self, partitions: Collection[TopicPartition], *, taken: bool = True) -> Flow[float]:
        now = yield START
        self._drop("lose", partitions)
        return now

    def assign(self, partitions: Collection[TopicPartition], ids: Any = None) -> Flow[float]:
        now = yield START
        assert not set(partitions) & set(self.mine)
        self.calls.append(("assign", sorted(partitions)))
        self.mine += partitions
        self.engine.subscription.add(partitions, {})
        return now

    def failed(self, error: KafkaError) -> None:
        self.error = error

    def assigned_nothing(self) -> None:
        raise AssertionError("on_assigned tells members of classic groups")

    def unsettled(self, since: float) -> None:
        """Do nothing; only the real group logs a warning."""

    def settled(self, now: float) -> None:
        """Do nothing, as in `unsettled`."""

    def complain(self, error: KafkaError) -> None:
        self.complaints.append(error)


class Script(World):
    """One broker that coordinates a group; the test defines the other members."""

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
        self.spoken = {key: (0, newest) for key, newest in VERSIONS.items()}
        self.codes: dict[str, list[int]] = {}
        self.generation = 0
        self.members: dict[str, JoinGroupResponseMember] = {}
        self.leader: str | None = None
        self.given: list[str] | None = None
        """The partitions in the next SyncGroup responses if another member leads."""
        self.skip = False
        self.consumer = engine = cast("ConsumerEngine", self.engine)
        self.group = FakeGroup(self)
        self.membership = ClassicMembership(
            cast("Group", self.group), engine, engine.metadata, engine.rng, engine.subscription
        )

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

    def answer(self, address: str, body: Any) -> Message | None:
        code = 0
        if (codes := self.codes.get(getattr(body, "API_NAME", ""))) and codes:
            code = codes.pop(0)
        if isinstance(body, FindCoordinatorRequest):
            if self.spoken[10][1] < 4:
                return FindCoordinatorResponse(0, code, node_id=1, host="b1", port=9092)
            return FindCoordinatorResponse(coordinators=[Found("g", 1, "b1", 9092, code)])
        if isinstance(body, JoinGroupRequest):
            return self._join(body, code)
        if isinstance(body, SyncGroupRequest):
            return self._sync(body, code)
        if isinstance(body, HeartbeatRequest):
            return HeartbeatResponse(error_code=code)
        if isinstance(body, LeaveGroupRequest):
            return LeaveGroupResponse(error_code=code)
        if isinstance(body, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=[DescribedGroup(code, group_state="Stable")])
        return None

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

    # Helpers for assertions

    @property
    def state(self) -> str:
        return self.membership.state.value

    def bodies(self, api: str) -> list[Any]:
        return [a.body for a in self.asks(api)]

    def withheld(self) -> int:
        """Return the number of partitions whose records are withheld from the application."""
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
