"""Hold records whose topic isn't known yet, so that `send()` needn't wait (R-RT-2).

In: records of the callers' threads, in their order; metadata. Out: the same records in the open
batches of their partitions, once there is metadata of the topic, in the same order; or an error
each, after `max.block.ms` at the latest. Their bytes count in `buffer.memory`. Later records can't
pass them: a topic's lane is created once its records are placed (`topic`, under the accumulator's
lock). Must not: call a user's partitioner, which runs in the caller's thread; such a `send()` waits
for the metadata itself.
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

NOWHERE = -1
"""The partition of a record that has none yet."""
PAUSE = 0.001
"""Seconds after an error: a notified caller may send again at once, and a step has to end."""
SPACING = 60.0
"""Seconds between two log lines about records that ended before a broker was reached."""
OVERHEAD = 1024
"""Bytes of memory that a record takes here beside its own: `buffer.memory` has to hold."""


class EarlyRecord(ProducerBatch):
    """One record, and the batch that its future knows until it is in one; then it is its part."""

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
        """Copy what the caller may change after `send()`, as a batch does.

        `wanted` is the partition, if the caller has named one.
        """
        partition = TopicPartition(topic, NOWHERE if wanted is None else wanted)
        super().__init__(partition, BatchBuilder(0, None), now, patience)
        key, value, headers, at = record
        copied = tuple([(name, _frozen(data)) for name, data in headers])
        self.record: SentRecord = (_frozen(key), _frozen(value), copied, at)
        self.size = size

    @property
    def count(self) -> int:
        """It is one record."""
        return 1

    def empty(self) -> None:
        """Its future may be kept, what was in it isn't."""
        self.record = (None, None, (), 0)


def _frozen(data: bytes | None) -> bytes | None:
    return data if data is None or type(data) is bytes else bytes(data)


class _Waiting:
    """The records of one topic."""

    __slots__ = ("absent", "flushes", "least", "placing", "records")

    def __init__(self, flushes: int) -> None:
        self.flushes = flushes
        """Of the accumulator: what was here when it grew doesn't linger afterwards."""
        self.records: deque[EarlyRecord] = deque()
        self.absent: deque[EarlyRecord] = deque()
        """Older ones, of partitions that the topic doesn't have so far."""
        self.least = math.inf
        """No partition of these is below it."""
        self.placing: Completion[None] | None = None

    @property
    def oldest(self) -> EarlyRecord | None:
        """Under the lock: callers come at any time."""
        return (self.absent or self.records or (None,))[0]

    def blocks(self, count: int) -> bool:
        """Return whether a record for one of `count` partitions would pass a waiting one."""
        return bool(self.records) or (bool(self.absent) and self.least < count)

    def leave_absent(self, record: EarlyRecord) -> None:
        """Its topic is known, and hasn't got its partition."""
        self.absent.append(record)
        self.least = min(self.least, record.partition.partition)


