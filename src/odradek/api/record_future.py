"""Futures that `send()` and `send_arrow()` give: cheap until somebody asks.

In: a place in a batch. Out: `RecordMetadata`, or the batch's error. Must not: hold the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.clients.producer.batch import ProducerBatch, RecordMetadata
from odradek.clients.producer.delivery import Delivery, OffsetRange
from odradek.common.errors import KafkaTimeoutError

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
        self._wait(timeout)
        return self._batch.metadata(self._index, self._timestamp_ms)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; give the record's error instead of raising it, None if well."""
        self._wait(timeout)
        return self._batch.done.error

    def _wait(self, timeout: float | None) -> None:
        batch = self._batch
        if not batch.done.done:
            what = f"acknowledgement of records for {batch.partition}"
            self._producer.await_outcome(batch.done, what, timeout)

    def add_done_callback(self, callback: Callable[[RecordFuture], None]) -> None:
        """Call `callback(future)` once the outcome is there, on the producer's I/O thread.

        It must be quick and mustn't wait for anything of this producer.
        """
        self._batch.done.when_done(lambda _: callback(self))


class ArrowFuture:
    """The outcome of one `send_arrow()`.

    It keeps a few numbers for each partition, not the data: that is let go batch by batch.
    """

    __slots__ = ("_delivery", "_producer")

    def __init__(self, producer: Producer, delivery: Delivery) -> None:
        self._producer = producer
        self._delivery = delivery

    @property
    def rows(self) -> int:
        """How many records there are."""
        return self._delivery.rows

    def done(self) -> bool:
        """Whether all outcomes are there."""
        return self._delivery.done.done

    def result(self, timeout: float | None = None) -> list[OffsetRange]:
        """Wait until every row is acknowledged; give the offsets by partition, in order.

        `timeout` in seconds, default `delivery.timeout.ms`. Raises `KafkaTimeoutError` when not all
        outcomes are there by then (the rows go on being sent), else the first error among them.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._delivery.ranges()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; give the first error instead of raising it, None if well."""
        if not self._delivery.done.done:
            what = f"acknowledgement of {self.rows} records"
            self._producer.await_outcome(self._delivery.done, what, timeout)
        return self._delivery.error

    def add_done_callback(self, callback: Callable[[ArrowFuture], None]) -> None:
        """Call `callback(future)` once all outcomes are there, on the producer's I/O thread.

        It must be quick and mustn't wait for anything of this producer.
        """
        self._delivery.done.when_done(lambda _: callback(self))


def not_yet(error: KafkaTimeoutError) -> KafkaTimeoutError:
    """The error of a wait that ended before the delivery timeout did."""
    error.add_note("The records are still being sent.")
    return error
