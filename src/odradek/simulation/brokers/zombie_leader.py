"""Simulate a broker that is cut off from its cluster and still answers clients as a leader.

In: a broker, at the moment at which it is cut off, and a copy of its cluster. Out: the coordinators
as they were at that moment, and which requests the broker still answers. Handlers that get the copy
answer Metadata, Fetch, ListOffsets, OffsetForLeaderEpoch, FindCoordinator and OffsetFetch with the
old leaders and epochs. Batches are appended to a copy of the log, which no replica ever gets: with
acks=all they are never acknowledged, and with acks=1 they are acknowledged and lost. Must not
change the cluster itself.
"""

from __future__ import annotations

import copy
from typing import Any, cast

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest
from odradek.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.simulation.brokers.cluster_state import BrokerState, ClusterState
from odradek.simulation.coordinators.committed_offsets import StoredGroupOffsets
from odradek.simulation.coordinators.consumer_protocol_group import ConsumerProtocolGroup
from odradek.simulation.coordinators.shards import GROUP, CoordinatorTopic
from odradek.simulation.logs.partition_log import StoredBatch
from odradek.simulation.logs.topics import SimulatedPartition, SimulatedTopic

ANSWERED = frozenset(
    kind.API_KEY
    for kind in (
        DescribeClusterRequest, FetchRequest, FindCoordinatorRequest, InitProducerIdRequest,
        ListOffsetsRequest, MetadataRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
        ProduceRequest,
    )
)  # fmt: skip
"""APIs that a cut-off broker answers from its own state. All other APIs need the controller or
other replicas, so their requests wait until the broker is back."""


def is_answered(request: Message) -> bool:
    """Return whether a broker that is cut off (a zombie) answers this request."""
    if isinstance(request, InitProducerIdRequest | ProduceRequest):
        # Without a transactional id, producer ids come from a block that the broker has reserved,
        # and batches go to the broker's own log.
        return request.transactional_id is None
    return request.API_KEY in ANSWERED


class ZombieShard:
    """The groups that a zombie coordinated, with their offsets, as they were at the cut-off."""

    def __init__(self, shard: Any) -> None:
        self.groups: dict[str, Any] = {}
        for name, group in shard.groups.items():
            if isinstance(group, ConsumerProtocolGroup):
                self.groups[name] = group.copied()
        self._offsets: dict[str, StoredGroupOffsets] = {
            name: copy.deepcopy(found) for name, found in shard.offsets.items()
        }

    def committed(self, group_id: str) -> StoredGroupOffsets:
        """Return the offsets that a group had committed before the cut-off."""
        return self._offsets.get(group_id, StoredGroupOffsets())


class ZombieCoordinators:
    """The coordinators in one internal topic as a zombie knows them, and the zombie's shards."""

    def __init__(
        self, topic: CoordinatorTopic[Any], zombie: BrokerState, found: SimulatedTopic | None
    ) -> None:
        self._topic, self._found = topic, found
        self._shards: dict[int, ZombieShard] = {}
        if found is None or topic is not zombie.cluster.groups:
            return
        for partition in found.partitions:
            if partition.leader == zombie.id:
                shard = topic.loaded(partition.index)
                if shard is not None:
                    self._shards[partition.index] = ZombieShard(shard)

    def coordinator(self, key: str, asked: BrokerState) -> int:
        """Return the id of a key's coordinator, by the leaders at the cut-off."""
        if self._found is None:
            raise errors.CoordinatorNotAvailableError("it isn't known to this broker")
        leader = self._found.partitions[self._topic.index(key)].leader
        broker = asked.cluster.brokers.get(leader)
        if broker is None or not broker.registered:
            raise errors.CoordinatorNotAvailableError("it has no leader")
        return leader

    def shard(self, _: BrokerState, key: str) -> ZombieShard:
        """Return the coordinator's shard of a key, if the zombie led the shard at the cut-off."""
        found = self._shards.get(self._topic.index(key))
        if found is None:
            raise errors.NotCoordinatorError("it is led by another broker")
        return found


class ZombieCluster(ClusterState):
    """The cluster's state at the moment at which the zombie was cut off."""

    def __init__(self, present: ClusterState, zombie: BrokerState) -> None:
        vars(self).update(vars(present))
        self._present = present
        self.auto_create, self.on_change = False, {}
        self.topics = {name: topic.copied() for name, topic in present.topics.items()}
        self.brokers = {i: broker.copied(self) for i, broker in present.brokers.items()}
        self.coordinators = {
            kind: cast(
                "CoordinatorTopic[Any]",
                ZombieCoordinators(topic, zombie, self.topics.get(topic.name)),
            )
            for kind, topic in present.coordinators.items()
        }

    def topic_by_id(self, topic_id: bytes) -> SimulatedTopic | None:
        """Return the topic with this id, if the topic existed at the cut-off."""
        return next((t for t in self.topics.values() if t.id == topic_id), None)

    def new_producer_id(self) -> int:
        """Return a producer id that no broker of the present cluster has used."""
        return self._present.new_producer_id()

    def in_sync(self, partition: SimulatedPartition) -> int:
        """Return the number of all replicas: only the controller could report that one is lost."""
        return len(partition.replicas)

    def replicate(self, partition: SimulatedPartition, batch: StoredBatch) -> None:
        """Do nothing: no replica fetches from a zombie, so its batches are never committed."""


def unacknowledged(zombie: BrokerState) -> list[StoredBatch]:
    """Return the batches that a zombie has appended and no other replica has."""
    return [
        batch
        for topic in zombie.cluster.topics.values()
        for partition in topic.partitions
        if partition.leader == zombie.id
        for batch in partition.log.uncommitted()
    ]


def committed_to_zombies(cluster: ClusterState, group_id: str) -> list[StoredGroupOffsets]:
    """Return a group's committed offsets as each zombie that coordinated the group knows them."""
    found = []
    for broker in cluster.brokers.values():
        if broker.zombie is not None:
            try:
                shard = broker.zombie.cluster.coordinators[GROUP].shard(broker.zombie, group_id)
            except errors.NotCoordinatorError:
                continue
            found.append(shard.committed(group_id))
    return found


def led_by_zombie(cluster: ClusterState, topic: str, index: int) -> bool:
    """Return whether a zombie still considers itself the leader of a partition."""
    for broker in cluster.brokers.values():
        known = None if broker.zombie is None else broker.zombie.cluster.topics.get(topic)
        partitions = [] if known is None else known.partitions
        if any(p.index == index and p.leader == broker.id for p in partitions):
            return True
    return False
