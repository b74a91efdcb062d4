"""Test that timeouts and memory errors reduce the size limit of fetches."""

from __future__ import annotations

from odradek.clients.consumer.fetching.slow_leaders import SlowLeaders
from odradek.common.errors import DisconnectedError, NoMemoryError, ResponseTimeoutError
from odradek.common.types import Address

A = Address("a", 1)


def test_a_memory_error_halves_the_fetch_limit_and_quick_responses_raise_it_again() -> None:
    slow = SlowLeaders(1000, soon=1.0)
    slow.lost(A, DisconnectedError("reset"))
    assert slow.limit(A, 1000) == 1000
    slow.lost(A, NoMemoryError("no memory"))
    slow.lost(A, NoMemoryError("no memory"))
    assert slow.limit(A, 1000) == 250
    slow.answered(A, 0.5)
    assert slow.limit(A, 1000) == 500
    slow.answered(A, 0.5)
    assert slow.limits == {}


def test_a_response_timeout_limits_a_fetch_to_half_of_the_bytes_received() -> None:
    slow = SlowLeaders(1000, soon=1.0)
    slow.lost(A, ResponseTimeoutError("late", 300))
    assert slow.limit(A, 1000) == 150
    slow.answered(A, 2.0)
    assert slow.limit(A, 1000) == 150
