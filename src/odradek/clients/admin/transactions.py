"""Describe, list and end producers and transactions, also hanging ones (KIP-664).

In: arguments of a call. Out: `AdminCall`s. A partition's leader knows the producers that write to
it, the coordinator of a transactional id its transaction. Must not: use a producer of this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.clients.admin.admin_arguments import keys
from odradek.clients.admin.admin_call import (
    AdminCall,
    by_brokers,
    by_coordinator_of_each,
    by_coordinators,
    by_leaders,
)
from odradek.clients.admin.groups import of_coordinators
from odradek.clients.admin.reassignments import by_topic
from odradek.clients.batched_calls import (
    LEADER_MOVED,
    ApiCall,
    ItemResult,
    ItemResults,
    call_leaders,
)
from odradek.clients.consumer.partition_arguments import one_partition, some_partitions
from odradek.clients.coordinator import CoordinatorKind
from odradek.clients.descriptions import describe_each, leaders, list_topics
from odradek.clients.producer.transaction_requests import WITHOUT_EPOCHS
from odradek.clients.producer.transaction_state import PreparedTransaction
from odradek.common.arguments import (
    INT32_MAX,
    INT64_MAX,
    checked_timeout,
    choice,
    iterable,
    refusal,
    text,
    whole_number,
)
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow
from odradek.protocol.messages import describe_producers as dp
from odradek.protocol.messages import describe_transactions as dt
from odradek.protocol.messages import end_txn as e
from odradek.protocol.messages import init_producer_id as ip
from odradek.protocol.messages import list_transactions as lt
from odradek.protocol.messages import write_txn_markers as w

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence"),
)
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of transactions that the coordinator will end."""
NEVER = -1
LONGEST = 900.0
"""Default of the brokers' `transaction.max.timeout.ms`, in seconds."""
MOST_TIMEOUT = 60_000
"""Transaction timeout in milliseconds; brokers refuse more than transaction.max.timeout.ms."""
INT16_MAX = 2**15 - 1
OVER = (
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
)
"""Errors for a transaction that is no longer open: it was aborted, or committed long ago."""


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that recently wrote to a partition.

    `transaction_start_offset`: start of its open transaction, None without one. `coordinator_epoch`
    is -1 for a producer without transactions.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id at its coordinator.

    `state` uses Kafka's names, such as Ongoing; `start_ms` is None without an open transaction.
    """

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """The open transaction of a producer in one partition, to be aborted by the leader."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The current producer id and epoch of a transactional id; older epochs are fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction that no coordinator knows, and that blocks read_committed consumers.

    These consumers can't read beyond `start_offset`. `abort_transaction(hanging.spec)` ends it.
    """

    spec: AbortTransactionSpec
    start_offset: int
    last_timestamp_ms: int


# Producers

ActiveProducers = tuple[ActiveProducer, ...]


def producers(
    partitions: Sequence[TopicPartition], broker: int | None
) -> AdminCall[dict[TopicPartition, ActiveProducers]]:
    """List the recent producers of partitions, from the leaders or from one `broker`."""
    wanted = some_partitions(partitions)
    if broker is None:
        return by_leaders(_producers(), wanted)
    number = whole_number("broker", broker, 0, INT32_MAX)
    return by_brokers(lambda _: _producers(), {number: wanted}, _WHAT)


_WHAT = "the description of producers"


def _producers() -> ApiCall[TopicPartition, dp.DescribeProducersResponse, ActiveProducers]:
    def read(
        answer: dp.DescribeProducersResponse,
    ) -> Iterator[ItemResult[TopicPartition, ActiveProducers]]:
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                found = tuple(_producer(p) for p in part.active_producers)
                yield at, part.error_code, part.error_message, found

    return ApiCall(
        _WHAT,
        "partition",
        lambda left, _: dp.DescribeProducersRequest(
            [dp.TopicRequest(*t) for t in by_topic(left).items()]
        ),
        dp.DescribeProducersResponse,
        read,
        right="READ",
        moving=LEADER_MOVED,
    )


def _producer(p: dp.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        p.producer_id,
        p.producer_epoch,
        p.last_sequence,
        p.last_timestamp,
        p.coordinator_epoch,
        None if p.current_txn_start_offset == NEVER else p.current_txn_start_offset,
    )


# Transactions


def describe(ids: Sequence[str] | str) -> AdminCall[dict[str, TransactionDescription]]:
    """Describe transactional ids, from their coordinators."""
    return by_coordinators(
        CoordinatorKind.TRANSACTION, _describing(), keys("ids", ids, "transactional ids")
    )


def _describing() -> ApiCall[str, dt.DescribeTransactionsResponse, TransactionDescription]:
    def read(
        answer: dt.DescribeTransactionsResponse,
    ) -> Iterator[ItemResult[str, TransactionDescription]]:
        for t in answer.transaction_states:
            found = TransactionDescription(
                t.transaction_state,
                t.producer_id,
                t.producer_epoch,
                t.transaction_timeout_ms,
                None if t.transaction_start_time_ms == NEVER else t.transaction_start_time_ms,
                frozenset(TopicPartition(x.topic, p) for x in t.topics for p in x.partitions),
            )
            yield t.transactional_id, t.error_code, None, found

    return ApiCall(
        "the description of transactions",
        "transactional id",
        lambda left, _: dt.DescribeTransactionsRequest(left),
        dt.DescribeTransactionsResponse,
        read,
        right="DESCRIBE",
        hurried=True,
    )


def listing(
    states: Sequence[str],
    producer_ids: Sequence[int],
    running_longer_than: float | None,
    pattern: str | None,
) -> AdminCall[list[TransactionListing]]:
    """List all transactional ids, from all brokers that coordinate some."""
    in_states = [choice("states", s, STATES) for s in keys("states", states, "states")]
    ids = [
        whole_number("producer_ids", p, 0, INT64_MAX)
        for p in iterable("producer_ids", producer_ids, "a list of producer ids")
    ]
    longer = NEVER
    if running_longer_than is not None:
        longer = int(checked_timeout(running_longer_than, "running_longer_than") * 1000)
    matching = None if pattern is None else text("pattern", pattern)
    question = _listing(in_states, ids, longer, matching)
    return of_coordinators(CoordinatorKind.TRANSACTION, question, lambda t: t.transactional_id)


def _listing(
    states: list[str], ids: list[int], longer: int, pattern: str | None
) -> ApiCall[None, lt.ListTransactionsResponse, list[TransactionListing]]:
    return ApiCall(
        "the list of transactions",
        "",
        lambda *_: lt.ListTransactionsRequest(states, ids, longer, pattern),
        lt.ListTransactionsResponse,
        lambda answer: [
            (
                None,
                0,
                None,
                [
                    TransactionListing(t.transactional_id, t.producer_id, t.transaction_state)
                    for t in answer.transaction_states
                ],
            )
        ],
        right="DESCRIBE",
    )


def abort(spec: Any) -> AdminCall[None]:
    """Abort a transaction in one partition, whatever its coordinator knows (KIP-664)."""
    if not isinstance(spec, AbortTransactionSpec):
        cure = "use AbortTransactionSpec(partition, producer_id, producer_epoch, …)"
        raise refusal("spec", "an AbortTransactionSpec", spec, cure)
    partition = one_partition(spec.partition)
    producer_id = whole_number("producer_id", spec.producer_id, 0, INT64_MAX)
    epoch = whole_number("producer_epoch", spec.producer_epoch, 0, INT16_MAX)
    # Before the first marker of a producer, the leader knows no coordinator epoch and accepts any.
    coordinator = max(0, whole_number("coordinator_epoch", spec.coordinator_epoch, -1, INT32_MAX))

    def read(answer: w.WriteTxnMarkersResponse) -> Iterator[ItemResult[TopicPartition, None]]:
        for marker in answer.markers:
            for topic in marker.topics:
                for part in topic.partitions:
                    yield (
                        TopicPartition(topic.name, part.partition_index),
                        part.error_code,
                        None,
                        None,
                    )

    question: ApiCall[TopicPartition, w.WriteTxnMarkersResponse, None] = ApiCall(
        f"the abort of the transaction of producer {producer_id}",
        "partition",
        lambda *_: w.WriteTxnMarkersRequest(
            [
                w.WritableTxnMarker(
                    producer_id,
                    epoch,
                    False,
                    [w.WritableTxnMarkerTopic(partition.topic, [partition.partition])],
                    coordinator,
                )
            ]
        ),
        w.WriteTxnMarkersResponse,
        read,
        right="ALTER",
        moving=LEADER_MOVED,
    )
    return by_leaders(question, [partition]).then(lambda _: None)


def fence(ids: Sequence[str] | str) -> AdminCall[dict[str, ProducerIdAndEpoch]]:
    """Fence the producers of transactional ids and abort their open transactions."""
    wanted = keys("ids", ids, "transactional ids")

    def question(key: str) -> ApiCall[str, ip.InitProducerIdResponse, ProducerIdAndEpoch]:
        return ApiCall(
            "the fencing of producers",
            "transactional id",
            lambda _, ms: ip.InitProducerIdRequest(key, min(ms, MOST_TIMEOUT)),
            ip.InitProducerIdResponse,
            lambda answer: [
                (
                    key,
                    answer.error_code,
                    None,
                    ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch),
                )
            ],
            whole=False,
            right="WRITE",
        )

    return by_coordinator_of_each(
        CoordinatorKind.TRANSACTION,
        question,
        {key: (key,) for key in wanted},
        "the fencing of producers",
    )


def end(
    transactions: Sequence[PreparedTransaction], *, committed: bool
) -> AdminCall[dict[str, KafkaError | None]]:
    """Commit or abort transactions of other processes.

    Returns an error of `OVER` for each transaction that was no longer open. A repeated request is
    no error, as long as no producer has used the transactional id since.
    """
    by_id = {t.transactional_id: t for t in transactions}
    what = f"the {'commit' if committed else 'abort'} of transactions"

    def question(key: str) -> ApiCall[str, e.EndTxnResponse, None]:
        one = by_id[key]
        return ApiCall(
            what,
            "transactional id",
            lambda *_: e.EndTxnRequest(key, one.producer_id, one.epoch, committed),
            e.EndTxnResponse,
            lambda answer: [(key, answer.error_code, None, None)],
            whole=False,
            right="WRITE",
            newest=None if one.version_2 else WITHOUT_EPOCHS,
        )

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, KafkaError | None]]:
        outcomes = yield from engine.coordinators.by_key(
            CoordinatorKind.TRANSACTION, question, {key: (key,) for key in by_id}, deadline
        )
        found: dict[str, KafkaError | None] = {}
        for key, outcome in outcomes.items():
            found[key] = outcome.errors.get(key)
            if not isinstance(found[key], (*OVER, type(None))):
                outcome.settled()
        return found

    return AdminCall(what, flow)


# Hanging transactions


def hanging(
    topics: Sequence[str] | str | None, older_than: float, now: float
) -> AdminCall[list[HangingTransaction]]:
    """List open transactions that no coordinator knows.

    A transaction written to within `older_than` seconds is ignored: it may have ended between two
    requests.
    """
    names = None if topics is None else keys("topics", topics, "topics' names")
    before = (now - checked_timeout(older_than, "older_than")) * 1000

    def flow(engine: AdminEngine, deadline: float) -> Flow[list[HangingTransaction]]:
        wanted = names
        if wanted is None:
            wanted = yield from list_topics(engine.brokers, deadline, internal=True)
        described = (yield from describe_each(engine.brokers, wanted, deadline)).settled()
        partitions = [
            TopicPartition(t.name, p.partition) for t in described.values() for p in t.partitions
        ]
        asked = yield from call_leaders(engine.brokers, _producers(), partitions, deadline, leaders)
        suspects = [
            HangingTransaction(
                AbortTransactionSpec(at, p.producer_id, p.producer_epoch, p.coordinator_epoch),
                p.transaction_start_offset,
                p.last_timestamp_ms,
            )
            for at, states in asked.settled().items()
            for p in states
            if p.transaction_start_offset is not None and p.last_timestamp_ms <= before
        ]
        known = yield from _known(engine, {s.spec.producer_id for s in suspects}, deadline)
        return [s for s in suspects if (s.spec.producer_id, s.spec.partition) not in known]

    return AdminCall("the search for hanging transactions", flow)


def _known(
    engine: AdminEngine, producer_ids: set[int], deadline: float
) -> Flow[set[tuple[int, TopicPartition]]]:
    """Return (producer id, partition) of these producers' transactions that coordinators know."""
    if not producer_ids:
        return set()
    listed = yield from listing((), sorted(producer_ids), None, None).flow(engine, deadline)
    ids = [t.transactional_id for t in listed]
    asked = yield from engine.coordinators.by_broker(
        CoordinatorKind.TRANSACTION, _describing(), ids, deadline
    )
    errors = {
        key: error
        for key, error in asked.errors.items()
        if not isinstance(error, TransactionalIdNotFoundError)  # the transactional id has expired
    }
    settled = ItemResults(asked.results, errors).settled()
    return {(t.producer_id, at) for t in settled.values() for at in t.partitions}
