"""Change passwords, and the certificates of both sides, while clients run."""

from __future__ import annotations

import datetime
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from tests.interop.our_client import read
from tests.proxy_server import ProxyServer

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import (
    ClientCertificateRequiredError,
    CredentialsRefusedError,
    KafkaError,
)
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster
from odradek.testing.brokers.authority import Authority

SESSION = 2.0
"""Seconds until brokers require a client to authenticate again (KIP-368)."""


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalCluster]:
    """Return one broker that requires a certificate and a password, and reauthentication."""
    with LocalCluster(
        brokers=1,
        security="SASL_SSL",
        mechanisms=["SCRAM-SHA-256"],
        users={"alice": "alice-secret", "carol": "carol-secret"},
        mutual_tls="required",
        config={"connections.max.reauth.ms": str(int(SESSION * 1000))},
    ) as running:
        yield running


def test_a_changed_password_takes_effect_when_clients_reauthenticate(
    strict: LocalCluster, topic: str
) -> None:
    """Check that a connected client works until it reauthenticates, which fails."""
    strict.create_topic(topic)
    before = strict.client_config("carol")
    patient = {"delivery.timeout.ms": 15_000, "request.timeout.ms": 5_000}
    with Producer({**before, **patient}) as producer, Consumer(before) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        proofs: list[Event] = []
        producer.listen(lambda e: proofs.append(e) if e.kind == "reauthenticated" else None)
        sent = 0
        end = time.monotonic() + 2 * SESSION
        while time.monotonic() < end:  # longer than one SASL session: clients reauthenticate
            producer.send(topic, b"%d" % sent).result(timeout=60)
            sent += 1
            time.sleep(0.02)
        assert [int(r.value or b"") for r in read(consumer, sent)] == list(range(sent))

        known, end = len(proofs), time.monotonic() + 5 * SESSION
        while len(proofs) == known:  # so that the producer's session has just started
            assert time.monotonic() < end
            time.sleep(0.02)
        strict.change_password("carol", "carol-has-another")
        producer.send(topic, b"still in").result(timeout=60)
        began = time.monotonic()
        with pytest.raises(CredentialsRefusedError) as caught:
            while True:
                consumer.poll(0.2)
                assert time.monotonic() < began + 10 * SESSION
        assert "carol-secret" not in str(caught.value)
        with pytest.raises(CredentialsRefusedError), Producer(before) as late:
            late.send(topic, b"with the old one").result(timeout=60)
        with Producer(strict.client_config("carol")) as late:
            late.send(topic, b"with the new one").result(timeout=60)
        # A connected producer keeps its records as long as in any outage, then reports the reason.
        with pytest.raises(KafkaError, match="invalid credentials"):
            while time.monotonic() < began + 20 * SESSION:  # the producer's session may be new
                producer.send(topic, b"not any more").result(timeout=30)
                time.sleep(0.1)
        for client in (producer, consumer):
            client.set_sasl_credentials("carol", "carol-has-another")
        producer.send(topic, b"again").result(timeout=60)
        last = []
        while b"again" not in last:
            with suppress(CredentialsRefusedError):  # the response to an earlier attempt
                last = [r.value for r in consumer.poll(5)]


def test_rotated_certificates_are_used_for_new_connections(
    strict: LocalCluster, topic: str
) -> None:
    """Replace the brokers' certificate at runtime; a client rereads its file when it connects."""
    strict.create_topic(topic)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=4)
    config = strict.client_config("alice")
    strict.authority.issue("alice", ends=soon)
    with (
        ProxyServer() as proxy,
        Producer(config, proxy_url=proxy.url("socks5")) as producer,
    ):
        producer.send(topic, b"with the first certificates").result(timeout=60)
        before = serial_of(strict)
        strict.rotate_certificates()
        assert serial_of(strict) != before
        producer.send(topic, b"over the old connection").result(timeout=60)
        time.sleep(max(0.0, (soon - datetime.datetime.now(datetime.UTC)).total_seconds()) + 1)
        with pytest.raises(ClientCertificateRequiredError), Producer(config) as late:
            late.send(topic, b"with an expired certificate").result(timeout=60)
        strict.authority.issue("alice")
        proxy.cut()
        producer.send(topic, b"with the second certificates").result(timeout=30)


