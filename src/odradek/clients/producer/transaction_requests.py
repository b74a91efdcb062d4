"""What a transactional producer asks its coordinator, and the coordinators of consumer groups.

In: the producer's id and epoch, partitions, offsets. Out: answers; errors that aren't retriable, as
they were answered. Everything else is tried again here: what all requests to coordinators share in
`clients/coordinator`, and CONCURRENT_TRANSACTIONS, which is over in milliseconds: the last
transaction's markers are still being written. Must not: know in which state the producer is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from typing import ClassVar, TypeVar, cast

from odradek.clients.any_broker import ATTEMPTS_KEPT
from odradek.clients.client_engine import ClientEngine
from odradek.clients.consumer.records import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.clients.producer.producer_id import quick_backoff
from odradek.clients.refusal_words import of_offset, of_producer_id
from odradek.common.backoff import Backoff
from odradek.common.errors import Attempt, KafkaError
from odradek.common.kafka_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    OperationNotAttemptedError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import NO_ID, Cluster
from odradek.network.flow import START, Flow, Signal, Wait
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
)

M = TypeVar("M", bound=Message)
Identity = tuple[int, int]
"""A producer's id and epoch."""

LAST_FOR_CLIENTS = 3
"""Newer versions of AddPartitionsToTxn are spoken among brokers."""
WITHOUT_EPOCHS = 4
"""EndTxn and TxnOffsetCommit up to here know nothing of transaction version 2 (KIP-890)."""
WITH_BUMPS = 3
"""InitProducerId gives a new epoch to who names the old one from here on (KIP-360)."""
NOT_BEGUN = (ConcurrentTransactionsError, CoordinatorLoadInProgressError)
"""Retriable answers of a coordinator that hasn't begun what it was asked for. After the others its
log may have it: they also tell of a write to that log which wasn't replicated in time."""
NOT_NOW = (ConcurrentTransactionsError, UnknownTopicOrPartitionError)
"""Answers of a coordinator that works, whose cause may be over soon, or never (a deleted topic)."""


class TxnOffsetCommitByName(TxnOffsetCommitRequest):
    """For topics whose ids aren't known (they are all that is sent from version 6 on, KIP-1319)."""

    MAX_VERSION: ClassVar[int] = 5


class UnwantedError(Exception):
    """A request was refused, and whoever made it doesn't need it any more."""


