"""What a group has committed: asked of its coordinator, and told to it (OffsetFetch, OffsetCommit).

In: partitions, or offsets; who asks, at the moment the request goes out. Out: committed offsets, or
errors that say what to do. Commits go one after another (`commit_queue`), and what the group took
of one isn't sent again when the rest is. Must not: decide what to commit, or know callbacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from odradek.clients.consumer.group.commit_queue import CommitQueue
from odradek.clients.consumer.group.offset_lookup import (
    AgainError,
    GroupIdentity,
    OffsetLookup,
    OnOffset,
    by_topic,
    graver,
)
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.refusal_words import of_offset
from odradek.common.errors import CommitFailedError, KafkaError
from odradek.common.kafka_errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    error_for,
)
from odradek.common.sampled import Sampled
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID, Cluster
from odradek.network.flow import START, Flow, Wait
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine
    from odradek.clients.coordinator import Coordinator

INSTANCES_FROM = 7
"""OffsetCommit names static members from this version on (KIP-345)."""
TOPIC_IDS_FROM = 10
UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN = (UNKNOWN_TOPIC_OR_PARTITION, 100)
"""And UNKNOWN_TOPIC_ID."""
UNKNOWN_FOR = 5.0
"""Seconds for which a commit asks for a topic that its coordinator doesn't know: it may be new.
Other commits wait for it, so not for as long as its caller would wait."""
FORGOTTEN_AFTER = 30.0
"""Seconds after which a topic that nobody has met as unknown may be new again."""
Accepted = Callable[[TopicPartition, OffsetAndMetadata], object]
NOT_A_MEMBER = (UnknownMemberIdError, IllegalGenerationError, FencedMemberEpochError)
OVERTAKEN = (
    IllegalGenerationError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    RebalanceInProgressError,
)
"""A rebalance came between: with the new generation it may work."""


class OffsetCommitByName(OffsetCommitRequest):
    """For topics whose ids aren't known."""

    MAX_VERSION: ClassVar[int] = TOPIC_IDS_FROM - 1


class CommittedOffsets:
    """The committed offsets of one group."""

    def __init__(
        self,
        engine: ClientEngine,
        coordinator: Coordinator,
        *,
        identity: Callable[[], GroupIdentity],
        owner: Callable[[TopicPartition], object],
    ) -> None:
        """`owner`: an object for a partition while it is this member's, and another object after it
        was given away and came back.
        """
        self._engine = engine
        self.coordinator = coordinator
        self.group_id = coordinator.key
        self.identity = identity
        self.owner = owner
        self.refused: GroupIdentity | None = None
        """Who the last commit was refused to."""
        self.latency = Sampled()
        """Seconds from a commit to its answer."""
        self._queue = CommitQueue()
        self._unknown: dict[str, tuple[float, float]] = {}
        """When a topic was first and last met as unknown: of commits in a row only one waits."""

    @property
    def now(self) -> float:
        """The engine's time."""
        return self._engine.now

    # Asking

    def fetch(
        self, partitions: Iterable[TopicPartition], deadline: float, *, told: OnOffset | None = None
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata | None]]:
        """What is committed; None where nothing is. Offsets of open transactions are waited for.

        `told` hears of each partition as soon as something is known of it: also where others wait
        or are refused. Of its offset, of an error for good, or of one that is asked through. What
        it no longer wants isn't asked for again, and isn't in what is given.
        """
        return OffsetLookup(self, partitions, told).run(deadline)

    def ids(self, topics: Iterable[str]) -> dict[bytes, str]:
        """The topics by id; empty unless all ids are known."""
        return (self._engine.metadata.snapshot or Cluster()).names_by_id(topics)

    # Telling

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: float,
        *,
        accepted: Accepted | None = None,
        unknown_for: float = UNKNOWN_FOR,
    ) -> Flow[None]:
        """Commit these; raises `CommitFailedError` where this member may not (any more).

        It is the member's of this moment, not of the one when its turn comes. `accepted` is told
        of each partition that the group took, also where others fail.
        """
        if not offsets:
            return
        commit = _Commit(self, offsets, accepted)
        commit.unknown_for = unknown_for
        turn = self._queue.enter()
        try:
            now = yield START
            while not turn.done:
                if now >= deadline:
                    what = f"{commit.what} (another commit is under way)"
                    raise self._engine.timeout(what, now)
                now = yield Wait((turn,), deadline)
            yield from commit.run(deadline)
        finally:
            self._queue.leave(turn)

    def unknown_for(self, topics: Iterable[str]) -> float:
        """How long all of these have been unknown to the coordinator, up to now."""
        now, since = self.now, -math.inf
        for topic in topics:
            first, last = self._unknown.get(topic, (now, now))
            if now - last > FORGOTTEN_AFTER:
                first = now
            self._unknown[topic] = (first, now)
            since = max(since, first)
        return now - since

    def known(self, topic: str) -> None:
        """The coordinator knows it."""
        if self._unknown:
            self._unknown.pop(topic, None)

    def commit_request(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        names: Mapping[bytes, str],
        who: GroupIdentity,
    ) -> OffsetCommitRequest:
        """The request, in the version of the connection that it goes out on."""
        ids = {name: topic_id for topic_id, name in names.items()}
        kind = OffsetCommitRequest if ids else OffsetCommitByName
        topics = []
        for name, numbers in by_topic(offsets).items():
            parts = []
            for number in numbers:
                o = offsets[TopicPartition(name, number)]
                parts.append(
                    OffsetCommitRequestPartition(number, o.offset, o.leader_epoch, o.metadata)
                )
            topics.append(OffsetCommitRequestTopic(name, ids.get(name, NO_ID), parts))
        old = (self.coordinator.version(kind) or 0) < INSTANCES_FROM
        instance_id = None if old or not who.member_id else who.instance_id
        return kind(self.group_id, who.generation, who.member_id, instance_id, topics=topics)


