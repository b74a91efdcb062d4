"""Order the batches of each partition: the next one to send, and its sequence.

In: batches in the order of their rows, batches to retry, an id and epoch to begin with. Out: the
batch that may be sent now, with its sequence. Each partition has its own id, epoch and sequences,
since brokers remember them by partition (KIP-98): a partition that has to continue under a new
epoch does so alone (R-PR-1). Must not: know brokers, requests or errors; forget a partition that
has a batch without an outcome.

No other batch follows the first one under an id, epoch and leader epoch until that one is
acknowledged: a broker that doesn't know the producer, such as a leader that was elected uncleanly,
accepts any sequence. A batch's serial is the number of records before it, so the parts of a split
batch have serials in between.
"""

from __future__ import annotations

from collections import deque

from odradek.clients.producer.batch import NO_SEQUENCE, SEQUENCES, ProducerBatch
from odradek.clients.producer.producer_id import NO_IDENTITY, SenderIdentity
from odradek.common.types import TopicPartition

REMEMBERED = 5
"""Number of a producer's last batches that a broker recognizes as duplicates."""
MOST_RESTING = 20_000
"""Maximum number of partitions without batches whose `Numbering` is kept."""
NEVER = -2
"""A leader epoch that never occurs, unlike -1 (unknown)."""


