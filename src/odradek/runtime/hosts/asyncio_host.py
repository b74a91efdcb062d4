"""Run a client's engine in the caller's event loop, without a thread and without polling.

In: the engine's effects (I/O operations to do). Out: the engine's inputs: sockets that the loop
reports as ready, timers, resolved names. The first call binds the client to the running loop; from
then on the engine also works between calls. Must not: block the loop, decide anything about Kafka,
or use the loop's transports: sockets are watched with `add_reader`, and bytes are read from the
socket directly into the engine's buffers.

An exception from outside during a step (a second Ctrl-C) breaks this host as it breaks
`SelectorHost`.

`send()` yields to the loop only if a step is overdue. If a program sends rarely, the loop has run
between two records anyway.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.common.errors import IllegalStateError
from odradek.network.effects import Call
from odradek.network.flow import Completion
from odradek.runtime.fork import watch
from odradek.runtime.hosts.engine_host import PIECES, EngineHost
from odradek.runtime.hosts.interrupt import from_outside
from odradek.runtime.hosts.outcome_future import running_loop
from odradek.runtime.hosts.transport import FLUSH_PATIENCE, READ, WRITE, Transport
from odradek.runtime.system_clock import monotonic_clock

if TYPE_CHECKING:
    from odradek.runtime.tls.file_contexts import TlsSource

logger = logging.getLogger("odradek")

OTHER_LOOP = (
    "this client belongs to another event loop ({}): create, use and close it within one "
    "asyncio.run(); from other threads, use asyncio.run_coroutine_threadsafe()"
)
LOOKS_AGAIN = 0.05
"""If the next step is due more than these seconds after a timer fires, the timer is set again."""
BREATH = 0.001
"""Seconds after which a task that never waits lets the loop run other tasks."""
AWAY = 0.01
"""Seconds of the loop's delay after which sockets are read before calls time out."""
TICK = 0.001
"""Resolution of uvloop's clock in seconds.

Its timers fire too early, by up to this time. Timers due within half of it fire at once.
"""
EXACT = 1e-8
"""Seconds by which other event loops may fire timers too early."""
READ_BUDGET = 512 << 10
"""Maximum number of bytes read from one connection before the loop runs other tasks."""


