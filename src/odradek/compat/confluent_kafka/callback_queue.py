"""What a client has to call back, until its program asks: callbacks run in the program's calls.

In: calls, one by one or many at once, from the client's own thread. Out: they are made inside
`poll()`, `flush()` and the like, in order, each once. What one raises comes out of there, and the
others wait. Must not: wait for anything but the next of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.settings import FOREVER, Given

Call = Callable[[], object]
Calls = Callable[[], int]
"""Makes calls that wait together, each once, and gives how many. Where one raises, it is asked
again, for those that are left.
"""
MOST_ERRORS = 1000
"""Errors that wait for `error_cb`; a program that doesn't ask for them hears of no later ones."""
ROUNDING = 0.001
"""Seconds by which a wait may end too soon."""
_ERRORS = {
    "dial_failed": (KafkaError._TRANSPORT, 40, "{address}: dial failed: {error}"),
    "disconnected": (KafkaError._TRANSPORT, 20, "{address}: disconnected: {error}"),
    "dns_failed": (KafkaError._RESOLVE, 40, "{address}: the name doesn't resolve: {error}"),
    "round_failed": (
        *(KafkaError._ALL_BROKERS_DOWN, 40),
        "no broker can be reached (round {round}); they are tried again in {backoff:.2f} s",
    ),
    "foreign_cluster": (
        *(KafkaError._FATAL, 50),
        "{address}: another cluster answers there: {found}, not {expected}",
    ),
    "broken": (KafkaError._FATAL, 50, "the client can't go on: {error}"),
}
"""Events that programs are told of: their code, the level of the line that is logged, the text."""


class CallbackQueue:
    """The calls that wait."""

    def __init__(self, given: Given) -> None:
        self._waiting: SimpleQueue[Calls] = SimpleQueue()
        self._begun: deque[Calls] = deque()
        """Those of which a callback has raised: they go on before the others."""
        self.empty: Callable[[], bool] = self._waiting.empty
        """Whether there are none; each message of a consumer asks."""
        self._error_cb = given.error_cb
        self._logger = given.logger
        self._every = 0.0
        self._due_at = math.inf
        self._regular: Call | None = None

    def put_every(self, seconds: float, call: Call) -> None:
        """Have a call made whenever so many seconds are over, by the serving that comes then."""
        self._every, self._regular = seconds, call
        self._due_at = monotonic() + seconds
        self.empty = self._nothing_is_due

    def _nothing_is_due(self) -> bool:
        return self._waiting.empty() and monotonic() < self._due_at

    def until_due(self, timeout: float) -> float:
        """How long to wait at most, so that what is regular is in time; puts it if it is due."""
        if self._regular is None:
            return timeout
        now = monotonic()
        if now >= self._due_at - ROUNDING:
            self._due_at = now + self._every
            self.put(self._regular)
        return max(0.0, min(timeout, self._due_at - now))

    def put(self, call: Call) -> None:
        """Have a call made by the next serving; any thread may do this."""
        self._waiting.put(_Once(call))

    def put_many(self, calls: Calls) -> None:
        """Have calls made that belong together."""
        self._waiting.put(calls)

    def serve(self, timeout: float) -> int:
        """Make the calls that are there; wait `timeout` seconds for the first. Gives their number.

        What they add meanwhile waits for the next time.
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
                self._waiting.put(_nothing)  # so that it isn't empty
                raise
            calls = self._next(0) if more > 0 else None
            more -= 1
        return served

    def _next(self, timeout: float) -> Calls | None:
        with suppress(IndexError):
            return self._begun.popleft()
        try:
            return self._waiting.get(timeout > 0, min(timeout, FOREVER))
        except Empty:  # another thread may have been faster
            return None

    def serve_last(self) -> None:
        """Make the calls that are there, but those of `error_cb`: a client that closes is well."""
        while (calls := self._next(0)) is not None:
            if not isinstance(calls, _Told):
                calls()

    def hear(self, event: odradek.Event) -> None:
        """Take note of what a client does of its own accord: for `error_cb` and `logger`."""
        known = _ERRORS.get(event.kind)
        if known is None or event.fields.get("failure") is False:  # closed, as nobody needs it
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
        """Whether anybody wants to know of a client's events."""
        return self._error_cb is not None or self._logger is not None


def _nothing() -> int:
    """Calls that were made already."""
    return 0


class _Once:
    """A call that belongs to no others."""

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
    """One error for `error_cb`."""

    __slots__ = ()
