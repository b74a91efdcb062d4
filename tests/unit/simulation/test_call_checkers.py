"""Checkers of API calls report calls that end late or never, exceeded limits, exceptions."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from odradek.clients.client_engine import ClientEngine
from odradek.clients.producer.producer_engine import ProducerEngine
from odradek.common.config import ADMIN, PRODUCER, Config
from odradek.common.errors import ClientBrokenError, ClientClosedError
from odradek.common.types import NullLock
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.simulation.checkers.call_checkers import (
    CallsEnd,
    Complaints,
    check_limits,
    check_sound,
    listening,
)
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.world.virtual_time import VirtualTime

SERVERS = {"bootstrap.servers": "10.0.0.9:9092"}


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


def texts(calls: CallsEnd) -> list[str]:
    return [str(violation) for violation in calls.violations]


def test_calls_that_end_in_time_are_accepted(time: VirtualTime) -> None:
    calls = CallsEnd(time)
    done: Completion[Any] = Completion()
    calls.begin(done, "a call", 1.0)
    calls.begin(done, "a call", 1.0)
    assert len(calls) == 1
    time.run_until(1.1)
    calls.look()
    done.complete(None)
    calls.look(closed=True)
    assert calls.violations == []
    assert len(calls) == 0


def test_a_call_that_ends_late_is_reported(time: VirtualTime) -> None:
    calls = CallsEnd(time)
    done: Completion[Any] = Completion()
    calls.begin(done, "a call", 1.0)
    time.run_until(1.11)
    done.fail(ClientClosedError("closed"))
    assert texts(calls) == ["1.11: a call ended; its deadline was 1.0"]


def test_an_overdue_call_is_reported_before_it_ends(time: VirtualTime) -> None:
    calls = CallsEnd(time)
    calls.begin(Completion(), "a call", 1.0)
    time.run_until(1.2)
    calls.look()
    assert texts(calls) == ["1.2: a call is still open; its deadline was 1.0"]


def test_a_call_without_an_end_is_reported(time: VirtualTime) -> None:
    calls = CallsEnd(time)
    calls.begin(Completion(), "a call", 1.0)
    calls.look(closed=True)
    assert texts(calls) == ["a call has no end, though its client has"]


def engine() -> ClientEngine:
    return ClientEngine(Config(ADMIN, SERVERS), random.Random(1))


def test_memory_use_above_buffer_memory_or_below_zero_is_reported() -> None:
    producer = ProducerEngine(Config(PRODUCER, SERVERS), random.Random(1), NullLock())
    check_limits(producer, 0)
    producer.accumulator.used = producer.accumulator.limit + 1
    with pytest.raises(Violation, match=r"bytes in buffer\.memory"):
        check_limits(producer, 0)
    producer.accumulator.used = -1
    with pytest.raises(Violation, match="-1 bytes"):
        check_limits(producer, 0)


def test_generators_that_outlive_their_calls_are_reported() -> None:
    def waits() -> Flow[None]:
        yield START
        yield Wait((), 100.0)

    client = engine()
    for _ in range(40):
        client.start(waits())
    client.step(0.0)
    check_limits(client, calls=40)
    with pytest.raises(Violation, match=r"4\d flows for 0 calls"):
        check_limits(client, calls=0)


def test_a_client_whose_engine_failed_is_reported() -> None:
    client = engine()
    check_sound(client)

    def twice() -> Flow[None]:
        yield START
        done: Completion[None] = Completion()
        done.complete(None)
        done.complete(None)

    client.start(twice())
    client.step(0.0)
    assert client.ended is not None
    with pytest.raises(Violation, match="completed twice"):
        check_sound(client)


def test_a_closed_client_is_not_reported() -> None:
    client = engine()
    client.end(ClientClosedError("closed"), "closed")
    check_sound(client)
    other = engine()
    other.end(ClientBrokenError("a bug"), "broken", error="a bug")
    with pytest.raises(Violation, match="a bug"):
        check_sound(other)


def test_logged_exceptions_are_reported() -> None:
    logger = logging.getLogger("odradek.somewhere")
    with listening(Complaints()) as complaints:
        logger.error("an error of the cluster, rightly said")
        try:
            raise KeyError("a bug")
        except KeyError:
            logger.exception("closing a client failed")
    (found,) = complaints.violations
    assert str(found) == "logged: closing a client failed: KeyError: 'a bug'"
    assert isinstance(found.__cause__, KeyError)
    assert complaints not in logging.getLogger("odradek").handlers
