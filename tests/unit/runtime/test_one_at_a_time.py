"""A slow function that many threads ask for at once is run once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.unit.runtime.peers import PATIENCE

from odradek.common.errors import TokenError
from odradek.runtime.credentials.one_at_a_time import MOST_HANGING, OneAtATime


class Slow:
    """Runs until it is let go on."""

    def __init__(self) -> None:
        self.runs = 0
        self.began = threading.Event()
        self.go = threading.Event()
        self.error: str | None = None

    def __call__(self) -> int:
        self.runs += 1
        run = self.runs
        self.began.set()
        assert self.go.wait(PATIENCE)
        if self.error is not None:
            raise TokenError(self.error)
        return run


def several(function: Callable[[], int], count: int, slow: Slow) -> list[object]:
    """Ask from so many threads, all of which wait before the first one goes on."""
    outcomes: list[object] = []
    waiting = threading.Semaphore(0)

    def ask() -> None:
        waiting.release()
        try:
            outcomes.append(function())
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
        assert waiting.acquire(timeout=PATIENCE)
    assert slow.began.wait(PATIENCE)
    slow.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    return outcomes


def test_whoever_asks_meanwhile_gets_the_same_answer() -> None:
    slow = Slow()
    shared = OneAtATime(slow)
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(shared()))
    thread.start()
    assert slow.began.wait(PATIENCE)
    joined: list[int] = []
    entered = threading.Barrier(5)

    def ask() -> None:
        entered.wait(PATIENCE)
        joined.append(shared())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    entered.wait(PATIENCE)
    run = shared._run
    assert run is not None
    slow.go.set()
    for one in [thread, *threads]:
        one.join(PATIENCE)
    assert first == [1]
    # A thread that comes after the end of the first run begins another: none runs beside another.
    assert len(joined) == 4
    assert slow.runs == max(joined)


def test_an_answer_is_not_kept() -> None:
    slow = Slow()
    slow.go.set()
    shared = OneAtATime(slow)
    assert [shared(), shared()] == [1, 2]


def test_an_error_goes_to_all_and_each_has_its_own() -> None:
    slow = Slow()
    slow.error = "no token"
    outcomes = several(OneAtATime(slow), 5, slow)
    assert [str(outcome) for outcome in outcomes] == [str(TokenError("no token"))] * 5
    assert len({id(outcome) for outcome in outcomes}) == 5


def test_a_run_that_hangs_is_given_up() -> None:
    slow = Slow()
    now = [0.0]
    shared = OneAtATime(slow, 30.0, lambda: now[0])
    thread = threading.Thread(target=shared)
    thread.start()
    assert slow.began.wait(PATIENCE)
    now[0] = 30.0
    slow.go.set()
    assert shared() in (1, 2)
    thread.join(PATIENCE)
    assert slow.runs == 2


def test_a_late_joiner_does_not_wait_for_ever() -> None:
    slow = Slow()
    now = [0.0]
    shared = OneAtATime(slow, 30.0, lambda: now[0])
    thread = threading.Thread(target=shared)
    thread.start()
    assert slow.began.wait(PATIENCE)
    run = shared._run
    assert run is not None
    run.began = -29.999
    with pytest.raises(TimeoutError, match="already going on"):
        shared()
    slow.go.set()
    thread.join(PATIENCE)


def test_only_a_few_may_hang() -> None:
    slow = Slow()
    now = [0.0]
    shared = OneAtATime(slow, 30.0, lambda: now[0])
    threads = []
    for run in range(MOST_HANGING):
        thread = threading.Thread(target=shared)
        thread.start()
        assert slow.began.wait(PATIENCE)
        slow.began.clear()
        threads.append(thread)
        now[0] = 30.0 * (run + 1)
    for _ in range(3):
        with pytest.raises(TimeoutError, match="4 earlier calls still hang"):
            shared()
    slow.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert shared() == MOST_HANGING + 1
