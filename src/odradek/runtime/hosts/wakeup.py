"""End a host's sleep from other threads.

In: `wake` from any thread. Out: a selector that returns. The socket pair exists as long as the
selector does, and a byte is only written during a sleep. Must not: take a lock.
"""

from __future__ import annotations

import os
import selectors
import socket
from contextlib import suppress


class WakeUp:
    """A flag and, once there is a selector, a socket pair."""

    def __init__(self) -> None:
        self.sleeping = False
        """Whether the host's thread sleeps, or is about to: it checks its inputs once more."""
        self.pending = False
        """Whether `wake` was called since the last step began."""
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._sleep = 0
        """The number of the last sleep."""
        self._told = -1
        """The last sleep for which a byte was written; one byte per sleep is enough."""

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
        """End the sleep. Record the input before this call, so that it can't be missed."""
        self.pending = True
        sleep = (
            self._sleep
        )  # read first: if this is outdated, the byte only ends the next sleep early
        if not self.sleeping or self._told == sleep:
            return
        # Don't clear `sleeping` here: an exception before `send` would then lose this wake-up.
        pair = self._pair
        if pair is not None:
            try:
                pair[1].send(b"w")
            except OSError:  # full: a byte is pending already; closed: no thread sleeps
                return
            self._told = sleep

    def drain(self) -> None:
        """Read all pending bytes."""
        if self._pair is not None:
            try:
                self._pair[0].recv(4096)
            except OSError:
                return

    def close(self) -> None:
        """Close the pair; this can be repeated if it was interrupted."""
        for end in self._pair or ():
            end.close()
        self._pair = None

    def abandon(self) -> None:
        """Close the file descriptors in a forked child."""
        pair, self._pair = self._pair, None
        for end in pair or ():
            with suppress(OSError):
                os.close(end.detach())
