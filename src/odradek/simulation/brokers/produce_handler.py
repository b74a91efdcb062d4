"""Handle Produce: check and append batches and, with acks=all, wait until they are committed.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response, or None if it comes later (or never, for acks=0 without an error). If the log doesn't know
the transaction of a batch, the handler first asks the transaction coordinator, which knows whether
the partition belongs to the transaction, or adds the partition from version 12 on (KIP-890).
Simplified: brokers communicate without delay. Must not know connections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.messages import produce as p
from odradek.protocol.primitives import Records
from odradek.record import BatchHeader
from odradek.simulation.brokers.cluster_state import BrokerState, Reply
from odradek.simulation.brokers.record_handlers import MOVED, find_topic, led_partition, place
from odradek.simulation.logs.partition_log import (
    RefusedRecordsError,
    StoredBatch,
    check_batch,
    check_keys,
)
from odradek.simulation.logs.topics import SimulatedPartition, SimulatedTopic

IMPLICIT = 12
"""First version of Produce in which a batch adds its partition to the transaction."""
ABORTABLE = 11
"""First version of Produce whose clients know the error TRANSACTION_ABORTABLE."""
_SAID_BY_COORDINATORS = (
    errors.ConcurrentTransactionsError,
    errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError,
    errors.NotCoordinatorError,
)
"""Coordinators' errors that old producers don't know; such producers get NOT_ENOUGH_REPLICAS."""

Then = Callable[[StoredBatch | BrokerError], None]
Answer = Callable[[p.PartitionProduceResponse], None]


def produce(
    broker: BrokerState, request: p.ProduceRequest, version: int, reply: Reply
) -> p.ProduceResponse | None:
    """Append batches; with acks=all, respond when all of them are committed or lost."""
    return _Produce(broker, request, version, reply).begin()


def written_before(broker: BrokerState, request: p.ProduceRequest, version: int) -> bool:
    """Return whether a partition's log already contains a batch of the request."""
    for asked in request.topic_data:
        try:
            topic = find_topic(broker, asked.name, asked.topic_id, by_id=version >= 13)
        except BrokerError:
            continue
        for data in asked.partition_data:
            try:
                log = led_partition(broker, topic, data.index).log
                if log.find_duplicate(check_batch(_as_bytes(data.records))) is not None:
                    return True
            except BrokerError:
                continue
    return False


class _Produce:
    """A Produce request in progress, and the number of its partitions without a result."""

    def __init__(
        self, broker: BrokerState, request: p.ProduceRequest, version: int, reply: Reply
    ) -> None:
        self._broker, self._request, self._version = broker, request, version
        self._reply = reply
        self._response = p.ProduceResponse()
        self._open = 0
        self._begun = self._failed = False

    def begin(self) -> p.ProduceResponse | None:
        """Append the batches that need no check by the transaction coordinator; start other checks.

        Returns the response if no result is pending.
        """
        for asked in self._request.topic_data:
            of_topic = p.TopicProduceResponse()
            if self._version >= 13:
                of_topic.topic_id = asked.topic_id
            else:
                of_topic.name = asked.name
            self._response.responses.append(of_topic)
            answers = of_topic.partition_responses
            for data in asked.partition_data:
                answers.append(p.PartitionProduceResponse(data.index))
                self._begin(asked, data, partial(answers.__setitem__, len(answers) - 1))
        self._begun = True
        if self._request.acks == 0:
            if self._failed:  # the broker closes the connection, its only way to report an error
                return self._response
            self._reply(None)
            return None
        return self._response if not self._open else None

    def _begin(
        self,
        asked: p.TopicProduceData,
        data: p.PartitionProduceData,
        answer: Answer,
    ) -> None:
        self._open += 1
        topic = None
        try:
            by_id = self._version >= 13
            topic = find_topic(self._broker, asked.name, asked.topic_id, by_id=by_id)
        except BrokerError as error:
            self._refused(answer, data.index, None, error)
            return
        found: SimulatedTopic = topic

        def appended(result: StoredBatch | BrokerError) -> None:
            if isinstance(result, BrokerError):
                self._refused(answer, data.index, found, result)
                return
            start = found.partitions[data.index].log.start_offset
            written = p.PartitionProduceResponse(
                data.index, base_offset=result.base_offset, log_start_offset=start
            )

            def settled(committed: bool) -> None:
                if committed:
                    answer(written)
                    self._ended()
                else:
                    error = errors.NotLeaderOrFollowerError("the leader changed")
                    self._refused(answer, data.index, found, error)

            if self._request.acks == -1:
                result.when_settled(settled)
            else:
                settled(True)

        append(self._broker, self._request, self._version, found, data, appended)

    def _refused(
        self, answer: Answer, index: int, topic: SimulatedTopic | None, error: BrokerError
    ) -> None:
        self._failed = True
        answer(_refusal(self._broker, index, topic, error, self._version, self._response))
        self._ended()

    def _ended(self) -> None:
        self._open -= 1
        if not self._open and self._begun and self._request.acks != 0:
            self._reply(self._response)


