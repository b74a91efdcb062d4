"""A simulated cluster with a topic, and members of one group that note their callbacks."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

PARTITIONS = [TopicPartition("t", p) for p in range(4)]
MADE: list[Consumer] = []
"""What a test has made; `conftest` closes them after it."""
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Scene:
    """A cluster with topic t, and members of one group."""

    def __init__(self, protocol: str = "classic", seed: int = 1) -> None:
        self.protocol = protocol
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.create_topic("t", partitions=4)
        self.log: list[str] = []

    def member(self, name: str = "a", **config: Any) -> Consumer:
        given = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "group.id": "g",
            "group.protocol": self.protocol,
            **{k.replace("_", "."): v for k, v in config.items()},
        }
        MADE.append(on_host(self.world.host(name), Consumer, given))
        return MADE[-1]

    def subscribed(self, name: str = "a", **config: Any) -> Consumer:
        found = self.member(name, **config)
        found.subscribe(["t"], **self.callbacks(name))
        return found

    def callbacks(self, name: str) -> dict[str, Any]:
        def note(what: str) -> Any:
            def callback(consumer: Consumer, partitions: list[TopicPartition]) -> None:
                numbers = " ".join(str(p.partition) for p in sorted(partitions))
                self.log.append(f"{name} {what} {numbers}".strip())

            return callback

        return {f"on_{what}": note(what) for what in ("assigned", "revoked", "lost")}

    def write(self, numbers: range, topic: str = "t") -> None:
        config = {"bootstrap.servers": self.cluster.bootstrap_servers}
        with on_host(self.world.host("producer"), Producer, config) as producer:
            for n in numbers:
                producer.send(topic, b"%d" % n, partition=n % 4)
            producer.flush(timeout=60)

    def read(self, consumer: Consumer, count: int, most: int = 500) -> list[int]:
        values: list[int] = []
        end = self.world.now + 30
        while len(values) < count:
            values += [int(r.value or b"") for r in consumer.poll(1.0, most)]
            assert self.world.now < end, f"{len(values)} of {count}\n{consumer.explain()}"
        return sorted(values)

    def committed(self) -> list[int | None]:
        """What the group has, asked by a client that isn't a member."""
        with self.member("observer", enable_auto_commit=False) as observer:
            found = observer.committed(PARTITIONS)
        return [None if o is None else o.offset for o in found.values()]
