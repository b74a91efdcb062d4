"""One batch of one partition on its way, and the futures of its records.

In: records, then the outcome. Out: `RecordMetadata` for each record. Must not: send itself.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from odradek.clients.producer.produce_refusals import ProduceRefusals
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion
from odradek.record import BatchBuilder

NO_SEQUENCE = -1
OPEN = -1
"""The serial of a batch that isn't ready yet."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was written. `offset` is -1 where the broker no longer knew (a duplicate).

    With `acks=0` it is always -1, and says only that the record was handed to the operating system:
    brokers don't answer then, so nobody notices when it is lost on its way or refused.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What the broker said of a batch."""

    base_offset: int
    log_append_time_ms: int


class Part(NamedTuple):
    """Consecutive records of a batch, and where they are now."""

    first: int
    records: int
    batch: ProducerBatch
    at: int
    """The index there of the first of them."""


class ProducerBatch:
    """A batch from its first record to its outcome. Guarded by the lock while it is open."""

    __slots__ = (
        "append",
        "attempts",
        "builder",
        "created_at",
        "deadline",
        "done",
        "doubtful",
        "epoch_tried",
        "lingers",
        "ordinal",
        "out_of_order",
        "partition",
        "parts",
        "producer",
        "recognised",
        "refusals",
        "reserved",
        "retry_at",
        "sequence",
        "serial",
        "taken",
        "topic_tried",
    )

    def __init__(
        self,
        partition: TopicPartition,
        builder: BatchBuilder,
        now: float,
        delivery: float,
    ) -> None:
        self.partition = partition
        self.builder = builder
        self.append = builder.append
        """Kept at hand: `send` calls it for each record."""
        self.serial = OPEN
        """Given when the batch is ready, and growing: the order of a partition's batches."""
        self.created_at = now
        self.deadline = now + delivery
        self.done: Completion[BatchOutcome] = Completion()
        self.attempts = 0
        self.retry_at = 0.0
        self.reserved = 0
        """Bytes of `buffer.memory` that are this batch's."""
        self.lingers = True
        """The accumulator has its linger time in mind."""
        self.sequence = NO_SEQUENCE
        self.producer: tuple[int, int] = (-1, -1)
        self.epoch_tried = -1
        """The leader epoch of the last attempt: a newer one makes waiting pointless."""
        self.topic_tried = b""
        """The topic's id at the last attempt: another topic may have the name now."""
        self.ordinal = 0
        """How many batches of its partition got a sequence under its identity before it."""
        self.doubtful = False
        """An attempt before the present one may have been appended (see `doubt`). Then its sequence
        is used up, and no other may be given to it while its identity lives (R-PR-1)."""
        self.recognised = True
        """A broker that has it knows it when it comes again; not so a part of a batch that may have
        been written whole."""
        self.out_of_order = False
        """A leader that knows its producer refused its sequence: whether it is in the log is known
        once those behind it that are in doubt have their outcome."""
        self.refusals: ProduceRefusals | None = None
        """What was answered to earlier attempts."""
        self.taken = False
        """It has crossed to the sender."""
        self.parts: list[Part] | None = None
        """Where its records went, in order, when other batches took its place. `done` is then done,
        and the records' outcomes are those of these batches."""

    @property
    def count(self) -> int:
        """Records in the batch."""
        return self.builder.count

    @property
    def addressee(self) -> str:
        """Where its records go, in words."""
        return str(self.partition)

    def abandoned(self, identity: tuple[int, int]) -> bool:
        """Whether nobody waits for it any more and a newer epoch fences it: it may be under way to
        a broker that hangs, and can't be written behind what goes out under this identity.
        """
        return self.done.done and self.producer != identity

    def sealed(self, *, transactional: bool = False) -> memoryview:
        """The bytes for a Produce request, with the ids and the sequence it was given."""
        return self.builder.build(
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequence,
            transactional=transactional,
        )

    def find(self, index: int) -> tuple[ProducerBatch, int, bool]:
        """The batch that record `index` is in now that this one may have been split, where in it,
        and whether that has its outcome.

        Any thread may ask, also while the engine's splits a batch: that sets `parts` before `done`,
        so `done` has to be read first.
        """
        batch = self
        while batch.done.done:
            parts = batch.parts
            if parts is None:
                return batch, index, True
            part = parts[bisect_right(parts, index, key=itemgetter(0)) - 1]
            batch, index = part.batch, part.at + index - part.first
        return batch, index, False

    def leaves(self) -> dict[ProducerBatch, int]:
        """This batch, or what it was split into, each with how many records it stands for."""
        if self.parts is None:
            return {self: self.count}
        found: dict[ProducerBatch, int] = {}
        for part in self.parts:
            if part.batch.parts is None and not part.batch.count:  # it only says why they failed
                found[part.batch] = found.get(part.batch, 0) + part.records
            else:
                found.update(part.batch.leaves())
        return found

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where record `index` of this batch was written; raises the batch's error."""
        if self.parts is not None:
            batch, index, _ = self.find(index)
            return batch.metadata(index, timestamp_ms)
        if self.done.error is not None:
            raise self.done.error.with_traceback(None)  # each of its records raises it
        outcome = self.done.result()
        offset = outcome.base_offset + index if outcome.base_offset >= 0 else -1
        appended = outcome.log_append_time_ms
        return RecordMetadata(
            self.partition.topic,
            self.partition.partition,
            offset,
            appended if appended >= 0 else int(timestamp_ms),
        )
