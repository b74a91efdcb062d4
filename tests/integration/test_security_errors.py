"""Check the error of each security problem: immediate, and as listed in the docs.

Uses a broker that requires everything (TLS, a client certificate, a password or token, ACLs) and a
few small servers for faults that a broker can't have. `ODRADEK_WRITE_DOCS=1` rewrites the table.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from tests.planted_secrets import with_locals
from tests.proxy_server import ProxyServer

from odradek import Admin, Consumer, Producer
from odradek.common import errors
from odradek.common.errors import ExplainedError, KafkaError
from odradek.common.types import Address, TopicPartition
from odradek.testing import Authority, LocalCluster
from odradek.testing.brokers.front_door import FrontDoor
from odradek.testing.brokers.security import token_function
from odradek.testing.brokers.shared_clusters import SharedClusters

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ATTEMPT = 5.0
"""Seconds within which every call must raise its error.

The setup timeout, which limits the slowest connection attempts, is 1.5 s.
"""
SETUP = {
    "socket.connection.setup.timeout.ms": 1500,
    "socket.connection.setup.timeout.max.ms": 1500,
    "max.block.ms": 8000,
}
USERS = {"alice": "alice-secret-17", "bob": "bob-secret-23", "carol": "carol-secret-29"}
WRONG = "not-her-password"
PASSWORDS = (*USERS.values(), WRONG, "proxy-pa55-of-user", "bm90.YS50.b2tlbg")
CALLERS = 3
INSISTING = 0.8
ATTEMPTS_PER_SECOND = 6
LOGIN = ("proxy-user", "proxy-pa55-of-user")
Settings = dict[str, Any]


class Server:
    """Server on loopback that accepts connections one by one and calls `serve` with each."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname()[:2])
        self.port = self.address.port
        self.accepted = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.accepted += 1
                sock.settimeout(5.0)
                with sock, suppress(OSError):
                    self._serve(sock)

    def close(self) -> None:
        """Stop accepting connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@dataclass
class BehindProxy:
    """Address of a broker with a proxy whose connections are counted."""

    address: Address
    proxy: ProxyServer | Server

    @property
    def accepted(self) -> int:
        return self.proxy.accepted


Made = tuple[Settings, FrontDoor | Server | BehindProxy]


@dataclass
class Scene:
    """The broker, the servers next to it, and the correct settings for the broker."""

    cluster: LocalCluster
    stack: ExitStack
    released: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()

    def right(self, mechanism: str = "PLAIN", password: str | None = None) -> Settings:
        return self.cluster.client_config("alice", mechanism, password)

    def without(self, *prefixes: str, **changes: Any) -> Settings:
        found = {k: v for k, v in self.right().items() if not k.startswith(prefixes)}
        return {**found, **{k.replace("_", "."): v for k, v in changes.items()}}

    def tokens(self, function: Callable[[], object]) -> Settings:
        return {**self.right("OAUTHBEARER"), "sasl.oauthbearer.token.provider": function}

    def door(self, to: str | None = None, host: str = "127.0.0.1") -> FrontDoor:
        """Return a proxy to the broker's secured port, or another port, that counts connections."""
        found = FrontDoor(host)
        found.start()
        self.stack.callback(found.close)
        where, _, port = (to or self.cluster.broker_addresses[0]).rpartition(":")
        found.lead_to([Address(where, int(port))])
        return found

    def server(self, serve: Callable[[socket.socket], None]) -> Server:
        found = Server(serve)
        self.stack.callback(found.close)
        return found

    def tls_server(self, *, starts: int = -1, ends: int = 1, least: str = "TLSv1_2") -> Server:
        """Return a TLS port with a certificate of the cluster's authority."""
        now = datetime.now(UTC)
        identity = self.cluster.authority.issue(
            "other",
            hosts=["127.0.0.1"],
            starts=now + timedelta(days=starts),
            ends=now + timedelta(days=ends),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.both)
        context.minimum_version = ssl.TLSVersion[least]

        def serve(sock: socket.socket) -> None:
            with context.wrap_socket(sock, server_side=True) as tls:
                tls.recv(1)

        return self.server(serve)

    def inner(self) -> FrontDoor:
        return self.door(self.cluster.inner_servers)

    def behind(self, proxy: ProxyServer | Server, scheme: str, login: str = "") -> Made:
        """Return the broker's address and a proxy; a proxy that refuses never connects to it."""
        if isinstance(proxy, ProxyServer):
            self.stack.enter_context(proxy)
        url = f"{scheme}://{login}{'@' * bool(login)}127.0.0.1:{proxy.port}"
        return {**self.right(), "proxy.url": url}, BehindProxy(self.door().address, proxy)


