"""Raise `KeyboardInterrupt` after Ctrl-C, but not within a step of the engine.

In: a function of the I/O host that returns whether the host is within a step, in the main thread.
Out: `KeyboardInterrupt` at once if it isn't, or at the next `check()`; `from_outside`, which
distinguishes exceptions of a program's own signal handler from errors of the step. Must not:
replace a handler that the program installed, or change signal handlers outside the main thread.

Only Python's default SIGINT handler is replaced, for the time of one `run`. A second Ctrl-C, or a
program's own handler that raises, can interrupt a step nevertheless, which breaks the host: see
`selector_host`. If an exception leaves this handler installed, it acts as Python's handler while no
host works.

The traceback shows where an exception comes from, its type doesn't: a `TimeoutError` of a signal
handler passes through the handler's frame, and an exception without such a frame is a bug that ends
the client. Handlers in C that raise an ordinary `Exception` look like bugs.
"""

from __future__ import annotations

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType

SIGINT = int(signal.SIGINT)
"""SIGINT as an int, for C functions that `signal.signal` wraps to add enums.

The C functions are faster, and are called for each wait.
"""


def from_outside(error: BaseException) -> bool:
    """Return whether a signal handler raised this error, and not the interrupted code (R-HO-1).

    The error's type doesn't show this, as a program's handler may raise a `TimeoutError`. The
    traceback does: it contains a frame of an installed handler, or of a function that has the
    interrupted frame in a local variable.
    """
    if not isinstance(error, Exception):
        return True
    if (
        threading.get_ident() != threading.main_thread().ident
    ):  # handlers run in the main thread only
        return False
    handlers: set[CodeType] | None = None
    trace, above = error.__traceback__, None
    while trace is not None:
        frame = trace.tb_frame
        if handlers is None:
            handlers = _handlers()
        if frame.f_code in handlers or (
            above is not None and any(value is above for value in frame.f_locals.values())
        ):
            return True
        trace, above = trace.tb_next, frame
    return False


def not_from_outside(error: BaseException) -> None:
    """Raise an error again if it came from a signal handler, and so isn't a connection's error."""
    if from_outside(error):
        raise error


def _handlers() -> set[CodeType]:
    """Return the code objects of all signal handlers that are written in Python."""
    found = set()
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        if not isinstance(handler, FunctionType | MethodType) and callable(handler):
            handler = type(handler).__call__
        code = getattr(handler, "__code__", None)  # a method returns its function's code
        if isinstance(code, CodeType):
            found.add(code)
    return found


class InterruptGuard:
    """Signal handler that delays `KeyboardInterrupt` while `amid()` is true."""

    def __init__(self, amid: Callable[[], bool]) -> None:
        self._amid = amid
        self._main = threading.main_thread().ident  # a forked child never uses this object
        self.pending = False
        """Whether an interrupt was delayed."""

    def install(self) -> bool:
        """Replace the default handler; return False if that isn't possible in this thread."""
        if threading.get_ident() != self._main:
            return False
        found = getsignal(SIGINT)
        if found is not signal.default_int_handler and found != self._interrupted:
            return False
        self.pending = False
        set_handler(SIGINT, self._interrupted)
        return True

    def remove(self) -> None:
        """Restore the default handler, and raise a delayed interrupt."""
        if getsignal(SIGINT) == self._interrupted:
            set_handler(SIGINT, signal.default_int_handler)
        if self.pending:
            self._raise()

    def check(self) -> None:
        """Raise a delayed `KeyboardInterrupt`, if there is one."""
        if self.pending:
            self._raise()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.pending or not self._amid():
            self._raise()
        self.pending = True

    def _raise(self) -> None:
        self.pending = False
        raise KeyboardInterrupt
