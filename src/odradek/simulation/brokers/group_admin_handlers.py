"""Handle admin requests for groups: list, describe, delete.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response, or None if it comes later. Simplified: share groups have offsets but no members; there are
no Streams groups. Must not know connections.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages import alter_share_group_offsets as sa
from odradek.protocol.messages import consumer_group_describe as cd
from odradek.protocol.messages import delete_groups as x
from odradek.protocol.messages import delete_share_group_offsets as sd
from odradek.protocol.messages import describe_groups as dg
from odradek.protocol.messages import describe_share_group_offsets as sl
from odradek.protocol.messages import list_groups as ls
from odradek.protocol.messages import offset_delete as od
from odradek.protocol.messages import share_group_describe as sg
from odradek.protocol.messages import streams_group_describe as st
from odradek.simulation.brokers.admin_state import each
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.offset_handlers import group_shard, shard_of_consumers
from odradek.simulation.coordinators.classic_group import ClassicGroup
from odradek.simulation.coordinators.classic_members import ClassicState
from odradek.simulation.coordinators.consumer_protocol_group import (
    ConsumerProtocolGroup,
    Places,
    Reconciliation,
)

EMPTY = "Empty"
HOST = "/simulated"


def _state(group: ClassicGroup | ConsumerProtocolGroup) -> str:
    if isinstance(group, ClassicGroup):
        return group.state.value
    if not group.members:
        return EMPTY
    settled = all(m.state is Reconciliation.STABLE for m in group.members.values())
    return "Stable" if settled else "Reconciling"


def list_groups(
    broker: BrokerState, request: ls.ListGroupsRequest, version: int, reply: Reply
) -> ls.ListGroupsResponse:
    """Return the groups that this broker coordinates."""
    topic = broker.cluster.groups
    led = broker.cluster.topics.get(topic.name)
    found = []
    for partition in led.partitions if led is not None else ():
        if partition.leader != broker.id:
            continue
        try:
            shard = topic.shard_at(broker, partition.index)
        except errors.CoordinatorLoadInProgressError as error:
            return ls.ListGroupsResponse(error_code=error.code)
        for name, group in shard.groups.items():
            classic = isinstance(group, ClassicGroup)
            protocol = (
                (group.protocol_type or "") if isinstance(group, ClassicGroup) else "consumer"
            )
            found.append((name, protocol, _state(group), "classic" if classic else "consumer"))
        found += [
            (name, "share", EMPTY, "share")
            for name in broker.cluster.admin.share_offsets
            if topic.index(name) == partition.index
        ]
    wanted_types = {t.lower() for t in request.types_filter}
    wanted = [
        g
        for g in found
        if (not request.states_filter or g[2] in request.states_filter)
        and (not request.types_filter or g[3] in wanted_types)
    ]
    known = 4 if version >= 5 else 3 if version >= 4 else 2
    return ls.ListGroupsResponse(groups=[ls.ListedGroup(*g[:known]) for g in wanted])


def describe_groups(
    broker: BrokerState, request: dg.DescribeGroupsRequest, version: int, reply: Reply
) -> dg.DescribeGroupsResponse:
    """Describe classic groups; an unknown group is in state Dead (from version 6, an error)."""

    def told(group_id: str) -> ClassicGroup:
        group = group_shard(broker, group_id).groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise errors.GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def result(
        group_id: str, code: int, why: str | None, group: ClassicGroup | None
    ) -> dg.DescribedGroup:
        if group is None:
            missing = code == errors.GroupIdNotFoundError.code
            if version < 6:
                return dg.DescribedGroup(
                    0 if missing else code, None, group_id, "Dead" if missing else ""
                )
            return dg.DescribedGroup(code, why, group_id, "Dead" if missing else "")
        stable = group.state is ClassicState.STABLE
        return dg.DescribedGroup(
            0,
            None,
            group_id,
            group.state.value,
            group.protocol_type or "",
            (group.protocol or "") if stable else "",
            [
                dg.DescribedGroupMember(
                    m.id,
                    m.instance_id if version >= 4 else None,
                    "member",
                    HOST,
                    m.metadata(group.protocol) if stable else b"",
                    m.assignment if stable else b"",
                )
                for m in group.members.values()
            ],
        )

    return dg.DescribeGroupsResponse(groups=each(request.groups, told, result))


def consumer_group_describe(
    broker: BrokerState, request: cd.ConsumerGroupDescribeRequest, version: int, reply: Reply
) -> cd.ConsumerGroupDescribeResponse:
    """Describe groups of the consumer protocol."""
    names = {t.id: t.name for t in broker.cluster.topics.values()}

    def places(of: Places) -> cd.Assignment:
        topics: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(of):
            topics.setdefault(topic_id, []).append(partition)
        return cd.Assignment(
            [cd.TopicPartitions(t, names.get(t, ""), ps) for t, ps in topics.items()]
        )

    def told(group_id: str) -> ConsumerProtocolGroup:
        group = group_shard(broker, group_id).groups.get(group_id)
        if not isinstance(group, ConsumerProtocolGroup):
            raise errors.GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        return group

    def result(
        group_id: str, code: int, why: str | None, group: ConsumerProtocolGroup | None
    ) -> cd.DescribedGroup:
        if group is None:
            return cd.DescribedGroup(code, why, group_id)
        return cd.DescribedGroup(
            0,
            None,
            group_id,
            _state(group),
            group.epoch,
            group.target_epoch,
            "uniform",
            [
                cd.Member(
                    m.id,
                    m.instance_id,
                    None,
                    m.epoch,
                    "member",
                    HOST,
                    list(m.names),
                    m.regex or None,
                    places(m.assigned),
                    places(group.target.get(m.id, frozenset())),
                    *((1,) if version >= 1 else ()),
                )
                for m in group.members.values()
            ],
        )

    return cd.ConsumerGroupDescribeResponse(groups=each(request.group_ids, told, result))


def share_group_describe(
    broker: BrokerState, request: sg.ShareGroupDescribeRequest, version: int, reply: Reply
) -> sg.ShareGroupDescribeResponse:
    """Describe share groups: a group exists if it has offsets, and has no members."""

    def told(group_id: str) -> str:
        group_shard(broker, group_id)
        if group_id not in broker.cluster.admin.share_offsets:
            raise errors.GroupIdNotFoundError(f"Group {group_id} is not a share group.")
        return EMPTY

    return sg.ShareGroupDescribeResponse(
        groups=each(
            request.group_ids,
            told,
            lambda g, code, why, state: sg.DescribedGroup(
                code, why, g, state or "", 1, 1, "simple"
            ),
        )
    )


def streams_group_describe(
    broker: BrokerState, request: st.StreamsGroupDescribeRequest, version: int, reply: Reply
) -> st.StreamsGroupDescribeResponse:
    """Return an error for each group: there are no Streams groups."""

    def told(group_id: str) -> None:
        group_shard(broker, group_id)
        raise errors.GroupIdNotFoundError(f"Group {group_id} is not a streams group.")

    return st.StreamsGroupDescribeResponse(
        groups=each(
            request.group_ids, told, lambda g, code, why, _: st.DescribedGroup(code, why, g)
        )
    )


def delete_groups(
    broker: BrokerState, request: x.DeleteGroupsRequest, version: int, reply: Reply
) -> x.DeleteGroupsResponse | None:
    """Delete groups without members; the response is sent when the deletion is replicated."""
    names = dict.fromkeys(request.groups_names)
    results: dict[str, x.DeletableGroupResult] = {}

    def settle(group_id: str, error: BrokerError | None) -> None:
        code, why = 0, None
        if error is not None:
            code, why = -1 if error.code is None else error.code, str(error)
        results[group_id] = x.DeletableGroupResult(group_id, code, why if version >= 3 else None)
        if len(results) == len(names):
            reply(x.DeleteGroupsResponse(results=[results[name] for name in names]))

    for name in names:
        try:
            shard = group_shard(broker, name)
            if broker.cluster.admin.share_offsets.pop(name, None) is None:
                shard.delete(name, partial(settle, name))
            else:
                settle(name, None)
        except BrokerError as error:
            settle(name, error)
    return None if names else x.DeleteGroupsResponse()


def offset_delete(
    broker: BrokerState, request: od.OffsetDeleteRequest, version: int, reply: Reply
) -> od.OffsetDeleteResponse:
    """Delete committed offsets, except for topics to which a member of the group subscribes."""
    group_id = request.group_id
    try:
        group_shard(broker, group_id)
        shard = shard_of_consumers(broker, group_id)
        subscribed = shard.subscribed(group_id)
    except BrokerError as error:
        return od.OffsetDeleteResponse(error_code=error.code or -1)

    def delete(at: TopicPartition) -> None:
        if at.topic in subscribed:
            raise errors.GroupSubscribedToTopicError(at.topic)
        shard.forget(group_id, at)

    return od.OffsetDeleteResponse(
        topics=[
            od.OffsetDeleteResponseTopic(
                t.name,
                each(
                    [TopicPartition(t.name, p.partition_index) for p in t.partitions],
                    delete,
                    lambda at, code, *_: od.OffsetDeleteResponsePartition(at.partition, code),
                ),
            )
            for t in request.topics
        ]
    )


# Offsets of share groups


def describe_share_offsets(
    broker: BrokerState,
    request: sl.DescribeShareGroupOffsetsRequest,
    version: int,
    reply: Reply,
) -> sl.DescribeShareGroupOffsetsResponse:
    """Return the start offsets of share groups."""
    topics = broker.cluster.topics

    def told(g: sl.DescribeShareGroupOffsetsRequestGroup) -> list[Any]:
        group_shard(broker, g.group_id)
        offsets = broker.cluster.admin.share_offsets.get(g.group_id)
        if offsets is None:
            raise errors.GroupIdNotFoundError(f"Group {g.group_id} not found.")
        wanted: dict[str, list[int]] = {}
        if g.topics is None:
            for at in offsets:
                wanted.setdefault(at.topic, []).append(at.partition)
        else:
            wanted = {t.topic_name: list(t.partitions) for t in g.topics}
        return [
            sl.DescribeShareGroupOffsetsResponseTopic(
                name,
                topics[name].id if name in topics else bytes(16),
                [
                    sl.DescribeShareGroupOffsetsResponsePartition(
                        p, offsets.get(TopicPartition(name, p), -1), 0
                    )
                    for p in numbers
                ],
            )
            for name, numbers in wanted.items()
        ]

    return sl.DescribeShareGroupOffsetsResponse(
        groups=each(
            request.groups,
            told,
            lambda g, code, why, found: sl.DescribeShareGroupOffsetsResponseGroup(
                g.group_id, found or [], code, why
            ),
        )
    )


def alter_share_offsets(
    broker: BrokerState, request: sa.AlterShareGroupOffsetsRequest, version: int, reply: Reply
) -> sa.AlterShareGroupOffsetsResponse:
    """Set the start offsets of a share group."""
    try:
        if request.group_id in group_shard(broker, request.group_id).groups:
            raise errors.GroupIdNotFoundError(f"Group {request.group_id} is not a share group.")
    except BrokerError as error:
        return sa.AlterShareGroupOffsetsResponse(error_code=error.code or -1)
    topics = broker.cluster.topics
    offsets = broker.cluster.admin.share_offsets.setdefault(request.group_id, {})

    def alter(at: tuple[TopicPartition, int]) -> None:
        (name, number), offset = at
        if name not in topics or number >= len(topics[name].partitions):
            raise errors.UnknownTopicOrPartitionError(name)
        offsets[TopicPartition(name, number)] = offset

    return sa.AlterShareGroupOffsetsResponse(
        responses=[
            sa.AlterShareGroupOffsetsResponseTopic(
                t.topic_name,
                topics[t.topic_name].id if t.topic_name in topics else bytes(16),
                each(
                    [
                        (TopicPartition(t.topic_name, p.partition_index), p.start_offset)
                        for p in t.partitions
                    ],
                    alter,
                    lambda at, code, why, _: sa.AlterShareGroupOffsetsResponsePartition(
                        at[0].partition, code, why
                    ),
                ),
            )
            for t in request.topics
        ]
    )


def delete_share_offsets(
    broker: BrokerState, request: sd.DeleteShareGroupOffsetsRequest, version: int, reply: Reply
) -> sd.DeleteShareGroupOffsetsResponse:
    """Delete the start offsets of a share group."""
    try:
        group_shard(broker, request.group_id)
        offsets = broker.cluster.admin.share_offsets.get(request.group_id)
        if offsets is None:
            raise errors.GroupIdNotFoundError(f"Group {request.group_id} not found.")
    except BrokerError as error:
        return sd.DeleteShareGroupOffsetsResponse(error_code=error.code or -1)
    topics = broker.cluster.topics

    def delete(name: str) -> None:
        if name not in topics:
            raise errors.UnknownTopicOrPartitionError(name)
        for at in [at for at in offsets if at.topic == name]:
            del offsets[at]

    return sd.DeleteShareGroupOffsetsResponse(
        responses=each(
            [t.topic_name for t in request.topics],
            delete,
            lambda name, code, why, _: sd.DeleteShareGroupOffsetsResponseTopic(
                name, topics[name].id if name in topics else bytes(16), code, why
            ),
        )
    )


GROUP_ADMIN_HANDLERS: dict[type[Message], Handler] = {
    cd.ConsumerGroupDescribeRequest: consumer_group_describe,
    dg.DescribeGroupsRequest: describe_groups,
    ls.ListGroupsRequest: list_groups,
    od.OffsetDeleteRequest: offset_delete,
    sa.AlterShareGroupOffsetsRequest: alter_share_offsets,
    sd.DeleteShareGroupOffsetsRequest: delete_share_offsets,
    sg.ShareGroupDescribeRequest: share_group_describe,
    sl.DescribeShareGroupOffsetsRequest: describe_share_offsets,
    st.StreamsGroupDescribeRequest: streams_group_describe,
    x.DeleteGroupsRequest: delete_groups,
}
GROUP_ADMIN_REFUSALS: dict[str, Any] = {
    "DeleteGroups": lambda body, code: x.DeleteGroupsResponse(
        results=[x.DeletableGroupResult(g, code) for g in body.groups_names]
    )
}
"""Responses by API that repeat an error code for each item of the request."""
