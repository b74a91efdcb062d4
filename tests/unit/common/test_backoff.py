"""Test the backoff calculator (KIP-580) with random numbers, and backoffs (R-BO-1, R-BO-3)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.backoff import Backoff, ExponentialBackoff


@given(
    st.floats(0, 100),
    st.floats(0, 100),
    st.integers(0, 10**6),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_a_delay_is_never_negative_or_above_the_maximum(
    base: float, maximum: float, failures: int, jitter: float, seed: int
) -> None:
    delay = ExponentialBackoff(base, maximum, jitter).delay(failures, random.Random(seed))
    assert 0.0 <= delay <= maximum or delay == maximum


@given(st.integers(0, 30), st.integers(0, 2**32))
def test_the_default_jitter_changes_a_delay_by_at_most_20_percent(failures: int, seed: int) -> None:
    curve = min(
        0.1 * 2**failures, 1.0 / 1.2
    )  # the curve ends below the maximum, so jitter still fits
    delay = ExponentialBackoff(0.1, 1.0).delay(failures, random.Random(seed))
    assert 0.8 * curve - 1e-9 <= delay <= 1.2 * curve + 1e-9


@pytest.mark.parametrize("jitter", [-1.0, 1.5, 3000.0])
def test_jitter_outside_0_to_1_is_rejected(jitter: float) -> None:
    with pytest.raises(ValueError, match=str(jitter)):
        ExponentialBackoff(0.1, 1.0, jitter)


def test_a_jitter_of_1_is_accepted() -> None:
    assert ExponentialBackoff(0.1, 1.0, 1.0).jitter == 1.0


class MaximumRandom(random.Random):
    """A generator that always returns the largest value that `random()` can return."""

    def random(self) -> float:
        return 1.0 - 2.0**-53


@pytest.mark.parametrize("maximum", [0.875, 1.375, 1.75])
def test_rounding_never_makes_a_delay_longer_than_the_maximum(maximum: float) -> None:
    assert ExponentialBackoff(0.1, maximum).delay(9, MaximumRandom()) == maximum


def test_negative_backoff_times_are_rejected() -> None:
    with pytest.raises(ValueError, match="negative"):
        ExponentialBackoff(-0.1, 1.0)


def test_a_backoff_stores_the_time_of_the_next_attempt_and_is_reset_by_a_success() -> None:
    b = Backoff(ExponentialBackoff(0.1, 1.0, 0.0), random.Random(1))
    assert [b.failed(10.0) for _ in range(6)] == pytest.approx([10.1, 10.2, 10.4, 10.8, 11, 11])
    assert b.until == 11.0
    assert b.failures == 6
    b.succeeded()
    assert b.failures == 0
    assert b.until < 0
    assert b.failed(20.0) == pytest.approx(20.1)
    b.go_on(2)
    assert b.failed(30.0) == pytest.approx(30.4)


def test_the_same_seed_yields_the_same_delays() -> None:
    policy = ExponentialBackoff(0.05, 1.0)
    first, second = (
        [policy.delay(n, rng) for n in range(20)] for rng in (random.Random(7), random.Random(7))
    )
    assert first == second
