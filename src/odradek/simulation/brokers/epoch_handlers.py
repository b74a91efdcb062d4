"""Handle OffsetForLeaderEpoch, by which clients detect lost records (KIP-320).

In: a broker that leads a partition, and an epoch. Out: the newest epoch of the log that isn't above
this epoch, and the offset after that epoch's last record. Must not know connections.
"""

from __future__ import annotations

from odradek.common.errors import BrokerError
from odradek.protocol.message import Message
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.record_handlers import find_topic, led_partition
from odradek.simulation.logs.topics import SimulatedPartition

UNDEFINED = (-1, -1)


def offset_for_leader_epoch(
    broker: BrokerState,
    request: OffsetForLeaderEpochRequest,
    version: int,
    reply: Reply,
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of an epoch for each partition that this broker leads."""
    response = OffsetForLeaderEpochResponse()
    for asked in request.topics:
        of_topic = OffsetForLeaderTopicResult(asked.topic)
        response.topics.append(of_topic)
        for part in asked.partitions:
            answer = EpochEndOffset(partition=part.partition)
            of_topic.partitions.append(answer)
            try:
                topic = find_topic(broker, asked.topic, b"", by_id=False)
                found = led_partition(broker, topic, part.partition, part.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = end_of_epoch(found, part.leader_epoch)
            except BrokerError as error:
                answer.error_code = error.code if error.code is not None else -1
    return response


def end_of_epoch(partition: SimulatedPartition, epoch: int) -> tuple[int, int]:
    """Return the newest epoch up to `epoch` and its end offset, as Kafka's epoch cache does."""
    if epoch > partition.leader_epoch:
        return UNDEFINED
    below = [b.leader_epoch for b in partition.log.batches if b.leader_epoch <= epoch]
    for batch in partition.log.batches:
        if batch.leader_epoch > epoch:
            return (below[-1] if below else epoch), batch.base_offset
    return (below[-1] if below else epoch), partition.log.end_offset


EPOCH_HANDLERS: dict[type[Message], Handler] = {
    OffsetForLeaderEpochRequest: offset_for_leader_epoch
}
