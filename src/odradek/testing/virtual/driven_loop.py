"""An event loop that the simulation drives, for programs that aren't coroutines: `DrivenLoop`.

In: a simulation (`World`), callbacks. Out: each callback, run at its time as one of the
simulation's events: a caller that advances virtual time (`World.advance`, a sync client's call)
also advances this loop. A simulation may have several of these loops, one for each process. Must
not: wait, or advance time.
"""

from __future__ import annotations

import asyncio
import math
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from odradek.simulation.world.virtual_time import Timer
from odradek.simulation.world.world import World
from odradek.testing.virtual.virtual_loop import VirtualLoop

AT_ONCE = 20
"""Maximum number of iterations of a woken loop before the simulation's other events of that time
run."""

MILLISECOND = 0.001
"""Clock resolution of a loop that counts in milliseconds: timers may fire early by up to 1 ms."""

ROUND = 0.00001
"""Minimum duration in seconds of a loop's iteration, so that early timers can't repeat forever."""


class DrivenLoop(VirtualLoop):
    """Loop of one simulated process, whose timers fire early by `early()` seconds.

    Timers of real loops that count in milliseconds (uvloop) fire early, too.
    """

    _run_once: Callable[[], None]

    def __init__(self, world: World, *, early: Callable[[], float] | None = None) -> None:
        super().__init__(world, limit=math.inf)
        self.frozen = False
        """Whether the process is stopped, as by SIGSTOP."""
        self._early = early
        self._planned: Timer | None = None
        self._turning = False
        self._raised: list[BaseException] = []
        self.set_exception_handler(self._note)

    def __del__(self) -> None:
        """Do nothing; the base class would warn about an unclosed loop."""

    def freeze(self, on: bool) -> None:
        """Pause or resume the process; timers that expired meanwhile fire when it resumes."""
        self.frozen = on
        self.hear()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the running loop within the block."""
        before, thread = _get_running_loop(), self._thread_id
        _set_running_loop(self)
        self._thread_id = threading.get_ident()
        try:
            yield
        finally:
            self._thread_id = thread
            _set_running_loop(before)

    def turn(self) -> None:
        """Run one iteration: ready callbacks, then expired timers."""
        if self.frozen or self._turning or self.is_closed():
            return
        self._turning = True
        try:
            with self.running():
                self._run_once()
        finally:
            self._turning = False
            self.look()
        if self._raised:
            raise self._raised.pop(0)

    def hear(self) -> None:
        """Handle external input: run iterations until no callback, timer or socket is ready."""
        for _ in range(AT_ONCE):
            if self._turning or self.frozen or not self._has_work():
                break
            self.turn()
        self.look()

    def _has_work(self) -> bool:
        now = self._world.now
        return bool(self._ready) or self._next_timer() <= now or self.files.any_ready

    def look(self) -> None:
        """Schedule the next iteration in the simulation, if there is work."""
        if self._turning or self.frozen or self.is_closed():
            return
        when = self._world.now if self._has_work() else self._next_timer()
        planned = self._planned
        if planned is not None and planned.action is not None:
            if planned.when <= when:
                return
            planned.cancel()
        if when < math.inf:
            self._planned = self._world.time.at(when, self.turn)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep a callback's error, which the call that advances virtual time then raises."""
        error = context.get("exception")
        self._raised.append(error or AssertionError(context["message"]))

    def _go_on(self, timeout: float | None) -> None:
        del timeout  # virtual time passes between iterations instead
        self._looked()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, as in the base class, and an iteration at this virtual time."""
        handle = super().call_soon(callback, *args, context=context)
        self.look()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback, as in the base class, with `early` rounded to milliseconds."""
        if self._early is not None and delay > 0.0:
            delay = max(ROUND, round(delay / MILLISECOND) * MILLISECOND)
        return super().call_later(delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback, as in the base class, and an iteration at that virtual time."""
        if self._early is not None and when - self._world.now > MILLISECOND:
            when -= self._early()
        handle = super().call_at(when, callback, *args, context=context)
        self.look()
        return handle
