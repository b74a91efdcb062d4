"""Test TLS 1.2 renegotiation with OpenSSL's server, as Java's and Python's don't support it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import IO, NamedTuple

import pytest
from tests.unit.runtime.peers import PATIENCE, ScriptedEngine, run

from odradek.common.config import Config
from odradek.common.options.values import ADMIN
from odradek.runtime.hosts.thread_host import ThreadHost
from odradek.runtime.tls.tls_context import TlsContexts
from odradek.testing.brokers.authority import Authority, KeyAndCertificate
from odradek.testing.brokers.broker import free_port

DONE = b"SSL_accept:SSLv3/TLS write finished\n"


class Server(NamedTuple):
    """`openssl s_server`, which sends each line of its input and renegotiates at the line `R`."""

    port: int
    says: IO[bytes]
    heard: IO[bytes]

    def hears(self, text: bytes) -> None:
        """Wait until the server prints this line."""
        for line in iter(self.heard.readline, b""):
            if line == text:
                return
        raise AssertionError("the server has ended")


@pytest.fixture
def server(broker: KeyAndCertificate, authority: Authority) -> Iterator[Server]:
    port, pipe = free_port("127.0.0.1"), subprocess.PIPE
    files = ["-cert", broker.certificate, "-key", broker.key, "-CAfile", authority.certificate]
    options = ["-accept", f"127.0.0.1:{port}", "-tls1_2", "-state", *map(str, files)]
    with subprocess.Popen(
        ["openssl", "s_server", *options],
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        made = Server(port, process.stdin, process.stdout)
        try:
            made.hears(b"ACCEPT\n")
            yield made
        finally:
            process.kill()


@pytest.fixture
def host(
    engine: ScriptedEngine, authority: Authority, alice: KeyAndCertificate
) -> Iterator[ThreadHost]:
    found = {
        "ssl.ca.location": str(authority.certificate),
        "ssl.keystore.location": str(alice.both),
    }
    config = Config(ADMIN, {"bootstrap.servers": "b:1", "security.protocol": "SSL", **found})
    made = ThreadHost(tls=TlsContexts(config).context)
    made.attach(engine)
    yield made
    made.close(made.now() + PATIENCE)


def test_a_connection_continues_after_a_renegotiation(
    host: ThreadHost, engine: ScriptedEngine, server: Server
) -> None:
    """In the second handshake, the server also requests the client's certificate."""
    connection = engine.open(server.port, host="localhost")
    run(host, engine.up[connection])
    server.hears(DONE)
    for number in range(1, 4):
        server.says.write(b"R\n")
        server.hears(DONE)
        engine.send(connection, b"%d" % number * 100_000 + b"\n")
        host.wake()
        server.hears(b"%d" % number * 100_000 + b"\n")
        server.says.write(b"again\n")
        run(host, engine.expect(connection, 6 * number))
    assert not engine.down[connection].done
