"""Look up a group's committed offsets (OffsetFetch), partition by partition.

In: partitions; the member's identity when a request is sent. Out: each partition's offset as soon
as a response has it, or its error. Known offsets aren't requested again. Offsets that an open
transaction has sent are waited for, whatever the isolation.level (KIP-447, as in Java's consumer):
a member that started at the offset before them would process records that another member has
processed. Must not: decide where to start, or commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import BrokerError, KafkaError
from odradek.common.errors.kafka import (
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    error_for,
)
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.flow import START, Flow
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from odradek.clients.coordinator import Coordinator

BATCHED_FROM = 8
"""First version of OffsetFetch for several groups (KIP-709)."""
STABLE_FROM = 7
"""First version of OffsetFetch that can wait for open transactions (KIP-447)."""
TOPIC_IDS_FROM = 10
HANDLED_BY_MEMBERSHIP = (StaleMemberEpochError, UnknownMemberIdError, RebalanceInProgressError)
OnOffset = Callable[[TopicPartition, OffsetAndMetadata | KafkaError | None, bytes, bool], bool]
"""Called with a partition, its offset or error, the topic's id (`NO_ID` if unknown), and whether it
was requested by the topic's name, so that the id is only that of the metadata.

Returns whether the partition is still needed; otherwise it isn't requested again.
"""


class OffsetFetchByName(OffsetFetchRequest):
    """OffsetFetch for topics whose ids aren't known."""

    MAX_VERSION: ClassVar[int] = TOPIC_IDS_FROM - 1


class GroupIdentity(NamedTuple):
    """Identity of the member that sends a request."""

    member_id: str = ""
    generation: int = -1
    """The generation, or the member's epoch."""
    instance_id: str | None = None
    by_epoch: bool = False
    """Whether the group uses KIP-848."""
    joining: bool = False
    """Whether JoinGroup is in flight, or about to be: its response changes the generation."""


class StaleLookupError(KafkaError):
    """The group changed between request and response, or the response is incomplete."""

    retriable = True


class OffsetLookup:
    """A lookup in progress: the results so far, and the partitions that remain."""

    def __init__(
        self,
        coordinator: Coordinator,
        partitions: Iterable[TopicPartition],
        told: OnOffset | None,
        *,
        identity: Callable[[], GroupIdentity],
        topic_id: Callable[[str], bytes],
    ) -> None:
        """Set `identity`, which returns the current member, and `topic_id` of the metadata."""
        self._coordinator = coordinator
        self._identity = identity
        self._topic_id = topic_id
        self._told = told
        self._group_id = coordinator.key
        self._what = f"committed offsets of group {self._group_id!r}"
        self._asked = list(dict.fromkeys(partitions))
        self._left = dict.fromkeys(self._asked)
        self._found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self._names: dict[bytes, str] = {}
        """Topic names by id in all requests so far: a response may come late (R-RB-9)."""
        self._ids: dict[str, bytes] = {}
        """Topic ids in the metadata when a topic was last requested, looked up for each request."""
        self._asked_now: list[TopicPartition] = []
        self._by_id = False

    def run(self, deadline: float) -> Flow[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Send requests until all offsets are known, or some fail for good."""
        if not self._asked:
            yield START
            return {}
        ask = self._coordinator.ask
        yield from ask(self._what, self._body, OffsetFetchResponse, self._check, deadline)
        return {tp: self._found[tp] for tp in self._asked if tp in self._found}

    def _choose(self) -> type[OffsetFetchRequest]:
        """Choose the partitions of the next request, which names all of its topics by id, or none.

        Topics with unknown ids take turns with the others.
        """
        self._ids.update((p.topic, self._topic_id(p.topic)) for p in self._left)
        left = list(self._left)
        known = [p for p in left if self._ids[p.topic] != NO_ID]
        version = self._coordinator.version(OffsetFetchRequest) or 0
        self._by_id = (
            version >= TOPIC_IDS_FROM
            and bool(known)
            and (len(known) == len(left) or not self._by_id)
        )
        if self._by_id:
            self._asked_now = known
            self._names.update((self._ids[p.topic], p.topic) for p in known)
            return OffsetFetchRequest
        unknown = [p for p in left if self._ids[p.topic] == NO_ID]
        self._asked_now = unknown if version >= TOPIC_IDS_FROM else left
        return OffsetFetchByName

    def _body(self, _: float) -> OffsetFetchRequest:
        kind = self._choose()
        ids = self._ids if self._by_id else {}
        wanted = by_topic(self._asked_now)
        version = self._coordinator.version(kind) or 0
        stable = version >= STABLE_FROM
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

    def _check(self, answer: OffsetFetchResponse) -> KafkaError | None:
        code = answer.error_code or next((g.error_code for g in answer.groups if g.error_code), 0)
        if code:
            return _meant(error_for(code, self._what), self._group_id, "group")
        error = self._read(answer)
        out = next(iter(self._left), None)
        if error is None and out is not None:
            # A partition that the response lacks may have a committed offset: don't reset it.
            asked = out in self._asked_now
            why = "missing from the response" if asked else "it is in the next request"
            return StaleLookupError(f"{self._what}: {out}: {why}")
        return error

    def _read(self, answer: OffsetFetchResponse) -> KafkaError | None:
        parts = [(t.name, NO_ID, p) for t in answer.topics for p in t.partitions]
        for topic in (t for group in answer.groups for t in group.topics):
            name = topic.name or self._names.get(topic.topic_id, "")
            parts += [
                (name, topic.topic_id, p)  # type: ignore[misc]  # same fields
                for p in topic.partitions
            ]
        error: KafkaError | None = None
        for name, topic_id, p in parts:
            tp = TopicPartition(name, p.partition_index)
            if tp not in self._left:
                continue  # already known from the response to another request
            found: OffsetAndMetadata | KafkaError | None = None
            if p.error_code:
                found = _meant(error_for(p.error_code, f"{self._what}: {tp}"), name, "topic")
            elif p.committed_offset >= 0:
                found = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
            of = self._ids.get(name, NO_ID) if topic_id == NO_ID else topic_id
            wanted = self._told is None or self._told(tp, found, of, topic_id == NO_ID)
            if not isinstance(found, KafkaError):
                self._found[tp] = found
            elif wanted:
                error = graver(error, found)
                continue
            del self._left[tp]
        return error


def _meant(error: BrokerError, name: str, kind: str) -> KafkaError:
    if isinstance(error, HANDLED_BY_MEMBERSHIP):
        return StaleLookupError(str(error))
    return error.needing("READ", name, kind)


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Return partition numbers by topic."""
    wanted: dict[str, list[int]] = {}
    for partition in partitions:
        wanted.setdefault(partition.topic, []).append(partition.partition)
    return wanted


def graver(before: KafkaError | None, error: KafkaError) -> KafkaError:
    """Return the first error, unless only the second isn't retriable."""
    if before is None or (before.retriable and not error.retriable):
        return error
    return before
