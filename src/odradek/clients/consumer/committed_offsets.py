"""What a group has committed: asked of its coordinator, and told to it (OffsetFetch, OffsetCommit).

In: partitions, or offsets; who asks, at the moment the request goes out. Out: committed offsets, or
errors that say what to do. Commits go one after another, so a repeated older one never overwrites a
newer one. Must not: decide what to commit, or know callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from odradek.clients.consumer.records import OffsetAndMetadata
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
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.flow import START, Flow, Signal, Wait
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine
    from odradek.clients.coordinator import Coordinator

BATCHED_FROM = 8
"""OffsetFetch asks for several groups from this version on (KIP-709)."""
STABLE_FROM = 7
"""OffsetFetch can wait for open transactions from this version on (KIP-447)."""
INSTANCES_FROM = 7
"""OffsetCommit names static members from this version on (KIP-345)."""
TOPIC_IDS_FROM = 10
NOT_A_MEMBER = (UnknownMemberIdError, IllegalGenerationError, FencedMemberEpochError)
OVERTAKEN = (
    IllegalGenerationError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    RebalanceInProgressError,
)
"""A rebalance came between: with the new generation it may work."""


class OffsetFetchByName(OffsetFetchRequest):
    """For topics whose ids aren't known."""

    MAX_VERSION: ClassVar[int] = TOPIC_IDS_FROM - 1


class OffsetCommitByName(OffsetCommitRequest):
    """For topics whose ids aren't known."""

    MAX_VERSION: ClassVar[int] = TOPIC_IDS_FROM - 1


class Identity(NamedTuple):
    """Who commits, right now."""

    member_id: str = ""
    generation: int = -1
    """Or the member's epoch."""
    instance_id: str | None = None
    by_epoch: bool = False
    """KIP-848."""


class _OvertakenError(KafkaError):
    """The group has moved on between question and answer."""

    retriable = True


