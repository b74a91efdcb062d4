"""Share one time limit between several requests that one call of a user causes.

In: nothing. Out: a context manager in which all requests to a server share the deadline of the
first request. Must not: read a clock, or know callers and servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_held: ContextVar[SharedDeadline | None] = ContextVar("odradek_patience", default=None)


class SharedDeadline:
    """The deadline of the first request, on the clock of the code that sends it."""

    __slots__ = ("_until", "over")

    def __init__(self) -> None:
        self._until: float | None = None
        self.over = False
        """Whether the context has ended; tasks and timers started in it still have this object."""

    def until(self, deadline: float) -> float:
        """Return the effective deadline of a request whose own deadline is `deadline`."""
        if self.over:
            return deadline
        if self._until is None:
            self._until = deadline
        return min(deadline, self._until)


@contextmanager
def share_deadline() -> Iterator[None]:
    """Share one time limit between all requests in this context, also in threads that it starts."""
    held = _held.get()
    if held is not None and not held.over:
        yield
        return
    held = SharedDeadline()
    _held.set(held)
    try:
        yield
    finally:
        held.over = True
        _held.set(None)  # not `reset`: a generator may end in another context


def effective_deadline(deadline: float) -> float:
    """Return when a request must end: at `deadline`, or at an earlier deadline that it shares."""
    held = _held.get()
    return deadline if held is None else held.until(deadline)
