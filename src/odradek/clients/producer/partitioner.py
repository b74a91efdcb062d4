"""Which partition a record goes to: Java's murmur2 for keys, sticky batches without one.

In: a key or none, the topic's partitions, a `Rule` unless Java's is wanted. Out: a partition
number. Must not: wait for metadata. Unless told otherwise, a record with a key must land where
Java's client would put it, or co-partitioned topics break.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.clients.producer.partition_rules import Rule
from odradek.common.types import Rng
from odradek.metadata.cluster import Topic
from odradek.record import partition_for_key


class Partitioner:
    """The built-in partitioner of one producer (KIP-480, KIP-794)."""

    __slots__ = ("_ignore_keys", "_rng", "_sticky", "_stride", "rule")

    def __init__(
        self, rng: Rng, *, stride: int, ignore_keys: bool, rule: Rule | None = None
    ) -> None:
        self._rng = rng
        self._stride = stride
        self._ignore_keys = ignore_keys or rule is not None
        self.rule = rule
        """What decides instead of the key's murmur2; None: nothing does."""
        self._sticky: dict[str, list[int]] = {}  # topic: [partition, bytes that went there]

    @property
    def ignores_keys(self) -> bool:
        """A key as such decides nothing: rows that no rule places are spread, with and without."""
        return self._ignore_keys

    def partition(self, topic: Topic, key: bytes | None, size: int) -> int:
        """Choose for one record of about `size` bytes."""
        if key is not None and not self._ignore_keys:
            return partition_for_key(key, len(topic.partitions))
        chosen, _ = self.sticky(topic, self._stride)
        self.took(topic, size)
        return chosen

    def sticky(self, topic: Topic, stride: int) -> tuple[int, int]:
        """The partition for records without a key, and the bytes that may still go there.

        KIP-794: stay on one partition for `stride` bytes (a batch), then move to another one that
        has a leader, so that every partition gets the same number of bytes in the end.
        """
        current = self._sticky.get(topic.name)
        if current is None or current[0] >= len(topic.partitions) or current[1] >= stride:
            current = [self._choose(topic, current[0] if current else -1), 0]
            self._sticky[topic.name] = current
        return current[0], stride - current[1]

    def took(self, topic: Topic, size: int) -> None:
        """So many bytes without a key went to the sticky partition."""
        self._sticky[topic.name][1] += size

    def _choose(self, topic: Topic, last: int) -> int:
        led: Sequence[int] = [p.partition for p in topic.partitions if p.leader >= 0]
        able = led or range(len(topic.partitions))
        others = [p for p in able if p != last] or list(able)
        return others[int(self._rng.random() * len(others))]
