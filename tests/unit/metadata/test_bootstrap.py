"""When the known brokers count as unavailable (R-RB-2, R-RB-3), and the cluster id (R-RB-5)."""

import random

from odradek.common.types import Address
from odradek.metadata.bootstrap import ENOUGH, Silence, check_cluster_id, reason, shuffled

A = [Address(f"b{n}", 1) for n in range(20)]


def why(total: int, failed: list[Address], *, answering: int = 0, unavailable: int = 0) -> str:
    """So many known brokers answer, and the last so many are unavailable."""
    away = A[total - unavailable : total]
    found = reason(A[:total], failed, answering=answering > 0, unavailable=away.__contains__)
    return found or ""


def test_all_unavailable() -> None:
    for total in (1, 3, 20):
        assert why(total, [], unavailable=total)


def test_one_that_was_not_tried_keeps_the_set_available() -> None:
    assert not why(3, A[1:3], unavailable=2)


def test_one_that_answers_outweighs_any_count() -> None:
    assert not why(20, A[1:], answering=1, unavailable=19)


def test_five_failures_in_a_row_are_enough_in_a_large_cluster() -> None:
    assert not why(20, A[: ENOUGH - 1])
    assert "5 of 20" in why(20, A[:ENOUGH])


def test_failures_of_others_do_not_count() -> None:
    assert not why(10, A[10:])


def test_nothing_known_is_no_reason() -> None:
    assert not why(0, A)


def test_silence_is_general_after_five_two_of_them_asked() -> None:
    silence = Silence()
    for n in range(ENOUGH):
        silence.fell(A[n], 10.0 - n)
    assert silence.since == 6.0
    assert not silence.general(20, heard_at=7.0)
    silence.asked()
    assert not silence.general(20, heard_at=7.0)
    silence.asked()
    assert silence.general(20, heard_at=7.0)
    silence.clear()
    assert not silence.general(20, heard_at=7.0)


def test_one_question_is_enough_when_nobody_said_anything_meanwhile() -> None:
    silence = Silence()
    for n in range(ENOUGH):
        silence.fell(A[n], 10.0 - n)
    assert not silence.general(20, heard_at=6.0)  # writes may be held for a dead replica's sake
    silence.asked()
    assert silence.general(20, heard_at=6.0)
    assert silence.general(20, heard_at=11.0)  # a bootstrap address speaks: the others don't yet


def test_silence_in_a_small_cluster_takes_all_of_it() -> None:
    silence = Silence()
    silence.fell(A[0], 1.0)
    silence.asked()
    assert not silence.general(0, heard_at=0.0)
    assert not silence.general(2, heard_at=0.0)
    assert silence.general(1, heard_at=0.0)


def test_cluster_ids() -> None:
    assert check_cluster_id(None, "x", A[0]) is None
    assert check_cluster_id("x", None, A[0]) is None
    assert check_cluster_id("x", "x", A[0]) is None
    error = check_cluster_id("x", "y", A[0])
    assert error is not None
    assert error.fatal
    for part in ("'x'", "'y'", "b0:1"):
        assert part in str(error)


def test_each_client_has_its_own_order() -> None:
    orders = {tuple(shuffled(A[:5], random.Random(seed).shuffle)) for seed in range(20)}
    assert len(orders) > 10
    assert all(set(order) == set(A[:5]) for order in orders)