class _Commit:
    """One commit: who asked for it, and what of it the group hasn't taken yet."""

    unknown_for = UNKNOWN_FOR

    def __init__(
        self,
        stored: CommittedOffsets,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        accepted: Accepted | None,
    ) -> None:
        self._stored = stored
        self.what = f"commit to group {stored.group_id!r}"
        self._count = len(offsets)
        self._left = dict(offsets)
        self._accepted = accepted
        self._sent = stored.identity()
        self._held = {p: stored.owner(p) for p in offsets}
        self._names: dict[bytes, str] = {}
        self._asked_at = 0.0

    def run(self, deadline: float) -> Flow[None]:
        """Ask until all is taken, or some of it can't be."""
        if not self._still(self._stored.identity()):
            raise self._removed()
        ask = self._stored.coordinator.ask
        yield from ask(
            self.what, self._body, OffsetCommitResponse, self._read, deadline, ordered=True
        )

    def _body(self, _: float) -> OffsetCommitRequest:
        self._asked_at = self._stored.now
        self._names = self._stored.ids({p.topic: None for p in self._left})
        who = self._stored.identity()
        if not self._still(who):
            raise self._removed()
        self._sent = who
        return self._stored.commit_request(self._left, self._names, who)

    def _read(self, answer: OffsetCommitResponse) -> KafkaError | None:
        now = self._stored.now
        self._stored.latency.record(now - self._asked_at, now)
        error: KafkaError | None = None
        unknown: set[str] | None = set()
        """None: there are other errors as well."""
        for topic in answer.topics:
            name = topic.name or self._names.get(topic.topic_id, "")
            for p in topic.partitions:
                tp = TopicPartition(name, p.partition_index)
                if p.error_code:
                    refusal = error_for(
                        p.error_code,
                        of_offset(p.error_code, f"{self.what}: {tp}", self._left.get(tp)),
                    )
                    error = graver(error, refusal.needing("READ", name, "topic"))
                    if unknown is not None and p.error_code in UNKNOWN:
                        unknown.add(name)
                    else:
                        unknown = None
                elif tp in self._left:
                    offset = self._left.pop(tp)
                    self._stored.known(name)
                    if self._accepted is not None:
                        self._accepted(tp, offset)
        if error is None and self._left:
            return AgainError(f"{self.what}: the answer leaves {next(iter(self._left))} out")
        if unknown:
            self._wait_for(unknown)
        return self._judged(error)

    def _wait_for(self, topics: set[str]) -> None:
        """A new topic is known to its coordinator soon, one that was deleted never is; raises."""
        if self._stored.unknown_for(topics) < self.unknown_for:
            return
        done = self._count - len(self._left)
        rest = f"; the other {done} partitions are committed" if done else ""
        raise error_for(
            UNKNOWN_TOPIC_OR_PARTITION,
            f"{self.what}: the cluster has no topic {', '.join(sorted(topics))} (any more), or not "
            f"these partitions of it: {', '.join(map(str, list(self._left)[:5]))}{rest}",
        )

    def _still(self, now: GroupIdentity) -> bool:
        """Whether it is the same member, and has had the partitions all the time."""
        if not self._sent.member_id:
            return not now.member_id
        return now.member_id == self._sent.member_id and all(
            self._stored.owner(p) is self._held[p] for p in self._left
        )

    def _removed(self) -> CommitFailedError:
        # Others may have read on, and committed, meanwhile.
        return lost_membership(self._stored.group_id, "the member was removed before it was done")

    def _judged(self, error: KafkaError | None) -> KafkaError | None:
        """What an error means for this member: again, or never."""
        if error is None or error.retriable or isinstance(error, FencedInstanceIdError):
            return error
        now, sent = self._stored.identity(), self._sent
        # While a join is out, its answer settles it: the group may have gone on to the generation
        # in which this member keeps its partitions, and a commit beside the join heard of it first.
        moved = now.generation >= 0 and (now.joining or now != sent)
        waiting = isinstance(error, StaleMemberEpochError | RebalanceInProgressError)
        again = moved or (waiting and now.generation >= 0)
        if isinstance(error, OVERTAKEN) and self._still(now) and again:
            return AgainError(str(error))
        if isinstance(error, (*NOT_A_MEMBER, *OVERTAKEN)):
            self._stored.refused = sent
            failed = _refusal(self._stored.group_id, sent, error)
            failed.__cause__ = error
            return failed
        return error


def lost_membership(group_id: str, why: object) -> CommitFailedError:
    """The error of a member that is none any more: what it had may be others' by now."""
    return CommitFailedError(
        f"the commit to group {group_id!r} was refused ({why}): this consumer has lost its "
        "partitions, or they are being given to others, who begin at the last commit; records "
        "after it may be processed twice. It joins again at the next poll(). If that comes from "
        "long work between two poll()s, raise max.poll.interval.ms or lower max.poll.records; in "
        "an event loop, what blocks it goes to asyncio.to_thread()."
    )


def _refusal(group_id: str, who: GroupIdentity, error: KafkaError) -> CommitFailedError:
    if not who.member_id:
        return CommitFailedError(
            f"the commit to group {group_id!r} was refused ({error}): the group has members that "
            "subscribe(), and this consumer isn't one of them. Stop them first, or use another "
            "group.id."
        )
    return lost_membership(group_id, error)
