"""Store one partition's log: real record batches, committed or not, and producer states.

In: batches as producers sent them, from producers that may write. Out: bytes for fetches, offsets
for timestamps, rows for checkers. The log belongs to the cluster, not to a broker: replication
means that a batch is committed a moment after the append, unless its leader dies before.
Transactions are ended by markers, which are separate batches. Must not know connections or time.
"""

from __future__ import annotations

import bisect
import copy
import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek.common.errors import CorruptRecordError
from odradek.common.errors.kafka import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)
from odradek.record import BatchHeader, batch_size, decode, read_header
from odradek.record.batch import CRC_START, MAGIC, crc32c
from odradek.record.columns import Row
from odradek.record.reference import encode_marker
from odradek.simulation.logs.log_transactions import LogTransactions

KEPT_BATCHES = 5
"""Number of batches per producer that a broker remembers, to detect duplicates."""
MAX_SEQUENCE = 2**31 - 1
MAX_MESSAGE_BYTES = 1048588
"""Kafka's default for max.message.bytes."""
BATCH_OVERHEAD = 700
"""Bytes of memory that a stored batch needs in addition to its data."""

_LEADER_EPOCH_AT = 12


@dataclass(slots=True)
class StoredBatch:
    """One batch in the log."""

    header: BatchHeader
    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    marker: bool | None = None
    """For a transaction marker, whether it commits (False: aborts); None for other batches."""
    committed: bool = False
    waiters: list[Callable[[bool], None]] = field(default_factory=list)
    """Callbacks, called once: with True if the batch is committed, with False if it is lost or its
    leader is replaced."""

    def when_settled(self, waiter: Callable[[bool], None]) -> None:
        """Call `waiter` once: with True if the batch is committed, with False if it is lost."""
        if self.committed:
            waiter(True)
        else:
            self.waiters.append(waiter)

    def settle(self, committed: bool) -> None:
        """Call all waiting callbacks with `committed`."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter(committed)


@dataclass(slots=True)
class ProducerState:
    """State of one producer id in the log."""

    epoch: int
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))

    def duplicate_of(self, header: BatchHeader) -> StoredBatch | None:
        """Return the remembered batch with this epoch and these sequence numbers, or None."""
        if header.producer_epoch != self.epoch:
            return None
        for batch in self.batches:
            same = batch.header.base_sequence == header.base_sequence
            if same and batch.header.count == header.count:
                return batch
        return None


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence number that is `count` records later; 0 follows 2^31 - 1."""
    return (sequence + count) % (MAX_SEQUENCE + 1)


class RefusedRecordsError(InvalidRecordError):
    """A topic rejects records of a batch; `refused` has the reasons by record index (KIP-467)."""

    def __init__(self, refused: dict[int, str]) -> None:
        self.refused = refused
        super().__init__("One or more records have been rejected")


def check_keys(data: bytes) -> None:
    """Raise an error if a record for a compacted topic has no key."""
    rows = decode(memoryview(data), start_offset=0).columns.rows()
    keyless = {n: "a record without a key" for n, row in enumerate(rows) if row[3] is None}
    if keyless:
        raise RefusedRecordsError(keyless)


def check_batch(data: bytes, limit: int = MAX_MESSAGE_BYTES) -> BatchHeader:
    """Check one batch before the append, as a broker does, and return its header."""
    if len(data) > limit:
        raise MessageTooLargeError(f"{len(data)} bytes; max.message.bytes is {limit}")
    view = memoryview(data)
    try:
        size = batch_size(view, 0)
        if size is None or size > len(data):
            raise CorruptMessageError("the batch is cut off")
        if size != len(data):
            raise InvalidRecordError("Produce requests carry exactly one record batch")
        header = read_header(view)
    except CorruptRecordError as error:
        raise CorruptMessageError(str(error)) from error
    if header.magic < MAGIC:
        raise InvalidRecordError(f"Produce requests carry no messages of format {header.magic}")
    if crc32c(view[CRC_START:]) != header.crc:
        raise CorruptMessageError("the checksum is wrong")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise InvalidRecordError("the record count doesn't fit the offsets")
    return header


