"""Says when this process ends: after its threads, also where `atexit` is never asked.

In: what is to be done. Out: it is called once when the interpreter ends, and again after the last
of the program's exit handlers. A child of `multiprocessing` that was forked ends by `os._exit`: it
is called after that child's finalisers and threads.
Must not: import `multiprocessing`, which most programs don't have.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

LAST = -(1 << 30)
"""The priority of a finaliser that is called after all others."""


class _ExitHandler:
    """`atexit` calls it at its turn, and lets go of it once all handlers have been called.

    Those that were registered before it are called after it, `logging.shutdown` for one, and it may
    be that they send records. When CPython's `atexit` drops what it has called, the last of them
    has returned and threads still run: there is no later moment at which they do.
    """

    def __init__(self, ends: Callable[[], None], is_over: Callable[[], None]) -> None:
        self._called = False
        self._ends = ends
        self._is_over = is_over

    def __call__(self) -> None:
        self._called = True
        self._ends()

    def __del__(self) -> None:
        if self._called:  # or else somebody has emptied the list of handlers
            self._is_over()


class ProcessEnd:
    """What is done at the end of this process, and of the children that it forks."""

    def __init__(
        self, ends: Callable[[], None], is_over: Callable[[], None], concerned: Callable[[], bool]
    ) -> None:
        self._ends = ends
        self._is_over = is_over
        self._concerned = concerned
        self._with_atexit = False
        self._with_forks = False
        self._child = -1

    def watch(self) -> None:
        """Have it done in this process; asked each time that there is something new to do.

        `multiprocessing` may have been loaded since the last time, or this may be a new child.
        """
        if not self._with_atexit:
            atexit.register(_ExitHandler(self._ends, self._is_over))
            self._with_atexit = True  # after it: interrupted, it is done twice, which is no harm
        util: Any = sys.modules.get("multiprocessing.util")
        if util is None:  # nor is this one of its children
            return
        if not self._with_forks:
            # A child forgets the finalisers that it was given before it begins.
            util.register_after_fork(self, ProcessEnd.watch)
            self._with_forks = True
        process: Any = sys.modules["multiprocessing.process"]
        if process.parent_process() is not None and self._child != os.getpid():
            util.Finalize(None, self._child_ends, exitpriority=LAST)
            self._child = os.getpid()

    def _child_ends(self) -> None:
        """What `multiprocessing` does next in a child is to wait for its threads; only then are
        all records sent.
        """
        if self._concerned():
            wait_for_threads = getattr(threading, "_shutdown", None)
            if wait_for_threads is not None:  # done twice it does nothing
                wait_for_threads()
            self._ends()
