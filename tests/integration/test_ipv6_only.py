"""Test real brokers that only listen on IPv6, by an address or a name without IPv4."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.integration.test_doctor_command import doctor, wrong
from tests.interop.our_client import read

from odradek import Admin, AsyncProducer, Consumer, Producer
from odradek.testing import LocalCluster
from odradek.testing.brokers import broker, broker_set

HOST = "::1"
TOPIC = "t"


def free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker_set, "_host", lambda *_: HOST)
        patched.setattr(broker, "free_port", free_port)
        with LocalCluster(brokers=1, security="SSL") as running:
            running.create_topic(TOPIC)
            yield running


def test_the_doctor_accepts_ipv6_and_a_name_with_only_an_ipv6_address_works(
    brokers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server,) = brokers.broker_addresses
    file = tmp_path / "client.properties"
    lines = brokers.client_config().items()
    file.write_text("".join(f"{k}={v}\n" for k, v in lines if k != "bootstrap.servers"))
    status, found = doctor(server, "--topic", TOPIC, "--command-config", str(file))
    assert (status, wrong(found)) == (0, []), found
    assert found["steps"][0]["detail"] == HOST

    def only_ipv6(host: str, port: int, **more: Any) -> Any:
        return getaddrinfo(HOST if host == "localhost" else host, port, **more)

    getaddrinfo = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", only_ipv6)
    port = server.rpartition(":")[2]
    config = {**brokers.client_config(), "bootstrap.servers": f"localhost:{port}"}

    async def send() -> int:
        async with AsyncProducer(config) as producer:
            return (await producer.send_and_wait(TOPIC, b"x")).partition

    assert asyncio.run(send()) == 0


def test_every_client_connects_to_an_ipv6_address(brokers: LocalCluster, topic: str) -> None:
    brokers.create_topic(topic)
    (server,) = brokers.broker_addresses
    assert server.startswith("[::1]:")
    config = {**brokers.client_config(), "bootstrap.servers": server}
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    theirs = {**brokers.librdkafka_config(), "bootstrap.servers": server}
    with Producer(config) as producer:
        assert producer.send(topic, b"0").result(timeout=30).offset == 0
        other = confluent_kafka.Producer(theirs)
        other.produce(topic, b"1")
        assert other.flush(30) == 0
        with Consumer({**config, **group}) as consumer:
            consumer.subscribe([topic])
            assert [r.value for r in read(consumer, 2)] == [b"0", b"1"]
    nothing = f"[::1]:{free_port(HOST)}"  # nothing listens there
    with Admin({**config, "bootstrap.servers": [nothing, server]}) as admin:
        (one,) = admin.describe_cluster().brokers
        assert f"[{one.host}]:{one.port}" == server
