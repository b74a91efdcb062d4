"""Futures that `send()` and `send_arrow()` give: cheap until somebody asks.

In: a place in a batch. Out: `RecordMetadata`, or the batch's error. Must not: hold the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.clients.producer.batch import ProducerBatch, RecordMetadata
from odradek.common.errors import KafkaTimeoutError
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    from odradek.api.producer import Producer


class RecordFuture:
    """The outcome of one `send()`."""

    __slots__ = ("_batch", "_index", "_producer", "_timestamp_ms")

    def __init__(
        self, producer: Producer, batch: ProducerBatch, index: int, timestamp_ms: int
    ) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the outcome is there."""
        return self._batch.done.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most `timeout` seconds (default: `delivery.timeout.ms`).

        Raises `KafkaTimeoutError` when it isn't there by then (the record goes on being sent until
        its delivery timeout), else whatever error ended the record's batch.
        """
        self._producer.await_batch(self._batch, timeout)
        return self._batch.metadata(self._index, self._timestamp_ms)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; give the record's error instead of raising it, None if well."""
        self._producer.await_batch(self._batch, timeout)
        return self._batch.done.error

    def add_done_callback(self, callback: Callable[[RecordFuture], None]) -> None:
        """Call `callback(future)` once the outcome is there, on the producer's I/O thread.

        It must be quick and mustn't wait for anything of this producer.
        """
        self._batch.done.when_done(lambda _: callback(self))


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Rows of one `send_arrow()` that were written together: offsets first to last, inclusive."""

    partition: TopicPartition
    first_offset: int
    last_offset: int


class ArrowFuture:
    """The outcome of one `send_arrow()`: `rows` records in some batches."""

    __slots__ = ("_pieces", "_producer", "rows")

    def __init__(
        self, producer: Producer, pieces: Sequence[tuple[ProducerBatch, int, int]], rows: int
    ) -> None:
        self._producer = producer
        self._pieces = pieces
        self.rows = rows

    def done(self) -> bool:
        """Whether all outcomes are there."""
        return all(batch.done.done for batch, _, _ in self._pieces)

    def result(self, timeout: float | None = None) -> list[OffsetRange]:
        """Wait until every row is acknowledged; raises the first error among them."""
        deadline = self._producer.deadline(timeout)
        found = []
        for batch, first, last in self._pieces:
            left = max(0.0, deadline - self._producer.now())
            self._producer.await_batch(batch, left)
            base = batch.done.result().base_offset
            known = base >= 0
            found.append(
                OffsetRange(
                    batch.partition, base + first if known else -1, base + last if known else -1
                )
            )
        return found


def not_yet(batch: ProducerBatch, error: KafkaTimeoutError) -> KafkaTimeoutError:
    """The error of a wait that ended before the delivery timeout did."""
    error.add_note(f"The records for {batch.partition} are still being sent.")
    return error
