"""Handle OffsetCommit and OffsetFetch, in all their versions.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response, or None if it comes later. Must not know connections or what a group's members do.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.messages import offset_commit as c
from odradek.protocol.messages import offset_fetch as f
from odradek.simulation.brokers.cluster_state import BrokerState, Reply
from odradek.simulation.coordinators.committed_offsets import Committed, StoredGroupOffsets
from odradek.simulation.coordinators.consumer_protocol_group import ConsumerProtocolGroup
from odradek.simulation.coordinators.group_coordinator import GroupShard
from odradek.simulation.coordinators.shards import GROUP
from odradek.simulation.logs.topics import SimulatedTopic

NO_OFFSET = -1
BY_ID = 10
"""From this version of OffsetCommit and OffsetFetch on, ids identify topics."""


def _shard(broker: BrokerState, group_id: str) -> GroupShard:
    found: GroupShard = broker.cluster.coordinators[GROUP].shard(broker, group_id)
    return found


def group_shard(broker: BrokerState, group_id: str) -> GroupShard:
    """Return the coordinator's shard of a group; raise if another broker coordinates it."""
    if not group_id:
        raise errors.InvalidGroupIdError("a group without an id")
    return _shard(broker, group_id)


def shard_of_consumers(broker: BrokerState, group_id: str) -> GroupShard:
    """Return the coordinator's shard with the offsets of a group of consumers.

    Raises `GroupIdNotFoundError` for a share group, because consumers can't commit or delete its
    offsets: Kafka's coordinator treats it as unknown (`ShareGroup.validateOffsetCommit`). A request
    that fetches offsets of a share group is answered without offsets.
    """
    found = _shard(broker, group_id)
    if group_id in broker.cluster.admin.share_offsets:
        raise errors.GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
    return found


def offset_commit(
    broker: BrokerState, request: c.OffsetCommitRequest, version: int, reply: Reply
) -> c.OffsetCommitResponse | None:
    """Commit offsets; the response is sent when the offsets are replicated."""
    offsets: dict[TopicPartition, Committed] = {}
    unknown: set[tuple[bytes, str, int]] = set()
    for asked in request.topics:
        topic = _topic(broker, asked.name, asked.topic_id, version)
        for part in asked.partitions:
            if topic is None or not 0 <= part.partition_index < len(topic.partitions):
                unknown.add((asked.topic_id, asked.name, part.partition_index))
                continue
            offsets[TopicPartition(topic.name, part.partition_index)] = Committed(
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata,
                asked.topic_id,
            )

    def settled(error: BrokerError | None) -> None:
        code = 0 if error is None else error.code if error.code is not None else -1
        response = c.OffsetCommitResponse()
        for asked in request.topics:
            named = (asked.topic_id, asked.name)
            parts = [
                c.OffsetCommitResponsePartition(
                    p.partition_index,
                    _unknown(version) if (*named, p.partition_index) in unknown else code,
                )
                for p in asked.partitions
            ]
            of_topic = c.OffsetCommitResponseTopic(partitions=parts)
            if version >= BY_ID:
                of_topic.topic_id = asked.topic_id
            else:
                of_topic.name = asked.name
            response.topics.append(of_topic)
        reply(response)

    member = request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    try:
        shard = shard_of_consumers(broker, request.group_id)
    except BrokerError as error:
        settled(error)
        return None
    shard.commit(request.group_id, member, version, offsets, settled)
    return None


def _topic(broker: BrokerState, name: str, topic_id: bytes, version: int) -> SimulatedTopic | None:
    cluster = broker.cluster
    return cluster.topic_by_id(topic_id) if version >= BY_ID else cluster.topics.get(name)


def _unknown(version: int) -> int:
    if version >= BY_ID:
        return errors.UnknownTopicIdError.code
    return errors.UnknownTopicOrPartitionError.code


