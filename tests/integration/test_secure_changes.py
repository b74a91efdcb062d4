"""What changes under running clients: passwords, and the certificates of both sides."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress

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

SESSION = 2.0
"""Seconds until brokers want a client to prove again who it is (KIP-368)."""


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalCluster]:
    """One broker that wants a certificate and a password, the latter again and again."""
    with LocalCluster(
        brokers=1,
        security="SASL_SSL",
        mechanisms=["SCRAM-SHA-256"],
        users={"alice": "alice-secret", "carol": "carol-secret"},
        mutual_tls="required",
        config={"connections.max.reauth.ms": str(int(SESSION * 1000))},
    ) as running:
        yield running


def test_a_password_is_changed(strict: LocalCluster, topic: str) -> None:
    """Who is in stays in until he has to prove who he is, and hears why he can't."""
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
        while time.monotonic() < end:  # more than one session: none is lost on the way
            producer.send(topic, b"%d" % sent).result(timeout=60)
            sent += 1
            time.sleep(0.02)
        assert [int(r.value or b"") for r in read(consumer, sent)] == list(range(sent))

        known, end = len(proofs), time.monotonic() + 5 * SESSION
        while len(proofs) == known:  # so that its session has just begun
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
        # A producer that was in keeps its records as long as in any outage, and says what it was.
        with pytest.raises(KafkaError, match="invalid credentials"):
            while time.monotonic() < began + 20 * SESSION:  # its own session may just have begun
                producer.send(topic, b"not any more").result(timeout=30)
                time.sleep(0.1)
        for client in (producer, consumer):
            client.set_sasl_credentials("carol", "carol-has-another")
        producer.send(topic, b"again").result(timeout=60)
        last = []
        while b"again" not in last:
            with suppress(CredentialsRefusedError):  # the answer to an attempt from before
                last = [r.value for r in consumer.poll(5)]


def test_certificates_are_rotated(strict: LocalCluster, topic: str) -> None:
    """The brokers' while they run; a client's file is read again for its next connection."""
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


def serial_of(cluster: LocalCluster) -> int:
    """The number of the certificate that a new connection is shown."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    text = ssl.get_server_certificate((host, int(port)), timeout=60)
    return x509.load_pem_x509_certificate(text.encode()).serial_number
