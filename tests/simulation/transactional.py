"""A simulated cluster with transactions, and the producers of the tests about them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

PROTOCOLS = pytest.mark.parametrize("version", [0, 2])
"""Without and with KIP-890's second part; 1 changes nothing for clients."""
P0 = TopicPartition("t", 0)


class Scene:
    """A cluster with topic t, and producers with transactions."""

    def __init__(self, version: int = 2, seed: int = 1) -> None:
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.transactions.version = version
        self.cluster.create_topic("t", partitions=3)

    def producer(self, **config: Any) -> Producer:
        """A producer that has called init_transactions."""
        made = self.uninitialised(**config)
        made.init_transactions()
        return made

    def uninitialised(self, **config: Any) -> Producer:
        config = {"transactional_id": "x", **config}
        servers = self.cluster.bootstrap_servers
        return on_host(self.world.host("producer"), Producer, bootstrap_servers=servers, **config)

    def coordinator(self) -> int:
        leader = self.cluster.leader("__transaction_state", self.cluster.transactions.index("x"))
        assert leader is not None
        return leader.id

    def visible(self) -> list[int]:
        """What read_committed shows, the markers written."""
        self.world.advance(0.1)
        rows = [row for p in range(3) for row in self.cluster.log("t", p).visible_rows()]
        return sorted(int(bytes(row[4] or b"")) for row in rows)

    def committed(self, *partitions: TopicPartition) -> list[OffsetAndMetadata | None]:
        """What group g has committed, as a consumer of its own sees it."""
        servers = self.cluster.bootstrap_servers
        with on_host(
            self.world.host("c"), Consumer, bootstrap_servers=servers, group_id="g"
        ) as consumer:
            return list(consumer.committed(list(partitions)).values())

    def written(self) -> int:
        return sum(len(self.cluster.records("t", p)) for p in range(3))


def send(producer: Producer, numbers: range) -> None:
    for n in numbers:
        producer.send("t", b"%d" % n, partition=n % 3)
