"""Send the requests of a transactional producer to its coordinator, and to those of groups.

In: the producer's id and epoch, partitions, offsets. Out: responses; errors that aren't retriable,
unchanged. Retriable errors are retried: those of all coordinators in `clients/coordinator`, and
here CONCURRENT_TRANSACTIONS, which lasts for milliseconds while the last transaction's markers are
written. Must not: know the state of the producer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import ClassVar, TypeVar, cast

from odradek.clients.any_broker import ATTEMPTS_KEPT, Brokers
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.clients.error_explanations import of_offset, of_producer_id
from odradek.clients.producer.offset_topics import UNKNOWN, OffsetTopics
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import Attempt, KafkaError
from odradek.common.errors.kafka import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    OperationNotAttemptedError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.protocol.message import Message, Request
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

M = TypeVar("M", bound=Message)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Identity = tuple[int, int]
"""A producer's id and epoch."""

LAST_FOR_CLIENTS = 3
"""Newest version of AddPartitionsToTxn for clients; brokers use newer ones among themselves."""
WITHOUT_EPOCHS = 4
"""Newest version of EndTxn and TxnOffsetCommit before transaction version 2 (KIP-890)."""
IDS_FROM = 6
"""First version of TxnOffsetCommit that names topics by id (KIP-1319)."""
WITH_BUMPS = 3
"""First version of InitProducerId that bumps the epoch of a known producer (KIP-360)."""
NOT_BEGUN = (ConcurrentTransactionsError, CoordinatorLoadInProgressError)
"""Retriable errors of a coordinator that hasn't begun to execute a request.

After other retriable errors, the coordinator's log may contain the request, because its replication
may have timed out.
"""
BUSY_ERRORS = (ConcurrentTransactionsError, UnknownTopicOrPartitionError)
"""Errors of a coordinator that works, caused by a state that may end soon, or never."""


class TxnOffsetCommitByName(TxnOffsetCommitRequest):
    """TxnOffsetCommit for topics whose ids aren't known.

    From version 6 on, only ids are sent (KIP-1319).
    """

    MAX_VERSION: ClassVar[int] = IDS_FROM - 1


@dataclass(slots=True, eq=False)
class Asked:
    """A request of the open transaction, with the replies of its attempts."""

    what: str
    group_id: str
    offsets: Offsets
    """Offsets that the request commits for a group; empty for other requests."""
    replies: list[Completion[Message]] = field(default_factory=list)

    @property
    def unanswered(self) -> bool:
        """Whether an attempt has no response so far, or was lost."""
        return any(not reply.done or reply.error is not None for reply in self.replies)


class UnwantedError(Exception):
    """The request failed, and its caller doesn't need it any more."""


