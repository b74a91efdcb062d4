"""Run clients' blocking calls (`clients/calls`) in virtual time: each wait becomes an event.

In: a flow, which is a generator that runs in the caller: one call, or an application that makes
many calls. Out: the flow's result or error, passed to callbacks; each wait, passed to the checkers
of deadlines. So several applications can share a simulation, in which a blocking call of one client
would stop all others. Must not decide anything, or delay a flow: in virtual time no flow is late.
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
    """The process of simulated calls: no signal wakes it, and it isn't forked."""

    woken = False
    here = True

    def wake(self) -> None:
        """Do nothing: no call waits for a signal here."""


def pause(seconds: float) -> CallerFlow[None]:
    """Wait for this number of seconds."""
    yield Wait((), (yield START) + seconds)


class Caller:
    """One application's calls; once `gone` returns True, none of the calls continues."""

    def __init__(
        self,
        world: World,
        calls: CallsEnd,
        gone: Callable[[], bool],
        after: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Set the objects that calls need; `after` schedules each continuation of a call.

        By default, a call continues as soon as its wait ends.
        """
        self.running: CallerFlow[Any] | None = None
        """The call's generator that is running now or ran last."""
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
        """Start a call; `what` names it in violations, and `then` or `failed` gets the outcome."""
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
        """Wait for a completion; the call continues after the engine's step that completes it."""
        (awaited,) = wanted.on
        if not isinstance(awaited, Completion):
            raise TypeError(f"{call.what} waits for {awaited!r}, which may never end")
        # A process that was stopped may begin a wait after its deadline; the wait then ends at
        # once.
        deadline = max(self._world.now, wanted.deadline or 0.0)
        self._calls.begin(awaited, call.what, deadline)
        awaited.when_done(lambda _: self._later(call, 0.0))


class _Call(NamedTuple, Generic[T]):
    what: str
    flow: CallerFlow[T]
    then: Callable[[T], None]
    failed: Callable[[Exception], None]
