"""Test TLS changes in running clients: a new CA, partly written files, no session resumption."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api.loopback_scene import PATIENCE
from tests.unit.network.tls_peers import server_context

from odradek import Consumer, Producer
from odradek.common.errors import ClientCertificateRequiredError
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster
from odradek.testing.brokers.authority import STORE_PASSWORD, Authority
from odradek.testing.fake.loopback import LoopbackServer


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("first"), "the first authority")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("second"), "the second authority")


def broker_context(authority: Authority, clients: Authority | None = None) -> ssl.SSLContext:
    return server_context(authority.issue("broker", hosts=["127.0.0.1"]), clients)


class Scene:
    """A cluster of one broker, which uses the current `server.tls` for new connections."""

    def __init__(self, server: LoopbackServer) -> None:
        self.server = server
        self.cluster = server.call(self._make)
        self.events: list[Event] = []

    def _make(self) -> SimulatedCluster:
        made = SimulatedCluster(self.server, brokers=1, bootstrap_name=None)
        made.create_topic("t")
        return made

    def settings(self, trust: Path, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": str(self.cluster.bootstrap_servers),
            "security.protocol": "SSL",
            "ssl.ca.location": str(trust),
            "retry.backoff.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            **more,
        }

    def cut(self) -> None:
        """Close all connections; the broker accepts new ones at once."""
        self.server.call(lambda: self.cluster.bounce(1, after=0.0))

    def failures(self) -> list[str]:
        return [str(e.fields["error"]) for e in self.events if e.kind == "dial_failed"]


@contextmanager
def scene(tls: ssl.SSLContext) -> Iterator[Scene]:
    with LoopbackServer(tls=tls) as server:
        yield Scene(server)


def wait_for(condition: Callable[[], object], what: Callable[[], object] = str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.01)


def test_a_producer_reads_the_changed_ca_file(
    first: Authority, second: Authority, tmp_path: Path
) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_bytes(first.certificate.read_bytes())
    with scene(broker_context(first)) as now, Producer(now.settings(trust)) as producer:
        producer.listen(now.events.append)
        producer.send("t", b"0").result(PATIENCE)
        now.server.tls = broker_context(second)
        now.cut()
        waiting = producer.send("t", b"1")
        wait_for(now.failures)
        assert "CertificateUntrustedError" in now.failures()[0]
        new = second.certificate.read_bytes()
        for end in (0, 100, len(new) - 30):  # partly written: connecting still fails
            trust.write_bytes(new[:end])
            count = len(now.failures())
            wait_for(lambda count=count: len(now.failures()) > count)  # type: ignore[misc]
            assert "CertificateUntrustedError" in now.failures()[-1]
        assert not waiting.done()
        trust.write_bytes(new)
        assert waiting.result(PATIENCE).offset == 1


KINDS = ["one file", "two files", "PKCS12"]


def key_files(authority: Authority, kind: str, name: str) -> dict[str, Path]:
    """Issue a client's key and certificate; return the files by the option that names them."""
    made = authority.issue(name)
    match kind:
        case "one file":
            return {"ssl.keystore.location": made.both}
        case "two files":
            return {"ssl.key.location": made.key, "ssl.certificate.location": made.certificate}
        case _:
            return {"ssl.keystore.location": made.keystore("PKCS12")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_clients_key_files_are_replaced_while_it_runs(
    first: Authority, second: Authority, tmp_path: Path, kind: str
) -> None:
    old, new = (key_files(authority, kind, "alice") for authority in (first, second))
    places = {option: tmp_path / path.name for option, path in old.items()}
    for option, place in places.items():
        place.touch(0o600)
        place.write_bytes(old[option].read_bytes())
    more: dict[str, Any] = {option: str(place) for option, place in places.items()}
    if kind == "PKCS12":
        more["ssl.keystore.password"] = STORE_PASSWORD
    trust = first.certificate
    with (
        scene(broker_context(first, first)) as now,
        Producer(now.settings(trust, **more)) as producer,
        Consumer(now.settings(trust, **more)) as consumer,
    ):
        producer.listen(now.events.append)
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        producer.send("t", b"0").result(PATIENCE)
        assert [r.value for r in consumer.poll(PATIENCE)] == [b"0"]
        now.server.tls = broker_context(first, second)
        now.cut()
        waiting = producer.send("t", b"1")
        wait_for(now.failures)
        for option, place in places.items():
            data = new[option].read_bytes()
            for end in (0, len(data) // 4, len(data)):
                assert not waiting.done()
                place.write_bytes(data[:end])
                count = len(now.failures())
                if end < len(data):
                    wait_for(lambda count=count: len(now.failures()) > count)  # type: ignore[misc]
        assert waiting.result(PATIENCE).offset == 1
        wait_for_record(consumer, b"1")


def wait_for_record(consumer: Consumer, value: bytes) -> None:
    """Poll until the record arrives and ignore errors of attempts with the old key."""
    found: list[bytes | None] = []
    end = time.monotonic() + PATIENCE
    while value not in found:
        assert time.monotonic() < end
        with suppress(ClientCertificateRequiredError):
            found += [record.value for record in consumer.poll(0.5)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_sessions_are_never_resumed(first: Authority, version: ssl.TLSVersion) -> None:
    """Each connection must check the broker's certificate, so that changed files take effect.

    Brokers offer session tickets; a broker with other ticket keys would reject them.
    """
    tls = broker_context(first)
    tls.minimum_version = tls.maximum_version = version
    with scene(tls) as now, Producer(now.settings(first.certificate)) as producer:
        for number in range(4):
            producer.send("t", b"%d" % number).result(PATIENCE)
            now.cut()
        now.server.tls = broker_context(first)  # with other ticket keys
        now.cut()
        producer.send("t", b"4").result(PATIENCE)
    counts = tls.session_stats()
    assert counts["accept_good"] >= 4
    assert counts["hits"] == 0
