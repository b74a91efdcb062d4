"""Define the lock of a client: written in C, so that no exception can leave it held (R-HO-1).

In: nothing. Out: a reentrant lock that knows whether this thread holds it. If it does, the running
code has interrupted the holder (as a signal handler, a finalizer, a logging handler) and has to
return (R-HO-2). Must not: wrap `__enter__` or `__exit__` in Python, since a signal between the
bytecodes of a wrapper would leave the lock held forever. Callers check for a fork before they take
the lock.

CPython 3.14 checks for signals after each call, including `__enter__`, before the block is entered:
so `with` may leave a C lock held (after 47,000 of 70,000 signals). Therefore from 3.14 on
`__enter__` is in Python after all: it calls the C function inside a `try`, and no signal is handled
between the end of `__enter__` and the block.

CPython's import locks have the same problem: an exception of a signal handler during an import may
leave a lock held, and other threads hang at their next import. A thread that does all imports would
be worse: pyarrow 25 crashes once the thread that loaded it has ended (apache/arrow#50471).
"""

from __future__ import annotations

import sys
import threading

LONGEST_WAIT = 86_400.0
"""Maximum number of seconds of one wait; some system calls refuse more than 24.8 days (2^31 ms)."""
_Reentrant = type(threading.RLock())


class ClientLock(_Reentrant):  # type: ignore[valid-type, misc]  # the C type has no public name
    """A reentrant lock that `with` always releases, even if a signal handler raises an error."""

    __slots__ = ()

    is_mine = vars(_Reentrant)["_is_owned"]
    """Method that returns whether this thread holds the lock (`threading.Condition` uses it)."""

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:
            before = _held(self)
            try:
                return _take(self)
            except BaseException:
                if _held(self) > before:
                    self.release()
                raise


if sys.version_info >= (3, 14):
    _take, _held = _Reentrant.acquire, vars(_Reentrant)["_recursion_count"]


def new_lock() -> ClientLock:
    """Return a lock for one client."""
    return ClientLock()


def new_mark() -> ClientLock | threading.Lock:
    """Return a lock, not reentrant, whose state (`locked`) any thread may read."""
    return ClientLock() if sys.version_info >= (3, 14) else threading.Lock()


def this_thread() -> int:
    """Return the id of the calling thread; another thread may get this id after its end."""
    return threading.get_ident()
