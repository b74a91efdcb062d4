"""Run a client's engine in virtual time.

In: an engine, its simulation (a `World`), and whether connections carry bytes or objects. Out: the
engine's effects on simulated links, and its inputs at their times. `SimulatedHost` implements
`network.host.Host`, so the released clients and engine run on it unchanged. Must not decide
anything about Kafka, or know what a broker is.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from odradek.common.errors import IllegalStateError, KafkaError
from odradek.common.events import EventLog
from odradek.common.types import NullLock
from odradek.network.effects import Call, Close, Effect, IncomingResponse, Open, Resolve, Send
from odradek.network.flow import Completion
from odradek.network.host import EngineInputs
from odradek.simulation.world.environment import HostEnvironment, Timekeeper
from odradek.simulation.world.link import Link, LinkProfile, Mode, Watcher
from odradek.simulation.world.step_count import StepCount
from odradek.simulation.world.trace import Trace
from odradek.simulation.world.virtual_time import StuckError, Timer

NO_DRIVER = (
    "the running event loop doesn't advance virtual time, so this call would never "
    "end: run the coroutine with kafka_simulation.run(), or in a loop of "
    "kafka_simulation.new_loop() (docs/testing.md says how with pytest-asyncio and anyio)"
)
OTHER_DRIVER = (
    "this client belongs to another event loop ({}): create, use and close it within one "
    "kafka_simulation.run()"
)
LOOKS_AGAIN = 0.2
"""Seconds by which a timer may fire too early, because replacing the timer costs more than that."""


class NoLoop:
    """A placeholder for the loop of a client that is closed before its first call."""

    def is_closed(self) -> bool:
        """Return True: the loop was never open."""
        return True


class SimulatedHost(StepCount):
    """Runs one client's engine in a simulation; created by `World.host`."""

    def __init__(
        self,
        world: HostEnvironment,
        name: str,
        mode: Mode,
        profile: LinkProfile,
        *,
        background: bool,
        traced: bool = True,
    ) -> None:
        super().__init__(name, world.hot_loops)
        self.mode = mode
        self.profile = profile
        self.watcher: Watcher | None = None
        self.lock = NullLock()
        self.background = background
        """Whether the engine steps at every input and timer, as in a thread; otherwise it steps
        only inside a client's call."""
        self.worker_delay = 0.01
        """Duration in virtual seconds of a `Call` with where="worker"."""
        self.trace = Trace(name)
        self._traced = traced
        self.events: EventLog | None = None
        self.links: dict[int, Link] = {}
        self.closed = False
        self._world = world
        self._time = world.time
        self._rng = world.rng(f"client/{name}")
        self._link_rng = world.rng(f"links/{name}")
        self._piece_rng = world.rng(f"pieces/{name}")
        self._engine: EngineInputs | None = None
        self._stepping = self._woken = False
        self.raised: deque[BaseException] = deque()
        self.waiters: dict[Callable[[], object], None] = {}
        self._driver: Timekeeper | None = None
        """The event loop of coroutines that call this client; None before the first call."""
        self._in_call = 0
        self._deadline: float | None = None
        self._timer: Timer | None = None
        self._deferred: deque[Callable[[], None]] = deque()
        self._frozen = False

    # Methods that clients call

    def attach(self, engine: EngineInputs) -> None:
        """Run this engine from now on, and copy the events of its log (if any) to the trace."""
        self._engine = engine
        events = getattr(engine, "events", None)
        if isinstance(events, EventLog):
            self.events = events
            if self._traced:
                self.trace.follow(events)

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._time.now

    def wall_clock(self) -> float:
        """Return the wall-clock time in seconds since the epoch."""
        return self._world.wall_clock()

    def rng(self) -> random.Random:
        """Return this client's random generator, which other clients don't influence."""
        return self._rng

    interrupted = inside = False
    callers_first = False
    torn = False
    in_use = False
    cut_off = False
    surfacing = True
    """Whether calls raise errors of callbacks (see `Host.surfacing`)."""

    @property
    def on_its_own(self) -> bool:
        """Whether this client runs between its calls, while an event loop advances time."""
        return self.background and self._world.driver is not None

    def check(self) -> None:
        """Raise a callback's error that the application is to get."""
        if self.raised and self.surfacing and not self._stepping:
            raise self.raised.popleft()

    def surface(self, error: BaseException) -> None:
        """Raise this error from the next call."""
        self.raised.append(error)
        for wake in list(self.waiters):
            wake()

    @property
    def gone(self) -> bool:
        """Whether the event loop to which this client belongs was closed."""
        return self._driver is not None and self._driver.is_closed()

    def enter(self, *, closing: bool = False) -> float:
        """Begin a coroutine's call in the event loop that advances virtual time.

        The first call binds the client to this loop; a call from another loop raises an error.
        """
        driver = self._world.driver
        if closing and driver is self._driver is None:
            self._driver = NoLoop()  # never used, because no loop will run this client
        if closing and self.gone:
            return self._time.now
        if self.gone or (self._driver and driver and driver is not self._driver):
            state = "which was closed" if self.gone else "which still runs"
            raise IllegalStateError(OTHER_DRIVER.format(state))
        if driver is None:
            raise IllegalStateError(NO_DRIVER)
        if self._driver is None:
            self._driver = driver
            self.background = True
            self.wake()
        return self._time.now

    def overslept(self, deadline: float) -> None:
        """Do nothing: virtual time never passes while a loop is busy."""

    overdue = False

    async def breathe(self) -> None:
        """Do nothing: no other task needs real time to run."""

    def renew(self, engine: EngineInputs) -> None:
        """Replace the engine by this one."""
        self._engine = engine

    def drop(self) -> None:
        """Do nothing: the simulation keeps all of its I/O hosts."""

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Advance virtual time until the completion is done or the deadline has passed."""
        self._in_call += 1
        try:
            self._step_if_due()
            while not completion.done:
                due = self._time.next_at()
                if due is None and deadline is None:
                    raise StuckError(f"{self.name} waits for an event that can no longer happen")
                if deadline is not None and (due is None or due > deadline):
                    self._time.run_until(deadline)
                    self._step_if_due()
                    break
                self._time.fire_next()
            return completion.done
        finally:
            self._in_call -= 1

    def drive(self) -> None:
        """Run every step and action that is due now."""
        self._in_call += 1
        try:
            self._step_if_due()
            self._time.run_until(self._time.now)
        finally:
            self._in_call -= 1

    def wake(self) -> None:
        """Step at the present virtual time because of new inputs, but not in the calling code."""
        if not self._stepping and (self.background or self._in_call):
            self._woken = True
            self._plan(self._time.now)

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action between two steps of the engine."""
        self._deferred.append(action)
        self.wake()

    def close(self, deadline: float) -> None:
        """Carry out pending effects and close all links; the engine takes no more steps."""
        if self.closed:
            return
        self._step_if_due()
        self._carry_out()
        self.closed = True
        for link in self.links.values():
            link.close_by_client()
        self.links.clear()
        if self._timer is not None:
            self._timer.cancel()

    def freeze(self, on: bool = True) -> None:
        """Stop the client's process as by SIGSTOP, or resume it; inputs are delayed until then."""
        self._frozen = on
        if not on:
            self._step_if_due()

    # Stepping

    def _step_if_due(self) -> None:
        engine = self._engine
        if engine is None or self.closed:
            return
        due = self._deadline is not None and self._deadline <= self._time.now
        if engine.inputs or due or self._deferred:
            self._step()

    def _timer_fired(self) -> None:
        self._timer = None
        if self._deadline is None or self.closed:
            return
        if self._deadline > self._time.now:  # the deadline was postponed
            self._plan(self._deadline)
        elif self.background or self._in_call:
            self._step()

    def _step(self) -> None:
        engine = self._engine
        if self._stepping or engine is None or self.closed or self._frozen or self.gone:
            return
        self._stepping = True
        deadline: float | None = None
        now = self._time.now
        try:
            while True:
                while self._deferred:
                    self._deferred.popleft()()
                self.count(now, timed=not (engine.inputs or self._woken))
                self._woken = False
                deadline = engine.step(now)
                if engine.effects:
                    self._carry_out()
                if not engine.inputs and not self._deferred:
                    break
        finally:
            self._stepping = False
        self._deadline = deadline
        if deadline is not None:
            self._plan(deadline)

    def _plan(self, when: float) -> None:
        """Step at `when` or before; if the timer fires too early, it is set again."""
        if self._deadline is None or when < self._deadline:
            self._deadline = when
        timer = self._timer
        if timer is not None:
            if timer.when <= when < timer.when + LOOKS_AGAIN:
                return
            timer.cancel()
        self._timer = self._time.at(self._deadline, self._timer_fired)

    def _input(self) -> None:
        """Step because of new inputs, unless this I/O host steps only inside of calls."""
        if self.background or self._in_call:
            self._step()

    # Effects

    def _carry_out(self) -> None:
        engine = self._engine
        while engine is not None and engine.effects:
            self._one(engine, engine.effects.popleft())

    def _one(self, engine: EngineInputs, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._send(engine, effect)
        elif isinstance(effect, Open):
            self._open(effect)
        elif isinstance(effect, Close):
            link = self.links.pop(effect.connection, None)
            if link is not None:
                link.close_by_client()
                if self.watcher is not None:
                    self.watcher.ended(effect.connection)
        elif isinstance(effect, Resolve):
            self._resolve(engine, effect)
        elif isinstance(effect, Call):
            if effect.where == "caller":
                self._call(engine, effect)
            else:
                left = effect.deadline - self._time.now
                ended = self._worker_ended if self.worker_delay < left else self._worker_late
                self._time.after(min(self.worker_delay, left), lambda: ended(engine, effect))

    def _send(self, engine: EngineInputs, effect: Send) -> None:
        link = self.links.get(effect.connection)
        if link is None:
            return
        try:
            link.send(effect.request)
        except KafkaError as error:  # the request can't be encoded
            engine.not_sent(effect.connection, effect.request.correlation_id, error)
            return
        if not effect.request.answered:
            engine.sent(effect.connection, effect.request.correlation_id)
        if self.watcher is not None:
            self.watcher.sent(effect.connection, effect.request)

    def _open(self, effect: Open) -> None:
        if self.watcher is not None:
            self.watcher.opened(effect.connection, effect.address, effect.ip)
        link = Link(self._time, self, effect.connection, self._link_rng, self._piece_rng)
        self.links[effect.connection] = link
        ip, port = effect.ip, effect.address.port
        link.dial(lambda peer: self._world.dialled(peer, ip, port))

    def _resolve(self, engine: EngineInputs, effect: Resolve) -> None:
        def answer(result: list[str] | BaseException) -> None:
            if not self.closed and late.action is not None:
                late.cancel()
                engine.resolved(effect.token, result)
                self._input()

        late = self._time.at(effect.deadline, lambda: self._no_answer(engine, effect))
        self._world.resolve(effect.host, answer)

    def _no_answer(self, engine: EngineInputs, effect: Resolve) -> None:
        if not self.closed:
            engine.resolved(effect.token, TimeoutError("no answer in time"))
            self._input()

    def _call(self, engine: EngineInputs, effect: Call) -> None:
        try:
            result = effect.function(*effect.arguments)
        except Exception as error:
            engine.called(effect.token, None, error)
        else:
            engine.called(effect.token, result, None)

    def _worker_ended(self, engine: EngineInputs, effect: Call) -> None:
        if not self.closed:
            self._call(engine, effect)
            self._input()

    def _worker_late(self, engine: EngineInputs, effect: Call) -> None:
        if not self.closed:
            engine.called(effect.token, None, TimeoutError("no answer in time"))
            self._input()

    # Callbacks that links call

    def link_connected(self, number: int) -> None:
        """Notify the engine that a connection attempt was accepted."""
        if self._engine is not None and number in self.links:
            if self.watcher is not None:
                self.watcher.connected(number)
            self._engine.connected(number)
            self._input()

    def link_lost(self, number: int, error: BaseException | str | None) -> None:
        """Notify the engine that a connection attempt was refused or a connection has ended."""
        if self._engine is not None and self.links.pop(number, None) is not None:
            if self.watcher is not None:
                self.watcher.ended(number)
            self._engine.disconnected(number, error)
            self._input()

    def link_bytes(self, number: int, pieces: list[memoryview]) -> None:
        """Write received bytes into the engine's buffers, one chunk after the other."""
        engine = self._engine
        for piece in pieces:
            view = piece
            while len(view) and engine is not None and number in self.links:
                buffer = engine.get_buffer(number)
                count = min(len(buffer), len(view))
                buffer[:count] = view[:count]
                engine.buffer_updated(number, count)
                view = view[count:]
        self._input()

    def link_message(self, number: int, response: IncomingResponse) -> None:
        """Pass a response that arrived as an object to the engine."""
        if self._engine is not None and number in self.links:
            self._engine.received(number, response)
            self._input()
