"""What a host offers to the facades: time, a lock, and a way to wait for a completion.

A host runs one engine (`EngineInputs`): it steps it, carries out its effects and hands in what it
observed. Implementations: `SelectorHost`, `ThreadHost`, `simulation.SimulatedHost`.
`LoopHost`s (`runtime.AsyncioHost`, `SimulatedHost`) serve callers that are coroutines, too.
Must not: decide anything about Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Protocol

from odradek.common.types import Lock, Rng
from odradek.network.effects import Effect, Inputs
from odradek.network.flow import Completion


class EngineInputs(Inputs, Protocol):
    """An engine as a host sees it."""

    effects: deque[Effect]

    def hosted(self, from_outside: Callable[[BaseException], bool]) -> None:
        """Learn which exceptions amid a step aren't the engine's own: they go on to the host."""

    @property
    def inputs(self) -> Sized:
        """Where there are any a step is due now."""

    def step(self, now: float) -> float | None:
        """Move state; return when to step again without input."""


class Host(Protocol):
    """What runs an engine. Made first, then given its engine by `attach`."""

    @property
    def lock(self) -> Lock:
        """Held by `send()` and by the step when it takes over open batches."""

    @property
    def interrupted(self) -> bool:
        """Whether this very thread is amid something in this client, as it has been interrupted:
        by a signal handler, a finaliser, a listener. Nothing may wait then (R-HO-2).
        """

    @property
    def inside(self) -> bool:
        """This very thread is in a callback of the client: it can't wait for the client."""

    @property
    def torn(self) -> bool:
        """An exception from outside ended a step halfway: the client needs a new engine."""

    callers_first: bool
    """A step that is due at once comes after those whom this one has woken, whatever they do."""

    @property
    def on_its_own(self) -> bool:
        """It goes on while nobody calls, and so does time: its callers may wait by other means."""

    @property
    def gone(self) -> bool:
        """What it runs in, an event loop, was closed: nothing can come any more."""

    surfacing: bool
    """Whether calls raise what `surface` was given; not while the client closes."""

    @property
    def forked(self) -> bool:
        """This is a forked child of the process that made it."""

    @property
    def in_use(self) -> bool:
        """A thread runs or a socket is open: somebody has to close this."""

    def check(self) -> None:
        """Raise `ClientForkedError` in a forked child; asked before any lock is taken. And what
        `surface` was given.
        """

    def surface(self, error: BaseException) -> None:
        """Have what a callback raised amid a step come out of a call of the program's (R-HO-5)."""

    def renew(self, engine: EngineInputs) -> None:
        """Go on with another engine, after `torn`."""

    def drop(self) -> None:
        """Let go of everything without waiting: nobody knows the client any more (R-HO-4)."""

    def attach(self, engine: EngineInputs) -> None:
        """Run this engine from now on; nothing is started or opened before the first call."""

    def now(self) -> float:
        """Monotonic seconds: the engine's time."""

    def wall_clock(self) -> float:
        """Seconds since the epoch, for record timestamps."""

    def rng(self) -> Rng:
        """A random generator of this client's own."""

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Drive or wait until the completion is done or the deadline passed; say whether done.

        Calls with `where="caller"` run inside this. Raises `ClientForkedError` in a forked child.
        """

    def drive(self) -> None:
        """Do what is due now without waiting (hosts with a thread of their own: nothing)."""

    def wake(self) -> None:
        """There are new inputs; may be called from any thread. Cheap when nobody sleeps."""

    def close(self, deadline: float) -> object:
        """Carry out the effects that are left, close all sockets, end the thread if any. What it
        gives is awaited where it can be.
        """

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action between two steps (used to close from a callback)."""


class LoopHost(Host, Protocol):
    """A host that goes on by itself in an event loop, for callers that are coroutines."""

    waiters: dict[Callable[[], object], None]
    """Woken where a callback raised something for the program; it comes out of the first one."""

    def enter(self, *, closing: bool = False) -> float:
        """A call begins, in the loop that runs here; gives the time. `closing`: it ends the client,
        for which its loop needn't be there any more.
        """

    def overslept(self, deadline: float) -> None:
        """A caller's time was up then, and it gives up: where the loop was held up meanwhile, take
        in what has come first.
        """

    @property
    def overdue(self) -> bool:
        """The loop was asked to come to this client, and didn't for long."""

    async def breathe(self) -> None:
        """Let the loop go on, if it didn't come to this client for long."""
