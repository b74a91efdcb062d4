"""Test when known brokers count as unavailable (R-RB-2, R-RB-3), and the cluster id (R-RB-5)."""

import random

import pytest

from odradek.common.types import Address
from odradek.metadata.bootstrap import (
    ENOUGH,
    Rebootstrap,
    SilentConnections,
    check_cluster_id,
    reason,
    shuffled,
)

A = [Address(f"b{n}", 1) for n in range(20)]


@pytest.mark.parametrize(
    ("total", "failed", "unavailable", "answering", "why"),
    [
        *((total, 0, total, False, "") for total in (1, 3, 20)),
        (3, 2, 2, False, None),  # one broker was not tried
        (20, 19, 19, True, None),  # one broker answers
        (20, ENOUGH - 1, 0, False, None),
        (20, ENOUGH, 0, False, "5 of 20"),  # enough failures in a row in a large cluster
        (0, 20, 0, False, None),  # no broker is known
    ],
)
def test_a_rebootstrap_starts_if_all_brokers_are_unavailable_or_many_attempts_fail(
    total: int, failed: int, unavailable: int, answering: bool, why: str | None
) -> None:
    """Of `total` known brokers, `unavailable` are unavailable; `failed` attempts have failed."""
    tried, away = A[max(0, total - failed) :][:failed], A[total - unavailable : total]
    found = reason(A[:total], tried, answering=answering, unavailable=away.__contains__)
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")


def test_failed_attempts_to_unknown_brokers_do_not_cause_a_rebootstrap() -> None:
    assert not reason(A[:10], A[10:], answering=False, unavailable=lambda _: False)


def silent(count: int) -> SilentConnections:
    """Return the state with `count` silent brokers, the last of which is silent since 6.0 s."""
    silence = SilentConnections()
    for n in range(count):
        silence.fell(A[n], 5.0 + count - n)
    return silence


def test_a_cluster_with_five_silent_brokers_is_silent_after_two_unanswered_requests() -> None:
    silence = silent(ENOUGH)
    assert silence.since == 6.0
    assert not silence.general(20, heard_at=7.0)
    silence.asked()
    assert not silence.general(20, heard_at=7.0)
    silence.asked()
    assert silence.general(20, heard_at=7.0)
    silence.clear()
    assert not silence.general(20, heard_at=7.0)


def test_a_cluster_from_which_no_bytes_arrive_is_silent_after_one_unanswered_request() -> None:
    silence = silent(ENOUGH)
    assert not silence.general(20, heard_at=6.0)  # writes may be delayed because of a dead replica
    silence.asked()
    assert silence.general(20, heard_at=6.0)
    assert silence.general(20, heard_at=11.0)  # since then, only a bootstrap address has answered


def test_a_small_cluster_counts_as_silent_only_if_all_its_brokers_are_silent() -> None:
    silence = silent(1)
    silence.asked()
    assert silence.general(0, heard_at=0.0) is False
    assert not silence.general(2, heard_at=0.0)
    assert silence.general(1, heard_at=0.0)


def result(one: Rebootstrap) -> tuple[float | None, Address | None]:
    return one.ended, one.address


def test_a_rebootstrap_ends_with_its_first_response() -> None:
    one = Rebootstrap("no broker is available", 5.0)
    assert (one.why, one.started) == ("no broker is available", 5.0)
    assert result(one) == (None, None)
    assert one.end(7.0, A[0])
    assert result(one) == (7.0, A[0])
    one.go_on()
    assert result(one) == (None, A[0])
    assert not one.end(9.0, A[1])
    assert result(one) == (9.0, A[1])


def test_a_different_cluster_id_is_a_fatal_error_that_names_both_ids() -> None:
    assert check_cluster_id(None, "x", A[0]) is None
    assert check_cluster_id("x", None, A[0]) is None
    assert check_cluster_id("x", "x", A[0]) is None
    error = check_cluster_id("x", "y", A[0])
    assert error is not None
    assert error.fatal
    for part in ("'x'", "'y'", "b0:1"):
        assert part in str(error)


def test_each_client_shuffles_addresses_differently() -> None:
    orders = {tuple(shuffled(A[:5], random.Random(seed).shuffle)) for seed in range(20)}
    assert len(orders) > 10
    assert all(set(order) == set(A[:5]) for order in orders)