def offset_fetch(
    broker: BrokerState, request: f.OffsetFetchRequest, version: int, reply: Reply
) -> f.OffsetFetchResponse:
    """Return committed offsets of one group, from version 8 on of several groups."""
    if version >= 8:
        return f.OffsetFetchResponse(
            groups=[_group(broker, g, version, request.require_stable) for g in request.groups]
        )
    response = f.OffsetFetchResponse()
    asked = (
        None if request.topics is None else [(t.name, t.partition_indexes) for t in request.topics]
    )
    code = 0
    try:
        offsets = _shard(broker, request.group_id).committed(request.group_id)
    except BrokerError as error:
        code, offsets = error.code or -1, StoredGroupOffsets()
        if version >= 2:
            response.error_code = code
            return response
    for name, partitions in _wanted(asked, offsets):
        of_topic = f.OffsetFetchResponseTopic(name)
        response.topics.append(of_topic)
        for index in partitions:
            found, unstable = _offset(
                offsets, TopicPartition(name, index), stable=request.require_stable
            )
            answer = f.OffsetFetchResponsePartition(
                index, found.offset, metadata=found.metadata, error_code=code or unstable
            )
            if version >= 5:
                answer.committed_leader_epoch = found.leader_epoch
            of_topic.partitions.append(answer)
    return response


def _group(
    broker: BrokerState, asked: f.OffsetFetchRequestGroup, version: int, stable: bool
) -> f.OffsetFetchResponseGroup:
    response = f.OffsetFetchResponseGroup(asked.group_id)
    try:
        shard = _shard(broker, asked.group_id)
        group = shard.groups.get(asked.group_id)
        if version >= 9 and isinstance(group, ConsumerProtocolGroup):
            group.check_fetch(asked.member_id, asked.member_epoch)
    except BrokerError as error:
        response.error_code = error.code if error.code is not None else -1
        return response
    offsets = shard.committed(asked.group_id)
    topics = None
    if asked.topics is not None:
        topics = []
        for wanted in asked.topics:
            topic = _topic(broker, wanted.name, wanted.topic_id, version)
            if topic is None and version >= BY_ID:
                response.topics.append(_unknown_topic(wanted))
            else:
                topics.append((topic.name if topic else wanted.name, wanted.partition_indexes))
    for name, partitions in _wanted(topics, offsets):
        of_topic = f.OffsetFetchResponseTopics()
        if version >= BY_ID:
            existing = broker.cluster.topics.get(name)
            if existing is None:
                continue
            of_topic.topic_id = existing.id
        else:
            of_topic.name = name
        response.topics.append(of_topic)
        for index in partitions:
            found, code = _offset(offsets, TopicPartition(name, index), stable=stable)
            if not found.belongs_to(of_topic.topic_id):
                found = Committed(NO_OFFSET)
            of_topic.partitions.append(
                f.OffsetFetchResponsePartitions(
                    index, found.offset, found.leader_epoch, found.metadata, code
                )
            )
    return response


def _unknown_topic(asked: f.OffsetFetchRequestTopics) -> f.OffsetFetchResponseTopics:
    code = errors.UnknownTopicIdError.code
    return f.OffsetFetchResponseTopics(
        topic_id=asked.topic_id,
        partitions=[
            f.OffsetFetchResponsePartitions(p, NO_OFFSET, error_code=code)
            for p in asked.partition_indexes
        ],
    )


def _wanted(
    asked: Iterable[tuple[str, list[int]]] | None, offsets: StoredGroupOffsets
) -> Iterable[tuple[str, list[int]]]:
    """Return the requested partitions, or all that have offsets if the request names none."""
    if asked is not None:
        return asked
    found: dict[str, list[int]] = {}
    for partition in offsets.partitions():
        found.setdefault(partition.topic, []).append(partition.partition)
    return found.items()


def _offset(
    offsets: StoredGroupOffsets, partition: TopicPartition, *, stable: bool
) -> tuple[Committed, int]:
    if stable and offsets.unstable(partition):
        return Committed(NO_OFFSET), errors.UnstableOffsetCommitError.code
    return offsets.stable.get(partition, Committed(NO_OFFSET)), 0
