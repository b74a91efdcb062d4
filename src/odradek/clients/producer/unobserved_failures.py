"""Log records that failed although the program reads no result of them.

In: failed records that have no callback. Out: one WARNING with the number of records whose futures
were dropped before the error was read: at `flush()` or a second after the first failure, but at
most once a minute, and at `close()`. Must not: log a failure that the program can still read, since
it may keep its futures; or run code when a future is dropped, where Python swallows a Ctrl-C.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from weakref import ref

from odradek.clients.producer.batch import FailedRecords
from odradek.clients.producer.uncertain_writes import counted, were
from odradek.common.errors import KafkaError
from odradek.common.printable import sentence
from odradek.network.engine import Engine

logger = logging.getLogger("odradek")

GATHERED = 1.0
"""Seconds from the first dropped failure to the log line that counts all failures so far."""
LOG_INTERVAL_S = 60.0
"""Minimum number of seconds between two log lines."""
MOST_KEPT = 10_000
"""Maximum number of failures that are watched; beyond it, the oldest aren't logged."""


class UnobservedFailures:
    """The engine component that logs these failures; any thread may call `watch` and `report`."""

    def __init__(self, engine: Engine, client_id: str) -> None:
        self.resting = True
        self._engine = engine
        self._client_id = client_id
        self._watched: deque[tuple[ref[FailedRecords], list[int], BaseException]]
        self._watched = deque(maxlen=MOST_KEPT)
        self._next = self._spaced_until = -math.inf

    def watch(self, records: int, error: BaseException) -> FailedRecords:
        """Return an object for the futures of failed records, which shows when they are dropped."""
        count = [records]
        failed = FailedRecords(count)
        self._watched.append((ref(failed), count, error))
        self._next = max(self._spaced_until, self._engine.now + GATHERED)
        self.resting = False
        return failed

    def flushed(self) -> None:
        """Log a line unless there was one within a minute: programs may flush each record."""
        if self._engine.now >= self._spaced_until:
            self.report()

    def report(self) -> None:
        """Log the records whose futures were dropped since the last line."""
        total, first = 0, None
        self.resting = True  # before the loop: another thread may add a failure
        for _ in range(len(self._watched)):
            try:
                alive, count, error = self._watched.popleft()
            except IndexError:  # another thread has taken the last one
                break
            if count[0] and alive() is not None:
                self._watched.append((alive, count, error))
            elif count[0]:
                total, first = total + count[0], first or error
        self._next = self._engine.now + LOG_INTERVAL_S
        if self._watched:
            self.resting = False
        if first is not None:
            self._spaced_until = self._next
            logger.warning(
                "[%s] %s %s not delivered, and the program looked at no result of them. The first "
                "error is %s: %s Pass on_delivery, or check the futures that send() returns",
                self._client_id,
                counted(total),
                were(total),
                type(first).__name__,
                sentence(first),
            )

    def advance(self, now: float) -> bool:
        """Log a line if one is due."""
        if now >= self._next:
            self.report()
        return False

    def next_deadline(self, now: float) -> float | None:
        """Return when the next line is due."""
        return self._next

    def abort(self, error: KafkaError, now: float) -> None:
        """Log the failures that remain at the client's end."""
        self.report()