class AsyncioHost(EngineHost):
    """The host of a client in one event loop; `seed` fixes the random generator, for tests.

    `tls` returns the TLS context of each connection; None means no TLS.
    """

    read_budget = READ_BUDGET

    def __init__(
        self,
        *,
        tls: TlsSource | None = None,
        clock: Callable[[], float] = monotonic_clock(),  # noqa: B008 - one function
        seed: int | None = None,
    ) -> None:
        super().__init__(tls=tls, clock=clock, seed=seed)
        self.waiters: dict[Callable[[], object], None] = {}
        """Functions that wake waiting calls, so that one of them raises a callback's error."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = -1
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        """Time when the timer fires, on this host's clock."""
        self._wanted: float | None = None
        """Time when the engine must step again if no input arrives."""
        self._early = False
        """Whether the loop's timers may fire too early by `TICK`, as in uvloop."""
        self._turned = self._stepped = 0.0
        """Time when the loop last ran this host, and time of the engine's last step."""
        self._asked = 0.0
        """Time when `_soon`, the pending step, was scheduled in the loop."""
        self._stepping = False
        self._written: asyncio.Event | None = None
        self._ended: asyncio.Event | None = None
        """Event that is set when the call that closes the host has finished."""

    # Methods for clients

    def check(self) -> None:
        """Raise in a forked child; raise a callback's error that was passed to `surface`."""
        self.guard.check()
        if self._raised and self.surfacing and not self._stepping:
            raise self._raised.popleft()

    def surface(self, error: BaseException) -> None:
        """Let a waiting call, or the program's next call, raise a callback's error (R-HO-5)."""
        self._raised.append(error)
        for wake in list(self.waiters):
            wake()

    on_its_own = callers_first = True

    @property
    def interrupted(self) -> bool:
        """Whether this code (a signal handler, a finalizer) interrupted a holder of the lock."""
        return self.lock.is_mine()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the client's calls; None before the first call."""
        return self._loop

    @property
    def inside(self) -> bool:
        """Whether the calling code is a callback of the client, run within a step of the engine."""
        return self._stepping and threading.get_ident() == self._thread

    @property
    def torn(self) -> bool:
        """Whether an exception such as Ctrl-C interrupted a step, so that the state is unknown."""
        return self._torn

    @property
    def in_use(self) -> bool:
        """Whether the client was used and isn't closed."""
        return self._loop is not None and not self._closed

    @property
    def gone(self) -> bool:
        """Whether the loop was closed, so that nothing can run any more."""
        return self._loop is not None and self._loop.is_closed()

    def enter(self, *, closing: bool = False) -> float:
        """Begin a call in the running loop and return the time.

        The first call binds the client to the loop; a call in another loop raises. Once the
        client's loop is closed, calls with `closing` are allowed in any loop.
        """
        self.guard.check()  # first: a forked child has no running loop
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = running_loop()  # raises an error with advice
        if loop is self._loop:
            return self._clock()
        if self._loop is not None:
            if closing and self.gone:
                return self._clock()
            state = "which was closed" if self.gone else "which still runs"
            raise IllegalStateError(OTHER_LOOP.format(state))
        watch(self)
        self._loop, self._thread = loop, threading.get_ident()
        self.wake()
        return self._clock()

    def overslept(self, deadline: float) -> None:
        """Process input before a caller times out, if the loop was blocked beyond `deadline`.

        (Older versions of uvloop check their timers before their sockets.)
        """
        if self._clock() > deadline + AWAY:
            self._wanted = min(deadline, self._wanted or deadline)
            self._advance()

    @property
    def overdue(self) -> bool:
        """Whether the step that is scheduled in the loop should have run already."""
        return self._soon is not None and self._clock() - self._asked > BREATH

    async def breathe(self) -> None:
        """Let the event loop run other tasks, if it hasn't for some time."""
        if self.overdue or self._clock() - self._turned > BREATH:
            running_loop()  # raises outside of asyncio
            await asyncio.sleep(0)
            # The loop has run now, so the next call needn't let it run again.
            self._turned = self._asked = self._clock()

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Return whether the completion is done; only called at exit, when no loop runs."""
        return completion.done

    def drive(self) -> None:
        """Do the work that is due now, with one step; during a step, do nothing."""
        self.guard.check()
        self._advance()

    def wake(self) -> None:
        """Let the engine step at the loop's next iteration; any thread may call this."""
        self.guard.check()
        loop = self._loop
        if loop is None or self._closed or loop.is_closed():  # before the first call, `enter` wakes
            return
        if threading.get_ident() != self._thread:
            self.nudge()
        elif self._soon is None:
            self._soon, self._asked = loop.call_soon(self._step_soon), self._clock()

    def nudge(self) -> None:
        """Wake the loop from another thread or a signal handler, by interrupting its sleep."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._step_soon)

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action after the current step; if no step is running, after the next one."""
        self.guard.check()
        self._deferred.append(action)
        self.wake()

    # Closing

    def close(self, deadline: float) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that does the last I/O operations and closes all sockets.

        None if there is nothing to await.

        In a forked child, only the child's copies of file descriptors are closed.
        """
        if self.guard.forked:
            self.abandon()
            return None
        if self._closed:
            self._release()
            return None
        loop = self._loop
        if loop is None or self.gone or self._torn:
            if self.gone and not self._torn:
                self._end_alone()
            self._closed = True
            self._release()
            return None
        return self._end(deadline)

    def _end_alone(self) -> None:
        """End waiting calls after the loop was closed, as nothing can be sent any more."""
        engine = self._attached()
        self._stepping = True
        try:
            engine.step(self._clock())
        finally:
            self._stepping = False
        engine.effects.clear()

    async def _end(self, deadline: float) -> None:
        if self._ended is not None:  # another call is closing: wait for it until the deadline
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), max(0.0, deadline - self._clock()))
            return
        self._closing, self._ended = True, asyncio.Event()
        try:
            self._advance()
            await self._flush(deadline)
        finally:
            self._closed = True
            self._release()
            self._ended.set()

    async def _flush(self, deadline: float) -> None:
        """Write the queued bytes until all are written, nothing progresses, or time is over."""
        for transport in self._leaving:
            self._watch_last(transport)
        while left := [t for t in self._leaving if t.queued]:
            before = sum(t.queued for t in left)
            self._written = asyncio.Event()
            patience = min(FLUSH_PATIENCE, deadline - self._clock())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._written.wait(), max(0.0, patience))
            if sum(t.queued for t in left) >= before or patience <= 0:
                return

    def drop(self) -> None:
        """Close all sockets, in the loop's thread, because this host isn't referenced any more."""
        loop = self._loop
        if self.guard.forked or self._closed or loop is None:
            return
        with suppress(RuntimeError):  # the loop is closed: continue here
            loop.call_soon_threadsafe(self._dropped)
            return
        self._dropped()

    def _dropped(self) -> None:
        self._advance()
        self._closed = True
        self._release()

    def _release(self) -> None:
        super()._release()
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None

    # Stepping

    def _step_soon(self) -> None:
        self._soon = None
        self._turned = self._clock()
        self._advance()

    def _rings(self) -> None:
        self._timer = None
        now = self._turned = self._clock()
        self._early = self._due is not None and now < self._due - EXACT
        self.external_results.expire(now)
        if self._soon is not None:
            return  # the step runs after the woken tasks
        if self._wanted is not None and self._wanted > now + LOOKS_AGAIN:
            self._ring_at(self._wanted, now)  # the wait that the timer was set for is over
        else:
            self._advance()

    def _advance(self) -> None:
        """Step once, do the I/O operations, and schedule the next step."""
        loop, engine = self._loop, self._engine
        if self._stepping or self._closed or self._torn or loop is None or loop.is_closed():
            return
        if engine is None:
            engine = self._attached()
        self._stepping = True
        try:
            now = self._stepped = self._clock()
            if self._wanted is not None and now > self._wanted + AWAY:
                self._catch_up()
            wanted = engine.step(now)
            effects = engine.effects
            while effects:
                self._carry_out(effects.popleft())
            while self._deferred:
                self._deferred.popleft()()
        except BaseException as error:
            self._torn = from_outside(error)
            raise
        finally:
            self._stepping = False
        if engine.inputs or self._deferred:
            self.wake()
        if self.external_results.owed:
            late = self.external_results.next_deadline()
            if wanted is None or (late is not None and late < wanted):
                wanted = late
        self._wanted = wanted
        if wanted is None:
            return
        if wanted <= now:  # step again, after the woken tasks have run
            self.wake()
        else:
            self._ring_at(wanted, now)

    def _catch_up(self) -> None:
        """Process input before timers if the loop was blocked (by a callback, SIGSTOP).

        A response that arrived in the socket meanwhile then doesn't count as overdue.
        """
        for transport in list(self._transports.values()):
            if transport.established:
                self._serve(transport, READ)
                self._go_on_reading(transport)

    def _ring_at(self, when: float, now: float) -> None:
        """Set the timer for `when`, unless it is set for an earlier time.

        A timer that fires too early is set again. This saves calls: most waits end early.
        """
        timer, due = self._timer, self._due
        if timer is not None and due is not None:
            if due <= when:
                return
            timer.cancel()
        if self._loop is not None and not self.gone:
            self._due = when
            # Without a minimum delay, a timer that fires too early would do so again and again.
            patience = max(TICK if self._early else 0.0, when - now)
            self._timer = self._loop.call_later(patience, self._rings)

    # Sockets

    def _ready(self, transport: Transport, mask: int) -> None:
        """Read from or write to a socket that the loop reports as ready."""
        self._turned = self._clock()
        if self._transports.get(transport.connection) is not transport:
            self._write_last(transport)
            return
        try:
            self._serve(transport, mask)
        except BaseException as error:
            self._torn = from_outside(error)
            raise
        if transport.tls:
            self._go_on_reading(transport)
        soon, engine = self._stepped + PIECES, self._engine
        if engine is None or engine.inputs or self._deferred or self._turned >= soon:
            self._advance()
        else:  # no response is complete yet: step later
            self._wanted = soon if self._wanted is None else min(soon, self._wanted)
            self._ring_at(self._wanted, self._turned)

    def _go_on_reading(self, transport: Transport) -> None:
        """Schedule another read if OpenSSL has decrypted bytes, which the socket doesn't show."""
        if transport.tls and transport.established and transport.pending and self._loop:
            self._loop.call_soon(self._ready, transport, READ)

    def _write_last(self, transport: Transport) -> None:
        """Write the last requests while the client closes."""
        if transport not in self._leaving or transport.sock is None:
            self._unwatch(transport)
            return
        try:
            transport.flush()
        except OSError:
            transport.drop()
        self._watch_last(transport)
        if self._written is not None:
            self._written.set()

    def _watch_last(self, transport: Transport) -> None:
        """Watch for writing only (TLS may also need to read), as input isn't needed any more."""
        self._watch(transport, transport.wanted if transport.tls else transport.wanted & ~READ)

    def _watch(self, transport: Transport, wanted: int | None = None) -> None:
        watched = transport.watched
        if wanted is None:
            wanted = transport.wanted
        if transport.sock is None or watched == wanted or self._loop is None:
            return
        loop, fd = self._loop, transport.fd
        if wanted & READ and not watched & READ:
            loop.add_reader(fd, self._ready, transport, READ)
        elif watched & READ and not wanted & READ:
            loop.remove_reader(fd)
        if wanted & WRITE and not watched & WRITE:
            loop.add_writer(fd, self._ready, transport, WRITE)
        elif watched & WRITE and not wanted & WRITE:
            loop.remove_writer(fd)
        transport.now_watched(wanted)

    def _unwatch(self, transport: Transport) -> None:
        if transport.watched and self._loop is not None and not self.gone:
            if transport.watched & READ:
                self._loop.remove_reader(transport.fd)
            if transport.watched & WRITE:
                self._loop.remove_writer(transport.fd)
        transport.now_watched(0)

    def call_here(self, call: Call) -> None:
        """Run a `Call` within the step, because in an event loop no caller's thread waits."""
        self.expect_call(call)
        self.external_results.run(call.token, call.function, call.arguments)
