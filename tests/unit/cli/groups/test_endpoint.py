"""Test the HTTP endpoint for metrics: its address, its responses, connections left open."""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from typing import Any

import pytest

from odradek.cli.console.properties import UsageError
from odradek.cli.groups import endpoint
from odradek.cli.groups.endpoint import MOST_CONNECTIONS, MetricsEndpoint, where_to_listen
from odradek.common.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (":9308", ("", 9308)),
        ("127.0.0.1:9308", ("127.0.0.1", 9308)),
        ("[::1]:0", ("::1", 0)),
        ("metrics.example:80", ("metrics.example", 80)),
    ],
)
def test_an_address_to_listen_on_is_parsed(text: str, where: tuple[str, int]) -> None:
    assert where_to_listen(text) == where


@pytest.mark.parametrize(
    "text", ["", "9308", ":", ":x", ":-1", ":65536", "::1:9308", "http://a:9308", ":9" * 5000]
)
def test_an_invalid_address_to_listen_on_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        where_to_listen(text)


def get(port: int, path: str = "/metrics", how: str = "GET") -> tuple[int, str, str | None]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(how, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.getheader("Content-Type")
    finally:
        connection.close()


@pytest.mark.slow
def test_a_get_request_returns_the_metrics() -> None:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    with MetricsEndpoint("127.0.0.1", 0, lambda: ["häuser 1\n".encode(), b"", b"?"]) as served:
        assert served.url == f"http://127.0.0.1:{served.port}/metrics"
        assert get(served.port) == (200, "häuser 1\n?", kind)
        assert get(served.port, "/metrics?name=x") == (200, "häuser 1\n?", kind)
        assert get(served.port, how="HEAD") == (200, "", kind)
        assert get(served.port, "/")[0] == 404
        assert get(served.port, how="POST")[0] == 501
        port = served.port
    with pytest.raises(ConnectionRefusedError):
        get(port)


@pytest.mark.slow
def test_a_port_in_use_is_reported() -> None:
    """A port may be in use at one address of the machine, or at all its addresses."""
    for host in ("127.0.0.1", ""):
        with (
            MetricsEndpoint(host, 0, list) as served,
            pytest.raises(ConfigurationError, match=r"can't listen on .*: Address already in use"),
        ):
            assert get(served.port)[0] == 200
            MetricsEndpoint(host, served.port, list)
    with pytest.raises(ConfigurationError, match="can't listen on"):
        MetricsEndpoint("a" * 300, 0, list)


@pytest.mark.slow
def test_a_host_name_is_resolved_to_an_address_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Addresses of other machines are skipped; if no address is left, the error has the reason."""
    addresses: list[tuple[Any, str]] = [(socket.AF_INET6, "::1")]
    create, tried = socket.create_server, list[str]()

    def names(host: Any, port: int, *_: Any, **__: Any) -> Any:
        return [(family, socket.SOCK_STREAM, 6, "", (at, port)) for family, at in addresses]

    def server(address: tuple[str, int], *, family: Any, backlog: int) -> socket.socket:
        tried.append(address[0])
        if (family, address[0]) != (socket.AF_INET6, "::1"):
            raise OSError(99, "Cannot assign requested address")
        return create(("127.0.0.1", 0), backlog=backlog)  # for machines without IPv6

    monkeypatch.setattr(socket, "getaddrinfo", names)
    monkeypatch.setattr(socket, "create_server", server)
    with MetricsEndpoint("six.example", 0, list):
        assert tried == ["::1"]
    addresses.append((socket.AF_INET, "192.0.2.1"))
    with MetricsEndpoint("both.example", 0, list):
        assert tried == ["::1", "192.0.2.1", "::1"]
    del addresses[0]
    text = r"can't listen on other\.example:0: Cannot assign requested address"
    with pytest.raises(ConfigurationError, match=text):
        MetricsEndpoint("other.example", 0, list)


@pytest.mark.slow
def test_connections_without_a_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LONGEST", -1.0)
    with MetricsEndpoint("127.0.0.1", 0, lambda: [b"a 1\n"]) as served:
        silent = [
            socket.create_connection(("127.0.0.1", served.port), timeout=10)
            for _ in range(MOST_CONNECTIONS + 2)
        ]
        for one in silent:
            assert one.recv(1) == b""
            one.close()
        monkeypatch.undo()
        assert get(served.port)[0] == 200
