"""Define the futures of `AsyncProducer`: awaitable, and cheap until they are awaited.

In: a record's position in a batch, or the delivery of many rows. Out: a future for `asyncio`:
`await`, `gather`, `wait`, `wait_for`, `shield`, callbacks. All state for these is created on first
use. Must not: keep a reference to the record, or let the cancellation of one task that waits affect
another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from odradek.clients.calls.record_sending import DeliveryCallback
from odradek.clients.producer.batch import BatchOutcome, ProducerBatch, RecordMetadata
from odradek.clients.producer.delivery import OffsetRange, RowsDelivery
from odradek.common.arguments import function
from odradek.common.errors import ArgumentError
from odradek.common.options.migration_hints import missing_method
from odradek.network.flow import Completion
from odradek.runtime.hosts.outcome_future import running_loop

if TYPE_CHECKING:
    from odradek.clients.producer.delivery import ErrorColumn

logger = logging.getLogger("odradek")

T = TypeVar("T")


class Surfacing(Protocol):
    """Interface of the producer that returned a future."""

    def _check_loop(self) -> None:
        """Raise if the running event loop isn't the producer's."""

    def _surface(self, error: BaseException) -> None:
        """Let the program's next or waiting call raise a callback's error (R-HO-5)."""


def _arrived(waiter: asyncio.Future[None]) -> None:
    """Wake a task that waits, because the outcome is known."""
    if not (waiter.done() or waiter.get_loop().is_closed()):
        waiter.set_result(None)


class LoopFuture(Generic[T]):
    """Base class of the futures of `AsyncProducer`; subclasses store the result."""

    __slots__ = ("_cancelled", "_listeners", "_producer")
    _asyncio_future_blocking = False
    """`asyncio.isfuture` recognizes a future by this attribute; `gather` then creates no task."""
    _cancel_message = None

    def __init__(self, producer: Surfacing) -> None:
        self._producer = producer
        self._cancelled = False
        self._listeners: list[tuple[object, Callable[[], object]]] | None = None

    if not TYPE_CHECKING:  # unknown methods raise as those of clients

        def __getattr__(self, name: str) -> object:
            raise missing_method(self, name)

    # Methods of subclasses

    def _is_over(self) -> bool:
        """Return whether the outcome is known."""
        raise NotImplementedError

    def _outcome(self) -> T:
        """Return the result, or raise its error."""
        raise NotImplementedError

    def _error(self) -> BaseException | None:
        """Return the error; None on success."""
        raise NotImplementedError

    def _once_over(self, call: Callable[[], object]) -> None:
        """Call a function in the event loop once the outcome is known."""
        raise NotImplementedError

    # Methods of asyncio's futures

    def done(self) -> bool:
        """Return whether the result is available or this future was cancelled."""
        return self._cancelled or self._is_over()

    def cancelled(self) -> bool:
        """Return whether this future was cancelled; the producer still sends the record."""
        return self._cancelled

    def cancel(self, msg: object = None) -> bool:
        """Cancel this future; the record is sent nevertheless."""
        if self.done():
            return False
        self._cancelled = True
        self._tell()
        return True

    def result(self) -> T:
        """Return the result, or raise its error.

        Raises `InvalidStateError` if the result isn't available yet.
        """
        self._check()
        return self._outcome()

    def exception(self) -> BaseException | None:
        """Return the error; None on success. Raises as `result` before the outcome is known."""
        self._check()
        return self._error()

    def _check(self) -> None:
        if self._cancelled:
            raise asyncio.CancelledError
        if not self._is_over():
            raise asyncio.InvalidStateError(
                "the result isn't available yet: await this future first"
            )

    @staticmethod
    def _make_cancelled_error() -> asyncio.CancelledError:
        """Return the error that `gather` raises for a cancelled future (called by asyncio)."""
        return asyncio.CancelledError()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which must be the producer's until the result is available."""
        if not self.done():
            self._producer._check_loop()  # noqa: SLF001
        return running_loop()

    def add_done_callback(
        self, fn: Callable[[Self], object], *, context: Context | None = None
    ) -> None:
        """Let the event loop call `fn(future)` once the result is available."""
        loop = self.get_loop()
        if self.done():
            loop.call_soon(fn, self, context=context)
            return
        function("fn", fn)
        context = context or copy_context()

        def over() -> None:
            if not loop.is_closed():  # the loop is closed if the client outlives it
                loop.call_soon(fn, self, context=context)

        self._listen(fn, over)

    def remove_done_callback(self, fn: Callable[[Self], object]) -> int:
        """Remove callbacks that `add_done_callback` added; return how many were removed."""
        kept = [one for one in self._listeners or () if one[0] != fn]
        removed = len(self._listeners or ()) - len(kept)
        self._listeners = kept or (self._listeners and [])
        return removed

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the outcome.

        If the wait is cancelled (`asyncio.timeout`, a cancelled task), the record is sent
        nevertheless, and other tasks continue to wait. Raises `IllegalStateError` if there is no
        outcome yet and the running loop isn't the producer's.
        """
        if not self.done():
            waiter = self.get_loop().create_future()
            self._listen(waiter, partial(_arrived, waiter))
            try:
                yield from waiter
            finally:
                if not self.done():
                    self.remove_done_callback(waiter)  # type: ignore[arg-type]  # what it is known by
        return self.result()

    __iter__ = __await__

    def _listen(self, who: object, tell: Callable[[], object]) -> None:
        if self.done():
            tell()
            return
        if self._listeners is None:
            self._listeners = [(who, tell)]
            self._once_over(self._tell)
        else:
            self._listeners.append((who, tell))

    def _tell(self) -> None:
        found, self._listeners = self._listeners, []
        for _, tell in found or ():
            tell()

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else "finished" if self.done() else "pending"
        return f"<{type(self).__name__} {state}>"


class DeliveryFuture(LoopFuture[RecordMetadata]):
    """The result of one `send()` of an `AsyncProducer`: `await` returns `RecordMetadata`.

    `await` raises the batch's error if the record failed; the result is available within
    `delivery.timeout.ms`.

        >>> delivery = await producer.send("flights", b"JFK")
        >>> (await delivery).offset
        0
    """

    __slots__ = ("_batch", "_index", "_timestamp_ms")
    _blank = (("_cancelled", False), ("_listeners", None))
    """Initial values of attributes, for `OpenBatches`, which creates futures without `__init__`."""

    def __init__(
        self, producer: Surfacing, batch: ProducerBatch, index: int, timestamp_ms: int
    ) -> None:
        self._producer = producer  # no super() call, to save time
        self._cancelled = False
        self._listeners = None
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def result(self) -> RecordMetadata:
        """Return the record's partition and offset, or raise its error.

        Raises `InvalidStateError` if the result isn't available yet.
        """
        batch = self._batch
        if batch.done.done and batch.parts is None and not self._cancelled:
            return batch.metadata(self._index, self._timestamp_ms)
        return super().result()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait for the outcome, in as little time as possible, as each record may be awaited."""
        batch = self._batch
        over = batch.done.done
        if not over and not self._cancelled and self._listeners is None:
            self._producer._check_loop()  # noqa: SLF001
            # A loop is running, as `_check_loop` hasn't raised.
            waiter = asyncio.get_running_loop().create_future()
            self._listeners = [(waiter, partial(_arrived, waiter))]
            batch.done.when_done(self._look)
            try:
                yield from waiter
            finally:
                if not waiter.done() or waiter.cancelled():
                    self.remove_done_callback(waiter)  # type: ignore[arg-type]
            over = batch.done.done
        if over and batch.parts is None and not self._cancelled:
            return batch.metadata(self._index, self._timestamp_ms)
        return (yield from super().__await__())

    __iter__ = __await__

    def _find(self) -> tuple[ProducerBatch, bool]:
        """Return the record's batch (or its part of a split batch), and whether it has ended."""
        batch, _, over = self._batch.find(self._index)
        return batch, over

    def _is_over(self) -> bool:
        return self._find()[1]

    def _outcome(self) -> RecordMetadata:
        return self._batch.metadata(self._index, self._timestamp_ms)

    def _error(self) -> BaseException | None:
        return self._find()[0].error()

    def _look(self, done: Completion[BatchOutcome]) -> None:
        """Wake the tasks that wait for a finished batch, unless it was split."""
        batch = self._batch
        if done is batch.done and batch.parts is None:
            self._tell()
        else:
            self._once_over(self._tell)

    def _once_over(self, call: Callable[[], object]) -> None:
        def look(_: object) -> None:
            if self._is_over():
                call()
            else:  # the batch was split
                self._once_over(call)

        self._find()[0].done.when_done(look)

    def _told(self) -> tuple[BaseException | None, RecordMetadata]:
        batch, _ = self._find()
        error = batch.error()
        if error is None:
            return None, self._outcome()
        return error, RecordMetadata(*batch.partition, -1, self._timestamp_ms)


