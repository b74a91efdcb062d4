"""Choose the replica from which each partition is read, if not from its leader (KIP-392).

In: preferred replicas of leaders for this client's rack, metadata, failures. Out: the broker to
ask. After any failure of a replica the leader is asked next, and for a while without the client's
rack: otherwise the leader would return the same replica again until it has noticed the failure
itself. Must not: send anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from odradek.clients.consumer.partition_state import PartitionState, ReadReplica
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.config import Config
from odradek.common.types import Address
from odradek.metadata.cluster import Broker, Cluster
from odradek.metadata.metadata import Metadata
from odradek.metadata.partitions import Partition
from odradek.network.connection import Connection
from odradek.network.network_client import NetworkClient

LEADERS_ONLY = 5.0
"""Seconds for which requests to leaders contain no rack after a replica has failed."""


class ReadReplicas:
    """Choice between each partition's leader and its preferred replica for this client."""

    def __init__(
        self,
        config: Config,
        network: NetworkClient,
        metadata: Metadata,
        subscription: SubscriptionState,
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._subscription = subscription
        self.rack: str = config["client.rack"] or ""
        """Rack that fetches contain, except those that must not ask for a preferred replica."""
        self._max_age: float = config["metadata.max.age.ms"]
        self.leaders_until = -math.inf
        """Time until which fetches don't ask leaders for a preferred replica."""
        network.on_suspect.append(self._suspected)

    def source(
        self, state: PartitionState, snapshot: Cluster, partition: Partition, now: float
    ) -> Broker | None:
        """Return the broker to ask for a partition; None while it has no leader."""
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
        """Use the preferred replica that a broker returned; return False to back off instead.

        A broker that returns a replica without being asked (`leaders_only`) would repeat that. A
        broker that isn't the leader might redirect the client to a replica that redirects it back.
        """
        snapshot = self._metadata.snapshot
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
            self._metadata.request(f"{state.partition}: read replica {node} isn't in the metadata")
        led = node in (partition.leader, *partition.offline)
        if broker is None or led or self._down(broker, now):
            self.leaders_until = now + LEADERS_ONLY
            return True
        until = now + self._max_age
        state.read_from(ReadReplica(node, until, partition.leader, partition.leader_epoch))
        return True

    def _down(self, broker: Broker, now: float) -> bool:
        connection = self._network.connection(broker.address)
        silent = connection is not None and connection.suspect
        return silent or self._network.states.backoff_left(broker.address, now) > 0

    def give_up(self, states: Iterable[PartitionState], now: float) -> bool:
        """Fetch these partitions from their leaders again; return whether any used a replica."""
        found = [s for s in states if s.replica is not None]
        for state in found:
            state.read_from(None)
        if found:
            self.leaders_until = now + LEADERS_ONLY
        return bool(found)

    def _suspected(self, connection: Connection, now: float) -> None:
        """Fetch from the leaders if the connection to the partitions' replica is silent."""
        snapshot = self._metadata.snapshot
        if snapshot is None:
            return
        for state in self._subscription.partitions.values():
            broker = None if state.replica is None else snapshot.brokers.get(state.replica.id)
            if broker is not None and broker.address == connection.address:
                self.give_up((state,), now)
                self._subscription.touch()
                if state.asked is not None:
                    state.asked.release((state.partition.topic, state.partition.partition))
