"""Flows that run in the caller, and not in the engine's step.

Such a flow yields what its caller has to do for it, and gets the time back: a `Wait` for one
completion, at most until a deadline; `START`, for the time alone; `DUE`, for what can be done now;
`BREATH`; or a `Do`. What goes wrong meanwhile is thrown into the flow. Whoever carries it out
closes it at the end, whatever happens: a flow that is left gets `GeneratorExit` where it stands,
and then it may tidy up, but not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from odradek.network.flow import Wait

T = TypeVar("T")
Y = TypeVar("Y")
S = TypeVar("S")

DUE = Wait((), 0.0)
"""Let the client do what is due now, without waiting."""
BREATH = Wait()
"""Between two pieces of much work: an event loop that this call keeps for long may go on."""


class Do(NamedTuple):
    """Something that may take its time: a user's callback, a method of the client that its user may
    have replaced (what it gives is awaited where it can be), or the end of the host.
    """

    action: Callable[[], object]
    blocks: bool = False
    """It waits in its thread, and not for anything of the client's."""


class RaisedGeneratorExitError(BaseException):
    """Stands for a `GeneratorExit` that a callback has raised.

    Thrown into a flow as itself, it would mean that the flow is left, and the flow would not end
    what it has begun (R-HO-5).
    """

    def __init__(self, raised: GeneratorExit) -> None:
        super().__init__()
        self.raised = raised


def as_thrown(error: BaseException) -> BaseException:
    """Return what is thrown into a flow for an error of what it asked for."""
    return RaisedGeneratorExitError(error) if isinstance(error, GeneratorExit) else error


CallerFlow = Generator[Wait | Do, float, T]
"""Yields what its caller has to do, gets `now` back, returns the call's result."""


def whatever_happens(
    first: Generator[Y, S, T], last: Generator[Y, S, object]
) -> Generator[Y, S, T]:
    """A flow, and then another one, also where the first fails; then its error comes out.

    Nothing is called between the two, so no signal comes there.
    """
    try:
        result = yield from first
    except GeneratorExit:  # it is left, and nobody carries out the other one
        raise
    except BaseException:
        yield from last
        raise
    yield from last
    return result
