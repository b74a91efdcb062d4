"""A task: one range of one partition, from the process's client to batches as Spark wants them.

In: a range, a consumer, columns. Out: an iterator of Arrow batches of useful size that ends exactly
at the range's end. Must not ask for metadata, and must not wait for ever: it ends with an error
that names the partition when nothing comes although brokers answer, or when an outage is too long.

    fetch → decode (cut at `until`) → gather small batches / slice large ones → Spark's socket
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import KafkaError
from odradek.common.kafka_errors import OffsetOutOfRangeError
from odradek.common.types import TopicPartition
from odradek.spark.planning import OffsetRange
from odradek.spark.problems import (
    DataLossError,
    NoProgressError,
    OutageError,
    UndecodableValueError,
)
from odradek.spark.schema import fit
from odradek.spark.values import JsonDecoder, ValueDecodeError
from odradek.spark.worker_clients import Clock, ClusterConsumer, known_topic_id

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("odradek.spark")

ENOUGH_ROWS, MOST_ROWS = 16_384, 65_536
ENOUGH_BYTES, MOST_BYTES = 8 << 20, 32 << 20
"""A batch is handed on when it has enough rows or bytes, and cut when it has more than most.

Below some thousand rows a batch costs 28–40 % of the throughput; Spark copies a whole batch, and
Arrow's 32-bit offsets end at 2 GiB for a column.
"""
POLL_S = 1.0
PROBE_S = 10.0


class Gatherer:
    """Joins small batches and cuts large ones, in order."""

    __slots__ = ("_bytes", "_pending", "_rows")

    def __init__(self) -> None:
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; give what is large enough."""
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
        """Give what is left."""
        pending, self._pending, self._rows, self._bytes = self._pending, [], 0, 0
        if len(pending) == 1:
            yield pending[0]
        elif pending:
            import pyarrow as pa

            yield from pa.Table.from_batches(pending).combine_chunks().to_batches()


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut in equal numbers of rows, and in halves where large records make a piece too large."""
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


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How a task deals with waiting and with records that are gone."""

    poll_timeout: float
    outage_tolerance: float
    fail_on_data_loss: bool


class RangeReader:
    """Reads one range; its state is where it stands and since when nothing came."""

    def __init__(
        self,
        consumer: ClusterConsumer,
        wanted: OffsetRange,
        topic_id: str | None,
        limits: ReadLimits,
        clock: Clock,
    ) -> None:
        self._consumer, self._wanted, self._topic_id = consumer, wanted, topic_id
        self._limits, self._clock = limits, clock

    def batches(
        self, columns: Sequence[str], target: pa.Schema, decoder: JsonDecoder | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the range's records in batches of exactly the target schema."""
        fetched = [*columns, *(("offset",) if decoder and "offset" not in columns else ())]
        tp, until = self._wanted.tp, self._wanted.until
        gatherer = Gatherer()
        self._consumer.assign([tp], until={tp: until})
        self._consumer.seek(tp, self._wanted.start)
        self._check_topic_id()
        at, since, last_error = self._wanted.start, self._clock.now(), None
        while at < until:
            batch = None
            try:
                batch = self._consumer.poll_arrow(timeout=POLL_S, columns=fetched)
                last_error = None
            except OffsetOutOfRangeError as error:
                self._skip_lost(self._consumer.position(tp), error)
            except KafkaError as error:
                if error.fatal or not error.retriable:
                    raise
                last_error = error
                self._clock.pause(min(0.1, POLL_S))  # an error that comes at once mustn't spin
            position = self._consumer.position(tp)
            if position > at:
                at, since = position, self._clock.now()
            else:
                self._check_patience(at, since, last_error)
            if batch is not None and batch.num_rows:
                for ready in gatherer.add(self._fitted(batch, columns, target, decoder)):
                    yield ready
                    # Time that Spark took to drain isn't time that the broker was silent.
                    since = self._clock.now()
        # Before the last batch goes out: an error here fails the task, and with it all it gave.
        self._check_topic_id()
        yield from gatherer.flush()

    def _fitted(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[str],
        target: pa.Schema,
        decoder: JsonDecoder | None,
    ) -> pa.RecordBatch:
        if decoder is None:
            return fit(batch, columns, target)
        try:
            return fit(batch, columns, target, decoder.decode)
        except ValueDecodeError as error:
            offset = batch.column("offset")[error.row].as_py()
            raise UndecodableValueError(
                f"{self._wanted.tp}: the value at offset {offset} doesn't fit option valueSchema "
                f"({error.why}). With option valueMode PERMISSIVE what doesn't fit is null."
            ) from None

    def _check_topic_id(self) -> None:
        """Refuse records of a topic that only has the same name as the planned one."""
        topic = self._wanted.tp.topic
        now = known_topic_id(self._consumer, topic)
        if self._topic_id is not None and now is not None and now != self._topic_id:
            text = (
                f"topic {topic} was deleted and made anew while the query ran: planned with "
                f"topic id {self._topic_id}, the cluster has topic id {now} (UNKNOWN_TOPIC_ID)"
            )
            raise DataLossError([text])

    def _skip_lost(self, at: int, cause: OffsetOutOfRangeError) -> None:
        """Go to where the log begins now, if losing what was before is allowed."""
        self._check_topic_id()
        tp, until = self._wanted.tp, self._wanted.until
        begin = self._consumer.beginning_offsets([tp], timeout=PROBE_S)[tp]
        end = self._consumer.end_offsets([tp], timeout=PROBE_S)[tp]
        if begin <= at <= end:
            return  # a leader that had only just taken over; the next fetch will do
        text = (
            f"{tp}: offset {at} of the range {self._wanted.start} to {until} isn't in the log, "
            f"which holds {begin} to {end} (OFFSET_OUT_OF_RANGE)"
        )
        if self._limits.fail_on_data_loss:
            raise DataLossError([text]) from cause
        goal = min(begin, until) if begin > at else until
        logger.warning("%s; skipped to %d because failOnDataLoss is false", text, goal)
        self._consumer.seek(tp, goal)

    def _check_patience(self, at: int, since: float, last_error: KafkaError | None) -> None:
        """Tell a silent partition from an outage: only the first counts against pollTimeoutMs."""
        silent = self._clock.now() - since
        limits = self._limits
        if silent < min(limits.poll_timeout, limits.outage_tolerance):
            return
        tp = self._wanted.tp
        place = (
            f"{tp} gave nothing at offset {at} (of {self._wanted.start} to {self._wanted.until})"
        )
        why = f" Last error: {last_error}." if last_error is not None else ""
        if _answers(self._consumer, tp):
            if silent < limits.poll_timeout:
                return
            raise NoProgressError(
                f"{place} for {silent:.0f} s although its broker answers "
                f"(kafkaConsumer.pollTimeoutMs).{why}\n{self._consumer.explain()}"
            )
        if silent >= limits.outage_tolerance:
            raise OutageError(
                f"{place}: no broker answered for {silent:.0f} s (outageTolerance).{why}\n"
                f"{self._consumer.explain()}"
            )


def _answers(consumer: ClusterConsumer, tp: TopicPartition) -> bool:
    try:
        consumer.end_offsets([tp], timeout=PROBE_S)
    except KafkaError as error:
        if error.fatal or not error.retriable:
            raise
        return False
    return True
