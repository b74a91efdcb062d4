"""Handle the requests of transactional producers: convert requests and responses.

In: a broker, a decoded request, its version, and a callback for the response. Out: responses with
the error codes of each version; `transaction_coordinator` and, for offsets, the groups' coordinator
do the work. Must not know connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages import add_partitions_to_txn as a
from odradek.protocol.messages import txn_offset_commit as o
from odradek.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.offset_handlers import shard_of_consumers
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC
from odradek.simulation.coordinators.transaction_coordinator import TransactionShard
from odradek.simulation.coordinators.transaction_states import KIP_890, TransactionMetadata

EPOCH_OF_EACH = 5
"""From this version of EndTxn on, each transaction has its own producer epoch (KIP-890)."""
LAST_OF_CLIENTS = 3
"""Last version of AddPartitionsToTxn that clients use; only brokers use later versions."""
IMPLICIT_OFFSETS = 5
"""From this version of TxnOffsetCommit on, it adds the group to the transaction (KIP-890)."""
TOPIC_IDS = 6
"""From this version of TxnOffsetCommit on, ids identify topics (KIP-1319)."""
_SOON = (
    errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError,
    errors.NotCoordinatorError,
)


def _code(error: BrokerError | None, *, fenced: bool = True) -> int:
    """Return an error's code; old clients get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if error is None:
        return 0
    if isinstance(error, errors.ProducerFencedError) and not fenced:
        return errors.InvalidProducerEpochError.code
    return error.code if error.code is not None else -1


def _shard(broker: BrokerState, transactional_id: str) -> TransactionShard:
    if not transactional_id:
        raise errors.InvalidRequestError("an empty transactional id")
    return broker.cluster.transactions.shard(broker, transactional_id)


def init_producer_id(
    broker: BrokerState, request: InitProducerIdRequest, version: int, reply: Reply
) -> InitProducerIdResponse | None:
    """Return a new producer id, or a transactional id's existing one with an epoch that fences.

    Without a transactional id, Kafka ignores the producer id in the request.
    """
    if request.transactional_id is None:
        return InitProducerIdResponse(
            producer_id=broker.cluster.new_producer_id(), producer_epoch=0
        )

    def answer(found: TransactionMetadata | BrokerError) -> None:
        if isinstance(found, BrokerError):
            code = _code(found, fenced=version >= 4)
            reply(InitProducerIdResponse(error_code=code, producer_epoch=-1))
        else:
            reply(InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch))

    timeout = request.transaction_timeout_ms / 1000.0
    expected = None
    if request.producer_id >= 0:
        expected = (request.producer_id, request.producer_epoch)
    try:
        if not 0 < timeout <= broker.cluster.transactions.longest:
            raise errors.InvalidTransactionTimeoutError(f"{timeout} s")
        shard = _shard(broker, request.transactional_id)
        shard.initialise(request.transactional_id, timeout, expected, answer)
    except BrokerError as error:
        answer(error)
    return None


