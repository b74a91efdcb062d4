"""Test requests, responses and timeouts of tokens from an OAuth server."""

from __future__ import annotations

import json
import random
import re
import socket
import ssl
import threading
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from tests.token_server import CLIENT_ID, CLIENT_SECRET, TokenServer
from tests.unit.network.tls_peers import server_context, trusting

from odradek.common.backoff import ExponentialBackoff
from odradek.common.errors import ConfigurationError, TokenError
from odradek.common.secret import Secret
from odradek.network.sasl.oauthbearer import Token
from odradek.runtime.credentials import oidc
from odradek.runtime.credentials.allowed_sources import ALLOWED_URLS, allowed_url, shown
from odradek.runtime.resolver import Resolver
from odradek.runtime.system_clock import SystemClock
from odradek.testing.brokers.authority import Authority

FORM = {"grant_type": oidc.CLIENT_CREDENTIALS, "scope": "kafka"}
NOBODY_TRUSTED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PATIENCE = 60.0
"""Timeout in seconds for waits that would otherwise hang in a failing test."""
AUTHORIZATION = oidc.basic(CLIENT_ID, Secret(CLIENT_SECRET), url_encode=False)


class VirtualClock(SystemClock):
    """A clock that only advances in `pause`."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now(self) -> float:
        return 1000.0 + sum(self.pauses)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as running:
        yield running


def asking(
    url: str,
    clock: VirtualClock | None = None,
    tls: ssl.SSLContext | None = None,
    limits: oidc.TokenTimeouts | None = None,
) -> oidc.TokenServer:
    return oidc.TokenServer(
        url,
        limits or oidc.TokenTimeouts(8.0),
        ExponentialBackoff(0.1, 10.0),
        random.Random(1),
        lambda: tls or NOBODY_TRUSTED,
        clock or VirtualClock(),
    )


def fetch(asked: oidc.TokenServer, now: float = 5000.0) -> Token:
    return oidc.token_of(asked.post(lambda: FORM, AUTHORIZATION), asked.place, now)


def refused(asked: oidc.TokenServer) -> TokenError:
    with pytest.raises(TokenError) as caught:
        fetch(asked)
    shown = "".join(
        traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    )
    assert CLIENT_SECRET not in shown
    assert AUTHORIZATION.reveal() not in shown
    return caught.value


def test_a_token_is_requested_with_client_credentials(server: TokenServer) -> None:
    header = oidc.basic("a b", Secret("c+d:"), url_encode=True).reveal()
    assert b64decode(header.removeprefix("Basic ")) == b"a+b:c%2Bd%3A"
    token = fetch(asking(server.url()))
    assert token.value.reveal().count(".") == 2
    assert token.expires_at == 5000.0 + 3600
    assert server.forms == [FORM]
    assert server.headers[0]["accept"] == "application/json"
    assert server.headers[0]["content-type"] == "application/x-www-form-urlencoded"
    assert str(token.value) == "[hidden]"


def test_a_rejected_request_is_not_retried_and_its_error_contains_the_servers_text(
    server: TokenServer,
) -> None:
    clock = VirtualClock()
    asked = asking(server.url("/token?key=hush"), clock)
    server.faults.append((400, b'{"error": "invalid_scope", "error_description": "no\\nsuch"}'))
    error = refused(asked)
    assert f"{server.url()} sent HTTP status 400: invalid_scope: no such" in str(error)
    assert "sasl.oauthbearer.scope" in str(error)
    assert "hush" not in str(error)
    assert clock.pauses == []


def test_a_wrong_client_secret_is_reported_with_the_servers_text_and_the_option(
    server: TokenServer,
) -> None:
    asked = asking(server.url())
    with pytest.raises(TokenError, match=r"401: invalid_client: Who are you\?.*client\.secret"):
        asked.post(lambda: FORM, oidc.basic(CLIENT_ID, Secret("wrong"), url_encode=False))


def test_server_failures_are_retried_with_backoff(server: TokenServer) -> None:
    server.faults += [(503, b""), (500, b"<html>"), (429, b"{}")]
    clock = VirtualClock()
    assert fetch(asking(server.url(), clock)).expires_at is not None
    assert [pytest.approx(base, rel=0.21) for base in (0.1, 0.2, 0.4)] == clock.pauses


@pytest.mark.slow
def test_a_server_failure_that_persists_is_reported_within_the_timeout(server: TokenServer) -> None:
    server.faults += [(503, b"")] * 50
    clock = VirtualClock()
    error = refused(asking(server.url(), clock))
    assert "sent HTTP status 503" in str(error)
    assert "attempts in 8 s" in str(error)
    assert sum(clock.pauses) < 8


def test_a_refused_connection_is_reported_as_a_token_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    error = refused(asking(f"http://127.0.0.1:{port}/token"))
    assert "can't be reached: [Errno 111] Connection refused" in str(error)
    assert isinstance(error.__cause__, ConnectionRefusedError)


@pytest.mark.slow
def test_a_server_that_sends_no_response_is_reported_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        limits = oidc.TokenTimeouts(8.0, connect=5.0, read=0.01)
        error = refused(asking(url, limits=limits))
    assert "no response in time" in str(error)


PIECES = 3000
"""Number of pieces in a slow response; it ends, so a client without a timeout doesn't hang."""


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 20),
        (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\nX: ", b"a" * 20),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{", b" "),
    ],
    ids=["a header", "headers", "100", "header of 100", "chunks", "a body"],
)
def test_a_slow_response_times_out(server: TokenServer, head: bytes, piece: bytes) -> None:
    clock = VirtualClock()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(head + piece)
        clock.pauses.append(9.0)
        handler.wfile.write(piece * PIECES)

    server.faults.append(drip)
    assert "no response in time" in str(refused(asking(server.url(), clock)))
    assert len(server.forms) == 1


