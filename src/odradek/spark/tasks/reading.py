"""Read one range of one partition in a task, with the process's client, as batches for Spark.

In: a range, a consumer, columns. Out: an iterator of Arrow batches of useful size that ends exactly
at the range's end. Must not: request metadata, or wait forever: it raises an error that names the
partition if no record arrives although brokers answer, or if an outage is too long.

    fetch → decode (cut at `until`) → gather small batches / slice large ones → Spark's socket
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from odradek.clients.consumer.records import LogTruncationError, OffsetAndMetadata
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.common.printable import sentence
from odradek.spark.checkpoint_errors import (
    DataLossError,
    NoProgressError,
    OutageError,
    UndecodableValueError,
)
from odradek.spark.driver.data_loss import deleted, lost_in_election, with_lower_epoch
from odradek.spark.driver.discovery import CONFIRM_S, UnconfirmedObservation
from odradek.spark.driver.loss_confirmation import DisagreementError, check_agreement
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.source_options import SourceOptions
from odradek.spark.sink.dead_letters import COLUMNS, DeadLetters, Misfit
from odradek.spark.tasks.range_loss import (
    DESCRIBE_S,
    POLL_S,
    PROBE_S,
    RangeLog,
    pass_on_unless_retriable,
)
from odradek.spark.tasks.worker_clients import Clock, known_topic_id
from odradek.spark.values.decoding import ValueDecodeError, ValueDecoder
from odradek.spark.values.event_times import check_times
from odradek.spark.values.schema import fit, without_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.consumer import Consumer

logger = logging.getLogger("odradek.spark")

ENOUGH_ROWS, MOST_ROWS = 16_384, 65_536
ENOUGH_BYTES, MOST_BYTES = 8 << 20, 32 << 20
"""Size in bytes at which a batch is passed to Spark, and size above which it is divided.

Batches of less than some thousand rows cost 28–40 % of the throughput. Large ones cost memory, as
Spark copies each whole batch, and Arrow's 32-bit offsets limit a column to 2 GiB.
"""
PAUSE_S = 0.1
"""Pause in seconds after an error that a call raises immediately, so that retries don't spin."""
LOOK_EVERY_S = 5.0
"""Seconds without records from a partition after which its broker is checked."""
LOG_EVERY_S = 30.0
AGAIN = (
    "Rows were already read, of the deleted topic or of the new one, so this attempt fails "
    "although failOnDataLoss is false. The next attempt leaves the range out: if Spark doesn't "
    "retry, start the query again."
)


class Gatherer:
    """Joins small batches and divides large ones, in order."""

    __slots__ = ("_bytes", "_pending", "_rows")

    def __init__(self) -> None:
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add a batch; yield the batches that are large enough."""
        if self._rows + batch.num_rows > MOST_ROWS or self._bytes + batch.nbytes > MOST_BYTES:
            yield from self.flush()
        if batch.num_rows > MOST_ROWS or batch.nbytes > MOST_BYTES:
            yield from _cut(batch)
            return
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ENOUGH_ROWS or self._bytes >= ENOUGH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        pending, self._pending, self._rows, self._bytes = self._pending, [], 0, 0
        if len(pending) == 1:
            yield pending[0]
        elif pending:
            import pyarrow as pa

            yield from pa.Table.from_batches(pending).combine_chunks().to_batches()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide a batch into parts with equal row counts, and halve parts that have too many bytes."""
    step = max(1, -(-batch.num_rows // -(-batch.num_rows // MOST_ROWS)))
    for at in range(0, batch.num_rows, step):
        yield from _halved(batch.slice(at, step))


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows < 2 or batch.nbytes <= MOST_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half))
    yield from _halved(batch.slice(half))


