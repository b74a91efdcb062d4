"""Test the limit on a client's connection attempts (R-CS-8, R-MD-3, R-RB-7)."""

import math
import random

import pytest

from odradek.network.connection_limiter import FRESH, MAX_PENDING, MAX_PER_SECOND, ConnectionLimiter


def limiter(longest: float = math.inf, most: int = MAX_PER_SECOND) -> ConnectionLimiter:
    """Return a limiter that has seen a failure."""
    made = ConnectionLimiter(random.Random(1), longest, most)
    made.failed(0.0)
    return made


def attempts(g: ConnectionLimiter, now: float, times: int, **how: bool) -> list[float]:
    """Make attempts as soon as allowed, end each at once, and return the waits before them."""
    waits = []
    for _ in range(times):
        waits.append(g.wait(now, for_metadata=True, **how))
        now += waits[-1]
        g.dialled(now, for_metadata=True, **how)
        g.ended()
    return waits


AGAIN = {"failed": True, "again": True}


def test_the_time_between_attempts_doubles_up_to_a_second_until_a_success() -> None:
    g = limiter()
    waits = attempts(g, 0.0, 9, **AGAIN)
    for wait, base in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * base <= wait <= 1.2 * base
    g.proved()
    assert g.wait(sum(waits), for_metadata=False) == 0.0


def test_the_first_attempts_at_addresses_that_have_not_failed_have_shorter_waits() -> None:
    g = limiter()
    waits = attempts(g, 0.0, FRESH)
    assert all(0.04 <= wait <= 0.06 for wait in waits)
    now = sum(waits)
    now += sum(attempts(g, now, 1))
    assert now > 1.0  # at most six attempts per second
    assert g.wait(now, for_metadata=True) >= 0.08  # later attempts have the usual spacing


def test_each_wait_before_an_attempt_gets_a_single_random_jitter() -> None:
    g = limiter()
    g.dialled(0.0, for_metadata=True)
    assert len({g.wait(0.0, for_metadata=True) for _ in range(20)}) == 1


def test_at_most_six_attempts_per_second_even_with_successes() -> None:
    g, now, times = limiter(), 0.0, []
    for _ in range(60):
        g.failed(now)
        now += sum(attempts(g, now, 1))
        times.append(now)
        g.proved()
    assert max(sum(1 for u in times if t <= u < t + 1) for t in times) == 6


def test_a_success_does_not_lift_the_limit_for_an_address_that_failed() -> None:
    g = limiter()
    for _ in range(6):
        g.dialled(0.0, for_metadata=False)
        g.ended()
    g.proved()
    assert g.wait(0.5, for_metadata=False) == 0.0
    assert g.wait(0.5, for_metadata=False, failed=True) > 0.4


def test_withdrawing_a_success_restores_the_time_between_attempts() -> None:
    g = limiter()
    now = sum(attempts(g, 0.0, 6, **AGAIN))
    g.proved()
    g.disproved()
    g.failed(now)
    g.dialled(now, for_metadata=True, failed=True, again=True)
    assert g.wait(now, for_metadata=True, failed=True, again=True) >= 0.79


def test_an_attempt_counts_from_the_end_of_its_dns_lookup() -> None:
    g = limiter()
    for n in range(MAX_PER_SECOND):
        g.dialled(0.1 * n, for_metadata=True, failed=True)
    for _ in range(MAX_PER_SECOND):
        g.ended()
    g.left(0.0, 0.6)  # the first attempt's DNS lookup took 0.6 s
    assert g.wait(1.05, for_metadata=True) > 0.04  # six attempts since 0.1 s
    assert g.wait(1.11, for_metadata=True) < 0.8


@pytest.mark.parametrize("longest", [0.0, 0.01, 0.05, 0.1])
def test_the_limit_of_attempts_per_second_holds_for_every_configured_backoff(
    longest: float,
) -> None:
    """The backoffs include librdkafka's 100 ms, 50 ms as in Java's docs, and zero."""
    for most in (1, 6, 50):
        waits, now, times = attempts(limiter(longest, most), 0.0, 3 * most, **AGAIN), 0.0, []
        for wait in waits:
            now += wait
            times.append(now)
        assert max(sum(1 for u in times if t <= u < t + 1) for t in times) <= most
        assert max(waits[1:]) <= max(longest, 1.0 / most) + 0.01 or most == 1


