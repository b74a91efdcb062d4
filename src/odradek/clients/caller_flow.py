"""Define the generators (flows) that run public calls in the caller, not in the client's engine.

In: a flow that yields what its caller has to do, and is sent the time: a `Wait` for one completion,
at most until a deadline; `START`, for the time alone; `DUE`, for work that can be done now;
`BREATH`; or a `Do`. Out: the flow's result. If the yielded work fails, its error is thrown into the
flow. The caller always closes the flow at the end: an unfinished flow gets `GeneratorExit` where it
waits, and may then clean up, but not wait. An error that leaves a public call is `shorten`ed: users
see no frames of Odradek below that call, except those of their own callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import NamedTuple, TypeVar

from odradek.common.errors import KafkaError
from odradek.network.flow import Wait

T = TypeVar("T")
Y = TypeVar("Y")
S = TypeVar("S")

DUE = Wait((), 0.0)
"""Lets the client do the work that is due now, without waiting."""
BREATH = Wait()
"""Lets the caller's event loop run between two parts of a long computation."""


class Do(NamedTuple):
    """Work that may take time: a user's callback, an overridden method, closing the client's I/O.

    If the result is awaitable and the caller can await, it is awaited.
    """

    action: Callable[[], object]
    blocks: bool = False
    """Whether the work blocks its thread, and doesn't depend on this client."""


class RaisedGeneratorExitError(BaseException):
    """Replaces a `GeneratorExit` that a callback has raised.

    A flow is a generator: it would take a thrown `GeneratorExit` for the end of its caller, and
    stop without finishing the call's work, such as leaving the group (R-HO-5).
    """

    def __init__(self, raised: GeneratorExit) -> None:
        super().__init__()
        self.raised = raised


def as_thrown(error: BaseException) -> BaseException:
    """Return a callback's error in a form that can be thrown into a flow."""
    return RaisedGeneratorExitError(error) if isinstance(error, GeneratorExit) else error


CallerFlow = Generator[Wait | Do, float, T]
"""A generator that yields what its caller has to do, is sent `now`, and returns a result."""


def run_always(first: Generator[Y, S, T], last: Generator[Y, S, object]) -> Generator[Y, S, T]:
    """Run a flow, and then another one, even if the first fails; then raise its error.

    No function is called between the two flows, so no signal handler runs there.
    """
    try:
        result = yield from first
    except GeneratorExit:  # the caller has abandoned both flows
        raise
    except BaseException:
        yield from last
        raise
    yield from last
    return result


def shorten(error: BaseException | None) -> None:
    """Remove Odradek's frames from the traceback of an error and of the errors that caused it.

    Errors other than `KafkaError` keep theirs: they may be bugs.
    """
    done: set[int] = set()
    while isinstance(error, KafkaError) and id(error) not in done:
        done.add(id(error))
        error.__traceback__ = _without_ours(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    entries = []
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        if name != "odradek" and not name.startswith("odradek."):
            entries.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
