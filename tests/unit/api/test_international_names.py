"""Test that DNS and TLS use the A-label of an international host name, and errors the name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.api.loopback_scene import PATIENCE
from tests.unit.network.tls_peers import authority, server_context

from odradek import AsyncProducer, Producer
from odradek.common.errors import HostNameMismatchError, KafkaTimeoutError
from odradek.simulation import SimulatedCluster
from odradek.testing.brokers.authority import Authority
from odradek.testing.fake.loopback import LOOPBACK, LoopbackServer

__all__ = ["authority"]

LABEL = "xn--bcher-kva.example"
NAMES = ["bücher.example", "BÜCHER.Example.", LABEL]


@pytest.fixture(autouse=True)
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names for which `getaddrinfo` is called; only LABEL resolves."""
    found: list[str] = []
    getaddrinfo = socket.getaddrinfo

    def of_loopback(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(host, str):
            found.append(host)
            known = host.encode("idna").decode().lower().rstrip(".") == LABEL
            if not known:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = LOOPBACK
        return getaddrinfo(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", of_loopback)
    return found


class Broker:
    """A broker whose certificate contains the given name and the loopback address."""

    def __init__(self, authority: Authority, name: str) -> None:
        tls = server_context(authority.issue("broker", hosts=[name, LOOPBACK]))
        tls.sni_callback = lambda _, name, __: self.names.append(name)
        self.names: list[str | None] = []
        """The server names that clients have sent (SNI)."""
        self.trust = str(authority.certificate)
        self.server = LoopbackServer(tls=tls)

    def settings(self, name: str) -> dict[str, Any]:
        made = self.server.call(
            lambda: SimulatedCluster(self.server, brokers=1, bootstrap_name=None)
        )
        self.server.call(lambda: made.create_topic("t"))
        port = made.bootstrap_servers.rpartition(":")[2]
        return {
            "bootstrap.servers": f"{name}:{port}",
            "security.protocol": "SSL",
            "ssl.ca.location": self.trust,
        }


@pytest.fixture
def broker(authority: Authority) -> Iterator[Broker]:
    made = Broker(authority, LABEL)
    with made.server:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_dns_and_tls_use_the_a_label(broker: Broker, resolved: list[str], name: str) -> None:
    with Producer(broker.settings(name)) as producer:
        assert producer.send("t", b"x").result(PATIENCE).offset == 0
    assert resolved[0] == name  # Python's resolver encodes the name
    assert broker.names[0] == ("xn--bcher-kva.Example" if "E" in name else LABEL)


def test_the_asyncio_client_uses_the_a_label(broker: Broker) -> None:
    async def send() -> int:
        async with AsyncProducer(broker.settings(NAMES[0])) as producer:
            return (await producer.send_and_wait("t", b"x")).offset

    assert asyncio.run(send()) == 0
    assert broker.names[0] == LABEL


def test_a_certificate_for_another_name_is_rejected(authority: Authority) -> None:
    other = Broker(authority, "other.example")
    with (
        other.server,
        Producer(other.settings(NAMES[0])) as producer,
        pytest.raises(HostNameMismatchError) as caught,
    ):
        producer.send("t", b"x").result(PATIENCE)
    assert str(caught.value).startswith(f"{NAMES[0]}:")
    assert f"isn't valid for '{LABEL}'" in str(caught.value), "the name in the certificate"


@pytest.mark.parametrize("name", ["bröt.example", "ü" * 64 + ".example"])
def test_the_error_names_the_host_that_does_not_resolve(name: str) -> None:
    quick = {"metadata.unavailable.timeout.ms": 100}
    with (
        Producer({"bootstrap.servers": f"{name}:9092", **quick}) as producer,
        pytest.raises(KafkaTimeoutError, match=f"the name '{name}' doesn't resolve"),
    ):
        producer.send("t", b"x").result(PATIENCE)
