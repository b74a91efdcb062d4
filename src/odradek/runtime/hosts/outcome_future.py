"""Define a `concurrent.futures.Future` whose lock and state are created on first use.

In: `done`, `result`, `exception` and `add_done_callback` of subclasses. Out: what
`concurrent.futures.wait` and `as_completed` need (a lock, a state, waiters), and `await`. It is
created on first use, because most futures are never used. Must not: let the thread that reports
outcomes wait for a lock that user code may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from odradek.common.errors import IllegalStateError
from odradek.runtime.locks import new_lock

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")
PENDING, FINISHED = "PENDING", "FINISHED"
"""States of `concurrent.futures`; a producer's futures are never cancelled or running."""
_making = new_lock()


NO_LOOP = (
    "no asyncio event loop is running here. Await this in a coroutine that asyncio.run() runs; "
    "with another framework, such as trio, use odradek.Producer and odradek.Consumer in threads: "
    "await trio.to_thread.run_sync(consumer.poll)"
)


def running_loop() -> AbstractEventLoop:
    """Return the running asyncio event loop; raise an error that says what to do if none runs.

    The error is also raised in a coroutine of another framework, such as trio.
    """
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        raise IllegalStateError(NO_LOOP) from None


class Watch:
    """The lock, the state and the waiters of one future.

    While the lock is held, the state doesn't change. If the outcome arrives meanwhile, the thread
    that holds the lock reports it on release, so the thread that delivers outcomes never waits.
    """

    __slots__ = ("_lock", "_over", "state", "waiters")

    def __init__(self) -> None:
        self._lock = new_lock()
        self._over: OutcomeFuture[Any] | None = None
        self.state = PENDING
        self.waiters: list[Any] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; the signature is that of `threading.Condition`."""
        return bool(self._lock.acquire(blocking, timeout))

    def release(self) -> None:
        """Release the lock, and report an outcome that arrived meanwhile."""
        self._lock.release()
        self._tell()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def over(self, future: OutcomeFuture[Any]) -> None:
        """Report the outcome to the waiters, now or when the lock is released."""
        self._over = future
        self._tell()

    def _tell(self) -> None:
        future = self._over
        if future is None or self._lock.is_mine() or not self._lock.acquire(blocking=False):
            return
        try:
            if self.state == PENDING:
                self.state, self._over = FINISHED, None
                failed = future.exception() is not None
                for waiter in self.waiters:
                    (waiter.add_exception if failed else waiter.add_result)(future)
        finally:
            self._lock.release()


class OutcomeFuture(Future[T], Generic[T]):
    """Base class of the futures of producers; subclasses store the result."""

    __slots__ = ("_watch",)
    _watch: Watch

    # Methods of subclasses

    def done(self) -> bool:
        """Return whether the result is available."""
        raise NotImplementedError

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome; return the result, or raise the error."""
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome; return the error, or None on success."""
        raise NotImplementedError

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` once the result is available, in any thread."""
        raise NotImplementedError

    def _begin_waiting(self) -> float:
        """Let the client work for a caller that waits without calling `result`.

        Returns the timeout of an `await` in seconds.
        """
        raise NotImplementedError

    def _too_late(self) -> BaseException:
        """Return the error of an `await` that timed out."""
        raise NotImplementedError

    # Common methods

    def cancel(self) -> bool:
        """Return False, because a record can't be revoked."""
        return False

    def cancelled(self) -> bool:
        """Return False, see `cancel`."""
        return False

    def running(self) -> bool:
        """Return whether the result isn't available yet."""
        return not self.done()

    def set_result(self, result: T) -> None:
        """Raise `IllegalStateError`, because only the producer sets results."""
        raise IllegalStateError("only the producer can set the result of a record")

    def set_exception(self, exception: BaseException | None) -> None:
        """Raise `IllegalStateError`, see `set_result`."""
        raise IllegalStateError("only the producer can set the result of a record")

    def set_running_or_notify_cancel(self) -> bool:
        """Raise `IllegalStateError`, see `set_result`."""
        raise IllegalStateError("only the producer can set the result of a record")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'finished' if self.done() else 'pending'}>"

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result as `result()` does, without blocking the event loop.

        If the wait is cancelled, the record is sent nevertheless.
        """
        if self.done():
            return self.result()
        loop = running_loop()
        arrived: Any = loop.create_future()

        def tell(error: BaseException | None = None) -> None:
            if not arrived.done():
                if error is None:
                    arrived.set_result(None)
                else:
                    arrived.set_exception(error)

        def over(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell)

        timer = loop.call_later(self._begin_waiting(), lambda: tell(self._too_late()))
        self.add_done_callback(over)
        try:
            yield from arrived
        finally:
            timer.cancel()
        return self.result()

    # Attributes that the standard library uses

    if not TYPE_CHECKING:  # type checkers know them from the base class

        @property
        def _condition(self) -> Watch:
            return self._watched()

        @property
        def _state(self) -> str:
            return self._watched().state

        @property
        def _waiters(self) -> list[Any]:
            return self._watched().waiters

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        """Return (done, cancelled, result, error), as asyncio in Python 3.14 needs it."""
        if not self.done():
            return False, False, None, None
        error = self.exception()
        return True, False, self.result() if error is None else None, error

    def _watched(self) -> Watch:
        try:
            return self._watch
        except AttributeError:  # first use
            if not self.done():
                self._begin_waiting()
        watch = Watch()
        # Before the watch is stored: if an exception such as Ctrl-C occurs in between, a stored
        # watch without callback would never get the outcome.
        self.add_done_callback(watch.over)
        with _making:  # of two threads' watches, keep the first
            with suppress(AttributeError):
                return self._watch
            self._watch = watch
        return watch
