"""The calculator (KIP-580) under random numbers, and the running backoff (R-BO-1, R-BO-3)."""

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
def test_never_above_the_maximum_never_negative_never_overflowing(
    base: float, maximum: float, failures: int, jitter: float, seed: int
) -> None:
    delay = ExponentialBackoff(base, maximum, jitter).delay(failures, random.Random(seed))
    assert 0.0 <= delay <= maximum or delay == maximum


@given(st.integers(0, 30), st.integers(0, 2**32))
def test_within_a_fifth_of_the_curve(failures: int, seed: int) -> None:
    curve = min(0.1 * 2**failures, 1.0 / 1.2)  # all of the jitter fits below the maximum
    delay = ExponentialBackoff(0.1, 1.0).delay(failures, random.Random(seed))
    assert 0.8 * curve - 1e-9 <= delay <= 1.2 * curve + 1e-9


@pytest.mark.parametrize("jitter", [-1.0, 1.5, 3000.0])
def test_jitter_outside_zero_to_one_is_refused_with_its_value(jitter: float) -> None:
    with pytest.raises(ValueError, match=str(jitter)):
        ExponentialBackoff(0.1, 1.0, jitter)


def test_a_jitter_of_one_is_accepted() -> None:
    assert ExponentialBackoff(0.1, 1.0, 1.0).jitter == 1.0


class Greatest(random.Random):
    """The largest number that `random` returns."""

    def random(self) -> float:
        return 1.0 - 2.0**-53


@pytest.mark.parametrize("maximum", [0.875, 1.375, 1.75])
def test_rounding_never_exceeds_the_maximum(maximum: float) -> None:
    assert ExponentialBackoff(0.1, maximum).delay(9, Greatest()) == maximum


def test_negative_times_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        ExponentialBackoff(-0.1, 1.0)


def test_a_running_backoff_keeps_its_deadline_and_starts_over_after_a_success() -> None:
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


def test_the_same_seed_gives_the_same_waits() -> None:
    policy = ExponentialBackoff(0.05, 1.0)
    first, second = (
        [policy.delay(n, rng) for n in range(20)] for rng in (random.Random(7), random.Random(7))
    )
    assert first == second
