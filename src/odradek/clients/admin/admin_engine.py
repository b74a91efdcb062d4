"""Define the engine of an admin client, which all of its calls share.

In: calls (`AdminCall`). Out: their results. Each call has its own backoff (KIP-580), and is retried
until its deadline (R-RT-2). A KRaft broker forwards changes to the controller, so they can be sent
to any broker. Must not: change the client's metadata snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.clients.admin.coordinators import KnownCoordinators
from odradek.clients.client_engine import ClientEngine
from odradek.common.config import Config
from odradek.common.types import Rng

NEW_TOPIC_GRACE_S = 30.0
"""Seconds for which a broker may not know a topic that another broker has created."""


class AdminEngine(ClientEngine):
    """Engine of an admin client."""

    def __init__(self, config: Config, rng: Rng) -> None:
        super().__init__(config, rng)
        self._fresh: dict[str, float] = {}
        """Topics that this client created, and the time until which a broker may not know them."""
        self.coordinators = KnownCoordinators(self.brokers)

    def made(self, topics: Iterable[str]) -> None:
        """Record that these topics have just been created."""
        self._fresh = {n: until for n, until in self._fresh.items() if until > self.now}
        self._fresh.update(dict.fromkeys(topics, self.now + NEW_TOPIC_GRACE_S))

    def deleted(self, topics: Iterable[str]) -> None:
        """Record that these topics have just been deleted."""
        for name in topics:
            self._fresh.pop(name, None)

    def just_made(self, topic: str) -> bool:
        """Return whether some brokers may not know a topic that this client created."""
        return self._fresh.get(topic, 0.0) > self.now
