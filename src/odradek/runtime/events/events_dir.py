"""Write a client's events as JSON lines, one file per process (R-EV-1).

In: events, as a listener of the client's `EventLog`. Out: lines in a file, which other processes
read while it is written (Spark's workers have no other channel to the driver). Must not: buffer
lines, write in a forked child, follow a link or block on a pipe that another user created (R-IN-5),
or disturb the client if the disk is full: only one warning is logged.

Each line has `time` (seconds since the epoch), `host`, `pid`, `client`, `kind` and the event's own
fields.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.common.events import Event, event_line
from odradek.runtime.fork import ForkGuard, watch
from odradek.runtime.private_files import append_privately
from odradek.runtime.unclosed_clients import when_collected

if TYPE_CHECKING:
    import weakref

logger = logging.getLogger("odradek")


class EventFile:
    """A listener that appends a client's events to the file of this process.

    The file is opened at the first event, and also closed when this object is freed (R-HO-4).
    """

    def __init__(self, directory: str | os.PathLike[str], client: str) -> None:
        self._host = platform.node() or "host"
        self.path = Path(directory) / f"events-{self._host}-{os.getpid()}.jsonl"
        self._client = client
        self._guard = ForkGuard()
        self._descriptor: int | None = None
        self._close: weakref.finalize[..., Any] | None = None
        """Finalizer that closes the open descriptor."""
        self._warned = False
        self._torn = False

    def __call__(self, event: Event) -> None:
        """Write one event; an error of the file isn't raised."""
        if self._guard.forked:
            return
        try:
            self._write(self.line(event))
        except (OSError, TypeError, ValueError) as error:
            if not self._warned:
                self._warned = True
                logger.warning("events can't be written to %s: %s", self.path, error)

    def line(self, event: Event) -> bytes:
        """Return an event as one line of JSON, with the time of the system's clock."""
        return event_line(event, time.time(), self._host, os.getpid(), self._client)

    def _write(self, line: bytes) -> None:
        if self._descriptor is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = descriptor = append_privately(self.path)
            self._close = when_collected(self, _close, descriptor)
            watch(self)
        if self._torn:  # after a cut line (disk full)
            line = b"\n" + line
        count = os.write(self._descriptor, line)
        self._torn = count < len(line)

    def close(self) -> None:
        """Close the file; a later event opens it again."""
        close, self._close, self._descriptor = self._close, None, None
        if close is not None and not self._guard.forked:
            close()

    def abandon(self) -> None:
        """Close a forked child's copy of the descriptor."""
        close, self._close, self._descriptor = self._close, None, None
        if close is not None:
            close()


def _close(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)
