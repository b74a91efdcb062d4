"""KIP-392: which replica each partition is read from, if not from its leader.

In: what leaders prefer for our rack, metadata, failures. Out: the broker to ask. Whatever is wrong
with a replica, the leader is asked next, and for a while without naming our rack: else it would
send us to the same replica again and again until it has noticed itself. Must not: send anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from odradek.clients.consumer.subscription_state import PartitionState, SubscriptionState
from odradek.common.types import Address
from odradek.metadata.cluster import Broker, Cluster
from odradek.metadata.partitions import Partition
from odradek.network.connection import Connection

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer_engine import ConsumerEngine

LEADERS_ONLY = 5.0
"""Seconds for which leaders aren't told our rack once a replica has failed."""


class ReadReplica(NamedTuple):
    """A replica that the leader of that epoch has sent us to, until a time."""

    id: int
    until: float
    leader: int
    leader_epoch: int


class ReadReplicas:
    """Chooses between leaders and the replicas that they prefer for us."""

    def __init__(self, engine: ConsumerEngine, subscription: SubscriptionState) -> None:
        self._engine = engine
        self._subscription = subscription
        self.rack: str = engine.config["client.rack"] or ""
        """What a fetch says of where we are, unless it goes to leaders only."""
        self._max_age: float = engine.config["metadata.max.age.ms"]
        self._leaders_until = -math.inf
        engine.network.on_suspect.append(self._suspected)

    def leaders_only(self, now: float) -> bool:
        """Whether a fetch of this moment asks for no advice."""
        return now < self._leaders_until

    def source(
        self, state: PartitionState, snapshot: Cluster, partition: Partition, now: float
    ) -> Broker | None:
        """Whom to ask for a partition; None while it has no leader."""
        leader = snapshot.brokers.get(partition.leader)
        replica = state.replica
        if replica is None:
            return leader
        found = snapshot.brokers.get(replica.id)
        led_as_before = (replica.leader, replica.leader_epoch) == (
            partition.leader,
            partition.leader_epoch,
        )
        gone = leader is None or found is None or replica.id in partition.offline
        if gone or not led_as_before or now >= replica.until:
            state.read_from(None)
            return leader
        return found

    def prefer(
        self, state: PartitionState, node: int, asked: Address, leaders_only: bool, now: float
    ) -> bool:
        """Take the advice of whom was `asked`, in a fetch that wanted advice or not.

        False where asking again at once is no use: the advice comes without being asked for, so it
        would come each time, or from a replica, and two of them could send us to and fro.
        """
        engine = self._engine
        snapshot = engine.metadata.snapshot
        name, number = state.partition.topic, state.partition.partition
        partition = None if snapshot is None else snapshot.partition(name, number)
        if snapshot is None or partition is None:
            return True
        leader, broker = snapshot.brokers.get(partition.leader), snapshot.brokers.get(node)
        if leader is None or leader.address != asked:
            self.give_up((state,), now)
            return False
        if leaders_only:
            return False
        if broker is None:
            engine.metadata.request(f"{state.partition}: replica {node} isn't known")
        if broker is None or node in (partition.leader, *partition.offline) or self._down(broker):
            self._leaders_until = now + LEADERS_ONLY
            return True
        until = now + self._max_age
        state.read_from(ReadReplica(node, until, partition.leader, partition.leader_epoch))
        return True

    def _down(self, broker: Broker) -> bool:
        network = self._engine.network
        connection = network.connection(broker.address)
        silent = connection is not None and connection.suspect
        return silent or network.states.backoff_left(broker.address, self._engine.now) > 0

    def give_up(self, states: Iterable[PartitionState], now: float) -> bool:
        """Go back to the leaders of those that are read elsewhere; say whether there are any."""
        found = [s for s in states if s.replica is not None]
        for state in found:
            state.read_from(None)
        if found:
            self._leaders_until = now + LEADERS_ONLY
        return bool(found)

    def _suspected(self, connection: Connection, now: float) -> None:
        """A silent replica isn't waited for: its leader may be well."""
        snapshot = self._engine.metadata.snapshot
        if snapshot is None:
            return
        for state in self._subscription.partitions.values():
            broker = None if state.replica is None else snapshot.brokers.get(state.replica.id)
            if broker is not None and broker.address == connection.address:
                self.give_up((state,), now)
                self._subscription.touch()
                if state.asked is not None:
                    state.asked.release((state.partition.topic, state.partition.partition))
