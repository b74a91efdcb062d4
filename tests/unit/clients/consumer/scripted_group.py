"""A scripted coordinator of a KIP-848 group, and a fake of the consumer's `Group`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, cast

from tests.spec.world import ClusterPicture, World, up

from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.group.consumer_membership import ConsumerMembership
from odradek.clients.consumer.group.membership import Group, MemberState, PollOverdueError
from odradek.clients.consumer.group.topic_names import TopicNames
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.sampled import Sampled
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Flow, Signal, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from odradek.protocol.messages.find_coordinator import Coordinator as Found
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

B1 = "b1:9092"
IDS = {name: name.encode().ljust(16, b"\1") for name in ("orders", "users")}
S = MemberState
Reply = ConsumerGroupHeartbeatResponse | int


def part(name: str) -> TopicPartition:
    topic, _, number = name.partition("-")
    return TopicPartition(topic, int(number))


def assigns(epoch: int, **topics: list[int]) -> ConsumerGroupHeartbeatResponse:
    """Build a response with an assignment."""
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5000,
        assignment=Assignment(
            [
                ConsumerGroupHeartbeatResponseTopicPartitions(IDS[name], numbers)
                for name, numbers in topics.items()
            ]
        ),
    )


class Scripted(World):
    """A broker that sends prepared responses, and a fake of the consumer's group object."""

    def __init__(
        self, config: dict[str, Any] | None = None, *, version: int = 1, pattern: str | None = None
    ) -> None:
        options = {"group.id": "g", "group.protocol": "consumer", **(config or {})}
        super().__init__({"bootstrap.servers": B1, **options})
        self.picture = ClusterPicture(
            brokers={1: B1}, topics={"orders": [1] * 4, "users": [1] * 4}, ids=dict(IDS)
        )
        self.pictures["*"] = self.picture
        up(self, B1)
        self.version = version
        self.spoken = {10: (0, 6)} | ({68: (0, version)} if version >= 0 else {})
        self.replies: list[Reply] = []
        """Responses or errors for the next heartbeats; afterwards heartbeats succeed."""
        self.log: list[str] = []
        """Calls that the member made on this fake group object."""
        self.failure: KafkaError | None = None
        self.trouble: KafkaError | None = None
        """Error that the next revocation raises."""
        self.held_up = False
        """True if revocations wait, because the application doesn't poll."""
        self.silent_until = 0.0
        # Attributes of the fake group
        self.group_id = "g"
        self.instance_id: str | None = options.get("group.instance.id")
        self.pattern = pattern
        self.subscribed = ["orders"]
        self.partitions: dict[TopicPartition, None] = {}
        self.last_poll: float | None = None
        """Time of the last poll; None while the application is inside `poll()`."""
        self.poll_wanted = Signal()
        self.heartbeats = Sampled()
        self.coordinator = Coordinator(self.engine.brokers, CoordinatorKind.GROUP, "g")
        self.by_epoch = True
        self.membership = ConsumerMembership(
            cast("Group", self),
            self.engine,
            self.engine.metadata,
            self.engine.rng,
            TopicNames(self.engine.brokers),
        )

    # Methods that the member calls

    @property
    def config(self) -> Config:
        return cast("ConsumerEngine", self.engine).config

    @property
    def polled_at(self) -> float:
        return self.now if self.last_poll is None else self.last_poll

    def topics(self) -> list[str]:
        return self.subscribed

    def list_again(self) -> None: ...

    def owned(self) -> list[TopicPartition]:
        return list(self.partitions)

    def revoke(self, partitions: Collection[TopicPartition]) -> Flow[float]:
        now = yield START
        self._note("revoking", partitions)
        if self.trouble is not None:
            raise self.trouble
        while self.held_up:
            until = self.polled_at + self.config["max.poll.interval.ms"]
            if now >= until:
                raise PollOverdueError("no poll in time")
            now = yield Wait((self.poll_wanted,), until)
        self._drop("revoked", partitions)
        return now

    def lose(self, partitions: Collection[TopicPartition], *, taken: bool = True) -> Flow[float]:
        now = yield START
        self._drop("lost", partitions)
        return now

    def assign(self, partitions: Collection[TopicPartition], ids: Any = None) -> Flow[float]:
        now = yield START
        self._note("assigned", partitions)
        self.partitions.update(dict.fromkeys(partitions))
        return now

    def assigned_nothing(self) -> None:
        """Do nothing; only the real group notes an empty assignment."""

    def unsettled(self, since: float) -> None:
        """Do nothing; only the real group logs a warning."""

    def settled(self, now: float) -> None:
        """Do nothing, as in `unsettled`."""

    def failed(self, error: KafkaError) -> None:
        self.failure = error

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.log.append(f"{what} {' '.join(sorted(map(str, partitions)))}")

    def _drop(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self._note(what, partitions)
        for partition in partitions:
            del self.partitions[partition]

    # Responses that the scripted broker sends

    def answer(self, address: str, body: Any) -> Message | Literal["silence"] | None:
        if isinstance(body, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[Found("g", 1, "x", 1)])
        if isinstance(body, ConsumerGroupHeartbeatRequest):
            return self._beat(body)
        if isinstance(body, MetadataRequest) and body.topics and body.topics[0].name is None:
            return self._by_id(body)
        return None

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> Message | Literal["silence"]:
        if self.now < self.silent_until:
            return "silence"
        reply: Reply = self.replies.pop(0) if self.replies else 0
        if isinstance(reply, int):
            epoch = request.member_epoch or 1
            return ConsumerGroupHeartbeatResponse(
                error_code=reply, member_epoch=epoch, heartbeat_interval_ms=5000
            )
        return reply

    def _by_id(self, request: MetadataRequest) -> MetadataResponse:
        by_id = {topic_id: name for name, topic_id in self.picture.ids.items()}
        found = [
            MetadataResponseTopic(
                0 if t.topic_id in by_id else 100, by_id.get(t.topic_id), t.topic_id
            )
            for t in request.topics or []
        ]
        brokers = [MetadataResponseBroker(0, "broker-0", 9092)]
        return MetadataResponse(cluster_id="cluster-1", brokers=brokers, topics=found)

    # Helpers that tests call

    def join(self, *replies: Reply, until: float = 1.0) -> None:
        self.replies = list(replies)
        self.engine.metadata.want(self.subscribed)
        self.engine.post(self.membership.start)
        self.run(self.now + until)

    @property
    def beats(self) -> list[ConsumerGroupHeartbeatRequest]:
        return [a.body for a in self.asks("ConsumerGroupHeartbeat")]

    def fall_silent(self, seconds: float) -> None:
        self.silent_until = self.now + seconds
        self.run(self.silent_until)

    def till(self, condition: Callable[[], bool], within: float = 20.0) -> None:
        self.run(self.now + within, condition)
        assert condition(), f"not within {within} s: {self.log}, {self.membership.state}"

    def leave(self) -> None:
        done = self.engine.start(self.membership.leave(self.now + 5.0))
        self.till(lambda: done.done)
        done.result()

    @property
    def state(self) -> str:
        return self.membership.state

    def states(self) -> list[str]:
        return [e.fields["state"] for e in self.kinds("group") if e.fields["what"] == "g"]

    def sent(self, request: ConsumerGroupHeartbeatRequest) -> dict[str, list[int]] | None:
        """Return the partitions that a heartbeat reports as owned."""
        if request.topic_partitions is None:
            return None
        names = {topic_id: name for name, topic_id in IDS.items()}
        return {names[t.topic_id]: t.partitions for t in request.topic_partitions}