class PartitionLog:
    """An append-only list of batches with a high watermark."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self.compacted = False
        """Whether records without a key are rejected (cleanup.policy=compact)."""
        self.strict_producers = False
        """Whether an unknown producer gets the error UNKNOWN_PRODUCER_ID, as from old brokers."""
        self.producers: dict[int, ProducerState] = {}
        self.transactions = LogTransactions()
        self.lost: list[StoredBatch] = []
        """Batches that an unclean election or a deletion removed; checkers read them."""
        self.on_commit: dict[Callable[[], None], None] = {}
        """Callbacks (the keys) of waiting fetches, called when the high watermark moves."""
        self.kept_bytes = 0
        """Approximate number of bytes of memory that the batches need."""
        self.base_offsets: list[int] = []

    def copied(self) -> PartitionLog:
        """Return an independent log with the same batches."""
        made = copy.copy(self)
        made.batches, made.base_offsets = list(self.batches), list(self.base_offsets)
        made.producers = {
            i: ProducerState(state.epoch, state.batches.copy())
            for i, state in self.producers.items()
        }
        made.transactions = copy.deepcopy(self.transactions)
        made.lost, made.on_commit = [], {}
        return made

    # Appending and removing

    def find_duplicate(self, header: BatchHeader) -> StoredBatch | None:
        """Check a batch against its producer's state; return the stored duplicate or None."""
        if header.producer_id < 0:
            return None
        state = self.producers.get(header.producer_id)
        if state is None:
            # Kafka accepts any sequence number of an unknown producer (KIP-360).
            if self.strict_producers and header.base_sequence != 0:
                raise UnknownProducerIdError(f"producer {header.producer_id} isn't known")
            return None
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpochError(f"epoch {header.producer_epoch} after {state.epoch}")
        duplicate = state.duplicate_of(header)
        if duplicate is not None:
            return duplicate
        if header.producer_id in self.transactions.open and not header.transactional:
            raise InvalidTxnStateError(f"producer {header.producer_id} is in a transaction")
        expected = 0
        if header.producer_epoch == state.epoch and state.batches:
            last = state.batches[-1].header
            expected = next_sequence(last.base_sequence, last.count)
        if header.base_sequence != expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {header.producer_id}: sequence {header.base_sequence}, "
                f"expected {expected}"
            )
        return None

    def append_marker(
        self, producer_id: int, producer_epoch: int, leader_epoch: int, now_ms: int, *, commit: bool
    ) -> StoredBatch:
        """Append a transaction's marker, which also fences earlier epochs of the producer."""
        state = self.producers.get(producer_id)
        if state is not None and producer_epoch < state.epoch:
            raise InvalidProducerEpochError(f"epoch {producer_epoch} after {state.epoch}")
        data = encode_marker(
            self.end_offset,
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
        )
        return self.append(data, read_header(memoryview(data)), leader_epoch, marker=commit)

    def append(
        self, data: bytes, header: BatchHeader, leader_epoch: int, *, marker: bool | None = None
    ) -> StoredBatch:
        """Assign a batch's offset and leader epoch, and append it without committing it."""
        stored = bytearray(data)
        struct.pack_into(">q", stored, 0, self.end_offset)  # not covered by the checksum
        struct.pack_into(">i", stored, _LEADER_EPOCH_AT, leader_epoch)
        last = self.end_offset + header.last_offset_delta
        batch = StoredBatch(header, bytes(stored), self.end_offset, last, leader_epoch, marker)
        self.batches.append(batch)
        self.kept_bytes += len(stored) + BATCH_OVERHEAD
        self.base_offsets.append(batch.base_offset)
        self.end_offset = last + 1
        self._remember(batch)
        return batch

    def _remember(self, batch: StoredBatch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        state = self.producers.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
        self.transactions.appended(header, batch.base_offset, batch.marker)
        if batch.marker is None:
            state.batches.append(batch)

    def commit(self, batch: StoredBatch) -> None:
        """Commit this batch and all earlier ones, because all replicas have them."""
        if batch.committed or batch.last_offset >= self.end_offset:
            return
        settled = [b for b in self.uncommitted() if b.base_offset <= batch.base_offset]
        for found in settled:
            found.committed = True
        self.high_watermark = batch.last_offset + 1
        for found in settled:
            found.settle(True)
        for action in list(self.on_commit):
            action()

    def uncommitted(self) -> list[StoredBatch]:
        """Return the last batches, which may be lost together with the leader."""
        found: list[StoredBatch] = []
        for batch in reversed(self.batches):
            if batch.committed:
                break
            found.append(batch)
        return found[::-1]

    def leader_lost(self, keep: int) -> None:
        """Replace the leader: only the first `keep` of the uncommitted batches survive.

        All waiting callbacks get False, because the old leader can't respond.
        """
        pending = self.uncommitted()
        for batch in pending:
            batch.settle(False)
        kept, lost = pending[:keep], pending[keep:]
        if lost:
            del self.batches[-len(lost) :]
            del self.base_offsets[-len(lost) :]
            self.end_offset = lost[0].base_offset
            self._rebuild_producers()
        if kept:
            self.commit(kept[-1])

    def limit_batches(self, size: int = MAX_MESSAGE_BYTES) -> None:
        """Reject batches of more than `size` bytes from now on."""
        self.max_message_bytes = size

    def truncate(self, to: int) -> None:
        """Delete every batch with this offset or a later one, replicated or not."""
        kept = [b for b in self.batches if b.last_offset < to]
        self.lost += self.batches[len(kept) :]
        for batch in self.batches[len(kept) :]:
            batch.settle(False)
        self.batches[:] = kept
        self.base_offsets = [b.base_offset for b in kept]
        self.end_offset = kept[-1].last_offset + 1 if kept else min(to, self.start_offset)
        # As with Kafka's truncateTo, the log must not start after its end: nothing could be read.
        self.start_offset = min(self.start_offset, self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self._rebuild_producers()

    def started_anew(self) -> None:
        """Restart the leader, whose snapshot contains only the last batch of each producer.

        Measured on Kafka 4.3: a duplicate of the batch before the last gets OUT_OF_ORDER_SEQUENCE.
        """
        for state in self.producers.values():
            while len(state.batches) > 1:
                state.batches.popleft()

    def drop_before(self, offset: int) -> None:
        """Delete batches before this offset (retention).

        A producer without remaining batches is forgotten, too, unless its transaction is open.
        """
        gone = bisect.bisect_left(self.base_offsets, min(offset, self.high_watermark))
        for batch in self.batches[:gone]:
            self.kept_bytes -= len(batch.data) + BATCH_OVERHEAD
        del self.batches[:gone], self.base_offsets[:gone]
        self.start_offset = self.base_offsets[0] if self.batches else self.end_offset
        for number, state in list(self.producers.items()):
            while state.batches and state.batches[0].base_offset < self.start_offset:
                state.batches.popleft()
            if not state.batches and number not in self.transactions.open:
                del self.producers[number]
        ended = self.transactions.ended
        ended[:] = [one for one in ended if one.marker_offset >= self.start_offset]

    def delete_before(self, offset: int) -> None:
        """Make records before this offset unreadable, as DeleteRecords does."""
        self.start_offset = max(self.start_offset, min(offset, self.high_watermark))

    def _rebuild_producers(self) -> None:
        self.producers.clear()
        self.transactions.clear()
        self.kept_bytes = sum(len(batch.data) + BATCH_OVERHEAD for batch in self.batches)
        for batch in self.batches:
            self._remember(batch)

    # Reading

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which `read_committed` consumers can read."""
        return self.transactions.last_stable_offset(self.high_watermark)

    def read(
        self, offset: int, max_bytes: int, *, whole_first: bool, until: int | None = None
    ) -> bytes:
        """Return committed bytes from the batch that contains `offset`, limited to `max_bytes`.

        If the first batch is larger, it is returned whole with `whole_first`, and otherwise nothing
        is returned. A later batch may be cut off. `until` is the end of a follower's log.
        """
        end = self.high_watermark if until is None else min(until, self.high_watermark)
        at = max(0, bisect.bisect_right(self.base_offsets, offset) - 1)
        parts: list[bytes] = []
        size = 0
        for batch in self.batches[at:]:
            if batch.last_offset >= end:
                break
            if batch.last_offset < offset:
                continue
            room = max_bytes - size
            if not parts and len(batch.data) > room:
                return batch.data if whole_first else b""
            parts.append(batch.data if len(batch.data) <= room else batch.data[:room])
            size += len(parts[-1])
            if size >= max_bytes:
                break
        return b"".join(parts)

    def available(self, offset: int) -> int:
        """Return the number of committed bytes at and after an offset."""
        at = max(0, bisect.bisect_right(self.base_offsets, offset) - 1)
        return sum(
            len(b.data)
            for b in self.batches[at:]
            if b.last_offset >= offset and b.base_offset < self.high_watermark
        )

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """Return offset, timestamp and leader epoch of the first record at or after a timestamp."""
        for batch in self.batches:
            if not batch.committed or batch.header.max_timestamp < timestamp_ms:
                continue
            for offset, time, *_ in self._rows(batch):
                if time >= timestamp_ms and offset >= self.start_offset:
                    return offset, time, batch.leader_epoch
        return None

    def latest_timestamp(self) -> tuple[int, int, int] | None:
        """Return offset, timestamp and leader epoch of the record with the greatest timestamp."""
        found: tuple[int, int, int] | None = None
        for batch in self.batches:
            if batch.committed and (found is None or batch.header.max_timestamp > found[1]):
                for offset, time, *_ in self._rows(batch):
                    if found is None or time > found[1]:
                        found = (offset, time, batch.leader_epoch)
        return found

    def leader_epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written; -1 if there is no such offset."""
        at = bisect.bisect_right(self.base_offsets, offset) - 1
        return self.batches[at].leader_epoch if at >= 0 else -1

    def ends_before(self, epoch: int, position: int) -> bool:
        """Return whether a leader epoch's records end before a position.

        A client that validates the position with this epoch (KIP-320) considers the records there
        lost.
        """
        at = bisect.bisect_left(self.base_offsets, position) - 1
        return at >= 0 and 0 <= epoch < self.batches[at].leader_epoch

    def begins_after(self, epoch: int, position: int) -> bool:
        """Return whether a leader epoch's records begin after the record at or after the position.

        A consumer that starts at the position with this epoch waits for newer metadata than it
        needs (R-ID-4).
        """
        at = max(0, bisect.bisect_right(self.base_offsets, position) - 1)
        following = [b for b in self.batches[at : at + 2] if b.last_offset >= position]
        return bool(following) and epoch > following[0].leader_epoch

    def after_markers(self, offset: int) -> int:
        """Return the offset after the transaction markers that begin at this offset."""
        for batch in self.batches[bisect.bisect_left(self.base_offsets, offset) :]:
            if batch.marker is None or batch.base_offset != offset:
                break
            offset = batch.last_offset + 1
        return offset

    def rows(self) -> list[Row]:
        """Return the records of all committed batches, including open and aborted transactions."""
        return [row for batch in self.batches if batch.committed for row in self._rows(batch)]

    def values(self, batches: Iterable[StoredBatch]) -> set[bytes]:
        """Return the values of the records in these batches."""
        return {row[4] for batch in batches for row in self._rows(batch) if row[4] is not None}

    def visible_rows(self) -> list[Row]:
        """Return the records that a `read_committed` consumer can read now."""
        end = self.last_stable_offset
        return self._committed_rows(end, self.transactions.aborted(0, end))

    def decided_rows(self) -> list[Row]:
        """Return records that `read_committed` consumers see once open transactions are aborted.

        The transaction of a producer with a fatal error remains open until its timeout.
        """
        end = self.high_watermark
        never_ended = self.transactions.open.items()
        return self._committed_rows(end, [*self.transactions.aborted(0, end), *never_ended])

    def _committed_rows(self, end: int, aborted: list[tuple[int, int]]) -> list[Row]:
        data = b"".join(b.data for b in self.batches if b.last_offset < end)
        return (
            list(decode(memoryview(data), start_offset=0, aborted=aborted).columns.rows())
            if data
            else []
        )

    def hidden(self, *, read_committed: bool) -> set[int]:
        """Return the offsets that no consumer returns: of markers and aborted records."""
        if not self.transactions.ended:
            return set()
        end = self.last_stable_offset if read_committed else self.high_watermark
        rows = self.visible_rows() if read_committed else self.rows()
        return set(range(self.start_offset, end)).difference(row[0] for row in rows)

    @staticmethod
    def _rows(batch: StoredBatch) -> list[Row]:
        return list(decode(memoryview(batch.data), start_offset=batch.base_offset).columns.rows())
