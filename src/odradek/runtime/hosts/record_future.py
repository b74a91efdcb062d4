"""Define the futures of `send()`, `send_many()` and `send_arrow()`, which cost little if unused.

In: a record's position in a batch. Out: `RecordMetadata`, or the batch's error; a future for
`concurrent.futures` and `asyncio` (see `outcome_future`). Must not: keep a reference to the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from odradek.clients.calls.producer_calls import Found
from odradek.clients.calls.record_sending import DeliveryCallback
from odradek.clients.producer.batch import ProducerBatch, RecordMetadata
from odradek.clients.producer.delivery import OffsetRange, RowsDelivery
from odradek.common.arguments import function
from odradek.common.errors import KafkaTimeoutError
from odradek.common.options.migration_hints import missing_method
from odradek.runtime.hosts.outcome_future import OutcomeFuture

if TYPE_CHECKING:
    from odradek.clients.producer.delivery import ErrorColumn


logger = logging.getLogger("odradek")

F = TypeVar("F")


class SendingClient(Protocol):
    """Interface of the producer that returned a future."""

    def _surface(self, error: BaseException) -> None:
        """Let the program's next or waiting call raise a callback's error (R-HO-5)."""

    def _defer(self, action: Callable[[], None]) -> None:
        """Run an action on the producer's I/O thread."""

    def _await_outcome(self, find: Callable[[], Found], timeout: float | None) -> None:
        """Wait for the outcome that `find` returns; raise `KafkaTimeoutError` on a timeout."""

    def _too_late(self, of: ProducerBatch | int) -> KafkaTimeoutError:
        """Return the error of a wait that timed out."""

    def _watched(self) -> float:
        """Let the client work for a caller that waits by itself; return the timeout in seconds."""


