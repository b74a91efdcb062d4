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
        """Whether the sleeper is checking its inputs for the last time, or sleeps."""
        self.pending = False
        """Whether it was woken since the last step began: the engine's queue may lack inputs.
        """
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._sleep = 0
        """The number of the last sleep."""
        self._told = -1
        """The newest sleep for which a byte was written: one byte is enough."""

    def open(self, selector: selectors.BaseSelector) -> None:
        """Create the pair; if that fails, `close` and the selector's end leave nothing open."""
        ours, theirs = self._pair = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        selector.register(ours.fileno(), selectors.EVENT_READ, None)

    def step_begins(self) -> None:
        """Note that from here on a wake-up requires another step."""
        self.pending = False

    def goes_to_sleep(self) -> None:
        """Note that the sleeper checks its inputs for the last time after this."""
        self._sleep += 1
        self.sleeping = True

    def is_awake(self) -> None:
        """Note that the sleep is over."""
        self.sleeping = False

    def wake(self) -> None:
        """End the sleep. The input must have been recorded before: no wake-up is lost then."""
        self.pending = True
        sleep = self._sleep  # read first: a byte for an earlier sleep only ends the next one
        if not self.sleeping or self._told == sleep:
            return
        # `sleeping` isn't cleared here: an exception before the byte would then lose a wake-up.
        pair = self._pair
        if pair is not None:
            try:
                pair[1].send(b"w")
            except OSError:  # full: a byte is pending already; closed: there is no sleeper
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
        """Close the pair; calling it again after an interruption does no harm."""
        for end in self._pair or ():
            end.close()
        self._pair = None

    def abandon(self) -> None:
        """Close the file descriptors in a forked child."""
        pair, self._pair = self._pair, None
        for end in pair or ():
            with suppress(OSError):
                os.close(end.detach())
