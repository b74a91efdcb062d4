"""Define the services of a host for clients: time, a lock, and a way to wait for a completion.

A host runs one engine (`EngineInputs`): it steps it, carries out its effects and reports events.
Implementations: `SelectorHost`, `ThreadHost`, `simulation.SimulatedHost`. `LoopHost`s
(`runtime.AsyncioHost`, `SimulatedHost`) serve callers that are coroutines, too. Must not decide
anything about Kafka.
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
        """Set the function that tells which exceptions come from outside; `step` raises them."""

    @property
    def inputs(self) -> Sized:
        """Recorded inputs; while there are any, a step is due at once."""

    def step(self, now: float) -> float | None:
        """Process the inputs; return when to step again if no input arrives."""


class Host(Protocol):
    """Runs an engine, which `attach` sets after the host's creation."""

    @property
    def lock(self) -> Lock:
        """Lock that `send()` holds, and `step` while it collects open batches."""

    @property
    def interrupted(self) -> bool:
        """Whether this thread was interrupted during a call of this client.

        Then a signal handler, a finalizer or a listener is running, and must not wait (R-HO-2).
        """

    @property
    def inside(self) -> bool:
        """Whether this thread runs a callback of the client, so that it mustn't wait for it."""

    @property
    def torn(self) -> bool:
        """Whether an exception from outside interrupted a step: the client needs a new engine."""

    callers_first: bool
    """Whether callers that a step has woken run before the next step, even if it is due."""

    @property
    def on_its_own(self) -> bool:
        """Whether the engine runs even if no call of the client does, as with a thread."""

    @property
    def gone(self) -> bool:
        """Whether the host's event loop was closed: nothing can arrive any more."""

    surfacing: bool
    """Whether calls raise the errors that were passed to `surface`; not while the client closes."""

    @property
    def cut_off(self) -> bool:
        """Whether the host can't run any more.

        That is so in a forked child of the process that created it, and after the interpreter has
        stopped the host's thread at exit.
        """

    @property
    def in_use(self) -> bool:
        """Whether a thread runs or a socket is open, so that the host must be closed."""

    def check(self) -> None:
        """Raise `ClientForkedError` in a forked child, or an error passed to `surface`.

        Call it before any lock is taken.
        """

    def surface(self, error: BaseException) -> None:
        """Pass a callback's error to the program, which gets it from its next call (R-HO-5)."""

    def renew(self, engine: EngineInputs) -> None:
        """Run another engine instead of one that is `torn`."""

    def drop(self) -> None:
        """Close everything without waiting: the client isn't referenced any more (R-HO-4)."""

    def attach(self, engine: EngineInputs) -> None:
        """Set the engine to run; start no thread and open no socket before the first call."""

    def now(self) -> float:
        """Return the engine's time, in monotonic seconds."""

    def wall_clock(self) -> float:
        """Return the seconds since the epoch, for record timestamps."""

    def rng(self) -> Rng:
        """Return the random generator of this client."""

    def run(self, completion: Completion[Any], deadline: float | None) -> bool:
        """Drive the engine or wait until the completion is done or the deadline has passed.

        Returns whether it is done. Calls with `where="caller"` run inside this. Raises
        `ClientForkedError` in a forked child.
        """

    def drive(self) -> None:
        """Do everything that is due now without waiting; a host with a thread does nothing."""

    def wake(self) -> None:
        """Report new inputs, from any thread; this is cheap unless the host sleeps."""

    def close(self, deadline: float) -> object:
        """Carry out the remaining effects, close all sockets, end the thread if any.

        The result is awaited if possible.
        """

    def defer(self, action: Callable[[], None]) -> None:
        """Run an action between two steps (used to close from a callback)."""


class LoopHost(Host, Protocol):
    """A host that runs on its own in an event loop, for callers that are coroutines."""

    waiters: dict[Callable[[], object], None]
    """Callbacks to wake waiting calls after an error for the program; the first call raises it."""

    def enter(self, *, closing: bool = False) -> float:
        """Begin a call in the running loop and return the time.

        With `closing`, the call closes the client, whose loop needn't exist any more.
        """

    def overslept(self, deadline: float) -> None:
        """Before a caller times out, process earlier input if the loop was blocked."""

    @property
    def overdue(self) -> bool:
        """Whether a step that was scheduled in the loop is overdue."""

    async def breathe(self) -> None:
        """Let the event loop run other tasks, if it hasn't for some time."""