class EarlyRecords:
    """A component of a producer's engine."""

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
        deadline; `track` notes what is waited for, and until when; `timeout` creates its error.
        `unreached_until` returns when a record of that age ends while the client has reached no
        broker, infinity once it has; `unreached` makes that error. `note_missing` is called with a
        partition that its topic doesn't have; `unnoticed` returns what a record that fails
        without a callback keeps.
        """
        self.resting = True
        """No record waits; changed under the accumulator's lock."""
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
        """Topics to look at: a step costs nothing for those whose metadata is waited for."""
        self._failed_at = self._again_at = self._told_at = -math.inf
        self._unsent: dict[str, int] = {}
        """By topic: records that ended before a broker was reached, since the last log lines."""
        self._went = Signal()
        """Some were placed, or have ended."""

    # The callers' side

    def topic(self, name: str) -> Topic | None:
        """Return the known topic, unless a record for it would pass others that wait here."""
        with self._accumulator.lock:
            snapshot = self._metadata.snapshot
            found = None if snapshot is None else snapshot.topic(name)
            if found is None or not found.partitions:
                return None
            waiting = self._topics.get(name)
            blocked = waiting is not None and waiting.blocks(len(found.partitions))
            return None if blocked else found

    def room(self, record: EarlyRecord) -> int:
        """Return the bytes of `buffer.memory` that a record needs while it is here."""
        return min(record.size + OVERHEAD, self._accumulator.limit)

    def add(self, record: EarlyRecord, *, turn: bool) -> bool | None:
        """Accept a record; False if it can go into a batch at once, None if memory is full.

        Memory that was reserved for it is used. With `turn`, it isn't after others that wait for
        memory.
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

    def withdraw(self, record: EarlyRecord) -> None:
        """Withdraw a record of an interrupted or waiting caller, unless it is in a batch."""
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
        # A flush() may have seen it.
        self._engine.post(lambda now: self._sender.batch_done.notify())

    # The engine's side

    def incomplete(self) -> list[ProducerBatch]:
        """Those that wait, in the order of their topics; any thread may ask."""
        with self._accumulator.shared():
            return [r for w in self._topics.values() for r in (*w.absent, *w.records)]

    def placed(self, name: str, deadline: float) -> Flow[Topic]:
        """Wait until a topic is known and nothing that came before waits for it."""
        while True:
            topic = yield from self._known(name, deadline)
            waiting = self._topics.get(name)
            if waiting is None or not waiting.blocks(len(topic.partitions)):
                return topic
            now = yield Wait((self._went, self._metadata.changed), deadline)
            if now >= deadline:
                raise self._timeout(f"earlier records of topic {name}", now)

    def advance(self, now: float) -> bool:
        """Ensure that a flow waits for the metadata of each topic."""
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
                self._again_at = now + PAUSE
                self._due.append(name)
                break
            else:
                self._begin(name, waiting, oldest)
                moved = True
        return moved

    def _forget(self, name: str, waiting: _Waiting) -> None:
        """Forget a topic whose records were all placed, withdrawn or ended."""
        with self._accumulator.lock:
            if waiting.oldest is not None:  # a caller has just come
                return
            del self._topics[name]
        if waiting.placing is not None:
            gone = ClientClosedError(f"every caller that waited for topic {name} gave up")
            self._engine.cancel_now(waiting.placing, gone)

    def next_deadline(self, now: float) -> float | None:
        """Return None: the flows have their own deadlines."""
        return self._again_at if self._due else None

    def abort(self, error: KafkaError, now: float) -> None:
        """End all records with the client."""
        self._accumulator.refuse(error)  # first: no more come
        self._fail_all(error)

    def ends_at(self, record: EarlyRecord) -> float:
        """Return when a record ends that is still here, as far as is known now."""
        return min(record.deadline, self._unreached_until(record.created_at))

    def _oldest(self, waiting: _Waiting) -> EarlyRecord | None:
        with self._accumulator.lock:
            return waiting.oldest

    def _begin(self, name: str, waiting: _Waiting, oldest: EarlyRecord) -> None:
        placing = waiting.placing = self._engine.start(self._place(name, waiting))
        self._track(placing, f"metadata of topic {name}", self.ends_at(oldest))

        def ended(done: Completion[None]) -> None:
            waiting.placing = None
            self._due.append(name)
            if done.error is not None:  # no broker accepts this client, or it has ended
                self._fail(waiting, done.error)

        placing.when_done(ended)

    def _place(self, name: str, waiting: _Waiting) -> Flow[None]:
        """Wait for the topic and put its records where they belong, until there are none."""
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
                del oldest  # or it would count as kept by the program
                now = yield Wait((), now + PAUSE)

    def _partition(self, topic: Topic, waiting: _Waiting, now: float) -> Flow[float]:
        """Wait for new metadata of a topic that lacks partitions which callers have named.

        They may just have been added; Java's client waits, too.
        """
        count = len(topic.partitions)
        with self._accumulator.lock:
            if not waiting.absent:  # they were withdrawn
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
                if place == NOWHERE:
                    place = lane.choose(*record.record[:2])
                if place < count:
                    self._append(record, place, now)
                else:
                    waiting.leave_absent(record)
                waiting.records.popleft()  # from here on others of its partition may follow
        self._went.notify()
        if self._accumulator.flushes != waiting.flushes:  # flush() waits for them
            self._accumulator.close_all()
            waiting.flushes = self._accumulator.flushes

    def _append(self, record: EarlyRecord, partition: int, now: float) -> None:
        target = TopicPartition(record.partition.topic, partition)
        self._metadata.use(target.topic, now)
        append = self._accumulator.append
        place = append(target, record.record, record.size, now, record, since=record.created_at)
        if place is None:
            raise RuntimeError(f"no memory for {record.size} bytes that were reserved")
        record.empty()
        record.replaced([Part(0, 1, place.batch, place.index)])  # whose outcome is its own
        if not place.index:  # once for each batch: very many records may have waited
            self._sender.expect(target, now)

    def _fail_all(self, error: KafkaError) -> None:
        for name, waiting in list(self._topics.items()):
            self._fail(waiting, error)
            self._due.append(name)
        self._tell_unsent()

    def _tell_unsent(self) -> None:
        """Log the records that ended before a broker was reached: each may end on its own."""
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
        """End those whose time is up by then: what it costs is in proportion to these alone."""
        over = []
        with self._accumulator.lock:
            for queue in (waiting.absent, waiting.records):
                while queue and self.ends_at(queue[0]) <= until:  # the oldest comes first
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
                if self._engine.now >= self._told_at + SPACING:
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
