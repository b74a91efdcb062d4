"""Calls that give futures at once: one for each thing that a call is about, or one for all.

In: calls of our admin client, made in threads of this client's own, beside each other. Out:
futures that can't be cancelled, as there. Must not: know what is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import odradek
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterQuestions
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.settings import Given, checked_seconds
from odradek.compat.confluent_kafka.translated_errors import translated, translating

K = TypeVar("K")
R = TypeVar("R")
Left = Callable[[], float]
"""Seconds that a call has left."""
LONGEST = 3600.0
"""Seconds that a call may take."""
AT_ONCE = 32
"""Calls that go on beside each other; more wait for their turn."""


def itself(item: Any) -> Any:
    """What a call takes is what the future is found by."""
    return item


def nothing(_: Any, __: Any) -> None:
    """What most changes give."""


class AdminCalls:
    """Base of the groups of calls; not made directly."""

    _given: Given
    _queue: CallbackQueue
    _questions: ClusterQuestions
    _threads: ThreadPoolExecutor | None = None
    _closed = False

    def _check_open(self, what: str = "AdminClient") -> None:
        if self._closed:
            raise RuntimeError(f"{what} has been closed")

    def _seconds(self, request_timeout: float | None, operation_timeout: float = 0) -> float:
        """How long a call may take; our client waits for the operation in any case."""
        found = self._given.answer_timeout if request_timeout is None else request_timeout
        for name, value in (("request_timeout", found), ("operation_timeout", operation_timeout)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be real number, not {type(value).__name__}")
            if not 0 <= value <= LONGEST:
                raise ValueError(f"{name} is a time of 0 to {LONGEST:.0f} seconds, not {value}")
        self._check_open()
        return float(found)

    def _later(self, run: Callable[[odradek.Admin, Left], None], seconds: float) -> None:
        """Have something done in a thread of the client's own, in so many seconds at most."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, "odradek-admin")
        admin, left = self._questions.admin(), _until(seconds)
        self._threads.submit(run, admin, left)

    def _one(self, seconds: float, call: Callable[[odradek.Admin, Left], R]) -> Future[R]:
        """A future for a whole call."""
        future: Future[R] = _running()

        def run(admin: odradek.Admin, left: Left) -> None:
            try:
                future.set_result(call(admin, left))
            except BaseException as error:
                future.set_exception(failure(error))

        self._later(run, seconds)
        return future

    def _awaited(self, timeout: float, call: Callable[[odradek.Admin, Left], R]) -> R:
        """What a call gives that its caller waits for."""
        self._check_open("Handle")
        left = _until(checked_seconds(timeout))
        with translating(nobody=KafkaError._TRANSPORT):
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
        """A future for each key of one call; `ours` gives what the call takes for it, or raises.

        One that fails hides no other. `made` makes of a key and its answer what the future gives.
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
    """What is left of so many seconds from now on."""
    deadline = time.monotonic() + seconds
    return lambda: max(0.0, deadline - time.monotonic())


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
    """What became of an item; raises where it failed."""
    if isinstance(answer, odradek.KafkaError) and (answer.errors or answer.results):
        if item in answer.results:
            return answer.results[item]
        raise answer.errors.get(item, answer)
    if isinstance(answer, BaseException):
        raise answer
    return answer.get(item)


def answered(error: odradek.KafkaError) -> bool:
    """Whether brokers answered for each thing that a call was about, rather than not at all."""
    found = error.errors.values()
    return bool(found) and all(isinstance(one, odradek.BrokerError) for one in found)


def failure(error: BaseException) -> BaseException:
    """An error of ours as a future of theirs raises it; others stay as they are."""
    if not isinstance(error, odradek.KafkaError):
        return error
    made = KafkaException(translated(error))
    made.__cause__ = error
    return made