class PartitionSilence:
    """Finds out why a partition returns no records: an outage, a silent broker or a deleted topic.

    Only the time between two successful checks counts against pollTimeoutMs: the time before a
    failed check belongs to an outage, and the broker may have returned during the first success.
    """

    def __init__(
        self,
        consumer: Consumer,
        wanted: KafkaOffsetRange,
        options: SourceOptions,
        clock: Clock,
        goes_on: Callable[[int], bool | None],
    ) -> None:
        """Take `goes_on(offset)`, called at each check: it returns True if the position changed.

        It returns None while it is in doubt whether records were lost.
        """
        self._consumer, self._wanted = consumer, wanted
        self._options, self._clock, self._goes_on = options, clock, goes_on
        self._every = min(LOOK_EVERY_S, options.poll_timeout, options.outage_tolerance)
        self.over()

    def over(self) -> None:
        """Restart the timers, after records arrived or while Spark was processing."""
        self._since = self._logged_at = self._clock.now()
        self._look_at = self._since + self._every
        self._answered_from: float | None = None
        self._gone_from: float | None = None

    def lasts(self, at: int, last_error: KafkaError | None) -> bool:
        """Return whether to continue waiting.

        False if the partition was deleted and loss is allowed.
        """
        if self._clock.now() < self._look_at:
            return True
        tp, options = self._wanted.tp, self._options
        place = (
            f"{tp} returned no records at offset {at} (of {self._wanted.start} to "
            f"{self._wanted.until})"
        )
        why = f" Last error: {sentence(last_error)}" if last_error is not None else ""
        answers = self._answers()
        now = self._clock.now()
        if answers:
            self._gone_from = None
            goes_on = self._goes_on(at)
            if goes_on:
                self.over()
                return True
            if self._answered_from is None:
                self._answered_from = now
            answered = now - self._answered_from
            longest = options.poll_timeout
            if goes_on is None:
                longest = max(longest, 3 * CONFIRM_S)  # time for brokers to agree about the loss
            if answered >= longest:
                raise NoProgressError(
                    f"{place} for {answered:.0f} s although its broker answers (option "
                    f"kafkaConsumer.pollTimeoutMs).{why}\n"
                    f"{self._consumer.explain()}"
                )
            # While a loss is in doubt, each poll checks it again.
            pause = 0.0 if goes_on is None else min(self._every, longest - answered)
            self._look_at = now + pause
            return True
        self._answered_from = None
        if self._is_gone():
            return False
        now = self._clock.now()
        silent = now - self._since
        if self._gone_from is not None:
            return True
        if silent >= options.outage_tolerance:
            raise OutageError(
                f"{place}: no broker answered for {silent:.0f} s (option outageTolerance).{why}\n"
                f"{self._consumer.explain()}"
            )
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            logger.warning("%s: no broker has answered for %.0f s; retrying.%s", place, silent, why)
        return True

    def _answers(self) -> bool:
        try:
            self._consumer.end_offsets([self._wanted.tp], timeout=PROBE_S)
        except KafkaError as error:
            pass_on_unless_retriable(error)
            return False
        return True

    def _is_gone(self) -> bool:
        """Return whether the partition was deleted (confirmed); raise if loss isn't allowed.

        To the client, a partition that no broker has any more looks like an outage.
        """
        tp = self._wanted.tp
        try:
            described = self._consumer.describe([tp.topic], timeout=DESCRIBE_S)[tp.topic]
            there = any(found.partition == tp.partition for found in described.partitions)
        except UnknownTopicOrPartitionError:
            there = False
        except KafkaError as error:
            pass_on_unless_retriable(error)
            self._gone_from = None
            return False
        now = self._clock.now()
        if there:
            self._gone_from = None
            return False
        if self._gone_from is None:
            self._gone_from = now
        if now - self._gone_from < CONFIRM_S:
            return False
        try:
            check_agreement(self._consumer, [tp], {}, {}, DESCRIBE_S)
        except (DisagreementError, KafkaTimeoutError):
            self._gone_from = None
            return False
        text = deleted(tp)
        if self._options.fail_on_data_loss:
            raise DataLossError([text])
        logger.warning("%s; its range is skipped because failOnDataLoss is false", text)
        return True


