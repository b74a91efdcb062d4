"""Hold records whose topic isn't known yet, so that `send()` needn't wait (R-RT-2).

In: records of the callers' threads, in their order; metadata. Out: these records in the open
batches of their partitions, in the same order, once the topic's metadata is known; or an error for
each, after `max.block.ms` at the latest. Their bytes count in `buffer.memory`. Later records can't
overtake them: `send()` fills batches directly only when none of the topic's records waits here.
Must not: call a user's partitioner, which runs in the caller's thread; a `send()` that needs it
waits for the metadata itself.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

from odradek.clients.producer.batch import NO_OFFSET, FailedRecords, Part, ProducerBatch
from odradek.clients.producer.partitioner import Partitioner, lane_for
from odradek.clients.producer.record_accumulator import RecordAccumulator, SentRecord
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.uncertain_writes import counted, saying, were
from odradek.common.errors import (
    AuthorizationError,
    ClientClosedError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokerAvailableError,
)
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.network.network_client import NetworkClient
from odradek.record import BatchBuilder

logger = logging.getLogger("odradek")

NO_PARTITION = -1
"""Partition of a record for which the caller has named none."""
PAUSE_AFTER_ERROR_S = 0.001
"""Pause in seconds after an error, so that a caller that sends again at once can't block a step."""
LOG_INTERVAL_S = 60.0
"""Seconds between two log lines about records that failed before a broker was reached."""
WAITING_RECORD_OVERHEAD = 1024
"""Bytes that a waiting record reserves in `buffer.memory`, in addition to its size."""


class RecordWithoutMetadata(ProducerBatch):
    """One record as a batch of its own, for its future, until it is added to a real batch."""

    __slots__ = ("record", "size")

    def __init__(
        self,
        topic: str,
        record: SentRecord,
        wanted: int | None,
        size: int,
        now: float,
        patience: float,
    ) -> None:
        """Copy the data, which the caller may change after `send()`.

        `wanted` is the partition, if the caller has named one.
        """
        partition = TopicPartition(topic, NO_PARTITION if wanted is None else wanted)
        super().__init__(partition, BatchBuilder(0, None), now, patience)
        key, value, headers, at = record
        copied = tuple([(name, _frozen(data)) for name, data in headers])
        self.record: SentRecord = (_frozen(key), _frozen(value), copied, at)
        self.size = size

    @property
    def count(self) -> int:
        """Number of records, which is 1."""
        return 1

    def empty(self) -> None:
        """Drop the record's data, as the program may keep the future."""
        self.record = (None, None, (), 0)


def _frozen(data: bytes | None) -> bytes | None:
    return data if data is None or type(data) is bytes else bytes(data)


class _Waiting:
    """The waiting records of one topic."""

    __slots__ = ("absent", "flushes", "least", "placing", "records")

    def __init__(self, flushes: int) -> None:
        self.flushes = flushes
        """The accumulator's `flushes` at creation; after a flush, the records don't linger."""
        self.records: deque[RecordWithoutMetadata] = deque()
        self.absent: deque[RecordWithoutMetadata] = deque()
        """Records of partitions that the topic lacks; they are older than `records`."""
        self.least = math.inf
        """The lowest partition number in `absent`."""
        self.placing: Completion[None] | None = None

    @property
    def oldest(self) -> RecordWithoutMetadata | None:
        """The oldest record; requires the lock, as callers may add records at any time."""
        return (self.absent or self.records or (None,))[0]

    def blocks(self, count: int) -> bool:
        """Return whether a new record for one of `count` partitions might overtake another."""
        return bool(self.records) or (bool(self.absent) and self.least < count)

    def leave_absent(self, record: RecordWithoutMetadata) -> None:
        """Move a record to `absent`, because its topic lacks the partition."""
        self.absent.append(record)
        self.least = min(self.least, record.partition.partition)


