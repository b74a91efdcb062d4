"""Build one Produce request from batches, and match its response with their partitions.

In: batches for one broker, metadata with their topics' ids. Out: a request in the negotiated
version; the results by topic and partition; counts of what was sent. Must not: decide anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from odradek.clients.producer.batch import ProducerBatch
from odradek.common.sampled import KEPT, WINDOW
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


class TopicCounts:
    """Counts of one topic since the producer was created."""

    __slots__ = ("bytes", "failed", "records", "retried")

    def __init__(self) -> None:
        self.records = 0
        """Number of sent records; retries count again, as in Java."""
        self.bytes = 0
        """Number of bytes of the sent batches, compressed."""
        self.retried = 0
        """Number of records in retried batches, counted at each retry."""
        self.failed = 0
        """Number of records that failed."""


class RecentlySent:
    """A sample of sent records; the last two cover the recent past, as in `Sampled`."""

    __slots__ = ("batches", "begun", "bytes", "largest", "longest", "queued", "records", "requests")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.requests = self.records = self.batches = self.bytes = self.largest = 0
        self.queued = self.longest = 0.0
        """Sum and maximum of the seconds from a batch's creation until it was sent."""


class SentCounts:
    """Counts of one producer's sent records for its metrics, written in the engine's step.

    Splits and retries of requests are counted as events. Counting costs no function call per batch,
    and nothing per record.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounts] = {}
        self.former = TopicCounts()
        """Sum of all topics that were forgotten, so that totals don't fall."""
        self.running = self.before = RecentlySent(-math.inf)
        self.until = -math.inf

    def of(self, topic: str) -> TopicCounts:
        """Return the counts of a topic."""
        return self.topics.get(topic) or self.topics.setdefault(topic, TopicCounts())

    def forget(self, topic: str) -> None:
        """Add the counts of a topic that isn't in use any more to `former`."""
        gone, former = self.topics.pop(topic, None), self.former
        if gone is not None:
            former.records += gone.records
            former.bytes += gone.bytes
            former.retried += gone.retried
            former.failed += gone.failed

    def turn(self, now: float) -> None:
        """Begin the next sample, because the time of the current one is over."""
        self.before, self.running, self.until = self.running, RecentlySent(now), now + WINDOW

    def lately(self, now: float) -> list[RecentlySent]:
        """Return the samples that are recent enough for metrics."""
        return [
            one for one in (self.running, self.before) if one.batches and now < one.begun + KEPT
        ]

    def again(self, topic: str, records: int) -> None:
        """Count records that will be retried."""
        self.of(topic).retried += records

    def failed(self, topic: str, records: int) -> None:
        """Count records that failed, even if they may have been written."""
        self.of(topic).failed += records


class ProduceExchange:
    """A Produce request, and the interpretation of its response."""

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        snapshot: Cluster | None,
        version: int,
        timeout_ms: int,
        transactional_id: str | None,
        acks: int,
        counts: SentCounts,
        now: float,
    ) -> None:
        """Put the batches, one of each partition, into a request of at most this version."""
        if now >= counts.until:
            counts.turn(now)
        lately, all_counts = counts.running, counts.topics
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
            size, records, queued = len(sealed), batch.builder.count, now - batch.created_at
            of = all_counts.get(name)
            if of is None:
                of = all_counts[name] = TopicCounts()
            of.records += records
            of.bytes += size
            lately.batches += 1
            lately.records += records
            lately.bytes += size
            lately.queued += queued
            if size > lately.largest:
                lately.largest = size
            if queued > lately.longest:
                lately.longest = queued
            data.partition_data.append(
                PartitionProduceData(index=batch.partition.partition, records=sealed)
            )
        lately.requests += 1
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
        """Return the results by topic and partition; with acks=0, success for all."""
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