def test_after_a_success_the_next_outage_begins_with_closely_spaced_attempts() -> None:
    """In each outage, the first six attempts are 50 ms apart."""
    g = limiter()
    for outage in range(3):
        now = 20.0 * outage
        g.failed(now)
        assert all(0.04 <= wait <= 0.06 for wait in attempts(g, now, FRESH))
        g.proved()


def test_connection_attempts_of_a_new_client_are_not_limited() -> None:
    g = ConnectionLimiter(random.Random(1))
    assert (g.engaged, g.metadata_only, g.for_metadata_only(False)) == (False, False, False)
    g.dialled(0.0, for_metadata=False)
    assert g.wait(0.0, for_metadata=True) == 0.0


@pytest.mark.parametrize("proofs", [0, 1])
def test_the_time_between_attempts_begins_at_100_ms(proofs: int) -> None:
    g = ConnectionLimiter(random.Random(1))
    for _ in range(proofs):
        g.dialled(0.0, for_metadata=True, **AGAIN)
        g.proved()
    g.dialled(0.0, for_metadata=True, **AGAIN)
    assert 0.08 <= g.wait(0.0, for_metadata=True, **AGAIN) <= 0.12


def test_withdrawing_a_success_that_never_happened_has_no_effect() -> None:
    g = ConnectionLimiter(random.Random(1))
    g.disproved()
    g.dialled(0.0, for_metadata=True, **AGAIN)
    assert 0.08 <= g.wait(0.0, for_metadata=True, **AGAIN) <= 0.12


def test_the_first_attempts_count_as_one_when_the_time_between_attempts_doubles() -> None:
    g = ConnectionLimiter(random.Random(1))
    for now in range(FRESH):
        g.dialled(10.0 * now, for_metadata=True)
        g.ended()
        assert 0.04 <= g.wait(10.0 * now, for_metadata=True) <= 0.06
    g.dialled(90.0, for_metadata=True)
    assert 0.16 <= g.wait(90.0, for_metadata=True) <= 0.24


def test_the_seventh_attempt_waits_until_a_second_after_the_first() -> None:
    g = limiter()
    for n in range(MAX_PER_SECOND):
        g.dialled(0.1 * n, for_metadata=True)
        g.ended()
    assert g.wait(0.6, for_metadata=True) == pytest.approx(0.401)


def test_a_shorter_configured_backoff_allows_more_attempts_per_second() -> None:
    g = limiter(0.1, 11)
    for _ in range(10):
        g.dialled(0.0, for_metadata=True)
        g.ended()
    assert g.wait(0.0, for_metadata=True) <= 0.1
    g.dialled(0.0, for_metadata=True)
    g.ended()
    assert g.wait(0.0, for_metadata=True) == pytest.approx(1.001)


def test_ended_attempts_are_not_pending() -> None:
    g = limiter()
    for _ in range(3):
        g.dialled(0.0, for_metadata=True)
    g.ended()
    assert g.pending == 2


def test_six_attempts_after_slow_dns_lookups_delay_the_next_attempt_by_a_second() -> None:
    g = limiter()
    for _ in range(MAX_PER_SECOND):
        g.left(0.0, 0.6)
    assert g.wait(0.6, for_metadata=True) == pytest.approx(1.001)


def test_a_failure_limits_connection_attempts_until_a_success() -> None:
    g = ConnectionLimiter(random.Random(1))
    g.failed(0.0)
    assert g.engaged is True
    assert g.wait(0.0, for_metadata=False) > 0.0
    g.proved()
    assert g.engaged is False


def test_connections_to_leaders_wait_while_no_metadata_is_available() -> None:
    g = limiter()
    assert not g.for_metadata_only(True)
    assert g.wait(9.0, for_metadata=False) == math.inf
    assert g.wait(9.0, for_metadata=True) == 0.0
    assert g.for_metadata_only(False)
    assert g.wait(9.0, for_metadata=False) == 0.0


def test_six_connection_attempts_may_be_pending() -> None:
    g = limiter()
    for n in range(MAX_PENDING):
        assert g.wait(10.0 * n + 10.0, for_metadata=True) == 0.0
        g.dialled(10.0 * n + 10.0, for_metadata=True)
    assert g.wait(90.0, for_metadata=True) == math.inf
