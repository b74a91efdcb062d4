"""Test the bytes that are sent to proxies and the meaning of their responses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spec.world import ClusterPicture, World

from odradek.common.errors import (
    DnsError,
    NotAProxyError,
    ProxyAuthenticationError,
    ProxyError,
    ProxyRefusedError,
)
from odradek.common.proxy import Proxy
from odradek.common.secret import Secret
from odradek.common.types import Address
from odradek.network.effects import Hop, Open
from odradek.network.proxies import conversation
from odradek.simulation.world.host import SimulatedHost

AT = Address("proxy", 1)
SOCKS = Proxy("socks5h", AT)
SOCKS_HERE = Proxy("socks5", AT)
SOCKS_LOGIN = Proxy("socks5h", AT, "al", Secret("pa55"))
HTTP = Proxy("http", AT)
HTTP_LOGIN = Proxy("http", AT, "al", Secret("pa55"))
BROKER = Address("broker", 9092)
PLACE = b"\x03\x06broker\x23\x84"


def talk(proxy: Proxy, target: Address, *answers: bytes) -> list[tuple[bytes, int]]:
    """Run a client's conversation with a proxy; return bytes sent, and numbers of bytes awaited."""
    said, left = [], list(answers)
    going = conversation(proxy, target)
    step = next(going)
    try:
        while True:
            said.append((step.send, step.count))
            step = going.send(left.pop(0))
    except StopIteration:
        assert not left
        return said


@pytest.mark.parametrize(
    ("target", "place"),
    [
        (BROKER, PLACE),
        (Address("10.1.2.3", 9092), b"\x01\x0a\x01\x02\x03\x23\x84"),
        (Address("::1", 9092), b"\x04" + bytes(15) + b"\x01\x23\x84"),
        (Address("bröker", 9092), b"\x03\x0dxn--brker-kua\x23\x84"),
    ],
)
def test_the_client_requests_a_connection_from_a_socks5_proxy(
    target: Address, place: bytes
) -> None:
    said = talk(SOCKS, target, b"\x05\x00", b"\x05\x00", b"\x00\x04", bytes(18))
    assert said == [(b"\x05\x01\x00", 2), (b"\x05\x01\x00" + place, 2), (b"", 2), (b"", 18)]


def test_a_socks5_proxy_may_require_a_login_and_respond_with_a_host_name() -> None:
    answers = (b"\x05\x02", b"\x01\x00", b"\x05\x00", b"\x00\x03", b"\x05", bytes(7))
    assert talk(SOCKS_LOGIN, BROKER, *answers) == [
        (b"\x05\x02\x00\x02", 2),
        (b"\x01\x02al\x04pa55", 2),
        (b"\x05\x01\x00" + PLACE, 2),
        (b"", 2),
        (b"", 1),
        (b"", 7),
    ]


@pytest.mark.parametrize("target", [BROKER, Address("::1", 9092)])
def test_the_client_sends_an_http_connect_request_with_or_without_a_login(target: Address) -> None:
    where = str(target).encode()
    request = b"CONNECT " + where + b" HTTP/1.1\r\nHost: " + where + b"\r\n"
    assert talk(HTTP, target, b"HTTP/1.1 200 Fine\r\n\r\n") == [(request + b"\r\n", 0)]
    login = b"Proxy-Authorization: Basic YWw6cGE1NQ==\r\n\r\n"
    assert talk(HTTP_LOGIN, target, b"HTTP/1.0 200\r\n\r\n") == [(request + login, 0)]


OPEN = b"\x05\x00"


