"""Decide which record may be processed next, and up to where all records are finished.

In: records in the order of their partitions, results of their processing, lost partitions. Out: the
next record to process, offsets to commit, partitions to pause. It reads no clock, starts nothing
and waits for nothing; one thread at a time calls it.

R-WK-1: of the records in one lane (the same key of the same partition) one is processed at a time,
and the next is started once that one is finished: also while it is retried, and if its partition
was lost and assigned again meanwhile. R-WK-2: an offset is committed only if every record before it
is finished. R-WK-3: a dead letter is finished once its topic has it.

The queue belongs to the polling thread, so it has no lock that a Ctrl-C could leave held. Only
unfinished records are kept, so records that are finished after a gap take no memory; the distance
is limited by how many records a crash may repeat (10,000 offsets).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import Any

from odradek.clients.consumer.partition_state import Place
from odradek.clients.consumer.records import ConsumerRecord, OffsetAndMetadata
from odradek.clients.workers.dead_letters import (
    TOO_LARGE,
    WorkFailedError,
    dead_letter,
    said,
    smaller,
)
from odradek.clients.workers.work_options import KEY, PARTITION, WorkOptions
from odradek.common.errors import KafkaError
from odradek.common.types import Rng, TopicPartition

AHEAD = 10_000
"""Maximum number of offsets that are read after a partition's first unfinished record."""
OVERHEAD = 200
"""Assumed bytes of memory for a record or header, in addition to its content."""

Lane = tuple[Any, ...] | None


class WorkItem:
    """One record, from its arrival until it is finished."""

    __slots__ = (
        "attempts",
        "began",
        "came",
        "dropped",
        "lane",
        "left_out",
        "letter",
        "record",
        "size",
        "tp",
    )

    def __init__(
        self, record: ConsumerRecord, tp: TopicPartition, lane: Lane, came: float = 0.0
    ) -> None:
        self.record, self.tp, self.lane = record, tp, lane
        self.size = _size(record)
        self.attempts = 0
        self.letter: dict[str, Any] | None = None
        """Record for the dead-letter topic, instead of another attempt."""
        self.left_out: tuple[str, ...] = ()
        """Names of fields that were removed from the letter, because it was too large."""
        self.dropped = False
        """Whether the partition was lost, so that another member processes the record."""
        self.came = came
        self.began = 0.0


class PartitionWork:
    """Records of one partition."""

    __slots__ = ("bytes", "committed", "end", "held", "paused", "unfinished")

    def __init__(self, offset: int) -> None:
        self.unfinished: OrderedDict[int, WorkItem] = OrderedDict()
        self.end: Place = offset, -1
        """Offset after the last added record, and the leader epoch to validate that offset with."""
        self.bytes = 0
        self.committed: int | None = None
        self.held = False
        """Whether no more records of this partition may start."""
        self.paused = False

    def first(self) -> OffsetAndMetadata:
        """Return the offset to commit: all records before it are finished."""
        for offset, item in self.unfinished.items():
            return OffsetAndMetadata(offset, leader_epoch=item.record.leader_epoch)
        return OffsetAndMetadata(self.end[0], leader_epoch=self.end[1])


