"""Test which address the client connects to next, at what time, and the reason for a wait."""

import math
import random

from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Address
from odradek.network.cluster_connection_states import ClusterConnectionStates
from odradek.network.connection_limiter import MAX_PENDING, ConnectionLimiter
from odradek.network.connection_policy import (
    AllowedTime,
    AttemptDelay,
    ConnectionPolicy,
    NextAttempt,
)

A, B, C = Address("a", 1), Address("b", 1), Address("c", 1)
ERROR = ConnectionError("refused")


class Setting:
    """A connection policy with the addresses' states and the limiter that it uses."""

    def __init__(self) -> None:
        rng = random.Random(1)
        wait = ExponentialBackoff(2.0, 10.0)
        self.states = ClusterConnectionStates(wait, ExponentialBackoff(10.0, 30.0), rng)
        self.governor = ConnectionLimiter(rng)
        self.policy = ConnectionPolicy(self.states, self.governor)

    def attempt(self, address: Address, now: float) -> None:
        """Make a connection attempt that ends at once, neither as a success nor as a failure."""
        record = self.states.state(address)
        self.policy.begun(record, now, for_metadata=False)
        self.policy.ended(record)

    def fails(self, address: Address, now: float) -> None:
        """Make a connection attempt that fails at once."""
        self.attempt(address, now)
        record = self.states.state(address)
        self.policy.failed(record, now, ERROR, connecting=True, proved=False)


def test_a_new_client_may_connect_at_once_without_any_stored_state() -> None:
    s = Setting()
    assert s.policy.when(A, 5.0) == AllowedTime(5.0, AttemptDelay.NOTHING)
    assert s.policy.whom([A], [B], 5.0) == NextAttempt(A, 5.0)
    assert s.states.all() == []


def test_an_address_that_failed_waits_for_its_backoff_and_others_for_the_attempt_spacing() -> None:
    s = Setting()
    for now in (0.0, 10.0, 20.0, 30.0):
        s.fails(A, now)
    own, other = s.policy.when(A, 30.0), s.policy.when(B, 30.0)
    assert own == AllowedTime(s.states.state(A).backoff_until, AttemptDelay.BACKOFF)
    assert other.why is AttemptDelay.SPACING
    assert 30.0 < other.at < own.at
    s.policy.proved(B, 30.0)
    assert s.policy.when(C, 30.0) == AllowedTime(30.0, AttemptDelay.NOTHING)
    assert s.policy.when(A, 30.0).why is AttemptDelay.BACKOFF


def test_an_attempt_waits_for_its_backoff_and_for_the_spacing_between_attempts() -> None:
    s = Setting()
    s.policy.alarmed(0.0)
    s.states.state(A).backoff_until, s.governor.next_dial_at = 1.0, 2.0
    assert s.policy.when(A, 0.0) == AllowedTime(2.0, AttemptDelay.SPACING)


def test_connections_to_leaders_wait_while_no_metadata_is_available() -> None:
    s = Setting()
    s.fails(A, 0.0)
    assert not s.policy.metadata_only(True)
    assert s.policy.leaders_wait
    assert s.policy.when(B, 9.0) == AllowedTime(math.inf, AttemptDelay.METADATA)
    assert s.policy.when(B, 9.0, for_metadata=True) == AllowedTime(9.0, AttemptDelay.NOTHING)
    assert [s.policy.metadata_only(False) for _ in range(2)] == [True, False]
    assert s.policy.when(B, 9.0) == AllowedTime(9.0, AttemptDelay.NOTHING)


def test_no_connection_is_attempted_while_the_maximum_number_is_pending() -> None:
    s = Setting()
    s.policy.alarmed(0.0)
    record = s.states.state(A)
    for at in range(MAX_PENDING):
        s.policy.begun(record, float(at), for_metadata=True)
    assert s.policy.full
    assert s.policy.when(B, 99.0) == AllowedTime(math.inf, AttemptDelay.PENDING)
    assert s.policy.whom([], [B], 99.0) == NextAttempt(None, math.inf)
    s.policy.ended(record)
    assert s.policy.when(B, 99.0) == AllowedTime(99.0, AttemptDelay.NOTHING)


def test_untried_addresses_are_tried_first_and_then_the_least_recently_tried() -> None:
    s = Setting()
    s.attempt(A, 5.0)
    s.attempt(B, 2.0)
    assert s.policy.whom([], [A, B], 10.0) == NextAttempt(B, 10.0)
    assert s.policy.whom([], [A, B, C], 10.0) == NextAttempt(C, 10.0)
    assert s.policy.whom([A], [C], 10.0) == NextAttempt(A, 10.0)  # bootstrap addresses come first


def test_the_next_attempt_is_at_the_end_of_the_first_backoff_or_of_the_attempt_spacing() -> None:
    s = Setting()
    for address, until in ((A, 11.0), (B, 12.0)):
        s.states.state(address).backoff_until = until
    assert s.policy.whom([A], [B], 10.0) == NextAttempt(None, 11.0)
    assert s.policy.whom([A], [B], 10.0, by=12.0) == NextAttempt(A, 12.0)
    s.governor.again_at = 13.0
    s.states.state(A).dialled_in_vain()
    assert s.policy.whom([A], [B], 10.0) == NextAttempt(None, 12.0)
    s.governor.next_dial_at = 14.0
    assert s.policy.whom([A], [B], 10.0) == NextAttempt(None, 14.0)
    assert s.policy.whom([], [], 10.0) is None
