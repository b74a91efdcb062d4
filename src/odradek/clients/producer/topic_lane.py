"""What `send` needs to know of a topic for each record, kept at hand.

In: a topic as one snapshot has it. Out: the partition of a record, and the open batches.
Must not: outlive its snapshot; `send` makes a new one when the metadata changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.metadata.cluster import Topic
from odradek.record import partition_for_key

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine


class TopicLane:
    """One topic's partitions and open batches."""

    __slots__ = ("_by_key", "_partitioner", "count", "open", "snapshot", "topic")

    def __init__(self, engine: ProducerEngine, topic: Topic) -> None:
        self.topic = topic
        self.snapshot = engine.metadata.snapshot
        self.count = len(topic.partitions)
        self.open = engine.accumulator.lane(topic.name)
        """The open batches by partition; it changes under the accumulator's lock."""
        self._partitioner = engine.partitioner
        self._by_key = not engine.partitioner.ignores_keys

    def partition(self, key: bytes | None, value: bytes | None) -> int:
        """Where a record goes whose caller didn't say."""
        if key is not None and self._by_key:
            return partition_for_key(key, self.count)
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        return self._partitioner.partition(self.topic, key, size)


RECORD_OVERHEAD = 8
"""What a record adds to its key and value, more or less: the sticky partitioner counts bytes."""
