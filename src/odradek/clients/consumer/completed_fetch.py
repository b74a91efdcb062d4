"""Hold the records of one partition from one Fetch response, until they are returned.

In: a view of the response's bytes. Out: columns, decoded part by part in the caller's thread, and
the position after them. `survey` reads batch headers alone, so that the next fetch can be sent
before anything is decoded. Must not: move a position before its rows were returned (R-GR-1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Literal, NamedTuple, TypeVar

from odradek.clients.consumer.partition_state import PartitionState
from odradek.common.arguments import INT32_MAX
from odradek.common.errors import KafkaError
from odradek.common.errors.records import RecordLimitError
from odradek.common.types import FREE_THREADS, Address, Lock, NullLock
from odradek.record import DecodedRecords, RecordColumns, decode, survey_batches
from odradek.record.batch import behind
from odradek.record.columns import EMPTY, Layout
from odradek.record.limits import NO_LIMITS, Limits

NULL_LOCK = NullLock()
R = TypeVar("R")
Headers = bool | Literal["raw"]
"""Whether headers are wanted: as a column, or raw, as the log contains them."""


class Survey(NamedTuple):
    """Summary of the headers of a response's batches."""

    next_offset: int
    size: int = 0
    """Number of bytes of complete batches."""
    needed: int | None = None
    """Size of the first batch, if the response was cut within it."""
    odd: bool = False
    """Whether there is an error that only decoding can identify; later offsets are unknown then."""
    epochs: Sequence[tuple[int, int]] = ()
    """(first offset, leader epoch), one entry for each change of the epoch."""


def survey(records: memoryview, offset: int) -> Survey:
    """Read the batch headers of a response to a fetch from `offset`."""
    return tuple.__new__(Survey, survey_batches(records, offset))  # saves a Python call


Aborted = tuple[tuple[int, int], ...]
Wanted = tuple[bool, bool, Headers]
DecodingProgress = tuple[
    *tuple[memoryview, int, int, Aborted, tuple[int, Aborted], Wanted],
    *tuple[DecodedRecords | None, int, int, bool],
]
"""Progress of decoding and returning a response; `CompletedFetch.put_back` names the parts."""


