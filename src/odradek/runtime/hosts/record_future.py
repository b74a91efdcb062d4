"""Futures that `send()`, `send_many()` and `send_arrow()` give: cheap until somebody asks.

In: a place in a batch. Out: `RecordMetadata`, or the batch's error; a future as
`concurrent.futures` and `asyncio` know it (`runtime.outcome_future`). Must not: hold the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from odradek.clients.calls.producer_calls import Found
from odradek.clients.calls.record_sending import DeliveryCallback
from odradek.clients.producer.batch import ProducerBatch, RecordMetadata
from odradek.clients.producer.delivery import OffsetRange, RowsDelivery
from odradek.common.arguments import function
from odradek.common.errors import KafkaTimeoutError
from odradek.common.options.habits import missing_method
from odradek.runtime.hosts.outcome_future import OutcomeFuture

if TYPE_CHECKING:
    from odradek.clients.producer.delivery import ErrorColumn


logger = logging.getLogger("odradek")

F = TypeVar("F")


class SendingClient(Protocol):
    """The producer that gave a future."""

    def _surface(self, error: BaseException) -> None:
        """Have what a callback raised come out of a call of the program's (R-HO-5)."""

    def _await_outcome(self, find: Callable[[], Found], timeout: float | None) -> None:
        """Wait for what `find` says; raises `KafkaTimeoutError` when it isn't there in time."""

    def _too_late(self, of: ProducerBatch | int) -> KafkaTimeoutError:
        """The error of a wait that ended before there was an outcome."""

    def _watched(self) -> float:
        """Somebody waits without a call; gives the seconds that a call would wait."""


