"""Names to addresses, with scripted name servers (R-CS-6)."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine

from odradek.runtime import SelectorHost
from odradek.runtime.resolver import Answer, Resolver, is_numeric, look_up, numeric_address


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("fe80::1%lo", True),
        ("localhost", False),
        ("1.2", False),
    ],
)
def test_is_numeric(host: str, expected: bool) -> None:
    assert is_numeric(host) is expected


def test_numeric_addresses_ask_nobody() -> None:
    assert numeric_address("127.0.0.1", 9092) == (socket.AF_INET, ("127.0.0.1", 9092))
    assert numeric_address("::1", 9092) == (socket.AF_INET6, ("::1", 9092, 0, 0))
    with pytest.raises(socket.gaierror):
        numeric_address("localhost", 9092)


def test_addresses_come_in_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
        assert options == {"type": socket.SOCK_STREAM}
        texts = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
        v4 = [(socket.AF_INET, 1, 6, "", (text, port)) for text in texts]
        return [(socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), *v4]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert look_up("broker", 9092) == ["::1", "10.0.0.2", "10.0.0.1"]


def test_a_numeric_host_is_answered_at_once(host: SelectorHost, engine: ScriptedEngine) -> None:
    answer = engine.resolve("127.0.0.1", host.now() + PATIENCE)
    assert host.run(answer, host.now() + PATIENCE)
    assert answer.result() == ["127.0.0.1"]


def test_localhost(host: SelectorHost, engine: ScriptedEngine) -> None:
    answer = engine.resolve("localhost", host.now() + PATIENCE)
    assert host.run(answer, host.now() + PATIENCE)
    assert set(answer.result()) <= {"127.0.0.1", "::1"}


def test_failure(host: SelectorHost, engine: ScriptedEngine) -> None:
    def fail(name: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    host._resolver = Resolver(fail)
    answer = engine.resolve("nowhere.example", host.now() + PATIENCE)
    assert host.run(answer, host.now() + PATIENCE)
    assert isinstance(answer.error, socket.gaierror)


def test_a_name_that_no_codec_takes(host: SelectorHost, engine: ScriptedEngine) -> None:
    answer = engine.resolve("a" * 70 + ".example", host.now() + PATIENCE)
    assert host.run(answer, host.now() + PATIENCE)
    assert isinstance(answer.error, (OSError, UnicodeError))


def test_a_late_answer_is_abandoned_and_later_askers_join(
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
    assert host.run(first, host.now() + PATIENCE)
    assert isinstance(first.error, TimeoutError)
    second = engine.resolve("slow.example", host.now() + PATIENCE)
    host.drive()
    go.set()
    assert host.run(second, host.now() + PATIENCE)
    assert second.result() == ["10.0.0.1"]
    assert asked == ["slow.example"]


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    answers: list[Answer] = []
    Resolver().resolve("broker", 9092, answers.append)
    assert isinstance(answers[0], RuntimeError)
