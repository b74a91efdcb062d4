"""Carries out a caller's half (`clients/calls`) in virtual time: each wait is an event there.

In: a flow that runs in the caller: one call, or an application that makes many. Out: its result or
its error, to functions that go on with it; each wait to the checkers of deadlines. So several
applications live in one world, where a facade would let all of them wait for its own call.
Must not: decide anything, or wait longer than the engine does: in virtual time no flow is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from odradek.clients.caller_flow import CallerFlow, Do
from odradek.network.flow import START, Completion, Wait
from odradek.simulation.checkers.call_checkers import CallsEnd

if TYPE_CHECKING:
    from odradek.simulation.world.world import World

T = TypeVar("T")


class InVirtualTime:
    """What the calls ask of a process: nobody wakes it up, and it doesn't fork."""

    woken = False
    here = True

    def wake(self) -> None:
        """It would end a poll."""


def pause(seconds: float) -> CallerFlow[None]:
    """Let an application do nothing for so long."""
    yield Wait((), (yield START) + seconds)


class Caller:
    """One application's calls; it may be gone (`gone`), and then goes on with nothing."""

    def __init__(
        self,
        world: World,
        calls: CallsEnd,
        gone: Callable[[], bool],
        after: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """`after` has the application go on some seconds later; without, it is always ready to."""
        self.running: CallerFlow[Any] | None = None
        """Which of its flows runs just now."""
        self._world = world
        self._calls = calls
        self._gone = gone
        self._after = world.after if after is None else after

    def begin(
        self,
        what: str,
        flow: CallerFlow[T],
        then: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Carry a call out from now on; `what` names it for the checkers."""
        self._go_on(_Call(what, flow, then, failed), None)

    def _go_on(self, call: _Call[Any], told: Any) -> None:
        flow, world = call.flow, self._world
        broken: Exception | None = None
        while not self._gone():
            self.running = flow
            try:
                wanted = flow.send(told) if broken is None else flow.throw(broken)
            except StopIteration as end:
                call.then(end.value)
                return
            except Exception as error:
                call.failed(error)
                return
            told, broken = world.now, None
            if isinstance(wanted, Do):
                try:
                    wanted.action()
                except Exception as error:
                    broken = error
            elif wanted.on:
                self._wait(call, wanted)
                return
            elif wanted.deadline is not None:
                self._later(call, max(0.0, wanted.deadline - told))
                return
        flow.close()

    def _later(self, call: _Call[Any], seconds: float) -> None:
        self._after(seconds, lambda: self._go_on(call, self._world.now))

    def _wait(self, call: _Call[Any], wanted: Wait) -> None:
        """What the caller does isn't part of the step that ends its wait."""
        (awaited,) = wanted.on
        if not isinstance(awaited, Completion):
            raise TypeError(f"{call.what} waits for {awaited!r}, which may never end")
        # A process that was stopped may come to a wait too late: it ends at once then.
        deadline = max(self._world.now, wanted.deadline or 0.0)
        self._calls.begin(awaited, call.what, deadline)
        awaited.when_done(lambda _: self._later(call, 0.0))


class _Call(NamedTuple, Generic[T]):
    what: str
    flow: CallerFlow[T]
    then: Callable[[T], None]
    failed: Callable[[Exception], None]