@pytest.mark.parametrize(
    ("proxy", "answers", "kind", "text"),
    [
        (SOCKS, [b"\x05\xff"], ProxyAuthenticationError, "requires a user and a password"),
        (SOCKS_LOGIN, [b"\x05\xff"], ProxyAuthenticationError, "GSSAPI"),
        (SOCKS, [b"\x05\x02"], ProxyAuthenticationError, "requires a user"),
        (SOCKS_LOGIN, [b"\x05\x02", b"\x01\x01"], ProxyAuthenticationError, "refused user or"),
        (SOCKS, [OPEN, b"\x05\x02"], ProxyRefusedError, "rules don't allow it"),
        (SOCKS, [OPEN, b"\x05\x07"], ProxyRefusedError, "doesn't support the CONNECT"),
        (SOCKS, [OPEN, b"\x05\x08"], ProxyRefusedError, "Try socks5://"),
        (SOCKS_HERE, [OPEN, b"\x05\x08"], ProxyError, "Try socks5h://"),
        (SOCKS, [OPEN, b"\x05\x01"], ProxyError, "general failure"),
        (SOCKS, [OPEN, b"\x05\x04"], ProxyError, "host can't be reached"),
        (SOCKS, [OPEN, b"\x05\x05"], ProxyError, "was refused"),
        (SOCKS, [OPEN, b"\x05\x77"], ProxyError, "code 119"),
        (SOCKS, [b"HT"], NotAProxyError, "proxy.url=http://proxy:1"),
        (SOCKS, [b"\x00\x00"], NotAProxyError, "doesn't speak SOCKS5"),
        (SOCKS, [OPEN, b"\x04\x00"], NotAProxyError, "doesn't speak SOCKS5"),
        (SOCKS, [OPEN, OPEN, b"\x00\x09"], NotAProxyError, "doesn't speak SOCKS5"),
        (HTTP, [b"HTTP/1.1 407 al:pa55"], ProxyAuthenticationError, "requires a user"),
        (HTTP_LOGIN, [b"HTTP/1.1 407 al:pa55"], ProxyAuthenticationError, "refused user or"),
        (HTTP, [b"HTTP/1.1 403 No"], ProxyRefusedError, "403 Forbidden"),
        (HTTP, [b"HTTP/1.1 502 No"], ProxyError, "502 Bad Gateway"),
        (HTTP, [b"HTTP/1.1 599 No"], ProxyRefusedError, "599"),
        (HTTP, [b"HTTP/1.1 405 No"], NotAProxyError, "405 Method Not Allowed"),
        (HTTP, [b"HTTP/1.1 302 No"], NotAProxyError, "302 Found"),
        (HTTP, [b"HTTP/1.1"], NotAProxyError, "doesn't speak HTTP"),
        (HTTP, [b"HTTP/1.1 two hundred"], NotAProxyError, "doesn't speak HTTP"),
        (HTTP, [b"\x05\xff"], NotAProxyError, "doesn't speak HTTP"),
    ],
)
def test_errors_for_rejected_and_broken_proxy_tunnels_say_what_to_do(
    proxy: Proxy, answers: list[bytes], kind: type[ProxyError], text: str
) -> None:
    """A permanent error is raised to the caller; a transient error is retried."""
    with pytest.raises(ProxyError) as caught:
        talk(proxy, BROKER, *answers)
    error = caught.value.at(BROKER)
    assert type(error) is kind
    assert error.sticky == (kind is not ProxyError) != error.retriable
    assert text in str(error)
    assert str(error).startswith("broker:9092: ")
    assert error.cure
    assert "pa55" not in str(error)


@pytest.mark.parametrize("proxy", [SOCKS, HTTP_LOGIN])
@pytest.mark.parametrize("host", ["b HTTP/1.1\r\n\r\nx", "b\nx", "b\x7f"])
def test_an_invalid_host_name_is_not_sent_to_a_proxy(proxy: Proxy, host: str) -> None:
    """A broker could inject text into the CONNECT request with a line break in a host name."""
    with pytest.raises(ValueError, match="host"):
        talk(proxy, Address(host, 9092), b"\x05\x00")


