"""A cluster that requires SASL, and the settings of clients that have the password."""

from __future__ import annotations

from typing import Any

from tests.simulation.scene import Stage

from odradek.api.admin import Admin
from odradek.api.base import on_host
from odradek.simulation.brokers.sasl_listener import SaslListener

USER, PASSWORD = "alice", "planted-secret"
PARTITIONS = 3


class Scene(Stage):
    """A simulated environment whose cluster requires SASL, and the settings of its clients."""

    def __init__(self, seed: int = 1, mechanism: str = "SCRAM-SHA-256", **listener: Any) -> None:
        super().__init__(seed, partitions=PARTITIONS)
        self.mechanism = mechanism
        self.sasl = SaslListener(users={USER: PASSWORD}, wall_clock=self.world.wall_clock)
        for name, value in listener.items():
            setattr(self.sasl, name, value)
        self.cluster.sasl = self.sasl

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a client with the password; `more` overrides them."""
        found = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": self.mechanism}
        if self.mechanism != "OAUTHBEARER":
            found |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return super().settings(**{**found, **more})

    def plain(self) -> Admin:
        """Return the settings of a client without SASL."""
        return on_host(self.world.host("plain"), Admin, super().settings())

    def numbers(self) -> list[int]:
        """Return the numbers in the topic, in the order of each partition."""
        return [int(value or b"") for p in range(PARTITIONS) for value in self.values(p)]
