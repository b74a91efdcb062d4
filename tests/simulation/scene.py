"""The simulated cluster and its clients that most tests of this folder start with."""

from __future__ import annotations

from typing import Any, TypeVar

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.simulation import SimulatedCluster, World
from odradek.simulation.world.link import Mode

C = TypeVar("C", Admin, Consumer, Producer)


class Stage:
    """A simulated environment whose cluster has topic t (no topic if `partitions` is 0)."""

    def __init__(
        self, seed: int = 1, brokers: int = 3, partitions: int = 3, **cluster: Any
    ) -> None:
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=brokers, **cluster)
        if partitions:
            self.cluster.create_topic("t", partitions=partitions)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a client; options may be written with underscores."""
        given = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.cluster.bootstrap_servers, **given}

    def client(
        self,
        kind: type[C],
        name: str = "",
        *,
        mode: Mode = "bytes",
        background: bool = True,
        **config: Any,
    ) -> C:
        """Create a client on an I/O host of its own, by default named after the client's class."""
        host = self.world.host(name or kind.__name__.lower(), mode=mode, background=background)
        return on_host(host, kind, self.settings(**config))

    def producer(self, **config: Any) -> Producer:
        return self.client(Producer, **config)

    def consumer(self, **config: Any) -> Consumer:
        return self.client(Consumer, **{"auto_offset_reset": "earliest", **config})

    def write(self, numbers: range, topic: str = "t", size: int = 0, **config: Any) -> None:
        """Write these numbers round-robin to the partitions, each padded with `size` bytes."""
        partitions = len(self.cluster.topics[topic].partitions)
        with self.client(Producer, **config) as producer:
            for n in numbers:
                producer.send(topic, b"%d" % n + bytes(size), partition=n % partitions)
            producer.flush(timeout=60)

    def read(self, consumer: Consumer, count: int, most: int = 500) -> list[int]:
        """Poll until `count` numbers were read, for at most 30 s, and return them sorted."""
        values: list[int] = []
        end = self.world.now + 30
        while len(values) < count:
            values += [int(r.value or b"") for r in consumer.poll(1.0, most)]
            assert self.world.now < end, f"{len(values)} of {count}\n{consumer.explain()}"
        return sorted(values)

    def disconnect(self) -> None:
        """Disconnect the clients of all brokers."""
        for broker in self.cluster.brokers.values():
            broker.disconnect_all()

    def values(self, partition: int = 0) -> list[bytes | None]:
        """Return the values in a partition of t."""
        return [row[4] for row in self.cluster.records("t", partition)]
