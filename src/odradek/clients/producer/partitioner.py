"""Choose the partition of a record: Java's murmur2 of the key; without a key, one per batch.

In: a topic's metadata, a `Rule` unless Java's is used. Out: a partition number, and the
topic's open batches. Must not: wait for metadata. By default, a record with a key must be in the
partition that Java's client would choose, or co-partitioned topics break.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.partition_rules import Rule
from odradek.common.types import Rng
from odradek.metadata.cluster import Cluster, Topic
from odradek.record import partition_for_key

RECORD_OVERHEAD = 8
"""Approximate bytes that a record adds to its key and value, for the sticky partitioner."""
Load = Callable[[Topic], tuple[Sequence[int], Sequence[int] | None]]
"""Partitions to choose from, and the running sums of their weights; None: all are equal."""


class Partitioner:
    """The built-in partitioner of one producer (KIP-480, KIP-794)."""

    def __init__(
        self,
        rng: Rng,
        *,
        stride: int,
        ignore_keys: bool,
        rule: Rule | None = None,
        load: Load | None = None,
    ) -> None:
        self._rng = rng
        self._load = _led if load is None else load
        self._stride = stride
        self.ignores_keys = ignore_keys or rule is not None
        """Whether keys don't determine the partition: by option, or because a rule does."""
        self.rule = rule
        """Rule that replaces murmur2 of the key; None without one."""
        self._sticky: dict[str, list[int]] = {}  # by topic: partition, and bytes sent to it

    def partition(self, topic: Topic, size: int) -> int:
        """Return the sticky partition for a record of about `size` bytes, and count these bytes."""
        current = self._sticky.get(topic.name)
        if current is None or current[0] >= topic.count or current[1] >= self._stride:
            chosen, _ = self.sticky(topic, self._stride)
            self.took(topic, size)
            return chosen
        current[1] += size
        return current[0]

    def sticky(self, topic: Topic, stride: int) -> tuple[int, int]:
        """Return the partition for records without a key, and its remaining bytes.

        KIP-794: use one partition for `stride` bytes (a batch), then another one with a leader, so
        that all partitions get equally many bytes; those with a longer queue get fewer.
        """
        current = self._sticky.get(topic.name)
        if current is None or current[0] >= len(topic.partitions) or current[1] >= stride:
            current = [self._choose(topic, current[0] if current else -1), 0]
            self._sticky[topic.name] = current
        return current[0], stride - current[1]

    def took(self, topic: Topic, size: int) -> None:
        """Add bytes of records to the count of the sticky partition."""
        current = self._sticky.get(topic.name)
        if current is not None:
            current[1] += size

    def forget(self, topic: str) -> None:
        """Forget a topic that wasn't used for a while (metadata.max.idle.ms)."""
        self._sticky.pop(topic, None)

    def _choose(self, topic: Topic, last: int) -> int:
        able, sums = self._load(topic)
        if sums is not None:
            return able[bisect_right(sums, int(self._rng.random() * sums[-1]))]
        others = [p for p in able if p != last] or list(able)
        return others[int(self._rng.random() * len(others))]


def _led(topic: Topic) -> tuple[Sequence[int], None]:
    """Return the partitions with a leader, equally weighted; all of them if none has one."""
    led = [p.partition for p in topic.partitions if p.leader >= 0]
    return led or range(len(topic.partitions)), None


class TopicLane:
    """Data of a topic that `send` needs for each record; recreated for each metadata snapshot."""

    __slots__ = ("_partitioner", "by_key", "count", "open", "snapshot", "topic")

    def __init__(
        self,
        partitioner: Partitioner,
        topic: Topic,
        snapshot: Cluster | None,
        batches: dict[int, ProducerBatch],
    ) -> None:
        """Set `batches`, the topic's open batches by partition in the accumulator."""
        self.topic = topic
        self.snapshot = snapshot
        self.count = len(topic.partitions)
        self.open = batches
        """The open batches by partition; it changes under the accumulator's lock."""
        self.by_key = not partitioner.ignores_keys
        """Whether the key's murmur2 determines the partition."""
        self._partitioner = partitioner

    def choose(self, key: bytes | None, value: bytes | None) -> int:
        """Choose the partition of a record, if the caller hasn't; `send` inlines this code."""
        if key is None or not self.by_key:
            return self.place(key, value)
        return partition_for_key(key, self.count)

    def place(self, key: bytes | None, value: bytes | None) -> int:
        """Choose the partition of a record whose key doesn't determine it."""
        size = RECORD_OVERHEAD  # checks for None, because the truth value of an array raises
        size += 0 if key is None else len(key)
        size += 0 if value is None else len(value)
        return self._partitioner.partition(self.topic, size)


class CustomPartitionerLane(TopicLane):
    """A `TopicLane` with a partitioning rule; a separate class keeps other producers fast."""

    __slots__ = ("_rule",)

    def __init__(
        self,
        partitioner: Partitioner,
        topic: Topic,
        snapshot: Cluster | None,
        batches: dict[int, ProducerBatch],
        rule: Rule,
    ) -> None:
        super().__init__(partitioner, topic, snapshot, batches)
        self._rule = rule

    def place(self, key: bytes | None, value: bytes | None) -> int:
        """Return the partition that the rule chooses; if it chooses none, the sticky partition."""
        chosen = self._rule(self.topic.name, key, value, self.count)
        return super().place(key, value) if chosen is None else chosen


def lane_for(
    partitioner: Partitioner,
    topic: Topic,
    snapshot: Cluster | None,
    batches: dict[int, ProducerBatch],
) -> TopicLane:
    """Return a `TopicLane` of the class that the producer's partitioner needs."""
    lane = (partitioner, topic, snapshot, batches)
    return (
        TopicLane(*lane)
        if partitioner.rule is None
        else CustomPartitionerLane(*lane, partitioner.rule)
    )
