"""Mode `seek` of the benchmarks' Python drivers, with a fake consumer that sets the clock."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import peers

PAUSES = (1, 2, 3)
OPTIONS = argparse.Namespace(records=2, pauses=",".join(map(str, PAUSES)))


class Stub:
    """A fake consumer: its first poll returns two records, a poll after a seek returns one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.records, self.paused, self.last, self.obeys = 2, False, 1, True
        self.asked: list[str] = []

    def poll(self, timeout: float) -> int:
        found = 0 if self.paused else self.records
        if found:
            self.records = 0
        else:
            self.now += timeout
        return found

    def seek(self) -> None:
        self.asked.append("seek")
        self.now += 0.004
        self.records = 1

    def pause(self) -> None:
        self.paused = self.obeys

    def resume(self) -> None:
        self.asked.append("resume")
        self.now += 0.03
        self.paused = False

    def end(self) -> int:
        self.asked.append("end")
        self.now += 0.01
        return self.last


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch, stub: Stub) -> Iterator[Any]:
    """Import the module `moving` as the drivers do: from their folder, outside of any package."""
    monkeypatch.syspath_prepend(str(Path(peers.__file__).parent / "python"))
    module = importlib.import_module("moving")
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: stub.now))
    yield module
    del sys.modules["moving"], sys.modules["driver"]


def steps(moving: Any, stub: Stub, **other: Any) -> Any:
    names = ("poll", "seek", "pause", "resume", "end")
    own = {name: getattr(stub, name) for name in names}
    return moving.moves(OPTIONS, moving.Calls(**(own | other)))


def test_seek_end_offsets_and_resume_are_timed_once_for_each_pause(moving: Any, stub: Stub) -> None:
    found = moving.called(steps(moving, stub))
    assert stub.asked == ["seek"] * 3 + ["end"] * 3 + ["seek", "resume"] * 3
    assert found == pytest.approx({"seek_ms": 4, "end_offsets_ms": 10, "resume_ms": 30})
    calls_s, polled_s = 3 * (0.004 + 0.01 + 0.034), 3 * sum(PAUSES) / 1000
    assert stub.now == pytest.approx(calls_s + polled_s + 3 * moving.HELD)


def test_awaiting_the_results_of_an_asyncio_client_is_timed(moving: Any, stub: Stub) -> None:
    async def poll(timeout: float) -> int:
        return stub.poll(timeout)

    async def end() -> int:
        return stub.end()

    found = asyncio.run(moving.awaited(steps(moving, stub, poll=poll, end=end)))
    assert found == pytest.approx({"seek_ms": 4, "end_offsets_ms": 10, "resume_ms": 30})


def test_a_record_of_a_paused_partition_fails_the_measurement(moving: Any, stub: Stub) -> None:
    stub.obeys = False
    with pytest.raises(RuntimeError, match="hadn't been asked for"):
        moving.called(steps(moving, stub))


def test_a_wrong_end_offset_fails_the_measurement(moving: Any, stub: Stub) -> None:
    stub.last = 2
    with pytest.raises(RuntimeError, match="an end offset of 2"):
        moving.called(steps(moving, stub))


def test_a_missing_record_fails_the_measurement(moving: Any, stub: Stub) -> None:
    stub.records = 1
    with pytest.raises(RuntimeError, match="no record within 20 s"):
        moving.called(steps(moving, stub))
