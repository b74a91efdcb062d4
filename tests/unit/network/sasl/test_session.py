"""Test when a connection reauthenticates, and which requests wait for the reauthentication."""

from __future__ import annotations

import math
import random

from odradek.network.in_flight_requests import InFlightRequests
from odradek.network.sasl.session import LEAST_BETWEEN, SaslSession
from odradek.protocol.messages.fetch import FetchRequest


def test_reauthentication_is_due_at_a_random_85_to_95_percent_of_the_lifetime() -> None:
    rng = random.Random(1)
    due = [SaslSession(100.0, 7.0, rng).due_at - 7.0 for _ in range(200)]
    assert min(due) >= 85.0
    assert max(due) <= 95.0
    assert max(due) - min(due) > 8.0


def test_two_reauthentications_are_at_least_a_second_apart() -> None:
    session = SaslSession(0.5, 10.0, random.Random(1))
    session.begun_at = 10.4
    session.renewed(0.5, 10.4)
    assert session.due_at == 10.4 + LEAST_BETWEEN
    assert session.ends_at == 10.9


def test_a_session_without_a_lifetime_never_reauthenticates() -> None:
    session = SaslSession(5.0, 0.0, random.Random(1))
    session.renewed(0.0, 4.0)
    assert session.due_at == session.ends_at == math.inf
    assert not session.holds(1e9, InFlightRequests())


def test_a_request_waits_for_reauthentication_after_a_fetch_that_may_outlast_the_session() -> None:
    session, in_flight = SaslSession(10.0, 0.0, random.Random(1)), InFlightRequests()
    assert not session.holds(9.0, in_flight)
    in_flight.note(in_flight.make(FetchRequest(), 12, 9.0, timeout=30.0, patience=0.5))
    assert not session.holds(9.0, in_flight)
    fetch = in_flight.make(FetchRequest(), 12, 9.0, timeout=30.0, patience=2.0)
    in_flight.note(fetch)
    assert session.holds(9.0, in_flight)
    session.hold(fetch, 9.0)
    assert session.due_at <= 9.0, "reauthentication is due at once"
    assert session.holds(0.0, InFlightRequests()), "no request overtakes a held one"
    assert session.take_held() == [fetch]
    assert session.held == []


def test_a_request_that_waits_for_a_reauthentication_starts_no_second_reauthentication() -> None:
    session, in_flight = SaslSession(10.0, 0.0, random.Random(1)), InFlightRequests()
    session.due_at, session.renewing = math.inf, True
    session.hold(in_flight.make(FetchRequest(), 12, 9.0, timeout=1.0, patience=0.0), 9.0)
    assert session.due_at == math.inf
