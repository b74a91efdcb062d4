"""What a client has to call back, until its program asks: callbacks run in the program's calls.

In: calls, from the client's own thread. Out: they are made inside `poll()`, `flush()` and the like,
in order, each once. What one raises comes out of there, and the others wait. Must not: wait for
anything but the next of them.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.settings import FOREVER, Given

Call = Callable[[], object]
MOST_ERRORS = 1000
"""Errors that wait for `error_cb`; a program that doesn't ask for them hears of no later ones."""
_ERRORS = {
    "dial_failed": (KafkaError._TRANSPORT, 40),
    "disconnected": (KafkaError._TRANSPORT, 20),
    "dns_failed": (KafkaError._RESOLVE, 40),
    "round_failed": (KafkaError._ALL_BROKERS_DOWN, 40),
    "foreign_cluster": (KafkaError._FATAL, 50),
    "broken": (KafkaError._FATAL, 50),
}
"""Events that programs are told of, with the code and the level of the line that is logged."""


class CallbackQueue:
    """The calls that wait."""

    def __init__(self, given: Given) -> None:
        self._waiting: SimpleQueue[Call] = SimpleQueue()
        self._error_cb = given.error_cb
        self._logger = given.logger

    def put(self, call: Call) -> None:
        """Have it made by the next serving; any thread may do this."""
        self._waiting.put(call)

    def serve(self, timeout: float) -> int:
        """Make the calls that are there; wait `timeout` seconds for the first. Gives their number.

        What they add meanwhile waits for the next time.
        """
        if timeout <= 0 and self._waiting.empty():
            return 0
        try:
            call = self._waiting.get(timeout > 0, min(timeout, FOREVER))
        except Empty:
            return 0
        served = 1
        more = self._waiting.qsize()
        call()
        for _ in range(more):
            try:
                call = self._waiting.get_nowait()
            except Empty:  # another thread serves, too
                break
            served += 1
            call()
        return served

    def hear(self, event: odradek.Event) -> None:
        """Take note of what a client does of its own accord: for `error_cb` and `logger`."""
        known = _ERRORS.get(event.kind)
        if known is None:
            return
        code, level = known
        if self._logger is not None:
            self._logger.log(level, "%s", event)
        if self._error_cb is not None and self._waiting.qsize() < MOST_ERRORS:
            error = KafkaError(code, str(event), fatal=code == KafkaError._FATAL)
            self.put(_Told(self._error_cb, error))

    @property
    def hears(self) -> bool:
        """Whether anybody wants to know of a client's events."""
        return self._error_cb is not None or self._logger is not None


class _Told:
    """One error for `error_cb`."""

    __slots__ = ("_call", "_error")

    def __init__(self, call: Callable[[KafkaError], Any], error: KafkaError) -> None:
        self._call = call
        self._error = error

    def __call__(self) -> object:
        return self._call(self._error)
