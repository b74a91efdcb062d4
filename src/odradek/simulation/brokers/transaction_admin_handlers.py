"""Handle admin requests for producers and transactions (KIP-664).

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response. Must not know connections.
"""

from __future__ import annotations

import re
from typing import Any

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages import describe_producers as dp
from odradek.protocol.messages import describe_transactions as dt
from odradek.protocol.messages import list_transactions as lt
from odradek.protocol.messages import write_txn_markers as w
from odradek.simulation.brokers.admin_state import each
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.record_handlers import find_topic, led_partition
from odradek.simulation.coordinators.transaction_states import State, TransactionMetadata
from odradek.simulation.logs.partition_log import PartitionLog


def describe_producers(
    broker: BrokerState, request: dp.DescribeProducersRequest, version: int, reply: Reply
) -> dp.DescribeProducersResponse:
    """Return the active producers of partitions that this broker leads."""

    def of_topic(topic: dp.TopicRequest) -> dp.TopicResponse:
        def told(number: int) -> list[dp.ProducerState]:
            found = find_topic(broker, topic.name, b"", by_id=False)
            return _producers(led_partition(broker, found, number).log)

        return dp.TopicResponse(
            topic.name,
            each(
                topic.partition_indexes,
                told,
                lambda p, code, why, found: dp.PartitionResponse(p, code, why, found or []),
            ),
        )

    return dp.DescribeProducersResponse(topics=[of_topic(t) for t in request.topics])


def _producers(log: PartitionLog) -> list[dp.ProducerState]:
    found = []
    for number, state in log.producers.items():
        last = state.batches[-1].header if state.batches else None
        found.append(
            dp.ProducerState(
                number,
                state.epoch,
                -1 if last is None else last.base_sequence + last.count - 1,
                -1 if last is None else last.max_timestamp,
                0 if last is not None and last.transactional else -1,
                log.transactions.open.get(number, -1),
            )
        )
    return found


def describe_transactions(
    broker: BrokerState, request: dt.DescribeTransactionsRequest, version: int, reply: Reply
) -> dt.DescribeTransactionsResponse:
    """Return the state of transactions that this broker coordinates."""

    def told(name: str) -> TransactionMetadata:
        found = broker.cluster.transactions.shard(broker, name).known.get(name)
        if found is None:
            raise errors.TransactionalIdNotFoundError(name)
        return found

    def result(
        name: str, code: int, _: str | None, found: TransactionMetadata | None
    ) -> dt.TransactionState:
        if found is None:
            return dt.TransactionState(code, name)
        topics: dict[str, list[int]] = {}
        for at in sorted(found.partitions):
            topics.setdefault(at.topic, []).append(at.partition)
        return dt.TransactionState(
            0,
            name,
            found.state.value,
            round(found.timeout * 1000),
            round(found.started * 1000) if found.state is State.ONGOING else -1,
            found.producer_id,
            found.epoch,
            [dt.TopicData(*t) for t in topics.items()],
        )

    return dt.DescribeTransactionsResponse(
        transaction_states=each(request.transactional_ids, told, result)
    )


def list_transactions(
    broker: BrokerState, request: lt.ListTransactionsRequest, version: int, reply: Reply
) -> lt.ListTransactionsResponse:
    """Return the transactional ids that this broker coordinates."""
    topic = broker.cluster.transactions
    led = broker.cluster.topics.get(topic.name)
    found: list[TransactionMetadata] = []
    for partition in led.partitions if led is not None else ():
        if partition.leader == broker.id:
            try:
                found += topic.shard_at(broker, partition.index).known.values()
            except errors.CoordinatorLoadInProgressError as error:
                return lt.ListTransactionsResponse(error_code=error.code)
    now = broker.time.now

    def wanted(t: TransactionMetadata) -> bool:
        pattern = request.transactional_id_pattern
        return (
            (not request.state_filters or t.state.value in request.state_filters)
            and (not request.producer_id_filters or t.producer_id in request.producer_id_filters)
            and (
                request.duration_filter < 0
                or (t.state is State.ONGOING and (now - t.started) * 1000 > request.duration_filter)
            )
            and (not pattern or re.fullmatch(pattern, t.transactional_id) is not None)
        )

    return lt.ListTransactionsResponse(
        transaction_states=[
            lt.TransactionState(t.transactional_id, t.producer_id, t.state.value)
            for t in found
            if wanted(t)
        ]
    )


def write_txn_markers(
    broker: BrokerState, request: w.WriteTxnMarkersRequest, version: int, reply: Reply
) -> w.WriteTxnMarkersResponse:
    """Append transaction markers to logs that this broker leads."""

    def write(marker: w.WritableTxnMarker, name: str, number: int) -> None:
        found = find_topic(broker, name, b"", by_id=False)
        partition = led_partition(broker, found, number)
        batch = partition.log.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            partition.leader_epoch,
            int(broker.time.now * 1000),
            commit=marker.transaction_result,
        )
        broker.cluster.replicate(partition, batch)

    return w.WriteTxnMarkersResponse(
        [
            w.WritableTxnMarkerResult(
                m.producer_id,
                [
                    w.WritableTxnMarkerTopicResult(
                        t.name,
                        each(
                            t.partition_indexes,
                            lambda p, m=m, t=t: write(m, t.name, p),  # type: ignore[misc]  # bound now
                            lambda p, code, *_: w.WritableTxnMarkerPartitionResult(p, code),
                        ),
                    )
                    for t in m.topics
                ],
            )
            for m in request.markers
        ]
    )


TRANSACTION_ADMIN_HANDLERS: dict[type[Message], Handler] = {
    dp.DescribeProducersRequest: describe_producers,
    dt.DescribeTransactionsRequest: describe_transactions,
    lt.ListTransactionsRequest: list_transactions,
    w.WriteTxnMarkersRequest: write_txn_markers,
}
TRANSACTION_ADMIN_REFUSALS: dict[str, Any] = {
    "WriteTxnMarkers": lambda body, code: w.WriteTxnMarkersResponse(
        [
            w.WritableTxnMarkerResult(
                m.producer_id,
                [
                    w.WritableTxnMarkerTopicResult(
                        t.name,
                        [w.WritableTxnMarkerPartitionResult(p, code) for p in t.partition_indexes],
                    )
                    for t in m.topics
                ],
            )
            for m in body.markers
        ]
    )
}
"""Responses by API that repeat an error code for each item of the request."""
