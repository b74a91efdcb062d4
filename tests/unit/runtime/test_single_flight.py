"""A slow function that many threads ask for at once is run once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.runtime.peers import PATIENCE

from odradek.common.errors import TokenError
from odradek.runtime.credentials.single_flight import MOST_HANGING, SingleFlight


class Slow:
    """Runs until it is let go on; `shared` is what threads call."""

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
def test_whoever_asks_meanwhile_gets_the_same_answer(
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
    if error is not None:  # each has its own
        assert {str(one) for one in (first, *joined)} == {str(TokenError(error))}
        assert len({id(one) for one in (first, *joined)}) == 5
    else:
        # A thread that comes after the first run's end begins another: none runs beside another.
        assert first == 1
        assert slow.runs == max(map(int, map(str, joined)))


def test_an_answer_is_not_kept(slow: Slow) -> None:
    slow.go.set()
    assert [slow.shared(), slow.shared()] == [1, 2]


def test_a_run_that_hangs_is_given_up(slow: Slow, threads: ThreadPoolExecutor) -> None:
    threads.submit(slow.shared)
    assert slow.began.wait(PATIENCE)
    slow.now = 30.0
    slow.go.set()
    assert slow.shared() in (1, 2)
    threads.shutdown()
    assert slow.runs == 2


def test_a_late_joiner_does_not_wait_for_ever(slow: Slow, threads: ThreadPoolExecutor) -> None:
    threads.submit(slow.shared)
    assert slow.began.wait(PATIENCE)
    slow.now = 29.999
    with pytest.raises(TimeoutError, match="hasn't returned in time"):
        slow.shared()


def test_only_a_few_may_hang(slow: Slow, threads: ThreadPoolExecutor) -> None:
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
