"""Run a client's engine in a daemon thread, so that the engine also works between calls.

In: as for `SelectorHost`, which this host runs in the thread. Out: results for callers, which may
wait in any thread. Must not: start the thread before the first call, or keep the interpreter from
exiting, which doesn't wait for daemon threads.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ClientBrokenError, ClientClosedError, IllegalStateError
from odradek.common.types import Lock, Rng
from odradek.network.effects import Call
from odradek.network.flow import Completion
from odradek.network.host import EngineInputs
from odradek.runtime.hosts.io_log import io_log
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.locks import new_lock
from odradek.runtime.system_clock import monotonic_clock, wall_clock

if TYPE_CHECKING:
    from odradek.runtime.tls.file_contexts import TlsSource

logger = logging.getLogger("odradek")

NO_THREAD = 0
"""A value that isn't the id of any thread."""
JOIN_GRACE = 0.05
"""Seconds after the deadline of `close` for which the thread's end is awaited."""


class _Waiter:
    """A thread that waits in `run`; unlike an `Event`, this creates no lock for each wait."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self, _: object = None) -> None:
        """End the thread's wait; if the thread isn't waiting, end its next wait."""
        try:
            self._lock.release()
        except RuntimeError:  # already woken
            return

    def wait(self, seconds: float) -> None:
        """Sleep until `wake` is called, for at most this number of seconds."""
        self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class ThreadHost:
    """The host of a client that any number of threads use."""

    def __init__(
        self,
        *,
        tls: TlsSource | None = None,
        clock: Callable[[], float] = monotonic_clock(),  # noqa: B008 - one function
        seed: int | None = None,
    ) -> None:
        self._inner = SelectorHost(tls=tls, clock=clock, seed=seed, on_call=self._take_call)
        self._guard = self._inner.guard
        self.lock: Lock = self._inner.lock
        self._clock = clock
        self.now = clock
        """Function that returns monotonic seconds; the clock itself, to save a Python call."""
        self._start_lock = new_lock()
        self._thread: threading.Thread | None = None
        self._runs: dict[str, int] = {}
        """Key "thread": id of the thread that runs the engine. `setdefault` sets it only once."""
        self.raised: deque[BaseException] = deque()
        """Errors of callbacks, to be raised by the program's next calls."""
        self._end: Completion[None] = Completion()
        self._close_deadline: float | None = None
        self._ended = False
        self._crash: BaseException | None = None
        self._calls: deque[Call] = deque()
        self._waiters: list[_Waiter] = []

    def attach(self, engine: EngineInputs) -> None:
        """Set the engine; the thread starts at the first `run` or `wake`."""
        self._inner.attach(engine)

    wall_clock = staticmethod(wall_clock())
    """Function that returns the seconds since the epoch, written in C, as each record calls it."""

    def _check(self) -> None:
        # Calls are inlined, as this runs three times for each record whose result a caller awaits.
        if os.getpid() != self._guard.pid or sys.is_finalizing():
            self._guard.check()
            raise ClientClosedError(
                "Python is shutting down and has stopped this client's I/O thread: call close() "
                "before, or use the client in a `with` block"
            )

    def check(self) -> None:
        """Raise if `cut_off`; raise a callback's error that was passed to `surface`."""
        self._check()
        if self.raised and self.surfacing:
            self._raise()

    def surface(self, error: BaseException) -> None:
        """Let a waiting call, or the program's next call, raise a callback's error (R-HO-5)."""
        self.raised.append(error)
        for waiter in list(self._waiters):
            waiter.wake()

    on_its_own = True
    callers_first = False
    surfacing = True
    gone = False

    def _raise(self) -> None:
        if not self.inside:
            with suppress(IndexError):  # another thread has raised the error
                raise self.raised.popleft()

    @property
    def interrupted(self) -> bool:
        """Whether this thread holds the client's lock, or is starting the I/O thread (R-HO-2)."""
        return self.lock.is_mine() or self._start_lock.is_mine()

    @property
    def cut_off(self) -> bool:
        """Whether this is a forked child, or the interpreter is ending.

        When the interpreter exits, it stops daemon threads at any point, perhaps with a lock held,
        so that a finalizer that waits for this client would never return.
        """
        return self._guard.forked or sys.is_finalizing()

    @property
    def in_use(self) -> bool:
        """Whether the I/O thread was started and hasn't ended."""
        return self._thread is not None and not self._ended

    torn = False
    """Always False, because signal handlers don't run in the thread that steps."""

    def renew(self, engine: EngineInputs) -> None:
        """Raise an error, because this host is never torn, so that its engine is never replaced."""
        raise IllegalStateError("a client with a background thread can't be recreated")

    def rng(self) -> Rng:
        """Return this client's random generator, which the engine uses in the I/O thread."""
        return self._inner.rng()

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Wait until the completion is done or the deadline passed; return whether it is done.

        `Call`s with `where="caller"` run in the thread that waits.
        """
        self._check()
        already = completion.done
        if already:
            return True
        if self.inside:
            raise IllegalStateError(
                "a callback of the client can't make a call that waits for the same client"
            )
        if not self._start():
            return self._run_after_end(completion)
        if self.interrupted:
            raise IllegalStateError(
                "a signal handler that interrupts the client can't make a "
                "call that waits for the same client"
            )
        waiter = _Waiter()
        try:
            self._waiters.append(waiter)
            completion.when_done(waiter.wake)
            self._inner.nudge()
            while True:
                if self._calls:
                    self._run_calls()
                if completion.done:
                    return True
                if self.raised and self.surfacing:
                    self._raise()
                if self._ended or not (self._runs or self._start()):
                    return self._run_after_end(completion)
                left = threading.TIMEOUT_MAX if deadline is None else deadline - self._clock()
                if left <= 0:
                    return False
                waiter.wait(left)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if not completion.done:
                completion.forget(waiter.wake)

    def drive(self) -> None:
        """Do nothing, because the I/O thread does the work that is due."""
        self._check()

    def wake(self) -> None:
        """Let the I/O thread process new inputs; start the thread if necessary."""
        self._check()
        if not self._runs:
            self._start()
        self._inner.nudge()

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action in the I/O thread between two steps; if that has ended, in this thread."""
        self._check()
        self._inner.defer(action)
        if self._ended:
            self._inner.run_deferred()
        else:
            self.wake()

    def close(self, deadline: float) -> None:
        """Let the I/O thread write the queued bytes and end; wait for it until the deadline.

        Also wait for slow log handlers. If a callback calls this in the I/O thread, don't wait. If
        the host is `cut_off`, only close this process's copies of the file descriptors.
        """
        if self.cut_off:
            self._inner.abandon()
            return
        if self.interrupted:  # the I/O thread closes; don't wait for it
            self._closing(deadline)
            return
        with self._start_lock:
            self._closing(deadline)
            thread = self._thread
            dead = thread is not None and not thread.is_alive()
            if dead and self._runs.setdefault("thread", NO_THREAD) == NO_THREAD:
                thread = None  # its start was interrupted: it does nothing
            if thread is None:
                self._ended = True
        if thread is None:
            self._inner.close(deadline)
        elif not self.inside:
            # RuntimeError: the start of this thread was interrupted; another thread does the work.
            with suppress(RuntimeError):
                thread.join(max(0.0, deadline - self._clock()) + JOIN_GRACE)
            io_log.drain(deadline - self._clock() + JOIN_GRACE)

    def _closing(self, deadline: float) -> None:
        if self._close_deadline is None:
            self._close_deadline = deadline
        if not self._ended:
            self._inner.defer(self._finish)  # repeating this is harmless

    def drop(self) -> None:
        """Let the I/O thread end, without waiting, as the client was freed (R-HO-4)."""
        if self.cut_off or self._ended:
            return
        if self._thread is None:
            self._inner.drop()
        elif self._close_deadline is None:
            self._close_deadline = self._clock()
            self._inner.defer(self._finish)

    # The I/O thread

    @property
    def inside(self) -> bool:
        """Whether the calling thread is the I/O thread, which runs a callback."""
        return self._runs.get("thread") == threading.get_ident()

    def _start(self) -> bool:
        """Start the I/O thread unless it runs; return False if it has ended permanently.

        An exception may interrupt this at any point, also within `Thread.start`. So if the thread
        doesn't seem to run, another one is started, and the first one that runs does the work. The
        selector is opened here, so that the caller gets the error if the system refuses it
        (`SystemLimitError`), and a later call can retry.
        """
        if self._runs:
            return not self._ended
        if self._start_lock.is_mine():
            return True  # this interrupts a call of `_start`, which continues
        with self._start_lock:
            thread = self._thread
            if not self._ended and (thread is None or not (self._runs or thread.is_alive())):
                self._inner.open()
                self._thread = threading.Thread(target=self._main, name="odradek-io", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the system allows no further thread
                    self._thread = None
                    raise
        return not self._ended

    def _finish(self) -> None:
        if not self._end.done:
            self._end.complete(None)

    def _main(self) -> None:
        if self._runs.setdefault("thread", threading.get_ident()) != threading.get_ident():
            return
        io_log.enter()
        try:
            self._inner.run(self._end, None)
        except BaseException as error:  # a bug: waiting callers must get an error
            self._crash = error
            logger.critical("the client's I/O thread ended", exc_info=error)
        try:
            self._inner.close(
                self._clock() if self._close_deadline is None else self._close_deadline
            )
        except Exception as error:
            self._crash = self._crash or error
        finally:
            self._ended = True
            for waiter in list(self._waiters):
                waiter.wake()
            self._inner.run_deferred()  # actions added before `_ended` was set
            io_log.leave()

    def _run_after_end(self, completion: Completion[Any]) -> bool:
        """Run the engine in this thread, as the I/O thread has ended; return whether it is done."""
        if self._crash is not None:
            raise ClientBrokenError(
                f"the client's I/O thread failed: {self._crash!r}"
            ) from self._crash
        with self._start_lock:
            return self._inner.run(completion, self._clock())

    # Calls in the caller's thread

    def _take_call(self, call: Call) -> None:
        self._inner.expect_call(call)
        self._calls.append(call)
        for waiter in list(self._waiters):
            waiter.wake()

    def _run_calls(self) -> None:
        outsiders = self._inner.external_results
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:  # another waiting thread runs the call
                return
            if outsiders.owes(call.token):
                outsiders.run(call.token, call.function, call.arguments)
