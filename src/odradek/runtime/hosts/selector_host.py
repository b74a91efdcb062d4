"""Run a client's engine in the caller's thread; the engine only works during calls.

In: the engine's effects (I/O operations to do). Out: the engine's inputs; whether a completion is
done at its deadline. One pass is: step, do the I/O operations, sleep in the selector until an event
or a deadline, pass events to the engine. Must not: decide anything about Kafka.

After a `run` that Ctrl-C has ended (see `interrupt`), the next call works as usual. Any other
exception from outside during a pass (R-HO-1) *tears* the host: an operation is half done. `torn` is
then true, and the client sets a new engine (`renew`). A pass is at a safe point while it sleeps or
runs a user's callback; otherwise code that interrupts it (a signal handler, a finalizer) mustn't
run the engine (R-HO-2).
"""

from __future__ import annotations

import math
import selectors
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.common.errors import ClientBrokenError, IllegalStateError, SystemLimitError
from odradek.network.effects import Call
from odradek.network.flow import Completion
from odradek.network.host import EngineInputs
from odradek.runtime.fork import watch
from odradek.runtime.hosts.engine_host import PIECES, EngineHost
from odradek.runtime.hosts.interrupt import InterruptGuard, from_outside
from odradek.runtime.hosts.transport import Transport, flush_all
from odradek.runtime.hosts.wakeup import WakeUp
from odradek.runtime.locks import LONGEST_WAIT, new_lock, new_mark
from odradek.runtime.system_clock import monotonic_clock

if TYPE_CHECKING:
    from odradek.runtime.tls.file_contexts import TlsSource

T = TypeVar("T")

REFUSED = (
    "the system has no file descriptors left for this client ({}): close some, or raise the "
    "limit (ulimit -n); a later call tries again"
)
CLOSING_LOOK = 0.05
"""Seconds between two checks whether another thread ended its `run` without closing the host."""


