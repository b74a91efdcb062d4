"""Fixtures: an engine, I/O hosts (loops or threads that run an engine), certificates."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine

from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.thread_host import ThreadHost
from odradek.testing.brokers.authority import Authority, KeyAndCertificate


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Check that no thread remains, except the thread for token providers, which never ends."""
    before = set(threading.enumerate())
    yield
    left = {one for one in threading.enumerate() if one.name != "odradek-tokens"} - before
    for thread in left:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in left)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "Another")


@pytest.fixture(scope="session")
def broker(authority: Authority) -> KeyAndCertificate:
    return authority.issue("broker", hosts=["localhost", "127.0.0.1", "::1", "*.k.example"])


@pytest.fixture(scope="session")
def alice(authority: Authority) -> KeyAndCertificate:
    return authority.issue("alice")


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
