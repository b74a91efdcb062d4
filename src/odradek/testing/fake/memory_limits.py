"""Limit the memory of a fake cluster, independent of the data that its clients send.

In: each request before it is processed, the sizes of logs. Out: deletion of the oldest records, and
errors, as in Kafka, for requests that would create too many topics, groups, members, offsets or
transactional ids. A cluster in virtual time needs no such limits, because all its clients belong to
the test. Must not: know connections; `loopback` bounds their memory.
"""

from __future__ import annotations

from typing import Any

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.protocol.messages import join_group as j
from odradek.protocol.messages import offset_commit as o
from odradek.protocol.messages import txn_offset_commit as t
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.simulation.brokers.broker import SimulatedBroker
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.cluster_state import ClusterState
from odradek.simulation.brokers.injected_errors import Injection
from odradek.simulation.coordinators.classic_group import ClassicGroup
from odradek.simulation.logs.partition_log import BATCH_OVERHEAD
from odradek.simulation.world.environment import ReceivedRequest

MOST_PARTITIONS = 10_000
MOST_MEMBERS = 2_000
"""Maximum number of groups and members, counted together."""
MOST_OFFSETS = 50_000
MOST_TRANSACTIONAL_IDS = 10_000
MEMBER_BYTES = 1 << 16
"""Maximum size of a subscription or an assignment in bytes."""
METADATA_BYTES = 4096
"""Maximum size of a committed offset's metadata in bytes (`offset.metadata.max.bytes`)."""
LONGEST_POLL_MS = 60_000
COUNTED_EVERY = 100
"""Number of requests after which the members and offsets of groups are counted again."""
COMPACTED_FROM = 1_000
"""Number of batches from which on a coordinator's partition is compacted."""
TRIMMED_EVERY = 1 << 20
"""Number of produced bytes after which the logs' size is checked again."""


class MemoryLimits:
    """Memory limits of one fake cluster, and counts of what its clients have created."""

    def __init__(self, retention_bytes: int) -> None:
        if retention_bytes < 2 * TRIMMED_EVERY:
            raise ValueError(f"retention_bytes must be {2 * TRIMMED_EVERY} or more")
        self.retention_bytes = retention_bytes
        self._auto_create = False
        self._produced = 0
        self._asked = 0
        self._members = self._offsets = 0

    def watch(self, cluster: SimulatedCluster) -> None:
        """Observe each request of this cluster before its broker handles it."""
        self._auto_create = cluster.auto_create
        cluster.observers.append(self._look)

    def _look(self, broker: SimulatedBroker, _: str, request: ReceivedRequest) -> None:
        broker.injections[:] = [one for one in broker.injections if one.left > 0]
        body, cluster = request.body, broker.cluster
        if isinstance(body, ProduceRequest):
            self._produce(cluster, body)
        elif isinstance(body, FetchRequest):
            body.max_wait_ms = min(body.max_wait_ms, LONGEST_POLL_MS)
        elif isinstance(body, MetadataRequest):
            room = not self._auto_create or self._room(cluster, len(body.topics or ()))
            cluster.auto_create = self._auto_create and room
        else:
            code = self._refusal(cluster, body)
            if code is not None and body is not None:
                broker.injections.insert(0, Injection(body.API_NAME, code, 1))

    # Records

    def _produce(self, cluster: ClusterState, request: ProduceRequest) -> None:
        for topic in request.topic_data:
            for data in topic.partition_data:
                self._produced += BATCH_OVERHEAD + _size(data.records)
        if self._produced >= TRIMMED_EVERY:
            self._produced = 0
            self.trim(cluster)

    def trim(self, cluster: ClusterState) -> None:
        """Delete the older half of the largest log until all logs together fit into the limit."""
        internal = [topic.name for topic in cluster.coordinators.values()]
        logs = [
            partition.log
            for topic in cluster.topics.values()
            for partition in topic.partitions
            if topic.name not in internal
        ]
        total = sum(log.kept_bytes for log in logs)
        while total > self.retention_bytes:
            largest = max(logs, key=lambda log: log.kept_bytes)
            before = largest.kept_bytes
            middle = largest.batches[len(largest.batches) // 2]
            largest.drop_before(middle.last_offset + 1)
            if largest.kept_bytes == before:  # no batch of the log is committed
                break
            total -= before - largest.kept_bytes
        for topic in cluster.coordinators.values():
            topic.compact(COMPACTED_FROM)

    # Groups, offsets and transactional ids

    def _refusal(self, cluster: ClusterState, body: Any) -> int | None:
        """Return the error code for a request that would exceed a limit; None for others."""
        refused: type[BrokerError] | None = None
        if isinstance(body, CreateTopicsRequest):
            wanted = sum(max(len(x.assignments), x.num_partitions, 1) for x in body.topics)
            refused = None if self._room(cluster, wanted) else errors.PolicyViolationError
        elif isinstance(body, InitProducerIdRequest):
            known = sum(len(shard.known) for shard in cluster.transactions.shards())
            if body.transactional_id is not None and known >= MOST_TRANSACTIONAL_IDS:
                refused = errors.PolicyViolationError
        elif isinstance(body, j.JoinGroupRequest | ConsumerGroupHeartbeatRequest):
            self._count(cluster)
            self._members += 1
            if self._members > MOST_MEMBERS or _member_size(body) > MEMBER_BYTES:
                refused = errors.GroupMaxSizeReachedError
        elif isinstance(body, SyncGroupRequest):
            if any(len(a.assignment) > MEMBER_BYTES for a in body.assignments):
                refused = errors.GroupMaxSizeReachedError
        elif isinstance(body, o.OffsetCommitRequest | t.TxnOffsetCommitRequest):
            self._count(cluster)
            partitions = [part for topic in body.topics for part in topic.partitions]
            self._offsets += len(partitions)
            longest = max((len(p.committed_metadata or "") for p in partitions), default=0)
            if longest > METADATA_BYTES or self._offsets > MOST_OFFSETS:
                refused = errors.OffsetMetadataTooLargeError
        return None if refused is None else refused.code

    def _room(self, cluster: ClusterState, wanted: int) -> bool:
        present = sum(len(topic.partitions) for topic in cluster.topics.values())
        return present + wanted <= MOST_PARTITIONS

    def _count(self, cluster: ClusterState) -> None:
        """Count members and offsets at some requests; assume that all other requests add some."""
        self._asked += 1
        near = self._members >= MOST_MEMBERS or self._offsets >= MOST_OFFSETS
        if self._asked % COUNTED_EVERY and not near:
            return
        shards = cluster.groups.shards()
        self._members = 0
        for shard in shards:
            for name, group in list(shard.groups.items()):
                pending = len(group.pending) if isinstance(group, ClassicGroup) else 0
                if group.members or pending or name in shard.offsets:
                    self._members += 1 + pending + len(group.members)
                else:
                    del shard.groups[name]
        kept = [offsets for shard in shards for offsets in shard.offsets.values()]
        self._offsets = sum(len(offsets.stable) + offsets.pending for offsets in kept)
        for topic in cluster.coordinators.values():
            topic.compact(COMPACTED_FROM)


def _member_size(body: j.JoinGroupRequest | ConsumerGroupHeartbeatRequest) -> int:
    if isinstance(body, j.JoinGroupRequest):
        return sum(len(p.metadata) for p in body.protocols)
    names = sum(len(name) for name in body.subscribed_topic_names or ())
    return names + len(body.subscribed_topic_regex or "")


def _size(records: Any) -> int:
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return sum(len(part) for part in records or ())
