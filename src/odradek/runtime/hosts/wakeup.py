"""Wake an I/O host, which sleeps in a selector, from other threads.

In: calls of `wake` from any thread. Out: the selector's `select` returns. The socket pair exists as
long as the selector, and a byte is only written while the host sleeps. Must not: take a lock.
"""

from __future__ import annotations

import os
import selectors
import socket
from contextlib import suppress


class WakeUp:
    """A flag and, once a selector exists, a socket pair that the selector watches."""

    def __init__(self) -> None:
        self.sleeping = False
        """Whether the host's thread sleeps, or is about to sleep after checking its inputs."""
        self.pending = False
        """Whether `wake` was called since the last step began."""
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._sleep = 0
        """Serial number of the last sleep."""
        self._told = -1
        """Serial number of the last sleep for which a byte was written; one byte is enough."""

    def open(self, selector: selectors.BaseSelector) -> None:
        """Create the socket pair; after a failure, call `close` and close the selector."""
        ours, theirs = self._pair = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        selector.register(ours.fileno(), selectors.EVENT_READ, None)

    def step_begins(self) -> None:
        """Note that a step begins, so that a later `wake` requires another step."""
        self.pending = False

    def goes_to_sleep(self) -> None:
        """Note that the thread will sleep after it has checked its inputs once more."""
        self._sleep += 1
        self.sleeping = True

    def is_awake(self) -> None:
        """Note that the sleep is over."""
        self.sleeping = False

    def wake(self) -> None:
        """End the sleep; callers record their input first, so that the host can't miss it."""
        self.pending = True
        sleep = self._sleep  # read first: an outdated number only costs a wake-up
        if not self.sleeping or self._told == sleep:
            return
        # Don't clear `sleeping` here: an exception before `send` would then lose this wake-up.
        pair = self._pair
        if pair is not None:
            try:
                pair[1].send(b"w")
            except OSError:  # full: already woken; closed: no sleep
                return
            self._told = sleep

    def drain(self) -> None:
        """Read all bytes from the socket that `wake` writes to."""
        if self._pair is not None:
            try:
                self._pair[0].recv(4096)
            except OSError:
                return

    def close(self) -> None:
        """Close the sockets; if this was interrupted, it can be repeated."""
        for end in self._pair or ():
            end.close()
        self._pair = None

    def abandon(self) -> None:
        """Close the file descriptors in a forked child."""
        pair, self._pair = self._pair, None
        for end in pair or ():
            with suppress(OSError):
                os.close(end.detach())
