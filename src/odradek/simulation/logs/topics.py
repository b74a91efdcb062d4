"""Hold topics and partitions of a simulated cluster, with leaders and leader epochs.

In: elections. Out: state from which all brokers of the cluster answer requests. Must not know
connections.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from odradek.simulation.logs.partition_log import PartitionLog

NO_LEADER = -1


@dataclass(slots=True)
class SimulatedPartition:
    """One partition: its replicas, its leader and its log."""

    index: int
    replicas: list[int]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    offsets_unavailable_until: float = 0.0
    """Time until which a new leader returns OFFSET_NOT_AVAILABLE (R-PR-2), in virtual seconds."""

    def copied(self) -> SimulatedPartition:
        """Return an independent partition with the same leader and records."""
        return replace(self, replicas=list(self.replicas), log=self.log.copied())

    def lose_leader(self, rng: random.Random) -> None:
        """Handle the loss of the leader: choose at random how many uncommitted batches survive."""
        self.log.leader_lost(keep=rng.randint(0, len(self.log.uncommitted())))

    def elect(
        self, candidates: Collection[int], offsets_unavailable_until: float | None = None
    ) -> None:
        """Elect the first live replica as leader, if there is one, and begin a new leader epoch."""
        if offsets_unavailable_until is not None:
            self.offsets_unavailable_until = offsets_unavailable_until
        alive = [r for r in self.replicas if r in candidates]
        if alive:
            self.leader, self.leader_epoch = alive[0], self.leader_epoch + 1
        elif self.leader != NO_LEADER:
            self.leader, self.leader_epoch = NO_LEADER, self.leader_epoch + 1

    def reassign(self, replicas: Sequence[int], candidates: Collection[int]) -> None:
        """Move the partition, with its complete log, to other brokers."""
        self.replicas = list(replicas)
        if self.leader not in self.replicas:
            alive = [r for r in self.replicas if r in candidates]
            self.lead(alive[0] if alive else NO_LEADER)

    def begin_epoch(self) -> None:
        """Begin a new leader epoch of the same leader."""
        self.leader_epoch += 1

    def lead(self, broker: int) -> None:
        """Move the leadership to a broker, without a loss of records."""
        # The new leader has the uncommitted batches, too. Their producers get
        # NOT_LEADER_OR_FOLLOWER nevertheless, and their retries must be recognized as duplicates.
        self.leader, self.leader_epoch = broker, self.leader_epoch + 1
        self.log.leader_lost(keep=len(self.log.uncommitted()))


@dataclass(slots=True)
class SimulatedTopic:
    """One topic with its id and partitions."""

    name: str
    id: bytes
    partitions: list[SimulatedPartition]

    def copied(self) -> SimulatedTopic:
        """Return an independent topic with the same name, id and records."""
        return replace(self, partitions=[p.copied() for p in self.partitions])

    @property
    def internal(self) -> bool:
        """Whether brokers store their own state in the topic."""
        return self.name in ("__consumer_offsets", "__transaction_state")
