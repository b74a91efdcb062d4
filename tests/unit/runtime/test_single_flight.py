"""Test that a slow function runs once for all threads that call it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.runtime.peers import PATIENCE

from odradek.common.errors import TokenError
from odradek.runtime.credentials.single_flight import MOST_HANGING, SingleFlight


class Slow:
    """A function that runs until `go` is set; threads call it through `shared`."""

    def __init__(self) -> None:
        self.runs = 0
        self.began, self.go = threading.Event(), threading.Event()
        self.error: str | None = None
        self.now = 0.0
        self.shared = SingleFlight(self, 30.0, lambda: self.now)

    def __call__(self) -> int:
        self.runs += 1
        run = self.runs
        self.began.set()
        assert self.go.wait(PATIENCE)
        if self.error is not None:
            raise TokenError(self.error)
        return run

    def outcome(self) -> object:
        try:
            return self.shared()
        except TokenError as error:
            return error


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def threads(slow: Slow) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(5) as made:
        yield made
        slow.go.set()


@pytest.mark.parametrize("error", [None, "no token"])
def test_concurrent_callers_get_the_result_or_error_of_one_run(
    slow: Slow, threads: ThreadPoolExecutor, error: str | None
) -> None:
    slow.error = error
    asked = [threads.submit(slow.outcome)]
    assert slow.began.wait(PATIENCE)
    entered = threading.Barrier(5)
    asked += [threads.submit(lambda: (entered.wait(PATIENCE), slow.outcome())[1]) for _ in range(4)]
    entered.wait(PATIENCE)
    slow.go.set()
    first, *joined = [one.result(PATIENCE) for one in asked]
    if error is not None:  # each caller gets its own error object
        assert {str(one) for one in (first, *joined)} == {str(TokenError(error))}
        assert len({id(one) for one in (first, *joined)}) == 5
    else:
        # A thread that calls after the end of the first run starts another run; runs never overlap.
        assert first == 1
        assert slow.runs == max(map(int, map(str, joined)))


def test_a_result_is_not_cached(slow: Slow) -> None:
    slow.go.set()
    assert [slow.shared(), slow.shared()] == [1, 2]


def test_a_call_after_the_time_limit_of_a_hanging_run_starts_a_new_run(
    slow: Slow, threads: ThreadPoolExecutor
) -> None:
    threads.submit(slow.shared)
    assert slow.began.wait(PATIENCE)
    slow.now = 30.0
    slow.go.set()
    assert slow.shared() in (1, 2)
    threads.shutdown()
    assert slow.runs == 2


def test_a_caller_that_joins_a_hanging_run_times_out_when_the_run_does(
    slow: Slow, threads: ThreadPoolExecutor
) -> None:
    threads.submit(slow.shared)
    assert slow.began.wait(PATIENCE)
    slow.now = 29.999
    with pytest.raises(TimeoutError, match="hasn't returned in time"):
        slow.shared()


def test_the_number_of_hanging_runs_is_limited(slow: Slow, threads: ThreadPoolExecutor) -> None:
    for run in range(MOST_HANGING):
        threads.submit(slow.shared)
        assert slow.began.wait(PATIENCE)
        slow.began.clear()
        slow.now = 30.0 * (run + 1)
    for _ in range(3):
        with pytest.raises(TimeoutError, match="4 previous calls haven't returned"):
            slow.shared()
    slow.go.set()
    threads.shutdown()
    assert slow.shared() == MOST_HANGING + 1
