"""What a forked child may do with a client of its parent: nothing but let go of it.

In: hosts and event files register here when they open something. Out: `ClientForkedError` for
every call in a child, raised before any lock is taken (the thread that held it isn't in the child).
A fork waits until no other thread is in the middle of an import of ours: the child would have half
a module whose lock nobody gives back, so that the same import there hangs, or goes on with half.
Must not: take a socket out of an epoll set. The set is shared with the parent, so that would make
the parent deaf; closing the child's file descriptors changes nothing there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from weakref import WeakSet

from odradek.common.errors import ClientForkedError
from odradek.common.imports import keep_amid

FORK_WAITS_S = 5.0
"""No longer: a fork may itself be in the middle of an import that the other thread waits for. An
import waits for a fork as long: then it was interrupted, or is another's import that takes long.
"""


class Forkable(Protocol):
    """Something whose file descriptors a child has to let go of."""

    def abandon(self) -> None:
        """Close the child's copies of all file descriptors, and do nothing else."""


_opened: WeakSet[Forkable] = WeakSet()
_hooked = False
_importing = threading.RLock()


def watch(owner: Forkable) -> None:
    """Have `owner.abandon()` called in every child that is forked from now on."""
    global _hooked
    _opened.add(owner)
    if not _hooked:
        _hooked = True
        keep_amid(_import)
        os.register_at_fork(
            before=lambda: _importing.acquire(timeout=FORK_WAITS_S),
            after_in_parent=_go_on,
            after_in_child=_abandon_all,
        )


@contextmanager
def _import() -> Iterator[None]:
    """In the main thread an exception from outside could leave the lock held."""
    global _importing
    if threading.get_ident() == threading.main_thread().ident:
        yield
        return
    while not (lock := _importing).acquire(timeout=FORK_WAITS_S):
        if lock is _importing:  # who forked was interrupted before `_go_on`, and has it for good
            _importing = threading.RLock()
    try:
        yield
    finally:
        lock.release()


def _go_on() -> None:
    with suppress(RuntimeError):  # it wasn't to be had in time
        _importing.release()


def _abandon_all() -> None:
    global _importing
    _importing = threading.RLock()
    for owner in list(_opened):
        with suppress(Exception):  # the child's own work must not suffer
            owner.abandon()
    _opened.clear()


class ForkSwitch:
    """Says whether this is still the process that made it, to those who ask for each record.

    To ask for the pid is a system call. A child that wasn't forked by Python isn't noticed here; it
    is by the guard, which everything asks that takes a lock or touches a socket.
    """

    __slots__ = ("__weakref__", "here")

    def __init__(self) -> None:
        self.here = True
        watch(self)

    def abandon(self) -> None:
        """Called in a forked child."""
        self.here = False


class ForkGuard:
    """Remembers the process that made a client."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the client."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise in a forked child."""
        if os.getpid() != self._pid:
            raise ClientForkedError(
                f"this client was made in process {self._pid} and this is its forked child "
                f"{os.getpid()}: make a new client here"
            )
