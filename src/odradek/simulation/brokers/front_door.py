"""Simulate a cluster's fixed bootstrap address, which connects clients to any live broker.

In: connection attempts. Out: the outcome at a live broker, or a refusal. Must not know requests.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from odradek.common.types import Address
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.world.environment import Peer, Session, Verdict


class SimulatedFrontDoor:
    """A fixed address that connects to any live broker, like a load balancer."""

    def __init__(self, address: Address, rng: random.Random) -> None:
        self.address = address
        self.brokers: Mapping[int, SimulatedBroker] = {}
        self.open = True
        self._rng = rng

    def lead_to(self, brokers: Mapping[int, SimulatedBroker]) -> None:
        """Connect clients to these brokers from now on, instead of the former ones."""
        self.brokers = brokers

    def close(self, on: bool) -> None:
        """Refuse all connection attempts, or (with `on` false) accept them again."""
        self.open = not on

    def accept(self, peer: Peer) -> Session | Verdict:
        """Pass a connection to a live broker, or refuse it if there is none."""
        alive = [b for b in self.brokers.values() if b.alive]
        if not alive or not self.open:
            return Verdict.REFUSED
        return alive[int(self._rng.random() * len(alive))].accept(peer)
