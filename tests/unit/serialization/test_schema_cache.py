"""Test the cache of registry responses: its size, and one request for each key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from odradek.common.errors.records import SchemaNotAtHandError
from odradek.errors import SchemaNotFoundError
from odradek.serialization.context import NO_WAITING
from odradek.serialization.registry import schema_cache
from odradek.serialization.registry.schema_cache import Lookups, kept


def never() -> str:
    raise AssertionError("it is known")


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_the_least_recently_used_entry_is_evicted() -> None:
    known: Lookups[int, str] = Lookups(2)
    assert known.once(1, lambda: "one") == "one"
    assert known.once(2, lambda: "two") == "two"
    assert known.once(1, never) == "one"
    assert known.once(3, lambda: "three") == "three"
    assert [known.find(key) for key in (1, 2, 3)] == ["one", None, "three"]
    known.forget(lambda key: key == 1)
    assert known.find(1) is None


def test_a_dict_of_limited_size_drops_its_oldest_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_cache, "MOST_KEPT", 2)
    known: dict[int, str] = {}
    for key in range(4):
        assert kept(known, key, str(key)) == str(key)
    assert known == {2: "2", 3: "3"}


def test_a_request_for_one_key_does_not_block_requests_for_other_keys() -> None:
    known: Lookups[str, str] = Lookups(9)
    asked, answer, found = threading.Event(), threading.Event(), list[str]()
    questions = 0

    def slow() -> str:
        nonlocal questions
        questions += 1
        asked.set()
        assert answer.wait(10)
        return "slow"

    threads = [started(lambda: found.append(known.once("a", slow))) for _ in range(3)]
    assert asked.wait(10)
    assert known.once("b", lambda: "quick") == "quick"
    assert found == []
    answer.set()
    for thread in threads:
        thread.join(10)
    assert (found, questions) == (["slow"] * 3, 1)


def test_all_threads_that_wait_for_a_key_get_the_requests_error() -> None:
    known: Lookups[str, str] = Lookups(9)
    asked, answer = threading.Event(), threading.Event()
    heard: list[SchemaNotFoundError] = []
    questions = 0

    def refused() -> str:
        nonlocal questions
        questions += 1
        asked.set()
        assert answer.wait(10)
        raise SchemaNotFoundError("none", None, "").coded(404, 40403)

    def ask() -> None:
        try:
            known.once("a", refused)
        except SchemaNotFoundError as error:
            heard.append(error)

    first = started(ask)
    assert asked.wait(10)
    (question,) = known._asked.values()
    others = [started(ask) for _ in range(2)]
    while question.waiting < 2:
        time.sleep(0.001)
    answer.set()
    for thread in (first, *others):
        thread.join(10)
    assert (questions, [one.error_code for one in heard]) == (1, [40403] * 3)
    assert len({id(one) for one in heard}) == 3  # each thread gets its own copy of the error
    assert known.once("a", lambda: "there now") == "there now"


def test_a_signal_handler_may_request_the_same_key() -> None:
    """A signal handler runs in the thread of the request, and mustn't wait for that request."""
    known: Lookups[str, str] = Lookups(9)
    assert known.once("a", lambda: known.once("a", lambda: "inner") + " and outer") == (
        "inner and outer"
    )


class Clock:
    """A clock whose time the test sets."""

    time = 100.0

    def now(self) -> float:
        return self.time


def test_an_event_loop_uses_a_cached_error_only_briefly() -> None:
    """The error of a cancelled call remains in the cache, and may be outdated later."""
    known: Lookups[str, str] = Lookups(9)
    known._clock = clock = Clock()  # type: ignore[assignment]

    def refused() -> str:
        raise SchemaNotFoundError("none", None, "")

    token = NO_WAITING.set(True)
    try:
        with pytest.raises(SchemaNotAtHandError) as missing:
            known.once("a", refused)
        NO_WAITING.set(False)
        missing.value.fetch()
        NO_WAITING.set(True)
        with pytest.raises(SchemaNotFoundError):
            known.once("a", never)
        NO_WAITING.set(False)
        missing.value.fetch()
        NO_WAITING.set(True)
        clock.time += schema_cache.IN_LOOP
        with pytest.raises(SchemaNotAtHandError):
            known.once("a", never)
        NO_WAITING.set(False)
        missing.value.fetch()
        clock.time += schema_cache.IN_LOOP
        with pytest.raises(SchemaNotAtHandError) as other:
            NO_WAITING.set(True)
            known.once("b", refused)
        NO_WAITING.set(False)
        other.value.fetch()
        assert list(known._refused) == ["b"]  # the older error was dropped
    finally:
        NO_WAITING.reset(token)