class TransactionRequests:
    """The requests of one transactional id."""

    def __init__(
        self,
        brokers: Brokers,
        quick: ExponentialBackoff,
        transactional_id: str,
        timeout: float,
        changed: Signal,
    ) -> None:
        """Set the backoff and signal of retries.

        `quick` is the backoff after CONCURRENT_TRANSACTIONS; `changed` is notified when a request
        may not be needed any more.
        """
        self._brokers = brokers
        self._engine = brokers.engine
        self._quick = quick
        self._changed = changed
        self._id = transactional_id
        self._timeout_ms = round(timeout * 1000)
        self.coordinator = Coordinator(brokers, CoordinatorKind.TRANSACTION, transactional_id)
        self._groups: dict[str, Coordinator] = {}
        self._ending: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        """Errors of the newest request's attempts that were retried in this class (`quick`)."""
        self.in_doubt = False
        """Whether the newest request may have been executed, whatever its error."""
        self._asked: dict[Asked, None] = {}
        """Requests of the open transaction that are in flight, or were lost."""

    @property
    def attempts(self) -> list[Attempt]:
        """Return the failed attempts of the newest request, for the error of a timeout."""
        return sorted([*self._ending, *self.coordinator.attempts], key=lambda a: a.at)

    @property
    def can_bump(self) -> bool:
        """Whether the coordinator bumps epochs (KIP-360, Kafka 2.5 and newer)."""
        return (self.coordinator.version(InitProducerIdRequest) or 0) >= WITH_BUMPS

    @property
    def unanswered(self) -> str:
        """Return the name of an unanswered request of the open transaction.

        Its broker may execute it later (R-TX-1). Empty if all attempts were answered.
        """
        return next((asked.what for asked in self._asked if asked.unanswered), "")

    def forget(self) -> None:
        """Forget the requests of a transaction that has ended.

        If one of them can still arrive late, the next transaction has another epoch.
        """
        self._asked.clear()

    def group(self, group_id: str) -> Coordinator:
        """Return the coordinator of a consumer group."""
        if group_id not in self._groups:
            self._groups[group_id] = Coordinator(self._brokers, CoordinatorKind.GROUP, group_id)
        return self._groups[group_id]

    def init_producer_id(self, identity: Identity, deadline: float) -> Flow[Identity]:
        """Return a first id and epoch (`identity` is NO_IDENTITY), or the next epoch."""
        body = InitProducerIdRequest(self._id, self._timeout_ms, *identity)
        answer = yield from self._ask(
            self.coordinator,
            "producer id",
            body,
            lambda answer: error_of(
                answer.error_code, of_producer_id(answer.error_code, self._id, self._timeout_ms)
            ),
            deadline,
        )
        return answer.producer_id, answer.producer_epoch

    def add_partitions(
        self, identity: Identity, partitions: Collection[TopicPartition], wanted: Callable[[], bool]
    ) -> Flow[None]:
        """Add partitions to the transaction at the coordinator.

        Raises `UnwantedError` if a partition doesn't exist, and they aren't `wanted` any more.
        """
        topics = [
            AddPartitionsToTxnTopic(name, [p.partition for p in of_topic])
            for name, of_topic in groupby(sorted(partitions), key=lambda p: p.topic)
        ]
        yield from self._ask(
            self.coordinator,
            "partitions added to the transaction",
            AddPartitionsToTxnRequest([], self._id, *identity, topics),
            lambda answer: worst(
                {
                    TopicPartition(topic.name, p.partition_index): p.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for p in topic.results_by_partition
                },
                *("WRITE", self._id),
            ),
            math.inf,
            newest=LAST_FOR_CLIENTS,
            wanted=wanted,
        )

    def add_offsets(self, identity: Identity, group_id: str, deadline: float) -> Flow[None]:
        """Tell the coordinator that the transaction will contain offsets of this group."""
        yield from self._ask(
            self.coordinator,
            f"offsets of group {group_id!r} added to the transaction",
            AddOffsetsToTxnRequest(self._id, *identity, group_id),
            lambda answer: error_of(answer.error_code, f"group {group_id!r}", group_id),
            deadline,
        )

    def commit_offsets(
        self,
        identity: Identity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        deadline: float,
        *,
        newest: int | None,
        topics: OffsetTopics,
    ) -> Flow[None]:
        """Send offsets to the group's coordinator, which commits them with the transaction.

        All attempts identify a topic in the same way: by its id at the time of the call, or by its
        name if no id was known (R-ID-5).
        """
        coordinator = self.group(group.group_id)
        began = yield START
        with_ids = {p: o for p, o in offsets.items() if p in topics.ids}
        without = {p: o for p, o in offsets.items() if p not in topics.ids}
        for kind, part in (
            (TxnOffsetCommitRequest, with_ids),
            (TxnOffsetCommitByName, without),
        ):
            if not part:
                continue
            names = {topics.ids[p]: p.topic for p in part if p in topics.ids}
            body = kind(
                self._id,
                group.group_id,
                *identity,
                group.generation_id,
                group.member_id,
                group.group_instance_id,
                _topics(part, topics.ids),
            )
            read = partial(self._read_offsets, part, names, group, topics, began)
            yield from self._ask(
                coordinator,
                f"offsets of group {group.group_id!r} in the transaction",
                body,
                read,
                deadline,
                newest=newest,
                offsets=(group.group_id, dict(part)),
                before=partial(self._check_topics, coordinator, part, group, topics, newest),
            )
            topics.check(part)  # a request by name may have reached another topic

    @staticmethod
    def _check_topics(
        coordinator: Coordinator,
        offsets: Offsets,
        group: ConsumerGroupMetadata,
        topics: OffsetTopics,
        newest: int | None,
    ) -> None:
        """Raise if an offset's partition isn't owned any more, or its topic was recreated.

        For topics that are sent by name, it is enough that the topic may have been recreated.
        """
        version = coordinator.version(TxnOffsetCommitRequest) or 0
        if min(version, IDS_FROM if newest is None else newest) < IDS_FROM:
            topics.check_names(offsets, group.group_id)
        else:
            topics.check(offsets)
        topics.check_owned(offsets, group.group_id)

    def _read_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        names: Mapping[bytes, str],
        group: ConsumerGroupMetadata,
        topics: OffsetTopics,
        began: float,
        answer: TxnOffsetCommitResponse,
    ) -> KafkaError | None:
        """Read a response to TxnOffsetCommit; raise if a topic remains unknown."""
        codes = {
            TopicPartition(t.name or names.get(t.topic_id, ""), p.partition_index): p.error_code
            for t in answer.topics
            for p in t.partitions
        }
        by_name = {t.name for t in answer.topics if t.name}
        for partition, code in codes.items():
            if code in UNKNOWN:
                topics.check(offsets)
                # No retry by name if the id is known: another topic may have that name by now.
                again = partition.topic not in by_name or partition not in topics.ids
                since = began if again else -math.inf
                topics.unknown(partition, group.group_id, since, self._engine.now)
        return worst(
            codes,
            *("READ", self._id),
            lambda p, code: of_offset(code, str(p), offsets.get(p), group),
        )

    def _refuse_others(self, new: Asked) -> None:
        """Raise if other offsets of the same partitions were sent before, without a response.

        If the earlier request arrived late, the transaction would commit its offsets (R-TX-2).
        """
        for old in self._asked:
            if old.group_id != new.group_id or not old.unanswered:
                continue
            for partition, wanted in new.offsets.items():
                found = old.offsets.get(partition, wanted)
                if found != wanted:
                    raise TransactionAbortableError(
                        f"offset {wanted.offset} of {partition} can't be sent for group "
                        f"{new.group_id!r} in this transaction: an earlier request with offset "
                        f"{found.offset} had no answer, and if it arrived late it would replace "
                        "this one. Call abort_transaction() and process the records again"
                    )

    def end(
        self, identity: Identity, deadline: float, *, committed: bool, newest: int | None
    ) -> Flow[Identity | None]:
        """Commit or abort; return the next id and epoch if the response has them."""
        answer = yield from self._ask(
            self.coordinator,
            f"{'commit' if committed else 'abort'} of the transaction",
            EndTxnRequest(self._id, *identity, committed),
            lambda answer: error_of(answer.error_code, self._id),
            deadline,
            newest=newest,
        )
        return (answer.producer_id, answer.producer_epoch) if answer.producer_id >= 0 else None

    def _ask(
        self,
        coordinator: Coordinator,
        what: str,
        body: Request[M],
        read: Callable[[M], KafkaError | None],
        deadline: float,
        *,
        newest: int | None = None,
        wanted: Callable[[], bool] | None = None,
        offsets: tuple[str, Offsets] = ("", {}),
        before: Callable[[], None] | None = None,
    ) -> Flow[M]:
        """Send a request until it is answered; retry sooner while the last transaction is ending.

        `offsets`: the group and the offsets that the request commits, which must not overtake those
        of another request. `before` is called before each attempt, and may raise.
        """
        asked = Asked(what, *offsets)
        self._asked[asked] = None

        def ready() -> None:
            self._refuse_others(asked)
            if before is not None:
                before()

        try:
            answering = self._answer(
                coordinator, asked, body, read, deadline, newest, wanted, ready
            )
            return (yield from answering)
        finally:
            if not asked.unanswered:
                self._asked.pop(asked, None)

    def _answer(
        self,
        coordinator: Coordinator,
        asked: Asked,
        body: Request[M],
        read: Callable[[M], KafkaError | None],
        deadline: float,
        newest: int | None,
        wanted: Callable[[], bool] | None,
        ready: Callable[[], None],
    ) -> Flow[M]:
        now = yield START
        engine, what = self._engine, asked.what
        quick = Backoff(self._quick, self._brokers.rng)
        usual = Backoff(self._brokers.retry, self._brokers.rng)
        mine = BUSY_ERRORS if wanted is not None else ConcurrentTransactionsError
        self._ending.clear()
        self.in_doubt = False

        def send(_: float) -> Request[M]:
            ready()
            return body

        def check(answer: M) -> KafkaError | None:
            error = read(answer)
            if error is not None and error.retriable and not isinstance(error, NOT_BEGUN):
                self.in_doubt = True
            return None if isinstance(error, mine) else error

        while True:
            try:
                response = cast("type[M]", body.RESPONSE)
                one = coordinator.ask(
                    *(what, send, response, check, deadline),
                    newest=newest,
                    ordered=bool(asked.offsets),
                    replies=asked.replies,
                )
                answer = yield from one
            finally:
                self.in_doubt |= asked.unanswered
            error = read(answer)
            if error is None:
                return answer
            now = engine.now
            backoff = quick if isinstance(error, ConcurrentTransactionsError) else usual
            until = backoff.failed(now)
            said = f"{type(error).__name__}: {error}"
            self._ending.append(Attempt(None, what, said, now))
            times = {"attempt": backoff.failures, "backoff": round(until - now, 6)}
            engine.events.emit(now, "retry", what=what, error=said, **times)
            if error.refresh_metadata:
                self._brokers.metadata.request(f"{what}: {type(error).__name__}")
            while now < until:
                # While the last transaction is ending (`quick`), wait even for an unwanted request.
                if wanted is not None and backoff is usual and not wanted():
                    raise UnwantedError
                now = yield Wait((self._changed,) if wanted else (), min(until, deadline))
                if now >= deadline:
                    raise self._brokers.timeout(f"{what} ({error})", now, ())


