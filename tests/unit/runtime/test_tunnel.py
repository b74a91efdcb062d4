"""Dials through a proxy: the host's side, over loopback."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.planted_secrets import with_locals
from tests.proxy_server import ProxyServer
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, echo, peer, refused_port
from tests.unit.runtime.test_tls import Contexts
from tests.unit.runtime.test_tls import contexts as contexts

from odradek.common.errors import NotAProxyError, ProxyAuthenticationError, ProxyError
from odradek.common.proxy import Proxy, proxy_url
from odradek.common.types import Address
from odradek.network.effects import Hop, Open
from odradek.network.flow import Completion
from odradek.runtime import SelectorHost, ThreadHost

LOGIN = ("alice", "pa55-of-alice")
SCHEMES = ("socks5h", "http")
AnyHost = SelectorHost | ThreadHost


def through(engine: ScriptedEngine, proxy: Proxy, port: int, host: str = "localhost") -> int:
    """Open a connection whose target the proxy knows by its name."""
    address = Address(host, port)
    effect = Open(-port, address, "127.0.0.1", hop=Hop(proxy, address))
    engine.post(lambda now: engine.effects.append(effect))
    return effect.connection


def run(host: AnyHost, completion: Completion[Any]) -> Any:
    assert host.run(completion, host.now() + PATIENCE)
    return completion.result()


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_echo(
    host: SelectorHost, engine: ScriptedEngine, scheme: str, login: Any, pieces: bool
) -> None:
    """Whatever pieces the answer comes in, what is behind it belongs to the connection."""
    with (
        peer(echo) as broker,
        ProxyServer(login, names={"b": "127.0.0.1"}, pieces=pieces) as server,
    ):
        proxy = proxy_url("proxy.url", server.url(scheme, ":".join(login or ())))
        connection = through(engine, proxy, broker.port, "b")
        engine.send(connection, b"before")
        run(host, engine.up[connection])
        engine.send(connection, b" and after")
        run(host, engine.expect(connection, 16))
        assert engine.received_bytes[connection] == b"before and after"
        assert server.asked == [("b", broker.port)]


ANSWERS = {
    "socks5h": [b"\x05\x00", b"\x05\x00\x00\x01" + bytes(6)],
    "http": [b"HTTP/1.1 200 Fine\r\nVia: x\r\n\r\n"],
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_comes_with_the_answer_belongs_to_the_connection(
    host: SelectorHost, engine: ScriptedEngine, scheme: str
) -> None:
    def talk(sock: socket.socket) -> None:
        *before, last = ANSWERS[scheme]
        for answer in before:
            sock.recv(1000)
            sock.sendall(answer)
        sock.recv(1000)
        sock.sendall(last + b"\r\n\r\nwelcome")
        sock.recv(1)

    with peer(talk) as server:
        proxy = Proxy(scheme, Address("127.0.0.1", server.port))
        connection = through(engine, proxy, server.port)
        run(host, engine.expect(connection, 11))
        assert engine.received_bytes[connection] == b"\r\n\r\nwelcome"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", [SelectorHost, ThreadHost])
def test_tls_is_the_brokers(
    engine: ScriptedEngine, contexts: Contexts, kind: type[AnyHost], scheme: str
) -> None:
    host = kind(tls=lambda: contexts.client)
    host.attach(engine)
    with peer(echo, contexts.server) as broker, ProxyServer() as server:
        connection = through(engine, proxy_url("", server.url(scheme)), broker.port)
        engine.send(connection, b"x" * 100_000)
        run(host, engine.expect(connection, 100_000))
        host.close(host.now() + PATIENCE)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_wrong_password_is_shown_nowhere(
    host: SelectorHost, engine: ScriptedEngine, scheme: str
) -> None:
    """The HTTP proxy says back what it was told."""
    with ProxyServer(("alice", "another")) as server:
        proxy = proxy_url("", server.url(scheme, ":".join(LOGIN)))
        connection = through(engine, proxy, 1)
        error = run(host, engine.down[connection])
    assert type(error) is ProxyAuthenticationError
    shown = with_locals(error)
    assert "YWxpY2U6" not in shown
    assert LOGIN[1] not in shown


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_isnt_a_proxy(host: SelectorHost, engine: ScriptedEngine, scheme: str) -> None:
    def babbles(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"SSH-2.0-x\r\n")
        sock.recv(1000)

    def endless(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"HTTP/1.1 200 Fine\r\n" + b"x: y\r\n" * 10_000)
        sock.recv(1000)

    def hangs_up(sock: socket.socket) -> None:
        sock.recv(1000)

    for talk, kind, text in (
        (babbles, NotAProxyError, "doesn't speak"),
        (endless, NotAProxyError, "has no end" if scheme == "http" else "speaks HTTP"),
        (hangs_up, ProxyError, "hung up"),
    ):
        with peer(talk) as other:
            proxy = Proxy(scheme, Address("127.0.0.1", other.port))
            connection = through(engine, proxy, other.port)
            error = run(host, engine.down[connection])
            assert type(error) is kind
            assert text in str(error)


def test_a_proxy_that_isnt_there(host: SelectorHost, engine: ScriptedEngine) -> None:
    proxy = Proxy("socks5h", Address("127.0.0.1", refused_port()))
    connection = through(engine, proxy, 9092)
    error = run(host, engine.down[connection])
    assert type(error) is ProxyError
    assert "can't be reached: Connection refused" in str(error)
