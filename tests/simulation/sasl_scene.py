"""A cluster that wants SASL, and the settings of clients that know the password."""

from __future__ import annotations

from typing import Any

from odradek.simulation import SimulatedCluster, World
from odradek.simulation.brokers.sasl import SaslListener

USER, PASSWORD = "alice", "planted-secret"
PARTITIONS = 3


class Scene:
    """A world, a cluster, and how its clients are set up."""

    def __init__(self, seed: int = 1, mechanism: str = "SCRAM-SHA-256", **listener: Any) -> None:
        self.world = World(seed=seed)
        self.cluster = SimulatedCluster(self.world, brokers=3)
        self.cluster.create_topic("t", partitions=PARTITIONS)
        self.mechanism = mechanism
        self.sasl = SaslListener(users={USER: PASSWORD}, wall_clock=self.world.wall_clock)
        for name, value in listener.items():
            setattr(self.sasl, name, value)
        self.cluster.sasl = self.sasl

    def settings(self, **more: Any) -> dict[str, Any]:
        """Of a client that knows the password, unless `more` says otherwise."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": self.mechanism,
        }
        if self.mechanism != "OAUTHBEARER":
            found |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return found | {name.replace("_", "."): value for name, value in more.items()}

    def values(self) -> list[int]:
        """What is in the topic, in the order of each partition."""
        rows = [r for p in range(PARTITIONS) for r in self.cluster.records("t", p)]
        return [int(bytes(row[4] or b"")) for row in rows]