def error_of(code: int, about: str, group_id: str = "") -> KafkaError | None:
    """Return the error of a code, None for success."""
    return error_for(code, about).needing("READ", group_id, "group") if code else None


def worst(
    codes: Mapping[TopicPartition, int],
    right: str,
    transactional_id: str,
    words: Callable[[TopicPartition, int], str] = lambda partition, _: str(partition),
) -> KafkaError | None:
    """Return the most serious error of a response: if possible, one that isn't retriable.

    `right` is the operation that each partition's topic has to allow; `words` returns a text that
    explains a partition's error code.
    """
    errors = [
        error_for(code, words(partition, code))
        .needing(right, partition.topic, "topic")
        .needing("WRITE", transactional_id, "transactional id")
        for partition, code in codes.items()
        if code
    ]
    # If one partition has an error, all others have OPERATION_NOT_ATTEMPTED.
    errors.sort(key=lambda e: (isinstance(e, OperationNotAttemptedError), e.retriable))
    return errors[0] if errors else None


def _topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], ids: Mapping[TopicPartition, bytes]
) -> list[TxnOffsetCommitRequestTopic]:
    return [
        TxnOffsetCommitRequestTopic(
            name,
            topic_id,
            [
                TxnOffsetCommitRequestPartition(
                    p.partition, offsets[p].offset, offsets[p].leader_epoch, offsets[p].metadata
                )
                for p in of_topic
            ],
        )
        for (name, topic_id), of_topic in groupby(
            sorted(offsets, key=lambda p: (p.topic, ids.get(p, NO_ID), p.partition)),
            key=lambda p: (p.topic, ids.get(p, NO_ID)),
        )
    ]
