"""R-HO-3: test that only one thread at a time can read records of a consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.simulation.test_consumer import PARTITIONS, make

from odradek.clients.consumer.completed_fetch import CompletedFetch
from odradek.common.errors import IllegalStateError
from odradek.common.types import FREE_THREADS
from odradek.runtime.hosts.one_reader import OneReader


def in_thread(action: Callable[[], object]) -> BaseException | None:
    with ThreadPoolExecutor(1, "other") as other:
        return other.submit(action).exception()


def test_a_concurrent_read_raises_an_error_that_names_both_threads() -> None:
    reader, errors = OneReader(), []

    def numbers() -> Iterator[int]:
        for number in range(3):
            errors.append(in_thread(lambda: reader.claim("poll()", None)))
            errors.append(in_thread(lambda: next(reader.each(iter([9]), "records()"))))
            yield number

    assert list(reader.each(numbers(), "records()")) == [0, 1, 2]
    assert len(errors) == 6
    for error in errors:
        assert isinstance(error, IllegalStateError)
        assert "'other" in str(error)
        assert repr(threading.current_thread().name) in str(error)


def test_other_threads_may_read_between_two_records_of_a_loop() -> None:
    reader = OneReader()
    numbers = reader.each(iter(range(3)), "records()")
    assert next(numbers) == 0
    reader.leave(reader.claim("poll()", None))
    assert in_thread(lambda: next(numbers)) is None
    claim = reader.claim("poll()", None)
    with pytest.raises(IllegalStateError):
        next(numbers)
    reader.leave(claim)


def test_after_an_interrupted_read_other_threads_can_read() -> None:
    reader = OneReader()

    def fails(_: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(reader.each(map(fails, [0]), "records()"))
    assert in_thread(lambda: reader.claim("poll()", None)) is None


def test_no_other_thread_can_poll_while_a_loop_fetches_its_next_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, client = make(47)
    client.assign(PARTITIONS)
    errors: list[BaseException | None] = []
    name = "_walk_locked" if FREE_THREADS else "_walk"
    walk = getattr(CompletedFetch, name)

    def slowly(*arguments: Any) -> Iterator[Any]:
        errors.append(in_thread(lambda: client.poll(0.0)))
        yield from walk(*arguments)

    monkeypatch.setattr(CompletedFetch, name, slowly)
    assert next(client.records(2.0)).offset == 0
    assert "'other" in str(errors[0])
