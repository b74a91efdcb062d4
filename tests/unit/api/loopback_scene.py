"""Provide a simulated broker on a loopback socket, for tests of clients with real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.api.producer import Producer
from odradek.simulation import SimulatedCluster
from odradek.testing.fake.loopback import LoopbackServer

PATIENCE = 60.0


@contextmanager
def one_broker(partitions: int = 1, topic: str = "t") -> Iterator[tuple[LoopbackServer, str]]:
    """Start a server with one topic; yield the server and its bootstrap address."""
    with LoopbackServer() as server:

        def make() -> SimulatedCluster:
            cluster = SimulatedCluster(server, brokers=1, bootstrap_name=None)
            cluster.create_topic(topic, partitions=partitions)
            return cluster

        cluster = server.call(make)
        yield server, str(cluster.bootstrap_servers)


def fill(servers: str, count: int, topic: str = "t") -> None:
    """Write `count` records to partition 0."""
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, str(number).encode(), partition=0)