def append(
    broker: BrokerState,
    request: p.ProduceRequest,
    version: int,
    topic: SimulatedTopic,
    data: p.PartitionProduceData,
    then: Then,
) -> None:
    """Check a batch and append it, perhaps after the transaction coordinator has allowed it."""
    try:
        partition = _writable(broker, topic, data.index, request.acks)
        content = _as_bytes(data.records)
        header = check_batch(content, partition.log.max_message_bytes)
        if partition.log.compacted:
            check_keys(content)
        if header.transactional and request.transactional_id is None:
            raise errors.TransactionalIdAuthorizationError("a batch of no transactional id")
    except BrokerError as error:
        then(error)
        return

    def go_on(refusal: BrokerError | None) -> None:
        try:
            if refusal is not None:
                raise _as_producers_know(refusal, version)
            then(_append(broker, topic, data.index, request.acks, content, header))
        except BrokerError as error:
            then(error)

    if not header.transactional or _knows(partition, header):
        go_on(None)
    else:
        broker.cluster.transactions.may_write(
            request.transactional_id or "",
            header.producer_id,
            header.producer_epoch,
            TopicPartition(topic.name, data.index),
            go_on,
            add=version >= IMPLICIT,
        )


def _knows(partition: SimulatedPartition, header: BatchHeader) -> bool:
    """Return whether the log knows the batch's open transaction, or the batch is a duplicate."""
    state = partition.log.producers.get(header.producer_id)
    if state is None or state.epoch != header.producer_epoch:
        return False
    return (
        header.producer_id in partition.log.transactions.open
        or state.duplicate_of(header) is not None
    )


def _as_producers_know(error: BrokerError, version: int) -> BrokerError:
    if isinstance(error, errors.ProducerFencedError):
        return errors.InvalidProducerEpochError(str(error))
    if isinstance(error, errors.TransactionAbortableError) and version < ABORTABLE:
        return errors.InvalidTxnStateError(str(error))
    if isinstance(error, errors.ConcurrentTransactionsError) and version >= IMPLICIT:
        return error
    if isinstance(error, _SAID_BY_COORDINATORS):
        return errors.NotEnoughReplicasError(f"the transaction can't be looked up: {error}")
    return error


def _writable(
    broker: BrokerState, topic: SimulatedTopic, index: int, acks: int
) -> SimulatedPartition:
    partition = led_partition(broker, topic, index)
    cluster = broker.cluster
    if acks == -1 and cluster.in_sync(partition) < cluster.min_insync_replicas:
        raise errors.NotEnoughReplicasError(f"{topic.name}-{index}")
    return partition


def _append(
    broker: BrokerState,
    topic: SimulatedTopic,
    index: int,
    acks: int,
    data: bytes,
    header: BatchHeader,
) -> StoredBatch:
    partition = _writable(broker, topic, index, acks)
    duplicate = partition.log.find_duplicate(header)
    if duplicate is not None:
        broker.cluster.duplicates_refused += 1
        return duplicate
    batch = partition.log.append(data, header, partition.leader_epoch)
    broker.cluster.replicate(partition, batch)
    return batch


def _as_bytes(records: Records) -> bytes:
    if records is None:
        return b""
    if isinstance(records, (bytes, bytearray, memoryview)):
        return bytes(records)
    return b"".join(records)


def _refusal(
    broker: BrokerState,
    index: int,
    topic: SimulatedTopic | None,
    error: BrokerError,
    version: int,
    response: p.ProduceResponse,
) -> p.PartitionProduceResponse:
    answer = p.PartitionProduceResponse(index, error.code if error.code is not None else -1, -1)
    if version >= 8:
        answer.error_message = str(error)
        if isinstance(error, RefusedRecordsError):
            said = [p.BatchIndexAndErrorMessage(n, text) for n, text in error.refused.items()]
            answer.record_errors = said
    if version >= 10 and topic is not None and isinstance(error, MOVED):  # KIP-951
        partition = topic.partitions[index]
        answer.current_leader = p.LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
        leader = broker.cluster.brokers.get(partition.leader)
        known = {n.node_id for n in response.node_endpoints}
        if leader is not None and leader.id not in known:
            response.node_endpoints.append(p.NodeEndpoint(leader.id, *place(leader)))
    return answer
