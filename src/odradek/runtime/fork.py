"""Let a forked child drop its parent's clients, which it can't use.

In: hosts and event files register here when they open something. Out: `ClientForkedError` for every
call in a child, raised before any lock is taken (the thread that held it doesn't exist in the
child). Must not: remove a socket from an epoll set. The set is shared with the parent, so the
parent would receive nothing any more; closing the child's file descriptors changes nothing there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from odradek.common.errors import ClientForkedError


class Forkable(Protocol):
    """An object with file descriptors that a forked child has to close."""

    def abandon(self) -> None:
        """Close the child's copies of all file descriptors, and do nothing else."""


_opened: WeakSet[Forkable] = WeakSet()
_hooked = False


def watch(owner: Forkable) -> None:
    """Call `owner.abandon()` in every child that is forked from now on."""
    global _hooked
    _opened.add(owner)
    if not _hooked:
        _hooked = True
        os.register_at_fork(after_in_child=_abandon_all)


def _abandon_all() -> None:
    for owner in list(_opened):
        with suppress(Exception):  # an error mustn't affect the child's own work
            owner.abandon()
    _opened.clear()


class ForkSwitch:
    """Whether this is the process that created the object; a cheap check for each record.

    Getting the pid is a system call, so a fork by Python sets a flag instead. For a child that
    Python didn't fork, see `ForkGuard`, which is checked before a lock or socket is used.
    """

    __slots__ = ("__weakref__", "here")

    def __init__(self) -> None:
        self.here = True
        watch(self)

    def abandon(self) -> None:
        """Note that this is a forked child."""
        self.here = False


class ForkGuard:
    """Remembers the process that created a client."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that created the client."""
        return os.getpid() != self.pid

    def check(self) -> None:
        """Raise `ClientForkedError` in a forked child."""
        if os.getpid() != self.pid:
            raise ClientForkedError(
                f"this client was created in process {self.pid}, but this is its forked child "
                f"{os.getpid()}: create a new client here"
            )