class RowsDeliveryFuture(LoopFuture[list[OffsetRange]]):
    """Base class of the futures of `send_arrow()` and `send_many()`."""

    __slots__ = ("_delivery",)

    def __init__(self, producer: Surfacing, delivery: RowsDelivery) -> None:
        super().__init__(producer)
        self._delivery = delivery

    @property
    def rows(self) -> int:
        """Number of records."""
        return self._delivery.rows

    def acknowledged(self) -> list[OffsetRange]:
        """Return the offsets of the written records, even if other records failed."""
        self._check()
        return self._delivery.ranges()

    def _is_over(self) -> bool:
        return self._delivery.done.done

    def _outcome(self) -> list[OffsetRange]:
        if (error := self._delivery.outcome()) is not None:
            raise error
        return self._delivery.ranges()

    def _error(self) -> BaseException | None:
        return self._delivery.outcome()

    def _once_over(self, call: Callable[[], object]) -> None:
        def over(_: object) -> None:
            call()

        self._delivery.done.when_done(over)


class ArrowDeliveryFuture(RowsDeliveryFuture):
    """The result of one `send_arrow()`: `await` returns the offsets by partition, in order.

    If rows failed, `await` raises the first error. Once the result is available, `errors()` returns
    which rows failed, and `acknowledged()` the offsets of the other rows.
    """

    __slots__ = ()

    def errors(self) -> ErrorColumn | None:
        """Return a column of errors as `ArrowFuture.errors` does, or None if no row failed."""
        self._check()
        return None if self._delivery.outcome() is None else self._delivery.error_column()


