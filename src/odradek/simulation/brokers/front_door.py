"""The fixed address of a simulated cluster: it leads to any broker that lives now.

In: dials. Out: what a living broker makes of them, or a refusal. Must not: know what is asked.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from odradek.common.types import Address
from odradek.simulation.world.environment import Peer, Session, Verdict

if TYPE_CHECKING:
    from odradek.simulation.brokers.cluster import SimulatedCluster


class SimulatedFrontDoor:
    """A fixed address that leads to any broker that lives now, as a load balancer does."""

    def __init__(self, address: Address, rng: random.Random) -> None:
        self.address = address
        self.cluster: SimulatedCluster | None = None
        self.open = True
        self._rng = rng

    def lead_to(self, cluster: SimulatedCluster) -> None:
        """Lead to the brokers of this cluster from now on."""
        self.cluster = cluster

    def close(self, on: bool) -> None:
        """Refuse all connection attempts, or accept them again."""
        self.open = not on

    def accept(self, peer: Peer) -> Session | Verdict:
        """Hand a dial on, or refuse it when nobody lives."""
        cluster = self.cluster
        alive = [b for b in cluster.brokers.values() if b.alive] if cluster is not None else []
        if not alive or not self.open:
            return Verdict.REFUSED
        return alive[int(self._rng.random() * len(alive))].accept(peer)
