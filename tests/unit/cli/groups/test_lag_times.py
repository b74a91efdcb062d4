"""Test the estimate of the time at which a record was written, with logs of known times."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.groups.lag_times import MOST_POINTS, SHARE, LogTimes

GRAIN = 30.0


class Log:
    """A log with known timestamps, which answers requests for timestamps as a leader does."""

    def __init__(self, times: list[float], start: int = 0) -> None:
        self.times, self.start = times, start

    def end(self, now: float) -> int:
        return sum(time <= now for time in self.times)

    def first_from(self, time: float) -> tuple[int | None, float | None]:
        for offset in range(self.start, len(self.times)):
            if self.times[offset] >= time:
                return offset, self.times[offset]
        return None, None


def learn(times: LogTimes, log: Log, read: list[int], now: float) -> int:
    """Send requests to the log until the times are known; return the number of requests."""
    for asked in range(100):
        time = times.question(read, now)
        if time is None:
            return asked
        times.answered(time, *log.first_from(time))
    raise AssertionError("it never knows enough")


def test_the_time_of_a_record_written_during_the_observation_needs_no_request() -> None:
    times, log = LogTimes(GRAIN), Log([float(n) for n in range(1, 1000)])
    for now in range(0, 901, 15):
        times.seen(log.end(now), now)
    for offset in (600, 777, 899):
        assert times.question([offset], 900.0) is None
        written = times.written(offset)
        assert written is not None
        assert abs(written - log.times[offset]) <= 15.0
    assert times.written(900) is None, "nothing is left to read"


@given(seed=st.integers(0, 1 << 32), idle=st.booleans(), start=st.integers(0, 40))
def test_requests_find_the_time_of_a_record_written_before_the_first_observation(
    seed: int, idle: bool, start: int
) -> None:
    random_ = random.Random(seed)
    gap = 100_000.0 if idle else 0.0
    now, at, written = 1_000_000.0, 400_000.0, []
    for _ in range(200):
        at += random_.expovariate(0.01) + (gap if random_.random() < 0.02 else 0.0)
        written.append(at)
    log = Log([time for time in written if time < now], start)
    end = log.end(now)
    times = LogTimes(GRAIN)
    times.seen(end, now)
    read = [random_.randrange(end) for _ in range(3)]
    asked = learn(times, log, read, now)
    assert asked <= 60
    for offset in read:
        true = log.times[max(offset, start)] if start < end else None
        found = times.written(offset)
        if true is None:
            assert found is None
        else:
            assert found is not None
            assert abs(found - true) <= max(GRAIN, SHARE * (now - true) * 1.05), (found, true)


def test_a_log_that_grows_evenly_needs_few_requests() -> None:
    times, log = LogTimes(GRAIN), Log([100.0 * n for n in range(1, 6001)])
    times.seen(6000, 600_000.0)
    assert learn(times, log, [5974], 600_000.0) <= 3
    assert times.written(5974) == pytest.approx(597_500.0, abs=130.0)


def test_a_deleted_record_gets_the_time_of_the_oldest_existing_record() -> None:
    times, log = LogTimes(GRAIN), Log([float(n) for n in range(1000)], start=500)
    times.seen(1000, 1000.0)
    assert times.written(3) is None
    assert learn(times, log, [3], 1000.0) == 1
    assert times.written(3) == 500.0


def test_the_time_is_unknown_if_the_log_has_no_records() -> None:
    times = LogTimes(GRAIN)
    times.seen(10, 1000.0)
    assert learn(times, Log([1.0] * 10, start=10), [3], 1000.0) == 1
    assert times.written(3) is None


def test_a_timestamp_that_contradicts_the_local_clock_is_ignored() -> None:
    times = LogTimes(GRAIN)
    for n in range(4):
        times.seen(n * 10, 1000.0 + 60.0 * n)
    times.answered(1090.0, 12, 5000.0)  # this record's producer has a clock that is ahead
    written = times.written(12)
    assert written is not None
    assert 1060.0 <= written <= 1120.0


def test_a_log_that_became_shorter_is_treated_as_a_new_log() -> None:
    times = LogTimes(GRAIN)
    times.seen(100, 1000.0)
    times.seen(200, 1060.0)
    times.seen(10, 1120.0)
    assert times.written(150) is None
    assert times.written(5) is None
    assert times.question([5], 1120.0) == 0.0


def test_if_the_clock_is_set_back_estimated_times_follow_the_order_of_the_log() -> None:
    times = LogTimes(GRAIN)
    times.seen(100, 1000.0)
    times.seen(200, 1060.0)
    times.seen(300, 1030.0)
    written = times.written(250)
    assert written is not None
    assert 1000.0 <= written <= 1030.0


def test_the_number_of_stored_observations_is_limited() -> None:
    times = LogTimes(GRAIN)
    for n in range(10 * MOST_POINTS):
        times.seen(n, float(n))
    assert len(times._points) <= MOST_POINTS
    assert times.written(3) is not None, "the oldest that somebody needs is kept"
    times.keep(10 * MOST_POINTS - 10)
    assert len(times._points) <= 12
    for n in range(1000):
        times.seen(10 * MOST_POINTS, 10_000.0 + n)
    assert len(times._points) <= 14, "an end that stands still"
