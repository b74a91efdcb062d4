"""What `send` needs to know of a topic for each record, kept at hand.

In: a topic as one snapshot has it. Out: the partition unless a key's murmur2 decides, and the open
batches.
Must not: outlive its snapshot; `send` makes a new one when the metadata changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.clients.producer.partition_rules import Rule
from odradek.metadata.cluster import Topic
from odradek.record import partition_for_key

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine


RECORD_OVERHEAD = 8
"""What a record adds to its key and value, more or less: the sticky partitioner counts bytes."""


class TopicLane:
    """One topic's partitions and open batches."""

    __slots__ = ("_partitioner", "by_key", "count", "open", "snapshot", "topic")

    def __init__(self, engine: ProducerEngine, topic: Topic) -> None:
        self.topic = topic
        self.snapshot = engine.metadata.snapshot
        self.count = len(topic.partitions)
        self.open = engine.accumulator.lane(topic.name)
        """The open batches by partition; it changes under the accumulator's lock."""
        self.by_key = not engine.partitioner.ignores_keys
        """Whether a key decides about the partition, by Java's murmur2."""
        self._partitioner = engine.partitioner

    def choose(self, key: bytes | None, value: bytes | None) -> int:
        """Where a record goes that names no partition; `send` has this at hand for itself."""
        if key is None or not self.by_key:
            return self.place(key, value)
        return partition_for_key(key, self.count)

    def place(self, key: bytes | None, value: bytes | None) -> int:
        """Where a record goes about whose partition neither its caller nor its key decides."""
        size = RECORD_OVERHEAD  # `if key` would ask an array for its truth
        size += 0 if key is None else len(key)
        size += 0 if value is None else len(value)
        return self._partitioner.partition(self.topic, size)


class RuledLane(TopicLane):
    """The lane of a producer with a rule; a class of its own, so that nobody else pays for it."""

    __slots__ = ("_rule",)

    def __init__(self, engine: ProducerEngine, topic: Topic, rule: Rule) -> None:
        super().__init__(engine, topic)
        self._rule = rule

    def place(self, key: bytes | None, value: bytes | None) -> int:
        """Where the rule puts a record, or the sticky partition if it leaves that open."""
        chosen = self._rule(self.topic.name, key, value, self.count)
        return super().place(key, value) if chosen is None else chosen


def lane_for(engine: ProducerEngine, topic: Topic) -> TopicLane:
    """Make the lane that the producer's partitioner wants."""
    rule = engine.partitioner.rule
    return TopicLane(engine, topic) if rule is None else RuledLane(engine, topic, rule)
