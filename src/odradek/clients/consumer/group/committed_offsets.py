"""Fetch and commit a group's offsets at its coordinator (OffsetFetch, OffsetCommit).

In: partitions, or offsets; the member's identity when the request is sent. Out: committed offsets,
or errors that say what to do. Commits are sent one after another (`commit_queue`), and offsets that
the group has accepted aren't sent again with the rest. Must not: decide what to commit, or know
callbacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.commit_queue import CommitQueue
from odradek.clients.consumer.group.offset_lookup import (
    GroupIdentity,
    OffsetLookup,
    OnOffset,
    StaleLookupError,
    graver,
)
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.error_explanations import of_offset
from odradek.common.errors import CommitFailedError, KafkaError
from odradek.common.errors.kafka import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    error_for,
)
from odradek.common.errors.topics import TopicRecreatedError, topic_id_text
from odradek.common.sampled import Sampled
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.flow import START, Flow, Wait
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

if TYPE_CHECKING:
    from odradek.clients.any_broker import Timeout
    from odradek.clients.coordinator import Coordinator
    from odradek.metadata.metadata import Metadata
    from odradek.network.engine import Engine

INSTANCES_FROM = 7
"""First version of OffsetCommit that names static members (KIP-345)."""
TOPIC_IDS_FROM = 10
UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN = (UNKNOWN_TOPIC_OR_PARTITION, 100)
"""Codes of UNKNOWN_TOPIC_OR_PARTITION and UNKNOWN_TOPIC_ID."""
MAYBE_STORED_CODES = (-1, 7, 15, 16)
"""Codes with which a coordinator may have written the offsets nevertheless.

UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE (the write reached too few
replicas) and NOT_COORDINATOR (the coordinator moved before the write was replicated).
"""
UNKNOWN_FOR = 5.0
"""Seconds for which a commit is retried if the coordinator doesn't know a topic.

The topic may be new. Other commits wait, so the retries don't take the caller's whole timeout.
"""
METADATA_CHECK_S = 0.1
"""Seconds between two checks of metadata that a commit by name waits for."""
FORGOTTEN_AFTER = 30.0
"""Seconds after which the client forgets that the coordinator didn't know a topic."""
Accepted = Callable[[TopicPartition, OffsetAndMetadata], object]
NOT_A_MEMBER = (UnknownMemberIdError, IllegalGenerationError, FencedMemberEpochError)
REBALANCED_ERRORS = (
    IllegalGenerationError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    RebalanceInProgressError,
)
"""Errors caused by a rebalance: a retry in the new generation may succeed."""


class OffsetCommitByName(OffsetCommitRequest):
    """Commits of topics whose ids weren't known at the time of the call."""

    MAX_VERSION: ClassVar[int] = TOPIC_IDS_FROM - 1


class _NothingToSendError(KafkaError):
    """No offset can be sent now: all were refused, or metadata must be awaited first."""


