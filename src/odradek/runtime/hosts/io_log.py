"""Pass log lines of I/O threads to handlers in another thread, without waiting (R-HO-2).

In: log records of this package's loggers, logged in a thread that was marked by `enter`. Out: the
log records, in order, to their logger's filters and handlers, in a separate thread, which ends when
it is idle. So a handler may block: one that sends to Kafka may wait for buffer memory, which the
I/O thread frees. Levels are checked before. If the queue is full, log records are dropped and
counted, and the count is logged. Must not: run a handler in an I/O thread, delay log records of
other threads, start a thread if nothing is logged, or log the parent's records in a forked child.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from contextlib import suppress
from queue import Empty, SimpleQueue

from odradek.common.log_filter import LOGGERS
from odradek.runtime.fork import watch
from odradek.runtime.locks import new_lock

logger = logging.getLogger("odradek")

LIMIT = 10_000
"""Maximum number of queued log records."""
IDLE_S = 0.2
"""Seconds without a log record after which the thread ends."""
DRAIN_S = 1.0
"""Maximum seconds for which `close()` and the program's exit wait for slow handlers."""


class IoLog(logging.Filter):
    """Filter of this package's loggers that lets another thread handle I/O threads' records."""

    def __init__(self, limit: int = LIMIT, idle: float = IDLE_S) -> None:
        super().__init__()
        self._limit, self._idle = limit, idle
        self._begin()

    def _begin(self) -> None:
        self._io_threads: set[int] = set()
        self._waiting: SimpleQueue[logging.LogRecord | threading.Lock] = SimpleQueue()
        self._turn = new_lock()
        """Lock of the thread that passes records to handlers, so that only one does, in order."""
        self._thread = -1
        self._running = False
        self._count = new_lock()
        self._dropped = 0

    def abandon(self) -> None:
        """Forget all log records in a forked child, because the parent handles them."""
        self._begin()

    # I/O threads

    def enter(self) -> None:
        """Mark the calling thread as an I/O thread."""
        for name in LOGGERS:
            filters = logging.getLogger(name).filters
            if self not in filters:
                filters.insert(0, self)  # first: other filters run in the other thread
        watch(self)  # a child's threads may have these ids
        self._io_threads.add(threading.get_ident())

    def leave(self) -> None:
        """Unmark the calling thread, because another thread may get its id."""
        self._io_threads.discard(threading.get_ident())

    def filter(self, record: logging.LogRecord) -> bool:
        """Queue log records of I/O threads; let log records of other threads through."""
        if threading.get_ident() not in self._io_threads:
            return True
        if self._waiting.qsize() >= self._limit:
            with self._count:
                self._dropped += 1
            return False
        self._waiting.put(record)
        self._start()
        return False

    def _start(self) -> bool:
        """Start a thread after a record was queued, if none is running.

        Returns False if no thread can be started, as at the program's exit; then `drain` handles
        the records.
        """
        if self._running:
            return True
        try:
            self._running = True
            threading.Thread(target=self._run, name="odradek-log", daemon=True).start()
        except RuntimeError:
            self._running = False
        # An exception from outside (Ctrl-C): if the thread did start, a second one only waits for
        # it.
        except BaseException:
            self._running = False
            raise
        return self._running

    # The thread that passes log records to handlers

    def _run(self) -> None:
        with self._turn:
            self._thread = threading.get_ident()
            # An I/O thread with the same id may have ended without `leave`.
            self._io_threads.discard(self._thread)
            self._running = True
            while True:
                try:
                    line = self._waiting.get(timeout=self._idle)
                except Empty:
                    self._running = False
                    if self._waiting.empty():
                        break
                    self._running = True  # a record was queued before `_running` was cleared
                    continue
                self._hand_on(line)
            self._thread = -1

    def _hand_on(self, line: logging.LogRecord | threading.Lock) -> None:
        if not isinstance(line, logging.LogRecord):
            line.release()  # earlier log records are handled
            return
        try:
            logging.getLogger(line.name).handle(line)
            if self._dropped and self._waiting.qsize() < self._limit // 2:
                with self._count:
                    count, self._dropped = self._dropped, 0
                logger.warning(
                    "%d log lines of I/O threads were dropped, because log handlers were too slow",
                    count,
                )
        except BaseException:  # a handler's error is printed on stderr
            with suppress(Exception):  # stderr may be closed
                if logging.raiseExceptions and sys.stderr is not None:
                    traceback.print_exc()

    def drain(self, timeout: float = DRAIN_S) -> None:
        """Wait, for `DRAIN_S` seconds at most, until handlers have processed all earlier records.

        Later, the thread continues with the other records until the program exits.
        """
        if not self._running and self._waiting.empty():
            return
        if threading.get_ident() in (self._thread, *self._io_threads):
            return  # a handler or callback would wait for itself
        done = threading.Lock()
        done.acquire()
        self._waiting.put(done)
        if self._start():
            done.acquire(timeout=max(0.0, min(timeout, DRAIN_S)))
            return
        with self._turn, suppress(Empty):
            while True:
                self._hand_on(self._waiting.get_nowait())


io_log = IoLog()
