"""Hold the state of a simulated cluster, from which its brokers answer requests.

In: an environment, brokers that are registered or fenced. Out: topics with elected leaders and
replicated batches, coordinators, and each broker as the others see it; request handlers read and
change them. Simplified: one shared log for each partition; every live replica may lead; the
controller is never lost; all brokers except zombies see changes at once. Must not know connections,
or the content of requests.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek.common.types import Address
from odradek.protocol.message import Message
from odradek.protocol.messages.metadata import MetadataResponseBroker, MetadataResponseTopic
from odradek.record.columns import Row
from odradek.simulation.brokers.admin_state import AdminState
from odradek.simulation.brokers.fetch_sessions import FetchSessions
from odradek.simulation.brokers.sasl_listener import SaslListener
from odradek.simulation.brokers.telemetry_receiver import TelemetryReceiver
from odradek.simulation.coordinators.group_coordinator import GroupSettings, GroupTopic
from odradek.simulation.coordinators.shards import GROUP, TRANSACTION, CoordinatorTopic
from odradek.simulation.coordinators.transaction_coordinator import TransactionTopic
from odradek.simulation.logs.partition_log import PartitionLog, StoredBatch
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition, SimulatedTopic
from odradek.simulation.world.environment import Environment

FIRST_PRODUCER_ID = 1000
HELD_LOOK = 0.01
"""Interval in seconds for checking whether a replica that delays a batch is back or fenced."""


class Misbehaviour(Enum):
    """Fault of a running broker."""

    NONE = "none"
    PAUSED = "paused"
    """Stopped by a signal: the kernel accepts connections, but no response is sent until it
    resumes."""
    BLACK_HOLE = "black_hole"
    """Disconnected from the network: connection attempts and bytes are lost."""
    ACCEPT_RESET = "accept_reset"
    """Accepts each connection and resets it at once."""
    READY_CLOSE = "ready_close"
    """Answers ApiVersions, then closes the connection."""
    SILENT = "silent"
    """Accepts connections and reads requests, but never answers."""
    ZOMBIE = "zombie"
    """Cut off from the other brokers but not from clients, which it answers from its old state."""


CUT_OFF = (Misbehaviour.PAUSED, Misbehaviour.BLACK_HOLE, Misbehaviour.ZOMBIE)
"""Faults in which the other brokers can't reach this one."""


@dataclass(frozen=True, slots=True)
class ClusterPicture:
    """Content of metadata responses at some time: brokers, leaders and epochs."""

    controller_id: int
    brokers: tuple[MetadataResponseBroker, ...]
    topics: Mapping[str, MetadataResponseTopic]
    deleted: bool = False
    """Whether topics deleted since that time are listed, and topics created since then aren't."""


class BrokerState:
    """The part of a broker's state that other brokers read or that its handlers answer from."""

    def __init__(self, cluster: ClusterState, node_id: int, address: Address) -> None:
        self.cluster = cluster
        self.id = node_id
        self.address = address
        self.time = cluster.environment.time
        self.alive = False
        self.registered = False
        """Whether the controller considers the broker alive: metadata lists it, and it may lead."""
        self.fault = Misbehaviour.NONE
        self.fetch_sessions = FetchSessions(
            cluster.environment.rng(f"{cluster.name}/broker/{node_id}/fetch sessions")
        )
        self.rack: str | None = None
        """The broker's rack. With a rack, it serves fetches as a follower, and redirects clients to
        followers (KIP-392)."""
        self.behind = 0
        """Number of offsets that the broker lacks at the end of each log that it replicates as a
        follower."""
        self.versions: Mapping[int, tuple[int, int]] | None = None
        """The broker's own API versions in a rolling upgrade; None if it supports the cluster's."""
        self.picture: ClusterPicture | None = None
        """Content of metadata responses that replaces the present metadata (`stale_metadata`)."""
        self.zombie: BrokerState | None = None
        """A copy of the broker as it was when it was cut off from the others (`zombie_leader`)."""

    @property
    def spoken(self) -> Mapping[int, tuple[int, int]]:
        """Minimum and maximum supported version by API key."""
        return self.cluster.versions if self.versions is None else self.versions

    @property
    def reachable(self) -> bool:
        """Whether other brokers can reach this broker."""
        return self.alive and self.fault not in CUT_OFF

    @property
    def paused(self) -> bool:
        """Whether a signal has stopped the broker's process."""
        return self.alive and self.fault is Misbehaviour.PAUSED

    @property
    def view(self) -> BrokerState:
        """The state from which the broker answers: its own, or its copy from the cut-off."""
        return self if self.zombie is None else self.zombie

    def copied(self, cluster: ClusterState) -> BrokerState:
        """Return a copy of the broker's present state that belongs to a copied cluster."""
        made = copy.copy(self)
        made.cluster, made.zombie = cluster, None
        return made

    def known_leader(self, topic: str, index: int) -> int | None:
        """Return a partition's leader if this broker knows it as a registered broker, else None."""
        found = self.cluster.topics[topic]
        leader = found.partitions[index].leader
        old = None if self.picture is None else self.picture.topics.get(topic)
        if self.picture is not None and old is not None and old.topic_id == found.id:
            leader = old.partitions[index].leader_id
            known = {b.node_id for b in self.picture.brokers}
        else:
            known = {b.id for b in self.cluster.brokers.values() if b.registered}
        return leader if leader in known else None


Reply = Callable[[Message | None], None]
Handler = Callable[[BrokerState, Any, int, Reply], Message | None]
"""Called with the broker, the request, its version, and a callback for a later response."""