class RecordsWithoutMetadata:
    """The engine component that holds records until their topics' metadata is known."""

    def __init__(
        self,
        engine: Engine,
        network: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        partitioner: Partitioner,
        sender: Sender,
        *,
        topic: Callable[[str, float], Flow[Topic]],
        pause: Callable[[str, float, float, str], Flow[float]],
        track: Callable[[Completion[None], str, float], None],
        timeout: Callable[[str, float], KafkaTimeoutError],
        unreached_until: Callable[[float], float],
        unreached: Callable[[str, float], KafkaTimeoutError],
        note_missing: Callable[[TopicPartition], None],
        unnoticed: Callable[[int, BaseException], FailedRecords | None],
    ) -> None:
        """Set the functions for waits.

        `topic` waits until a topic is known, `pause` until metadata changes, both until a
        deadline; `track` reports a wait and its deadline to `explain()`; `timeout` creates its
        error. `unreached_until` returns when a record of a given creation time fails if the
        client reaches no broker (infinity after it has reached one), `unreached` the error for it.
        `note_missing` is called with a missing partition. `unnoticed` returns the object that
        notes whether a record's error is read.
        """
        self.resting = True
        """Whether no record waits; set under the accumulator's lock."""
        self._engine = engine
        self._network = network
        self._metadata = metadata
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._sender = sender
        self._known, self._pause, self._track = topic, pause, track
        self._timeout, self._note_missing, self._unnoticed = timeout, note_missing, unnoticed
        self._unreached_until, self._unreached = unreached_until, unreached
        self._topics: dict[str, _Waiting] = {}
        self._due: deque[str] = deque()
        """Topics to check in the next step; others only wait for metadata."""
        self._failed_at = self._again_at = self._told_at = -math.inf
        self._unsent: dict[str, int] = {}
        """Numbers of unlogged records that failed before a broker was reached, by topic."""
        self._went = Signal()
        """Notified after records were added to batches or have failed."""

    # Methods for callers

    def topic(self, name: str) -> Topic | None:
        """Return the topic if it is known, unless a record for it might overtake one that waits."""
        with self._accumulator.lock:
            snapshot = self._metadata.snapshot
            found = None if snapshot is None else snapshot.topic(name)
            if found is None or not found.partitions:
                return None
            waiting = self._topics.get(name)
            blocked = waiting is not None and waiting.blocks(len(found.partitions))
            return None if blocked else found

    def room(self, record: RecordWithoutMetadata) -> int:
        """Return the bytes of `buffer.memory` that a record needs while it waits here."""
        return min(record.size + WAITING_RECORD_OVERHEAD, self._accumulator.limit)

    def add(self, record: RecordWithoutMetadata, *, turn: bool) -> bool | None:
        """Accept a record; return False if a batch can take it at once, None if memory is full.

        Bytes that were reserved for the record are used. With `turn`, it gets memory before callers
        that wait for some.
        """
        accumulator, (name, partition) = self._accumulator, record.partition
        with accumulator.lock:
            accumulator.check()
            found = self.topic(name)
            if found is not None and partition < len(found.partitions):
                return False
            if not accumulator.keeps(record, self.room(record), turn=turn):
                return None
            self.resting = False
            waiting = self._topics.get(name)
            if waiting is None:
                waiting = self._topics[name] = _Waiting(accumulator.flushes)
            (waiting.records.append if found is None else waiting.leave_absent)(record)
            if waiting.placing is None:
                self._due.append(name)
        return True

    def withdraw(self, record: RecordWithoutMetadata) -> None:
        """Remove a record that isn't in a batch yet, because its caller was interrupted."""
        with self._accumulator.lock:
            if record.done.done:
                return
            waiting = self._topics.get(record.partition.topic)
            for queue in () if waiting is None else (waiting.records, waiting.absent):
                if record in queue:
                    queue.remove(record)
            self._accumulator.waive(record)
            self.resting = False
            self._due.append(record.partition.topic)
            record.empty()
            record.done.complete(NO_OFFSET)
        # flush() may wait for this record.
        self._engine.post(lambda now: self._sender.batch_done.notify())

    # Methods that the engine's thread calls

    def incomplete(self) -> list[ProducerBatch]:
        """Return the waiting records, in the order of their topics; any thread may call this."""
        with self._accumulator.shared():
            return [r for w in self._topics.values() for r in (*w.absent, *w.records)]

    def placed(self, name: str, deadline: float) -> Flow[Topic]:
        """Return the topic as soon as it is known and no earlier record waits for it."""
        while True:
            topic = yield from self._known(name, deadline)
            waiting = self._topics.get(name)
            if waiting is None or not waiting.blocks(len(topic.partitions)):
                return topic
            now = yield Wait((self._went, self._metadata.changed), deadline)
            if now >= deadline:
                raise self._timeout(f"earlier records of topic {name}", now)

    def advance(self, now: float) -> bool:
        """Start a wait for metadata for each topic that has none yet."""
        if now < self._again_at:
            return False
        with self._accumulator.lock:
            self.resting = not (self._topics or self._due)
        if self.resting:
            return False
        if (dropping := self._sender.identity.dropping) is not None:
            self._fail_all(dropping)
        moved = False
        for _ in range(len(self._due)):
            name = self._due.popleft()
            waiting = self._topics.get(name)
            if waiting is None:
                continue
            oldest = self._oldest(waiting)
            if oldest is None:
                self._forget(name, waiting)
            elif waiting.placing is not None:
                continue
            elif self._failed_at == now:
                self._again_at = now + PAUSE_AFTER_ERROR_S
                self._due.append(name)
                break
            else:
                self._begin(name, waiting, oldest)
                moved = True
        return moved

    def _forget(self, name: str, waiting: _Waiting) -> None:
        """Forget a topic without waiting records, and cancel its wait for metadata."""
        with self._accumulator.lock:
            if waiting.oldest is not None:  # a caller has just added a record
                return
            del self._topics[name]
        if waiting.placing is not None:
            gone = ClientClosedError(f"every caller that waited for topic {name} gave up")
            self._engine.cancel_now(waiting.placing, gone)

    def next_deadline(self, now: float) -> float | None:
        """Return the end of a pause after an error; waits for metadata have their own deadlines."""
        return self._again_at if self._due else None

    def abort(self, error: KafkaError, now: float) -> None:
        """Fail all records at the client's end."""
        self._accumulator.refuse(error)  # accept no records from now on
        self._fail_all(error)

    def ends_at(self, record: RecordWithoutMetadata) -> float:
        """Return when a waiting record times out, unless a first broker is reached before."""
        return min(record.deadline, self._unreached_until(record.created_at))

    def _oldest(self, waiting: _Waiting) -> RecordWithoutMetadata | None:
        with self._accumulator.lock:
            return waiting.oldest

    def _begin(self, name: str, waiting: _Waiting, oldest: RecordWithoutMetadata) -> None:
        placing = waiting.placing = self._engine.start(self._place(name, waiting))
        self._track(placing, f"metadata of topic {name}", self.ends_at(oldest))

        def ended(done: Completion[None]) -> None:
            waiting.placing = None
            self._due.append(name)
            if done.error is not None:  # for example refused credentials
                self._fail(waiting, done.error)

        placing.when_done(ended)

    def _place(self, name: str, waiting: _Waiting) -> Flow[None]:
        """Wait for the topic's metadata and add its records to batches, until none is left."""
        now = yield START
        while (oldest := self._oldest(waiting)) is not None:
            ends = self.ends_at(oldest)
            try:
                topic = yield from self._known(name, ends)
                now = self._engine.now
                self._into_batches(topic, waiting, now)
                if waiting.absent and not waiting.records:
                    now = yield from self._partition(topic, waiting, now)
            except KafkaError as error:
                now = self._engine.now
                late = isinstance(error, KafkaTimeoutError)
                if late and ends < oldest.deadline and self.ends_at(oldest) == ends:
                    error = self._unreached(f"metadata of topic {name}", now)
                self._fail(waiting, error, now if late else math.inf)
                del oldest  # a reference would look as if the program had kept the future
                now = yield Wait((), now + PAUSE_AFTER_ERROR_S)

    def _partition(self, topic: Topic, waiting: _Waiting, now: float) -> Flow[float]:
        """Wait for newer metadata of a topic, because records name partitions that it lacks.

        The partitions may just have been added (as in Java).
        """
        count = len(topic.partitions)
        with self._accumulator.lock:
            if not waiting.absent:  # the records were withdrawn
                return now
            deadline = waiting.absent[0].deadline
            wanted = min(record.partition for record in waiting.absent)
        self._metadata.request(f"topic {topic.name} has no partition {wanted.partition} yet")
        self._note_missing(wanted)
        so_far = f", which has partitions 0 to {count - 1}"
        what = f"partition {wanted.partition} of topic {topic.name}"
        return (yield from self._pause(what, deadline, now, so_far))

    def _into_batches(self, topic: Topic, waiting: _Waiting, now: float) -> None:
        self._tell_unsent()
        count, lock = len(topic.partitions), self._accumulator.lock
        batches = self._accumulator.lane(topic.name)
        lane = lane_for(self._partitioner, topic, self._metadata.snapshot, batches)
        with lock:
            waiting.records.extendleft(reversed(waiting.absent))
            waiting.absent.clear()
            waiting.least = math.inf
        while waiting.records:
            with lock:
                if not waiting.records:
                    break
                record = waiting.records[0]
                place = record.partition.partition
                if place == NO_PARTITION:
                    place = lane.choose(*record.record[:2])
                if place < count:
                    self._append(record, place, now)
                else:
                    waiting.leave_absent(record)
                waiting.records.popleft()  # from now on, `send` may add later records itself
        self._went.notify()
        if self._accumulator.flushes != waiting.flushes:  # flush() waits for these records
            self._accumulator.close_all()
            waiting.flushes = self._accumulator.flushes

    def _append(self, record: RecordWithoutMetadata, partition: int, now: float) -> None:
        target = TopicPartition(record.partition.topic, partition)
        self._metadata.use(target.topic, now)
        append = self._accumulator.append
        place = append(target, record.record, record.size, now, record, since=record.created_at)
        if place is None:
            raise RuntimeError(f"no memory for {record.size} bytes that were reserved")
        record.empty()
        record.replaced([Part(0, 1, place.batch, place.index)])
        if not place.index:  # needed once for each batch
            self._sender.expect(target, now)

    def _fail_all(self, error: KafkaError) -> None:
        for name, waiting in list(self._topics.items()):
            self._fail(waiting, error)
            self._due.append(name)
        self._tell_unsent()

    def _tell_unsent(self) -> None:
        """Log the records that failed before a broker was reached, in one line for each topic."""
        if not self._unsent:
            return
        self._told_at = self._engine.now
        for topic, count in self._unsent.items():
            logger.warning(
                "%s for topic %s %s not sent, because no broker has been reached",
                *(counted(count), topic, were(count)),
            )
        self._unsent.clear()

    def _fail(self, waiting: _Waiting, error: BaseException, until: float = math.inf) -> None:
        """Fail the records that time out at `until` or before; the cost depends on these alone."""
        over = []
        with self._accumulator.lock:
            for queue in (waiting.absent, waiting.records):
                while queue and self.ends_at(queue[0]) <= until:  # the oldest record is the first
                    over.append(queue.popleft())
            for record in over:
                self._accumulator.waive(record)
                record.empty()
        if over:
            self._failed_at = self._engine.now
            self._sender.counts.failed(over[0].partition.topic, len(over))
        if isinstance(error, AuthorizationError):
            error.of(self._network.user)
        if over and isinstance(error, KafkaTimeoutError | ClientClosedError):
            topic, count = over[0].partition.topic, len(over)
            if isinstance(error, NoBrokerAvailableError) and not error.reached_before:
                self._unsent[topic] = self._unsent.get(topic, 0) + count
                if self._engine.now >= self._told_at + LOG_INTERVAL_S:
                    self._tell_unsent()
            error = saying(
                error, f"{counted(count)} for topic {topic} {were(count)} not sent: {error}"
            )
        alone = [record for record in over if not record.done.followed]
        kept = self._unnoticed(len(alone), error) if alone else None
        for record in alone:
            record.fails_unnoticed(kept)
        for record in over:
            record.done.fail(error)
        if over and isinstance(error, KafkaError):
            self._sender.identity.failed(error)
            self._sender.batch_done.notify()
        self._went.notify()