class RecordFuture(OutcomeFuture[RecordMetadata]):
    """The outcome of one `send()`.

    It is a `concurrent.futures.Future`: `wait`, `as_completed` and `asyncio.wrap_future` take it,
    and a coroutine may `await` it, which ends as `result()` does and holds up no event loop. What
    was sent can't be taken back: `cancel()` is always False.

    >>> producer.send("flights", b"JFK").result(timeout=10).offset
    0
    """

    __slots__ = ("_batch", "_index", "_producer", "_timestamp_ms")
    _blank = ()
    """What else a new one has: `OpenBatches` makes it without a call of this class."""

    def __init__(
        self, producer: SendingClient, batch: ProducerBatch, index: int, timestamp_ms: int
    ) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    if not TYPE_CHECKING:  # a checker of types goes on to refuse names that aren't there

        def __getattr__(self, name: str) -> object:
            raise missing_method(self, name)

    def done(self) -> bool:
        """Whether the outcome is there."""
        return self._find()[1]

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most `timeout` seconds (default: `delivery.timeout.ms`).

        Raises `KafkaTimeoutError` when it isn't there by then (the record goes on being sent until
        its delivery timeout), else whatever error ended the record's batch.
        """
        batch = self._batch
        if not batch.done.done:
            self._producer._await_outcome(self._waited_for, timeout)
        elif batch.parts is not None:
            self._wait(timeout)
        return batch.metadata(self._index, self._timestamp_ms)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; give the record's error instead of raising it, None if well."""
        self._wait(timeout)
        return self._find()[0].done.error

    def _find(self) -> tuple[ProducerBatch, bool]:
        """The batch the record is in (another one once a batch was split); whether it is over."""
        batch, _, over = self._batch.find(self._index)
        return batch, over

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            self._producer._await_outcome(self._waited_for, timeout)

    def _waited_for(self) -> Found:
        batch, _, over = self._batch.find(self._index)
        return batch, batch.done, over

    def _begin_waiting(self) -> float:
        return self._producer._watched()

    def _too_late(self) -> KafkaTimeoutError:
        batch, _ = self._find()
        return self._producer._too_late(batch)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback(future)` once the outcome is there, on the producer's I/O thread.

        When it is there already, it is called at once, in this thread. It must be quick and mustn't
        wait for anything of this producer. What it raises is logged and has no other effect;
        `SystemExit` and `KeyboardInterrupt` come out of the program's next call of this producer.
        """
        function("callback", callback)
        self._find()[0].done.when_done(lambda _: self._report(callback))

    def _told(self) -> tuple[BaseException | None, RecordMetadata]:
        batch, _ = self._find()
        error = batch.done.error
        if error is None:
            return None, self._batch.metadata(self._index, self._timestamp_ms)
        return error, RecordMetadata(*batch.partition, -1, self._timestamp_ms)

    def _report(self, callback: Callable[[RecordFuture], object]) -> None:
        batch, over = self._find()
        if not over:  # the batch was split
            batch.done.when_done(lambda _: self._report(callback))
            return
        called(callback, self, self._producer)


class RowsFuture(OutcomeFuture[list[OffsetRange]]):
    """The outcome of many rows; whoever inherits says in which form it tells errors."""

    __slots__ = ("_delivery", "_producer")

    def __init__(self, producer: SendingClient, delivery: RowsDelivery) -> None:
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
        outcomes are there by then (the rows go on being sent), else the first error among them:
        `errors()` tells which rows failed, `acknowledged()` where the others are.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._delivery.ranges()

    def acknowledged(self, timeout: float | None = None) -> list[OffsetRange]:
        """Wait as `result` does; give the offsets of what was written, though other rows failed."""
        self.exception(timeout)
        return self._delivery.ranges()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; give the first error instead of raising it, None if well."""
        if not self._delivery.done.done:
            self._producer._await_outcome(self._waited_for, timeout)
        return self._delivery.error

    def _waited_for(self) -> Found:
        return self.rows, self._delivery.done, self._delivery.done.done

    def _begin_waiting(self) -> float:
        return self._producer._watched()

    def _too_late(self) -> KafkaTimeoutError:
        return self._producer._too_late(self.rows)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` once all outcomes are there, on the producer's I/O thread.

        As with `RecordFuture`: quickly, without waiting; what it raises is logged.
        """
        function("callback", callback)
        self._delivery.done.when_done(lambda _: called(callback, self, self._producer))


class ArrowFuture(RowsFuture):
    """The outcome of one `send_arrow()`: a `concurrent.futures.Future`, and awaitable.

    It keeps a few numbers for each partition, not the data: that is let go batch by batch.
    """

    __slots__ = ()

    def errors(self, timeout: float | None = None) -> ErrorColumn | None:
        """Wait as `result` does; give None, or a column of errors if some rows failed.

        It has an entry for each row of the data, in order: the error's class and text, and null
        where the row was written. So what failed is
        `table.filter(pyarrow.compute.is_valid(future.errors()))`. A row whose time or retries ran
        out after it was sent may have been written nevertheless, and so may one whose error says
        so; no other marked one was.
        """
        if self.exception(timeout) is None:
            return None
        return self._delivery.error_column()


class ManyFuture(RowsFuture):
    """The outcome of one `send_many()`: a `concurrent.futures.Future`, and awaitable.

    It keeps a few numbers for each partition, not the records: those are let go batch by batch.
    """

    __slots__ = ()

    def errors(self, timeout: float | None = None) -> list[BaseException | None] | None:
        """Wait as `result` does; give None, or a list of errors if some records failed.

        It has an item for each record, in order: its error, and None where the record was written.
        A record whose time or retries ran out after it was sent may have been written nevertheless,
        and so may one whose error says so; no other one with an error was.
        """
        return None if self.exception(timeout) is None else self._delivery.errors()


def report_to(future: RecordFuture, on_delivery: DeliveryCallback) -> None:
    """Have a record's outcome told as `on_delivery` of `send` gets it."""
    future.add_done_callback(lambda _: on_delivery(*future._told()))


def called(callback: Callable[[F], object], future: F, producer: SendingClient) -> None:
    """Call a user's callback; it is called amid the engine's step, which no error may leave.

    What is meant to end more than the callback comes out of the program's next call (R-HO-5).
    """
    try:
        callback(future)
    except Exception:
        logger.exception("the callback %r raised an error", future)
    except BaseException as error:
        producer._surface(error)