class CommittedOffsets:
    """The committed offsets of one group."""

    def __init__(
        self,
        engine: Engine,
        metadata: Metadata,
        coordinator: Coordinator,
        *,
        identity: Callable[[], GroupIdentity],
        timeout: Timeout,
    ) -> None:
        """Set the group; `identity` returns the current member."""
        self._engine = engine
        self.metadata = metadata
        self._timeout = timeout
        self.coordinator = coordinator
        self.group_id = coordinator.key
        self.identity = identity
        self.refused: GroupIdentity | None = None
        """The member whose commit was last refused."""
        self.latency = Sampled()
        """Response times of commits in seconds."""
        self._queue = CommitQueue()
        self._unknown: dict[str, tuple[float, float]] = {}
        """Times when the coordinator first and last didn't know a topic, by topic."""
        self._missing: dict[str, float] = {}
        """Time when a commit was last refused because new metadata lacks its topic, by topic."""

    @property
    def now(self) -> float:
        """The engine's time."""
        return self._engine.now

    # Fetching

    def fetch(
        self, partitions: Iterable[TopicPartition], deadline: float, *, told: OnOffset | None = None
    ) -> Flow[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return committed offsets, None where there is none; wait for open transactions.

        `told` is called for each partition as soon as its state is known, even if others wait or
        are refused: with its offset, a final error, or one that is retried. If it returns false,
        the partition isn't requested again, and isn't in the result.
        """
        lookup = OffsetLookup(
            self.coordinator, partitions, told, identity=self.identity, topic_id=self.topic_id
        )
        return lookup.run(deadline)

    def timeout(self, what: str, now: float) -> KafkaError:
        """Return the error of a call that timed out."""
        return self._timeout(what, now, ())

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id in the current metadata, `NO_ID` if it is unknown."""
        snapshot = self.metadata.snapshot
        found = None if snapshot is None else snapshot.topics.get(topic)
        return NO_ID if found is None else found.topic_id

    def is_missing(self, topic: str) -> bool:
        """Return whether the latest metadata says that the topic doesn't exist."""
        return self.metadata.topic_errors.get(topic) in UNKNOWN

    # Committing

    def commit(
        self,
        asked: AskedCommit,
        deadline: float,
        *,
        accepted: Accepted | None = None,
        refused: Callable[[], None] | None = None,
        unknown_for: float = UNKNOWN_FOR,
    ) -> Flow[None]:
        """Commit offsets; raise `CommitFailedError` if this member isn't allowed to (any more).

        The member's state at the time of the call counts, not at the commit's turn. `accepted` is
        called for each partition that the group has accepted, even if others fail; `refused` is
        called if it is certain that the group stored none of the other offsets.
        """
        if not asked.offsets and not asked.replaced:
            return
        if self._unknown or self._missing:
            self._forget_old()
        commit = _Commit(self, asked, accepted)
        commit.unknown_for = unknown_for
        turn = self._queue.enter()
        try:
            now = yield START
            while not turn.done:
                if now >= deadline:
                    what = f"{commit.what} (another commit is under way)"
                    raise self.timeout(what, now)
                now = yield Wait((turn,), deadline)
            yield from commit.run(deadline)
        except KafkaError:
            if refused is not None and commit.in_doubt == 0:
                refused()
            raise
        finally:
            self._queue.leave(turn)

    def unknown_for(self, topics: Iterable[str]) -> float:
        """Return for how many seconds the coordinator hasn't known any of these topics."""
        now, since = self.now, -math.inf
        self._forget_old()
        for topic in topics:
            first, _ = self._unknown.get(topic, (now, now))
            self._unknown[topic] = (first, now)
            since = max(since, first)
        return now - since

    def _forget_old(self) -> None:
        latest = self.now - FORGOTTEN_AFTER
        for old in [topic for topic, (_, last) in self._unknown.items() if last < latest]:
            del self._unknown[old]
        for old in [topic for topic, last in self._missing.items() if last < latest]:
            del self._missing[old]

    def met_as_missing(self, topic: str) -> None:
        """Note that metadata requested for a commit doesn't contain the topic."""
        self._missing[topic] = self.now

    def is_missing_still(self, topic: str) -> bool:
        """Return whether a recent commit found that the topic is missing."""
        if topic not in self._missing:
            return False
        self._missing[topic] = self.now
        return True

    def known(self, topic: str) -> None:
        """Note that the coordinator knows a topic."""
        if self._unknown or self._missing:
            self._unknown.pop(topic, None)
            self._missing.pop(topic, None)

    def commit_request(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, bytes],
        who: GroupIdentity,
    ) -> OffsetCommitRequest:
        """Return the request for the connection's version; without `ids` it has topic names."""
        kind = OffsetCommitRequest if ids else OffsetCommitByName
        topics: dict[tuple[str, bytes], OffsetCommitRequestTopic] = {}
        for tp, o in offsets.items():
            key = tp.topic, ids.get(tp, NO_ID)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = OffsetCommitRequestTopic(*key, [])
            topic.partitions.append(
                OffsetCommitRequestPartition(tp.partition, o.offset, o.leader_epoch, o.metadata)
            )
        old = (self.coordinator.version(kind) or 0) < INSTANCES_FROM
        instance_id = None if old or not who.member_id else who.instance_id
        listed = list(topics.values())
        return kind(self.group_id, who.generation, who.member_id, instance_id, topics=listed)


