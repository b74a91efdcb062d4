"""TLS over loopback, with a certificate made here."""

from __future__ import annotations

import datetime
import ipaddress
import os
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, echo, peer

from odradek.network.flow import Completion
from odradek.runtime import SelectorHost


@dataclass(frozen=True)
class Contexts:
    """Both sides of a TLS connection to `localhost` and 127.0.0.1."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    directory: Path = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "server.pem"
    path.write_bytes(secret + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return Contexts(server, ssl.create_default_context(cadata=pem.decode()))


@pytest.fixture
def tls_host(engine: ScriptedEngine, contexts: Contexts) -> Iterator[SelectorHost]:
    host = SelectorHost(tls=lambda: contexts.client)
    host.attach(engine)
    yield host
    host.close(host.now())


def run(host: SelectorHost, completion: Completion[Any]) -> None:
    assert host.run(completion, host.now() + PATIENCE)


@pytest.mark.parametrize("name", ["localhost", "localhost.", "127.0.0.1"])
def test_echo(
    tls_host: SelectorHost, engine: ScriptedEngine, contexts: Contexts, name: str
) -> None:
    with peer(echo, contexts.server) as server:
        connection = engine.open(server.port, host=name)
        engine.send(connection, b"before")  # waits for the handshake
        run(tls_host, engine.up[connection])
        engine.send(connection, b" ", b"after")
        run(tls_host, engine.expect(connection, 12))
        assert engine.received_bytes[connection] == b"before after"


@pytest.mark.slow
def test_large_both_ways_at_once(
    tls_host: SelectorHost, engine: ScriptedEngine, contexts: Contexts
) -> None:
    large = random.Random(3).randbytes(20 << 20)
    with peer(echo, contexts.server) as server:
        connection = engine.open(server.port, host="localhost")
        engine.send(connection, b"head", b"er", memoryview(large), b"tail")
        run(tls_host, engine.expect(connection, len(large) + 10))
        assert engine.received_bytes[connection] == b"header" + large + b"tail"
        assert engine.writable_calls == [(connection, False), (connection, True)]


def test_what_openssl_holds_is_read_without_another_readiness(
    tls_host: SelectorHost,
    engine: ScriptedEngine,
    contexts: Contexts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.runtime.hosts.host_sockets.READ_BUDGET", 1000)

    def one_record(sock: socket.socket) -> None:
        sock.sendall(bytes(16000))
        sock.recv(1)

    with peer(one_record, contexts.server) as server:
        connection = engine.open(server.port, host="localhost")
        run(tls_host, engine.expect(connection, 16000))


@pytest.mark.parametrize("budget", [100, 1 << 20])
def test_an_error_behind_bytes(
    tls_host: SelectorHost,
    engine: ScriptedEngine,
    contexts: Contexts,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
) -> None:
    monkeypatch.setattr("odradek.runtime.hosts.host_sockets.READ_BUDGET", budget)

    def garbage_at_the_end(sock: socket.socket) -> None:
        sock.sendall(bytes(60))
        sock.sendall(bytes(40))
        with socket.socket(fileno=os.dup(sock.fileno())) as raw:
            raw.sendall(b"this is no record of TLS")
        sock.recv(1)

    with peer(garbage_at_the_end, contexts.server) as server:
        connection = engine.open(server.port, host="localhost")
        run(tls_host, engine.down[connection])
        assert isinstance(engine.down[connection].result(), ssl.SSLError)
        assert engine.received_bytes[connection] == bytes(100)


def test_end_of_stream(tls_host: SelectorHost, engine: ScriptedEngine, contexts: Contexts) -> None:
    with peer(lambda sock: sock.sendall(b"bye"), contexts.server) as server:
        connection = engine.open(server.port, host="localhost")
        run(tls_host, engine.down[connection])
        assert engine.down[connection].result() is None
        assert engine.received_bytes[connection] == b"bye"


def test_the_end_comes_in_a_step_of_its_own(
    tls_host: SelectorHost, engine: ScriptedEngine, contexts: Contexts
) -> None:
    """A broker says why it refuses somebody, and hangs up: its last words must be seen first."""
    ended = threading.Event()

    def last_words(sock: socket.socket) -> None:
        sock.sendall(b"refused")
        sock.shutdown(socket.SHUT_RDWR)
        ended.set()

    with peer(last_words, contexts.server) as server:
        connection = engine.open(server.port, host="localhost")
        run(tls_host, engine.up[connection])
        assert ended.wait(PATIENCE)
        run(tls_host, engine.expect(connection, 7))
        assert not engine.down[connection].done
        run(tls_host, engine.down[connection])
        assert engine.down[connection].result() is None


def test_another_name_is_refused(
    tls_host: SelectorHost, engine: ScriptedEngine, contexts: Contexts
) -> None:
    with peer(echo, contexts.server) as server:
        connection = engine.open(server.port, host="broker.example")
        run(tls_host, engine.down[connection])
        error = engine.down[connection].result()
        assert isinstance(error, ssl.SSLCertVerificationError)
        assert "broker.example" in str(error)
        assert not engine.up[connection].done


def test_a_name_that_cannot_be_one(tls_host: SelectorHost, engine: ScriptedEngine) -> None:
    with peer(echo) as server:
        connection = engine.open(server.port, host=".wrong.")
        run(tls_host, engine.down[connection])
        assert isinstance(engine.down[connection].result(), ValueError)


def test_a_peer_without_tls(tls_host: SelectorHost, engine: ScriptedEngine) -> None:
    def plain(sock: socket.socket) -> None:
        sock.recv(100)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with peer(plain) as server:
        connection = engine.open(server.port, host="localhost")
        run(tls_host, engine.down[connection])
        assert isinstance(engine.down[connection].result(), ssl.SSLError)


def hang_up(sock: socket.socket) -> None:
    sock.recv(1000)


def test_a_peer_that_hangs_up_in_the_handshake(
    tls_host: SelectorHost, engine: ScriptedEngine
) -> None:
    with peer(hang_up) as server:
        connection = engine.open(server.port, host="localhost")
        run(tls_host, engine.down[connection])
        assert isinstance(engine.down[connection].result(), OSError)
