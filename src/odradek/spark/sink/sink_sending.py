"""Send the rows of one task with bounded memory, and wait through outages.

In: Arrow batches, a producer. Out: acknowledged rows, counted. Flow: split by topic → chunks →
`send_arrow` → wait for the oldest chunk if too many bytes are unacknowledged. Must not: wait
without a log message every 30 s, or make Python objects of rows.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.common.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError
from odradek.common.topic_names import RULE, is_topic_name
from odradek.record.sent_columns import InvalidRowError
from odradek.spark.checkpoint_errors import MissingTopicError, OutageError
from odradek.spark.sink.sink_errors import SinkRowError, SinkWriteError
from odradek.spark.sink.sink_schema import SinkColumns, TopicRows
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.producer import Producer
    from odradek.runtime.hosts.record_future import ArrowFuture

logger = logging.getLogger("odradek.spark")

T = TypeVar("T")

LOG_EVERY = 30.0
TOPIC_PATIENCE = 5.0
"""Seconds for which an unknown topic may be a new one that the broker doesn't know yet."""
PIECE = 8 << 20
"""Size in bytes of a chunk of rows, which is passed to the producer with one call."""
_ROW = re.compile(r"^row (\d+)")


@dataclass(frozen=True, slots=True)
class Patience:
    """Repeats calls that time out, up to a total time limit; logs a message every 30 s."""

    tolerance: float
    clock: Clock
    explain: Callable[[], object]
    until: float = math.inf
    """Time on `clock` at which every wait ends, even if its own limit is later."""

    def wait(self, attempt: Callable[[float], T], what: str, *, at_most: float | None = None) -> T:
        """Call `attempt(seconds)` until it doesn't time out.

        After a timeout the operation must still be in progress, so that the next call waits for it.
        """
        since = self.clock.now()
        limit = self.tolerance if at_most is None else at_most
        limit = max(0.0, min(limit, self.until - since))
        while True:
            left = limit - (self.clock.now() - since)
            try:
                return attempt(max(0.0, min(LOG_EVERY, left)))
            except KafkaTimeoutError as error:
                waited = self.clock.now() - since
                if waited >= limit:
                    why = "option outageTolerance"
                    if at_most is not None:
                        why = (
                            "the cluster has never answered before: check option "
                            "kafka.bootstrap.servers"
                        )
                    raise OutageError(
                        f"timed out after {waited:.0f} s waiting for {what} ({why}). Last error: "
                        f"{error}\n"
                        f"{self.explain()}"
                    ) from error
                logger.warning(
                    "%s: waiting for %.0f s now, for %.0f s at most. %s", what, waited, limit, error
                )


def window_of(config: Mapping[str, Any]) -> int:
    """Return the maximum of unacknowledged bytes: half of the producer's memory.

    The other half allows for rows that exist twice: as Spark passed them, and as records.
    """
    return int(config["buffer.memory"]) // 2


