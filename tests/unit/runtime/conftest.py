"""Every test of a host gets an engine, and leaves no thread and no open client behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine

from odradek.runtime import SelectorHost, ThreadHost


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
    assert set(threading.enumerate()) <= before


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def host(engine: ScriptedEngine) -> Iterator[SelectorHost]:
    made = SelectorHost()
    made.attach(engine)
    yield made
    made.close(made.now())


@pytest.fixture
def thread_host(engine: ScriptedEngine) -> Iterator[ThreadHost]:
    made = ThreadHost()
    made.attach(engine)
    yield made
    made.close(made.now() + PATIENCE)
