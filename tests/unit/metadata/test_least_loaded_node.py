"""R-MD-2 as a pure choice."""

import math
from typing import Any

from odradek.common.types import Address
from odradek.metadata.least_loaded_node import Action, Candidate, choose
from odradek.network.connection import Connection
from odradek.network.connection_state import ConnectionState
from odradek.protocol.messages.metadata import MetadataRequest


def connected(name: str, *, used: float = 0.0, in_flight: int = 0, **more: Any) -> Candidate:
    connection = Connection(1, Address(name, 1), "data", 0.0)
    connection.state, connection.ready = ConnectionState.READY, True
    connection.last_used = used
    connection.throttled_until = more.pop("throttled_until", 0.0)
    connection.writable = more.pop("writable", True)
    for _ in range(in_flight):
        waits = connection.in_flight
        waits.note(waits.make(MetadataRequest(), 12, 0.0, timeout=30.0, patience=0.0))
    return Candidate(
        Address(name, 1), connection, more.pop("suspect", False), -math.inf, 0.0, 0.0, **more
    )


def pending(name: str, young_until: float) -> Candidate:
    connection = Connection(1, Address(name, 1), "data", 0.0)
    return Candidate(Address(name, 1), connection, False, young_until, 0.0, 0.0)


def free(name: str, *, last: float = -math.inf, at: float = 0.0, boot: bool = False) -> Candidate:
    return Candidate(Address(name, 1), None, False, -math.inf, last, at, boot)


def chosen(*candidates: Candidate, now: float = 10.0, dial_at: float = 0.0) -> tuple[Action, str]:
    choice = choose(candidates, now, dial_at=dial_at)
    return choice.action, choice.candidate.address.host if choice.candidate else ""


def test_idle_least_recently_used_first() -> None:
    found = chosen(connected("a", used=3.0), connected("b", used=1.0), free("c"))
    assert found == (Action.USE, "b")


def test_idle_beats_busy_and_fewest_in_flight_among_the_busy() -> None:
    busy, busier = connected("a", used=1.0, in_flight=1), connected("b", used=0.0, in_flight=3)
    assert chosen(busier, busy) == (Action.USE, "a")
    assert chosen(busier, busy, connected("c", used=9.0)) == (Action.USE, "c")


def test_a_busy_connection_beats_a_young_dial_and_a_new_one() -> None:
    assert chosen(free("a"), pending("b", 99.0), connected("c", in_flight=5)) == (Action.USE, "c")


def test_a_young_dial_is_waited_for_and_an_old_one_is_not() -> None:
    choice = choose([pending("a", 10.05), free("b")], 10.0, dial_at=0.0)
    assert (choice.action, choice.until) == (Action.WAIT, 10.05)
    assert chosen(pending("a", 10.0), free("b")) == (Action.DIAL, "b")


def test_the_oldest_dial_first_and_never_dialled_before_all() -> None:
    assert chosen(free("a", last=5.0), free("b", last=2.0)) == (Action.DIAL, "b")
    assert chosen(free("a", last=5.0), free("b", last=2.0), free("c")) == (Action.DIAL, "c")


def test_bootstrap_addresses_come_first() -> None:
    assert chosen(free("a", last=1.0), free("b", last=9.0, boot=True)) == (Action.DIAL, "b")


def test_unusable_connections_are_no_choice() -> None:
    for candidate in (
        connected("a", suspect=True),
        connected("a", writable=False),
        connected("a", throttled_until=12.0),
    ):
        assert chosen(candidate)[0] is Action.NONE
        assert chosen(candidate, free("b")) == (Action.DIAL, "b")


def test_waits_end_with_backoff_governor_or_throttle() -> None:
    backing_off = free("a", at=11.0)
    assert choose([backing_off], 10.0, dial_at=0.0).until == 11.0
    assert choose([backing_off], 10.0, dial_at=13.0).until == 13.0
    assert choose([backing_off], 10.0, dial_at=math.inf).until == math.inf
    assert choose([connected("a", throttled_until=12.0)], 10.0, dial_at=0.0).until == 12.0
    assert choose([], 10.0, dial_at=0.0).until == math.inf
