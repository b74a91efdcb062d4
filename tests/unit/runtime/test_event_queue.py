"""A client's events on their way to a topic: never in the client's way."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from odradek.common.errors import (
    AuthenticationError,
    BufferExhaustedError,
    KafkaTimeoutError,
    ProxyRefusedError,
)
from odradek.common.events import Event
from odradek.common.kafka_errors import TopicAuthorizationError
from odradek.runtime.events.event_queue import DROPPED, EventQueue

WAIT = 10.0


class Taken:
    """A sink that is scripted: what it raises, and when it lets go."""

    def __init__(
        self, *errors: BaseException, blocked: bool = False, stuck: BaseException | None = None
    ) -> None:
        self.errors, self.stuck = list(errors), stuck
        self.lines: list[dict[str, Any]] = []
        self.open = threading.Event()
        self.entered = threading.Event()
        self.closed: list[float] = []
        if not blocked:
            self.open.set()

    def send(self, line: bytes, at: float) -> None:
        self.entered.set()
        assert self.open.wait(WAIT)
        if self.errors:
            raise self.errors.pop(0)
        self.lines.append(json.loads(line))
        assert self.lines[-1]["time"] == at

    def close(self, timeout: float) -> None:
        self.closed.append(timeout)
        if self.stuck is not None:
            raise self.stuck


def queue(sink: Taken, limit: int = 100) -> EventQueue:
    return EventQueue(lambda: sink, "c", where="t at h:1", limit=limit)


def dial(number: int) -> Event:
    return Event(float(number), "dial", {"connection": number})


def test_lines_come_in_order_and_what_times_out_is_given_again() -> None:
    sink = Taken(KafkaTimeoutError("no metadata"), BufferExhaustedError("full"))
    events = queue(sink)
    for number in range(3):
        events(dial(number))
    events.close(WAIT)
    assert [line["connection"] for line in sink.lines] == [0, 1, 2]
    assert {line["client"] for line in sink.lines} == {"c"}
    assert sink.lines[0]["pid"] == os.getpid()
    assert sink.lines[0]["host"]
    assert len(sink.closed) == 1
    events(dial(4))  # after the end nothing is taken
    events.close(WAIT)
    assert (len(sink.lines), events.dropped) == (3, 0)


def test_a_full_queue_drops_and_says_how_many() -> None:
    sink = Taken(blocked=True)
    events = queue(sink, limit=4)
    for number in range(10):
        events(dial(number))
    assert events.dropped == 6
    sink.open.set()
    events.close(WAIT)
    kept, told = sink.lines[:4], sink.lines[4:]
    assert [line["connection"] for line in kept] == [0, 1, 2, 3]
    assert [(line["kind"], line["count"]) for line in told] == [(DROPPED, 6)]


def test_a_close_doesnt_wait_for_brokers_that_are_away() -> None:
    away = Taken(*[KafkaTimeoutError("no metadata")] * 100, blocked=True)
    events = queue(away)
    events(dial(0))
    assert away.entered.wait(WAIT)
    events.close(0.0)
    away.open.set()
    events.close(0.0)
    thread = events._thread
    assert thread is not None
    thread.join(WAIT)
    assert (away.lines, away.closed) == ([], [0.0])


def refused() -> Taken:
    raise OSError("no memory")


@pytest.mark.parametrize(
    "open_sink",
    [lambda: Taken(TopicAuthorizationError("not you")), refused],
    ids=["refused", "not opened"],
)
def test_what_cant_be_published_is_one_warning(
    open_sink: Callable[[], Taken], caplog: pytest.LogCaptureFixture
) -> None:
    events = EventQueue(open_sink, "c", where="t at h:1")
    with caplog.at_level(logging.WARNING, "odradek"):
        events(dial(0))
        thread = events._thread
        assert thread is not None
        thread.join(WAIT)
        events(dial(1))
        events.close(WAIT)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "[c] events are no longer published to t at h"
    ]
    assert events.dropped == 2


def test_a_producer_that_cant_deliver_at_its_end_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exception out of the thread would be printed with its traceback."""
    events = queue(Taken(stuck=KafkaTimeoutError("nobody answers")))
    with caplog.at_level(logging.WARNING, "odradek"):
        events(dial(0))
        events.close(WAIT)
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "[c] events are no longer published to t at h:1: nobody answers"
    ]


def test_a_refusal_ends_nothing_it_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Who isn't let in now may be in a second, as the client itself is."""
    errors = [AuthenticationError("not yet"), ProxyRefusedError("403")] * 3
    sink = Taken(*errors, KafkaTimeoutError("away"))
    events = EventQueue(lambda: sink, "c", where="t at h:1", pause=0.0)
    with caplog.at_level(logging.WARNING, "odradek"):
        events(dial(0))
        events.close(WAIT)
    assert [line["connection"] for line in sink.lines] == [0]
    assert [record.message for record in caplog.records] == [
        "[c] events wait to be published to t at h:1: not yet; the client itself goes on"
    ]


def test_between_refusals_it_waits_and_an_end_wakes_it() -> None:
    refusing = Taken(*[AuthenticationError("no")] * 100)
    events = EventQueue(lambda: refusing, "c", where="t at h:1", pause=100 * WAIT)
    events(dial(0))
    assert refusing.entered.wait(WAIT)
    events.close(0.0)
    thread = events._thread
    assert thread is not None
    thread.join(WAIT)
    assert not thread.is_alive()
    assert len(refusing.errors) >= 98


def test_a_topic_that_isnt_there_for_long_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = Taken(*[KafkaTimeoutError("no metadata of topic t")] * 5)
    events = EventQueue(lambda: sink, "c", where="t at h:1", quiet=0.0)
    with caplog.at_level(logging.WARNING, "odradek"):
        events(dial(0))
        events.close(WAIT)
    assert len(sink.lines) == 1
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "[c] events wait to be published to t at h:1: no metadata of topic t"
    ]


def test_without_a_thread_there_are_no_events_and_nothing_else_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    events = queue(Taken())
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "odradek"):
        patched.setattr(threading.Thread, "start", no_more)
        events(dial(0))
        events(dial(1))
    events.close(WAIT)
    assert events.dropped == 2
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "[c] events are no longer published to t at h"
    ]


def test_a_forked_child_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Taken()
    events = queue(sink)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        events(dial(0))
        events.close(WAIT)
    assert events._thread is None
    events.close(WAIT)
    assert sink.lines == []