class _Commit:
    """One commit: its caller's request, and the offsets that the group hasn't accepted yet."""

    unknown_for = UNKNOWN_FOR

    def __init__(
        self,
        stored: CommittedOffsets,
        asked: AskedCommit,
        accepted: Accepted | None,
    ) -> None:
        self._stored = stored
        self.what = f"commit to group {stored.group_id!r}"
        self._asked = asked
        self._left = {p: o for p, o in asked.offsets.items() if p not in asked.replaced}
        self._accepted = accepted
        self._sent = stored.identity()
        self._over: list[TopicPartition] = []
        """Partitions that were left out because their ownership has ended."""
        self._ids = {p: topic_id for p, topic_id in asked.ids.items() if topic_id != NO_ID}
        """Topic ids by partition; partitions without one are sent by topic name."""
        self._names = {topic_id: p.topic for p, topic_id in self._ids.items()}
        self._in_request: Mapping[TopicPartition, OffsetAndMetadata] = {}
        """Offsets in the request that is in flight."""
        self._by_name: set[TopicPartition] = set()
        """Partitions that were sent by name at least once: the coordinator may have stored them."""
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        self._failed: dict[TopicPartition, KafkaError] = dict(asked.replaced)
        self._doubted = 0
        """Serial number of the metadata response that will show which topics still exist."""
        self.in_doubt = 0
        """Number of requests whose offsets the coordinator may have stored without a response."""
        self._asked_at = 0.0

    def run(self, deadline: float) -> Flow[None]:
        """Retry until all offsets are accepted or refused; raise the error of failed ones."""
        ask = self._stored.coordinator.ask
        while self._left:  # topics with and without a known id need separate requests
            self._member()
            with suppress(_NothingToSendError):
                yield from ask(
                    self.what, self._body, OffsetCommitResponse, self._read, deadline, ordered=True
                )
                continue
            yield from self._topics_known(deadline)
        if self._over:
            raise self._removed()
        if self._failed:
            raise self._first_failure()

    def _body(self, _: float) -> OffsetCommitRequest:
        self._asked_at = self._stored.now
        who = self._member()
        ids: Mapping[TopicPartition, bytes] = {}
        version = self._stored.coordinator.version(OffsetCommitRequest) or 0
        if version >= TOPIC_IDS_FROM:
            # An id is never replaced by the topic's name: another topic may have it by now.
            ids = {p: topic_id for p, topic_id in self._ids.items() if p in self._left}
            self._in_request = {p: self._left[p] for p in ids or self._left}
        elif self._stored.metadata.answered >= self._doubted:
            for p in list(self._left):
                self._refuse_if_replaced(p)
            missing = [p for p in self._left if self._is_missing(p)]
            missing = [p for p in missing if not self._refuse_if_missing_still(p)]
            if missing:  # the metadata may be outdated: the topic may have been recreated
                self._doubt(missing[0].topic)
            self._in_request = {} if missing else dict(self._left)
        else:
            self._in_request = {}
        if not self._in_request:
            raise _NothingToSendError
        if not ids:
            self._by_name.update(self._in_request)
        self._sent = who
        self.in_doubt += 1
        return self._stored.commit_request(self._in_request, ids, who)

    def _is_missing(self, partition: TopicPartition) -> bool:
        return partition in self._ids and self._stored.is_missing(partition.topic)

    def _refuse_if_missing_still(self, partition: TopicPartition) -> bool:
        """Fail a partition at once if an earlier commit waited in vain for its topic's metadata.

        Otherwise each commit would wait as long, and later commits with it.
        """
        if not self._stored.is_missing_still(partition.topic):
            return False
        self._stored.metadata.request(f"{self.what}: {partition.topic} is missing")
        self._refuse_as_unknown(partition)
        return True

    def _doubt(self, topic: str) -> None:
        """Send no topic by name before the response to a new metadata request."""
        self._doubted = self._stored.metadata.next_question
        self._stored.metadata.request(f"{self.what}: the coordinator doesn't know topic {topic}")

    def _topics_known(self, deadline: float) -> Flow[None]:
        """Wait for new metadata if the coordinator didn't know a topic that was sent by name.

        The topic may have been deleted: a further request with its name might commit the offsets
        for a new topic of this name.
        """
        metadata, now = self._stored.metadata, self._stored.now
        while metadata.answered < self._doubted:
            if now >= deadline:
                raise self._stored.timeout(f"{self.what} (metadata of its topics)", now)
            now = yield Wait((metadata.changed,), min(deadline, now + METADATA_CHECK_S))
        for partition in list(self._left) if self._doubted else ():
            if partition in self._ids and self._stored.topic_id(partition.topic) == NO_ID:
                self._stored.met_as_missing(partition.topic)
                self._refuse_as_unknown(partition)

    def _read(self, answer: OffsetCommitResponse) -> KafkaError | None:
        now = self._stored.now
        self._stored.latency.record(now - self._asked_at, now)
        error: KafkaError | None = None
        perhaps = False
        for topic in answer.topics:
            name = topic.name or self._names.get(topic.topic_id, "")
            for p in topic.partitions:
                tp = TopicPartition(name, p.partition_index)
                if tp not in self._left:
                    continue
                if p.error_code in UNKNOWN and self._refuse_unknown(tp):
                    continue
                if p.error_code:
                    perhaps = perhaps or p.error_code in MAYBE_STORED_CODES
                    refusal = error_for(
                        p.error_code,
                        of_offset(p.error_code, f"{self.what}: {tp}", self._left[tp]),
                    )
                    error = graver(error, refusal.needing("READ", name, "topic"))
                    continue
                self._stored.known(name)
                if tp in self._by_name and self._refuse_if_replaced(tp):
                    continue
                offset = self._done[tp] = self._left.pop(tp)
                if self._accepted is not None:
                    self._accepted(tp, offset)
        if error is None:
            out = next((p for p in self._in_request if p in self._left), None)
            if out is not None:
                return StaleLookupError(f"{self.what}: {out} is missing from the response")
        self.in_doubt -= not perhaps
        return self._judged(error)

    def _refuse_if_replaced(self, partition: TopicPartition) -> bool:
        """Fail a partition whose topic has another id now than when the caller committed."""
        read_id = self._ids.get(partition, NO_ID)
        now_id = self._stored.topic_id(partition.topic)
        if NO_ID in (read_id, now_id) or read_id == now_id:
            return False
        offset, stored = self._left.pop(partition), partition in self._by_name
        self._failed[partition] = recreated(
            f"{self.what}, offset {offset.offset} of {partition}",
            partition,
            read_id,
            now_id,
            stored,
        )
        return True

    def _refuse_unknown(self, partition: TopicPartition) -> bool:
        """Fail a partition whose topic the coordinator doesn't know, unless the topic may be new.

        The coordinator will soon know a new topic.
        """
        if self._refuse_if_replaced(partition):
            return True
        if self._stored.unknown_for((partition.topic,)) < self.unknown_for:
            if partition in self._by_name and partition in self._ids:
                self._doubt(partition.topic)
            return False
        self._refuse_as_unknown(partition)
        return True

    def _refuse_as_unknown(self, partition: TopicPartition) -> None:
        topic = partition.topic
        read_id = topic_id_text(self._ids.get(partition, NO_ID))
        with_id = "" if read_id is None else f" with id {read_id}"
        del self._left[partition]
        rest = self._rest_done()
        self._failed[partition] = error_for(
            UNKNOWN_TOPIC_OR_PARTITION,
            f"{self.what}: the cluster has no topic {topic}{with_id}, or no partition "
            f"{partition.partition} of it{rest}",
        )

    def _rest_done(self) -> str:
        done = len(self._done)
        many = "partition is" if done == 1 else "partitions are"
        return f"; the other {done} {many} committed" if done else ""

    def _member(self) -> GroupIdentity:
        """Leave out partitions whose ownership has ended.

        Return the identity that commits the others.

        Partitions that were revoked for a rebalance are committed in the former generation: if the
        group is in a newer one already, another member may own them.
        """
        now = self._stored.identity()
        if not self._still(now):
            raise self._removed()
        for partition in self._asked.refused():
            if partition in self._left and not self._refuse_if_replaced(partition):
                del self._left[partition]
                self._over.append(partition)
        if not self._left:
            raise self._removed() if self._over else self._first_failure()
        owned = (self._asked.ownerships.get(partition) for partition in self._left)
        back = next((o.given_back_by for o in owned if o is not None and o.given_back_by), None)
        return now if back is None else now._replace(member_id=back[0], generation=back[1])

    def _first_failure(self) -> KafkaError:
        return next(iter(self._failed.values())).beside(self._done, self._failed)

    def _still(self, now: GroupIdentity) -> bool:
        """Return whether this is the member that sent the last request."""
        return now.member_id == self._sent.member_id

    def _removed(self) -> CommitFailedError:
        """Return the error for partitions that other members may have read in the meantime."""
        if not self._over:
            why = "the member was removed in the meantime"
            return lost_membership(self._stored.group_id, why)
        named = ", ".join(map(str, self._over[:5]))
        rest = self._rest_done()
        why = f"{named}: lost or assigned to another member after these records were read{rest}"
        return lost_membership(self._stored.group_id, why)

    def _judged(self, error: KafkaError | None) -> KafkaError | None:
        """Return the error as retriable if only the member's generation has changed."""
        if error is None or error.retriable or isinstance(error, FencedInstanceIdError):
            return error
        now, sent = self._stored.identity(), self._sent
        # While a JoinGroup is in flight, the group may be in the generation that its response
        # announces, in which this member keeps its partitions.
        moved = now.generation >= 0 and (now.joining or now != sent)
        waiting = isinstance(error, StaleMemberEpochError | RebalanceInProgressError)
        again = moved or (waiting and now.generation >= 0)
        if isinstance(error, REBALANCED_ERRORS) and self._still(now) and again:
            return StaleLookupError(str(error))
        if isinstance(error, (*NOT_A_MEMBER, *REBALANCED_ERRORS)):
            self._stored.refused = sent
            failed = _refusal(self._stored.group_id, sent, error)
            failed.__cause__ = error
            return failed
        return error


