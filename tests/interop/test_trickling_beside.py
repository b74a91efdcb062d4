"""Test a broker whose responses trickle, with our producer and confluent-kafka's (R-TI-1).

The existing connections get one byte each 1.5 s; new ones are fast. A client has to close the
connection at its request timeout and send the record again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from odradek import Producer
from odradek.testing import FakeCluster

TIMEOUT_MS = 4000
EVERY = 1.5


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1, topics=["t"]) as running:
        yield running


def trickle(fake: FakeCluster) -> None:
    """Slow down the existing connections."""

    def begin() -> None:
        for broker in fake._cluster.brokers.values():
            for session in broker.sessions:
                session.peer.trickle(EVERY)

    fake._call(begin)


def odradek(servers: str) -> Callable[[bytes], None]:
    producer = Producer({"bootstrap.servers": servers, "request.timeout.ms": TIMEOUT_MS})

    def send(value: bytes) -> None:
        producer.send("t", value).result(60)
        if value == b"second":
            producer.close()

    return send


def confluent(servers: str) -> Callable[[bytes], None]:
    settings = {
        "bootstrap.servers": servers, "enable.idempotence": True,
        "socket.timeout.ms": TIMEOUT_MS, "request.timeout.ms": TIMEOUT_MS,
    }  # fmt: skip
    producer = confluent_kafka.Producer(settings)

    def send(value: bytes) -> None:
        producer.produce("t", value)
        assert producer.flush(60) == 0

    return send


@pytest.mark.parametrize("client", [odradek, confluent])
def test_a_record_is_written_once_although_its_response_trickles(
    client: Callable[[str], Callable[[bytes], None]], fake: FakeCluster
) -> None:
    send = client(fake.bootstrap_servers)
    send(b"first")
    trickle(fake)
    began = time.monotonic()
    send(b"second")
    assert time.monotonic() - began >= TIMEOUT_MS / 1000 - 1.0  # the responses did trickle
    assert [row[4] for row in fake.records("t")] == [b"first", b"second"]