class ProxiedHost(SimulatedHost):
    """An I/O host that reaches each broker through the proxy's IP address."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.dialled: list[Open] = []

    def _open(self, effect: Open) -> None:
        self.dialled.append(effect)
        super()._open(effect if effect.ip == "::1" else effect._replace(ip=effect.address.host))


class ProxiedWorld(World):
    """A simulated cluster that is reached through a proxy; `names` contains its DNS names."""

    host: ProxiedHost

    def __init__(self, scheme: str) -> None:
        config = {"bootstrap.servers": "front:9092", "proxy.url": f"{scheme}://proxy:99"}
        super().__init__(config, hosts=ProxiedHost)
        self.pictures["*"] = ClusterPicture(brokers={1: "b1:9092"}, topics={"t": [1]})

    @property
    def dialled(self) -> list[Open]:
        return self.host.dialled

    def go(self) -> None:
        self.modes |= {"front:9092": "up", "b1:9092": "up"}
        self.wait(self.engine.topic("t", 8.0), 8.0)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
def test_the_client_resolves_the_brokers_name_for_socks5_proxies_only(scheme: str) -> None:
    """With socks5 the client resolves the broker's name; else only the proxy does."""
    world = ProxiedWorld(scheme)
    world.names |= {"proxy": ["10.0.0.1"], "front": ["10.1.0.1"]}
    world.go()
    ours = scheme == "socks5"
    asked = ["front", "proxy"] if ours else ["proxy"]
    assert {host for _, host in world.resolved} == set(asked)
    assert {effect.ip for effect in world.dialled} == {"10.0.0.1"}
    host = "10.1.0.1" if ours else "front"
    hop = Hop(Proxy(scheme, Address("proxy", 99)), Address(host, 9092))
    assert {effect.hop for effect in world.dialled} == {hop}


def test_every_ip_of_a_socks5_proxys_name_is_tried() -> None:
    """For example, the name resolves to ::1 and 127.0.0.1, but it only listens on 127.0.0.1."""
    world = ProxiedWorld("socks5")
    world.names["proxy"] = ["::1", "127.0.0.1"]
    world.modes["::1:9092"] = "refused"
    world.go()
    world.cut("front:9092", error="reset")
    world.cut("b1:9092", error="reset")
    world.wait(world.engine.topic("u", world.now + 3.0), 3.0)
    to_front = [effect.ip for effect in world.dialled if effect.address.host == "front"]
    assert to_front[0] == "::1"
    assert set(to_front[1:]) == {"127.0.0.1"}  # the address that worked is remembered


def test_each_ip_of_a_broker_is_tried_through_each_ip_of_the_proxy() -> None:
    world = ProxiedWorld("socks5")
    world.names |= {"proxy": ["10.0.0.1", "10.0.0.2"], "front": ["10.1.0.1", "10.1.0.2"]}
    world.modes["front:9092"] = "black_hole"
    world.wait(world.engine.topic("t", 12.0), 12.0)
    first = world.dialled[:4]
    assert len({(effect.ip, effect.hop.target.host) for effect in first if effect.hop}) == 4
    assert world.dials[3].at - world.dials[0].at < 4 * 2.5


def test_the_error_names_the_proxy_if_its_host_name_does_not_resolve() -> None:
    world = ProxiedWorld("socks5h")
    world.names["proxy"] = None
    world.go()
    error = world.engine.network.states.state(Address("front", 9092)).last_error
    assert isinstance(error, DnsError)
    assert "the proxy's name 'proxy' doesn't resolve" in str(error)


def test_the_connection_setup_timeout_includes_the_proxys_response() -> None:
    """The proxy accepts the connection and then sends nothing."""
    world = ProxiedWorld("http")
    world.modes["front:9092"] = "black_hole"
    timeout = world.engine.config["socket.connection.setup.timeout.ms"]
    world.wait(world.engine.topic("t", 20.0), 20.0)
    first = world.dialled[0].connection
    (end,) = (e for e in world.kinds("dial_failed") if e.fields["connection"] == first)
    assert 0.7 * timeout <= end.at <= 1.3 * timeout
    assert "(connecting)" in str(end)
