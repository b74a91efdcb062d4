"""Each time at the largest value that its option takes: what is read must work, too.

A time that travels has fewer bits in a request than in an option. One that was taken and couldn't
be written failed later, at every poll.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.config import OPTIONS, Config
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.group_options import NOT_WITH_NEW
from odradek.common.kafka_errors import InvalidSessionTimeoutError, InvalidTransactionTimeoutError
from odradek.common.option_values import ADMIN, CONSUMER, PRODUCER
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

TIMES = [name for name in OPTIONS if name.endswith(".ms") and "sasl" not in name]
BESIDE = {
    "fetch.max.wait.ms": {"request.timeout.ms": 2**31 - 1},
    "heartbeat.interval.ms": {"session.timeout.ms": 2**31 - 1},
}
"""What an option must be below."""
REFUSED: dict[str, type[KafkaError]] = {
    "session.timeout.ms": InvalidSessionTimeoutError,
    "heartbeat.interval.ms": InvalidSessionTimeoutError,
    "transaction.timeout.ms": InvalidTransactionTimeoutError,
}
"""What brokers don't take so long; but they were told."""


def largest(client: str, name: str, servers: str) -> dict[str, Any]:
    """The configuration with this one at its largest."""
    base: dict[str, Any] = {"bootstrap.servers": servers}
    base |= {n: v for n, v in BESIDE.get(name, {}).items() if client in OPTIONS[n].clients}
    for value in (2**63 - 1, 10**15, 2**31 - 1, 2**31 - 2):
        try:
            Config(client, {**base, name: value})
        except ConfigurationError:
            continue
        return {**base, name: value}
    raise AssertionError(f"{name} takes none of them")


def scene() -> tuple[World, SimulatedCluster]:
    world = World(seed=3)
    cluster = SimulatedCluster(world, brokers=2)
    cluster.create_topic("t", partitions=2)
    return world, cluster


@pytest.mark.parametrize("name", [n for n in TIMES if PRODUCER in OPTIONS[n].clients])
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
def test_of_a_producer(name: str, transactional: bool) -> None:
    world, cluster = scene()
    config = largest(PRODUCER, name, cluster.bootstrap_servers)
    if transactional:
        config["transactional.id"] = "x"
    producer = on_host(world.host("producer"), Producer, config)
    if transactional:
        if name in REFUSED:
            with pytest.raises(REFUSED[name]):
                producer.init_transactions(30)
            return
        producer.init_transactions(30)
        producer.begin_transaction()
    sent = [producer.send("t", b"%d" % i, partition=i % 2) for i in range(4)]
    if transactional:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
    assert [one.result(5).offset for one in sent] == [0, 0, 1, 1]
    producer.close(5)


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        (name, protocol)
        for protocol in ("assigned", "classic", "consumer")
        for name in TIMES
        if CONSUMER in OPTIONS[name].clients
        and not (protocol == "consumer" and name in NOT_WITH_NEW)
    ],
)
def test_of_a_consumer(name: str, protocol: str) -> None:
    world, cluster = scene()
    feed = on_host(world.host("feed"), Producer, {"bootstrap.servers": cluster.bootstrap_servers})
    for i in range(4):
        feed.send("t", b"%d" % i, partition=i % 2).result(5)
    config = largest(CONSUMER, name, cluster.bootstrap_servers)
    config["auto.offset.reset"] = "earliest"
    if protocol != "assigned":
        config |= {"group.id": "g", "group.protocol": protocol}
    consumer = on_host(world.host("consumer"), Consumer, config)
    if protocol == "assigned":
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    else:
        consumer.subscribe(["t"])
    if protocol == "classic" and name in REFUSED:
        with pytest.raises(REFUSED[name]):
            consumer.poll(30)
        return
    found = 0
    for _ in range(30):
        found += len(consumer.poll(1.0))
        if found == 4:
            break
    assert found == 4
    if protocol != "assigned":
        consumer.commit(timeout=5)
    consumer.close()


@pytest.mark.parametrize("name", [n for n in TIMES if ADMIN in OPTIONS[n].clients])
def test_of_an_admin(name: str) -> None:
    world, cluster = scene()
    admin = on_host(world.host("admin"), Admin, largest(ADMIN, name, cluster.bootstrap_servers))
    assert admin.describe_cluster().cluster_id
    admin.close()


@pytest.mark.parametrize("idle", [0, -1, 100, 2**63 - 1])
def test_idle_times_at_their_edges(idle: int) -> None:
    """0 closed each connection before it was used: nothing was ever delivered."""
    world, cluster = scene()
    config = {"bootstrap.servers": cluster.bootstrap_servers, "connections.max.idle.ms": idle}
    producer = on_host(world.host("producer"), Producer, config)
    for i in range(3):
        assert producer.send("t", b"x", partition=0).result(1).offset == i
        world.advance(60.0)
    producer.close(5)