def recreated(
    what: str, partition: TopicPartition, read_id: bytes, now_id: bytes, stored: bool = False
) -> TopicRecreatedError:
    """Return the error for an offset that belongs to a deleted topic of the same name."""
    return TopicRecreatedError(
        partition, what, topic_id_text(read_id), topic_id_text(now_id), stored
    )


def lost_membership(group_id: str, why: object) -> CommitFailedError:
    """Return the error for a former member: its partitions may have other owners by now."""
    return CommitFailedError(
        f"the commit to group {group_id!r} was refused ({why}): this consumer has lost its "
        "partitions, or they are being assigned to other members. Records after the last commit "
        "are read again, by this member or another one. Continue with poll(), which joins the "
        "group again if necessary. If this happens often, check whether the process was stopped or "
        "blocked for longer than session.timeout.ms, or worked for longer than "
        "max.poll.interval.ms between two polls (then lower max.poll.records). In an event loop, "
        "run blocking calls with asyncio.to_thread()."
    )


def _refusal(group_id: str, who: GroupIdentity, error: KafkaError) -> CommitFailedError:
    if not who.member_id:
        return CommitFailedError(
            f"the commit to group {group_id!r} was refused ({error}): other consumers have joined "
            "the group with subscribe(), and this one hasn't. Stop them first, or use another "
            "group.id."
        )
    return lost_membership(group_id, error)