class WorkQueue:
    """The records of one run of workers."""

    def __init__(self, options: WorkOptions, task: tuple[str, str], rng: Rng) -> None:
        """Set `task`, the names of the group and the client, for dead letters."""
        self._options, self._task, self._rng = options, task, rng
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._lanes: dict[Lane, deque[WorkItem]] = {}
        self._ready: deque[WorkItem] = deque()
        self._later: list[tuple[float, int, WorkItem]] = []
        self._order = count()
        self._turned: dict[TopicPartition, None] = {}
        self._share = (options.buffer_records, options.buffer_bytes)
        self.moved: dict[TopicPartition, None] = {}
        """Partitions that may have offsets to commit."""
        self._unfinished = self._abandoned = self.bytes = 0
        self._overfull = False
        self.running: dict[WorkItem, None] = {}
        """Records in progress, the longest running first."""
        self.failure: WorkFailedError | None = None
        """Error of a record that can be neither finished nor skipped: no more records start."""
        self.finished = self.retried = self.dead = 0
        """Records that were finished, attempts after the first, dead letters that were written."""

    # Adding records

    def share(self, partitions: int) -> None:
        """Set the number of assigned partitions, which get equal shares of the buffer."""
        part = max(1, partitions)
        options = self._options
        self._share = (max(1, options.buffer_records // part), options.buffer_bytes // part)
        for tp, work in self._partitions.items():
            self._check(tp, work)

    def add(self, records: Iterable[ConsumerRecord], now: float = 0.0) -> bool:
        """Add records that were read; return whether they include a partition's first record."""
        came: dict[TopicPartition, PartitionWork] = {}
        new = False
        for record in records:
            tp = record.topic_partition
            work = came.get(tp) or self._partitions.get(tp)
            if work is not None and record.offset < work.end[0]:
                self.drop([tp])  # the log was truncated, or the topic recreated
                work = None
            if work is None:
                new = True
                work = self._partitions[tp] = PartitionWork(record.offset)
                self.moved[tp] = None
            came[tp] = work
            item = WorkItem(record, tp, self._lane(tp, record), now)
            # Added before `end` moves, so that an interruption can't skip the record.
            work.unfinished[record.offset] = item
            work.bytes += item.size
            self.bytes += item.size
            self._unfinished += 1
            work.end = record.offset + 1, record.leader_epoch
            self._enqueue(item)
        for tp, work in came.items():
            self._check(tp, work)
        return new

    def _lane(self, tp: TopicPartition, record: ConsumerRecord) -> Lane:
        ordering = self._options.ordering
        if ordering == PARTITION:
            return (tp,)
        # Records without a key belong to no lane, because they may be processed in any order.
        return (tp, record.key) if ordering == KEY and record.key is not None else None

    def _enqueue(self, item: WorkItem) -> None:
        if item.lane is None:
            self._ready.append(item)
            return
        lane = self._lanes.get(item.lane)
        if lane is None:
            self._lanes[item.lane] = deque((item,))
            self._ready.append(item)
        else:
            lane.append(item)

    # Processing

    def begin(self, now: float) -> WorkItem | None:
        """Return the next record to process, if one may start."""
        if self.failure is not None or len(self.running) >= self._options.concurrency:
            return None
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        if not self._ready:
            return None
        item = self._ready.popleft()
        item.began = now
        item.attempts += item.letter is None
        self.running[item] = None
        return item

    def ended(self, item: WorkItem, error: BaseException | None, now: float) -> None:
        """Note the end of a record's processing; after an error, retry it or send a dead letter."""
        self.running.pop(item, None)
        work = self._partitions.get(item.tp)
        if item.dropped or work is None:
            self._abandoned -= 1
            self._release(item)
        elif error is None:
            self.finished += 1
            self.dead += item.letter is not None
            self._release(item)
            work.bytes -= item.size
            self.bytes -= item.size
            self._unfinished -= 1
            del work.unfinished[item.record.offset]
            self.moved[item.tp] = None
            self._check(item.tp, work)
        elif not work.held and isinstance(error, Exception):
            self._fail(item, error, now)

    def _release(self, item: WorkItem) -> None:
        """Let the next record of the item's lane (same key and partition) start."""
        if item.lane is None:
            return
        lane = self._lanes[item.lane]
        lane.popleft()
        if not lane:
            del self._lanes[item.lane]
        elif not self._held(lane[0].tp):
            self._ready.append(lane[0])

    def _held(self, tp: TopicPartition) -> bool:
        work = self._partitions.get(tp)
        return work is None or work.held

    def _fail(self, item: WorkItem, error: Exception, now: float) -> None:
        options = self._options
        if item.letter is not None:
            large = isinstance(error, TOO_LARGE)
            if large and (cut := smaller(item.letter, item.record, item.left_out)) is not None:
                item.letter, item.left_out = cut
                self._ready.appendleft(item)
                return
            _, why = item.letter["headers"][-1]  # the last header is the error's message
            written = f"writing it to {options.dead_letter_topic!r} failed: {said(error)}"
            self._stop(item, f"{why.decode() or 'it failed'}. Then {written}", error)
            return
        ours = isinstance(error, KafkaError)  # other errors may have the same attributes
        unreadable = ours and getattr(error, "next_offset", None) is not None
        blameless = ours and getattr(error, "blames_record", True) is False
        again = blameless or (isinstance(error, options.retry_on) and not unreadable)
        if again and item.attempts < options.max_attempts:
            due = now + options.backoff.delay(item.attempts - 1, self._rng)
            heapq.heappush(self._later, (due, next(self._order), item))
            self.retried += 1
        elif blameless:
            self._stop(item, f"{said(error)}. The record isn't the cause", error)
        elif options.dead_letter_topic is None:
            self._stop(item, f"{said(error)}. dead_letter_topic isn't set", error)
        else:
            who = (options.worker, *self._task)
            item.letter = dead_letter(options.dead_letter_topic, item.record, who, error)
            self._ready.appendleft(item)

    def _stop(self, item: WorkItem, why: str, error: Exception) -> None:
        if self.failure is None:
            self.failure = WorkFailedError(item.tp, item.record.offset, item.attempts, why)
            self.failure.__cause__ = error

    def through(self, positions: Callable[[TopicPartition], Place | None]) -> None:
        """Where all records of a partition are finished, advance past offsets without records."""
        for tp, work in self._partitions.items():
            if not work.unfinished:
                position = positions(tp)
                if position is not None and position[0] > work.end[0]:
                    work.end = position
                    self.moved[tp] = None

    # Revoked partitions, and the end

    def hold(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Start no more records of these partitions (None: all); running ones may finish."""
        for tp in list(self._partitions) if partitions is None else partitions:
            if tp in self._partitions:
                self._partitions[tp].held = True
        self._ready = deque(item for item in self._ready if not self._held(item.tp))
        self._later = [one for one in self._later if not self._held(one[2].tp)]
        heapq.heapify(self._later)

    def drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget these partitions (None: all). Running records continue, and block their key."""
        chosen = list(self._partitions) if partitions is None else partitions
        gone = [tp for tp in chosen if tp in self._partitions]
        self.hold(gone)
        for tp in gone:
            work = self._partitions.pop(tp)
            unfinished = work.unfinished
            self._unfinished -= len(unfinished)
            self.bytes -= work.bytes
            for item in unfinished.values():
                item.dropped = True
                if item in self.running:
                    self._abandoned += 1
                elif item.lane is not None:
                    self._leave_lane(item)
            self._turned.pop(tp, None)
            self.moved.pop(tp, None)

    def _leave_lane(self, item: WorkItem) -> None:
        lane = self._lanes[item.lane]
        lane.remove(item)
        if not lane:
            del self._lanes[item.lane]

    # State of the buffer, and offsets to commit

    @property
    def waiting(self) -> int:
        """Return the number of buffered records, including those that are retried later."""
        return self._unfinished - self.in_work

    @property
    def in_work(self) -> int:
        """Return the number of records in progress, without those of lost partitions."""
        return len(self.running) - self._abandoned

    def oldest(self) -> float | None:
        """Return the arrival time of the oldest unfinished record; callable in any thread."""
        # Copied: iterating would raise RuntimeError if the polling thread changes them meanwhile.
        items = (list(work.unfinished.values()) for work in list(self._partitions.values()))
        return min((those[0].came for those in items if those), default=None)

    def longest(self) -> float | None:
        """Return the start time of the longest running record; None if none is running."""
        return min((item.began for item in list(self.running)), default=None)

    @property
    def next_retry(self) -> float | None:
        """Time at which the next failed record is retried; None without one."""
        return self._later[0][0] if self._later else None

    def room(self) -> int:
        """Return the number of records for which the buffer has space."""
        return max(1, self._options.buffer_records - self._unfinished)

    def overfull(self) -> bool:
        """Return whether to read no records: when the buffer is full, until half of it is free.

        The sum of all partitions may exceed the buffer, as shares shrink with an assignment.
        """
        options, part = self._options, 2 if self._overfull else 1
        records = self._unfinished * part >= options.buffer_records + part - 1
        self._overfull = records or self.bytes * part >= options.buffer_bytes
        return self._overfull

    def paused(self, tp: TopicPartition) -> bool:
        """Return whether a partition has filled its share of the buffer."""
        return tp in self._partitions and self._partitions[tp].paused

    def turned(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return the partitions to pause and to resume since the last call."""
        turned, self._turned = list(self._turned), {}
        now = {tp: self._partitions[tp].paused for tp in turned}
        return [tp for tp in turned if now[tp]], [tp for tp in turned if not now[tp]]

    def _check(self, tp: TopicPartition, work: PartitionWork) -> None:
        """Pause a partition that fills its share of the buffer; resume it when half is free."""
        records, size = self._share
        part = 1 if not work.paused else 2
        first = next(iter(work.unfinished), work.end[0])
        full = (
            len(work.unfinished) * part >= records + part - 1
            or work.bytes * part >= max(size, 1)
            or (work.end[0] - first) * part >= AHEAD
        )
        if full is not work.paused:
            work.paused = full
            self._turned[tp] = None

    def committable(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit of these partitions (None: all), if they have advanced."""
        chosen = list(self.moved) if partitions is None else partitions
        offsets = {tp: self._partitions[tp].first() for tp in chosen if tp in self.moved}
        for tp, at in list(offsets.items()):
            if at.offset == self._partitions[tp].committed:  # an earlier record is unfinished
                del offsets[tp], self.moved[tp]
        return offsets

    def committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Note the offsets that the group has committed."""
        for tp, at in offsets.items():
            work = self._partitions.get(tp)
            if work is not None:
                work.committed = at.offset
                if work.first().offset == at.offset:
                    self.moved.pop(tp, None)


def _size(record: ConsumerRecord) -> int:
    fields: Any = tuple.__getitem__(record, slice(5, 8))
    key, value, headers = fields
    size = OVERHEAD + len(key or b"") + len(value or b"")
    if type(headers) is tuple:
        return size + sum(OVERHEAD + len(name) + len(held or b"") for name, held in headers)
    return int(size + headers.size)
