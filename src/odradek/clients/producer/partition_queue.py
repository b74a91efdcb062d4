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
"""Maximum number of partitions without batches whose numbers are kept, some hundred bytes each."""
NEVER = -2
"""An impossible leader epoch; -1 is an unknown one."""


class Numbering:
    """Identity and next sequence of one partition, which outlive its batches."""

    __slots__ = (
        "acknowledged", "cut", "ended", "identity", "known_at", "lost", "next_sequence", "numbered",
        "reached", "topic_id",
    )  # fmt: skip

    def __init__(self) -> None:
        self.identity: tuple[int, int] = NO_IDENTITY
        """Producer id and epoch of the batches that get a sequence now."""
        self.next_sequence = 0
        self.numbered = 0
        """Number of batches that got a sequence under this identity."""
        self.acknowledged = -1
        """Serial of the newest batch that was acknowledged under it."""
        self.known_at = NEVER
        """Leader epoch in which a batch was acknowledged.

        From then on this leader knows the producer, and refuses a sequence after a gap. Other
        leaders may not: they may have lost the log.
        """
        self.topic_id = b""
        """Topic id at the last attempt: a topic of the same name may be recreated."""
        self.ended = False
        """Whether no batch gets a sequence any more, because one is missing or in doubt."""
        self.lost = False
        """Whether a batch that may have been written has failed; a copy may still be in flight."""
        self.reached = 0
        """Offset after the newest acknowledged record under this identity."""
        self.cut = False
        """Whether the log lost acknowledged records, and then accepted a batch before older ones.

        The older ones are in doubt: the leader knew no producer any more and accepts any sequence,
        so there may be gaps before the batch.
        """

    def begin(self, identity: tuple[int, int]) -> None:
        """Continue under another identity, from sequence 0.

        From then on, the leader refuses late requests under an older epoch.
        """
        self.identity, self.next_sequence, self.numbered = identity, 0, 0
        self.acknowledged, self.known_at, self.reached = -1, NEVER, 0
        self.ended = self.lost = self.cut = False

    def end(self, *, lost: bool) -> bool:
        """Assign no more sequences under this identity; return whether it assigned any before.

        `lost` means that a batch failed which may have been written.
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

        Whether they are in the log is known once later batches that are in doubt have an outcome.
        """
        self.numbering = Numbering() if numbering is None else numbering
        self.absent_since: float | None = None
        """Since when the topic is known and lacks this partition."""
        self.by_name = True
        """Whether the topic's id is unknown (brokers before 2.8), so that batches use its name."""

    def lives_in(self, topic_id: bytes) -> None:
        """Note the topic's id.

        If the topic was recreated, its leaders don't know this producer, and acknowledgements of
        the old topic say nothing of the new log.
        """
        numbering = self.numbering
        self.by_name = not any(topic_id)
        if self.by_name or topic_id == numbering.topic_id:
            return
        if numbering.topic_id:
            numbering.acknowledged, numbering.known_at, numbering.reached = -1, NEVER, 0
        numbering.topic_id = topic_id

    def absent(self, now: float) -> float:
        """Note that the topic is known and lacks this partition; return since when."""
        if self.absent_since is None:
            self.absent_since = now
        return self.absent_since

    def present(self) -> None:
        """Note that the topic has this partition."""
        self.absent_since = None

    def next(self) -> ProducerBatch | None:
        """Return the oldest batch that may be sent.

        If sequences are missing or in doubt, it is the oldest that may be in the log: its outcome
        comes before any new sequence.
        """
        if self.out_of_order or self.numbering.ended:
            for batch in self.waiting:
                if batch.sequence != NO_SEQUENCE and batch not in self.out_of_order:
                    return batch
            if self.out_of_order:
                return None
        return self.waiting[0] if self.waiting else None

    def admits(self, batch: ProducerBatch, epoch: int, max_in_flight: int) -> bool:
        """Return whether sending a batch to the leader of this epoch is safe for the order."""
        numbering, identity, repeated = self.numbering, self.numbering.identity, batch.sequence
        under_way = 0
        for other in self.in_flight:
            if other.done.done and other.abandoned(identity):
                continue
            under_way += 1
            if repeated != NO_SEQUENCE:
                # A retry is sent alone, and only as the oldest of its partition: order (KIP-98).
                if other.serial <= batch.serial:
                    return False
            elif (
                # They will be refused, and the first one that the new topic's leader accepts must
                # be the oldest. Nothing is sent while older ones are in flight to another leader,
                # nor while one that is five batches older is in doubt: the broker wouldn't
                # recognize the repetition.
                other.topic_tried != numbering.topic_id
                or other.epoch_tried != epoch
                or numbering.numbered - other.ordinal >= REMEMBERED
            ):
                return False
        if repeated != NO_SEQUENCE:
            return True
        # A broker that doesn't know a producer accepts any sequence from it: if the first batch
        # were refused or lost on its way, the next one would be written before it.
        return under_way == 0 or (numbering.known_at == epoch and under_way < max_in_flight)

    def appended(self, batch: ProducerBatch, offset: int) -> None:
        """Note that a batch was acknowledged at this offset (-1 if the leader doesn't report it).

        All acknowledged batches and the older ones in doubt are before it, unless an unclean
        election truncated the log.
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
        """Reuse the sequence of a batch that certainly isn't in the log.

        Return whether that is possible.

        It isn't if later batches have sequences already.
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
                break  # the rest was never sent
        return found

    def put_back(self, batch: ProducerBatch) -> None:
        """Put a batch back in front, in the order of creation and so of the sequences."""
        place = 0
        for waiting in self.waiting:
            if waiting.serial >= batch.serial:
                break
            place += 1
        self.waiting.insert(place, batch)

    def leave_ended(self) -> None:
        """Remove batches that have an outcome and won't be sent."""
        self.waiting = deque(b for b in self.waiting if not b.done.done)
        self.out_of_order.intersection_update(self.waiting)

    @property
    def idle(self) -> bool:
        """Whether no batch waits or is in flight."""
        return not self.waiting and not self.in_flight


class PartitionQueues:
    """Queues of one producer's partitions in use, and a few numbers of the others.

    The cost of a sender's step grows with the partitions in use, not with all that were ever used.
    A partition's sequences can't be forgotten while its epoch lasts. So once very many are idle,
    they are forgotten, and all partitions start again with a higher epoch, from sequence 0.
    """

    def __init__(self) -> None:
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """Queues with batches that wait or are in flight."""
        self._resting: dict[TopicPartition, Numbering] = {}
        self._limit = MOST_RESTING

    def get(self, partition: TopicPartition) -> PartitionQueue:
        """Return a partition's queue; from now on it is in use."""
        found = self.active.get(partition)
        if found is None:
            numbering = self._resting.pop(partition, None) or Numbering()
            found = self.active[partition] = PartitionQueue(numbering=numbering)
        return found

    def rest(self, partition: TopicPartition, identity: SenderIdentity) -> None:
        """Keep only the numbers of a partition that has no batches."""
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
                del self._resting[partition]  # later transactions had another epoch

    def __len__(self) -> int:
        """Return the number of partitions whose queue or numbers are kept."""
        return len(self.active) + len(self._resting)
