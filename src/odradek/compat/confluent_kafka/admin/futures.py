"""Base of admin calls, which return futures at once: one for each item, or one for all.

In: calls of Odradek's admin client, which run concurrently in threads of this client. Out: futures
that can't be cancelled, as in confluent-kafka. Must not: know what is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import odradek
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterQuestions
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.settings import Given, checked_seconds
from odradek.compat.confluent_kafka.translated_errors import translated, translating

K = TypeVar("K")
R = TypeVar("R")
Left = Callable[[], float]
"""Function that returns the seconds that a call has left."""
LONGEST = 3600.0
"""Maximum timeout of a call in seconds."""
AT_ONCE = 32
"""Maximum number of concurrent calls; more calls are queued."""


def itself(item: Any) -> Any:
    """Return the item unchanged; default of functions that convert an item."""
    return item


def nothing(_: Any, __: Any) -> None:
    """Return None; default of functions that convert a result, as most changes have none."""


class AdminCalls:
    """Base class of all parts of `AdminClient`; not instantiated directly."""

    _given: Given
    _queue: CallbackQueue
    _questions: ClusterQuestions
    _threads: ThreadPoolExecutor | None = None
    _closed = False

    def _check_open(self, what: str = "AdminClient") -> None:
        if self._closed:
            raise RuntimeError(f"{what} has been closed")

    def _seconds(self, request_timeout: float | None, operation_timeout: float = 0) -> float:
        """Check the timeouts and return that of the request.

        `operation_timeout` has no effect: Odradek's client always waits for the operation.
        """
        found = self._given.answer_timeout if request_timeout is None else request_timeout
        for name, value in (("request_timeout", found), ("operation_timeout", operation_timeout)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be real number, not {type(value).__name__}")
            if not 0 <= value <= LONGEST:
                raise ValueError(f"{name} must be between 0 and {LONGEST:.0f} seconds, not {value}")
        self._check_open()
        return float(found)

    def _later(self, run: Callable[[odradek.Admin, Left], None], seconds: float) -> None:
        """Run a function, which gets the admin client and the time left, in a background thread."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, "odradek-admin")
        admin, left = self._questions.admin(), _until(seconds)
        self._threads.submit(run, admin, left)

    def _one(self, seconds: float, call: Callable[[odradek.Admin, Left], R]) -> Future[R]:
        """Make a call in a background thread, and return a future for its result."""
        future: Future[R] = _running()

        def run(admin: odradek.Admin, left: Left) -> None:
            try:
                future.set_result(call(admin, left))
            except BaseException as error:
                future.set_exception(failure(error))

        self._later(run, seconds)
        return future

    def _awaited(self, timeout: float, call: Callable[[odradek.Admin, Left], R]) -> R:
        """Make a call in this thread, and return its result."""
        self._check_open("Handle")
        left = _until(checked_seconds(timeout))
        with translating(unreachable=KafkaError._TRANSPORT):
            return call(self._questions.admin(), left)

    def _each(
        self,
        keys: Iterable[K],
        seconds: float,
        call: Callable[[odradek.Admin, Left, list[Any]], Mapping[Any, Any] | None],
        *,
        ours: Callable[[K], Any] = itself,
        made: Callable[[K, Any], R] = nothing,  # type: ignore[assignment]
    ) -> dict[K, Future[R]]:
        """Make a call for several keys in a background thread; return a future for each key.

        `ours` converts a key for the call; if it raises, only that key's future fails. `made`
        converts a key and its result to the future's result.
        """
        futures: dict[K, Future[R]] = {key: _running() for key in keys}

        def run(admin: odradek.Admin, left: Left) -> None:
            items, errors = {}, {}
            for key in futures:
                try:
                    items[key] = ours(key)
                except odradek.KafkaError as error:
                    errors[key] = error
            answer = _answer(lambda: call(admin, left, list(items.values()))) if items else {}
            for key, future in futures.items():
                try:
                    if key in errors:
                        raise errors[key]
                    future.set_result(made(key, _of(answer, items[key])))
                except BaseException as error:
                    future.set_exception(failure(error))

        if futures:
            self._later(run, seconds)
        return futures


def _until(seconds: float) -> Left:
    """Return a function that returns the time left until `seconds` from now."""
    deadline = monotonic() + seconds
    return lambda: max(0.0, deadline - monotonic())


def _running() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _answer(call: Callable[[], Mapping[Any, Any] | None]) -> Mapping[Any, Any] | BaseException:
    try:
        return call() or {}
    except BaseException as error:
        return error


def _of(answer: Mapping[Any, Any] | BaseException, item: Any) -> Any:
    """Return the result of an item, or raise its error."""
    if isinstance(answer, odradek.KafkaError) and (answer.errors or answer.results):
        if item in answer.results:
            return answer.results[item]
        raise answer.errors.get(item, answer)
    if isinstance(answer, BaseException):
        raise answer
    return answer.get(item)


def answered(error: odradek.KafkaError) -> bool:
    """Return whether brokers returned errors of items; otherwise the whole call failed."""
    found = error.errors.values()
    return bool(found) and all(isinstance(one, odradek.errors.BrokerError) for one in found)


def failure(error: BaseException) -> BaseException:
    """Convert Odradek's errors to `KafkaException`; return any other exception unchanged."""
    if not isinstance(error, odradek.KafkaError):
        return error
    made = KafkaException(translated(error))
    made.__cause__ = error
    return made