def add_partitions(
    broker: BrokerState, request: a.AddPartitionsToTxnRequest, version: int, reply: Reply
) -> a.AddPartitionsToTxnResponse | None:
    """Add either all requested partitions or none to a transaction."""
    if version > LAST_OF_CLIENTS:
        code = errors.ClusterAuthorizationError.code
        return a.AddPartitionsToTxnResponse(error_code=code)
    places = [
        TopicPartition(topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    topics = broker.cluster.topics
    missing = {
        place
        for place in places
        if place.topic not in topics or place.partition >= len(topics[place.topic].partitions)
    }

    def answer(error: BrokerError | None) -> None:
        response = a.AddPartitionsToTxnResponse()
        for topic in request.v3_and_below_topics:
            results = a.AddPartitionsToTxnTopicResult(topic.name)
            response.results_by_topic_v3_and_below.append(results)
            for index in topic.partitions:
                code = _code(error, fenced=version >= 2)
                if missing:
                    code = errors.OperationNotAttemptedError.code
                    if TopicPartition(topic.name, index) in missing:
                        code = errors.UnknownTopicOrPartitionError.code
                results.results_by_partition.append(
                    a.AddPartitionsToTxnPartitionResult(index, code)
                )
        reply(response)

    if missing:
        answer(None)
        return None
    name = request.v3_and_below_transactional_id
    who = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    try:
        _shard(broker, name).add(name, *who, places, answer)
    except BrokerError as error:
        answer(error)
    return None


def add_offsets(
    broker: BrokerState, request: AddOffsetsToTxnRequest, version: int, reply: Reply
) -> None:
    """Add the partition that stores a group's offsets to a transaction."""

    def answer(error: BrokerError | None) -> None:
        reply(AddOffsetsToTxnResponse(error_code=_code(error, fenced=version >= 2)))

    name = request.transactional_id
    who = (request.producer_id, request.producer_epoch)
    try:
        place = TopicPartition(GROUP_TOPIC, broker.cluster.groups.index(request.group_id))
        _shard(broker, name).add(name, *who, [place], answer)
    except BrokerError as error:
        answer(error)


def end_txn(broker: BrokerState, request: EndTxnRequest, version: int, reply: Reply) -> None:
    """Commit or abort a transaction."""

    def answer(found: TransactionMetadata | BrokerError) -> None:
        if isinstance(found, BrokerError):
            reply(EndTxnResponse(error_code=_code(found, fenced=version >= 2)))
            return
        response = EndTxnResponse()
        if version >= EPOCH_OF_EACH:
            response.producer_id, response.producer_epoch = found.producer_id, found.epoch
        reply(response)

    name = request.transactional_id
    try:
        _shard(broker, name).end(
            name,
            request.producer_id,
            request.producer_epoch,
            answer,
            commit=request.committed,
            version=KIP_890 if version >= EPOCH_OF_EACH else 0,
        )
    except BrokerError as error:
        answer(error)


def txn_offset_commit(
    broker: BrokerState, request: o.TxnOffsetCommitRequest, version: int, reply: Reply
) -> None:
    """Store offsets until the transaction ends, after adding the group to the transaction."""
    names = [topic.name for topic in request.topics]
    if version >= TOPIC_IDS:  # as a broker does, convert ids into names first
        known = [broker.cluster.topic_by_id(topic.topic_id) for topic in request.topics]
        names = [found.name if found is not None else "" for found in known]
    offsets = _offsets_of_existing(broker, names, request)

    def answer(code: int) -> None:
        response = o.TxnOffsetCommitResponse()
        for name, topic in zip(names, request.topics, strict=True):
            unknown = errors.UnknownTopicOrPartitionError.code
            if not name:
                unknown = errors.UnknownTopicIdError.code
            places = [TopicPartition(name, p.partition_index) for p in topic.partitions]
            parts = [
                o.TxnOffsetCommitResponsePartition(
                    place.partition, code if place in offsets else unknown
                )
                for place in places
            ]
            response.topics.append(o.TxnOffsetCommitResponseTopic(name, topic.topic_id, parts))
        reply(response)

    def go_on(refusal: BrokerError | None) -> None:
        if isinstance(refusal, _SOON):
            answer(errors.CoordinatorLoadInProgressError.code)
        elif isinstance(refusal, errors.TransactionAbortableError) and version < 4:
            answer(errors.InvalidTxnStateError.code)
        elif refusal is not None:
            answer(_code(refusal, fenced=False))
        else:
            _keep(broker, request, offsets, answer)

    groups = broker.cluster.groups
    if not offsets:
        answer(0)
        return
    try:
        shard_of_consumers(broker, request.group_id)
        place = TopicPartition(GROUP_TOPIC, groups.index(request.group_id))
    except BrokerError as error:
        answer(_code(error))
        return
    broker.cluster.transactions.may_write(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        place,
        go_on,
        add=version >= IMPLICIT_OFFSETS,
    )


def _offsets_of_existing(
    broker: BrokerState, names: Sequence[str], request: o.TxnOffsetCommitRequest
) -> dict[TopicPartition, Committed]:
    """Return the offsets whose partitions exist; Kafka checks this when the request arrives."""
    topics = broker.cluster.topics
    return {
        TopicPartition(name, part.partition_index): Committed(
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata,
            topic.topic_id,
        )
        for name, topic in zip(names, request.topics, strict=True)
        if name in topics
        for part in topic.partitions
        if part.partition_index < len(topics[name].partitions)
    }


def _keep(
    broker: BrokerState,
    request: o.TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, Committed],
    answer: Callable[[int], None],
) -> None:
    try:
        shard = broker.cluster.groups.shard(broker, request.group_id)
    except BrokerError as error:
        answer(_code(error))
        return
    shard.commit_in_transaction(
        request.group_id,
        (request.member_id, request.generation_id_or_member_epoch, request.group_instance_id),
        request.producer_id,
        request.producer_epoch,
        offsets,
        lambda error: answer(_code(error)),
    )


TRANSACTION_HANDLERS: dict[type[Message], Handler] = {
    AddOffsetsToTxnRequest: add_offsets,
    a.AddPartitionsToTxnRequest: add_partitions,
    EndTxnRequest: end_txn,
    InitProducerIdRequest: init_producer_id,
    o.TxnOffsetCommitRequest: txn_offset_commit,
}
