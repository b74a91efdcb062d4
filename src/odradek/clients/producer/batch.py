"""Hold one batch of one partition, and the results of its records.

In: records, then the batch's outcome. Out: `RecordMetadata` for each record. Must not: send itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from odradek.common.errors import Attempt, KafkaError
from odradek.common.options.migration_hints import add_migration_hints
from odradek.common.types import Address, TopicPartition
from odradek.network.flow import Completion
from odradek.record import BatchBuilder

NO_SEQUENCE = -1
SEQUENCES = 1 << 31
"""Number of sequences after which they begin at 0 again."""
MOST_REFUSALS = 8
"""Maximum number of different failures kept for a batch."""
OPEN = -1
"""Serial of a batch that may still get records."""


class RecordMetadata(NamedTuple):
    """The partition and offset of a record.

    `offset` is -1 if a retry was needed and the broker no longer knew the offset of the first
    attempt. With `acks=0` it is always -1: the record was passed to the operating system, and
    brokers don't respond, so the producer doesn't notice a lost or refused record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> int:
        """The same as `timestamp_ms`."""
        return self.timestamp_ms


add_migration_hints(RecordMetadata)


class BatchOutcome(NamedTuple):
    """A broker's result for a batch."""

    base_offset: int
    log_append_time_ms: int


NO_OFFSET = BatchOutcome(-1, -1)
"""Outcome of a batch that has no known offset or no records, or that was split."""


class Part(NamedTuple):
    """Consecutive records of a replaced batch, and the batch that contains them now."""

    first: int
    records: int
    batch: ProducerBatch
    at: int
    """Index in `batch` of the part's first record."""


class ProduceRefusals:
    """Errors of the attempts of one batch, for the error that may end it (R-RT-2).

    Only the last error of each kind at each address is kept, which limits the memory.
    """

    __slots__ = ("_last", "latest")

    def __init__(self) -> None:
        self._last: dict[tuple[Address | None, str], Attempt] = {}
        self.latest: KafkaError | None = None
        """The last error; None without one."""

    def note(self, address: Address | None, what: str, error: KafkaError, now: float) -> None:
        """Note another failed attempt."""
        kind = type(error).__name__
        self._last.pop((address, kind), None)
        if len(self._last) >= MOST_REFUSALS:
            del self._last[next(iter(self._last))]
        self._last[address, kind] = Attempt(address, what, f"{kind}: {error}", now)
        self.latest = error

    def attempts(self) -> list[Attempt]:
        """Return the last failure of each kind at each address, the newest at the end."""
        return list(self._last.values())


class Placed(NamedTuple):
    """A topic's id and number of partitions when the partitions of records were chosen."""

    topic_id: bytes
    partitions: int
    """Number of the topic's partitions; 0 if unknown."""


UNPLACED = Placed(b"", 0)


class FailedRecords:
    """Failed records of a batch or of a call; their futures keep this object alive."""

    __slots__ = ("__weakref__", "count")

    def __init__(self, count: list[int]) -> None:
        """Set `count`, a list with the number of records, which outlives this object."""
        self.count = count

    def noticed(self) -> None:
        """Note that the program read the error of one of the futures."""
        self.count[0] = 0