class CommittedOffsets:
    """The committed offsets of one group."""

    def __init__(
        self,
        engine: ClientEngine,
        coordinator: Coordinator,
        *,
        identity: Callable[[], Identity],
        owner: Callable[[TopicPartition], object],
        stable: bool,
    ) -> None:
        """`owner`: what stands for a partition while it is this member's, and another thing when it
        was given away and came back; `stable`: wait for open transactions that have sent offsets
        to the group.
        """
        self._engine = engine
        self._coordinator = coordinator
        self._group_id = coordinator.key
        self._identity = identity
        self._owner = owner
        self.refused: Identity | None = None
        """Who the last commit was refused to."""
        self._stable = stable
        self._busy = False
        self._free = Signal()

    # Asking

    def fetch(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata | None]]:
        """What is committed; None where nothing is."""
        wanted = _by_topic(partitions)
        if not wanted:
            yield START
            return {}
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        names: dict[bytes, str] = {}

        def body(_: float) -> OffsetFetchRequest:
            names.clear()
            names.update(self._ids(wanted))
            return self._fetch_request(wanted, names)

        def check(answer: OffsetFetchResponse) -> KafkaError | None:
            found.clear()
            return self._read(answer, names, found)

        what = f"committed offsets of group {self._group_id!r}"
        yield from self._coordinator.ask(what, body, OffsetFetchResponse, check, deadline)
        return {
            TopicPartition(topic, p): found.get(TopicPartition(topic, p))
            for topic, numbers in wanted.items()
            for p in numbers
        }

    def _ids(self, topics: Iterable[str]) -> dict[bytes, str]:
        """The topics by id; empty unless all ids are known."""
        snapshot = self._engine.metadata.snapshot
        names: dict[bytes, str] = {}
        for name in topics:
            topic = snapshot.topic(name) if snapshot is not None else None
            if topic is None or topic.topic_id == NO_ID:
                return {}
            names[topic.topic_id] = name
        return names

    def _fetch_request(
        self, wanted: Mapping[str, list[int]], names: Mapping[bytes, str]
    ) -> OffsetFetchRequest:
        ids = {name: topic_id for topic_id, name in names.items()}
        kind = OffsetFetchRequest if ids else OffsetFetchByName
        version = self._coordinator.version(kind) or 0
        stable = self._stable and version >= STABLE_FROM
        if version < BATCHED_FROM:
            topics = [OffsetFetchRequestTopic(name, p) for name, p in wanted.items()]
            return kind(self._group_id, topics, require_stable=stable)
        group = OffsetFetchRequestGroup(
            self._group_id,
            topics=[
                OffsetFetchRequestTopics(name, ids.get(name, NO_ID), numbers)
                for name, numbers in wanted.items()
            ],
        )
        who = self._identity()
        if who.by_epoch and who.generation >= 0 and version > BATCHED_FROM:
            group.member_id, group.member_epoch = who.member_id, who.generation
        return kind(groups=[group], require_stable=stable)

    def _read(
        self,
        answer: OffsetFetchResponse,
        names: Mapping[bytes, str],
        found: dict[TopicPartition, OffsetAndMetadata | None],
    ) -> KafkaError | None:
        what = f"OffsetFetch of group {self._group_id!r}"
        code = answer.error_code
        error: KafkaError | None = None
        parts = [(t.name, p) for t in answer.topics for p in t.partitions]
        for group in answer.groups:
            code = code or group.error_code
            for topic in group.topics:
                name = topic.name or names.get(topic.topic_id, "")
                parts += [(name, p) for p in topic.partitions]  # type: ignore[misc]  # same fields
        if code:
            error = error_for(code, what)
        for name, p in parts:
            tp = TopicPartition(name, p.partition_index)
            if p.error_code:
                error = _graver(error, error_for(p.error_code, f"{what}: {tp}"))
            elif p.committed_offset >= 0:
                found[tp] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
        if isinstance(
            error, StaleMemberEpochError | UnknownMemberIdError | RebalanceInProgressError
        ):
            return _OvertakenError(str(error))  # the membership sees to it
        return error

    # Telling

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> Flow[None]:
        """Commit these; raises `CommitFailedError` where this member may not (any more)."""
        now = yield START
        if not offsets:
            return
        what = f"commit to group {self._group_id!r}"
        while self._busy:
            if now >= deadline:
                raise self._engine.timeout(f"{what} (another commit is under way)", now)
            now = yield Wait((self._free,), deadline)
        self._busy = True
        try:
            yield from self._commit(what, offsets, deadline)
        finally:
            self._busy = False
            self._free.notify()

    def _commit(
        self, what: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> Flow[None]:
        wanted = _by_topic(offsets)
        names: dict[bytes, str] = {}
        sent = [self._identity()]
        held = {p: self._owner(p) for p in offsets}

        def body(_: float) -> OffsetCommitRequest:
            names.clear()
            names.update(self._ids(wanted))
            who = self._identity()
            if not self._still(sent[0], who, held):
                # Others may have read on, and committed, meanwhile.
                raise lost_membership(self._group_id, "the member was removed before it was done")
            sent[0] = who
            return self._commit_request(wanted, offsets, names, sent[0])

        def check(answer: OffsetCommitResponse) -> KafkaError | None:
            error: KafkaError | None = None
            for topic in answer.topics:
                name = topic.name or names.get(topic.topic_id, "")
                for p in topic.partitions:
                    if p.error_code:
                        tp = TopicPartition(name, p.partition_index)
                        error = _graver(error, error_for(p.error_code, f"{what}: {tp}"))
            return self._judged(error, sent[0], held)

        yield from self._coordinator.ask(what, body, OffsetCommitResponse, check, deadline)

    def _commit_request(
        self,
        wanted: Mapping[str, list[int]],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        names: Mapping[bytes, str],
        who: Identity,
    ) -> OffsetCommitRequest:
        ids = {name: topic_id for topic_id, name in names.items()}
        kind = OffsetCommitRequest if ids else OffsetCommitByName
        topics = []
        for name, numbers in wanted.items():
            parts = []
            for number in numbers:
                o = offsets[TopicPartition(name, number)]
                parts.append(
                    OffsetCommitRequestPartition(number, o.offset, o.leader_epoch, o.metadata)
                )
            topics.append(OffsetCommitRequestTopic(name, ids.get(name, NO_ID), parts))
        old = (self._coordinator.version(kind) or 0) < INSTANCES_FROM
        instance_id = None if old or not who.member_id else who.instance_id
        return kind(self._group_id, who.generation, who.member_id, instance_id, topics=topics)

    def _still(
        self, before: Identity, now: Identity, held: Mapping[TopicPartition, object]
    ) -> bool:
        """Whether it is the same member, and has had the partitions all the time."""
        if not before.member_id:
            return not now.member_id
        return now.member_id == before.member_id and all(
            self._owner(p) is owner for p, owner in held.items()
        )

    def _judged(
        self, error: KafkaError | None, sent: Identity, held: Mapping[TopicPartition, object]
    ) -> KafkaError | None:
        """What an error means for this member: again, or never."""
        if error is None or error.retriable or isinstance(error, FencedInstanceIdError):
            return error
        now = self._identity()
        kept = self._still(sent, now, held)
        moved = now.generation >= 0 and now != sent
        waiting = isinstance(error, StaleMemberEpochError | RebalanceInProgressError)
        if isinstance(error, OVERTAKEN) and kept and (moved or (waiting and now.generation >= 0)):
            return _OvertakenError(str(error))
        if isinstance(error, (*NOT_A_MEMBER, *OVERTAKEN)):
            self.refused = sent
            failed = _refusal(self._group_id, sent, error)
            failed.__cause__ = error
            return failed
        return error


def lost_membership(group_id: str, why: object) -> CommitFailedError:
    """The error of a member that is none any more: what it had may be others' by now."""
    return CommitFailedError(
        f"the commit to group {group_id!r} was refused ({why}): this consumer has lost its "
        "partitions, or they are being given to others, who begin at the last commit; records "
        "behind it may be processed twice. It joins again at the next poll(). If that comes from "
        "long work between two poll()s, raise max.poll.interval.ms or lower max.poll.records."
    )


def _refusal(group_id: str, who: Identity, error: KafkaError) -> CommitFailedError:
    if not who.member_id:
        return CommitFailedError(
            f"the commit to group {group_id!r} was refused ({error}): the group has members that "
            "subscribe(), and this consumer isn't one of them. Stop them first, or use another "
            "group.id."
        )
    return lost_membership(group_id, error)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    wanted: dict[str, list[int]] = {}
    for partition in partitions:
        wanted.setdefault(partition.topic, []).append(partition.partition)
    return wanted


def _graver(before: KafkaError | None, error: KafkaError) -> KafkaError:
    """The one that counts: of several, one that can't be retried."""
    if before is None or (before.retriable and not error.retriable):
        return error
    return before