@pytest.mark.parametrize("status", [401, 503])
def test_an_error_text_that_arrives_after_the_timeout_is_left_out(
    server: TokenServer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error then contains the HTTP status only."""
    clock = VirtualClock()
    read = oidc._said

    def late(*arguments: Any) -> str:
        clock.pauses.append(9.0)  # the headers and a part of the body have arrived
        return read(*arguments)

    monkeypatch.setattr(oidc, "_said", late)
    server.faults.append((status, b'{"error": "too_late"}' + b" " * 100_000))
    error = refused(asking(server.url(), clock))
    assert f"sent HTTP status {status}" in str(error)
    assert "too_late" not in str(error)
    assert len(server.forms) == 1


HEADS = {
    state: f"HTTP/1.1 {state}\r\nContent-Length: 60000\r\n\r\n".encode()
    for state in ("200 OK", "401 No", "503 Busy")
}
HEADS["https"] = b"\x16\x03\x03\x40\x00"  # the header of a TLS handshake record


@pytest.mark.parametrize("name", HEADS)
def test_a_slow_response_leaves_no_thread_and_no_socket(name: str) -> None:
    """Each byte advances the virtual clock by 0.1 s; the TLS handshake uses the real clock."""
    clock, scheme = VirtualClock(), "https" if name == "https" else "http"
    with socket.create_server(("127.0.0.1", 0)) as dripping:
        dripping.settimeout(PATIENCE)
        url = f"{scheme}://127.0.0.1:{dripping.getsockname()[1]}/"
        asked = asking(url, clock, limits=oidc.TokenTimeouts(0.35))
        told: list[TokenError] = []
        thread = threading.Thread(target=lambda: told.append(refused(asked)), daemon=True)
        thread.start()
        peer, _ = dripping.accept()
        with peer:
            peer.settimeout(0.02)
            peer.sendall(HEADS[name])
            assert hung_up(peer, clock)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert len(told) == 1


def hung_up(peer: socket.socket, clock: VirtualClock) -> bool:
    """Send bytes until the client closes the connection; return whether it did."""
    for _ in range(500):
        with suppress(TimeoutError):
            try:
                peer.sendall(b" ")
                clock.pause(0.1)
                if not peer.recv(65536):
                    return True
            except OSError as error:
                if not isinstance(error, TimeoutError):
                    return True
    return False


@pytest.mark.slow
def test_a_name_lookup_that_takes_too_long_is_reported_as_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        assert go.wait(PATIENCE)
        return [host]

    asked = asking("http://tokens.test/", limits=oidc.TokenTimeouts(8.0, connect=0.01))
    asked._resolver = Resolver(slow)
    assert "no response in time" in str(refused(asked))
    go.set()


def test_the_next_address_of_a_host_name_is_tried_after_a_failure(server: TokenServer) -> None:
    port = int(server.url("").rpartition(":")[2])
    asked = asking(f"http://tokens.test:{port}/token")
    asked._resolver = Resolver(lambda _host, _port: ["127.0.0.77", "127.0.0.1"])
    assert fetch(asked).value
    assert server.headers[0]["host"] == f"tokens.test:{port}"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(server: TokenServer, status: int) -> None:
    where = f"Location: {server.url('/elsewhere')}".encode()
    server.faults.append(_status(b"HTTP/1.1 %d There\r\n%b" % (status, where)))
    assert f"sent HTTP status {status}" in str(refused(asking(server.url())))
    assert len(server.forms) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "0 characters that aren't a JSON object"),
        (b"[1]", "aren't a JSON object"),
        (b"<html>login</html>", "aren't a JSON object"),
        (b"[" * 100000, "aren't a JSON object"),
        (b'{"token": "a.b.c", "x": 1}', r"no access_token \(its response contains: token, x\)"),
        (b'{"access_token": ""}', "no access_token"),
        (b'{"access_token": 5}', "no access_token"),
        (b" " * ((1 << 20) + 1), "more than 1048576 bytes"),
    ],
)
def test_invalid_responses_are_reported_without_showing_a_token(
    server: TokenServer, answer: bytes, said: str
) -> None:
    server.faults.append((200, answer))
    error = refused(asking(server.url()))
    assert re.search(said, str(error))
    assert "a.b.c" not in str(error)


@pytest.mark.parametrize(
    ("expires_in", "end"),
    [(60, 1060.0), ("60", 1060.0), (-5, 995.0), (None, 777.0), (True, 777.0), ("soon", 777.0)],
)
def test_the_expiry_time_comes_from_expires_in_or_from_the_tokens_claims(
    expires_in: object, end: float
) -> None:
    body = b64encode(json.dumps({"exp": 777}).encode()).decode().rstrip("=")
    answer = {"access_token": f"e30.{body}.e30", "expires_in": expires_in}
    assert oidc.token_of(answer, "here", 1000.0).expires_at == end


def test_a_token_that_is_not_a_jwt_has_no_known_expiry_time(tmp_path: Path) -> None:
    opaque = Token(Secret("opaque"), None)
    assert oidc.token_of({"id_token": "opaque"}, "here", 1.0) == opaque
    path = tmp_path / "token"
    with pytest.raises(TokenError, match="can't be read: No such file"):
        oidc.from_file(path)
    path.write_text(" \n")
    with pytest.raises(TokenError, match="is empty"):
        oidc.from_file(path)
    path.write_text("opaque\n")
    assert oidc.from_file(path) == opaque


def test_https_requires_a_trusted_certificate_for_the_servers_name(authority: Authority) -> None:
    own = authority.issue("tokens", hosts=["localhost"])
    with TokenServer(server_context(own)) as server:
        good = server.url(host="localhost")
        assert fetch(asking(good, tls=trusting(authority))).expires_at is not None
        assert "IP address mismatch" in str(refused(asking(server.url(), tls=trusting(authority))))
        said = str(refused(asking(good)))
        assert "self-signed certificate in certificate chain" in said
        assert "https.ca.location" in said
    assert len(server.forms) == 1


@pytest.mark.parametrize(
    "url",
    ["ftp://x/y", "x/y", "http:///y", "data:,x", "http://a\n.b/", "http://a b/", "http://a\\b/",
     "file://elsewhere/etc/passwd", "http://[::1", "http://a:b/", "jar:file:/x"],
)  # fmt: skip
def test_urls_that_are_invalid_or_of_other_schemes_are_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must be an http, https or file URL"):
        allowed_url(url)


def test_secret_parts_of_a_url_are_not_shown() -> None:
    assert shown("https://me:hush@host:1/p?q=hush#hush") == "https://host:1/p"


def test_proxy_variables_and_netrc_of_the_environment_are_not_used(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login mallory password x\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with TokenServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert fetch(asking(server.url())).value
        assert proxy.headers == []
    assert server.headers[0]["authorization"] == AUTHORIZATION.reveal()


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://login.example.com/token", True),
        ("HTTPS://LOGIN.example.com:443/token", True),
        ("http://login.example.com/token", False),
        ("https://login.example.com/token/", False),
        ("https://login.example.com/token?audience=x", False),
        ("https://login.example.com:444/token", False),
        ("https://login.example.com@evil.example/token", False),
        ("https://me@login.example.com/token", False),
        ("https://login.example.com.evil.example/token", False),
    ],
)
def test_a_list_of_allowed_urls_excludes_all_other_urls(url: str, taken: bool) -> None:
    listed = {ALLOWED_URLS: "https://other/, https://login.example.com/token"}
    assert allowed_url(url, {}) == url
    if taken:
        assert allowed_url(url, listed) == url
    else:
        with pytest.raises(ConfigurationError, match="isn't one of the token servers"):
            allowed_url(url, listed)


@pytest.mark.parametrize(
    "echo", [CLIENT_SECRET, AUTHORIZATION.reveal(), quote_plus(CLIENT_SECRET), "eyJ.assert.ion"]
)
def test_secrets_in_the_text_of_a_server_are_hidden(server: TokenServer, echo: str) -> None:
    words = {"error": "invalid_client", "error_description": f"you sent {echo} and that's wrong"}
    server.faults.append((400, json.dumps(words).encode()))
    form = {**FORM, "assertion": "eyJ.assert.ion"}
    with pytest.raises(TokenError) as caught:
        asking(server.url()).post(lambda: form, AUTHORIZATION)
    assert echo not in str(caught.value)
    assert echo.rpartition(" ")[2] not in str(caught.value)
    assert "[hidden] and that's wrong" in str(caught.value)


def _status(line: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        echoed = handler.headers["authorization"].encode()
        handler.wfile.write(line.replace(b"ECHO", echoed) + b"\r\nContent-Length: 0\r\n\r\n")
        handler.close_connection = True

    return answer


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 401 \x1b[2J\x1b]0;pwned\x07 ECHO",
        b"HTTP/1.1 302 \x1b[2J ECHO",
        b"HTTP/1.1 503 \x1b[2J ECHO",
        b"HTTP/9.9 200 \x1b[2J ECHO",
        b"\x1b[2J ECHO",
    ],
)
def test_a_traceback_contains_no_text_of_the_server(server: TokenServer, line: bytes) -> None:
    """The text in a status line may contain escape sequences or repeat the client's header."""
    server.faults += [_status(line)] * 50
    error = refused(asking(server.url()))
    shown = "".join(traceback.format_exception(error))
    assert "\x1b" not in shown
    assert AUTHORIZATION.reveal().rpartition(" ")[2] not in shown
    assert error.cure
