"""Collect records in one open batch per partition, under the producer's lock.

In: records from the callers' threads, and columns through `ColumnWriter`. Out: ready batches for
the sender. `buffer.memory` limits buffered and in-flight batches: an open batch reserves the bytes
that it may grow to, a closed one its size. Must not: switch threads for a record; `append` says
when the I/O thread has to be woken: for a full batch, or for the first one that lingers. Ctrl-C or
a signal handler's exception may end a call at any bytecode (R-HO-1): the next call that takes the
lock repairs the accounting of memory first.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from odradek.clients.producer.batch import OPEN, UNPLACED, Placed, ProducerBatch
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.common.types import Lock, TopicPartition
from odradek.record import BatchBuilder
from odradek.record.batch import HEADER_SIZE
from odradek.record.compression import LEVELS

COLUMN_BATCH = 512 << 10
"""Maximum bytes of a batch that is filled from columns, unless `batch.size` is set.

Brokers handle large batches best, and a column's rows arrive faster than `linger.ms` passes.
"""
FIRST_ROOM = 4096
"""Bytes that a new batch reserves; each time it is full, it reserves four times as much.

So thousands of partitions with one record don't use `batch.size` each.
"""
CANNOT_WAIT = object()
"""Owner of records sent in a callback: it can't wait, so it gets memory before waiting callers."""
HURRY_SHARE = 2
"""Divisor n: no open batch lingers while callers wait and open batches hold 1/n of used bytes.

Not 4: in a full buffer, new batches reserve all granted bytes, so two might be enough.
"""


SentRecord = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]
"""Key, value, headers and timestamp in milliseconds."""


class Appended(NamedTuple):
    """A record's batch, its index there, and whether the I/O thread must be woken."""

    batch: ProducerBatch
    index: int  # type: ignore[assignment]  # tuples have a method of this name
    wake: bool


