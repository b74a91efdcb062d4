"""What is remembered of each address (KIP-144, KIP-601) (R-CS-2)."""

import random

import pytest

from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Address
from odradek.network.cluster_connection_states import ClusterConnectionStates

A, B = Address("a", 9092), Address("a", 9093)


def states(seed: int = 1, base: float = 0.05, maximum: float = 1.0) -> ClusterConnectionStates:
    return ClusterConnectionStates(
        ExponentialBackoff(base, maximum), ExponentialBackoff(10.0, 30.0), random.Random(seed)
    )


@pytest.mark.parametrize("seed", range(20))
def test_failures_double_the_wait_and_only_a_proof_resets(seed: int) -> None:
    s, now = states(seed), 0.0
    for base in (0.05, 0.1, 0.2, 0.4, 0.8, 1 / 1.2, 1 / 1.2):
        s.dialling(s.state(A), now)
        s.setup_done(A)  # ready isn't enough
        until = s.failed(A, now, None, connecting=False)
        assert 0.8 * base - 1e-9 <= until - now <= 1.2 * base + 1e-9
        assert s.backoff_left(A, now) == until - now
        now = until
        assert s.backoff_left(A, now) == 0.0
    s.proved(A, 1.0)
    assert s.failed(A, now, None, connecting=True) - now <= 0.06


def test_a_proof_says_that_the_latest_dial_was_not_in_vain() -> None:
    s = states()
    s.failed(A, 0.0, None, connecting=True)
    s.state(A).dial_failed = True
    assert s.standing(A) == (True, True)
    s.proved(A, 1.0)
    assert s.standing(A) == (False, False)  # R-RB-2: it is available again


def test_the_deadline_is_drawn_once() -> None:
    s = states()
    s.failed(A, 0.0, None, connecting=True)
    assert len({s.backoff_left(A, 0.0) for _ in range(50)}) == 1


def test_an_orderly_end_waits_the_base_without_growth_and_never_shortens() -> None:
    s = states()
    for _ in range(3):
        assert 0.04 <= s.closed(A, 1.0) - 1.0 <= 0.06
    assert s.state(A).failures == 0
    for _ in range(6):
        s.failed(A, 2.0, None, connecting=True)
    left = s.backoff_left(A, 2.0)
    s.closed(A, 2.0)
    assert s.backoff_left(A, 2.0) == left


def test_setup_timeouts_grow_per_failed_setup_and_start_over_when_ready() -> None:
    s = states()
    found = []
    for _ in range(4):
        found.append(s.dialling(s.state(A), 0.0))
        assert s.dialling(s.state(A), 0.0) == found[-1]  # drawn per failure, not per look
        s.failed(A, 0.0, None, connecting=True)
    for timeout, low, high in zip(found, (8, 16, 24, 24), (12, 24, 30, 30), strict=True):
        assert low <= timeout <= high
    s.dialling(s.state(A), 0.0)
    s.setup_done(A)
    assert 8 <= s.dialling(s.state(A), 0.0) <= 12


class TestPickIp:
    def test_failed_dials_go_on_in_turn_and_do_not_begin_with_the_last(self) -> None:
        s, ips = states(), ["1", "2", "3"]
        assert [s.pick_ip(A, ips) for _ in range(7)] == ["1", "2", "3", "1", "2", "3", "1"]
        t, both = states(), ["1", "2"]
        t.pick_ip(A, both)
        t.closed(A, 0.0)
        assert t.pick_ip(A, both) == "2"

    def test_first_answers_family_first_in_either_order(self) -> None:
        s = states()
        assert [s.pick_ip(A, ["v4", "::1", "v4b"]) for _ in range(3)] == ["v4", "v4b", "::1"]
        assert [s.pick_ip(B, ["::1", "v4", "::2"]) for _ in range(3)] == ["::1", "::2", "v4"]

    def test_after_a_loss_the_last_one_comes_last_also_when_the_answer_is_reordered(self) -> None:
        s = states()
        assert s.pick_ip(A, ["1", "2"]) == "1"
        s.failed(A, 0.0, None, connecting=False)
        assert s.pick_ip(A, ["1", "2"]) == "2"
        s.failed(A, 0.0, None, connecting=False)
        assert s.pick_ip(A, ["2", "1"]) == "1"

    def test_names_whose_answers_rotate_leave_nothing_behind(self) -> None:
        s = states()
        for n in range(1000):
            s.pick_ip(A, [f"10.0.{n // 256}.{n % 256}"])
        assert len(s.state(A).tried) < 5