class ManyDeliveryFuture(RowsDeliveryFuture):
    """The result of one `send_many()`: `await` returns the offsets by partition, in order.

    If records failed, `await` raises the first error. Once the result is available, `errors()`
    returns which records failed, and `acknowledged()` the offsets of the other records.
    """

    __slots__ = ()

    def errors(self) -> list[BaseException | None] | None:
        """Return a list of errors as `ManyFuture.errors` does, or None if no record failed."""
        self._check()
        return None if self._delivery.outcome() is None else self._delivery.errors()


def tell_delivery(future: DeliveryFuture, on_delivery: DeliveryCallback) -> DeliveryFuture:
    """Call `on_delivery`, passed to `send`, with a record's outcome, within the client's step.

    An `Exception` is logged; any other exception is raised in the program's next call.
    """
    function("on_delivery", on_delivery)
    if iscoroutinefunction(on_delivery):
        raise ArgumentError(
            "on_delivery can't be `async def`, because nothing would await it: await the future "
            "that send() returns"
        )

    def tell() -> None:
        try:
            on_delivery(*future._told())  # noqa: SLF001  # of this module
        except Exception:
            logger.exception("the callback %r raised an error", future)
        except BaseException as error:
            future._producer._surface(error)  # noqa: SLF001

    future._once_over(tell)  # noqa: SLF001
    return future