class RangeReader:
    """Reads one range; keeps the position and the time of the last records."""

    def __init__(
        self,
        consumer: Consumer,
        wanted: KafkaOffsetRange,
        topic_id: str | None,
        options: SourceOptions,
        clock: Clock,
        *,
        is_last: bool = False,
        doubt: UnconfirmedObservation | None = None,
    ) -> None:
        """Take `is_last`: whether no later batch continues after this range, as in batch queries.

        `doubt` is shared by a batch's ranges: only one of them waits until a loss is confirmed.
        """
        self._consumer, self._wanted, self._topic_id = consumer, wanted, topic_id
        self._options, self._clock, self._is_last = options, clock, is_last
        self._log = RangeLog(consumer, wanted, topic_id, options, clock, doubt)
        self._silence = PartitionSilence(consumer, wanted, options, clock, self._goes_on)
        self._has_rows = False

    def batches(
        self,
        columns: Sequence[str],
        target: pa.Schema,
        decoders: Mapping[str, ValueDecoder] = MappingProxyType({}),
        dead_letters: DeadLetters | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the range's records in batches of exactly the target schema.

        `decoders` are given by column. With `dead_letters`, records that can't be decoded are
        written there before their batch is yielded.
        """
        named = ("offset",) if decoders or self._checks_times(columns) else ()
        more = named if dead_letters is None else COLUMNS
        fetched = [*columns, *(name for name in more if name not in columns)]
        gatherer, silence = Gatherer(), self._silence
        self._assign_at(self._wanted.start)
        if not self._is_planned_topic():
            return
        at = self._wanted.start
        silence.over()
        while at < self._wanted.until:
            batch, last_error = self._polled(fetched)
            position = self._consumer.position(self._wanted.tp)
            if position > at:
                at = position
                silence.over()
            elif not (self._is_planned_topic() and silence.lasts(at, last_error)):
                break
            if batch is not None and batch.num_rows:
                # A new client has no topic id before it has fetched the first records.
                if not self._has_rows and not self._is_planned_topic(
                    self._log.described_topic_id()
                ):
                    return
                self._has_rows = True
                fitted = self._fitted(batch, columns, target, decoders, dead_letters)
                for ready in gatherer.add(fitted):
                    yield ready
                    # Spark's processing time isn't silence of the broker.
                    silence.over()
        # Checked before the last batch is yielded: an error fails the task, with all of its rows.
        if self._is_planned_topic(self._log.described_topic_id()):
            yield from gatherer.flush()

    def _assign_at(self, offset: int) -> None:
        tp, until, epoch = self._wanted.tp, self._wanted.until, self._wanted.epoch
        end = until if epoch < 0 else OffsetAndMetadata(until, leader_epoch=epoch)
        self._consumer.assign([tp], until={tp: end})
        self._consumer.seek(tp, offset)

    def _polled(self, fetched: Sequence[str]) -> tuple[pa.RecordBatch | None, KafkaError | None]:
        """Return fetched records, or a retriable error; raise other errors."""
        try:
            return self._consumer.poll_arrow(timeout=POLL_S, columns=fetched), None
        except OffsetOutOfRangeError as error:
            lost = error
        except KafkaError as error:
            pass_on_unless_retriable(error)
            self._clock.pause(PAUSE_S)
            return None, error
        return None, self._skip_lost(self._consumer.position(self._wanted.tp), lost)

    def _fitted(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[str],
        target: pa.Schema,
        decoders: Mapping[str, ValueDecoder],
        dead_letters: DeadLetters | None,
    ) -> pa.RecordBatch:
        if self._checks_times(columns):
            check_times(batch, self._wanted.tp, self._consumer, self._clock)
        decoded = {name: self._decoded(batch, name, one) for name, one in decoders.items()}
        found = fit(batch, columns, target, decoded)
        bad = {
            row: Misfit(name, why) for name, one in decoders.items() for row, why in one.bad.items()
        }
        if bad and dead_letters is not None:
            dead_letters.send(self._wanted.tp, batch, bad)
        return without_rows(found, bad) if bad and self._options.drop_malformed else found

    def _decoded(self, batch: pa.RecordBatch, name: str, decoder: ValueDecoder) -> pa.Array:
        try:
            return decoder.decode(batch.column(name))
        except ValueDecodeError as error:
            offset = batch.column("offset")[error.row].as_py()
            raise UndecodableValueError(
                f"{self._wanted.tp}: the {name} at offset {offset} doesn't fit its schema "
                f"({error.why}). To read such {name}s as null, set option valueMode to PERMISSIVE."
            ) from None

    def _checks_times(self, columns: Sequence[str]) -> bool:
        return "timestamp" in columns and not self._options.null_timestamps

    def _goes_on(self, at: int) -> bool | None:
        """Skip lost offsets of a silent partition; return whether the position has changed.

        Returns None while the loss is in doubt; raises if losses aren't allowed. A fetch at the end
        of a log returns no error, so the client may not have noticed that the topic was recreated
        or the log was truncated.
        """
        tp = self._wanted.tp
        try:
            described = self._consumer.describe([tp.topic], timeout=DESCRIBE_S)[tp.topic]
            look = self._log.ends()
        except KafkaError as error:
            pass_on_unless_retriable(error)
            return False
        if not self._is_planned_topic(described.topic_id):
            self._consumer.seek(tp, self._wanted.until)
            return True
        if look[0] <= at < look[1]:
            return False
        if self._skip_lost(at, OffsetOutOfRangeError(f"{tp} at {at}"), look) is None:
            return True
        return None if self._log.is_doubtful else False

    def _is_planned_topic(self, described: str | None = None) -> bool:
        """Return whether the topic is still the planned one; raise for another topic if required.

        A recreated topic is an error with failOnDataLoss, and always if rows were already yielded,
        as they can't be revoked. `described`: the topic's id in a new description; None: use the
        client's metadata, which is less reliable.
        """
        topic = self._wanted.tp.topic
        now = described or known_topic_id(self._consumer, topic)
        if self._topic_id is None or now in (None, self._topic_id):
            return True
        now = self._log.confirmed_topic_id()
        text = (
            f"topic {topic} was deleted and recreated while the query ran: it was planned with "
            f"topic id {self._topic_id}, the cluster has topic id {now} (UNKNOWN_TOPIC_ID)"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError([text])
        if self._has_rows:
            raise DataLossError([text], advice=AGAIN)
        logger.warning(
            "%s: %s; its range is skipped because failOnDataLoss is false", self._wanted.tp, text
        )
        return False

    def _skip_lost(
        self, at: int, cause: OffsetOutOfRangeError, look: tuple[int, int, int] | None = None
    ) -> KafkaError | None:
        """Continue at the beginning of the log, if losing the records before it is allowed.

        Returns the error if the cluster doesn't report the beginning, or while the loss is in
        doubt: the next poll calls this again. `look`: the result of `RangeLog.ends` that the caller
        has judged, as another request might reach another broker. Only a silent partition has one:
        if the log ends at the offset, fetches return no error.
        """
        tp, until = self._wanted.tp, self._wanted.until
        if not self._is_planned_topic():
            self._consumer.seek(tp, until)
            return None
        if isinstance(cause, LogTruncationError) and self._wanted.epoch >= 0:
            self._end_at_divergence(at, cause)
            return None
        cut = isinstance(cause, LogTruncationError)
        try:
            begin, end, leader_epoch = look or self._log.ends()
            ends_here = look is not None and at == end
            # If the offset is in this log, a new or an outdated leader had refused the fetch.
            older = 0 <= leader_epoch < self._wanted.epoch
            late = begin <= at <= end and not (cut or ends_here or older)
            epoch = -1 if ends_here else self._wanted.epoch
            if late or not (cut or self._log.is_believed(leader_epoch, epoch)):
                self._clock.pause(PAUSE_S if late else POLL_S)
                return cause
        except KafkaError as error:
            pass_on_unless_retriable(error)
            self._clock.pause(PAUSE_S)
            return error
        wanted = f"the range {self._wanted.start} to {until}"
        text = (
            f"{tp}: the log was truncated by an unclean leader election while {wanted} was read; "
            f"records up to offset {at} were read from the old log (OFFSET_OUT_OF_RANGE)"
            if cut
            else f"{tp}: offset {at} of {wanted} isn't in the log, which has offsets {begin} to "
            f"{end} (OFFSET_OUT_OF_RANGE)"
        )
        if older:
            text = with_lower_epoch(tp, self._wanted.epoch, leader_epoch)
        if self._options.fail_on_data_loss:
            raise DataLossError([text]) from cause
        goal = until if at > end or ends_here or older else min(max(begin, at), until)
        logger.warning("%s; continuing at offset %d because failOnDataLoss is false", text, goal)
        self._assign_at(goal)
        return None

    def _end_at_divergence(self, at: int, cause: LogTruncationError) -> None:
        """End the range where the log diverges from the planned one, if a loss is allowed.

        The query's next batch reads the log's current records from there on. A range without a next
        batch (`is_last`) reads them itself.
        """
        wanted = self._wanted
        begin = max(wanted.start, cause.divergent_offset or 0)
        text = lost_in_election(wanted.tp, begin, wanted.until)
        if self._options.fail_on_data_loss:
            raise DataLossError([text]) from cause
        logger.warning("%s; continuing because failOnDataLoss is false", text)
        if self._is_last:
            self._wanted = replace(wanted, epoch=-1)
        else:
            self._wanted = replace(wanted, until=max(at, begin))
        self._assign_at(at)
