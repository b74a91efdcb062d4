"""Look up where the records of leader epochs end in the logs of the current leaders (KIP-320).

In: partitions with a leader epoch. Out: for each the newest epoch of its log that isn't above the
given one, and the offset after that epoch's last record; -1 if the leader doesn't know. A position
of that epoch beyond this offset isn't in the log any more. Must not: judge or move a position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from odradek.clients.consumer.fetching.offsets import ListedOffset, ListOffsetsCall, Row
from odradek.common.types import TopicPartition
from odradek.metadata.partitions import Partition
from odradek.network.connection import Connection
from odradek.network.effects import AnyRequest
from odradek.protocol.message import Message
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

FIRST_VERSION_FOR_CONSUMERS = 3
"""First version that requires DESCRIBE on the topic instead of a permission on the cluster."""
REPLICA_ID = -1  # Kafka's replica id for clients
UNKNOWN = ListedOffset(-1, -1, -1)


def is_supported(connection: Connection) -> bool:
    """Return whether the broker accepts this request from a consumer."""
    _, newest = connection.versions.get(OffsetForLeaderEpochRequest.API_KEY, (0, -1))
    return newest >= FIRST_VERSION_FOR_CONSUMERS


class EpochEndsCall(ListOffsetsCall):
    """A lookup of epochs instead of timestamps; a result's `offset` is the end of the epoch."""

    api = "OffsetForLeaderEpoch"

    def _send(
        self, connection: Connection, parts: list[tuple[TopicPartition, Partition]], now: float
    ) -> None:
        if is_supported(connection):
            super()._send(connection, parts, now)
            return
        for wanted, _ in parts:
            self._give(wanted, UNKNOWN)

    def _body(self, parts: list[tuple[TopicPartition, Partition]]) -> AnyRequest:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for wanted, partition in parts:
            topic = topics.setdefault(wanted.topic, OffsetForLeaderTopic(wanted.topic))
            asked = wanted.partition, partition.leader_epoch, self._left[wanted]
            topic.partitions.append(OffsetForLeaderPartition(*asked))
        return OffsetForLeaderEpochRequest(REPLICA_ID, list(topics.values()))

    def _rows(self, response: Message) -> Iterator[Row]:
        for topic in cast("OffsetForLeaderEpochResponse", response).topics:
            for p in topic.partitions:
                found = ListedOffset(p.end_offset, -1, p.leader_epoch)
                yield TopicPartition(topic.topic, p.partition), p.error_code, found
