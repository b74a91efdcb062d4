"""Test that a client's events are published to a topic without blocking the client."""

from __future__ import annotations

import json
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
from odradek.common.errors.kafka import TopicAuthorizationError
from odradek.common.events import Event
from odradek.runtime.events.event_queue import DROPPED, EventQueue

WAIT = 10.0


class Sink:
    """A fake producer of events that raises prepared errors, or blocks until `open` is set."""

    def __init__(self, *errors: BaseException, stuck: BaseException | None = None) -> None:
        self.errors, self.stuck = list(errors), stuck
        self.lines: list[dict[str, Any]] = []
        self.open, self.entered = threading.Event(), threading.Event()
        self.open.set()
        self.closed: list[float] = []

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


def queue(sink: Sink | Callable[[], Sink], **more: Any) -> EventQueue:
    opened = (lambda: sink) if isinstance(sink, Sink) else sink
    return EventQueue(opened, "c", where="t at h:1", **more)


def thread_of(events: EventQueue) -> threading.Thread:
    assert events._thread is not None
    return events._thread


def dial(number: int) -> Event:
    return Event(float(number), "dial", {"connection": number})


def test_events_are_published_in_order_and_again_after_a_timeout() -> None:
    sink = Sink(KafkaTimeoutError("no metadata"), BufferExhaustedError("full"))
    events = queue(sink)
    for number in range(3):
        events(dial(number))
    events.close(WAIT)
    assert [line["connection"] for line in sink.lines] == [0, 1, 2]
    assert {line["client"] for line in sink.lines} == {"c"}
    assert sink.lines[0]["pid"] == os.getpid()
    assert sink.lines[0]["host"]
    assert len(sink.closed) == 1
    events(dial(4))  # no event is accepted after `close`
    events.close(WAIT)
    assert (len(sink.lines), events.dropped) == (3, 0)


def test_a_full_queue_drops_events_and_reports_their_number() -> None:
    sink = Sink()
    sink.open.clear()
    events = queue(sink, limit=4)
    for number in range(10):
        events(dial(number))
    assert events.dropped == 6
    sink.open.set()
    events.close(WAIT)
    kept, told = sink.lines[:4], sink.lines[4:]
    assert [line["connection"] for line in kept] == [0, 1, 2, 3]
    assert [(line["kind"], line["count"]) for line in told] == [(DROPPED, 6)]


def test_close_does_not_wait_for_unreachable_brokers() -> None:
    away = Sink(*[AWAY] * 100)
    away.open.clear()
    events = queue(away)
    events(dial(0))
    assert away.entered.wait(WAIT)
    events.close(0.0)
    away.open.set()
    events.close(0.0)
    thread_of(events).join(WAIT)
    assert (away.lines, away.closed) == ([], [0.0])


def test_after_finish_the_thread_publishes_the_queued_events_and_ends() -> None:
    sink = Sink()
    sink.open.clear()
    events = queue(sink)
    events(dial(0))
    assert sink.entered.wait(WAIT)
    events.finish(WAIT)
    sink.open.set()
    thread_of(events).join(WAIT)
    assert not thread_of(events).is_alive()
    assert [line["connection"] for line in sink.lines] == [0]


def failing_open() -> Sink:
    raise OSError("no memory")


NOT_YET = [AuthenticationError("not yet"), ProxyRefusedError("403")] * 3
AWAY = KafkaTimeoutError("no metadata")
ENDED = "[c] events are no longer published to t at h:1: "
WAITING = "[c] publishing events to t at h:1 is delayed: "


@pytest.mark.parametrize(
    ("sink", "given", "warning", "lost"),
    [
        (Sink(TopicAuthorizationError("not you")), {}, ENDED, True),
        (failing_open, {}, ENDED + "OSError: no memory", True),
        # If this error weren't caught, Python would print it as the thread's traceback.
        (Sink(stuck=KafkaTimeoutError("no answer")), {}, ENDED + "no answer", False),
        # Publishing retries rejected credentials, because the client retries them, too.
        (Sink(*NOT_YET, AWAY), {"pause": 0.0}, WAITING + "not yet; the client itself", False),
        (Sink(*[AWAY] * 5), {"quiet": 0.0}, WAITING + "no metadata", False),
    ],
    ids=["refused", "not opened", "close times out", "refused at first", "no topic for long"],
)
def test_a_failure_to_publish_events_is_logged_once(
    sink: Sink | Callable[[], Sink],
    given: dict[str, float],
    warning: str,
    lost: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = queue(sink, **given)
    events(dial(0))
    if lost:
        thread_of(events).join(WAIT)
        events(dial(1))
    events.close(WAIT)
    (record,) = caplog.records
    assert record.message.startswith(warning)
    assert events.dropped == 2 * lost
    if isinstance(sink, Sink):
        assert [line["connection"] for line in sink.lines] == [0] * (not lost)


def test_close_ends_the_wait_between_rejected_attempts() -> None:
    refusing = Sink(*[AuthenticationError("no")] * 100)
    events = queue(refusing, pause=100 * WAIT)
    events(dial(0))
    assert refusing.entered.wait(WAIT)
    events.close(0.0)
    thread_of(events).join(WAIT)
    assert not thread_of(events).is_alive()
    assert len(refusing.errors) >= 98


def test_events_are_dropped_if_no_thread_can_start_and_nothing_else_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    events = queue(Sink())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        events(dial(0))
        events(dial(1))
    events.close(WAIT)
    assert events.dropped == 2
    (record,) = caplog.records
    assert record.message.startswith(ENDED)


def test_a_forked_child_publishes_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    events = queue(sink)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        events(dial(0))
        events.close(WAIT)
    assert events._thread is None
    events.close(WAIT)
    assert sink.lines == []