class SelectorHost(EngineHost):
    """The host of a client that one thread at a time uses; `seed` fixes the random generator.

    `tls` returns the TLS context of each connection; None means no TLS. `on_call` receives `Call`s
    with `where="caller"`; by default, they run in the thread that steps.
    """

    def __init__(
        self,
        *,
        tls: TlsSource | None = None,
        clock: Callable[[], float] = monotonic_clock(),  # noqa: B008 - one function
        seed: int | None = None,
        on_call: Callable[[Call], None] | None = None,
    ) -> None:
        super().__init__(tls=tls, clock=clock, seed=seed)
        self._on_call = on_call or self._run_call
        self._selector: selectors.BaseSelector | None = None
        self._at_work = new_lock()
        """Lock of the thread that runs the engine now; shows whether it is the current thread."""
        self._busy = new_mark()
        """Locked together with `_at_work`; shows other threads whether a thread runs the engine."""
        self._amid = False
        """Whether a pass is between two safe points, and no call may run; remains set if `torn`."""
        self._interrupts = InterruptGuard(lambda: self._amid and self._at_work.is_mine())
        self._wake_up = WakeUp()
        self.nudge = self._wake_up.wake
        """Function that wakes as `wake` does, without the check for a forked child."""
        self._close_at: float | None = None
        self._quiet = False
        """Whether the last step requested no I/O operation."""
        self._stepped = -math.inf
        """Time of the last step."""
        self._close_done = threading.Event()

    # Methods for clients

    def check(self) -> None:
        """Raise in a forked child; raise a callback's error that was passed to `surface`."""
        self.guard.check()
        if self._raised and self.surfacing and not self.interrupted:
            self._raise()

    def surface(self, error: BaseException) -> None:
        """Let a call of the program raise a callback's error, once the step is over (R-HO-5)."""
        self._raised.append(error)

    on_its_own = callers_first = False
    gone = False

    def _raise(self) -> None:
        raise self._raised.popleft()

    @property
    def interrupted(self) -> bool:
        """Whether this thread was interrupted between two safe points (R-HO-2)."""
        return self.lock.is_mine() or (self._amid and self._at_work.is_mine())

    @property
    def inside(self) -> bool:
        """Whether a call can't wait, because it interrupts the client in its own thread."""
        return self.interrupted

    @property
    def torn(self) -> bool:
        """Whether an exception such as Ctrl-C interrupted a pass, so that the state is unknown."""
        return self._torn or (self._amid and not self._busy.locked())

    @property
    def in_use(self) -> bool:
        """Whether sockets are open."""
        return self._selector is not None

    def renew(self, engine: EngineInputs) -> None:
        """Close all sockets of a `torn` engine, and run another engine from now on."""
        super().renew(engine)
        self._amid = False

    def open(self) -> None:
        """Open the selector before a thread starts to run this; may raise `SystemLimitError`."""
        self.guard.check()
        self._opened_selector()

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Run the engine until the completion is done (return True) or the deadline passed."""
        self.guard.check()
        if completion.done:
            return True
        return self._work(partial(self._run, completion, deadline))

    def _run(self, completion: Completion[Any], deadline: float | None) -> bool:
        self._catch_up()
        while True:
            wanted = self._advance()
            if completion.done or self._closed:
                return completion.done
            if self._close_at is not None:
                self._end(self._close_at)
                return completion.done
            while True:
                now = self._clock()
                late = deadline is not None and now >= deadline
                brought = self._poll(0.0 if late else self._patience(now, wanted, deadline))
                if late:
                    self._advance()
                    return completion.done
                soon = self._stepped + PIECES
                if wanted is not None and wanted < soon:
                    soon = wanted
                if not brought or self._clock() >= soon or self._interrupts.pending:
                    break
                if self._selector is None:  # a signal handler has closed the client
                    break
                engine = self._engine
                if engine is None or engine.inputs or self._deferred or self._close_at is not None:
                    break
                wanted = soon  # no response is complete yet: step later

    def drive(self) -> None:
        """Run one pass without sleeping; during a step (in a callback), do nothing."""
        self.guard.check()
        if self.interrupted:
            return
        self._work(self._drive)

    def _drive(self) -> None:
        self._catch_up()
        wanted = self._advance()
        if self._closed or (self._quiet and (wanted is None or wanted > self._clock())):
            return
        self._poll(0.0)  # responses may have arrived by now
        self._advance()

    def wake(self) -> None:
        """Wake the thread that sleeps in `run`, if there is one."""
        self.guard.check()
        self._wake_up.wake()

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action after the current step; if no step is running, after the next one."""
        self.guard.check()
        self._deferred.append(action)
        self._wake_up.wake()

    def run_deferred(self) -> None:
        """Run the deferred actions; after the host was closed, several threads may do this."""
        while self._deferred:
            try:
                action = self._deferred.popleft()
            except IndexError:  # another thread runs the action
                return
            action()

    def close(self, deadline: float) -> None:
        """Do the engine's last I/O operations, write queued bytes, close all sockets.

        During a step, do this right after the step. If another thread is working, let that thread
        close, and wait for it until the deadline. In a forked child, only close the child's copies
        of the file descriptors.
        """
        if self.guard.forked:
            self.abandon()
            return
        if self._closed:
            if not self._busy.locked():
                self._release()  # again, if the first time was interrupted
            return
        if self.interrupted:
            self._close_at = deadline
            self._deferred.append(lambda: self._end(deadline))
            return
        if self._at_work.is_mine():
            self._work(lambda: self._end(deadline))
            return
        while self._busy.locked():
            self._close_at = deadline
            self._wake_up.wake()
            left = deadline - self._clock()
            if left <= 0 or self._close_done.wait(min(left, CLOSING_LOOK)):
                return
        if self.torn or self._engine is None:
            self._closed = True
            self._release()
        elif not self._closed:
            self._work(lambda: self._end(deadline))

    def _end(self, deadline: float) -> None:
        if self._closing and self._closed:
            return
        self._closing = True
        try:
            self._advance()
            self._amid = False
            self._flush(deadline)
        finally:
            self._closed = True
            self._release()
            self._close_done.set()

    def drop(self) -> None:
        """Close all sockets without sending, because this host isn't referenced any more."""
        if not self.guard.forked and not self._busy.locked():
            self._closed = True
            self._release()

    def abandon(self) -> None:
        """Close the file descriptors in a forked child without affecting the parent."""
        self._wake_up.abandon()
        selector, self._selector = self._selector, None
        if selector is not None:
            selector.close()  # doesn't change the parent's epoll set
        super().abandon()

    # The loop

    def _work(self, job: Callable[[], T]) -> T:
        """Run a function in this thread; while it is at a safe point, another one may run."""
        if self._engine is None:
            self._attached()
        if self._at_work.is_mine():
            if self.interrupted:
                raise IllegalStateError(
                    "a callback of the client can't make a call that waits for the same client"
                )
            return self._pass(job)
        if self._busy.locked():
            raise IllegalStateError(
                "another thread is using this client, which takes one call at a time, because it "
                "works in the caller's thread (an admin client with background=True takes "
                "several calls)"
            )
        if self._torn or self._amid:  # `_amid` without a working thread: torn
            raise ClientBrokenError(
                "an exception interrupted this client while it was working, "
                "so its state is inconsistent"
            )
        with self._at_work, self._busy:
            installed = self._interrupts.install()
            try:
                return self._pass(job)
            finally:
                if installed:
                    self._interrupts.remove()

    def _pass(self, job: Callable[[], T]) -> T:
        try:
            self._amid = True
            result = job()
            self._amid = False
        except BaseException:
            if self._amid:  # `job` raises only at safe points: Ctrl-C etc.
                self._torn = not self._closed
            self._amid = False
            raise
        if self._close_at is not None and not self._closed:
            self._end(self._close_at)
        return result

    def _safe(self, action: Callable[[], T]) -> T:
        """Run code at a safe point: it may be interrupted, and may call this client."""
        self._amid = False
        result = action()  # if this raises, nothing is half done
        self._amid = True
        return result

    def _catch_up(self) -> None:
        """Read bytes that arrived between two calls, before requests time out."""
        if self._transports and not self._closed:
            self._poll(0.0)

    def _advance(self) -> float | None:
        """Step once and do the I/O operations; return when the engine must step again."""
        if self._interrupts.pending:
            self._safe(self._interrupts.check)
        engine = self._engine or self._attached()
        self._wake_up.step_begins()
        now = self._stepped = self._clock()
        wanted = engine.step(now)
        effects = engine.effects
        if self._closed:
            effects.clear()
        self._quiet = not (effects or self._deferred)
        while effects:
            self._carry_out(effects.popleft())
        if self._deferred:
            self.run_deferred()
        if self._raised and self.surfacing:
            self._safe(self._raise)
        return wanted

    def _patience(self, now: float, wanted: float | None, deadline: float | None) -> float | None:
        """Return how many seconds to sleep at most; None for no limit."""
        outsiders = self.external_results
        late = outsiders.next_deadline() if outsiders.owed else None
        first = math.inf if wanted is None else wanted
        if deadline is not None and deadline < first:
            first = deadline
        if late is not None and late < first:
            first = late
        return None if first == math.inf else min(max(0.0, first - now), LONGEST_WAIT)

    def _poll(self, timeout: float | None) -> bool:
        """Sleep until a socket is ready, a wake-up or the timeout; pass events to the engine.

        Returns whether only sockets, not `wake`, ended the sleep.
        """
        selector = self._selector or self._opened_selector()
        hungry: list[Transport] = []
        if self._tls is not None:
            hungry = [t for t in self._transports.values() if t.established and t.pending]
        if hungry:
            timeout = 0.0
        if timeout == 0.0:
            ready = selector.select(0)
        else:
            ready = self._sleep(selector, timeout)
        for transport in hungry:
            self._receive(transport)
            self._watch(transport)
        woken = False
        for key, mask in ready:
            if key.data is None:
                self._wake_up.drain()
                woken = True
                continue
            transport = key.data
            if self._transports.get(transport.connection) is transport:
                self._serve(transport, mask)
        if self.external_results.owed:
            self.external_results.expire(self._clock())
        return bool(ready) and not woken

    def _sleep(
        self, selector: selectors.BaseSelector, timeout: float | None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        try:
            self._wake_up.goes_to_sleep()
            if self._interrupts.pending:
                self._safe(self._interrupts.check)
            # Inputs recorded before `goes_to_sleep` are noticed here; later ones wake the selector.
            engine = self._engine or self._attached()
            early = engine.inputs or self._deferred or self._close_at is not None
            self._amid = False  # like `_safe`, inlined
            ready = self._select(selector, 0.0 if early or self._wake_up.pending else timeout)
            self._amid = True
            return ready
        finally:
            self._wake_up.is_awake()

    def _select(
        self, selector: selectors.BaseSelector, timeout: float | None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        try:
            return selector.select(timeout)
        except (OSError, ValueError):
            if self._closed:  # a signal handler has closed the client
                return []
            raise

    def _opened_selector(self) -> selectors.BaseSelector:
        """Return the selector; the first call creates it and registers the socket that wakes it.

        Raises `SystemLimitError`.
        """
        if self._selector is not None:
            return self._selector
        made: selectors.BaseSelector | None = None
        try:
            made = selectors.DefaultSelector()
            self._wake_up.open(made)
            watch(self)
            self._selector = made
        except BaseException as error:
            self._selector = None
            self._wake_up.close()
            if made is not None:
                made.close()
            if isinstance(error, OSError) and not from_outside(error):
                raise SystemLimitError(error.errno, REFUSED.format(error.strerror)) from error
            raise
        return made

    # Calls

    def call_here(self, call: Call) -> None:
        """Run a call in the thread of the waiting caller."""
        self._on_call(call)

    def _run_call(self, call: Call) -> None:
        self.expect_call(call)
        self._safe(lambda: self.external_results.run(call.token, call.function, call.arguments))

    # Closing

    def _flush(self, deadline: float) -> None:
        waiting = [t for t in [*self._leaving, *self._transports.values()] if t.established]
        flush_all([t for t in waiting if t.queued], deadline, self._clock)

    def _release(self) -> None:
        super()._release()
        self._wake_up.close()
        if self._selector is not None:
            self._selector.close()
            self._selector = None
