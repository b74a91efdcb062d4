"""Track the results of one `send_arrow` or `send_many`, by a few numbers per partition.

In: the batches of rows, from the caller's thread; the batches' outcomes, from the engine's. Out:
one completion once everything has its outcome, and the offsets. Must not: keep batches, whose
records are freed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from odradek.clients.producer.batch import FailedRecords, ProducerBatch
from odradek.clients.producer.row_errors import BatchRows, RowErrors
from odradek.common.extras import require_extra
from odradek.common.types import Lock, TopicPartition
from odradek.network.flow import Completion

if TYPE_CHECKING:
    import pyarrow as pa

    ErrorColumn: TypeAlias = pa.Array[Any]


class OffsetRange(NamedTuple):
    """Offsets of one `send_arrow()` or `send_many()` in one partition: the first and the last one.

    The last offset is inclusive. Both are -1 if a retry was needed and the broker no longer knew
    the offsets of the first attempt.
    """

    partition: TopicPartition
    first_offset: int
    last_offset: int
    records: int


class RowsDelivery:
    """The result of one call: counts of rows, and of batches with and without an outcome."""

    def __init__(
        self, lock: Lock, unnoticed: Callable[[int, BaseException], FailedRecords | None]
    ) -> None:
        """Set `unnoticed`, which returns an object that notes whether an error is read."""
        self._lock, self._watch_failed = lock, unnoticed
        self._unnoticed: FailedRecords | None = None
        self._complete = False
        self._added = self._settled = 0
        self._ranges: dict[TopicPartition, list[OffsetRange]] = {}
        self.done: Completion[None] = Completion()
        self.error: BaseException | None = None
        """The first error of a batch."""
        self.rows = 0
        self.failed = 0
        """Number of rows in failed batches."""
        self.row_errors = RowErrors()

    def add(self, batch: ProducerBatch, first: int, count: int, rows: BatchRows) -> None:
        """Note `count` rows in a batch, from index `first` on; `rows` identifies them."""
        self.rows += count
        self._added += 1  # only the sending thread calls this
        self._watch(batch, first, count, rows)

    def finish(self) -> None:
        """Note that no more rows follow."""
        with self._lock:
            self._complete = True
        self._look()

    def ranges(self) -> list[OffsetRange]:
        """Return the offsets by partition, in order."""
        return [found for place in sorted(self._ranges) for found in self._ranges[place]]

    def _ended(self, batch: ProducerBatch, first: int, count: int, rows: BatchRows) -> None:
        if batch.parts is not None:
            self._follow(batch, first, count, rows)
            return
        with self._lock:
            self._settled += 1
            error = batch.done.error
            if error is not None:
                self.error = self.error or error
                self.failed += count
                self.row_errors.add(rows, error)
            else:
                self._acknowledged(batch, first, count)
        self._look()

    def _follow(self, batch: ProducerBatch, first: int, count: int, rows: BatchRows) -> None:
        """Wait for the parts of a split batch that contain rows of this call."""
        last, found = first + count, []
        for part in batch.parts or ():
            start, stop = max(first, part.first), min(last, part.first + part.records)
            if start < stop:
                which = rows.part(start - first, stop - start)
                found.append((part.batch, part.at + start - part.first, stop - start, which))
        with self._lock:
            self._settled -= len(found) - 1
        for what in found:
            self._watch(*what)

    def _watch(self, batch: ProducerBatch, first: int, count: int, rows: BatchRows) -> None:
        batch.done.when_done(lambda _: self._ended(batch, first, count, rows))

    def _acknowledged(self, batch: ProducerBatch, first: int, count: int) -> None:
        """Note the offsets of acknowledged rows; adjacent ones form a single range."""
        base = batch.done.result().base_offset
        begin, end = (base + first, base + first + count - 1) if base >= 0 else (-1, -1)
        ranges = self._ranges.setdefault(batch.partition, [])
        if ranges:
            last = ranges[-1]
            if begin == last.last_offset + 1 if begin >= 0 else last.last_offset < 0:
                begin, count = last.first_offset, last.records + count
                ranges.pop()
        ranges.append(OffsetRange(batch.partition, begin, end, count))

    def _look(self) -> None:
        """Complete the delivery if all outcomes are known; exactly one thread does so."""
        with self._lock:
            ended = self._complete and self._settled == self._added
            if ended:
                self._complete = False
        if ended:
            if self.error is not None and not self.done.followed:
                self._unnoticed = self._watch_failed(self.failed, self.error)
            self.done.complete(None)

    def outcome(self) -> BaseException | None:
        """Return the first error to the program, and note that the program has read it."""
        if self._unnoticed is not None:
            self._unnoticed.noticed()
        return self.error

    def errors(self) -> list[BaseException | None]:
        """Return the error of each row, in order; None for a written row."""
        known = (*self.row_errors.errors, None)  # number -1 selects None
        return [known[number] for number in self.row_errors.numbers(self.rows)]

    def error_column(self) -> ErrorColumn:
        """Return the error of each row, in order; null for a written row."""
        require_extra("pyarrow")
        from odradek.record.arrow_send import error_column

        return error_column(self.row_errors.numbers(self.rows), list(self.row_errors.texts))
