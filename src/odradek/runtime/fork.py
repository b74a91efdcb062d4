"""Let a forked child drop its parent's clients, which it can't use.

In: objects with file descriptors, such as hosts and event files, register here. Out:
`ClientForkedError` for every call in a child, raised before any lock is taken (the thread that held
a lock doesn't exist in the child). Must not: remove a socket from an epoll set. The set is shared
with the parent, which would receive nothing any more; closing file descriptors doesn't affect it.
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
        """Close the child's copies of all file descriptors, without any other effect."""


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
        with suppress(Exception):  # an error mustn't affect the child
            owner.abandon()
    _opened.clear()


class ForkSwitch:
    """Flag that is False in a forked child, as a cheap check for each record.

    To get the process id would be a system call. In a child that Python didn't fork, the flag isn't
    cleared, so `ForkGuard` is checked before a lock or socket is used.
    """

    __slots__ = ("__weakref__", "here")

    def __init__(self) -> None:
        self.here = True
        watch(self)

    def abandon(self) -> None:
        """Clear the flag, because this is a forked child."""
        self.here = False


class ForkGuard:
    """The id of the process that created a client, and a check of it."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process isn't the one that created the client, but a forked child."""
        return os.getpid() != self.pid

    def check(self) -> None:
        """Raise `ClientForkedError` if this process is a forked child."""
        if os.getpid() != self.pid:
            raise ClientForkedError(
                f"this client was created in process {self.pid}, but this is its forked child "
                f"{os.getpid()}: create a new client here"
            )
