"""Queue of a client's callbacks, which run in the program's calls.

In: single calls or batches of calls, from the client's thread. Out: the calls run inside `poll()`,
`flush()` and the like, in order, each once. If a callback raises, the exception is raised there,
and the following calls remain queued. Must not: wait for anything but the next call.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

import odradek
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.settings import FOREVER, Given

Call = Callable[[], object]
Calls = Callable[[], int]
"""Function that makes a batch of calls, each once, and returns their number.

If a call raises, the function is called again for the rest.
"""
MOST_ERRORS = 1000
"""If this many calls are queued, further errors for `error_cb` are dropped."""
ROUNDING = 0.001
"""Seconds by which a wait may end early, because of rounded timeouts."""
_ERRORS = {
    "dial_failed": (KafkaError._TRANSPORT, 40, "{address}: connection attempt failed: {error}"),
    "disconnected": (KafkaError._TRANSPORT, 20, "{address}: disconnected: {error}"),
    "dns_failed": (KafkaError._RESOLVE, 40, "{address}: the host name can't be resolved: {error}"),
    "round_failed": (
        *(KafkaError._ALL_BROKERS_DOWN, 40),
        "no broker can be reached; the next attempt is in {backoff:.2f} s",
    ),
    "foreign_cluster": (
        *(KafkaError._FATAL, 50),
        "{address}: the broker belongs to cluster {found}, not to {expected}",
    ),
    "broken": (KafkaError._FATAL, 50, "the client has failed and must be recreated: {error}"),
}
"""Events that are reported to programs: code, log level, text."""


class CallbackQueue:
    """Queue of callback calls: any thread adds them, and the program's thread makes them."""

    def __init__(self, given: Given) -> None:
        self._waiting: SimpleQueue[Calls] = SimpleQueue()
        self._begun: deque[Calls] = deque()
        """Batches in which a call has raised; their remaining calls come first."""
        self.empty: Callable[[], bool] = self._waiting.empty
        """Return whether the queue is empty; called for each message of a consumer."""
        self._error_cb = given.error_cb
        self._logger = given.logger
        self._every = 0.0
        self._due_at = math.inf
        self._regular: Call | None = None

    def put_every(self, seconds: float, call: Call) -> None:
        """Make a call in the first `serve` after each period of `seconds`."""
        self._every, self._regular = seconds, call
        self._due_at = monotonic() + seconds
        self.empty = self._nothing_is_due

    def _nothing_is_due(self) -> bool:
        return self._waiting.empty() and monotonic() < self._due_at

    def until_due(self, timeout: float) -> float:
        """Return `timeout`, or the shorter time until the periodic call; queue it if it is due."""
        if self._regular is None:
            return timeout
        now = monotonic()
        if now >= self._due_at - ROUNDING:
            self._due_at = now + self._every
            self.put(self._regular)
        return max(0.0, min(timeout, self._due_at - now))

    def put(self, call: Call) -> None:
        """Queue a call; thread-safe."""
        self._waiting.put(_Once(call))

    def put_many(self, calls: Calls) -> None:
        """Queue a batch of calls, which are made without others in between."""
        self._waiting.put(calls)

    def serve(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for a call, make all queued calls, return their number.

        Calls that are queued meanwhile are made by the next `serve`.
        """
        if timeout <= 0 and self.empty():
            return 0
        served, calls = 0, self._next(self.until_due(timeout))
        if calls is None and self._regular is not None:
            self.until_due(0.0)
            calls = self._next(0.0)
        more = len(self._begun) + self._waiting.qsize()
        while calls is not None:
            try:
                served += calls()
            except BaseException:
                self._begun.append(calls)
                self._waiting.put(_nothing)  # `empty()` must return False while calls remain
                raise
            calls = self._next(0) if more > 0 else None
            more -= 1
        return served

    def _next(self, timeout: float) -> Calls | None:
        with suppress(IndexError):
            return self._begun.popleft()
        try:
            # Don't wait while the interpreter shuts down: no other thread runs to end the wait.
            waits = timeout > 0 and not sys.is_finalizing()
            return self._waiting.get(waits, min(timeout, FOREVER))
        except Empty:  # the timeout expired, or another thread took the call
            return None

    def serve_last(self) -> None:
        """Make the queued calls except those of `error_cb`, because the client is closing."""
        while (calls := self._next(0)) is not None:
            if not isinstance(calls, _Told):
                calls()

    def hear(self, event: odradek.Event) -> None:
        """Report an event of the client to `error_cb` and `logger`."""
        known = _ERRORS.get(event.kind)
        if known is None or event.fields.get("failure") is False:  # False: closed while idle
            return
        code, level, form = known
        text = form.format_map(event.fields)
        if self._logger is not None:
            self._logger.log(level, "%s", text)
        if self._error_cb is not None and self._waiting.qsize() < MOST_ERRORS:
            error = KafkaError(code, text, fatal=code == KafkaError._FATAL)
            self._waiting.put(_Told(partial(self._error_cb, error)))

    @property
    def hears(self) -> bool:
        """Whether the program has set `error_cb` or `logger`."""
        return self._error_cb is not None or self._logger is not None


def _nothing() -> int:
    """Make no call; its entry only keeps the queue from being empty."""
    return 0


class _Once:
    """Batch of a single call."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call

    def __call__(self) -> int:
        call, self._call = self._call, None
        if call is None:
            return 0
        call()
        return 1


class _Told(_Once):
    """Call of `error_cb` for one error."""

    __slots__ = ()
