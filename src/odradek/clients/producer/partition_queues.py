"""The partitions that a producer writes to: queues of those in use, a few numbers of the others.

In: partitions that have something to send, or nothing any more. Out: their queues. What a step of
the sender costs grows with the partitions in use, never with all that were used once.
A partition's sequences can't be forgotten while its identity lives. So once very many rest, all
that begin from then on do so under an epoch above any of theirs, and leaders take that for a
beginning: then one number stands for all of them.
Must not: forget a partition that has a batch without an outcome.
"""

from __future__ import annotations

from odradek.clients.producer.partition_queue import Numbering, PartitionQueue
from odradek.clients.producer.producer_id import SenderIdentity
from odradek.common.types import TopicPartition

MOST_RESTING = 20_000
"""Partitions without batches whose numbers are kept, some hundred bytes each."""


class PartitionQueues:
    """The queues of one producer."""

    def __init__(self) -> None:
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """Those with batches that wait or are in flight."""
        self._resting: dict[TopicPartition, Numbering] = {}
        self._limit = MOST_RESTING

    def get(self, partition: TopicPartition) -> PartitionQueue:
        """A partition's queue; from now on it is in use."""
        found = self.active.get(partition)
        if found is None:
            numbering = self._resting.pop(partition, None) or Numbering()
            found = self.active[partition] = PartitionQueue(numbering=numbering)
        return found

    def rest(self, partition: TopicPartition, identity: SenderIdentity) -> None:
        """A partition has nothing on its way: keep its numbers only."""
        self._resting[partition] = self.active.pop(partition).numbering
        if len(self._resting) > self._limit:
            self._forget(identity)
            self._limit = max(MOST_RESTING, 2 * len(self._resting))  # not at each call

    def _forget(self, identity: SenderIdentity) -> None:
        producer_id = identity.current[0]
        mine = [n.identity for n in self._resting.values() if n.identity[0] == producer_id]
        if identity.begin_above(max((epoch for _, epoch in mine), default=-1)):
            self._resting.clear()
            return
        for partition, numbering in list(self._resting.items()):
            if numbering.identity != identity.current:
                del self._resting[partition]  # transactions since have had another epoch

    def __len__(self) -> int:
        """Partitions of which anything is kept."""
        return len(self.active) + len(self._resting)
