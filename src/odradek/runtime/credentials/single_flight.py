"""Run a slow function once for all threads that need its result at the same time.

In: calls from the worker threads of one client's connections. Out: the result of the call that is
running, or of a new call. A call that hangs is abandoned after a while, and the next caller starts
a new call; but only a few may hang at once, because a thread can't be ended from outside. Must not:
keep a result for later callers, because only they know how long it is valid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from odradek.runtime.locks import LONGEST_WAIT, new_lock
from odradek.runtime.system_clock import monotonic_clock

T = TypeVar("T")

MOST_HANGING = 4
"""Number of abandoned calls that still run, from which on no new call is started."""


@dataclass(slots=True)
class _Run(Generic[T]):
    began: float
    done: threading.Event = field(default_factory=threading.Event)
    result: T | None = None
    error: BaseException | None = None


class SingleFlight(Generic[T]):
    """A function without arguments, of which concurrent callers share one call."""

    def __init__(
        self,
        function: Callable[[], T],
        patience: float = 30.0,
        clock: Callable[[], float] = monotonic_clock(),  # noqa: B008 - one function
    ) -> None:
        self._function = function
        self._patience = patience
        self._clock = clock
        self._lock = new_lock()
        self._run: _Run[T] | None = None
        self._hanging: set[int] = set()

    def __call__(self) -> T:
        """Return the result of the running call; without one, call the function in this thread."""
        with self._lock:
            run, now = self._run, self._clock()
            mine = run is None or now - run.began >= self._patience
            if run is None or mine:
                if run is not None:
                    self._give_up(run)
                run = self._run = _Run(now)
        if mine:
            self._do(run)
        elif not run.done.wait(
            min(max(0.0, run.began + self._patience - self._clock()), LONGEST_WAIT)
        ):
            raise TimeoutError("the previous call of the same function hasn't returned in time")
        if run.error is not None:
            # Each caller gets its own copy of the error, with its own traceback.
            raise run.error if mine else _again(run.error)
        return run.result  # type: ignore[return-value]  # set by _do()

    def _give_up(self, run: _Run[T]) -> None:
        """Abandon a call; raise if too many abandoned calls are still running."""
        self._hanging.add(id(run))
        if len(self._hanging) >= MOST_HANGING:
            raise TimeoutError(
                f"{len(self._hanging)} previous calls haven't returned, so the function isn't "
                "called again"
            )

    def _do(self, run: _Run[T]) -> None:
        try:
            run.result = self._function()
        except BaseException as error:
            run.error = error
        with self._lock:
            self._hanging.discard(id(run))
            if self._run is run:
                self._run = None
        run.done.set()


def _again(error: BaseException) -> BaseException:
    """Return a copy of an error for another thread, as sharing it would mix their tracebacks."""
    try:
        copy = type(error)(*error.args)
    except Exception:
        return error
    copy.__cause__ = error.__cause__ or error
    return copy
