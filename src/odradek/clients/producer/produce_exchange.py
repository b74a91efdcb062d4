"""Batches into one Produce request, and its answer back to the partitions it speaks of.

In: batches for one broker, the snapshot that knows their topics' ids. Out: a request for the
version that is spoken; what was answered, by topic and partition. Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from odradek.clients.producer.batch import ProducerBatch
from odradek.metadata.cluster import NO_ID, Cluster
from odradek.protocol.message import Message
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

FIRST_VERSION_WITH_TOPIC_IDS = 13


class ProduceExchange:
    """One request, and how its answer is read."""

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        snapshot: Cluster | None,
        version: int,
        timeout_ms: int,
        transactional_id: str | None,
        acks: int = -1,
    ) -> None:
        """Put the batches, one of each partition, into a request of at most this version."""
        topics: dict[str, TopicProduceData] = {}
        self._names: dict[bytes, str] = {}
        for batch in batches:
            name = batch.partition.topic
            data = topics.get(name)
            if data is None:
                topic = snapshot.topic(name) if snapshot is not None else None
                topic_id = topic.topic_id if topic is not None else NO_ID
                self._names[topic_id] = name
                data = topics[name] = TopicProduceData(name=name, topic_id=topic_id)
            sealed = batch.sealed(transactional=transactional_id is not None)
            data.partition_data.append(
                PartitionProduceData(index=batch.partition.partition, records=sealed)
            )
        self.body = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
        )
        self._topics = list(topics)
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS and NO_ID not in self._names
        self.version = version if by_id else min(version, FIRST_VERSION_WITH_TOPIC_IDS - 1)
        for data in topics.values():
            if by_id:
                data.name = ""
            else:
                data.topic_id = NO_ID

    def answers(self, response: Message) -> dict[tuple[str, int], PartitionProduceResponse]:
        """What was answered, by topic and partition; with acks=0 that all went well."""
        if not self.body.acks:
            return {
                (name, data.index): PartitionProduceResponse(data.index, base_offset=-1)
                for name, topic in zip(self._topics, self.body.topic_data, strict=True)
                for data in topic.partition_data
            }
        found: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in cast("ProduceResponse", response).responses:
            name = topic.name or self._names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                found[name, partition.index] = partition
        return found
