"""Define flows and the objects that they wait for.

A flow is a generator that yields `Wait` and is sent the time: it reads no clock and calls no user
code. `Completion` is a one-shot result, `Signal` a repeated notification. In: the engine resumes
flows. Out: completions that hosts return to callers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.common.errors import IllegalStateError, KafkaError

T = TypeVar("T")


class Waitable:
    """Something that a flow can wait for; the engine registers its wake-up function here."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        # A dict keeps the order, so that runs are deterministic.
        self._waiters: dict[Callable[[], None], None] = {}

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Register `wake`, which is called at the next notification."""
        self._waiters[wake] = None

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        """Undo a `subscribe`."""
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
    """A signal that may be sent many times; each waiting flow is woken once and checks again."""

    __slots__ = ("serial",)

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0

    def notify(self) -> None:
        """Wake all flows that wait now."""
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
        """The exception with which the operation failed, if any."""
        self._callbacks: list[Callable[[Completion[T]], None]] = []

    def fail(self, error: BaseException) -> None:
        """Set the error; raise if there is a result already, which is a bug."""
        if not self.done:
            self.error = error
        self.complete(None)  # type: ignore[arg-type]  # it has no value

    def complete(self, result: T) -> None:
        """Set the result; raise if there is one already, which is a bug."""
        if self.done:
            # Not a KafkaError: that would only end the flow that has the bug, and hide the bug.
            raise RuntimeError("a completion was completed twice")
        self._result = result
        self.done = True
        # Callbacks are removed from the end: removing 160,000 from the front would take quadratic
        # time.
        self._callbacks.reverse()
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:  # another thread has removed it (`when_done`, `forget`)
                break
            callback(self)
        if self._waiters:
            self._wake_all()

    def when_done(self, callback: Callable[[Completion[T]], None]) -> None:
        """Call back in the engine's thread at the end, or at once if it is done already."""
        over = self.done
        if not over:
            self._callbacks.append(callback)
            over = self.done
            if not over:
                return
            # Completed meanwhile: the thread that removes the callback from the list calls it.
            try:
                self._callbacks.remove(callback)
            except ValueError:
                return
        callback(self)

    @property
    def followed(self) -> bool:
        """Whether a callback is registered."""
        return bool(self._callbacks)

    def forget(self, callback: Callable[[Completion[T]], None]) -> None:
        """Remove a callback of `when_done` that wasn't called yet."""
        try:
            self._callbacks.remove(callback)
        except ValueError:
            return

    def result(self) -> T:
        """Return the result; raise the error."""
        if not self.done:
            raise IllegalStateError("the result isn't available yet")
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # break the cycle: error, traceback, this frame, error
        return self._result  # type: ignore[return-value]  # set by complete()


class Wait(NamedTuple):
    """Wait for any of the waitables or the deadline; without both, resume in the same step."""

    on: tuple[Waitable, ...] = ()
    deadline: float | None = None


Flow = Generator[Wait, float, T]
"""A generator that yields waits, is sent `now`, and returns its result."""


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
        """Run to the next wait; return None if the flow has ended. Raise a bug in the flow."""
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
            trace = error.__traceback__  # without this frame, to avoid a cycle
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
