from __future__ import annotations

import itertools

import pytest

from odradek.common.events import EventLog
from odradek.simulation import Trace, assert_same, difference, run_twice


def trace(port: int, *, seconds: float) -> Trace:
    log = EventLog("client")
    made = Trace()
    made.follow(log)
    address = f"127.0.0.1:{port}"
    log.emit(seconds, "dial", address=address, purpose="data", ip="127.0.0.1", connection=port)
    log.emit(
        2 * seconds,
        "dial_failed",
        address=address,
        error=f"TimeoutError: {address} not ready after {seconds} s",
        backoff=seconds,
        failures=1,
    )
    log.emit(3 * seconds, "dial", address=address, purpose="data", connection=port + 1)
    log.emit(3 * seconds, "round_failed", round=2, backoff=0.1)
    return made


def test_a_traces_lines_have_times_but_its_lines_grouped_by_connection_have_none() -> None:
    first, second = trace(1234, seconds=1.5), trace(4321, seconds=2.25)
    assert first.lines() != second.lines()
    assert first.lines()[0].startswith("1.5 client dial address=127.0.0.1:1234")
    normal = first.by_connection({"127.0.0.1:1234": "broker 1"})
    assert normal == second.by_connection({"127.0.0.1:4321": "broker 1"})
    assert list(normal) == ["broker 1 #1", "broker 1 #2", "client"]
    assert normal["broker 1 #1"] == [
        "dial address=broker 1 purpose=data",
        "dial_failed address=broker 1 error=TimeoutError: broker 1 not ready after … s failures=1",
    ]
    assert list(first.by_connection({}, without=["dial", "dial_failed"])) == ["client"]
    assert [e.kind for e in first.of_kind("round_failed", "dial")] == [
        "dial",
        "dial",
        "round_failed",
    ]


def test_a_difference_between_traces_is_shown_as_a_diff() -> None:
    left = {"broker 1 #1": ["dial", "ready"], "client": ["round_failed"]}
    right = {"broker 1 #1": ["dial", "dial_failed"], "client": ["round_failed"]}
    assert difference(left, dict(left)) == ""
    text = difference(left, right, ("bytes", "messages"))
    assert "--- bytes" in text
    assert "-ready" in text
    assert "+dial_failed" in text
    with pytest.raises(AssertionError, match="the traces differ"):
        assert_same(left, right)


def test_a_scenario_that_differs_between_runs_is_detected() -> None:
    numbers = itertools.count()
    with pytest.raises(AssertionError, match="second run"):
        run_twice(lambda: [str(next(numbers))])
    assert run_twice(lambda: ["same"]) == ["same"]
