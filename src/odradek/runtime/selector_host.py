"""Runs an engine in the caller's thread: no background work, except for names and worker calls.

In: the engine's effects. Out: the engine's inputs, and completions that are done in time.
One pass is: step, carry out the effects, sleep in the selector until something happens or a
deadline comes, feed what happened. Must not: decide anything about Kafka, or work while
nobody calls.

Ctrl-C: see `interrupt`; a `run` that it ends leaves host and engine ready for the next call.
"""

from __future__ import annotations

import random
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from odradek.common.errors import IllegalStateError, KafkaError
from odradek.common.types import Lock, NullLock, Rng
from odradek.network.effects import Call, Close, Effect, Open, Resolve, Send
from odradek.network.flow import Completion
from odradek.network.host import EngineInputs
from odradek.runtime.fork import ForkGuard, watch
from odradek.runtime.interrupt import InterruptGuard
from odradek.runtime.outsiders import Outsiders
from odradek.runtime.resolver import Answer, Resolver, is_numeric
from odradek.runtime.transport import READ, WRITE, Transport, flush_all
from odradek.runtime.wakeup import WakeUp

if TYPE_CHECKING:
    from odradek.runtime.tls_context import TlsSource

HIGH_WATER = 16 << 20
"""Queued bytes of one connection above which the engine is told to hold back."""
LOW_WATER = 4 << 20
READ_BUDGET = 2 << 20
"""Bytes that one connection reads before the others have their turn."""


