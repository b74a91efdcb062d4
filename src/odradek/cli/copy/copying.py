"""The loop of a copy: Arrow batches from a consumer to a writer, step by step.

In: a consumer, a writer, start and end offsets. Out: `CopyBooks`, which other threads may read
meanwhile. Must not: open or close anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.api.consumer import Consumer
from odradek.cli.copy.planning import CopiedTopics, CopyPlan
from odradek.cli.copy.writers import CopyWriter
from odradek.clients.consumer.group.group_commits import RENEW_AFTER
from odradek.common.errors import (
    AbortableTransactionError,
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
)

if TYPE_CHECKING:
    import pyarrow as pa

STEP = 1.0
"""Duration of one step (transaction) in seconds, by which read_committed readers lag."""
TURN = 0.25
"""Timeout of a poll in seconds, by which a step may end late."""
FAILURES = 5
"""The copy ends after this many failed steps in a row, each retried for delivery.timeout.ms."""
COLUMNS = ("key", "value", "headers", "partition", "timestamp")


@dataclass(slots=True)
class CopyBooks:
    """Progress of a copy. Records and bytes count completed steps only."""

    positions: dict[int, int]
    """Next source offset to copy, by partition."""
    records: int = 0
    bytes: int = 0
    steps: int = 0
    given_up: int = 0
    """Number of steps that were aborted and repeated."""
    lag: int | None = None
    open_records: int = field(default=0, repr=False)
    open_bytes: int = field(default=0, repr=False)


class Copying:
    """Copies partitions of one topic."""

    def __init__(
        self,
        consumer: Consumer,
        writer: CopyWriter,
        plan: CopyPlan,
        books: CopyBooks,
        clock: Callable[[], float],
        watch: CopiedTopics | None = None,
    ) -> None:
        """Take `watch`, which checks the topics before a step's commit and after a failed step."""
        self._consumer, self._writer, self._plan = consumer, writer, plan
        self._watch = watch
        self.books = books
        self._clock = clock
        self._failed = 0
        self._renew_at = 0.0
        """Time at which unchanged positions are committed again, so that they don't expire."""

    def run(self, ends: dict[int, int] | None) -> None:
        """Copy to the ends, or without end; records of an unfinished step aren't counted.

        At least one step is committed, even without new records.
        """
        self._seek(ends)
        while ends is None or not self._renew_at or self._is_behind(ends):
            try:
                self._step(ends)
                self._failed = 0
            except AbortableTransactionError:
                self._failed += 1
                if self._failed == FAILURES:
                    raise
                self._make_sure()
                self._writer.abort()
                self.books.given_up += 1
                self._seek(ends)
            except KafkaError:
                self._make_sure()
                raise

    def _is_behind(self, ends: dict[int, int]) -> bool:
        return any(self.books.positions[p] < end for p, end in ends.items())

    def _make_sure(self) -> None:
        """After an error, raise `ConfigurationError` instead if a topic was deleted or recreated.

        That may cause various errors, for example missing offsets or a timeout.
        """
        if self._watch is not None:
            self._watch.make_sure()

    def _seek(self, ends: dict[int, int] | None) -> None:
        """Seek to the first source offsets that aren't copied yet."""
        self.books.open_records = self.books.open_bytes = 0
        starts = {
            self._plan.source_of(partition): offset
            for partition, offset in self.books.positions.items()
            if ends is None or offset < ends[partition]
        }
        until = None if ends is None else {tp: ends[tp.partition] for tp in starts}
        self._consumer.assign(starts, until=until)
        for tp, offset in starts.items():
            self._consumer.seek(tp, offset)

    def _step(self, ends: dict[int, int] | None) -> None:
        """Copy for `STEP` seconds, and commit."""
        deadline = self._clock() + STEP
        while self._clock() < deadline and not self._read(ends):
            batch = self._consumer.poll_arrow(TURN, columns=COLUMNS)
            if batch is not None and batch.num_rows:
                self._writer.write(batch)
                self.books.open_records += batch.num_rows
                self.books.open_bytes += _size(batch)
        if self._watch is not None:
            self._watch.look()
        self._commit()
        if ends is None:
            self._no_more_partitions()

    def _no_more_partitions(self) -> None:
        """Raise an error for added partitions, which this run wouldn't copy."""
        try:
            found = len(self._consumer.partitions_for(self._plan.source, TURN))
        except KafkaTimeoutError:  # the clients report an outage themselves
            return
        if found > self._plan.partitions:
            raise ConfigurationError(
                f"{self._plan.source} now has {found} partitions, not {self._plan.partitions}; "
                "run the same command again to copy these, too"
            )

    def _commit(self) -> None:
        books, found = self.books, self._found()
        moved = found != books.positions
        if moved or self._clock() >= self._renew_at:
            self._writer.commit(found)
            self._renew_at = self._clock() + RENEW_AFTER
            books.positions = found
            books.records += books.open_records
            books.bytes += books.open_bytes
            books.steps += moved
            books.open_records = books.open_bytes = 0
        lags = [lag for lag in self._consumer.lag().values() if lag is not None]
        books.lag = sum(lags) if lags else None

    def _found(self) -> dict[int, int]:
        """Return the current positions, which also advance over transaction markers."""
        found = dict(self.books.positions)
        for tp in self._consumer.assignment():
            found[tp.partition] = max(found[tp.partition], self._consumer.position(tp))
        return found

    def _read(self, ends: dict[int, int] | None) -> bool:
        if ends is None:
            return False
        found = self._found()
        return all(found[partition] >= end for partition, end in ends.items())


def _size(batch: pa.RecordBatch) -> int:
    """Return the size in bytes of keys and values."""
    return int(batch.column("key").nbytes + batch.column("value").nbytes)
