"""Checkers of requests between client and brokers: each violated limit is reported."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.config import Config
from odradek.common.events import Event
from odradek.common.types import Address
from odradek.network.effects import AnyRequest, OutgoingRequest
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.simulation.checkers.wire_checkers import Wire
from odradek.simulation.world.virtual_time import VirtualTime

A, B = Address("10.0.0.2", 9092), Address("10.0.0.3", 9092)


class Watched:
    """The checker `Wire` with one client, which has a connection to each of two addresses."""

    def __init__(self, kind: str = "producer", config: dict[str, Any] | None = None) -> None:
        self.time = VirtualTime()
        given: dict[str, Any] = {"bootstrap.servers": "10.0.0.9:9092", **(config or {})}
        self.wire = Wire(self.time, Config(kind, given))
        self.next = 0
        for number, address in enumerate((A, B), 1):
            self.wire.opened(number, address, address.host)
            self.wire.connected(number)

    def send(self, number: int, body: AnyRequest) -> int:
        self.next += 1
        self.wire.sent(number, OutgoingRequest(body, 0, self.next, "client"))
        return self.next

    def rebootstrap(self, why: str = "none of the 2 known brokers is available") -> None:
        fields = {"why": why, "known": [str(A), str(B)]}
        self.wire(Event(self.time.now, "rebootstrap", fields))

    @property
    def found(self) -> list[str]:
        return [str(violation) for violation in self.wire.violations]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_requests_within_their_limits_are_accepted(watched: Watched) -> None:
    for _ in range(5):
        watched.send(1, ProduceRequest())
        watched.send(2, ProduceRequest())
    watched.send(1, FetchRequest())
    watched.send(1, MetadataRequest())
    assert watched.found == []
    assert (watched.wire.dials, watched.wire.requests) == (2, 12)


def test_too_many_produce_requests_in_flight_are_reported() -> None:
    watched = Watched(config={"max.in.flight.requests.per.connection": 2})
    first = watched.send(1, ProduceRequest())
    watched.send(1, ProduceRequest())
    watched.wire.answered(1, first)
    watched.send(1, ProduceRequest())
    assert watched.found == []
    watched.send(1, ProduceRequest())
    assert "more than 2 Produce requests in flight to 10.0.0.2:9092" in watched.found[0]


def test_a_second_fetch_in_flight_to_one_broker_is_reported() -> None:
    watched = Watched("consumer")
    watched.send(1, FetchRequest())
    watched.send(2, FetchRequest())
    assert watched.found == []
    watched.send(1, FetchRequest())
    assert "more than 1 Fetch" in watched.found[0]


def test_an_unlimited_queue_of_requests_is_reported(watched: Watched) -> None:
    for _ in range(17):
        watched.send(1, MetadataRequest())
    assert watched.found == ["0.0: 17 requests in flight to 10.0.0.2:9092"]


def test_requests_sent_without_an_open_connection_are_reported(watched: Watched) -> None:
    watched.wire.opened(3, A, A.host)
    watched.send(3, MetadataRequest())
    assert "isn't connected" in watched.found[-1]
    watched.wire.ended(3)
    watched.send(3, MetadataRequest())
    assert "doesn't exist" in watched.found[-1]


def test_a_correlation_id_that_is_used_twice_is_reported(watched: Watched) -> None:
    watched.send(1, MetadataRequest())
    watched.next -= 1
    watched.send(1, MetadataRequest())
    assert "in flight twice" in watched.found[0]


def test_a_rebootstrap_while_a_known_broker_answers_is_reported(watched: Watched) -> None:
    for number in (1, 2):
        watched.wire.answered(number, watched.send(number, MetadataRequest()))
        watched.wire.answered(number, watched.send(number, MetadataRequest()))
    watched.time.run_until(0.1)
    watched.rebootstrap("10.0.0.2:9092 answered REBOOTSTRAP_REQUIRED")
    watched.rebootstrap("no metadata for 300 s")
    assert watched.found == []
    watched.rebootstrap()
    assert "though 10.0.0.2:9092 answered at 0.0" in watched.found[0]


def test_responses_on_a_secondary_connection_permit_a_rebootstrap(watched: Watched) -> None:
    """Clients ignore such responses, because the address may lead to another broker."""
    dial = {"address": str(A), "purpose": "aside", "connection": 1}
    watched.wire(Event(watched.time.now, "dial", dial))
    watched.wire.answered(1, watched.send(1, MetadataRequest()))
    watched.rebootstrap()
    assert watched.found == []
    watched.wire.answered(2, watched.send(2, MetadataRequest()))
    watched.rebootstrap()
    assert len(watched.found) == 1


@pytest.mark.parametrize("how", ["nothing for a while", "lost", "ApiVersions only"])
def test_a_rebootstrap_is_accepted_if_no_broker_answers(watched: Watched, how: str) -> None:
    for number in (1, 2):
        watched.wire.answered(number, watched.send(number, ApiVersionsRequest()))
        if how != "ApiVersions only":
            watched.wire.answered(number, watched.send(number, MetadataRequest()))
    if how == "lost":
        watched.wire.ended(1)  # the I/O loop reports this loss, the client the next
        watched.wire(Event(0.0, "disconnected", {"connection": 2, "address": str(B)}))
    elif how == "nothing for a while":
        watched.time.run_until(0.21)
    watched.rebootstrap()
    assert watched.found == []


def test_a_broker_counts_as_blocked_while_later_requests_wait_behind_a_produce_request(
    watched: Watched,
) -> None:
    number = watched.send(1, ProduceRequest())
    watched.time.run_until(0.24)
    assert not watched.wire.is_held(str(A))
    asked = watched.send(1, MetadataRequest())
    watched.time.run_until(0.26)
    assert watched.wire.is_held(str(A))
    assert not watched.wire.is_held(str(B))
    watched.wire.answered(1, number)
    assert watched.wire.is_held(str(A))  # the metadata request is still unanswered
    watched.wire.answered(1, asked)
    assert not watched.wire.is_held(str(A))


TIMEOUT = {"request.timeout.ms": 3000}


def test_a_request_whose_response_trickles_in_beyond_its_timeout_is_reported() -> None:
    watched = Watched(config=TIMEOUT)
    number = watched.send(1, MetadataRequest())
    for second in (1.0, 2.0, 3.0, 4.0):
        watched.time.run_until(second)
        watched.wire.came(1, 100)
    watched.wire.answered(1, number)
    assert watched.found == ["4.0: a request to 10.0.0.2:9092 of 0.0 is open; it ends at 3.0"]


def test_a_request_may_wait_for_a_broker_that_throttles_or_for_many_bytes() -> None:
    watched = Watched(config=TIMEOUT)
    first, second = (watched.send(1, MetadataRequest()) for _ in range(2))
    watched.wire.answered(1, first, 5.0)
    watched.time.run_until(7.9)
    watched.wire.came(1, 1024)
    watched.time.run_until(9.8)
    watched.wire.answered(1, second)
    assert watched.found == []


def _fails(watched: Watched, at: float, error: str) -> None:
    watched.time.run_until(at)
    fields = {"address": str(A), "connection": 1, "error": error}
    watched.wire(Event(at, "disconnected", fields))


def test_a_response_timeout_that_ignores_a_throttle_is_reported() -> None:
    watched = Watched(config=TIMEOUT)
    first, _ = (watched.send(1, MetadataRequest()) for _ in range(2))
    watched.wire.answered(1, first, 5.0)
    _fails(watched, 4.0, "DisconnectedError: closed")
    assert watched.found == []
    _fails(watched, 4.0, "ResponseTimeoutError: no answer")
    assert "10.0.0.2:9092 has until 8.0 for a response" in watched.found[0]


def test_a_response_timeout_while_a_response_progresses_is_reported() -> None:
    watched = Watched(config=TIMEOUT)
    watched.send(1, MetadataRequest())
    watched.time.run_until(2.5)
    watched.wire.came(1, 1024)
    _fails(watched, 3.0, "ResponseTimeoutError: no answer")
    assert "10.0.0.2:9092 has until 4.5 for a response" in watched.found[0]


def test_a_join_response_may_take_the_rebalance_timeout_plus_five_seconds() -> None:
    config = {"max.poll.interval.ms": 40000}
    watched = Watched("consumer", config)
    watched.send(1, JoinGroupRequest())
    _fails(watched, 44.0, "ResponseTimeoutError: no answer")
    assert "10.0.0.2:9092 has until 45.0 for a response" in watched.found[0]
    _fails(watched, 45.0, "ResponseTimeoutError: no answer")
    assert len(watched.found) == 1
    watched = Watched("consumer", config)
    number = watched.send(1, JoinGroupRequest())
    watched.time.run_until(45.2)
    watched.wire.answered(1, number)
    assert "of 0.0 is open; it ends at 45.0" in watched.found[0]


def test_a_client_that_calls_a_broker_silent_during_its_throttle_time_is_reported() -> None:
    watched = Watched(config=TIMEOUT)
    first, _ = (watched.send(1, MetadataRequest()) for _ in range(2))
    watched.wire.answered(1, first, 5.0)
    silent = {"address": str(A), "ready": True}
    watched.wire(Event(7.0, "silent", silent))
    assert watched.found == []
    watched.wire(Event(6.5, "silent", silent))
    assert "though it was heard within 2.0 s, or throttles this client" in watched.found[0]
