"""Test recent measurements: two samples of 30 s, as in Kafka's Java clients."""

from __future__ import annotations

import math
import random
import sys
from itertools import pairwise
from typing import Any

import pytest

from odradek.common.sampled import KEPT, WINDOW, Sampled, average, largest


def test_without_a_measurement_average_and_maximum_are_nan() -> None:
    fresh = Sampled()
    assert (fresh.count, fresh.total) == (0, 0.0)
    assert math.isnan(average([fresh], 5.0))
    assert math.isnan(largest([], 5.0))


def test_average_and_maximum_cover_the_last_two_samples() -> None:
    one = Sampled()
    for at, value in ((0.0, 1.0), (29.9, 3.0), (30.0, 5.0)):
        one.record(value, at)
    assert (average([one], 31.0), largest([one], 31.0)) == (3.0, 5.0)
    assert average([one], KEPT) == 5.0  # the sample that began at 0 has expired
    assert math.isnan(average([one], 90.0))
    assert (one.count, one.total) == (3, 9.0)


def test_a_sample_begins_with_the_first_value_after_the_last_sample() -> None:
    one = Sampled()
    one.record(1.0, 0.0)
    one.record(2.0, 50.0)
    one.record(4.0, 79.9)
    assert average([one], 79.9) == 3.0
    one.record(8.0, 80.0)
    assert (average([one], 80.0), largest([one], 80.0)) == (14 / 3, 8.0)


def test_the_average_of_several_metrics_is_weighted_by_their_counts() -> None:
    few, many = Sampled(), Sampled()
    few.record(10.0, 0.0)
    for _ in range(9):
        many.record(0.0, 0.0)
    assert average([few, many], 1.0) == 1.0


def test_the_maximum_of_negative_values_is_negative() -> None:
    one = Sampled()
    one.record(-2.0, -100.0)
    assert largest([one], -99.0) == -2.0


@pytest.mark.parametrize("seed", range(20))
def test_all_values_of_the_last_30_seconds_are_in_the_average(seed: int) -> None:
    """At random times, values of the last 30 s are included and values older than 60 s are not."""
    rng = random.Random(seed)
    one, now, seen = Sampled(), 0.0, list[tuple[float, float]]()
    for _ in range(200):
        now += rng.choice((0.0, 0.1, 5.0, 29.0, 31.0, 61.0)) * rng.random()
        value = rng.uniform(0.0, 9.0)
        one.record(value, now)
        seen.append((now, value))
        counted = sum(n for n, _, _ in one.lately(now))
        recent = sum(at > now - WINDOW for at, _ in seen)
        young = sum(at > now - KEPT for at, _ in seen)
        assert recent <= counted <= young
    assert one.count == 200
    assert one.total == pytest.approx(sum(value for _, value in seen))


def test_the_measurements_of_another_object_can_be_added() -> None:
    old, new = Sampled(), Sampled()
    for at in (0.0, 40.0, 50.0):
        old.record(at, at)
    new.record(10.0, 45.0)
    new.take_over(old, 61.0)
    assert (new.count, new.total) == (4, 100.0)
    assert average([new], 61.0) == pytest.approx(100.0 / 3)  # the value of time 0 has expired
    assert largest([new], 61.0) == 50.0
    assert math.isnan(average([new], 200.0))
    assert (new.count, new.total) == (4, 100.0)


def test_a_total_never_decreases_even_if_it_is_read_during_a_change() -> None:
    """Prometheus treats a decrease as a reset and adds the whole total again."""
    one, other, seen = Sampled(), Sampled(), list[tuple[int, float]]()
    former = sys.gettrace()

    def look(*_: Any) -> Any:
        sys.settrace(None)
        seen.append((one.count, one.total))
        sys.settrace(look)
        return look

    sys.settrace(look)
    try:
        for at in range(6):
            other.record(1.0, 20.0 * at)
            one.record(1.0, 20.0 * at)
        one.take_over(other, 125.0)
    finally:
        sys.settrace(former)
    assert seen[-1] == (12, 12.0)
    assert len(seen) > 20
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(seen))
