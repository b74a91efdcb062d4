"""The limit on one client's dials (R-CS-8, R-MD-3, R-RB-7)."""

import math
import random

from odradek.network.dial_governor import FRESH, MAX_PENDING, MAX_PER_SECOND, DialGovernor


def governor() -> DialGovernor:
    return DialGovernor(random.Random(1))


def test_without_a_failure_leaders_are_not_limited() -> None:
    g = governor()
    for _ in range(100):
        assert g.wait(1.0, for_metadata=False) == 0.0
        g.dialled(1.0, for_metadata=False)


def test_metadata_dials_are_spaced_even_before_a_failure() -> None:
    g = governor()
    assert g.wait(0.0, for_metadata=True) == 0.0
    g.dialled(0.0, for_metadata=True)
    assert 0.04 <= g.wait(0.0, for_metadata=True) <= 0.06
    assert g.wait(0.0, for_metadata=False) == 0.0


def test_the_spacing_doubles_to_a_second_and_a_proof_lifts_it() -> None:
    g, now, waits = governor(), 0.0, []
    g.failed(now)
    assert 0.08 <= g.wait(now, for_metadata=False, failed=True, again=True) <= 0.12
    for _ in range(8):
        now += g.wait(now, for_metadata=False, failed=True, again=True)
        g.dialled(now, for_metadata=False, failed=True, again=True)
        g.ended()
        waits.append(g.wait(now, for_metadata=False, failed=True, again=True))
    for wait, base in zip(waits, [0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * base <= wait <= 1.2 * base
    g.proved()
    assert g.wait(now, for_metadata=False) == 0.0


def test_a_few_addresses_that_have_not_failed_come_sooner() -> None:
    g, now = governor(), 0.0
    g.failed(now)
    for _ in range(FRESH):
        wait = g.wait(now, for_metadata=True)
        assert 0.04 <= wait <= 0.06
        now += wait
        g.dialled(now, for_metadata=True)
        g.ended()
    assert now < 0.4
    now += g.wait(now, for_metadata=True)
    assert now > 1.0  # six in a second
    g.dialled(now, for_metadata=True)
    assert g.wait(now, for_metadata=True) >= 0.08  # and then they are spaced like all others


def test_the_wait_is_drawn_once() -> None:
    g = governor()
    g.failed(0.0)
    g.dialled(0.0, for_metadata=True)
    assert len({g.wait(0.0, for_metadata=True) for _ in range(20)}) == 1


def test_while_no_metadata_can_be_had_leaders_wait_for_an_event() -> None:
    g = governor()
    g.failed(0.0)
    g.metadata_only = True
    assert g.wait(5.0, for_metadata=False) == math.inf
    assert g.wait(5.0, for_metadata=True) == 0.0


def test_pending_dials_are_limited_and_an_end_makes_room() -> None:
    g = governor()
    g.failed(0.0)
    for n in range(MAX_PENDING):
        g.dialled(2.0 * n, for_metadata=True)
    assert g.wait(100.0, for_metadata=True) == math.inf
    g.ended()
    assert g.wait(100.0, for_metadata=True) == 0.0


def test_six_dials_in_any_second_whatever_was_proved_meanwhile() -> None:
    g, now, dials = governor(), 0.0, []
    for _ in range(60):
        g.failed(now)
        now += g.wait(now, for_metadata=True)
        g.dialled(now, for_metadata=True)
        dials.append(now)
        g.ended()
        g.proved()
    assert max(sum(1 for u in dials if t <= u < t + 1) for t in dials) == 6


def test_a_proof_does_not_free_an_address_that_failed() -> None:
    g = governor()
    g.failed(0.0)
    for _ in range(6):
        g.dialled(0.0, for_metadata=False)
        g.ended()
    g.proved()
    assert g.wait(0.5, for_metadata=False) == 0.0
    assert g.wait(0.5, for_metadata=False, failed=True) > 0.4


def test_a_proof_that_was_none_brings_the_spacing_back() -> None:
    g, now = governor(), 0.0
    g.failed(now)
    for _ in range(6):
        now += g.wait(now, for_metadata=True, failed=True, again=True)
        g.dialled(now, for_metadata=True, failed=True, again=True)
        g.ended()
    g.proved()
    g.disproved()
    g.failed(now)
    g.dialled(now, for_metadata=True, failed=True, again=True)
    assert g.wait(now, for_metadata=True, failed=True, again=True) >= 0.79


def test_a_dial_that_waits_for_its_name_counts_when_it_leaves() -> None:
    g = governor()
    g.failed(0.0)
    g.dialled(0.0, for_metadata=True, failed=True)
    for n in range(1, MAX_PER_SECOND):
        g.dialled(0.1 * n, for_metadata=True, failed=True)
    for _ in range(MAX_PER_SECOND):
        g.ended()
    g.left(0.0, 0.6)  # the first one's name took so long
    assert g.wait(1.05, for_metadata=True) > 0.04  # six since 0.1
    assert g.wait(1.11, for_metadata=True) < 0.8


def test_a_backoff_that_the_user_has_set_is_the_longest_spacing() -> None:
    g, now = DialGovernor(random.Random(1), longest=0.02), 0.0
    g.failed(now)
    for _ in range(200):
        wait = g.wait(now, for_metadata=True, failed=True, again=True)
        assert wait <= 0.02 + 1e-9
        now += wait
        g.dialled(now, for_metadata=True, failed=True, again=True)
        g.ended()
    assert 3.9 <= now <= 4.1  # and as many in a second as that makes


def test_a_longer_one_changes_nothing_but_the_longest() -> None:
    g, now, waits = DialGovernor(random.Random(1), longest=0.3), 0.0, []
    g.failed(now)
    for _ in range(5):
        now += g.wait(now, for_metadata=True, failed=True, again=True)
        g.dialled(now, for_metadata=True, failed=True, again=True)
        g.ended()
        waits.append(g.wait(now, for_metadata=True, failed=True, again=True))
    assert 0.16 <= waits[0] <= 0.24
    assert all(abs(wait - 0.3) < 1e-9 for wait in waits[2:])


def test_no_backoff_at_all_is_no_limit_of_six() -> None:
    g = DialGovernor(random.Random(1), longest=0.0)
    g.failed(0.0)
    for _ in range(100):
        assert g.wait(0.0, for_metadata=False, failed=True, again=True) == 0.0
        g.dialled(0.0, for_metadata=False, failed=True, again=True)
        g.ended()


def test_a_proof_renews_the_close_dials() -> None:
    """In the next outage six addresses are tried 50 ms apart again."""
    g, now = governor(), 0.0
    for _ in range(3):
        g.failed(now)
        for _ in range(FRESH):
            wait = g.wait(now, for_metadata=True)
            assert 0.04 <= wait <= 0.06
            now += wait
            g.dialled(now, for_metadata=True)
            g.ended()
        g.proved()
        now += 10.0