class ClusterState:
    """Topics, coordinators and other state that all brokers of a cluster share."""

    brokers: Mapping[int, BrokerState]

    def __init__(
        self,
        environment: Environment,
        cluster_id: str,
        name: str,
        versions: dict[int, tuple[int, int]],
        default_replication: int,
    ) -> None:
        self.environment = environment
        self.name = name
        self.cluster_id = cluster_id
        self.versions = versions
        self.auto_create = False
        self.telemetry: TelemetryReceiver | None = None
        self.default_replication = default_replication
        self.min_insync_replicas = 1
        self.replication_delay = 0.0005
        """Seconds from an append until all replicas have the batch."""
        self.answers_empty_brokers = False
        self.answers_129 = False
        self.sasl: SaslListener | None = None
        self.topics: dict[str, SimulatedTopic] = {}
        self.on_change: dict[Callable[[], None], None] = {}
        """Callbacks (the keys) for each change of a leader or a topic."""
        self.duplicates_refused = 0
        self.late: Counter[str] = Counter()
        """Number of requests that arrived after their connection had ended, by API name."""
        self.hits: Counter[str] = Counter()
        """How often faults had an effect, by a name of the effect."""
        self.group_settings = GroupSettings()
        self.groups: GroupTopic = GroupTopic(self, self.group_settings)
        self.transactions = TransactionTopic(self, self.groups)
        self.coordinators: dict[int, CoordinatorTopic[Any]] = {
            GROUP: self.groups,
            TRANSACTION: self.transactions,
        }
        """The internal topics that distribute coordinators, by FindCoordinator's key type."""
        self.admin = AdminState()
        self._topics_by_id: dict[bytes, SimulatedTopic] = {}
        self._next_producer_id = FIRST_PRODUCER_ID
        self._rng = environment.rng(f"{name}/cluster")

    @property
    def controller_id(self) -> int:
        """Id of the first registered broker, which acts as the controller; -1 without one."""
        return next((b.id for b in self.brokers.values() if b.registered), -1)

    def changed(self) -> None:
        """Notify the observers that a leader or a topic has changed."""
        for action in list(self.on_change):
            action()

    def new_producer_id(self) -> int:
        """Return an unused producer id."""
        self._next_producer_id += 1
        return self._next_producer_id - 1

    # Replication

    def require_in_sync(self, replicas: int = 1) -> None:
        """Accept batches with acks=all only while at least this many replicas are alive."""
        self.min_insync_replicas = replicas

    def in_sync(self, partition: SimulatedPartition) -> int:
        """Return the number of a partition's replicas that are in sync."""
        return sum(self.brokers[r].reachable for r in partition.replicas)

    def replicate(self, partition: SimulatedPartition, batch: StoredBatch) -> None:
        """Commit a batch a moment later, unless the batch's leader is lost by then.

        An unreachable replica delays the commit until the controller has fenced that replica's
        broker.
        """
        leader = self.brokers[partition.leader]

        def commit() -> None:
            if not leader.reachable or partition.leader != leader.id:
                return
            if any(self.brokers[r].registered > self.brokers[r].reachable for r in replicas):
                self.environment.time.after(HELD_LOOK, commit)
            else:
                partition.log.commit(batch)

        replicas = partition.replicas

        self.environment.time.after(self.replication_delay, commit)

    # Topics

    def topic_by_id(self, topic_id: bytes) -> SimulatedTopic | None:
        """Return the topic with this id; None if it doesn't exist."""
        return self._topics_by_id.get(topic_id)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> SimulatedTopic:
        """Create a topic; leaders are assigned round-robin to the brokers."""
        ids = [b.id for b in self.brokers.values() if b.registered] or list(self.brokers)
        factor = min(replication_factor or self.default_replication, len(ids))
        made = []
        for index in range(len(assignments) if assignments else partitions):
            replicas = [ids[(index + k) % len(ids)] for k in range(factor)]
            if assignments:
                replicas = list(assignments[index])
            made.append(SimulatedPartition(index, replicas, NO_LEADER, leader_epoch=-1))
            made[-1].elect(self._candidates())
        topic = SimulatedTopic(name, self._rng.randbytes(16), made)
        self.topics[name] = topic
        self._topics_by_id[topic.id] = topic
        self.changed()
        return topic

    def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] = ()
    ) -> None:
        """Add n partitions to a topic, by default on the brokers that have its first partition."""
        partitions = self.topics[name].partitions
        for place, index in enumerate(range(len(partitions), len(partitions) + count)):
            replicas = list(assignments[place] if assignments else partitions[0].replicas)
            partitions.append(SimulatedPartition(index, replicas, NO_LEADER, -1))
            partitions[-1].elect(self._candidates())
        self.changed()

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and the offsets that groups have committed for it."""
        topic = self.topics.pop(name)
        del self._topics_by_id[topic.id]
        # (In Kafka, a coordinator that isn't loaded misses the deletion: docs/simulation.md.)
        self.groups.tell(lambda shard: shard.forget_topic(name))
        self.changed()

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition."""
        return self.topics[topic].partitions[partition].log

    def records(self, topic: str, partition: int) -> list[Row]:
        """Return a partition's committed records: offset, timestamp, type, key, value, headers."""
        return self.log(topic, partition).rows()

    # Leaders

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> None:
        """Move a leadership cleanly, by default to the next live replica."""
        found = self.topics[topic].partitions[partition]
        others = [r for r in found.replicas if r != found.leader and r in self._candidates()]
        found.lead(to if to is not None else others[0])
        self.changed()

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move the replicas of a partition to these brokers; the first of the brokers leads it."""
        self.topics[topic].partitions[partition].reassign(replicas, self._candidates())
        self.changed()

    def _candidates(self) -> set[int]:
        return {b.id for b in self.brokers.values() if b.registered and b.reachable}
