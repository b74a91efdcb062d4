"""Imports inside of calls, which an exception from outside may end at any place (R-HO-1).

In: names of modules. Out: they are loaded, and the interpreter's import lock is free whatever
happened. CPython's importlib takes that lock and lets go of it in Python: a signal handler that
raises in between leaves it held, and every later import of any other thread hangs for good.
Must not: import in a thread of its own, which no signal would reach: pyarrow 25 crashes once the
thread that loaded it has ended (apache/arrow#50471).
"""

from __future__ import annotations

import _imp
import sys
from importlib import import_module
from types import TracebackType

_loaded: set[str] = set()
IMPORTLIB = "<frozen importlib"


def loaded(*names: str) -> None:
    """Have modules imported, so that the statement which follows finds them."""
    for name in names:
        if name not in _loaded or name not in sys.modules:  # pytest puts those back, for one
            _load(name)


def _load(name: str) -> None:
    amid_another = _imp.lock_held()  # of what this has interrupted, perhaps: then it is not ours
    try:
        import_module(name)
        _loaded.add(name)
    finally:
        if not amid_another:
            _let_go(sys.exc_info()[2])


def _let_go(trace: TracebackType | None) -> None:
    """Release what an interrupted import of this thread has left held; in most cases nothing."""
    while _imp.lock_held():
        try:
            _imp.release_lock()
        except RuntimeError:  # another thread's
            break
    while trace is not None:  # a module's own lock goes with the frame that took it
        if trace.tb_frame.f_code.co_filename.startswith(IMPORTLIB):
            trace.tb_frame.clear()
        trace = trace.tb_next
