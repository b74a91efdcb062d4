"""Define the interface of I/O hosts, which run a client's engine in a thread or event loop.

A host calls the `step` of one engine (`EngineInputs`), does its I/O and reports events to it. It
offers clients the time, a lock, and a way to wait. Implementations: `SelectorHost`, `ThreadHost`,
`simulation.SimulatedHost`. `LoopHost`s (`AsyncioHost`, `SimulatedHost`) also serve coroutines. Must
not decide anything about Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from typing import Any, Protocol

from odradek.common.types import Lock, Rng
from odradek.network.effects import Effect, Inputs
from odradek.network.flow import Completion


class EngineInputs(Inputs, Protocol):
    """The part of an engine that a host uses."""

    effects: deque[Effect]

    def hosted(self, from_outside: Callable[[BaseException], bool]) -> None:
        """Set the function that returns whether an exception (e.g. Ctrl-C) is from outside."""

    @property
    def inputs(self) -> Sized:
        """Recorded inputs; while the queue isn't empty, a step is due at once."""

    def step(self, now: float) -> float | None:
        """Process the inputs; return when to call this again if no input arrives."""


class Host(Protocol):
    """A thread or event loop that runs one engine, which `attach` sets."""

    @property
    def lock(self) -> Lock:
        """Lock for open batches, which `send()` fills and the engine's `step` collects."""

    @property
    def interrupted(self) -> bool:
        """Whether this thread was interrupted during a call of this client.

        If so, a signal handler, finalizer or listener runs, which must not wait (R-HO-2).
        """

    @property
    def inside(self) -> bool:
        """Whether this thread runs a callback of the client, which mustn't wait for the client."""

    @property
    def torn(self) -> bool:
        """Whether an exception such as Ctrl-C interrupted a step: the client needs a new engine."""

    callers_first: bool
    """Whether callers that a step has woken run before the next step, even if that step is due."""

    @property
    def on_its_own(self) -> bool:
        """Whether the engine also runs between a caller's calls, as in a separate thread."""

    @property
    def gone(self) -> bool:
        """Whether the host's event loop was closed, so that no event can arrive any more."""

    surfacing: bool
    """Whether calls raise errors passed to `surface`; False while the client closes."""

    @property
    def cut_off(self) -> bool:
        """Whether the host can't run any more.

        True in a forked child of the process that created it, and after the interpreter has stopped
        the host's thread at exit.
        """

    @property
    def in_use(self) -> bool:
        """Whether a thread runs or a socket is open, so that the host must be closed."""

    def check(self) -> None:
        """Raise `ClientForkedError` in a forked child, or an error passed to `surface`.

        The caller must not hold a lock.
        """

    def surface(self, error: BaseException) -> None:
        """Store a callback's error, which the application's next call raises (R-HO-5)."""

    def renew(self, engine: EngineInputs) -> None:
        """Replace an engine that is `torn` by a new engine."""

    def drop(self) -> None:
        """Close sockets and thread without waiting, as the client was freed (R-HO-4)."""

    def attach(self, engine: EngineInputs) -> None:
        """Set the engine to run; start no thread and open no socket before the first call."""

    def now(self) -> float:
        """Return the engine's time, in monotonic seconds."""

    def wall_clock(self) -> float:
        """Return the seconds since the epoch, for record timestamps."""

    def rng(self) -> Rng:
        """Return the random generator of this client."""

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Run the engine, or wait, until the completion is done or the deadline has passed.

        Returns whether the completion is done. `Call`s with `where="caller"` run during this
        method. Raises `ClientForkedError` in a forked child.
        """

    def drive(self) -> None:
        """Do the work that is due now without waiting; a host with a thread does nothing."""

    def wake(self) -> None:
        """Let the host process new inputs, from any thread; cheap unless the host sleeps."""

    def close(self, deadline: float) -> object:
        """Do the remaining I/O of the engine, close all sockets, end the thread if any.

        The caller awaits the result if it is awaitable.
        """

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action between two steps, as `close` called in a callback needs."""


class LoopHost(Host, Protocol):
    """A host in an event loop, for callers that are coroutines."""

    waiters: dict[Callable[[], object], None]
    """Functions that wake waiting calls, so that one of them raises an error from `surface`."""

    def enter(self, *, closing: bool = False) -> float:
        """Begin a call in the running loop and return the time.

        With `closing`, the call closes the client, and the event loop may be closed already.
        """

    def overslept(self, deadline: float) -> None:
        """Process input that arrived while the loop was blocked, before a caller times out."""

    @property
    def overdue(self) -> bool:
        """Whether a step that was scheduled in the loop is overdue."""

    async def breathe(self) -> None:
        """Let the event loop run other tasks, if it hasn't for some time."""
