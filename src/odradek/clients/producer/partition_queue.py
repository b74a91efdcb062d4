"""The batches of one partition on their way: which is next, and which sequence it has.

In: batches in the order of their rows, those that come back, the producer's id and epoch.
Out: the batch that may go now, with its sequence. The order of a partition is kept here (KIP-98).
Must not: know brokers, requests or errors.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from odradek.clients.producer.batch import NO_SEQUENCE, ProducerBatch


@dataclass(slots=True)
class PartitionQueue:
    """The batches of one partition: those that wait, in order, and those that are in flight."""

    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    next_sequence: int = 0
    identity: tuple[int, int] = (-1, -1)
    """The producer id and epoch that `next_sequence` belongs to."""
    known_as: tuple[int, int] = (-1, -1)
    """The id and epoch under which a batch was acknowledged: from then on its leaders, this one and
    later ones, know the producer and refuse a sequence that leaves something out."""

    def next(self, *, sequenced: bool) -> ProducerBatch | None:
        """The batch to send next: the oldest.

        `sequenced`: while the epoch is to be bumped, the oldest that has a sequence. The bump waits
        until it is known what became of those, also behind one that lost its own.
        """
        if sequenced:
            return next((b for b in self.waiting if b.sequence != NO_SEQUENCE), None)
        return self.waiting[0] if self.waiting else None

    def admits(
        self, batch: ProducerBatch, epoch: int, identity: tuple[int, int], max_in_flight: int
    ) -> bool:
        """Whether it may go to the leader of this epoch without endangering the order."""
        under_way = [b for b in self.in_flight if not b.abandoned(identity)]
        if batch.sequence != NO_SEQUENCE:
            # A retry goes alone, and only as the oldest of its partition: order (KIP-98).
            return all(b.serial > batch.serial for b in under_way)
        if under_way and self.known_as != identity:
            # A broker that knows nothing of a producer takes any sequence from it: were the first
            # batch refused or lost on its way, one sent behind it would be written before it.
            return False
        # Not while older ones are under way to another leader: brokers remember a producer's last
        # five batches, and what comes again behind more than that isn't taken for a repetition.
        same_leader = all(b.epoch_tried == epoch for b in under_way)
        return same_leader and len(under_way) < max_in_flight

    def number(self, batch: ProducerBatch, identity: tuple[int, int]) -> None:
        """Give a batch its sequence, which it keeps over all its retries (R-PR-1)."""
        if batch.sequence != NO_SEQUENCE:
            return
        if self.identity != identity:
            self.identity, self.next_sequence = identity, 0
        batch.sequence, batch.producer = self.next_sequence, identity
        self.next_sequence = (self.next_sequence + batch.count) & 0x7FFFFFFF

    def sequenced(self) -> list[ProducerBatch]:
        """The batches that may be written, or have been, under the sequence they were given."""
        return [b for b in [*self.in_flight, *self.waiting] if b.sequence != NO_SEQUENCE]

    def beside(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Those of them whose sequences are before or behind the ones of this batch."""
        return [b for b in self.sequenced() if not b.abandoned(batch.producer)]

    def put_back(self, batch: ProducerBatch) -> None:
        """Back in front, in the order of creation, which is the order of the sequences."""
        place = sum(1 for waiting in self.waiting if waiting.serial < batch.serial)
        self.waiting.insert(place, batch)
