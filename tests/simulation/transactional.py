"""A simulated cluster with transactions, and the producers of tests about them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.produce_script import leader_of
from tests.simulation.scene import Stage

from odradek.api.producer import Producer
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.types import TopicPartition
from odradek.simulation.brokers.broker import SimulatedBroker

PROTOCOLS = pytest.mark.parametrize("version", [0, 2])
"""Without and with KIP-890's second part; version 1 doesn't differ for clients."""
P0 = TopicPartition("t", 0)


class Scene(Stage):
    """A cluster with topic t, and transactional producers."""

    def __init__(self, version: int = 2, seed: int = 1) -> None:
        super().__init__(seed)
        self.cluster.transactions.finalize(version)

    def producer(self, **config: Any) -> Producer:
        """Create a producer and call its init_transactions()."""
        made = self.uninitialised(**config)
        made.init_transactions()
        return made

    def uninitialised(self, **config: Any) -> Producer:
        return self.client(Producer, **{"transactional_id": "x", **config})

    def coordinator(self) -> int:
        index = self.cluster.transactions.index("x")
        return leader_of(self.cluster, index, "__transaction_state").id

    def coordinator_of_group(self) -> SimulatedBroker:
        """Return the broker that stores the offsets of group g."""
        return leader_of(self.cluster, self.cluster.groups.index("g"), "__consumer_offsets")

    def visible(self) -> list[int]:
        """Return the records visible with read_committed, once the markers are written."""
        self.world.advance(0.1)
        rows = [row for p in range(3) for row in self.cluster.log("t", p).visible_rows()]
        return sorted(int(bytes(row[4] or b"")) for row in rows)

    def committed(self, *partitions: TopicPartition) -> list[OffsetAndMetadata | None]:
        """Return the committed offset of group g, requested by a separate consumer."""
        with self.consumer(group_id="g") as consumer:
            return list(consumer.committed(list(partitions)).values())

    def written(self) -> int:
        return sum(len(self.cluster.records("t", p)) for p in range(3))


def send(producer: Producer, numbers: range) -> None:
    for n in numbers:
        producer.send("t", b"%d" % n, partition=n % 3)
