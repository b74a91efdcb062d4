"""Write one chunk of the columns of `send_arrow` or `send_many` into open batches.

In: columns, a topic's metadata. Out: full batches for the sender, unfilled ones back in the
accumulator; each batch is reported with its rows. While a `ColumnWriter` writes to a batch, it has
claimed it: no other thread touches the batch, so no lock is held while the encoder works. Must not:
wait. If `buffer.memory` is full, the number of missing bytes is returned.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.partition_rules import place_rows
from odradek.clients.producer.partitioner import Partitioner
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.row_errors import BatchRows, RowWindow
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Topic
from odradek.record import BatchBuilder, ColumnEncoder, SentColumns, StopReason

QUOTA = 1 << 20
"""Bytes of `buffer.memory` that are reserved at a time."""

Noted = Callable[[ProducerBatch, int, int, BatchRows], None]
"""Called with a batch, the index of the rows' first record in it, their number, and the rows."""


class ColumnWriter:
    """Writes the rows of one `SentColumns`, in their order."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        partitioner: Partitioner,
        max_record: int,
        columns: SentColumns,
        topic: Topic,
        noted: Noted,
        wake: Callable[[], None],
    ) -> None:
        """Check all rows: if one is invalid, nothing is written.

        Raises `InvalidRowError`, `RecordTooLargeError` and, if a user's function is the
        partitioner, `PartitionerError`.
        """
        count, ignore_keys = len(topic.partitions), partitioner.ignores_keys
        self._encoder = ColumnEncoder(columns, count, max_record, ignore_keys=ignore_keys)
        if partitioner.rule is not None:
            # A second encoder: the first one has checked all rows before the partitioner is called.
            placed = place_rows(columns, partitioner.rule, topic.name, count)
            self._encoder = ColumnEncoder(placed, count, max_record, ignore_keys=ignore_keys)
        self._topic = topic
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._noted = noted
        self._wake = wake
        self._claims: dict[int, ProducerBatch] = {}
        self._claimed_at: dict[int, int] = {}
        """First row that may be in each claimed batch, by partition."""
        self._first_row = columns.first_row
        self._windows: list[RowWindow] = []
        """Ranges of rows with their partitions, from the first row in a claimed batch on."""
        self._closed = BatchBuilder(0, None)
        """Closed builder that the encoder gets instead of a batch that isn't claimed any more."""
        self._closed.close()
        self._room = 0
        self._flushes = 0
        self.row = 0
        """Index of the first row that isn't in a batch yet."""
        self.count = columns.count

    def advance(self, now: float, timestamp_ms: int) -> int:
        """Write until all rows are in batches, or memory is full; return the missing bytes.

        Returns 0 when all rows are in batches. `timestamp_ms` is for rows without a timestamp.
        """
        self._flushes = self._accumulator.flushes
        try:
            return self._advance(now, timestamp_ms)
        finally:
            self._give_back(now)

    def give_up(self, now: float) -> None:
        """Return remaining batches and memory after an exception ended `advance`."""
        self._accumulator.doubt()
        self._give_back(now)
        self._wake()

    def _advance(self, now: float, timestamp_ms: int) -> int:
        encoder, accumulator = self._encoder, self._accumulator
        sticky, sticky_room = -1, 0
        window, places = self._window()
        while self.row < self.count:
            done = self.row + self._first_row - window.first
            if done == len(places):
                window, places = self._window()
                done = 0
            found = encoder.encode(
                self.row,
                self.row + len(places) - done,
                timestamp_ms=timestamp_ms,
                room=self._room,
                sticky=sticky,
                sticky_room=sticky_room,
                places=places[done:],
            )
            self.row = found.row
            self._room -= found.added_bytes
            if found.sticky_bytes:
                self._partitioner.took(self._topic, found.sticky_bytes)
                sticky_room -= found.sticky_bytes
            match found.reason:
                case StopReason.FULL:
                    self._finish(found.partition)
                case StopReason.BATCH:
                    self._claim(found.partition, found.size, now)
                case StopReason.ROOM:
                    more = max(found.size - self._room, min(QUOTA, accumulator.limit // 8))
                    self._room += accumulator.reserve(more, self)
                    if self._room < found.size:
                        return found.size
                case StopReason.STICKY:
                    sticky, sticky_room = self._partitioner.sticky(
                        self._topic, accumulator.column_batch_size
                    )
            # A flush has begun: return the batches before the last row is written.
            if accumulator.flushes != self._flushes:
                self._give_back(now)
        return 0

    def _window(self) -> tuple[RowWindow, memoryview[int]]:
        """Return the next row's window (see `row_errors`); free windows without claimed batches."""
        at = self._first_row + self.row
        oldest = min(self._claimed_at.values(), default=at)
        self._windows = [window for window in self._windows if window.stop > oldest]
        if not self._windows or self._windows[-1].stop <= at:
            self._windows.append(RowWindow(at, self.count - self.row))
        return self._windows[-1], self._windows[-1].places

    def _claim(self, partition: int, size: int, now: float) -> None:
        """Claim a batch for the row at which the encoder stopped; the previous one is full."""
        if partition in self._claims:
            self._finish(partition)
        target = TopicPartition(self._topic.name, partition)
        self._claimed_at[partition] = self._first_row + self.row
        batch = self._accumulator.claim(target, size, now, self._claims)
        self._encoder.use(partition, batch.builder)

    def _finish(self, partition: int) -> None:
        """Pass a full claimed batch to the sender."""
        batch = self._claims[partition]
        self._leave(partition, batch)
        self._accumulator.make_claim_ready(batch)
        del self._claims[partition]
        self._wake()

    def _leave(self, partition: int, batch: ProducerBatch) -> None:
        """Stop writing into a batch, and report its rows."""
        piece = self._encoder.use(partition, self._closed)
        start, stop = self._claimed_at.pop(partition, None), self._first_row + self.row
        if piece is not None and start is not None:
            reached = tuple(w for w in self._windows if w.stop > start and w.first < stop)
            rows = BatchRows(partition, start, stop, reached)
            self._noted(batch, piece.first, piece.count, rows)

    def _give_back(self, now: float) -> None:
        """Return all batches that aren't full, and unused memory."""
        for partition, batch in list(self._claims.items()):
            self._leave(partition, batch)
        hurry = self._accumulator.flushes != self._flushes
        self._flushes = self._accumulator.flushes
        left, self._room = self._room, 0
        claims = list(self._claims.values())
        wake = self._accumulator.yield_claims(claims, left, now, hurry=hurry)
        self._claims.clear()
        if wake:
            self._wake()