class RowSender:
    """Sends the batches of one task and keeps track of unacknowledged rows."""

    def __init__(
        self,
        producer: Producer,
        columns: SinkColumns,
        patience: Patience,
        *,
        window: int,
        first_contact: float | None = None,
    ) -> None:
        """Set the limits of a task's producer.

        `window` is the number of bytes that may be unacknowledged. `first_contact` is the number of
        seconds in which a cluster that has never answered must answer; None for the usual limit.
        """
        self._producer, self._columns, self._patience = producer, columns, patience
        self._window, self._first_contact = window, first_contact
        self._unacknowledged: deque[tuple[ArrowFuture, TopicRows, int]] = deque()
        self._bytes = 0
        self._known: set[str] = set()
        self._unconfirmed: set[str] = set()
        """Topics without an acknowledgement so far."""
        self.rows = 0
        self.first_topic: str | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch; waits while too many bytes are unacknowledged."""
        for of_topic in self._columns.by_topic(batch, self.rows):
            if of_topic.topic not in self._known:
                _check_name(of_topic)
                self.meet(of_topic.topic)
            for piece in of_topic.slices(min(PIECE, self._window)):
                self._send(piece)
        self.rows += batch.num_rows

    def finish(self) -> None:
        """Wait until every row is acknowledged."""
        flush = self._unless_gone(self._producer.flush)
        self._patience.wait(flush, "the acknowledgement of the task's rows")
        while self._unacknowledged:
            self._await_oldest()

    def meet(self, topic: str) -> None:
        """Wait until the cluster answers, and check that the topic exists."""
        whence = "option topic or column topic"
        meet(self._producer, self._patience, topic, whence, self._first_contact)
        self._known.add(topic)
        self._unconfirmed.add(topic)
        self.first_topic = self.first_topic or topic

    def _unless_gone(self, attempt: Callable[[float], T]) -> Callable[[float], T]:
        """Return an attempt that, after a timeout, raises `MissingTopicError` for a deleted topic.

        A producer that an earlier task has used assumes that the topic still exists.
        """
        steps = iter((TOPIC_PATIENCE,))

        def look(timeout: float) -> T:
            try:
                return attempt(min(timeout, next(steps, timeout)))
            except KafkaTimeoutError:
                for topic in sorted(self._unconfirmed):
                    self.meet(topic)
                raise

        return look

    def _send(self, piece: TopicRows) -> None:
        size = piece.rows.nbytes
        while self._unacknowledged and (
            self._unacknowledged[0][0].done() or self._bytes + size > self._window
        ):
            self._await_oldest()
        try:
            future = self._producer.send_arrow(piece.topic, piece.rows)
        except (InvalidRowError, RecordTooLargeError) as error:
            raise _named(error, piece) from error
        self._unacknowledged.append((future, piece, size))
        self._bytes += size

    def _await_oldest(self) -> None:
        future, piece, size = self._unacknowledged[0]
        what = (
            f"the acknowledgement of {future.rows} row{'' if future.rows == 1 else 's'} for topic "
            f"{piece.topic!r}"
        )
        error = self._patience.wait(self._unless_gone(future.exception), what)
        self._unacknowledged.popleft()
        self._unconfirmed.discard(piece.topic)
        self._bytes -= size
        if error is not None:
            raise _failure(error, future, piece) from error


def meet(
    producer: Producer, patience: Patience, topic: str, whence: str, first_contact: float | None
) -> None:
    """Wait until the cluster answers, and check that a topic exists.

    `whence` names the source of the topic's name, for errors. Raises `OutageError` and
    `MissingTopicError`.
    """
    wait = patience.wait
    wait(producer.cluster_id, "the cluster's first answer", at_most=first_contact)
    since = patience.clock.now()

    def look(timeout: float) -> None:
        try:
            producer.partitions_for(topic, min(timeout, TOPIC_PATIENCE))
        except KafkaTimeoutError as error:
            unknown = "UNKNOWN_TOPIC" in str(error)
            if unknown and patience.clock.now() - since >= TOPIC_PATIENCE:
                raise MissingTopicError(
                    f"topic {topic!r} doesn't exist (UNKNOWN_TOPIC_OR_PARTITION for "
                    f"{TOPIC_PATIENCE:.0f} s). It is named by {whence}. The sink creates no "
                    f"topics; create it with: odradek topics create {topic}"
                ) from error
            raise

    wait(look, f"the metadata of topic {topic!r}")


def _check_name(rows: TopicRows) -> None:
    """Raise for an invalid name in column topic; option topic was checked when it was read."""
    if not is_topic_name(rows.topic):
        row = rows.row(0)
        raise SinkRowError(
            f"row {row} of this task has {rows.topic!r:.120} in column topic, which is not a "
            f"valid topic name: {RULE}",
            row,
        )


def _named(error: KafkaError, piece: TopicRows) -> SinkRowError:
    """Convert a row's number in its chunk, as reported by the client, to its number in the task."""
    text, row = str(error), None
    if found := _ROW.match(text):
        row = piece.row(int(found[1]))
        text = f"row {row} of this task{text[found.end() :]}"
    if isinstance(error, RecordTooLargeError):
        text += (
            ". Make the row smaller, or increase kafka.max.request.size (and kafka.buffer.memory, "
            "if it is set) and the topic's max.message.bytes"
        )
    return SinkRowError(f"{text} (topic {piece.topic!r})", row)


def _failure(error: BaseException, future: ArrowFuture, piece: TopicRows) -> KafkaError:
    """Return an error that tells how many rows were not written, and the first row's number."""
    import pyarrow.compute as pc

    text = f"{type(error).__name__}: {error}"
    marked = future.errors(0)
    if marked is None:
        return SinkWriteError(f"rows for topic {piece.topic!r} were not written: {text}")
    bad: Any = pc.is_valid(marked)
    first = piece.row(pc.index(bad, True).as_py())
    count = pc.sum(bad).as_py()
    return SinkWriteError(
        f"{count} row{'' if count == 1 else 's'} for topic {piece.topic!r} may not have been "
        f"written, first row {first} of this task: {text}"
    )