class ProducerBatch:
    """A batch from its first record to its outcome; guarded by the lock while it is open."""

    __slots__ = (
        "append", "attempts", "builder", "created_at", "deadline", "done", "doubtful",
        "epoch_tried", "hints", "lingers", "lingers_from", "met_topic", "ordinal", "partition",
        "parts", "placed", "producer", "recognised", "refusals", "reserved", "retry_at", "sequence",
        "serial", "taken", "told", "topic_tried", "unnoticed",
    )  # fmt: skip

    def __init__(
        self, partition: TopicPartition, builder: BatchBuilder, created_at: float, delivery: float
    ) -> None:
        """Create a batch at `created_at`, which times out after `delivery` seconds."""
        self.partition = partition
        self.builder = builder
        self.created_at = created_at
        self.lingers_from = created_at
        """Time at which the first record was accepted, from which `linger.ms` counts."""
        self.deadline = created_at + delivery
        self.append: Callable[..., int | None] = builder.append
        """The builder's method, stored because `send` calls it for each record."""
        self.serial = OPEN
        """Serial number, set when the batch is closed; it orders a partition's batches."""
        self.done: Completion[BatchOutcome] = Completion()
        self.attempts = 0
        self.retry_at = 0.0
        self.reserved = 0
        """Bytes of `buffer.memory` that are reserved for this batch."""
        self.lingers = True
        """Whether the batch is in the accumulator's list of lingering batches."""
        self.sequence = NO_SEQUENCE
        self.producer = (-1, -1)
        self.epoch_tried = -1
        """Leader epoch of the last attempt; at a newer leader, the backoff is skipped."""
        self.hints = 0
        """Number of errors in a row that named a newer leader (KIP-951); after two, back off."""
        self.placed = UNPLACED
        """The topic at the time when the partition of the records was chosen."""
        self.topic_tried = b""
        """Topic id at the last attempt; the topic may have been recreated since."""
        self.ordinal = 0
        """Number of earlier batches of the partition with a sequence under the same identity."""
        self.doubtful = False
        """Whether an earlier attempt may have been appended (see `uncertain_writes`).

        Then the batch keeps its sequence while its identity is valid (R-PR-1).
        """
        self.met_topic = False
        """Whether an attempt in doubt may have reached the topic: its id wasn't rejected."""
        self.recognised = True
        """Whether a broker that has these records would detect a duplicate.

        False for a part of a batch that may have been written before it was split.
        """
        self.refusals: ProduceRefusals | None = None
        """Errors of earlier attempts."""
        self.taken = False
        """Whether the sender has taken the batch from the accumulator."""
        self.told: tuple[str, int, int, int] | None = None
        """Topic, partition, base offset and append time, cached for the records' results."""
        self.unnoticed: FailedRecords | None = None
        """Set if the batch failed and no callback reports that to the program."""
        self.parts: list[Part] | None = None
        """If this batch was replaced, the batches that now contain its records, in order.

        `done` is completed then, and the records have the outcomes of these batches.
        """

    @property
    def count(self) -> int:
        """Number of records in the batch."""
        return self.builder.count

    def limit(self, limit_bytes: int) -> None:
        """Set the maximum size of the batch."""
        self.builder.limit_bytes = limit_bytes

    def retry(self, at: float, *, hinted: bool) -> None:
        """Set the time of the next attempt; with a newer leader epoch, that time may be earlier."""
        self.retry_at = at
        self.hints = self.hints + 1 if hinted else 0

    def waits(self, epoch: int, now: float) -> bool:
        """Return whether the backoff applies to an attempt in this leader epoch (R-RT-1)."""
        newer = epoch > self.epoch_tried and self.hints < 2
        return self.retry_at > now and not newer

    def place_in(self, topic: Placed) -> None:
        """Note the topic, by id and number of partitions, to which the records are sent."""
        self.placed = topic

    def tried(self, epoch: int, topic_id: bytes) -> None:
        """Note an attempt at the leader of this epoch, for the topic with this id."""
        self.attempts += 1
        self.epoch_tried, self.topic_tried = epoch, topic_id

    def refused(self, address: Address | None, error: KafkaError, now: float) -> None:
        """Note that an attempt failed."""
        self.refusals = self.refusals or ProduceRefusals()
        self.refusals.note(address, f"Produce to {self.partition}", error, now)

    def doubt(self, *, met_topic: bool = True) -> None:
        """Note that the current attempt may have been appended."""
        self.doubtful, self.met_topic = True, self.met_topic or met_topic

    def number(self, sequence: int, producer: tuple[int, int], ordinal: int) -> None:
        """Assign a sequence to the batch."""
        self.sequence, self.producer, self.ordinal = sequence, producer, ordinal

    def unnumber(self) -> None:
        """Remove the sequence of a batch that certainly isn't in the log."""
        self.sequence, self.doubtful, self.met_topic = NO_SEQUENCE, False, False

    def replaced(self, parts: list[Part]) -> None:
        """Note the batches that contain the records from now on, and complete this one."""
        self.parts = parts
        self.done.complete(NO_OFFSET)

    def begins_with(self, since: float) -> None:
        """Set the time from which `linger.ms` counts."""
        self.lingers_from = since

    def take_over(self, whole: ProducerBatch, first: int) -> None:
        """Copy the state of the batch `whole`, whose records from `first` on are in this batch."""
        self.builder.close()
        self.serial = whole.serial + first
        self.deadline, self.refusals = whole.deadline, whole.refusals
        self.placed, self.met_topic = whole.placed, whole.met_topic
        self.lingers, self.taken = False, True
        self.producer, self.ordinal, self.doubtful = whole.producer, whole.ordinal, whole.doubtful
        self.recognised = whole.recognised and not whole.doubtful
        if whole.sequence != NO_SEQUENCE:
            self.sequence = (whole.sequence + first) % SEQUENCES

    def abandoned(self, identity: tuple[int, int]) -> bool:
        """Return whether the batch has ended and another identity is used now.

        A copy may still be in flight to a broker that hangs, but the broker would reject it after
        records of the new identity.
        """
        return self.done.done and self.producer != identity

    def sealed(self, *, transactional: bool = False) -> memoryview:
        """Return the bytes for a Produce request, with producer id, epoch and sequence."""
        return self.builder.build(
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequence,
            transactional=transactional,
        )

    def find(self, index: int) -> tuple[ProducerBatch, int, bool]:
        """Return the current batch of a record, its index there, and whether that batch has ended.

        Any thread may call this while the engine splits this batch: `parts` is set before `done`,
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
        """Return this batch, or its parts after a split, each with its number of records."""
        if self.parts is None:
            return {self: self.count}
        found: dict[ProducerBatch, int] = {}
        for part in self.parts:
            # A part without records only contains the error of refused records.
            if part.batch.parts is None and not part.batch.count:
                found[part.batch] = found.get(part.batch, 0) + part.records
            else:
                found.update(part.batch.leaves())
        return found

    def fails_unnoticed(self, failed: FailedRecords | None) -> None:
        """Set the object that notes whether the program reads the error."""
        self.unnoticed = failed

    def error(self) -> BaseException | None:
        """Return the batch's error to the program, and note that the program has read it."""
        if self.unnoticed is not None:
            self.unnoticed.noticed()
        return self.done.error

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return the offset of a record of this batch; raise the batch's error."""
        if self.parts is not None:
            batch, index, _ = self.find(index)
            return batch.metadata(index, timestamp_ms)
        told = self.told
        if told is None:
            if self.done.error is not None and (error := self.error()) is not None:
                raise error.with_traceback(None)  # all records raise it: its traceback would grow
            outcome = self.done.result()
            told = (*self.partition, outcome.base_offset, outcome.log_append_time_ms)
            self.told = told
        topic, partition, base, appended = told
        offset = base + index if base >= 0 else -1
        at = appended if appended >= 0 else int(timestamp_ms)
        return tuple.__new__(RecordMetadata, (topic, partition, offset, at))


def all_over(pending: deque[ProducerBatch]) -> bool:
    """Remove finished batches up to the first unfinished one; return whether none is left.

    A split batch is replaced by its parts. Checking all batches at each outcome would take
    quadratic time.
    """
    while pending and (first := pending[0]).done.done:
        pending.popleft()
        pending.extend(part.batch for part in first.parts or ())
    return not pending


def together(found: Iterable[ProduceRefusals | None]) -> tuple[list[Attempt], KafkaError | None]:
    """Return the attempts of several batches without duplicates, and the newest error."""
    known = [(a.at, n, a, r) for n, r in enumerate(found) if r for a in r.attempts()]
    known.sort(key=itemgetter(0, 1))
    last = {(a.address, a.error): a for _, _, a, _ in known}  # the last error of each kind
    ordered = sorted(last.values(), key=lambda a: a.at)
    return ordered[-MOST_REFUSALS:], known[-1][3].latest if known else None
