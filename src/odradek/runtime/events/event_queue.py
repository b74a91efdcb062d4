"""Queue a client's events that are written to a topic by a separate thread.

In: events, as a listener of the client's `EventLog`. Out: the lines of `common.events.event_line`,
in order, passed to an `EventSink`, which may wait, fail and retry in the separate thread, so that
the client never waits for its events. If the queue is full, events are dropped; once it has space,
a line with their number follows. Errors, even permission errors, don't stop the queue. Must not:
disturb the client (a warning is logged if events wait for long, and another if they are given up),
work in a forked child, or know topics.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from odradek.common.errors import KafkaError
from odradek.common.events import Event, event_line
from odradek.runtime.fork import ForkGuard
from odradek.runtime.system_clock import monotonic

logger = logging.getLogger("odradek")

LIMIT = 10_000
"""Maximum number of waiting events: those of minutes of an outage, in some megabytes."""
PAUSE_S = 1.0
"""Seconds between two attempts to send a line if the first one failed at once."""
QUIET_S = 60.0
"""Seconds without success in sending events after which a WARNING is logged."""
DROPPED = "events_dropped"
"""Kind of the event whose field `count` is the number of events dropped before it."""


class EventSink(Protocol):
    """Destination of the lines that an `EventQueue` sends."""

    def send(self, line: bytes, at: float) -> None:
        """Send one line; if this raises a retriable or authorization error, it is called again."""

    def close(self, timeout: float) -> None:
        """Deliver accepted events, for at most `timeout` seconds."""


class EventQueue:
    """The queue of one client's events; its thread calls `open_sink` at the first event."""

    def __init__(
        self,
        open_sink: Callable[[], EventSink],
        client: str,
        *,
        where: str,
        limit: int = LIMIT,
        pause: float = PAUSE_S,
        quiet: float = QUIET_S,
    ) -> None:
        self.dropped = 0
        """Number of events that were dropped because the queue was full or had no sink."""
        self._open_sink = open_sink
        self._client = client
        self._where = where
        self._limit, self._pause, self._quiet = limit, pause, quiet
        self._host = platform.node() or "host"
        self._pid = os.getpid()
        self._guard = ForkGuard()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._told = 0
        self._sleep = threading.Lock()
        """Releasing this lock wakes the thread; a finalizer mustn't use the lock of an `Event`."""
        self._sleep.acquire()
        self._ending = threading.Event()
        self._warned = False
        self._thread: threading.Thread | None = None
        self._ends_at: float | None = None
        self._failed = False

    def __call__(self, event: Event) -> None:
        """Queue one event; never waits and never raises."""
        if self._guard.forked or self._ends_at is not None:
            return
        if self._failed or len(self._waiting) >= self._limit:
            self.dropped += 1
            return
        at = time.time()
        self._waiting.append((at, self._line(event, at)))
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="odradek-events", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no thread can be started
                self._give_up(error)
                return
            self._thread = thread
        self._wake()

    def close(self, timeout: float) -> None:
        """Send waiting events for at most `timeout` seconds, then drop the remaining ones."""
        if self._ends_at is not None or self._guard.forked:
            return
        self.finish(timeout)
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def finish(self, timeout: float) -> None:
        """End the queue without waiting for its thread, as a finalizer must (R-HO-4)."""
        if self._ends_at is None and not self._guard.forked:
            self._ends_at = monotonic() + timeout
            self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the thread isn't sleeping
            self._sleep.release()

    def _line(self, event: Event, at: float) -> bytes:
        return event_line(event, at, self._host, self._pid, self._client)

    # The code that the queue's thread runs

    def _run(self) -> None:
        try:
            sink = self._open_sink()
        except Exception as error:  # the client continues without events
            self._give_up(error)
            return
        try:
            self._empty(sink)
        except Exception as error:
            self._give_up(error)
        try:
            sink.close(self._left())
        except Exception as error:  # such as an outage: events are lost
            if not self._failed:
                self._give_up(error)

    def _empty(self, sink: EventSink) -> None:
        """Send lines until the client is closed and all lines are sent, or `close` times out."""
        while True:
            self._sleep.acquire()
            while self._waiting:
                at, line = self._waiting[0]
                if not self._sent(sink, line, at):
                    return
                self._waiting.popleft()
                self._tell_dropped()
            if self._ends_at is not None and not self._waiting:
                return

    def _sent(self, sink: EventSink, line: bytes, at: float) -> bool:
        """Retry until the line is sent; return False if `close` timed out before."""
        begun = monotonic()
        while True:
            try:
                sink.send(line, at)
            except KafkaError as error:
                if error.fatal or not (error.retriable or error.sticky):
                    raise
                if self._ends_at is not None and not self._left():
                    return False
                if error.sticky or monotonic() - begun >= self._quiet:
                    self._tell_waiting(error)
                if not isinstance(error, TimeoutError):  # it failed at once
                    self._ending.wait(self._pause)
            else:
                return True

    def _left(self) -> float:
        return 0.0 if self._ends_at is None else max(0.0, self._ends_at - monotonic())

    def _tell_dropped(self) -> None:
        count = self.dropped - self._told
        if count and len(self._waiting) < self._limit // 2:
            self._told += count
            at = time.time()
            self._waiting.append((at, self._line(Event(at, DROPPED, {"count": count}), at)))

    def _tell_waiting(self, error: KafkaError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "[%s] publishing events to %s is delayed: %s; the client itself isn't affected",
                *(self._client, self._where, error),
            )

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        self.dropped += len(self._waiting)
        self._waiting.clear()
        kind = "" if isinstance(error, KafkaError) else f"{type(error).__name__}: "
        logger.warning(
            "[%s] events are no longer published to %s: %s%s; the client itself isn't affected",
            *(self._client, self._where, kind, error),
        )
