"""R-CS-6: test name resolution, partly with replaced lookup functions."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, run

from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.resolver import Answer, Resolver, is_numeric, look_up, numeric_address


def test_numeric_addresses_are_distinguished_from_names() -> None:
    assert all(map(is_numeric, ("127.0.0.1", "::1", "fe80::1%lo")))
    assert not any(map(is_numeric, ("localhost", "1.2")))


def test_numeric_addresses_need_no_lookup() -> None:
    assert numeric_address("127.0.0.1", 9092) == (socket.AF_INET, ("127.0.0.1", 9092))
    assert numeric_address("::1", 9092) == (socket.AF_INET6, ("::1", 9092, 0, 0))
    with pytest.raises(socket.gaierror):
        numeric_address("localhost", 9092)
    with pytest.raises(OSError):
        numeric_address("fe80::1%\udc80", 9092)  # a zone id that can't be encoded


def test_the_addresses_of_a_name_keep_their_order_without_duplicates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
        assert options == {"type": socket.SOCK_STREAM}
        texts = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
        v4 = [(socket.AF_INET, 1, 6, "", (text, port)) for text in texts]
        return [(socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), *v4]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert look_up("broker", 9092) == ["::1", "10.0.0.2", "10.0.0.1"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("localhost", {"127.0.0.1", "::1"}),
        ("a" * 70 + ".example", (OSError, UnicodeError)),  # a label of more than 63 characters
    ],
)
def test_a_lookup_returns_addresses_or_an_error(
    host: SelectorHost, engine: ScriptedEngine, name: str, found: Any
) -> None:
    answer = run(host, engine.resolve(name, host.now() + PATIENCE))
    if isinstance(found, set):
        assert set(answer.result()) <= found
    else:
        assert isinstance(answer.error, found)


def test_a_lookup_that_timed_out_continues_and_serves_later_callers(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    go = threading.Event()
    asked: list[str] = []

    def slow(name: str, port: int) -> list[str]:
        asked.append(name)
        assert go.wait(PATIENCE)
        return ["10.0.0.1"]

    host._resolver = Resolver(slow)
    first = engine.resolve("slow.example", host.now() + 0.02)
    assert isinstance(run(host, first).error, TimeoutError)
    second = engine.resolve("slow.example", host.now() + PATIENCE)
    host.drive()
    go.set()
    assert run(host, second).result() == ["10.0.0.1"]
    assert asked == ["slow.example"]


def test_a_lookup_fails_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    answers: list[Answer] = []
    Resolver().resolve("broker", 9092, answers.append)
    assert isinstance(answers[0], RuntimeError)
