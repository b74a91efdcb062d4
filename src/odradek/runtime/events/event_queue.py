"""Queue a client's events for a topic: a bounded queue, and a thread that empties it.

In: events, as a listener of the client's `EventLog`, inside the client's step. Out: the lines of
`common.events.event_line`, in order, to a sink that may wait, fail and retry: that happens in this
thread, so the client never waits for its own events. If the queue is full, events are dropped and
counted; the count is a separate line once there is space. Temporary errors, and refusals too, don't
stop the queue, as the client continues as well. Must not disturb the client (one warning if events
wait for long, one when they are given up, then silence), work in a forked child, or know what a
topic is.
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
"""Maximum number of waiting events: minutes of an outage, some megabytes."""
PAUSE_S = 1.0
"""Seconds between two attempts if the first one failed at once."""
QUIET_S = 60.0
"""Seconds of an outage, or without the topic, after which a WARNING is logged."""
DROPPED = "events_dropped"
"""Kind of an event whose field `count` is the number of events dropped before it."""


class EventSink(Protocol):
    """Destination of the lines."""

    def send(self, line: bytes, at: float) -> None:
        """Send one line; after a refusal or a retriable error, it is sent again."""

    def close(self, timeout: float) -> None:
        """Deliver accepted events, for at most `timeout` seconds."""


class EventQueue:
    """Queues one client's events; the thread calls `open_sink` at the first event."""

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
        """Number of events that were dropped, because the queue was full or had no sink."""
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
        """Releasing it wakes the thread. A finalizer mustn't use an Event, which has a lock."""
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
            except RuntimeError as error:  # no more threads, or the interpreter is ending
                self._give_up(error)
                return
            self._thread = thread
        self._wake()

    def close(self, timeout: float) -> None:
        """Deliver waiting events, for at most `timeout` seconds; drop the rest."""
        if self._ends_at is not None or self._guard.forked:
            return
        self.finish(timeout)
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def finish(self, timeout: float) -> None:
        """Like `close`, without waiting for the thread; may be called in a finalizer (R-HO-4)."""
        if self._ends_at is None and not self._guard.forked:
            self._ends_at = monotonic() + timeout
            self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # not held: the thread is awake
            self._sleep.release()

    def _line(self, event: Event, at: float) -> bytes:
        return event_line(event, at, self._host, self._pid, self._client)

    # The thread

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
        except Exception as error:  # e.g. an outage: these events are lost
            if not self._failed:
                self._give_up(error)

    def _empty(self, sink: EventSink) -> None:
        """Send lines until the client is closed and all are sent, or the close times out."""
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
        """Try until the line is sent; return False when the time is over."""
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
