"""Test that a client's events are written to a file as JSON lines."""

from __future__ import annotations

import gc
import json
import math
import os
import time
from pathlib import Path

import pytest

from odradek.common.events import Event, EventLog
from odradek.common.types import Address
from odradek.runtime.events.events_dir import EventFile


def events_in(events: EventFile) -> list[dict[str, object]]:
    return [json.loads(line) for line in events.path.read_text().splitlines()]


def test_each_event_is_one_json_line_of_a_file(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there" / "yet"
    events = EventFile(directory, client="c-1")
    assert not directory.exists()  # the first event will create the directory
    log = EventLog("c-1")
    log.listen(events)
    before = time.time()
    log.emit(1.5, "dial", address=Address("b", 9092), purpose="data", ip=None, seconds=math.inf)
    log.emit(1.6, "closed")
    first, second = events_in(events)
    assert before <= float(str(first.pop("time"))) <= time.time()
    assert first.pop("address")
    assert first.pop("host")
    assert first == {
        "pid": os.getpid(),
        "client": "c-1",
        "kind": "dial",
        "purpose": "data",
        "ip": None,
        "seconds": "inf",
    }
    assert second["kind"] == "closed"
    events.close()


def test_clients_of_a_process_share_one_event_file(tmp_path: Path) -> None:
    both = [EventFile(tmp_path, "a"), EventFile(tmp_path, "b")]
    for events in both * 2:
        events(Event(0.0, "closed"))
    assert [line["client"] for line in events_in(both[0])] == ["a", "b", "a", "b"]
    assert len(list(tmp_path.iterdir())) == 1
    for events in both:
        events.close()


def test_an_event_after_close_opens_the_file_again(tmp_path: Path) -> None:
    events = EventFile(tmp_path, "c")
    for _ in range(2):
        events(Event(0.0, "closed"))
        events.close()
        events.close()
    assert len(events_in(events)) == 2


def test_the_event_file_is_closed_when_it_is_garbage_collected(tmp_path: Path) -> None:
    """R-HO-4: if a client is never closed, its file is closed with the client."""
    events = EventFile(tmp_path, "c")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    events(Event(0.0, "broken"))
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208
    del events
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_line_after_a_truncated_line_is_valid_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = EventFile(tmp_path, "c")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        events(Event(0.0, "broken"))  # only 10 bytes are written, as on a full disk
    events(Event(1.0, "closed"))
    assert json.loads(events.path.read_text().splitlines()[-1])["kind"] == "closed"
    events.close()
