"""Carries out a caller's half (`clients/calls`) in virtual time: each wait is an event there.

In: a flow that runs in the caller. Out: its result or its error, to functions that go on with it;
each wait to the checkers of deadlines. So several applications live in one world, where a facade
would let all of them wait for its own call. Must not: decide anything, or wait longer than the
engine does: in virtual time no flow of it is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.calls.caller_flow import CallerFlow, Do
from odradek.network.flow import Completion, Wait
from odradek.simulation.checkers.call_checkers import CallsEnd

if TYPE_CHECKING:
    from odradek.simulation.world.world import World

T = TypeVar("T")


class Caller:
    """One application's calls; it may be gone (`gone`), and then goes on with nothing."""

    def __init__(self, world: World, calls: CallsEnd, gone: Callable[[], bool]) -> None:
        self._world = world
        self._calls = calls
        self._gone = gone

    def begin(
        self,
        what: str,
        flow: CallerFlow[T],
        then: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Carry a call out from now on; `what` names it for the checkers."""

        def go_on(resume: Callable[[], Wait | Do]) -> None:
            while not self._gone():
                try:
                    wanted = resume()
                except StopIteration as end:
                    then(end.value)
                    return
                except Exception as error:
                    failed(error)
                    return
                resume = self._told(flow)
                if isinstance(wanted, Do):
                    try:
                        wanted.action()
                    except Exception as error:
                        resume = _thrown(flow, error)
                elif wanted.on:
                    self._wait(what, wanted, lambda: go_on(self._told(flow)))
                    return
                elif wanted.deadline is not None:
                    self._world.after(0.0, lambda: go_on(self._told(flow)))
                    return
            flow.close()

        go_on(lambda: next(flow))

    def _told(self, flow: CallerFlow[Any]) -> Callable[[], Wait | Do]:
        return lambda: flow.send(self._world.now)

    def _wait(self, what: str, wanted: Wait, go_on: Callable[[], None]) -> None:
        """What the caller does isn't part of the step that ends its wait."""
        (awaited,) = wanted.on
        if not isinstance(awaited, Completion):
            raise TypeError(f"{what} waits for {awaited!r}, which may never end")
        deadline = self._world.now if wanted.deadline is None else wanted.deadline
        self._calls.begin(awaited, what, deadline)

        def ended(_: Completion[Any]) -> None:
            self._world.after(0.0, go_on)

        awaited.when_done(ended)


def _thrown(flow: CallerFlow[Any], error: Exception) -> Callable[[], Wait | Do]:
    return lambda: flow.throw(error)
