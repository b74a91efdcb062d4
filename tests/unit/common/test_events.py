"""R-EV-1: one typed event to history, counters, log and listeners."""

import logging

import pytest

from odradek.common.events import HISTORY, Event, EventLog


def test_everybody_gets_the_same_event() -> None:
    log, seen = EventLog("c"), list[Event]()
    log.listen(seen.append)
    log.emit(1.5, "dial", address="h:1", ip=None)
    assert seen == list(log.history) == [Event(1.5, "dial", {"address": "h:1", "ip": None})]
    assert log.counts == {"dial": 1}
    assert str(seen[0]) == "dial address=h:1"


def test_unknown_kinds_are_a_bug() -> None:
    with pytest.raises(ValueError, match="no such kind"):
        EventLog("c").emit(0.0, "dail")


def test_the_history_is_limited_the_counters_are_not() -> None:
    log = EventLog("c")
    for n in range(HISTORY + 10):
        log.emit(float(n), "retry")
    assert len(log.history) == HISTORY
    assert log.history[0].at == 10.0
    assert log.counts["retry"] == HISTORY + 10


def test_a_listener_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: Event) -> None:
        raise RuntimeError("user code")

    log, seen = EventLog("c"), list[Event]()
    log.listen(bad)
    log.listen(seen.append)
    log.emit(0.0, "dial")
    assert len(seen) == 1
    assert "user code" in caplog.text


def test_an_outage_is_one_warning_its_dials_are_details(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = EventLog("c")
    log.emit(0.0, "dial_failed", address="h:1")
    log.emit(0.0, "rebootstrap", why="none is left")
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "[c] rebootstrap why=none is left" in caplog.text