def http(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def raises() -> object:
    raise RuntimeError("the token server is on holiday")


def stranger(scene: Scene) -> Settings:
    other = Authority(scene.cluster.directory / "stranger").issue("alice")
    return scene.without(
        "ssl.keystore", ssl_keystore_type="PEM", ssl_keystore_location=str(other.both)
    )


SettingsFunction = Callable[[Scene], Settings | Made]
"""Function that returns a client's settings, and its port if that isn't the broker's."""
PROBLEMS: dict[type[KafkaError], dict[str, SettingsFunction]] = {
    errors.CredentialsRefusedError: {
        "wrong password (PLAIN)": lambda s: s.right("PLAIN", WRONG),
        "wrong password (SCRAM)": lambda s: s.right("SCRAM-SHA-512", WRONG),
        "unknown user": lambda s: s.cluster.client_config(
            "nobody", "SCRAM-SHA-512", "some-password"
        ),
        "token that the broker refuses": lambda s: s.tokens(lambda: (PASSWORDS[-1], None)),
    },
    errors.TokenExpiredError: {
        "expired token": lambda s: s.tokens(token_function("alice", lifetime=-60.0)),
    },
    errors.TokenError: {
        "token function that raises": lambda s: s.tokens(raises),
        "token function that hangs": lambda s: s.tokens(lambda: s.released.wait(60)),
    },
    errors.CertificateUntrustedError: {
        "untrusted certificate": lambda s: s.without("ssl.truststore"),
    },
    errors.CertificateExpiredError: {
        "expired certificate": lambda s: (s.right(), s.tls_server(starts=-3, ends=-2)),
        "certificate that isn't valid yet": lambda s: (s.right(), s.tls_server(starts=2, ends=3)),
    },
    errors.HostNameMismatchError: {
        "wrong host name": lambda s: (s.right(), s.door(host="127.0.0.77")),
    },
    errors.ClientCertificateRequiredError: {
        "missing client certificate": lambda s: s.without("ssl.keystore"),
        "client certificate that the broker doesn't trust": stranger,
    },
    errors.TlsProtocolError: {
        "no version of TLS in common": lambda s: (
            s.without("none", ssl_enabled_protocols="TLSv1.2"),
            s.tls_server(least="TLSv1_3"),
        ),
    },
    errors.PlaintextPortError: {
        "TLS to a plaintext port, with security.protocol.probe.enable": lambda s: (
            {**s.right(), "security.protocol.probe.enable": "true"},
            s.inner(),
        ),
        "a port that speaks HTTP, asked in TLS": lambda s: (s.right(), s.server(http)),
    },
    errors.TlsPortError: {
        "plaintext to a TLS port": lambda s: s.without("ssl.", security_protocol="SASL_PLAINTEXT"),
    },
    errors.SaslNotExpectedError: {
        "SASL to a port without it": lambda s: (
            s.without("ssl.", security_protocol="SASL_PLAINTEXT"),
            s.inner(),
        ),
    },
    errors.SaslExpectedError: {
        "no SASL to a port that wants it": lambda s: s.without("sasl.", security_protocol="SSL"),
    },
    errors.MechanismUnsupportedError: {
        "mechanism that the broker doesn't support": lambda s: s.right("SCRAM-SHA-256"),
    },
    errors.NotKafkaError: {
        "a port that speaks HTTP": lambda s: (
            s.without("ssl.", "sasl.", security_protocol="PLAINTEXT"),
            s.server(http),
        ),
    },
    errors.ProxyAuthenticationError: {
        "proxy that wants a password": lambda s: s.behind(ProxyServer(LOGIN), "socks5h"),
        "proxy that refuses the password": lambda s: s.behind(
            ProxyServer((LOGIN[0], WRONG)), "http", ":".join(LOGIN)
        ),
    },
    errors.ProxyRefusedError: {
        "proxy that refuses the connection": lambda s: s.behind(ProxyServer(refusal=403), "http"),
    },
    errors.NotAProxyError: {
        "a port that isn't a SOCKS proxy": lambda s: s.behind(s.server(http), "socks5"),
    },
}
"""Problems by the error that they raise."""


@dataclass(frozen=True)
class Case:
    """One security problem."""

    title: str
    kind: type[KafkaError]
    given: SettingsFunction

    def made(self, scene: Scene) -> Made:
        found = self.given(scene)
        return found if isinstance(found, tuple) else (found, scene.door())


CASES = [
    Case(title, kind, given) for kind, ways in PROBLEMS.items() for title, given in ways.items()
]


@dataclass
class Outcome:
    """Errors that the callers of one client got, and the number of connection attempts."""

    address: Address
    found: list[BaseException]
    slowest: float
    dials: int
    seconds: float
    explained: str


def try_it(made: Made) -> Outcome:
    """Let several callers wait at once; then repeat the call for a while."""
    settings, port = made
    settings = {**settings, **SETUP, "bootstrap.servers": str(port.address)}
    begun = time.monotonic()
    # Closing the producer raises too, if a record still waits.
    closing = suppress(KafkaError)
    with closing, Producer(settings) as producer, ThreadPoolExecutor(CALLERS) as threads:

        def call(number: int) -> tuple[BaseException, float]:
            error: BaseException | None = None
            try:
                producer.send(f"topic-{number}", b"x").result(timeout=8)
            except BaseException as caught:
                error = caught
            assert error is not None, "the record was written"
            return error, time.monotonic() - begun

        results = list(threads.map(call, range(CALLERS)))
        explained = str(producer.explain())
        end = time.monotonic() + INSISTING
        while time.monotonic() < end:
            with suppress(KafkaError):
                producer.send("topic", b"x").result(timeout=1)
            time.sleep(0.002)
    found = [error for error, _ in results]
    slowest, seconds = max(t for _, t in results), time.monotonic() - begun
    return Outcome(port.address, found, slowest, port.accepted, seconds, explained)


SESSION = 2.0
"""Seconds until brokers require a client to authenticate again (KIP-368)."""
OPTIONS = {
    "brokers": 1,
    "security": "SASL_SSL",
    "mechanisms": ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"],
    "users": USERS,
    "mutual_tls": "required",
    "config": {"connections.max.reauth.ms": str(int(SESSION * 1000))},
}


@pytest.fixture(scope="module")
def strict(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared(OPTIONS)


@pytest.fixture(scope="module")
def outcomes(strict: LocalCluster) -> Iterator[dict[str, Outcome]]:
    """Run all cases, a few at a time because most of them wait."""
    with ExitStack() as stack, Scene(strict, stack) as scene:
        made = [case.made(scene) for case in CASES]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(try_it, made))
        yield dict(zip([case.title for case in CASES], found, strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_each_waiting_call_raises_the_error_at_once(
    outcomes: dict[str, Outcome], case: Case
) -> None:
    outcome = outcomes[case.title]
    for error in outcome.found:
        assert type(error) is case.kind, error
        assert isinstance(error, ExplainedError)
        assert error.address == outcome.address
        assert error.what
        assert error.cure
        shown = f"{error!r} {with_locals(error)} {outcome.explained}"
        assert [s for s in PASSWORDS if s in shown] == []
    assert outcome.slowest < ATTEMPT
    assert outcome.dials <= ATTEMPTS_PER_SECOND * (outcome.seconds + 1)
    assert str(outcome.found[0]) in outcome.explained
    text = str(outcome.found[0]).replace(str(outcome.address), "broker:9093")
    assert_documented(case, re.sub(r"//127\.0\.0\.1:\d+", "//proxy:1080", text))


def test_records_are_sent_and_read_through_a_proxy(strict: LocalCluster, topic: str) -> None:
    """Check TLS and SASL between client and broker; some proxies alone can resolve the name."""
    strict.create_topic(topic)
    host, _, port = strict.broker_addresses[0].rpartition(":")
    for number, scheme in enumerate(("socks5", "socks5h", "http")):
        with ProxyServer(LOGIN, names={"kafka.invalid": host}) as proxy:
            name = host if scheme == "socks5" else "kafka.invalid"
            settings = {
                **strict.client_config("alice"),
                "bootstrap.servers": f"{name}:{port}",
                "proxy.url": proxy.url(scheme, ":".join(LOGIN)),
                "ssl.endpoint.identification.algorithm": "https" if name == host else "",
            }
            with Producer(settings) as producer, Consumer(settings) as consumer:
                producer.send(topic, scheme.encode()).result(timeout=60)
                consumer.assign([TopicPartition(topic, 0)])
                consumer.seek(TopicPartition(topic, 0), number)
                assert [record.value for record in consumer.poll(10)] == [scheme.encode()]
            assert set(proxy.asked) == {(name, int(port)), (host, int(port))}


def test_a_proxy_that_can_not_reach_the_broker_is_retried(strict: LocalCluster) -> None:
    """Retry: the proxy closes connections as a port without TLS does, for another reason."""
    door = FrontDoor()
    door.start()
    try:
        settings = {**strict.client_config("alice"), "bootstrap.servers": str(door.address)}
        with Admin(settings) as admin, ThreadPoolExecutor(1) as threads:
            asked = threads.submit(admin.list_topics, timeout=30)
            time.sleep(1.5)
            assert not asked.done()
            where, _, port = strict.broker_addresses[0].rpartition(":")
            door.lead_to([Address(where, int(port))])
            assert isinstance(asked.result(), list)
    finally:
        door.close()


# The table


def assert_documented(case: Case, text: str) -> None:
    row = f"| {case.title} | `{case.kind.__name__}` | {text} |"
    page = PAGE.read_text()
    if row not in page and os.environ.get("ODRADEK_WRITE_DOCS"):
        old = re.compile(rf"^\| {re.escape(case.title)} \| .*$", re.MULTILINE)
        page = (
            old.sub(lambda _: row, page) if old.search(page) else page.replace(END, f"\n{row}{END}")
        )
        PAGE.write_text(page)
    assert row in page


END = "\n\n<!-- end of errors -->"


def test_the_table_of_the_page_has_one_row_for_each_case() -> None:
    table = PAGE.read_text().partition("<!-- errors -->")[2].partition(END)[0]
    titles = re.findall(r"^\| (.*?) \| `", table, re.MULTILINE)
    assert sorted(titles) == sorted(case.title for case in CASES)
