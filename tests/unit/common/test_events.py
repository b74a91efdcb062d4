"""R-EV-1: test that each event reaches counters, log and listeners."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest
from tests.source_trees import naming, parsed

from odradek.common.events import KINDS, Event, EventLog
from odradek.runtime.events.events_dir import EventFile
from odradek.simulation.world.trace import Trace


def test_counters_and_listeners_get_the_same_event() -> None:
    log, seen = EventLog("c"), list[Event]()
    log.listen(seen.append)
    log.emit(1.5, "dial", address="h:1", ip=None)
    assert seen == [Event(1.5, "dial", {"address": "h:1", "ip": None})]
    assert log.counts == {"dial": 1}
    assert str(seen[0]) == "dial address=h:1"


def test_an_event_of_an_unknown_kind_raises_a_value_error() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        EventLog("c").emit(0.0, "dail")


def test_every_event_is_counted() -> None:
    log = EventLog("c")
    for n in range(100):
        log.emit(float(n), "retry")
    assert log.counts == {"retry": 100}


def test_a_failing_listener_does_not_affect_other_listeners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def bad(event: Event) -> None:
        raise RuntimeError("user code")

    log, seen = EventLog("c"), list[Event]()
    log.listen(bad)
    log.listen(seen.append)
    log.emit(0.0, "dial")
    assert len(seen) == 1
    assert "user code" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_event_reaches_log_counter_listener_file_and_trace(
    kind: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG, "odradek")
    log, seen, trace, file = EventLog("c"), list[Event](), Trace("c"), EventFile(tmp_path, "c")
    log.listen(seen.append)
    log.listen(file)
    trace.follow(log)
    log.emit(2.5, kind, address="h:1", error="e")
    file.close()
    assert log.counts == {kind: 1}
    assert seen == trace.events
    assert trace.lines() == [f"2.5 c {kind} address=h:1 error=e"]
    assert (kind, "h:1") == (seen[0].kind, seen[0].fields["address"])
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("DEBUG", f"[c] {kind} address=h:1 error=e")
    ]
    (line,) = file.path.read_text().splitlines()
    assert json.loads(line)["kind"] == kind


@pytest.mark.slow
def test_every_kind_of_event_is_emitted_with_its_documented_fields() -> None:
    emitted: dict[str, set[str]] = {}
    for path in naming(".emit(", ".end("):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("emit", "end") and len(node.args) >= 2:
                kinds = [n.value for n in ast.walk(node.args[1]) if isinstance(n, ast.Constant)]
                for kind in set(map(str, kinds)) & set(KINDS):
                    fields = emitted.setdefault(kind, set())
                    fields |= {k.arg for k in node.keywords if k.arg}
    assert set(emitted) == set(KINDS)
    for kind, text in KINDS.items():
        promised = {word.strip() for word in text.rpartition(":")[2].split(",")} - {"no fields"}
        spread = {"in_flight", "failure", "connection"}  # fields passed as `**fields`
        assert promised - emitted[kind] - spread == set(), kind


def test_an_event_is_logged_at_debug_level_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    EventLog("c").emit(0.0, "rebootstrap", why="none is left")
    assert caplog.records == []