class RecordFuture(OutcomeFuture[RecordMetadata]):
    """The result of one `send()`: a `concurrent.futures.Future` that can also be awaited.

    `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` accept it. `await` returns
    or raises as `result()` does, without blocking the event loop. A record can't be revoked:
    `cancel()` always returns False.

        >>> producer.send("flights", b"JFK").result(timeout=10).offset
        0
    """

    __slots__ = ("_batch", "_index", "_producer", "_timestamp_ms")
    _blank = ()
    """Initial values of attributes, for `OpenBatches`, which creates futures without `__init__`."""

    def __init__(
        self, producer: SendingClient, batch: ProducerBatch, index: int, timestamp_ms: int
    ) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    if not TYPE_CHECKING:  # type checkers report unknown names

        def __getattr__(self, name: str) -> object:
            raise missing_method(self, name)

    def done(self) -> bool:
        """Return whether the result is available."""
        return self._find()[1]

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the result, for at most `timeout` seconds (default: `delivery.timeout.ms`).

        Raises `KafkaTimeoutError` if the result isn't available by then; the producer keeps trying
        until the record's delivery timeout. Raises the batch's error if the record failed.
        """
        batch = self._batch
        if not batch.done.done:
            self._producer._await_outcome(self._waited_for, timeout)
        elif batch.parts is not None:
            self._wait(timeout)
        return batch.metadata(self._index, self._timestamp_ms)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; return the record's error (not raised), or None on success."""
        self._wait(timeout)
        return self._find()[0].error()

    def _find(self) -> tuple[ProducerBatch, bool]:
        """Return the record's batch (or its part of a split batch), and whether it has ended."""
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
        """Call `callback(future)` once the result is available, on the producer's I/O thread.

        If the result is already available, the callback is called immediately, in this thread. It
        must be quick and must not wait for this producer. Its errors are logged and have no other
        effect; `SystemExit` and `KeyboardInterrupt` are raised by the next call of this producer.
        """
        function("callback", callback)
        self._find()[0].done.when_done(lambda _: self._report(callback))

    def _told(self) -> tuple[BaseException | None, RecordMetadata]:
        batch, _ = self._find()
        error = batch.error()
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
    """Base class of the futures of `send_arrow()` and `send_many()`."""

    __slots__ = ("_delivery", "_producer")

    def __init__(self, producer: SendingClient, delivery: RowsDelivery) -> None:
        self._producer = producer
        self._delivery = delivery

    @property
    def rows(self) -> int:
        """Number of records."""
        return self._delivery.rows

    def done(self) -> bool:
        """Return whether all results are available."""
        return self._delivery.done.done

    def result(self, timeout: float | None = None) -> list[OffsetRange]:
        """Wait until every row is acknowledged; return the offsets by partition, in order.

        `timeout` is in seconds (default: `delivery.timeout.ms`). Raises `KafkaTimeoutError` if some
        results aren't available by then; the producer keeps trying. If rows failed, raises the
        first error: `errors()` returns which rows failed, `acknowledged()` the offsets of the other
        rows.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._delivery.ranges()

    def acknowledged(self, timeout: float | None = None) -> list[OffsetRange]:
        """Wait as `result` does; return the offsets of written rows, even if other rows failed."""
        self.exception(timeout)
        return self._delivery.ranges()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; return the first error (not raised), or None on success."""
        if not self._delivery.done.done:
            self._producer._await_outcome(self._waited_for, timeout)
        return self._delivery.outcome()

    def _waited_for(self) -> Found:
        return self.rows, self._delivery.done, self._delivery.done.done

    def _begin_waiting(self) -> float:
        return self._producer._watched()

    def _too_late(self) -> KafkaTimeoutError:
        return self._producer._too_late(self.rows)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` once all results are available, on the producer's I/O thread.

        As with `RecordFuture`, the callback must be quick and must not wait; its errors are logged.
        """
        function("callback", callback)
        self._delivery.done.when_done(lambda _: called(callback, self, self._producer))


class ArrowFuture(RowsFuture):
    """The result of one `send_arrow()`: a `concurrent.futures.Future` that can also be awaited.

    The future keeps a few numbers for each partition, but not the data: memory of the data is
    released batch by batch.
    """

    __slots__ = ()

    def errors(self, timeout: float | None = None) -> ErrorColumn | None:
        """Wait as `result` does; return a column of errors, or None if no row failed.

        The column has an entry for each row of the data, in order: the error's class and text, or
        null if the row was written. `table.filter(pyarrow.compute.is_valid(future.errors()))`
        selects the failed rows. A failed row may have been written anyway if its error says so, or
        if it timed out or ran out of retries after it was sent; no other failed row was written.
        """
        if self.exception(timeout) is None:
            return None
        return self._delivery.error_column()


class ManyFuture(RowsFuture):
    """The result of one `send_many()`: a `concurrent.futures.Future` that can also be awaited.

    The future keeps a few numbers for each partition, but not the records: their memory is
    released batch by batch.
    """

    __slots__ = ()

    def errors(self, timeout: float | None = None) -> list[BaseException | None] | None:
        """Wait as `result` does; return a list of errors, or None if no record failed.

        The list has an item for each record, in order: its error, or None if the record was
        written. A failed record may have been written anyway if its error says so, or if it timed
        out or ran out of retries after it was sent; no other failed record was written.
        """
        return None if self.exception(timeout) is None else self._delivery.errors()


def report_to(future: RecordFuture, on_delivery: DeliveryCallback) -> None:
    """Call `on_delivery`, passed to `send`, with the outcome, always on the producer's I/O thread.

    Even if the outcome is known before the callback is registered, the callback isn't called in
    this thread, because the program may hold a lock that the callback takes.
    """
    producer = future._producer
    registering = get_ident()

    def tell(_: RecordFuture, late: bool = False) -> None:
        if late or registering != get_ident():
            on_delivery(*future._told())
        else:
            producer._defer(partial(called, partial(tell, late=True), future, producer))

    future.add_done_callback(tell)
    registering = 0


def called(callback: Callable[[F], object], future: F, producer: SendingClient) -> None:
    """Call a user's callback within the engine's step; don't raise its errors in the step.

    An `Exception` is logged; any other error is raised in the program's next call (R-HO-5).
    """
    try:
        callback(future)
    except Exception:
        logger.exception("the callback %r raised an error", future)
    except BaseException as error:
        producer._surface(error)
