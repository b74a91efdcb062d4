"""Define flows, which are coroutine-like generators, and the objects that they wait for.

A flow yields a `Wait` and is sent the time when it is resumed; it reads no clock and calls no user
code. A `Completion` is a result that is set once, a `Signal` a repeated notification. In: the
engine resumes flows. Out: completions, for which callers of a client wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.common.errors import IllegalStateError, KafkaError

T = TypeVar("T")


class Waitable:
    """An object that a flow can wait for; the engine registers the flow's wake-up function."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # A dict keeps insertion order, so that runs are deterministic.
        self._waiters: dict[Callable[[], None], None] = {}

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Register `wake`, to be called at the next notification."""
        self._waiters[wake] = None

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        """Remove a function that `subscribe` has registered."""
        self._waiters.pop(wake, None)

    @property
    def awaited(self) -> bool:
        """Whether a flow waits for this object."""
        return bool(self._waiters)

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for wake in waiters:
            wake()


class Signal(Waitable):
    """A notification that may be sent many times; it wakes the flows that wait at that time."""

    __slots__ = ("serial",)

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0

    def notify(self) -> None:
        """Wake all flows that wait at this time."""
        self.serial += 1
        if self._waiters:
            self._wake_all()


class Completion(Waitable, Generic[T]):
    """A result that is set exactly once; threads other than the engine's may read it."""

    __slots__ = ("_callbacks", "_result", "done", "error")

    def __init__(self) -> None:
        # No call of super().__init__, to save time: each request and batch has a Completion.
        self._waiters = {}
        self.done = False
        self._result: T | None = None
        self.error: BaseException | None = None
        """The exception with which the operation failed; None otherwise."""
        self._callbacks: list[Callable[[Completion[T]], None]] = []

    def fail(self, error: BaseException) -> None:
        """Set the error; raise if there is a result already, which is a bug."""
        if not self.done:
            self.error = error
        self.complete(None)  # type: ignore[arg-type]  # it has no value

    def complete(self, result: T) -> None:
        """Set the result; raise if there is one already, which is a bug."""
        if self.done:
            # Not a KafkaError, which would only end the flow with the bug, and hide the bug.
            raise RuntimeError("a completion was completed twice")
        self._result = result
        self.done = True
        # Remove callbacks from the end: removing 160,000 from the front would take quadratic time.
        self._callbacks.reverse()
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:  # removed in another thread (`when_done`, `forget`)
                break
            callback(self)
        if self._waiters:
            self._wake_all()

    def when_done(self, callback: Callable[[Completion[T]], None]) -> None:
        """Call `callback` in the engine's thread once the result is set; at once if it is set."""
        over = self.done
        if not over:
            self._callbacks.append(callback)
            over = self.done
            if not over:
                return
            # Completed meanwhile: of both threads, the one that removes the callback calls it.
            try:
                self._callbacks.remove(callback)
            except ValueError:
                return
        callback(self)

    @property
    def followed(self) -> bool:
        """Whether a callback is registered and wasn't called yet."""
        return bool(self._callbacks)

    def forget(self, callback: Callable[[Completion[T]], None]) -> None:
        """Remove a callback that `when_done` has registered, if it wasn't called yet."""
        try:
            self._callbacks.remove(callback)
        except ValueError:
            return

    def result(self) -> T:
        """Return the result, or raise the error with which the operation failed."""
        if not self.done:
            raise IllegalStateError("the result isn't available yet")
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # break the cycle: error, traceback, this frame, error
        return self._result  # type: ignore[return-value]  # set by complete()


class Wait(NamedTuple):
    """Wait for any of the waitables or the deadline; without both, the flow doesn't wait."""

    on: tuple[Waitable, ...] = ()
    deadline: float | None = None


Flow = Generator[Wait, float, T]
"""A generator that yields `Wait`s, is sent the current time, and returns its result."""


START = Wait()
"""The first wait of every flow: `now = yield START` returns the time."""


class Task(Generic[T]):
    """A running flow: its generator, what it waits for, and where its result goes."""

    __slots__ = ("_ready", "cancelled", "completion", "flow", "queued", "running", "serial", "wait")

    def __init__(self, flow: Flow[T], ready: Callable[[Task[Any]], None]) -> None:
        self.flow = flow
        self.completion: Completion[T] = Completion()
        self.wait: Wait | None = None
        self.queued = False
        self.running = False
        self.cancelled: BaseException | None = None
        self.serial = 0
        self._ready = ready

    def cancel(self, why: BaseException) -> None:
        """End the flow with this error, as soon as the engine resumes it."""
        self.cancelled = why
        self.wake()

    def wake(self) -> None:
        """Let the engine resume this flow in the current step."""
        if not self.queued and not self.completion.done:
            self.queued = True
            self._ready(self)

    def resume(self, now: float) -> Wait | None:
        """Run the flow to its next wait, and return that; return None if the flow has ended."""
        self.queued = False
        self.serial += 1
        if self.completion.done:
            return None
        if self.wait is not None:
            for waitable in self.wait.on:
                waitable.unsubscribe(self.wake)
        if self.cancelled is not None:
            self.flow.close()
            self.completion.fail(self.cancelled)
            return None
        self.running = True
        try:
            if self.wait is None:
                next(self.flow)
            self.wait = self.flow.send(now)
        except StopIteration as end:
            self.completion.complete(end.value)
            return None
        except KafkaError as error:
            trace = error.__traceback__  # leave this frame out, to avoid a reference cycle
            self.completion.fail(error.with_traceback(trace and trace.tb_next))
            return None
        finally:
            self.running = False
        for waitable in self.wait.on:
            if isinstance(waitable, Completion) and waitable.done:
                self.wake()
            else:
                waitable.subscribe(self.wake)
        if not self.wait.on and self.wait.deadline is None:
            self.wake()
        return self.wait
