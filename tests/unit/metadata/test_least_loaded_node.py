"""R-MD-2: test the function that chooses the broker for a metadata request."""

import math
from typing import Any

from odradek.common.types import Address
from odradek.metadata.least_loaded_node import Action, Candidate, Choice, choose
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection import Connection
from odradek.network.connection_policy import NextAttempt
from odradek.network.connection_state import ConnectionState
from odradek.protocol.messages.metadata import MetadataRequest


def connected(name: str, *, used: float = 0.0, in_flight: int = 0, **more: Any) -> Candidate:
    connection = Connection(1, Address(name, 1), "data", 0.0, AddressState(Address(name, 1)))
    connection.state, connection.ready = ConnectionState.READY, True
    connection.last_used = used
    connection.throttled_until = more.pop("throttled_until", 0.0)
    connection.writable = more.pop("writable", True)
    for _ in range(in_flight):
        waits = connection.in_flight
        waits.note(waits.make(MetadataRequest(), 12, 0.0, timeout=30.0, patience=0.0))
    return Candidate(Address(name, 1), connection, more.pop("suspect", False), -math.inf, **more)


def pending(name: str, young_until: float) -> Candidate:
    connection = Connection(1, Address(name, 1), "data", 0.0, AddressState(Address(name, 1)))
    return Candidate(Address(name, 1), connection, False, young_until)


NEXT = NextAttempt(Address("next", 1), 10.0)
LATER = NextAttempt(None, 11.0)


def choice_of(*candidates: Candidate, whom: NextAttempt | None) -> Choice:
    return choose(candidates, 10.0, lambda: whom)


def chosen(*candidates: Candidate, whom: NextAttempt | None = NEXT) -> tuple[Action, str]:
    choice = choice_of(*candidates, whom=whom)
    address = choice.candidate.address if choice.candidate else choice.address
    return choice.action, address.host if address else ""


def test_the_least_recently_used_idle_connection_is_chosen() -> None:
    assert chosen(connected("a", used=3.0), connected("b", used=1.0)) == (Action.USE, "b")


def test_the_least_busy_connection_is_preferred_to_a_pending_connection_attempt() -> None:
    busy, busier = connected("a", used=1.0, in_flight=1), connected("b", used=0.0, in_flight=3)
    assert chosen(busier, pending("c", 99.0), busy) == (Action.USE, "a")


def test_a_request_waits_for_a_recent_connection_attempt_but_not_for_an_old_attempt() -> None:
    choice = choice_of(pending("a", 10.05), whom=NEXT)
    assert (choice.action, choice.until) == (Action.WAIT, 10.05)
    assert chosen(pending("a", 10.0)) == (Action.DIAL, "next")


def test_a_broker_with_older_metadata_is_the_last_choice() -> None:
    older = connected("a", used=1.0, older=True)
    assert chosen(older, connected("b", used=3.0, in_flight=2)) == (Action.USE, "b")
    assert choice_of(older, pending("b", 10.05), whom=NEXT).until == 10.05
    assert chosen(older) == (Action.DIAL, "next")
    for whom in (None, LATER):
        assert chosen(older, connected("b", used=0.5, older=True), whom=whom) == (Action.USE, "b")


def test_unusable_connections_are_not_chosen() -> None:
    for candidate in (
        connected("a", suspect=True),
        connected("a", writable=False),
        connected("a", throttled_until=12.0),
    ):
        assert chosen(candidate, whom=None)[0] is Action.NONE
        assert chosen(candidate) == (Action.DIAL, "next")


def test_waiting_for_a_usable_broker_ends_at_the_next_attempt_or_the_end_of_a_throttle() -> None:
    throttled = connected("a", throttled_until=12.0)
    assert choice_of(whom=LATER) == Choice(Action.NONE, until=11.0)
    assert choice_of(throttled, whom=LATER).until == 11.0
    assert choice_of(throttled, whom=None).until == 12.0
    assert choice_of(whom=None).until == math.inf
    assert chosen(connected("a", throttled_until=10.0)) == (Action.USE, "a")
