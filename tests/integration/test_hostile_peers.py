"""Test peers that never finish a response or send too much: the attempt ends in time.

The peers write Kafka's frames by hand on real sockets; no broker is needed.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.proxy_server import take

from odradek import Admin
from odradek.common import errors
from odradek.common.errors import KafkaError
from odradek.protocol.headers import encode_response
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse
from odradek.simulation.world.environment import ReceivedRequest, read_request

SETUP = 0.6
SLACK = 2.0
"""Seconds that a loaded machine may add."""
PASSWORD = "xyzzy-plugh-17"  # noqa: S105
KNOWN = {3: 4, 17: 1, 18: 3, 36: 2}
Peer = Callable[[socket.socket], None]


def receive(sock: socket.socket) -> ReceivedRequest:
    return read_request(take(sock, struct.unpack(">i", take(sock, 4))[0]))


def answer(sock: socket.socket, request: ReceivedRequest, message: Message) -> None:
    sock.sendall(b"".join(encode_response(message, request.version, request.correlation_id)))


def to_sasl(sock: socket.socket) -> None:
    """Answer correctly until the SASL mechanism is chosen."""
    keys = [ApiVersion(key, 0, newest) for key, newest in KNOWN.items()]
    answer(sock, receive(sock), ApiVersionsResponse(api_keys=keys))
    answer(sock, receive(sock), SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))


def challenging(make: Callable[[bytes], bytes]) -> Peer:
    """Answer each token with another one."""

    def serve(sock: socket.socket) -> None:
        to_sasl(sock)
        while True:
            request: Any = receive(sock)
            token = make(bytes(request.body.auth_bytes))
            answer(sock, request, SaslAuthenticateResponse(auth_bytes=token))

    return serve


def first(sent: bytes, iterations: int = 4096) -> bytes:
    return sent.partition(b"r=")[2].join((b"r=", b"more,s=c2FsdA==,i=%d" % iterations))


def wrong_signature(sent: bytes) -> bytes:
    return first(sent) if sent.startswith(b"n,,") else b"v=" + b"QUFB" * 10 + b"QUE="


def promising(size: int) -> Peer:
    """Announce a SASL token of this size, and send at most 1 MiB of it."""

    def serve(sock: socket.socket) -> None:
        to_sasl(sock)
        receive(sock)
        sock.sendall(struct.pack(">i", size))
        with suppress(OSError):
            sock.sendall(bytes(max(0, min(size, 1 << 20))))
        sock.recv(1)

    return serve


def dripping(sock: socket.socket) -> None:
    """Send a response that never ends, one byte at a time."""
    receive(sock)
    sock.sendall(struct.pack(">i", 1000))
    for _ in itertools.count():
        sock.sendall(b"\0")
        time.sleep(0.05)


def tls_dripping(sock: socket.socket) -> None:
    sock.recv(1000)
    for byte in itertools.chain(b"\x16\x03\x03\x40\x00", itertools.repeat(0)):
        sock.sendall(bytes([byte]))
        time.sleep(0.05)


def mute(sock: socket.socket) -> None:
    while sock.recv(1000):
        pass


PLAIN_SETTINGS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": PASSWORD,
}
TLS_SETTINGS = {**PLAIN_SETTINGS, "security.protocol": "SASL_SSL"}
CASES: dict[str, tuple[Peer, type[KafkaError]]] = {
    "challenges without end": (challenging(first), errors.ServerNotTrustedError),
    "wrong signature": (challenging(wrong_signature), errors.ServerNotTrustedError),
    "no signature": (challenging(lambda s: first(s)[:0]), errors.ServerNotTrustedError),
    "one iteration": (challenging(lambda s: first(s, 1)), errors.ServerNotTrustedError),
    "a billion iterations": (challenging(lambda s: first(s, 10**9)), errors.ServerNotTrustedError),
    "a token of 200 KB": (challenging(lambda _: bytes(200_000)), errors.ServerNotTrustedError),
    "a frame of 2 GB": (promising(2**31 - 1), errors.MalformedMessageError),
    "a frame of negative size": (promising(-5), errors.MalformedMessageError),
    "a byte at a time": (dripping, errors.ConnectionSetupTimeoutError),
    "silence": (mute, errors.ConnectionSetupTimeoutError),
    "TLS: a byte at a time": (tls_dripping, errors.ConnectionSetupTimeoutError),
    "TLS: silence": (mute, errors.ConnectionSetupTimeoutError),
}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def serving(listener: socket.socket, peer: Peer) -> None:
    """Let a peer serve each connection, several at a time."""

    def treat(sock: socket.socket) -> None:
        with suppress(OSError, EOFError), sock:
            sock.settimeout(5.0)
            peer(sock)

    def run() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=treat, args=(sock,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()


@pytest.mark.parametrize("name", CASES)
def test_the_connection_attempt_ends_in_time_with_the_expected_error(
    listener: socket.socket, name: str
) -> None:
    peer, kind = CASES[name]
    serving(listener, peer)
    settings = {
        **(TLS_SETTINGS if name.startswith("TLS") else PLAIN_SETTINGS),
        "bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}",
        "socket.connection.setup.timeout.ms": int(SETUP * 1000),
        "socket.connection.setup.timeout.max.ms": int(SETUP * 1000),
    }
    ends: list[tuple[float, str]] = []
    begun = time.monotonic()
    with Admin(settings) as admin:
        admin.listen(
            lambda e: (
                ends.append((time.monotonic() - begun, str(e))) if e.kind == "dial_failed" else None
            )
        )
        with pytest.raises(KafkaError) as caught:
            admin.list_topics(timeout=2 * SETUP + SLACK)
    seconds, event = ends[0]
    assert kind.__name__ in event
    assert seconds < 1.2 * SETUP + SLACK
    if kind.sticky:
        assert type(caught.value) is kind


def test_tls_keys_are_not_logged_unless_configured(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    context = ssl.create_default_context()  # Python's own contexts do read the variable
    assert context.keylog_filename == str(log)
    log.unlink(missing_ok=True)
    serving(listener, mute)
    servers = f"127.0.0.1:{listener.getsockname()[1]}"
    settings = {**TLS_SETTINGS, "bootstrap.servers": servers}
    with Admin(settings) as admin, pytest.raises(KafkaError):
        admin.list_topics(timeout=0.2)
    assert not log.exists()
