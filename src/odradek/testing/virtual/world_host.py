"""`WorldAsyncioHost`: the I/O host of asyncio clients, in a simulation instead of real time.

In: a simulation (`World`). Out: a client whose sockets are simulated links, and whose names, clock
and random numbers come from the simulation. All else is the code of `AsyncioHost`: watching,
reading, writing, timers, wake-ups, closing. Coroutines run it in their `VirtualLoop`; for other
programs (schedules, sync facades) it has its own loop, which the simulation drives. Must not:
decide anything that `AsyncioHost` decides.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from odradek.common.events import EventLog
from odradek.common.types import Address
from odradek.network.effects import Close, Effect, IncomingResponse, Open, Send
from odradek.network.flow import Completion
from odradek.network.host import EngineInputs
from odradek.runtime.hosts.asyncio_host import AsyncioHost
from odradek.runtime.hosts.external_results import ExternalResults
from odradek.runtime.hosts.transport import Transport
from odradek.runtime.resolver import Resolver
from odradek.simulation.world.link import Link, LinkProfile, Mode, Watcher
from odradek.simulation.world.step_count import StepCount
from odradek.simulation.world.trace import Trace
from odradek.simulation.world.virtual_time import StuckError
from odradek.testing.virtual.driven_loop import DrivenLoop
from odradek.testing.virtual.virtual_loop import VirtualLoop
from odradek.testing.virtual.virtual_sockets import Moods, VirtualSocket

if TYPE_CHECKING:
    import socket

    from odradek.runtime.hosts.tunnel import Tunnel
    from odradek.runtime.resolver import Answer
    from odradek.simulation.world.world import World

WORKER_DELAY = 0.01
EARLY = 0.001
"""Maximum time in seconds by which timers of a millisecond-resolution loop fire early."""


class WorldAsyncioHost(AsyncioHost, StepCount):
    """`AsyncioHost` in a simulation; links carry bytes, never objects (`World.make_host`)."""

    moody = False
    """Whether the kernel transfers bytes in small pieces and timers fire early, as real ones
    may."""

    def __init__(
        self,
        world: World,
        name: str,
        mode: Mode = "bytes",
        profile: LinkProfile | None = None,
        *,
        background: bool = True,
        traced: bool = True,
    ) -> None:
        del mode, background  # sockets carry bytes only, and the loop always runs
        AsyncioHost.__init__(self, clock=lambda: world.time.now)
        StepCount.__init__(self, name, world.hot_loops)
        self.mode: Mode = "bytes"
        self.profile = profile or world.link
        self.watcher: Watcher | None = None
        self.trace = Trace(name)
        self.events: EventLog | None = None
        self.worker_delay = WORKER_DELAY
        self.external_results = _WorldOutsiders(self, world)
        self.plain_transport = self._new_plain_transport
        self.world = world
        self._traced = traced
        self._resolver = _WorldResolver(self, world)
        self._client_rng = world.rng(f"client/{name}")
        self._link_rng = world.rng(f"links/{name}")
        self._piece_rng = world.rng(f"pieces/{name}")
        self._mood_rng = world.rng(f"moods/{name}")
        self.lines: dict[int, _Line] = {}
        self._woken = self._rung = False
        self._frozen = False

    # Methods that a simulation and its runs call

    def attach(self, engine: EngineInputs) -> None:
        """Run this engine from now on; its event log, if any, is added to the trace."""
        super().attach(engine)
        events = getattr(engine, "events", None)
        if isinstance(events, EventLog):
            self.events = events
            if self._traced:
                self.trace.follow(events)

    def wall_clock(self) -> float:
        """Return the virtual time in seconds since the epoch."""
        return self.world.wall_clock()

    def rng(self) -> random.Random:
        """Return the random generator that `SimulatedHost` would have for this client."""
        return self._client_rng

    callers_first = False
    """False as in `SimulatedHost`, because the traces of both hosts must be equal."""

    @property
    def on_its_own(self) -> bool:  # type: ignore[override]
        """Whether an event loop advances time, so that the client works between its calls."""
        return self.world.driver is not None

    @property
    def closed(self) -> bool:
        """Whether this I/O host is closed."""
        return self._closed

    def freeze(self, on: bool = True) -> None:
        """Pause (as by SIGSTOP) or resume the client's process; input waits until it resumes."""
        self._frozen = on
        self._turned_loop().freeze(on)

    # Loops

    def _turned_loop(self) -> DrivenLoop:
        """Return the client's own loop, which the simulation drives."""
        if self._loop is None:
            rng = self._mood_rng
            early = (lambda: EARLY * rng.random()) if self.moody else None
            with DrivenLoop(self.world, early=early).running():
                super().enter()
        if not isinstance(self._loop, DrivenLoop):
            raise AssertionError("this client is used by coroutines of another event loop")
        return self._loop

    def enter(self, *, closing: bool = False) -> float:
        """Begin a call, as `AsyncioHost` does, and move the client to the caller's loop."""
        loop = self._loop
        other = isinstance(loop, DrivenLoop) and loop is not asyncio.get_running_loop()
        if other and not self._transports:
            self._release()
            self._loop = None
        return super().enter(closing=closing)

    def defer(self, action: Callable[[], None]) -> None:
        """Defer an action, as `AsyncioHost` does; doesn't count as the client's first call."""
        if self._loop is None:
            self._deferred.append(action)
        else:
            super().defer(action)

    def wake(self) -> None:
        """Wake the engine, as `AsyncioHost` does; if no coroutine has called, start an own loop."""
        if not self._stepping:
            self._woken = True
        if self._loop is None and self._engine is not None and self.world.driver is None:
            self._turned_loop()
        super().wake()

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Advance the simulation until the completion is done or the deadline has passed."""
        self._turned_loop()
        time = self.world.time
        self._advance()
        while not completion.done:
            due = time.next_at()
            if due is None and deadline is None:
                raise StuckError(f"{self.name} waits for an event that can no longer happen")
            if deadline is not None and (due is None or due > deadline):
                time.run_until(deadline)
                break
            time.fire_next()
            self.check()
        return completion.done

    def drive(self) -> None:
        """Run what is due at this virtual time."""
        if self._loop is None:
            self._turned_loop()
        super().drive()
        if isinstance(self._loop, DrivenLoop):
            self.world.time.run_until(self.world.time.now)

    def close(self, deadline: float) -> Coroutine[Any, Any, None] | None:
        """Close the client, as `AsyncioHost` does.

        If the client has its own loop, the close is completed before this method returns.
        """
        if self._frozen and not self._closed:  # a stopped process sends no more bytes
            self._closed = True
        ending = super().close(deadline)
        loop = self._loop
        if ending is None or not isinstance(loop, DrivenLoop):
            return ending
        with loop.running():
            ended = loop.create_task(ending)
        loop.turn()
        time = self.world.time
        while not ended.done() and time.next_at() is not None:
            time.fire_next()
        ended.result()
        return None

    def _advance(self) -> None:
        engine = self._engine
        if engine is not None and not (self._stepping or self._closed or self._torn):
            timed = self._rung and not (engine.inputs or self._woken)
            self.count(self._clock(), timed=timed)
        self._woken = self._rung = False
        super()._advance()

    def _rings(self) -> None:
        self._rung = True
        super()._rings()
        self._rung = False  # the timer may fire before a step is due

    # Simulated links instead of sockets

    def _new_plain_transport(
        self, connection: int, address: Address, tunnel: Tunnel | None
    ) -> Transport:
        return _WorldTransport(self, connection, address, tunnel)

    def new_line(self, connection: int) -> socket.socket:
        """Return a socket that is connected to a simulated link."""
        if not isinstance(self._loop, VirtualLoop):
            raise AssertionError("a simulated client needs an event loop in virtual time")
        link = Link(self.world.time, self, connection, self._link_rng, self._piece_rng)
        line = _Line(self, link)
        moods = Moods(self._mood_rng) if self.moody else None
        line.socket = VirtualSocket(self._loop.files, line, moods, self._later)
        self.lines[connection] = line
        return line.socket  # type: ignore[return-value]  # as much of it as a transport uses

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        """Schedule an action, after which the loop handles external input."""

        def come() -> None:
            action()
            self.heard()

        self.world.after(seconds, come)

    def _carry_out(self, effect: Effect) -> None:
        watcher = self.watcher
        if watcher is None:
            super()._carry_out(effect)
            return
        if isinstance(effect, Open):
            watcher.opened(effect.connection, effect.address, effect.ip)
        taken = self._taken(effect)
        known = isinstance(effect, Close) and effect.connection in self._transports
        super()._carry_out(effect)
        if isinstance(effect, Send) and self._taken(effect) > taken:
            watcher.sent(effect.connection, effect.request)
        elif isinstance(effect, Close) and known:
            watcher.ended(effect.connection)

    def _taken(self, effect: Effect) -> int:
        """Return the number of bytes that the connection of a `Send` has accepted so far."""
        found = self._transports.get(effect.connection) if isinstance(effect, Send) else None
        return found.taken if isinstance(found, _WorldTransport) else 0

    def _lost(self, transport: Transport, error: BaseException | None) -> None:
        super()._lost(transport, error)
        if self.watcher is not None:
            self.watcher.ended(transport.connection)

    def link_connected(self, number: int) -> None:
        """Report to the socket that its connection attempt was accepted."""
        if self.watcher is not None:
            self.watcher.connected(number)
        self.lines[number].socket.connected()
        self.heard()

    def link_lost(self, number: int, error: BaseException | str | None) -> None:
        """Report to the socket that its attempt was refused or its connection has ended."""
        self.lines[number].socket.lost(error)
        self.heard()

    def link_bytes(self, number: int, pieces: list[memoryview]) -> None:
        """Pass received bytes to the socket."""
        self.lines[number].socket.arrived(pieces)
        self.heard()

    def link_message(self, number: int, response: IncomingResponse) -> None:
        """Raise `AssertionError`, because sockets receive only bytes."""
        raise AssertionError("a response as an object instead of bytes")

    def heard(self) -> None:
        """Let the loop handle external input."""
        if isinstance(self._loop, DrivenLoop):
            self._loop.hear()


class MoodyAsyncioHost(WorldAsyncioHost):
    """`WorldAsyncioHost` with partial reads and writes, and timers that fire early."""

    moody = True
    callers_first = True


class _WorldTransport(Transport):
    """A transport whose socket is one end of a simulated link."""

    def __init__(
        self, host: WorldAsyncioHost, connection: int, address: Address, tunnel: Tunnel | None
    ) -> None:
        super().__init__(connection, address, tunnel)
        self._host = host

    def new_socket(self, family: int) -> socket.socket:
        """Return a simulated socket."""
        del family
        return self._host.new_line(self.connection)

    @property
    def taken(self) -> int:
        """Number of bytes that the transport has accepted so far."""
        return self._written + self.queued


class _Line:
    """Connection between a socket and its link."""

    socket: VirtualSocket

    def __init__(self, host: WorldAsyncioHost, link: Link) -> None:
        self._host = host
        self._link = link

    def dial(self, ip: str, port: int) -> None:
        """Connect to the listener that the simulation has at this address."""
        world = self._host.world
        self._link.dial(lambda peer: world.dialled(peer, ip, port))

    def frame(self, frame: bytes) -> None:
        """Send a complete request to the broker."""
        self._link.send_frame(frame)

    def hang_up(self) -> None:
        """Note that the client closed its end."""
        self._link.close_by_client()


class _WorldResolver(Resolver):
    """A resolver of the simulation's names; like `SimulatedHost`, it doesn't share lookups."""

    def __init__(self, host: WorldAsyncioHost, world: World) -> None:
        super().__init__()
        self._host, self._world = host, world

    def resolve(self, host: str, port: int, deliver: Callable[[Answer], None]) -> None:
        """Resolve a host name with the simulation's resolver."""

        def come(answer: Answer) -> None:
            if not self._host.closed:
                deliver(answer)
                self._host.heard()

        self._world.resolve(host, come)


class _WorldOutsiders(ExternalResults):
    """Simulated worker threads: their calls take virtual time."""

    def __init__(self, host: WorldAsyncioHost, world: World) -> None:
        super().__init__(host.wake)
        self._host, self._world = host, world

    def run_in_thread(
        self, token: int, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        """Run the function after the worker delay, unless its result isn't wanted any more."""

        def act() -> None:
            if self.owes(token):
                self.run(token, function, arguments)
                self._host.heard()

        self._world.after(self._host.worker_delay, act)
