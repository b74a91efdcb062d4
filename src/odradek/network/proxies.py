"""Ask a proxy for a connection to the broker: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT.

In: the proxy, the broker's host and port. Out: a generator of `Exchange`s, the bytes to send and to
read, which is sent the bytes read. It returns once the connection leads to the broker, or raises a
`ProxyError`. Must not: do I/O, show a password, or repeat the proxy's text, which may contain it.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Generator
from dataclasses import dataclass, field
from http import HTTPStatus

from odradek.common.errors import (
    NotAProxyError,
    ProxyAuthenticationError,
    ProxyError,
    ProxyRefusedError,
)
from odradek.common.proxy import HTTP, Proxy
from odradek.common.types import Address, is_host

VERSION, LOGIN_VERSION, CONNECT = 5, 1, 1
NO_LOGIN, PASSWORD, NONE_ACCEPTED = 0, 2, 0xFF
IPV4, NAME, IPV6 = 1, 3, 4
LENGTHS = {IPV4: 4, IPV6: 16}
NOT_ALLOWED, NO_SUCH_COMMAND, NO_SUCH_KIND = 2, 7, 8
REPLIES = {
    1: "a general failure",
    NOT_ALLOWED: "its rules don't allow it",
    3: "the network can't be reached",
    4: "the host can't be reached",
    5: "the connection was refused",
    6: "it timed out",
    NO_SUCH_COMMAND: "it doesn't support the CONNECT command",
    NO_SUCH_KIND: "it doesn't support this type of address",
}
END_OF_HEAD = b"\r\n\r\n"
BROKER_AWAY = frozenset((404, 408, 429, 500, 502, 503, 504))
"""HTTP status codes of temporary problems: the proxy is busy, or can't reach the broker."""
NOT_FOR_TUNNELS = frozenset((400, 405, 426, 501))


@dataclass(frozen=True, slots=True)
class Exchange:
    """Bytes to send, and the number of bytes to read then (0: up to an empty line)."""

    send: bytes = field(repr=False)
    count: int = 0


Conversation = Generator[Exchange, bytes, None]


def conversation(proxy: Proxy, target: Address) -> Conversation:
    """Return the generator of the exchanges with which the proxy connects to `target`."""
    return _http(proxy, target) if proxy.scheme == HTTP else _socks5(proxy, target)


# SOCKS5


def _socks5(proxy: Proxy, target: Address) -> Conversation:
    ways = bytes((NO_LOGIN, PASSWORD) if proxy.user else (NO_LOGIN,))
    version, way = yield Exchange(bytes((VERSION, len(ways))) + ways, 2)
    if version != VERSION:
        raise _not_socks(proxy, http=(version, way) == tuple(b"HT"))
    if way == NONE_ACCEPTED or way not in ways:
        raise _no_way(proxy)
    if way == PASSWORD:
        _, status = yield Exchange(_login(proxy), 2)
        if status:
            raise ProxyAuthenticationError(f"the proxy {proxy} refused user or password")
    version, reply = yield Exchange(bytes((VERSION, CONNECT, 0)) + _place(target), 2)
    if version != VERSION:
        raise _not_socks(proxy)
    if reply:
        raise _not_connected(proxy, reply)
    _, kind = yield Exchange(b"", 2)
    length = LENGTHS.get(kind, 0)
    if kind == NAME:
        (length,) = yield Exchange(b"", 1)
    elif not length:
        raise _not_socks(proxy)
    yield Exchange(b"", length + 2)  # skip the proxy's own address


def _login(proxy: Proxy) -> bytes:
    parts = (proxy.user.encode(), proxy.password.reveal().encode())
    return bytes((LOGIN_VERSION,)) + b"".join(bytes((len(part),)) + part for part in parts)


def _place(target: Address) -> bytes:
    """Encode a target for SOCKS5: an IP address, or a name that the proxy resolves."""
    try:
        packed = ipaddress.ip_address(target.host.partition("%")[0]).packed
    except ValueError:
        name = host_bytes(target.host)
        place = bytes((NAME, len(name))) + name
    else:
        place = bytes((IPV4 if len(packed) == LENGTHS[IPV4] else IPV6,)) + packed
    return place + target.port.to_bytes(2, "big")


def host_bytes(host: str) -> bytes:
    """Encode a host name; raise `ValueError` if it is invalid."""
    if not is_host(host):  # a line break would add a header to the HTTP request
        raise ValueError("the host contains invalid characters")
    return host.encode("ascii" if host.isascii() else "idna")


def _no_way(proxy: Proxy) -> ProxyError:
    if proxy.user:
        return ProxyAuthenticationError(
            f"the proxy {proxy} accepts neither a user and password nor an anonymous client",
            cure="It may require GSSAPI, which this client doesn't support: ask its operator.",
        )
    return ProxyAuthenticationError(f"the proxy {proxy} requires a user and a password")


def _not_connected(proxy: Proxy, reply: int) -> ProxyError:
    why = REPLIES.get(reply, f"code {reply}")
    what = f"the proxy {proxy} didn't connect to the broker: {why}"
    if reply == NO_SUCH_KIND and proxy.resolves:
        return ProxyRefusedError(
            what, cure="Try socks5:// in proxy.url: this machine then resolves the names."
        )
    if reply == NO_SUCH_KIND:  # the name may have an IP of another family
        return ProxyError(
            what, cure="Try socks5h:// in proxy.url: the proxy then resolves the names."
        )
    if reply in (NOT_ALLOWED, NO_SUCH_COMMAND):
        return ProxyRefusedError(what)
    return ProxyError(what)


def _not_socks(proxy: Proxy, *, http: bool = False) -> NotAProxyError:
    if http:
        what = f"the server at {proxy} speaks HTTP"
        return NotAProxyError(what, cure=f"For an HTTP proxy, set proxy.url=http://{proxy.address}")
    return NotAProxyError(f"the server at {proxy} doesn't speak SOCKS5")


# HTTP CONNECT


def _http(proxy: Proxy, target: Address) -> Conversation:
    status = _status((yield Exchange(_request(proxy, target))))
    if status is None:
        raise NotAProxyError(f"the server at {proxy} doesn't speak HTTP")
    if 200 <= status < 300:
        return
    shown = _shown(status)
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        if proxy.user:
            raise ProxyAuthenticationError(f"the proxy {proxy} refused user or password ({shown})")
        what = f"the proxy {proxy} requires a user and a password ({shown})"
        raise ProxyAuthenticationError(what)
    if status in NOT_FOR_TUNNELS or status < 200 or 300 <= status < 400:
        raise NotAProxyError(f"the server at {proxy} doesn't support CONNECT ({shown})")
    what = f"the proxy {proxy} didn't connect to the broker: {shown}"
    raise ProxyError(what) if status in BROKER_AWAY else ProxyRefusedError(what)


def _request(proxy: Proxy, target: Address) -> bytes:
    host = f"[{target.host}]" if ":" in target.host else target.host
    where = host_bytes(f"{host}:{target.port}")  # not `str()`, whose text is for people
    lines = [b"CONNECT " + where + b" HTTP/1.1", b"Host: " + where]
    if proxy.user:
        login = f"{proxy.user}:{proxy.password.reveal()}".encode()
        lines.append(b"Proxy-Authorization: Basic " + base64.b64encode(login))
    return b"\r\n".join(lines) + END_OF_HEAD


def _status(head: bytes) -> int | None:
    """Return the status code in a response's first line; None if the line is invalid."""
    words = head.split(b"\r\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return None
    return int(words[1]) if len(words[1]) == 3 else None


def _shown(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
