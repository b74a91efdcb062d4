"""Ctrl-C while a host works in the main thread: `KeyboardInterrupt` comes between two steps.

In: a host says when it sleeps or runs user code. Out: `KeyboardInterrupt` there and at `check()`,
never inside an engine's step, which would leave its state half moved. Must not: replace a handler
that the program installed for itself, or touch signals outside the main thread.

Only Python's default SIGINT handler is replaced, for the time of one `run`. Limits: an exception
raised by a program's own signal handler may still end a step halfway, and such a client should be
closed. A second Ctrl-C is raised wherever it falls, so that nothing can hold it up for ever.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class InterruptGuard:
    """A context manager around one `run`; may be entered again inside itself."""

    __slots__ = ("_depth", "_installed", "_pending", "interruptible")

    def __init__(self) -> None:
        self.interruptible = False
        """Whether Ctrl-C is raised on the spot: the host sleeps or runs user code."""
        self._depth = 0
        self._installed = False
        self._pending = False

    def __enter__(self) -> Self:
        self._depth += 1
        if (
            self._depth == 1
            and threading.get_ident() == threading.main_thread().ident
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._pending = False
            self._installed = True  # first: a signal between these two lines does no harm
            signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False
            if self._pending:
                self._raise()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.interruptible or self._pending:
            self._raise()
        self._pending = True

    def _raise(self) -> None:
        self._pending = False
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise the `KeyboardInterrupt` that was held back, if there is one."""
        if self._pending:
            self._raise()