class SelectorHost:
    """A host for one thread at a time. `seed` fixes the random generator, for tests.

    `tls` gives the context of each dial, None means that TLS isn't spoken.
    """

    def __init__(
        self,
        *,
        tls: TlsSource | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        self.lock: Lock = NullLock()
        self.guard = ForkGuard()
        self.on_call: Callable[[Call], None] = self._run_call
        """Who takes the calls with `where="caller"`; they run inline unless a thread is between."""
        self.outsiders = Outsiders(self.wake)
        self._clock = clock
        self._seed = seed
        self._tls = tls
        self._rng: random.Random | None = None
        self._engine: EngineInputs | None = None
        self._selector: selectors.BaseSelector | None = None
        self._transports: dict[int, Transport] = {}
        self._leaving: list[Transport] = []
        self._deferred: deque[Callable[[], None]] = deque()
        self._resolver = Resolver()
        self._interrupts = InterruptGuard()
        self._wake_up = WakeUp()
        self._owner: int | None = None
        self._stepping = False
        self._closing = False
        self._closed = False

    # What facades see

    def attach(self, engine: EngineInputs) -> None:
        """Take the engine; nothing is opened yet."""
        if self._engine is not None:
            raise IllegalStateError("this host has an engine already")
        self._engine = engine

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock()

    wall_clock = staticmethod(time.time)
    """Seconds since the epoch; without a call between, as a producer asks for each record."""

    def rng(self) -> Rng:
        """This client's generator, seeded from the system's entropy unless a seed was given."""
        self.guard.check()
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Work until the completion is done or the deadline passed; say whether it is done."""
        self.guard.check()
        if completion.done:
            return True
        if self._stepping and self._owner == threading.get_ident():
            raise IllegalStateError("a callback of the client can't wait for the client")
        with self._working():
            self._catch_up()
            while True:
                wanted = self._advance()
                if completion.done or self._closed:
                    return completion.done
                now = self._clock()
                late = deadline is not None and now >= deadline
                self._poll(0.0 if late else self._patience(now, wanted, deadline))
                if late:
                    self._advance()
                    return completion.done

    def drive(self) -> None:
        """One pass without sleeping; inside a step (a callback) nothing, as one is under way."""
        self.guard.check()
        if self._stepping and self._owner == threading.get_ident():
            return
        with self._working():
            self._catch_up()
            self._advance()
            if not self._closed:
                self._poll(0.0)
                self._advance()

    def wake(self) -> None:
        """End the sleep of the thread that is inside `run`, if there is one."""
        self.guard.check()
        self._wake_up.wake()

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action after the step that is under way, or else at the next one."""
        self.guard.check()
        self._deferred.append(action)
        self._wake_up.wake()

    def close(self, deadline: float) -> None:
        """Carry out what the engine left, write what is queued, close everything.

        From within a step it happens right after it. In a forked child only the child's copies of
        the file descriptors are closed.
        """
        if self.guard.forked:
            self.abandon()
            return
        if self._closed or self._closing:
            return
        if self._stepping and self._owner == threading.get_ident():
            self.defer(lambda: self.close(deadline))
            return
        with self._working():
            self._closing = True
            try:
                self._advance()
                self._flush(deadline)
            finally:
                self._interrupts.interruptible = False
                self._closed = True
                self._release()

    def abandon(self) -> None:
        """In a forked child: close file descriptors, and touch nothing that is shared."""
        for transport in [*self._transports.values(), *self._leaving]:
            transport.abandon()
        self._transports.clear()
        self._leaving.clear()
        self._wake_up.abandon()
        selector, self._selector = self._selector, None
        if selector is not None:
            selector.close()  # closes the epoll descriptor; unregisters nothing
        self._closed = True

    # The loop

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Note who works; nested calls from user code in the same thread are fine."""
        me, before = threading.get_ident(), self._owner
        if before is not None and before != me:
            raise IllegalStateError("this client is being used by another thread right now")
        was_open = self._interrupts.interruptible
        try:
            self._owner, self._interrupts.interruptible = me, False
            with self._interrupts:
                yield
        finally:
            self._owner = before
            self._interrupts.interruptible = was_open

    def _attached(self) -> EngineInputs:
        if self._engine is None:
            raise IllegalStateError("this host has no engine yet")
        return self._engine

    def _catch_up(self) -> None:
        """Read what came while the caller was away: an answer that waits here isn't overdue."""
        if self._transports and not self._closed:
            self._poll(0.0)

    def _advance(self) -> float | None:
        """Step once and carry out what comes of it; return when the engine wants to step again."""
        self._interrupts.check()
        engine = self._attached()
        self._stepping = True
        self._wake_up.pending = False  # from here on a wake-up asks for another step
        try:
            wanted = engine.step(self._clock())
        finally:
            self._stepping = False
        effects = engine.effects
        if self._closed:
            effects.clear()
        while effects:
            self._carry_out(effects.popleft())
        while self._deferred:
            self._deferred.popleft()()
        return wanted

    def _patience(self, now: float, wanted: float | None, deadline: float | None) -> float | None:
        """How long to sleep; None without end."""
        times = [t for t in (wanted, deadline, self.outsiders.next_deadline()) if t is not None]
        return max(0.0, min(times) - now) if times else None

    def _poll(self, timeout: float | None) -> None:
        """Sleep until a socket is ready, somebody wakes us or the time is up; feed the engine."""
        selector = self._opened_selector()
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
        for key, mask in ready:
            if key.data is None:
                self._wake_up.drain()
                continue
            transport = key.data
            if self._transports.get(transport.connection) is transport:
                self._serve(transport, mask)
        self.outsiders.expire(self._clock())

    def _sleep(
        self, selector: selectors.BaseSelector, timeout: float | None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        self._wake_up.open(selector)
        try:
            self._interrupts.interruptible = True
            self._wake_up.sleeping = True
            self._interrupts.check()
            # An input that came before `sleeping` was set is seen here, a later one wakes us.
            if self._wake_up.pending or self._attached().has_inputs or self._deferred:
                timeout = 0.0
            return selector.select(timeout)
        finally:
            self._wake_up.sleeping = False
            self._interrupts.interruptible = False

    def _opened_selector(self) -> selectors.BaseSelector:
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            watch(self)
        return self._selector

    # Effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Open():
                self._open(effect)
            case Close():
                self._close(effect.connection)
            case Resolve():
                self._resolve(effect)
            case Call(where="caller"):
                self.on_call(effect)
            case Call():
                self.expect_call(effect)
                self.outsiders.run_in_thread(effect.token, effect.function, effect.arguments)

    def _send(self, effect: Send) -> None:
        transport = self._transports.get(effect.connection)
        if transport is None:  # lost meanwhile; the engine will hear, or has heard, of it
            return
        idle = not transport.queued
        try:
            transport.queue(effect.request.encode())
        except Exception as error:  # a request that can't be written: nobody may wait for it
            identity = effect.request.correlation_id
            self._attached().not_sent(effect.connection, identity, error)
            return
        if idle and transport.established:
            self._flush_one(transport)
        self._tell_writable(transport)
        self._watch(transport)

    def _open(self, effect: Open) -> None:
        if self._closing:
            self._attached().disconnected(effect.connection, "the client is closing")
            return
        try:
            transport = self._new_transport(effect)
        except Exception as error:  # a context of the user's that can't be had
            self._attached().disconnected(effect.connection, error)
            return
        self._transports[effect.connection] = transport
        try:
            up = transport.open(effect.ip)
        except (OSError, KafkaError) as error:
            self._lost(transport, error)
            return
        if up:
            self._connecting(transport, tcp=True)
        else:
            self._watch(transport)

    def _new_transport(self, effect: Open) -> Transport:
        tunnel = None
        if effect.hop is not None:
            from odradek.runtime.tunnel import Tunnel

            tunnel = Tunnel(effect.hop)
        if self._tls is None or effect.plain:
            return Transport(effect.connection, effect.address, tunnel)
        from odradek.runtime.tls import TlsTransport

        return TlsTransport(effect.connection, effect.address, self._tls(), tunnel)

    def _close(self, connection: int) -> None:
        transport = self._transports.pop(connection, None)
        if transport is None:
            return
        if self._closing and transport.queued and transport.established:
            self._leaving.append(transport)  # its last requests are still written
            return
        self._unwatch(transport)
        transport.close()

    def _resolve(self, effect: Resolve) -> None:
        engine = self._attached()
        if is_numeric(effect.host):
            engine.resolved(effect.token, [effect.host])
            return
        token, outsiders = effect.token, self.outsiders

        def report(result: Any, error: BaseException | None) -> None:
            engine.resolved(token, result if error is None else error)

        def deliver(answer: Answer) -> None:
            if isinstance(answer, BaseException):
                outsiders.answer(token, None, answer)
            else:
                outsiders.answer(token, answer, None)

        outsiders.expect(token, effect.deadline, report)
        self._resolver.resolve(effect.host, effect.port, deliver)

    def expect_call(self, call: Call) -> None:
        """Note that a call's end is to be reported."""
        engine = self._attached()
        self.outsiders.expect(
            call.token,
            call.deadline,
            lambda result, error: engine.called(call.token, result, error),
        )

    def _run_call(self, call: Call) -> None:
        self.expect_call(call)
        before, self._interrupts.interruptible = self._interrupts.interruptible, True
        try:
            self.outsiders.run(call.token, call.function, call.arguments)
        finally:
            self._interrupts.interruptible = before

    # Sockets

    def _watch(self, transport: Transport) -> None:
        if transport.sock is None or transport.watched == transport.wanted:
            return
        selector = self._opened_selector()
        if transport.watched:
            selector.modify(transport.fd, transport.wanted, transport)
        else:
            selector.register(transport.fd, transport.wanted, transport)
        transport.watched = transport.wanted

    def _unwatch(self, transport: Transport) -> None:
        if transport.watched and self._selector is not None:
            self._selector.unregister(transport.fd)
            transport.watched = 0

    def _serve(self, transport: Transport, mask: int) -> None:
        if not transport.established:
            self._connecting(transport, tcp=transport.tcp_up)
            return
        if mask & WRITE or transport.tls:
            self._flush_one(transport)
        # With TLS either readiness may be what reading waits for.
        if transport.sock is not None and (mask & READ or transport.tls):
            self._receive(transport)
        self._tell_writable(transport)
        self._watch(transport)

    def _connecting(self, transport: Transport, *, tcp: bool) -> None:
        try:
            if not tcp:
                transport.finish_connect()
            transport.tcp_up = True
            if not transport.handshake():
                self._watch(transport)
                return
        except (OSError, ValueError, KafkaError) as error:  # ValueError: a name that TLS can't have
            self._lost(transport, error)
            return
        transport.established = True
        self._attached().connected(transport.connection)
        if transport.queued:
            self._flush_one(transport)
        self._watch(transport)

    def _flush_one(self, transport: Transport) -> None:
        try:
            transport.flush()
        except OSError as error:
            self._receive(transport)  # an answer may have come before the end
            if transport.sock is not None:
                self._lost(transport, error)

    def _receive(self, transport: Transport) -> None:
        engine, budget = self._attached(), READ_BUDGET
        while budget > 0 and transport.sock is not None:
            buffer = engine.get_buffer(transport.connection)
            room = min(len(buffer), budget)
            try:
                count = transport.receive(buffer[:room])
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(transport, error)
                return
            if count == 0:
                self._lost(transport, None)
                return
            engine.buffer_updated(transport.connection, count)
            budget -= count
            if count < room:
                # Nothing is left, or an end: that comes at the next call, when the engine has seen
                # what was said last (a broker says why it refuses a password, and hangs up).
                return

    def _lost(self, transport: Transport, error: BaseException | None) -> None:
        self._transports.pop(transport.connection, None)
        self._unwatch(transport)
        transport.close()
        self._attached().disconnected(transport.connection, error)

    def _tell_writable(self, transport: Transport) -> None:
        if transport.sock is None:
            return
        if not transport.full and transport.queued > HIGH_WATER:
            transport.full = True
        elif transport.full and transport.queued < LOW_WATER:
            transport.full = False
        else:
            return
        self._attached().writable(transport.connection, not transport.full)

    # The end

    def _flush(self, deadline: float) -> None:
        waiting = [t for t in [*self._leaving, *self._transports.values()] if t.established]
        self._interrupts.interruptible = True
        flush_all([t for t in waiting if t.queued], deadline, self._clock)

    def _release(self) -> None:
        self.outsiders.clear()
        for transport in [*self._transports.values(), *self._leaving]:
            self._unwatch(transport)
            transport.close()
        self._transports.clear()
        self._leaving.clear()
        self._wake_up.close()
        selector, self._selector = self._selector, None
        if selector is not None:
            selector.close()