class RecordAccumulator:
    """The open batches and the memory of one producer."""

    def __init__(
        self, config: Config, lock: Lock, placed_in: Callable[[str], Placed] = lambda _: UNPLACED
    ) -> None:
        """Set `placed_in`, which returns a topic's information in the newest metadata."""
        self.lock = lock
        self._placed_in = placed_in
        self.limit: int = config["buffer.memory"]
        self.used = 0
        self.granted: dict[object, int] = {}
        """Bytes of `used` that are reserved for a caller and not in a batch yet, by caller."""
        self.batch_size: int = config["batch.size"]
        self.column_batch_size = self.batch_size
        if "batch.size" not in config.given:
            largest = min(COLUMN_BATCH, config["max.request.size"], self.limit // 8)
            self.column_batch_size = max(self.batch_size, largest)
        self.waiters: OrderedDict[object, Any] = OrderedDict()
        """Callers that wait for memory, in order; only `CANNOT_WAIT` gets memory before them."""
        self.released = 0
        """Number of batches whose memory was released."""
        self.starved = False
        """Whether a caller waits, and no memory was released for a while (see `MemoryWaiters`)."""
        self.flushes = 0
        """Number of flushes, by which owners of claimed batches notice a flush."""
        self.ended: KafkaError | None = None
        """Error that `send` raises now, as the client has ended or no transaction is open."""
        self.topic_limits: dict[str, tuple[int, float]] = {}
        """Maximum batch size, and when it expires, by topic that refused a larger batch."""
        self._linger: float = config["linger.ms"]
        self._delivery: float = config["delivery.timeout.ms"]
        self._compression: str = config["compression.type"]
        self._level: int | None = None
        if self._compression in LEVELS:
            self._level = config[f"compression.{self._compression}.level"]
        self._torn = False
        """Whether a change of the accounting is in progress, or was interrupted."""
        self._doubted = False
        """Whether `used` may be wrong; it is recalculated as soon as no batch is claimed."""
        self._live: dict[ProducerBatch, None] = {}
        """All batches that use buffer memory."""
        self._serial = 0
        self._lanes: dict[str, dict[int, ProducerBatch]] = {}
        self._claimed: dict[ProducerBatch, None] = {}
        self._begun: dict[TopicPartition, deque[ProducerBatch]] = {}
        """Batches that aren't ready yet, in the order of their creation and so of their rows.

        They may be closed in another order.
        """
        self._ready: deque[ProducerBatch] = deque()
        self._lingering: deque[ProducerBatch] = deque()

    def lane(self, topic: str) -> dict[int, ProducerBatch]:
        """Return the open batches of a topic by partition; always the same object."""
        return self._lanes.setdefault(topic, {})

    def forget(self, topic: str) -> None:
        """Drop the empty dict of open batches of a topic that isn't in use any more."""
        with self.lock:
            if not self._lanes.get(topic):
                self._lanes.pop(topic, None)

    def starve(self, *, starved: bool) -> None:
        """Set whether callers wait although no memory was released for a while."""
        self.starved = starved

    def refuse(self, why: KafkaError | None) -> None:
        """Let `send` raise this error from now on; None: accept records again."""
        self.ended = why

    def check(self) -> None:
        """Raise if records aren't accepted now."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)  # raised repeatedly: its traceback would grow

    # Repairs after Ctrl-C and exceptions of signal handlers

    def _open_books(self) -> None:
        """Mark the accounting as changing, under the lock, before every change.

        An exception between this and `_close_books` leaves it inconsistent.
        """
        if self._torn:
            self._mend()
        self._torn = True

    def _close_books(self, *, counted: bool = True) -> None:
        """End a change of the accounting; `counted`: all used bytes are in batches or granted."""
        if counted and self._doubted and not self._claimed:
            self.used = sum(b.reserved for b in self._live) + sum(self.granted.values())
            self._doubted = False
        self._torn = False

    def doubt(self) -> None:
        """Note that `used` may be wrong, because a caller was interrupted between two changes."""
        self._doubted = True

    def _mend(self) -> None:
        """Repair the accounting after an interrupted change, from `_begun` and `_ready`."""
        self._doubted = True
        ready = set(self._ready)
        ready.update(b for b in self._live if b.taken)
        for partition, begun in list(self._begun.items()):
            while begun and begun[0] in ready:
                begun.popleft()
            for batch in list(begun):
                open_here = self._lanes.get(partition.topic, {}).get(partition.partition) is batch
                if not open_here and batch not in self._claimed:
                    batch.builder.close()  # the batch is neither open nor claimed any more
                    batch.reserved = batch.builder.estimated_size - HEADER_SIZE
            self._let_go(partition)
        kept = {b for begun in self._begun.values() for b in begun}
        # Drop batches that are in no queue: flush() would wait forever for their outcome.
        self._live = {b: None for b in self._live if b in kept or b in ready or b in self._ready}
        self._claimed = {b: None for b in self._claimed if b in kept}
        lingers = {b: None for b in self._lingering if b in kept or b in ready or b.taken}
        # Open batches have to be in `_lingering`, or they would never be sent.
        for batch in self._live:
            if batch in kept and not batch.builder.closed and batch not in self._claimed:
                lingers[batch] = None
            batch.lingers = batch in lingers
        self._lingering = deque(lingers)
        for lane in self._lanes.values():
            for number, batch in list(lane.items()):
                if batch not in kept or batch.builder.closed:
                    del lane[number]
        for batch in [*self._ready, *ready]:
            if batch.serial != OPEN:
                self._serial = max(self._serial, batch.serial + batch.count)

    # Single records

    def append(
        self,
        partition: TopicPartition,
        record: SentRecord,
        size: int,
        now: float,
        owner: object = None,
        *,
        since: float | None = None,
    ) -> Appended | None:
        """Add a record of at most `size` bytes; return None if `buffer.memory` is full.

        The bytes that are reserved for `owner` are used or released. Without an owner, no memory is
        taken while callers wait for it. `since` is the time at which a record without metadata was
        accepted: such a record is added even if the client has ended, and lingers from that time.
        """
        with self.lock:
            if since is None and self.ended is not None:
                self.check()
            self._open_books()
            granted = 0 if owner is None else self._taken_back(owner)
            turn = owner is not None or not self.waiters
            limit = self.limit if turn else 0
            place = self._append(partition, record, size, now, granted, limit)
            if since is not None and place is not None and not place.index:
                self._begins_with(place.batch, since)
            self._close_books()
        if granted and place is not None and self.waiters:
            return place._replace(wake=True)  # waiting callers get the released bytes
        return place

    def grant(self, owner: object, size: int) -> bool:
        """Reserve bytes for a waiting caller; return False if fewer are free."""
        with self.lock:
            return self._grant(owner, size)

    def keeps(self, owner: object, size: int, *, turn: bool) -> bool:
        """Return whether a caller has reserved bytes or can reserve them now; requires the lock."""
        if owner in self.granted:
            return True
        return (turn or not self.waiters) and self._grant(owner, size)

    def _grant(self, owner: object, size: int) -> bool:
        self._open_books()
        fits = self.used + size <= self.limit
        if fits:
            self.granted[owner] = size
            self.used += size
        self._close_books()
        return fits

    def waive(self, owner: object) -> None:
        """Release the reserved bytes of a caller that doesn't wait any more."""
        with self.lock:
            self._open_books()
            self._taken_back(owner)
            self._close_books()

    def _taken_back(self, owner: object) -> int:
        granted = self.granted.pop(owner, 0)
        self.used -= granted
        return granted

    def _append(
        self,
        partition: TopicPartition,
        record: SentRecord,
        size: int,
        now: float,
        granted: int,
        limit: int,
    ) -> Appended | None:
        """Add a record to the open batch or a new one; return None if that exceeds `limit`."""
        topic, number = partition
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self.lane(topic)
        most = self.batch_size
        if self.topic_limits:
            most = self._at_most(most, topic, now)
        batch, index, wake = lane.get(number), None, False
        if batch is not None:
            index = batch.append(*record)
            while index is None and batch.builder.limit_bytes < most:
                if not self._widen(batch, size, most, limit):
                    return None
                index = batch.append(*record)
            if index is None:
                self._make_ready(batch)
                wake = True
        if batch is None or index is None:
            wake = wake or not self._lingering
            batch = self._open(partition, size, most, now, granted, limit)
            if batch is None:
                return None
            lane[number] = batch
            index = batch.append(*record) or 0
        if batch.builder.estimated_size >= most:
            self._make_ready(batch)
            wake = True
        return tuple.__new__(Appended, (batch, index, wake))

    def _begins_with(self, batch: ProducerBatch, since: float) -> None:
        """Move a new batch forward in `_lingering`, because it has lingered since this time."""
        batch.begins_with(since)
        waiting, place = self._lingering, len(self._lingering) - 1  # the new batch is the last one
        while place > 0 and waiting[place - 1].lingers_from > since:
            place -= 1
        if place < len(waiting) - 1:
            # Insert before `pop`: if an exception comes between them, a duplicate does no harm.
            waiting.insert(place, batch)
            waiting.pop()

    def _at_most(self, usual: int, topic: str, now: float) -> int:
        """Return the maximum batch size of a topic, which is lower if the topic refused a batch."""
        limit, until = self.topic_limits.get(topic, (usual, math.inf))
        if now >= until:
            del self.topic_limits[topic]
            return usual
        return min(usual, limit)

    def _open(
        self, partition: TopicPartition, size: int, most: int, now: float, granted: int, limit: int
    ) -> ProducerBatch | None:
        """Create a batch for a record of at most `size` bytes, if there is memory for it.

        The batch gets all granted bytes, so that the next records fit into it in a full buffer.
        """
        reserved = max(size, min(max(FIRST_ROOM, granted), most - HEADER_SIZE))
        if self.used + reserved > limit:
            reserved = size
            if self.used + reserved > limit:
                return None
        batch = self._begin(partition, HEADER_SIZE + reserved, now)
        self.used += reserved
        batch.reserved = reserved
        return batch

    def _begin(self, partition: TopicPartition, limit_bytes: int, now: float) -> ProducerBatch:
        batch = self.make(partition, limit_bytes, now)
        self._live[batch] = None
        begun = self._begun.get(partition)
        if begun is None:
            begun = self._begun[partition] = deque()
        begun.append(batch)
        self._lingering.append(batch)
        return batch

    def make(self, partition: TopicPartition, limit_bytes: int, now: float) -> ProducerBatch:
        """Create a batch that isn't in any queue."""
        builder = BatchBuilder(limit_bytes, self._compression, self._level)
        batch = ProducerBatch(partition, builder, now, self._delivery)
        batch.place_in(self._placed_in(partition.topic))
        return batch

    def _widen(self, batch: ProducerBatch, size: int, most: int, limit: int) -> bool:
        """Reserve at least `size` more bytes for an open batch; return whether they were free."""
        builder = batch.builder
        least = min(builder.estimated_size + size, most)
        wanted = min(max(least, 4 * builder.limit_bytes), most)
        for bytes_ in (wanted, least):
            reserved = bytes_ - HEADER_SIZE
            if self.used + reserved - batch.reserved <= limit:
                self._settle(batch, reserved)
                batch.limit(bytes_)
                return True
        return False

    def _make_ready(self, batch: ProducerBatch) -> None:
        """Close an open batch, and release the memory that it doesn't need."""
        lane = self._lanes[batch.partition.topic]
        lane.pop(batch.partition.partition, None)
        self._close(batch)

    def _close(self, batch: ProducerBatch) -> None:
        batch.builder.close()
        self._settle(batch)
        self._let_go(batch.partition)

    def _let_go(self, partition: TopicPartition) -> bool:
        """Make closed batches of a partition ready, up to the first one that isn't closed."""
        begun = self._begun.get(partition)
        went = False
        while begun and begun[0].builder.closed:
            batch = begun[0]
            batch.serial = self._serial
            self._serial += batch.builder.count  # leaves serials for the parts of a split batch
            self._ready.append(batch)  # even an empty batch, for which a caller may wait
            begun.popleft()
            went = True
        if not begun:
            self._begun.pop(partition, None)
        return went

    def _settle(self, batch: ProducerBatch, reserved: int | None = None) -> None:
        """Set the number of bytes reserved for a batch; None: the batch's current size."""
        if reserved is None:
            reserved = batch.builder.estimated_size - HEADER_SIZE
        self.used += reserved - batch.reserved
        batch.reserved = reserved

    # Claimed batches, which one caller fills with columns without the lock

    def reserve(self, most: int, owner: object = None) -> int:
        """Reserve up to `most` bytes for records of claimed batches.

        Returns the bytes that were granted to `owner`; else free bytes, if no caller waits.
        """
        with self.lock:
            self._open_books()
            granted = self.granted.pop(owner, 0)
            if not granted and not self.waiters:
                granted = max(0, min(most, self.limit - self.used))
                self.used += granted
            self._close_books(counted=False)
        return granted

    def claim(
        self,
        partition: TopicPartition,
        size: int,
        now: float,
        claims: dict[int, ProducerBatch] | None = None,
    ) -> ProducerBatch:
        """Take a partition's open batch, or create one, so that only the caller writes to it.

        The batch has space for a record of at most `size` bytes. The caller owns it until
        `yield_claims`, and only its content counts as reserved. It is added to `claims` first, so
        that an interrupted caller can return it.
        """
        with self.lock:
            self.check()
            self._open_books()
            batch = self.lane(partition.topic).pop(partition.partition, None)
            most = self._at_most(self.column_batch_size, partition.topic, now)
            if batch is None:
                batch = self._begin(partition, max(most, HEADER_SIZE + size), now)
            else:
                self._settle(batch)
                batch.limit(max(most, batch.builder.estimated_size))
            if claims is not None:
                claims[partition.partition] = batch
            self._claimed[batch] = None
            self._close_books(counted=False)
        return batch

    def make_claim_ready(self, batch: ProducerBatch) -> None:
        """Close a claimed batch for the sender; the owner's reserved bytes cover its content."""
        with self.lock:
            self._open_books()
            if batch in self._claimed:
                self._make_claim_ready(batch)
            self._close_books(counted=False)

    def _make_claim_ready(self, batch: ProducerBatch) -> None:
        batch.reserved = batch.builder.estimated_size - HEADER_SIZE
        self._close(batch)
        self._claimed.pop(batch, None)

    def yield_claims(
        self, batches: Iterable[ProducerBatch], left: int, now: float, *, hurry: bool
    ) -> bool:
        """Return claimed batches, and `left` reserved bytes that weren't used.

        They continue to linger unless their time is over, a flush waits (`hurry`), or another
        caller has begun a newer batch of the partition: then the older one must get no more rows.
        Returns whether to wake the I/O thread.
        """
        wake = False
        with self.lock:
            self._open_books()
            self.used -= left
            for batch in batches:
                if batch not in self._claimed:
                    wake = True  # an interrupted call has returned this batch before
                    continue
                lane = self.lane(batch.partition.topic)
                if not batch.builder.count:
                    self._claimed.pop(batch, None)
                    batch.builder.close()
                    wake = self._let_go(batch.partition) or wake
                elif (
                    hurry
                    or self.ended is not None
                    or now >= self._ready_at(batch)
                    or self._begun[batch.partition][-1] is not batch
                ):
                    self._make_claim_ready(batch)
                    wake = True
                else:
                    self._claimed.pop(batch, None)
                    size = batch.builder.estimated_size
                    batch.reserved = size - HEADER_SIZE
                    batch.limit(size)
                    lane[batch.partition.partition] = batch
                    if not batch.lingers or self._lingering[0] is batch:
                        wake = True
                    if not batch.lingers:
                        batch.lingers = True
                        self._lingering.append(batch)
            self._close_books()
        return wake or bool(self.waiters)

    # Calls of the sender

    @property
    def has_batches(self) -> bool:
        """Whether there are batches that the sender hasn't taken."""
        return bool(self._ready or self._lingering or self._torn)

    def take(self, now: float) -> list[ProducerBatch]:
        """Return the batches that should be sent now, in the order of rows in each partition."""
        if not (self._ready or self._lingering or self._torn):
            return []
        with self.lock:
            self._open_books()
            hurry = bool(self.waiters) and self._hurry
            while self._lingering:
                batch = self._lingering[0]
                ready_at = batch.lingers_from + self._linger
                if not batch.builder.closed and not hurry and now < ready_at:
                    break
                self._lingering.popleft()
                batch.lingers = False
                if not batch.builder.closed and batch not in self._claimed:
                    self._make_ready(batch)
            taken = list(self._ready)
            for batch in taken:
                batch.taken = True
            self._ready.clear()
            self._close_books()
        return taken

    @property
    def _hurry(self) -> bool:
        """Whether lingering batches should be sent, because callers wait for their memory.

        If most memory belongs to batches in flight, which free it soon, lingering ones can wait.
        """
        if self.starved:
            return True
        kept = sum(b.reserved for b in self._open_ones())
        return kept * HURRY_SHARE >= self.used

    def close_all(self) -> None:
        """Stop lingering for all batches (flush, close)."""
        with self.lock:
            self._open_books()
            self.flushes += 1
            for batch in self._open_ones():
                self._make_ready(batch)
            self._close_books()

    def _open_ones(self) -> list[ProducerBatch]:
        """Return the open batches that aren't claimed; iterates over batches, not over topics."""
        return [
            batch
            for begun in self._begun.values()
            for batch in begun
            if not batch.builder.closed and batch not in self._claimed
        ]

    def release(self, batch: ProducerBatch) -> None:
        """Free the memory of a batch that has ended."""
        with self.lock:
            if batch in self._claimed:  # the owner still writes, until `ended` stops it
                return
            self._open_books()
            self.used -= batch.reserved
            batch.reserved = 0
            self.released += 1
            self._live.pop(batch, None)
            batch.builder.release()
            self._close_books()

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Transfer the memory of a batch to its parts."""
        with self.lock:
            self._open_books()
            for part in parts:
                self._live[part] = None
                self._settle(part)
            self._close_books()
        self.release(batch)

    def next_ready_at(self) -> float:
        """Return when the oldest open batch has lingered long enough."""
        if self._ready:
            return -math.inf
        try:
            return self._lingering[0].lingers_from + self._linger
        except IndexError:
            return math.inf

    def _ready_at(self, batch: ProducerBatch) -> float:
        return batch.lingers_from + self._linger

    def shared(self) -> Lock | nullcontext[None]:
        """Return the lock for a read that a finalizer may do while the interpreter ends.

        At that time no other thread runs, and a stopped one may never release the lock.
        """
        return nullcontext() if sys.is_finalizing() else self.lock

    def live(self) -> list[ProducerBatch]:
        """Return all batches that hold memory."""
        with self.shared():
            return list(self._live)

    def untaken(self) -> list[ProducerBatch]:
        """Return the batches that the sender hasn't taken."""
        with self.lock:
            begun = [b for batches in self._begun.values() for b in batches]
            return [*self._ready, *begun]
