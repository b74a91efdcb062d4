"""Run TLS handshakes in memory, so that OpenSSL's own errors appear."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest

from odradek.testing.brokers.authority import Authority, KeyAndCertificate

NAME = "localhost"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


def server_context(broker: KeyAndCertificate, clients: Authority | None = None) -> ssl.SSLContext:
    """Return a broker's TLS context; if `clients` is given, it requires client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(broker.both)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context


def shake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = NAME) -> ssl.SSLObject:
    """Run a handshake and a short read; return the client's TLS object or raise its error."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(8):
        with suppress(ssl.SSLWantReadError):
            mine.do_handshake()
            assert mine.read(4) == b"word"
            return mine
        with suppress(ssl.SSLError):  # the server's error: the client receives an alert
            theirs.do_handshake()
            theirs.write(b"word")
    raise AssertionError("the handshake has no end")
