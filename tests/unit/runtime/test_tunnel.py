"""Test connections through a proxy, over loopback sockets."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.planted_secrets import with_locals
from tests.proxy_server import ProxyServer
from tests.unit.network.tls_peers import server_context, trusting
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, echo, peer, refused_port, run

from odradek.common.errors import NotAProxyError, ProxyAuthenticationError, ProxyError
from odradek.common.proxy import Proxy, proxy_url
from odradek.common.types import Address
from odradek.network.effects import Hop, Open
from odradek.runtime.hosts.selector_host import SelectorHost
from odradek.runtime.hosts.thread_host import ThreadHost
from odradek.testing.brokers.authority import Authority, KeyAndCertificate

LOGIN = ("alice", "pa55-of-alice")
SCHEMES = ("socks5h", "http")


def through(engine: ScriptedEngine, proxy: Proxy, port: int, host: str = "localhost") -> int:
    """Open a connection whose target is resolved by the proxy."""
    address = Address(host, port)
    engine.effect(Open(-port, address, "127.0.0.1", hop=Hop(proxy, address)))
    return -port


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_bytes_pass_through_a_proxy(
    host: SelectorHost, engine: ScriptedEngine, scheme: str, login: Any, pieces: bool
) -> None:
    """The proxy's response may arrive in pieces."""
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
def test_bytes_after_the_proxys_response_are_the_brokers_first_bytes(
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
def test_tls_through_a_proxy_is_established_with_the_broker(
    engine: ScriptedEngine,
    authority: Authority,
    broker: KeyAndCertificate,
    kind: type[SelectorHost | ThreadHost],
    scheme: str,
) -> None:
    host = kind(tls=lambda: trusting(authority))
    host.attach(engine)
    with peer(echo, server_context(broker)) as there, ProxyServer() as server:
        connection = through(engine, proxy_url("", server.url(scheme)), there.port)
        engine.send(connection, b"x" * 100_000)
        run(host, engine.expect(connection, 100_000))
        host.close(host.now() + PATIENCE)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_wrong_proxy_password_is_not_shown_in_the_error(
    host: SelectorHost, engine: ScriptedEngine, scheme: str
) -> None:
    """The HTTP proxy repeats the client's header in its response."""
    with ProxyServer(("alice", "another")) as server:
        proxy = proxy_url("", server.url(scheme, ":".join(LOGIN)))
        connection = through(engine, proxy, 1)
        error = run(host, engine.down[connection]).result()
    assert type(error) is ProxyAuthenticationError
    shown = with_locals(error)
    assert "YWxpY2U6" not in shown
    assert LOGIN[1] not in shown


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_server_that_is_not_a_proxy_is_reported(
    host: SelectorHost, engine: ScriptedEngine, scheme: str
) -> None:
    endless = "the end of its response is missing" if scheme == "http" else "speaks HTTP"
    for said, kind, text in (
        (b"SSH-2.0-x\r\n", NotAProxyError, "doesn't speak"),
        (b"HTTP/1.1 200 Fine\r\n" + b"x: y\r\n" * 10_000, NotAProxyError, endless),
        (b"", ProxyError, "closed the connection"),
    ):

        def talk(sock: socket.socket, said: bytes = said) -> None:
            sock.recv(1)
            sock.sendall(said)
            sock.recv(1000)

        with peer(talk) as other:
            proxy = Proxy(scheme, Address("127.0.0.1", other.port))
            connection = through(engine, proxy, other.port)
            error = run(host, engine.down[connection]).result()
            assert type(error) is kind
            assert text in str(error)


def test_a_proxy_that_refuses_connections_is_reported(
    host: SelectorHost, engine: ScriptedEngine
) -> None:
    proxy = Proxy("socks5h", Address("127.0.0.1", refused_port()))
    connection = through(engine, proxy, 9092)
    error = run(host, engine.down[connection]).result()
    assert type(error) is ProxyError
    assert "can't be reached: Connection refused" in str(error)