class TransactionRequests:
    """The requests of one transactional id."""

    def __init__(
        self, engine: ClientEngine, transactional_id: str, timeout: float, changed: Signal
    ) -> None:
        """`changed` is notified when what a request is repeated for may be wanted no longer."""
        self._engine = engine
        self._changed = changed
        self._id = transactional_id
        self._timeout_ms = round(timeout * 1000)
        self.coordinator = Coordinator(engine, CoordinatorKind.TRANSACTION, transactional_id)
        self._groups: dict[str, Coordinator] = {}
        self._ending: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        """Answers to the newest request that told of the end of the last transaction."""
        self.in_doubt = False
        """Whether the newest request may have been carried out, whatever is said of it now."""

    @property
    def attempts(self) -> list[Attempt]:
        """What went wrong with the newest request, for the error of a call that ran out of time."""
        return sorted([*self._ending, *self.coordinator.attempts], key=lambda a: a.at)

    @property
    def can_bump(self) -> bool:
        """KIP-360: whether the coordinator bumps epochs (Kafka 2.5 and newer)."""
        return (self.coordinator.version(InitProducerIdRequest) or 0) >= WITH_BUMPS

    def init_producer_id(self, identity: Identity, deadline: float) -> Flow[Identity]:
        """A first id and epoch, or the epoch after this one."""
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
        """Tell the coordinator which partitions will be written to.

        Raises `UnwantedError` when they were refused (one doesn't exist) and aren't `wanted` now.
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
        """Tell the coordinator that offsets of a group will be committed."""
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
    ) -> Flow[None]:
        """Give the group's coordinator the offsets that count once the transaction commits."""
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = Coordinator(self._engine, CoordinatorKind.GROUP, group.group_id)
            self._groups[group.group_id] = coordinator
        # Looked up once: what was read of a topic means nothing in another one of the same name.
        snapshot = self._engine.metadata.snapshot or Cluster()
        names = snapshot.names_by_id({p.topic: None for p in offsets})
        kind = TxnOffsetCommitRequest if names else TxnOffsetCommitByName
        body = kind(
            self._id,
            group.group_id,
            *identity,
            group.generation_id,
            group.member_id,
            group.group_instance_id,
            _topics(offsets, names),
        )
        yield from self._ask(
            coordinator,
            f"offsets of group {group.group_id!r} in the transaction",
            body,
            lambda answer: worst(
                {
                    TopicPartition(t.name or names.get(t.topic_id, ""), p.partition_index): (
                        p.error_code
                    )
                    for t in answer.topics
                    for p in t.partitions
                },
                *("READ", self._id),
                lambda p, code: of_offset(code, str(p), offsets.get(p), group),
            ),
            deadline,
            newest=newest,
            ordered=True,  # an older call's offsets that arrive after newer ones would count
        )

    def end(
        self, identity: Identity, deadline: float, *, committed: bool, newest: int | None
    ) -> Flow[Identity | None]:
        """Commit or abort; gives the id and epoch to go on with where that comes along."""
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
        ordered: bool = False,
    ) -> Flow[M]:
        """Ask until it is answered; the end of the last transaction is waited for impatiently."""
        now = yield START
        engine = self._engine
        quick = Backoff(quick_backoff(engine.config), engine.rng)
        usual = Backoff(engine.config.backoff("retry.backoff"), engine.rng)
        mine = NOT_NOW if wanted is not None else ConcurrentTransactionsError
        self._ending.clear()
        self.in_doubt = False

        def check(answer: M) -> KafkaError | None:
            error = read(answer)
            if error is not None and error.retriable and not isinstance(error, NOT_BEGUN):
                self.in_doubt = True
            return None if isinstance(error, mine) else error

        while True:
            try:
                response = cast("type[M]", body.RESPONSE)
                one = coordinator.ask(
                    *(what, lambda _: body, response, check, deadline),
                    newest=newest,
                    ordered=ordered,
                )
                answer = yield from one
            finally:
                self.in_doubt |= coordinator.answer_lost
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
                engine.metadata.request(f"{what}: {type(error).__name__}")
            while now < until:
                # The end of the last transaction comes soon, and all else waits for it, too.
                if wanted is not None and backoff is usual and not wanted():
                    raise UnwantedError
                now = yield Wait((self._changed,) if wanted else (), min(until, deadline))
                if now >= deadline:
                    raise engine.timeout(f"{what} ({error})", now)


def error_of(code: int, about: str, group_id: str = "") -> KafkaError | None:
    """The error of a code, None for success."""
    return error_for(code, about).needing("READ", group_id, "group") if code else None


def worst(
    codes: Mapping[TopicPartition, int],
    right: str,
    transactional_id: str,
    words: Callable[[TopicPartition, int], str] = lambda partition, _: str(partition),
) -> KafkaError | None:
    """The error that decides about an answer for many partitions: one that no retry mends. `right`
    is what each partition's topic has to allow; `words` says more of it than its code.
    """
    errors = [
        error_for(code, words(partition, code))
        .needing(right, partition.topic, "topic")
        .needing("WRITE", transactional_id, "transactional id")
        for partition, code in codes.items()
        if code
    ]
    # "Not attempted" is said of all partitions beside one with an error of its own.
    errors.sort(key=lambda e: (isinstance(e, OperationNotAttemptedError), e.retriable))
    return errors[0] if errors else None


def _topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], names: Mapping[bytes, str]
) -> list[TxnOffsetCommitRequestTopic]:
    ids = {name: topic_id for topic_id, name in names.items()}
    return [
        TxnOffsetCommitRequestTopic(
            name,
            ids.get(name, NO_ID),
            [
                TxnOffsetCommitRequestPartition(
                    p.partition, offsets[p].offset, offsets[p].leader_epoch, offsets[p].metadata
                )
                for p in of_topic
            ],
        )
        for name, of_topic in groupby(sorted(offsets), key=lambda p: p.topic)
    ]
