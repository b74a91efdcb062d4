"""The lock of a client: a C lock, so that no exception can leave it held (R-HO-1).

In: nothing. Out: a reentrant lock that knows whether this thread has it: whoever finds that has
interrupted it (a signal handler, a finaliser, a logging handler) and has to leave (R-HO-2).
Must not: wrap its `__enter__` or `__exit__` in Python: between the bytecodes of a wrapper a signal
finds the lock taken and nobody who gives it back. Forks are checked before it is taken.
"""

from __future__ import annotations

import threading

_Reentrant = type(threading.RLock())


class ClientLock(_Reentrant):  # type: ignore[valid-type, misc]  # the C type has no public name
    """A reentrant lock; `with` calls C alone."""

    __slots__ = ()

    is_mine = vars(_Reentrant)["_is_owned"]
    """Whether this thread has it: what `threading.Condition` asks, too."""


def new_lock() -> ClientLock:
    """A lock for one client."""
    return ClientLock()


def this_thread() -> int:
    """The number of the thread that calls; another thread may have it after this one's end."""
    return threading.get_ident()