class CompletedFetch:
    """One partition's part of a response.

    Created in the engine's step, decoded in the thread that calls `poll()`.
    """

    __slots__ = (
        "_aborted",
        "_before",
        "_clock",
        "_decoded",
        "_epochs",
        "_limits",
        "_lock",
        "_records",
        "_start",
        "_wanted",
        "address",
        "arrived",
        "at",
        "exhausted",
        "generation",
        "handed",
        "row",
        "size",
        "spent",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        records: memoryview,
        found: Survey,
        *,
        start: int,
        aborted: Aborted,
        address: Address,
        arrived: float,
        lock: Lock = NULL_LOCK,
        limits: Limits = NO_LIMITS,
        clock: Callable[[], float] = float,
    ) -> None:
        """Set the records; `clock` measures the time of decoding. By default that time is zero."""
        self.state = state
        self.generation = state.generation
        self.size = len(records)
        self.address = address
        self.arrived = arrived
        self._lock = lock
        self._limits = limits
        self._clock = clock
        self.spent = 0.0
        """Seconds spent on decoding."""
        self._records = records
        self._epochs = found.epochs
        self._aborted = aborted
        self._start = start
        self.at = 0
        """Number of decoded bytes of the log."""
        self._before = (0, aborted)
        """Where the last decoding began: unread rows may be decoded again with more columns."""
        self._wanted: Wanted = (True, True, True)
        self._decoded: DecodedRecords | None = None
        self.row = 0
        """Number of rows that were returned since the last decoding."""
        self.handed = 0
        """Number of rows that were returned before the last decoding."""
        self.exhausted = False
        """Whether all rows were returned."""

    @property
    def valid(self) -> bool:
        """Whether there was no seek or new assignment since the fetch."""
        return self.state.generation == self.generation

    @property
    def start(self) -> int:
        """Offset where the next decoding begins; after an error, where the failed one began."""
        return self._start

    def progress(self) -> DecodingProgress:
        """Return the current progress; `put_back` can restore it at any time."""
        here = self._records, self.at, self._start, self._aborted, self._before, self._wanted
        return *here, self._decoded, self.row, self.handed, self.exhausted

    def put_back(self, to: DecodingProgress) -> None:
        """Restore an earlier progress, because the caller didn't get the records after it."""
        self._records, self.at, self._start, self._aborted, self._before, self._wanted = to[:6]
        self._decoded, self.row, self.handed, self.exhausted = to[6:]

    def move(self, columns: RecordColumns) -> RecordColumns:
        """Move the position past rows that `peek` returned; the caller owns them then.

        Returns no rows if there was a seek or a pause while they were decoded.
        """
        decoded = self._decoded
        with self._lock:
            state = self.state
            if state.generation != self.generation or state.paused or decoded is None:
                return EMPTY
            self.row += columns.count
            position = decoded.next_offset_after(self.row)
            epochs = self._epochs  # usually one epoch, which needs no call of `_epoch_at`
            state.pass_over(
                position, epochs[0][1] if len(epochs) == 1 else self._epoch_at(position)
            )
        if decoded.finished and self.row >= decoded.columns.count:  # free the buffers
            self.exhausted, self._records, self._decoded = True, memoryview(b""), None
        return columns

    def peek(
        self,
        most: int,
        *,
        ahead: int = 0,
        enough: int | None = None,
        key: bool = True,
        value: bool = True,
        headers: Headers = True,
        layout: Layout = "binary",
    ) -> RecordColumns:
        """Return the next rows, at most `most`, without moving the position.

        Zero rows mean that this data has nothing for the caller (markers, aborted transactions). At
        least `ahead` rows are decoded if there are as many; with `enough`, decoding stops after
        this number of rows, at the end of a record batch. Raises `CorruptRecordError` if the next
        batch is corrupt.
        """
        decoded = self._decoded
        wanted = (key, value, headers)
        if (
            decoded is not None
            and wanted != self._wanted
            and any(w and w != h for w, h in zip(wanted, self._wanted, strict=True))
        ):
            self.at, self._aborted = self._before
            self._start = decoded.next_offset_after(self.row)
            decoded = None
        while decoded is None or (self.row >= decoded.columns.count and not decoded.finished):
            # At least one row: otherwise decoding would never make progress.
            stop = max(most, ahead, 1) if enough is None else enough
            decoded = self._decode_on(stop, key, value, headers, layout)
        return decoded.columns.slice(self.row, self.row + most)

    def walk(self, records: list[R]) -> Iterator[R]:
        """Yield the rows of `peek` one by one, moving the position with each.

        A caller that asks for the next row has processed the previous one. The iteration ends if
        anything else has moved the position, another iterator included.
        """
        decoded = self._decoded
        # Decoded here, not at the first `next`: by then another call may have returned some rows.
        if decoded is None:
            return iter(())
        walk = self._walk_locked if FREE_THREADS else self._walk
        return walk(decoded, self.row, records)

    def _walk(self, decoded: DecodedRecords, row: int, records: list[R]) -> Iterator[R]:
        state, rows = self.state, decoded.columns
        last, finished = rows.count, decoded.finished
        begin, end = row + 1, min(row + 1 + len(records), last)
        positions = [*rows.offsets[rows.start + begin : rows.start + end], decoded.next_offset]
        one = len(self._epochs) < 2
        epochs = repeat(self._epoch_at(0)) if one else [self._epoch_at(p) for p in positions]
        for record, epoch, position in zip(records, epochs, positions, strict=False):
            # No signal is handled between these lines and the `yield`, and with a GIL no other
            # thread runs, because the lines call nothing. So the position only moves with a record
            # that is returned.
            if self._decoded is not decoded or self.row != row:
                return
            if state.generation != self.generation or state.paused:
                return
            row += 1
            self.row = row
            state.consumed, state.consumed_epoch = state.position, state.position_epoch
            state.position, state.position_epoch = position, epoch
            if finished and row == last:
                self.exhausted, self._records, self._decoded = True, memoryview(b""), None
            yield record

    def _walk_locked(self, decoded: DecodedRecords, row: int, records: list[R]) -> Iterator[R]:
        """Yield the rows while another thread may seek or pause at any time."""
        state = self.state
        walk = self._walk(decoded, row, records)
        while True:
            before = self.progress()
            places = state.position, state.position_epoch, state.consumed, state.consumed_epoch
            try:
                with self._lock:
                    record = next(walk, None)
            except BaseException:  # a signal while the lock is released: the record wasn't returned
                if self.valid:
                    self.put_back(before)
                    state.position, state.position_epoch = places[:2]
                    state.consumed, state.consumed_epoch = places[2:]
                raise
            if record is None:
                return
            yield record

    def _decode_on(
        self, enough: int, key: bool, value: bool, headers: Headers, layout: Layout
    ) -> DecodedRecords:
        self._before, self._wanted = (self.at, self._aborted), (key, value, headers)

        def decoded_until(until: int) -> DecodedRecords:
            return decode(
                self._records[self.at :],
                start_offset=self._start,
                until_offset=until,
                aborted=self._aborted,
                want_key=key,
                want_value=value,
                want_headers=bool(headers),
                raw_headers=headers == "raw",
                stop_after=enough,
                layout=layout,
                limits=self._limits,
            )

        begun = self._clock()  # measured for each decoding, not for each row
        try:
            decoded = decoded_until(self.state.until)
        except RecordLimitError as error:
            if error.record is None or error.record <= self._start:
                raise
            # Records before the corrupt one are returned first; the next decoding finds it again.
            decoded = decoded_until(error.record)._replace(finished=False)
        self.spent += self._clock() - begun
        self._start, self._aborted = decoded.next_offset, decoded.aborted_left
        self.at += decoded.bytes_consumed
        self.handed += self.row
        self._decoded, self.row = decoded, 0
        return decoded

    def next_behind(self, error: KafkaError) -> int | None:
        """Return the offset at which to continue after a corrupt batch; None if it isn't known."""
        if isinstance(error, RecordLimitError) and error.record is not None:
            return error.record + 1
        found = behind(self._records, self.at)
        return None if found is None or found <= self._start else found

    def _epoch_at(self, position: int) -> int:
        """Return the leader epoch to validate a position with (KIP-320).

        It is the epoch of the next record's batch; after all records, of the last batch. If a newer
        leader wrote a transaction's marker or compacted records just before the position, the epoch
        of the record before them is too old: it ends before the position, as if records were lost.
        """
        epochs = self._epochs
        if len(epochs) < 2:
            return epochs[0][1] if epochs else -1
        return epochs[max(0, bisect_right(epochs, (position, INT32_MAX)) - 1)][1]

    def leader_epochs(self, columns: RecordColumns) -> int | list[int]:
        """Return the leader epoch of each row; one number if all are the same."""
        epochs = self._epochs
        if len(epochs) < 2:
            return epochs[0][1] if epochs else -1
        firsts = [first for first, _ in epochs]
        offsets = columns.offsets[columns.start : columns.start + columns.count]
        return [epochs[max(0, bisect_right(firsts, o) - 1)][1] for o in offsets]
