"""Decode and return records in the thread that calls `poll()`.

In: the fetcher's responses, in the order of their arrival. Out: records, or one partition's record
batch, and the positions after them. A second thread may step the engine meanwhile: shared state is
changed under the engine's lock; decoding, which takes most of the time, is done without it. Must
not: wait, or move a position before its rows were returned (R-GR-1).

A deserializer runs before the position moves, on decoded rows that weren't returned yet. If it
fails, the rows before are returned, and the next call begins with the failed record. Records that
are put back after their response was released have to be fetched again, which this order avoids.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.consumer.completed_fetch import CompletedFetch
from odradek.clients.consumer.fetching.waiting_records import WaitingRecords
from odradek.clients.consumer.records import ConsumerRecord, UnreadRecord
from odradek.clients.consumer.subscription_state import Selection, SubscriptionState
from odradek.common.config import Config
from odradek.common.errors import CorruptRecordError, KafkaError, first_use
from odradek.common.errors.records import RecordLimitError
from odradek.common.events import Event
from odradek.common.extras import require_extra
from odradek.common.types import Lock
from odradek.network.engine import Engine
from odradek.record import RecordColumns, build_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.clients.consumer.group.consumer_group import ConsumerGroup
    from odradek.clients.traces import Runs
    from odradek.record.arrow import ArrowColumns
    from odradek.record.columns import Layout

logger = logging.getLogger("odradek.consumer")

R = TypeVar("R")

Convert = Callable[[list[ConsumerRecord]], list[ConsumerRecord[Any, Any]]]
"""Converts records up to the first one that fails; raises its error if no record precedes it."""
ARROW_ROWS = 131072
"""Number of rows after which an Arrow batch ends, at the end of the next Kafka record batch."""
RECORD_ROWS = 8192
"""Number of rows after which decoding for record objects stops: the caller may want no more."""
ITERATED_ROWS = 1024
"""Number of record objects that an iteration creates at a time."""


class Delivery:
    """The caller's side of one consumer engine; one thread at a time calls it."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        subscription: SubscriptionState,
        waiting: WaitingRecords,
        group: ConsumerGroup | None,
        lock: Lock,
    ) -> None:
        self._engine = engine
        self._subscription = subscription
        self._waiting = waiting
        self._group = group
        self._lock = lock
        self._skips: bool = config["on.corrupt.record"] == "skip"
        self._disturbed_at = -math.inf
        self._undelivered = True
        self._convert: Convert | None = None
        self._left_raw: Callable[[], bool] = bool
        self._noted: Runs | None = None
        engine.events.listen(self._note_disturbance)

    def convert_with(self, convert: Convert | None) -> None:
        """Convert records with this function before their position moves past them."""
        self._convert = convert

    def leave_raw(self, meanwhile: Callable[[], bool]) -> Convert | None:
        """Leave records as bytes while `meanwhile` returns true; return the converting function.

        `meanwhile` is a function, because an exception could prevent the reset of a flag.
        """
        self._left_raw = meanwhile
        return self._convert

    @property
    def _converter(self) -> Convert | None:
        return None if self._left_raw() else self._convert

    def take_over(self, old: Delivery) -> None:
        """Use the converting function of the previous engine's delivery."""
        self._convert, self._left_raw = old._convert, old._left_raw

    def note_into(self, runs: Runs | None) -> None:
        """Add returned records to `runs` from now on, for a trace; None: stop."""
        self._noted = runs

    def ready(self, of: Selection = None) -> bool:
        """Return whether data is buffered for a caller that reads these partitions."""
        group = self._group
        if group is not None and group.calls:
            return False  # callbacks run before records are returned
        with self._lock:
            return self._subscription.failed(of) is not None or (self._waiting.head(of) is not None)

    def records(self, most: int, now: float) -> list[ConsumerRecord[Any, Any]]:
        """Decode and return at most `most` records."""
        runs = self.runs(most, now)
        return runs[0] if len(runs) == 1 else list(chain.from_iterable(runs))

    def runs(
        self, most: int, now: float, of: Selection = None
    ) -> list[list[ConsumerRecord[Any, Any]]]:
        """Return the next records as non-empty lists of consecutive records of one partition.

        Partitions that aren't in `of` are left out.
        """
        runs: list[list[ConsumerRecord[Any, Any]]] = []
        left = most
        entry = self._head(of)
        while entry is not None and left > 0:
            rows = None
            try:
                with self._lock:
                    self._subscription.hand_over.note(entry)
                ahead = max(left, RECORD_ROWS)
                columns = entry.peek(left, ahead=ahead, headers="raw")
                convert = None if self._convert is None else self._converter
                if convert is not None and columns.count:
                    rows = convert(_rows(entry, columns))
                    columns = entry.peek(len(rows), ahead=ahead, headers="raw")
                columns = entry.move(columns)
            except CorruptRecordError as error:
                if runs:
                    break  # return earlier records first; the next call handles this error
                self._leave_out(entry, error, now)
            except KafkaError:
                if runs:
                    break  # the next call raises the error of the record that can't be converted
                raise
            else:
                if self._note_taken(entry, columns, now):
                    runs.append(_rows(entry, columns) if rows is None else rows)
                    left -= columns.count
                elif not runs:
                    self.handed_over()  # only markers or aborted transactions: nothing to return
            entry = self._next(of)
        return runs

    def iterated(
        self, now: float, made: Callable[[list[ConsumerRecord]], list[R]]
    ) -> Iterator[R] | None:
        """Return an iterator over the next records; each record moves the position.

        `made` converts the records. The iterator ends early if anything else moves the position.
        """
        entry = self._head()
        while entry is not None:
            try:
                with self._lock:
                    self._subscription.hand_over.note(entry)
                columns = entry.peek(ITERATED_ROWS, ahead=RECORD_ROWS, headers="raw")
            except CorruptRecordError as error:
                self._leave_out(entry, error, now)
            else:
                if self._note_taken(entry, columns, now):
                    rows = _rows(entry, columns)
                    if (convert := self._converter) is not None:
                        rows = convert(rows)
                    return entry.walk(made(rows))
                entry.move(columns)  # move the position past markers and aborted transactions
                self.handed_over()
            entry = self._next()
        return None

    @staticmethod
    def arrow_columns(
        names: Sequence[str] | None, include_headers: bool, layout: Layout
    ) -> ArrowColumns:
        """Check the names of columns, and return the columns.

        The first call imports pyarrow, which takes a while: call it before a timeout begins.
        """
        require_extra("pyarrow")
        with first_use():
            from odradek.record.arrow import arrow_columns

        return arrow_columns(include_headers, names, layout)

    def arrow(self, wanted: ArrowColumns, enough: int, now: float) -> pa.RecordBatch | None:
        """Decode and return one partition's records as a record batch of these columns.

        It has about `enough` rows if there are as many, and ends with a record batch of the log.
        """
        from odradek.record.arrow import to_record_batch

        types, layout = wanted.types, wanted.layout
        key, value, headers = "key" in types, "value" in types, "headers" in types
        entry = self._head()
        while entry is not None:
            try:
                with self._lock:
                    self._subscription.hand_over.note(entry)
                rows = entry.peek(
                    ARROW_ROWS, enough=enough, key=key, value=value, headers=headers, layout=layout
                )
                columns = entry.move(rows)
            except CorruptRecordError as error:
                self._leave_out(entry, error, now)
            else:
                if self._note_taken(entry, columns, now):
                    topic, partition = entry.state.partition
                    return to_record_batch(columns, topic, partition, wanted=wanted)
                self.handed_over()
            entry = self._next()
        return None

    def _head(self, of: Selection = None) -> CompletedFetch | None:
        """Return the next buffered data; errors that wait for the caller are raised first."""
        with self._lock:
            if self._engine.ended is not None:
                raise self._engine.ended.with_traceback(None)
            self._subscription.raise_pending(of)
            group = self._group
            # A pending callback may revoke the partition, so no record is returned before it.
            return None if group is not None and group.calls else self._waiting.head(of)

    def take_back(self) -> None:
        """Put records back that an interrupted call took: the next call returns them (R-GR-1).

        Each call begins with this, too: another exception may interrupt the first `take_back`.
        """
        subscription = self._subscription
        if subscription.hand_over.taken:
            with self._lock:
                if subscription.hand_over.take_back(self._waiting.put_back):
                    subscription.touch()

    def handed_over(self) -> None:
        """Note that the caller has the call's records and an interruption can't lose them."""
        self._subscription.hand_over.done()

    def _note_taken(self, entry: CompletedFetch, columns: RecordColumns, now: float) -> bool:
        """Note that the caller takes these rows; return whether there are any."""
        if self._group is not None:
            self._subscription.in_hand[entry.state] = None
        if self._noted is not None and columns.count:
            self._noted.append((entry.state.partition, columns))
        if columns.count and self._undelivered and entry.arrived >= self._disturbed_at:
            self._undelivered = False
            topic, partition = entry.state.partition
            self._engine.events.emit(now, "first_record", topic=topic, partition=partition)
        return columns.count > 0

    def _next(self, of: Selection = None) -> CompletedFetch | None:
        group = self._group
        with self._lock:
            return None if group is not None and group.calls else self._waiting.head(of)

    def _leave_out(self, entry: CompletedFetch, error: CorruptRecordError, now: float) -> None:
        """Skip unreadable records, if this is configured; else raise.

        The error names the partition, and says how to continue; the position stays before the bad
        batch.
        """
        state, behind = entry.state, entry.next_behind(error)
        position = entry.start
        if behind is not None and self._skips:
            with self._lock:
                self._subscription.hand_over.forget(state)
                if not entry.valid:
                    return  # after a seek, these records are no longer wanted
                # As after a seek, brokers list the aborted transactions again in the next response.
                self._waiting.drop(entry)
                self._subscription.touch()
                state.move_to(min(behind, state.until))
            topic, partition = state.partition
            logger.warning(
                "%s: %s; the consumer skips offsets %d to %d (on.corrupt.record=skip)",
                state.partition,
                error,
                position,
                behind - 1,
            )
            self._engine.events.emit(
                now,
                "skipped",
                topic=topic,
                partition=partition,
                offset=position,
                next_offset=behind,
                error=str(error),
            )
            return
        how = "the next offset is unknown" if behind is None else f"seek() to {behind} to continue"
        text = f"{state.partition}: {error} (position {position}; {how})"
        if isinstance(error, RecordLimitError):
            text = f"{text[:-1]}, or raise {error.option})"
            failure: CorruptRecordError = RecordLimitError(
                text, error.option, error.found, error.record
            )
        else:
            failure = type(error)(text)
        failure.partition, failure.offset = state.partition, position
        failure.next_offset = behind
        with self._lock:
            self._subscription.hand_over.forget(state)
            self._waiting.drop(entry)
            state.stay()  # fetch the batch again after the caller has got the error
            state.backoff.failed(now)
            self._subscription.touch()
        raise failure from error

    # Events

    def _note_disturbance(self, event: Event) -> None:
        failed = event.kind == "disconnected" and event.fields.get("failure")
        if failed or event.kind in ("dial_failed", "rebootstrap"):
            self._disturbed_at = event.at
            self._undelivered = True


def _rows(entry: CompletedFetch, columns: RecordColumns) -> list[ConsumerRecord]:
    topic, partition = entry.state.partition
    epochs = entry.leader_epochs(columns)
    return build_rows(ConsumerRecord, topic, partition, columns, epochs, UnreadRecord)
