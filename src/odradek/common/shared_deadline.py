"""Share one time limit between several requests that are one call for their caller.

In: nothing. Out: a context in which requests to a server share the time limit of the first of them.
Must not: read a clock, or know callers and servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_held: ContextVar[SharedDeadline | None] = ContextVar("odradek_patience", default=None)


class SharedDeadline:
    """The deadline of the first request, by the clock of the code that sends it."""

    __slots__ = ("_until", "over")

    def __init__(self) -> None:
        self._until: float | None = None
        self.over = False
        """Whether the context has ended; tasks and timers that it started still refer to this."""

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
        _held.set(None)  # no reset: a generator may be closed in another context


def effective_deadline(deadline: float) -> float:
    """Return when a request has to end: its own deadline, or the one that it shares."""
    held = _held.get()
    return deadline if held is None else held.until(deadline)
