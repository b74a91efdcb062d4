"""Test TLS over loopback sockets."""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from tests.unit.network.tls_peers import server_context, trusting
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, Talk, echo, peer, run

from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.testing.brokers.authority import Authority, KeyAndCertificate


@pytest.fixture
def theirs(broker: KeyAndCertificate) -> ssl.SSLContext:
    return server_context(broker)


@pytest.fixture
def host(engine: ScriptedEngine, authority: Authority) -> Iterator[SelectorHost]:
    made = SelectorHost(tls=lambda: trusting(authority))
    made.attach(engine)
    yield made
    made.close(made.now())


@pytest.mark.parametrize("name", ["localhost", "localhost.", "127.0.0.1"])
def test_bytes_are_sent_and_received(
    host: SelectorHost, engine: ScriptedEngine, theirs: ssl.SSLContext, name: str
) -> None:
    with peer(echo, theirs) as server:
        connection = engine.open(server.port, host=name)
        engine.send(connection, b"before")  # sent after the handshake
        run(host, engine.up[connection])
        engine.send(connection, b" ", b"after")
        run(host, engine.expect(connection, 12))
        assert engine.received_bytes[connection] == b"before after"


@pytest.mark.slow
def test_large_data_is_sent_and_received_at_the_same_time(
    host: SelectorHost, engine: ScriptedEngine, theirs: ssl.SSLContext
) -> None:
    large = random.Random(3).randbytes(20 << 20)
    with peer(echo, theirs) as server:
        connection = engine.open(server.port, host="localhost")
        engine.send(connection, b"head", b"er", memoryview(large), b"tail")
        run(host, engine.expect(connection, len(large) + 10))
        assert engine.received_bytes[connection] == b"header" + large + b"tail"
        assert engine.writable_calls == [(connection, False), (connection, True)]


def test_bytes_buffered_in_openssl_are_read_without_another_event(
    host: SelectorHost,
    engine: ScriptedEngine,
    theirs: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.runtime.hosts.host_sockets.HostSockets.read_budget", 1000)

    def one_record(sock: socket.socket) -> None:
        sock.sendall(bytes(16000))
        sock.recv(1)

    with peer(one_record, theirs) as server:
        connection = engine.open(server.port, host="localhost")
        run(host, engine.expect(connection, 16000))


@pytest.mark.parametrize("budget", [100, 1 << 20])
def test_bytes_before_a_tls_error_are_received(
    host: SelectorHost,
    engine: ScriptedEngine,
    theirs: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
) -> None:
    monkeypatch.setattr("odradek.runtime.hosts.host_sockets.HostSockets.read_budget", budget)

    def garbage_at_the_end(sock: socket.socket) -> None:
        sock.sendall(bytes(60))
        sock.sendall(bytes(40))
        with socket.socket(fileno=os.dup(sock.fileno())) as raw:
            raw.sendall(b"this is no record of TLS")
        sock.recv(1)

    with peer(garbage_at_the_end, theirs) as server:
        connection = engine.open(server.port, host="localhost")
        error = run(host, engine.down[connection]).result()
        assert isinstance(error, ssl.SSLError)
        assert engine.received_bytes[connection] == bytes(100)


def test_the_end_of_a_connection_is_reported_in_a_step_after_the_last_bytes(
    host: SelectorHost, engine: ScriptedEngine, theirs: ssl.SSLContext
) -> None:
    """A broker may send the reason of a rejection and close; the reason must be handled first."""
    ended = threading.Event()

    def last_words(sock: socket.socket) -> None:
        sock.sendall(b"refused")
        sock.shutdown(socket.SHUT_RDWR)
        ended.set()

    with peer(last_words, theirs) as server:
        connection = engine.open(server.port, host="localhost")
        run(host, engine.up[connection])
        assert ended.wait(PATIENCE)
        run(host, engine.expect(connection, 7))
        assert not engine.down[connection].done
        assert run(host, engine.down[connection]).result() is None


def without_tls(sock: socket.socket) -> None:
    sock.recv(100)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hangs_up(sock: socket.socket) -> None:
    sock.recv(1000)


@pytest.mark.parametrize(
    ("name", "talk", "kind", "says"),
    [
        ("broker.example", None, ssl.SSLCertVerificationError, "broker.example"),
        (".wrong.", echo, ValueError, ""),
        ("localhost", without_tls, ssl.SSLError, ""),
        ("localhost", hangs_up, OSError, ""),
    ],
    ids=["another name", "an invalid name", "without TLS", "hangs up"],
)
def test_a_failed_handshake_is_reported_with_its_error(
    host: SelectorHost,
    engine: ScriptedEngine,
    theirs: ssl.SSLContext,
    name: str,
    talk: Talk | None,
    kind: type[Exception],
    says: str,
) -> None:
    with peer(talk or echo, None if talk else theirs) as server:
        connection = engine.open(server.port, host=name)
        error = run(host, engine.down[connection]).result()
        assert isinstance(error, kind)
        assert says in str(error)
        assert not engine.up[connection].done