def test_half_written_certificate_files_are_never_used(
    strict: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Write files in place and in pieces; each new connection uses complete files."""
    strict.create_topic(topic)
    config, places = strict.client_config("alice"), dict[str, Path]()
    for option in ("ssl.truststore.location", "ssl.keystore.location"):
        places[option] = tmp_path / option
        places[option].touch(0o600)
        places[option].write_bytes(Path(config[option]).read_bytes())
    other = Authority(tmp_path / "other", "another authority").certificate.read_bytes()
    failed, rounds = list[Event](), 4
    with ProxyServer() as proxy:
        config |= {option: str(place) for option, place in places.items()}
        config |= {"proxy.url": proxy.url("socks5"), "delivery.timeout.ms": 60_000}
        with Producer(config) as producer, Consumer(config) as consumer:
            for client in (producer, consumer):
                client.listen(lambda e: failed.append(e) if e.kind == "dial_failed" else None)
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            sent, found = 0, list[int]()
            for number in range(rounds):
                trusted = strict.authority.certificate.read_bytes() + other * (number % 2)
                new = {
                    "ssl.truststore.location": trusted,
                    "ssl.keystore.location": strict.authority.issue("alice").both.read_bytes(),
                }
                for option, content in new.items():
                    for end in (0, 300, len(content)):
                        places[option].write_bytes(content[:end])
                        proxy.cut()
                        for _ in range(5):
                            producer.send(topic, b"%d" % sent)
                            sent += 1
                        producer.flush(timeout=30)
                        found += [int(r.value or b"") for r in read(consumer, 5)]
    assert found == list(range(sent))
    wrong = [e for e in failed if "the broker closed the connection" not in str(e)]
    assert wrong == []


def test_sessions_are_renewed_under_full_load(strict: LocalCluster, topic: str) -> None:
    """Expire sessions every 2 s while a producer and a group send and read at full speed."""
    strict.create_topic(topic, 3)
    config, sent, lost = strict.client_config("alice"), 0, list[Event]()
    fast = {"linger.ms": 1, "delivery.timeout.ms": 60_000}
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    with Producer({**config, **fast}) as producer, Consumer({**config, **group}) as consumer:
        for client in (producer, consumer):
            client.listen(lambda e: lost.append(e) if e.fields.get("failure") else None)
        consumer.subscribe([topic])
        found = defaultdict[int, list[int]](list)

        def read_all() -> None:
            while sending.is_set() or sum(map(len, found.values())) < sent:
                for record in consumer.poll(0.5):
                    found[record.partition].append(int(record.value or b""))

        pair = (producer, consumer)

        def renewed() -> list[int]:
            return [one._engine.events.counts.get("reauthenticated", 0) for one in pair]

        sending = threading.Event()
        sending.set()
        reader = threading.Thread(target=read_all)
        reader.start()
        try:
            end = time.monotonic() + 60
            while min(renewed()) < 2 and time.monotonic() < end:
                producer.send(topic, b"%d" % sent, partition=sent % 3)
                sent += 1
            producer.flush(timeout=60)
        finally:
            sending.clear()
            reader.join(60)
        again = renewed()
    assert found == {n: list(range(n, sent, 3)) for n in range(3)}
    assert min(again) >= 2
    # A machine that stops for 0.1 s may let a session expire.
    assert len(lost) < sum(again) / 2, lost


def serial_of(cluster: LocalCluster) -> int:
    """Return the serial number of the certificate that a new connection receives."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    text = ssl.get_server_certificate((host, int(port)), timeout=60)
    return x509.load_pem_x509_certificate(text.encode()).serial_number
