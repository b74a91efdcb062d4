"""Weigh partitions by their queues: records without a key avoid long ones (KIP-794).

In: the sender's queues and when it last sent to each broker. Out: the partitions to choose from,
with weights: a queue shows how quickly a leader takes batches. Runs in the callers' threads and
only reads what the engine writes. Must not: consider records with a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.common.config import Config
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import Broker, Topic

LOOKS_PER_CHOICE = 16
"""Average number of queues that are checked for one choice.

With thousands of partitions, one check serves many choices, so the weights may be outdated.
"""


class PartitionLoad:
    """Weights of the partitions of each topic."""

    def __init__(
        self,
        config: Config,
        queues: Mapping[TopicPartition, PartitionQueue],
        sent_at: Mapping[Address, float],
    ) -> None:
        self._available: float = config["partitioner.availability.timeout.ms"]
        self._linger: float = config["linger.ms"]
        self._queues = queues
        self._sent_at = sent_at
        self._tables: dict[str, _Table] = {}

    def table(
        self, topic: Topic, brokers: Mapping[int, Broker], now: float
    ) -> tuple[Sequence[int], Sequence[int] | None]:
        """Return the partitions to choose from, and the running sums of their weights.

        The sums are None if all weights are equal. Partitions without a leader are left out, unless
        no partition has one. With `partitioner.availability.timeout.ms`, partitions of a broker are
        left out as well if it has accepted nothing for that time although batches wait for it.
        """
        found = self._tables.get(topic.name)
        if found is None or found.topic is not topic or found.left <= 0:
            found = self._tables[topic.name] = self._look(topic, brokers, now)
        found.left -= 1
        return found.partitions, found.sums

    def forget(self, topic: str) -> None:
        """Drop the weights of a topic that isn't in use any more."""
        self._tables.pop(topic, None)

    def _look(self, topic: Topic, brokers: Mapping[int, Broker], now: float) -> _Table:
        led = [p for p in topic.partitions if p.leader >= 0] or list(topic.partitions)
        waiting: dict[int, int] = {}
        stuck: set[int] = set()
        for p in led:
            queue = self._queues.get(TopicPartition(topic.name, p.partition))
            waiting[p.partition] = len(queue.waiting) if queue is not None else 0
            if waiting[p.partition] and self._available and queue is not None:
                broker = brokers.get(p.leader)
                if broker is not None and self._is_stuck(queue, broker.address, now):
                    stuck.add(p.leader)
        able = [p for p in led if p.leader not in stuck] or led
        sums, most = None, max(waiting[p.partition] for p in able)
        if min(waiting[p.partition] for p in able) < most:
            sums = list(accumulate(most + 1 - waiting[p.partition] for p in able))
        return _Table(topic, [p.partition for p in able], sums, 1 + len(able) // LOOKS_PER_CHOICE)

    def _is_stuck(self, queue: PartitionQueue, leader: Address, now: float) -> bool:
        try:
            ready = queue.waiting[0].created_at + self._linger
        except IndexError:  # the sender has taken the last batch
            return False
        return now - max(ready, self._sent_at.get(leader, 0.0)) > self._available


class _Table:
    """Weights of a topic's partitions, used for `left` more choices."""

    __slots__ = ("left", "partitions", "sums", "topic")

    def __init__(
        self, topic: Topic, partitions: Sequence[int], sums: Sequence[int] | None, left: int
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.sums = sums
        self.left = left
