"""The fixed address of a simulated cluster: it leads to any broker that lives now.

In: dials. Out: what a living broker makes of them, or a refusal. Must not: know what is asked.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from odradek.common.types import Address
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.world.environment import Peer, Session, Verdict


class SimulatedFrontDoor:
    """A fixed address that leads to any broker that lives now, as a load balancer does."""

    def __init__(self, address: Address, rng: random.Random) -> None:
        self.address = address
        self.brokers: Mapping[int, SimulatedBroker] = {}
        self.open = True
        self._rng = rng

    def lead_to(self, brokers: Mapping[int, SimulatedBroker]) -> None:
        """Lead to these brokers from now on."""
        self.brokers = brokers

    def close(self, on: bool) -> None:
        """Refuse all connection attempts, or accept them again."""
        self.open = not on

    def accept(self, peer: Peer) -> Session | Verdict:
        """Hand a dial on, or refuse it when nobody lives."""
        alive = [b for b in self.brokers.values() if b.alive]
        if not alive or not self.open:
            return Verdict.REFUSED
        return alive[int(self._rng.random() * len(alive))].accept(peer)