class Numbering:
    """Identity and next sequence of one partition, which outlive its batches."""

    __slots__ = (
        "acknowledged", "cut", "ended", "identity", "known_at", "lost", "next_sequence", "numbered",
        "reached", "topic_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.identity: tuple[int, int] = NO_IDENTITY
        """Producer id and epoch for batches without a sequence so far."""
        self.next_sequence = 0
        self.numbered = 0
        """Number of batches that got a sequence under this identity."""
        self.acknowledged = -1
        """Serial of the newest batch that was acknowledged under this identity."""
        self.known_at = NEVER
        """Leader epoch of the last acknowledgement.

        The leader of this epoch knows the producer and refuses a sequence after a gap. Leaders of
        other epochs may accept it, because they may have lost records.
        """
        self.topic_id = b""
        """Id of the topic, by which a recreated topic is detected."""
        self.ended = False
        """Whether no batch gets a sequence under this identity, as one is missing or in doubt."""
        self.lost = False
        """Whether a batch failed that may have been written; a copy may still be in flight."""
        self.reached = 0
        """Offset after the newest acknowledged record under this identity."""
        self.cut = False
        """Whether the log lost acknowledged records, and then accepted a batch before older ones.

        A leader that has lost the producer's state accepts any sequence, so the accepted batch
        doesn't prove that the older ones were written.
        """

    def begin(self, identity: tuple[int, int]) -> None:
        """Continue under another identity, from sequence 0; leaders then refuse older epochs."""
        self.identity, self.next_sequence, self.numbered = identity, 0, 0
        self.acknowledged, self.known_at, self.reached = -1, NEVER, 0
        self.ended = self.lost = self.cut = False

    def end(self, *, lost: bool) -> bool:
        """Assign no more sequences under this identity; return False if it had ended before.

        `lost`: a batch has failed that may have been written.
        """
        lasted, self.ended = not self.ended, True
        self.lost = self.lost or lost
        return lasted


class PartitionQueue:
    """The batches of one partition: the waiting ones, in order, and those in flight."""

    __slots__ = ("absent_since", "by_name", "in_flight", "numbering", "out_of_order", "waiting")

    def __init__(self, numbering: Numbering | None = None) -> None:
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.out_of_order: set[ProducerBatch] = set()
        """Waiting batches whose sequence was refused by a leader that knows their producer.

        Outcomes of later batches show whether they are in the log.
        """
        self.numbering = Numbering() if numbering is None else numbering
        self.absent_since: float | None = None
        """Time since which the topic's metadata has lacked this partition."""
        self.by_name = True
        """Whether the topic's id is unknown (brokers before 2.8), so that batches use its name."""

    def lives_in(self, topic_id: bytes) -> None:
        """Note the topic's id; if it is another one, forget the old topic's acknowledgements."""
        numbering = self.numbering
        self.by_name = not any(topic_id)
        if self.by_name or topic_id == numbering.topic_id:
            return
        if numbering.topic_id:
            numbering.acknowledged, numbering.known_at, numbering.reached = -1, NEVER, 0
        numbering.topic_id = topic_id

    def absent(self, now: float) -> float:
        """Note that the topic's metadata lacks this partition; return since when."""
        if self.absent_since is None:
            self.absent_since = now
        return self.absent_since

    def present(self) -> None:
        """Note that the topic has this partition."""
        self.absent_since = None

    def next(self) -> ProducerBatch | None:
        """Return the oldest batch that may be sent.

        While sequences are missing or in doubt, return the oldest batch with a sequence: its
        outcome must be known before a new sequence is assigned.
        """
        if self.out_of_order or self.numbering.ended:
            for batch in self.waiting:
                if batch.sequence != NO_SEQUENCE and batch not in self.out_of_order:
                    return batch
            if self.out_of_order:
                return None
        return self.waiting[0] if self.waiting else None

    def admits(self, batch: ProducerBatch, epoch: int, max_in_flight: int) -> bool:
        """Return whether a batch can be sent in this leader epoch without breaking the order."""
        numbering, identity, repeated = self.numbering, self.numbering.identity, batch.sequence
        under_way = 0
        for other in self.in_flight:
            if other.done.done and other.abandoned(identity):
                continue
            under_way += 1
            if repeated != NO_SEQUENCE:
                # To keep the order, a retry waits for older batches in flight (KIP-98).
                if other.serial <= batch.serial:
                    return False
            elif (
                # Wait for batches in flight to a deleted topic or a former leader, which may be
                # refused, so that the new leader gets the oldest batch first. Wait also for a
                # batch that is five batches older: a broker would no longer detect its duplicate.
                other.topic_tried != numbering.topic_id
                or other.epoch_tried != epoch
                or numbering.numbered - other.ordinal >= REMEMBERED
            ):
                return False
        if repeated != NO_SEQUENCE:
            return True
        # A broker that doesn't know a producer accepts any sequence: if the first batch were
        # lost or refused, the next one would be written before it. So the first one is sent alone.
        return under_way == 0 or (numbering.known_at == epoch and under_way < max_in_flight)

    def appended(self, batch: ProducerBatch, offset: int) -> None:
        """Note that a batch was acknowledged at this offset (-1 if the leader doesn't report it).

        Acknowledged batches and older ones in doubt have lower offsets, unless an unclean election
        has truncated the log (`cut`).
        """
        numbering, newest = self.numbering, self.numbering.acknowledged
        numbering.known_at = batch.epoch_tried
        if batch.serial < newest:
            return
        numbering.acknowledged = batch.serial
        if offset < 0:
            return
        if self.in_flight or self.waiting:
            older, between = False, 0
            for other in self.unsettled():
                if other.serial < batch.serial:
                    older = True
                    if other.serial > newest:
                        between += other.count
            if older and offset < numbering.reached + between:
                numbering.cut = True
        numbering.reached = offset + batch.builder.count

    def send(self, batch: ProducerBatch, epoch: int, *, numbered: bool) -> None:
        """Note that a waiting batch is sent to the leader of this epoch."""
        self.waiting.remove(batch)
        if numbered:
            self.number(batch)
        batch.tried(epoch, self.numbering.topic_id)
        self.in_flight.append(batch)

    def number(self, batch: ProducerBatch) -> None:
        """Assign a batch's sequence, which it keeps over all its retries (R-PR-1)."""
        if batch.sequence != NO_SEQUENCE:
            return
        numbering = self.numbering
        batch.number(numbering.next_sequence, numbering.identity, numbering.numbered)
        numbering.numbered += 1
        numbering.next_sequence = (numbering.next_sequence + batch.builder.count) % SEQUENCES

    def take_back(self, batch: ProducerBatch) -> bool:
        """Reuse the sequence of a batch that certainly isn't in the log, if possible.

        Returns False if later batches have sequences already.
        """
        numbering = self.numbering
        newest = (batch.sequence + batch.count) % SEQUENCES == numbering.next_sequence
        if numbering.ended or batch.producer != numbering.identity or not newest:
            return False
        if any(b.serial > batch.serial for b in self.unsettled()):
            return False
        numbering.next_sequence = batch.sequence
        return True

    def unsettled(self) -> list[ProducerBatch]:
        """Return batches with a sequence and without an outcome, in flight or waiting."""
        found = [b for b in self.in_flight if not b.done.done]
        for batch in self.waiting:
            if batch.sequence != NO_SEQUENCE:
                found.append(batch)
            elif not self.numbering.ended:
                break  # later batches have no sequence
        return found

    def put_back(self, batch: ProducerBatch) -> None:
        """Put a batch back into `waiting`, in the order of serials and so of sequences."""
        place = 0
        for waiting in self.waiting:
            if waiting.serial >= batch.serial:
                break
            place += 1
        self.waiting.insert(place, batch)

    def leave_ended(self) -> None:
        """Remove batches that already have an outcome."""
        self.waiting = deque(b for b in self.waiting if not b.done.done)
        self.out_of_order.intersection_update(self.waiting)

    @property
    def idle(self) -> bool:
        """Whether no batch waits or is in flight."""
        return not self.waiting and not self.in_flight


class PartitionQueues:
    """Queues of one producer's partitions in use, and the `Numbering` of the other partitions.

    The cost of a sender's step grows with the partitions in use, not with all that were ever used.
    A partition's sequence must be remembered while its epoch is used. If very many partitions are
    idle, their `Numbering` is dropped, and they continue with a higher epoch, from sequence 0.
    """

    def __init__(self) -> None:
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """Queues with batches that wait or are in flight."""
        self._resting: dict[TopicPartition, Numbering] = {}
        self._limit = MOST_RESTING

    def get(self, partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition, which is in use from now on."""
        found = self.active.get(partition)
        if found is None:
            numbering = self._resting.pop(partition, None) or Numbering()
            found = self.active[partition] = PartitionQueue(numbering=numbering)
        return found

    def rest(self, partition: TopicPartition, identity: SenderIdentity) -> None:
        """Drop the queue of a partition that has no batches, and keep its `Numbering`."""
        self._resting[partition] = self.active.pop(partition).numbering
        if len(self._resting) > self._limit:
            self._forget(identity)
            self._limit = max(MOST_RESTING, 2 * len(self._resting))  # so that searches remain rare

    def _forget(self, identity: SenderIdentity) -> None:
        producer_id = identity.current[0]
        mine = [n.identity for n in self._resting.values() if n.identity[0] == producer_id]
        if identity.begin_above(max((epoch for _, epoch in mine), default=-1)):
            self._resting.clear()
            return
        for partition, numbering in list(self._resting.items()):
            if numbering.identity != identity.current:
                del self._resting[partition]  # the partition won't use its old epoch again

    def __len__(self) -> int:
        """Return the number of partitions whose queue or `Numbering` is kept."""
        return len(self.active) + len(self._resting)
