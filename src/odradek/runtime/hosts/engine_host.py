"""Define the common part of the I/O hosts that run an engine with a selector or event loop.

In: the engine's effects (I/O operations to do). Out: the engine's inputs: events of sockets,
resolved names, results of called functions. Must not: wait, or decide when the engine steps.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.common.errors import IllegalStateError
from odradek.common.types import Lock, Rng
from odradek.network.effects import Call, Close, Effect, Open, Resolve, Send
from odradek.network.host import EngineInputs
from odradek.runtime.fork import ForkGuard
from odradek.runtime.hosts.external_results import ExternalResults
from odradek.runtime.hosts.host_sockets import HostSockets
from odradek.runtime.hosts.interrupt import from_outside
from odradek.runtime.locks import new_lock
from odradek.runtime.resolver import Answer, Resolver, is_numeric
from odradek.runtime.system_clock import wall_clock

if TYPE_CHECKING:
    from odradek.runtime.hosts.transport import Transport
    from odradek.runtime.tls.file_contexts import TlsSource


PIECES = 0.005
"""Seconds after a step in which parts of a large response don't cause another step."""


class EngineHost(HostSockets):
    """Base class of hosts with sockets; `seed` fixes the random generator, for tests.

    `tls` returns the TLS context of each connection; None means no TLS.
    """

    def __init__(
        self, *, tls: TlsSource | None, clock: Callable[[], float], seed: int | None
    ) -> None:
        self.lock: Lock = new_lock()
        self.guard = ForkGuard()
        self.external_results = ExternalResults(self.wake)
        self._clock = clock
        self.now = clock
        """Function that returns monotonic seconds; the clock itself, to save a Python call."""
        self._seed = seed
        self._tls = tls
        self._rng: random.Random | None = None
        self._engine: EngineInputs | None = None
        self._transports: dict[int, Transport] = {}
        self._leaving: list[Transport] = []
        self._deferred: deque[Callable[[], None]] = deque()
        self._resolver = Resolver()
        self._raised: deque[BaseException] = deque()
        self._torn = False
        self._closing = False
        self._closed = False

    if TYPE_CHECKING:  # defined in subclasses

        def wake(self) -> None: ...
        def call_here(self, call: Call) -> None: ...

    # Methods for clients

    def attach(self, engine: EngineInputs) -> None:
        """Set the engine; nothing is opened yet."""
        if self._engine is not None:
            raise IllegalStateError("this client has already been started")
        engine.hosted(from_outside)
        self._engine = engine

    wall_clock = staticmethod(wall_clock())
    """Function that returns the seconds since the epoch, written in C, as each record calls it."""

    def rng(self) -> Rng:
        """Return this client's random generator, which has a random seed unless a seed is set."""
        self.guard.check()
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng

    surfacing = True

    @property
    def cut_off(self) -> bool:
        """Whether this is a forked child of the process that created the host."""
        return self.guard.forked

    def renew(self, engine: EngineInputs) -> None:
        """Close all sockets of a `torn` engine, and run another engine from now on."""
        self._release()
        self._deferred.clear()
        engine.hosted(from_outside)
        self._engine = engine
        self._torn = False

    def abandon(self) -> None:
        """Close the file descriptors in a forked child without affecting the parent."""
        for transport in [*self._transports.values(), *self._leaving]:
            transport.abandon()
        self._transports.clear()
        self._leaving.clear()
        self._closed = True

    def _release(self) -> None:
        """Close all sockets; if this was interrupted, it can be repeated."""
        self.external_results.clear()
        for transport in [*self._transports.values(), *self._leaving]:
            with suppress(OSError, KeyError, ValueError):
                self._unwatch(transport)
            transport.close()
        self._transports.clear()
        self._leaving.clear()

    def _attached(self) -> EngineInputs:
        if self._engine is None:
            raise IllegalStateError("this client hasn't been started yet")
        return self._engine

    # Effects (I/O operations that the engine requests)

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
                self.call_here(effect)
            case Call():
                self.expect_call(effect)
                self.external_results.run_in_thread(effect.token, effect.function, effect.arguments)

    def expect_call(self, call: Call) -> None:
        """Note that the engine waits for the result of a call."""
        engine = self._attached()
        self.external_results.expect(
            call.token,
            call.deadline,
            lambda result, error: engine.called(call.token, result, error),
        )

    def _resolve(self, effect: Resolve) -> None:
        """Resolve a name in a daemon thread, not in the event loop's executor.

        Otherwise, a name server that doesn't answer would delay the end of `asyncio.run()`, which
        waits for the executor.
        """
        engine, token, outsiders = self._attached(), effect.token, self.external_results
        if is_numeric(effect.host):
            engine.resolved(token, [effect.host])
            return

        def deliver(answer: Answer) -> None:
            outsiders.answer(token, answer, answer if isinstance(answer, BaseException) else None)

        outsiders.expect(
            token, effect.deadline, lambda result, error: engine.resolved(token, error or result)
        )
        self._resolver.resolve(effect.host, effect.port, deliver)
