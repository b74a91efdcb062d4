"""Handle the APIs of groups: convert versions, ids and topics for the group's coordinator.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response, or None if it comes later. Must not know connections, or the logic of groups.
"""

from __future__ import annotations

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages import consumer_group_heartbeat as h
from odradek.protocol.messages import join_group as j
from odradek.protocol.messages import leave_group as lg
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.offset_handlers import group_shard, offset_commit, offset_fetch
from odradek.simulation.coordinators.classic_members import Join, Joined, Synced
from odradek.simulation.coordinators.consumer_protocol_group import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Beat,
    BeatAnswer,
    Places,
)
from odradek.simulation.coordinators.server_assignors import ASSIGNORS

NO_NODE = -1


def find_coordinator(
    broker: BrokerState,
    request: FindCoordinatorRequest,
    version: int,
    reply: Reply,
) -> FindCoordinatorResponse:
    """Return the coordinator of a group or transactional id, from version 4 on of several ids."""
    if version < 4:
        one = _find(broker, request.key, request.key_type)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    return FindCoordinatorResponse(
        coordinators=[_find(broker, key, request.key_type) for key in request.coordinator_keys]
    )


def _find(broker: BrokerState, key: str, kind: int) -> Coordinator:
    try:
        topic = broker.cluster.coordinators.get(kind)
        if topic is None:
            raise errors.InvalidRequestError(f"there are no coordinators of kind {kind}")
        found = broker.cluster.brokers[topic.coordinator(key, broker)]
    except BrokerError as error:
        return Coordinator(key, NO_NODE, "", -1, error.code or -1, str(error))
    return Coordinator(key, found.id, found.address.host, found.address.port, 0, None)


def _code(error: BrokerError | None) -> int:
    return 0 if error is None else error.code if error.code is not None else -1


# The classic protocol


def join_group(
    broker: BrokerState, request: j.JoinGroupRequest, version: int, reply: Reply
) -> None:
    """Join a group; the response is sent when the join phase ends."""

    def answer(joined: Joined) -> None:
        response = j.JoinGroupResponse(
            error_code=_code(joined.error),
            generation_id=joined.generation,
            protocol_name=joined.protocol if version >= 7 else joined.protocol or "",
            leader=joined.leader,
            member_id=joined.member_id,
            members=[
                j.JoinGroupResponseMember(m, i if version >= 5 else None, d)
                for m, i, d in joined.members
            ],
        )
        if version >= 7:
            response.protocol_type = joined.protocol_type
        if version >= 9:
            response.skip_assignment = joined.skip_assignment
        reply(response)

    session = request.session_timeout_ms / 1000
    rebalance = request.rebalance_timeout_ms / 1000 if version >= 1 else session
    join = Join(
        request.member_id,
        request.group_instance_id,
        "member",
        session,
        rebalance,
        request.protocol_type,
        tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        id_required=version >= 4,
        may_skip_assignment=version >= 9,
    )
    try:
        shard = group_shard(broker, request.group_id)
        settings = shard.settings
        if not settings.min_session_timeout <= session <= settings.max_session_timeout:
            raise errors.InvalidSessionTimeoutError(f"{session} s")
        shard.classic(request.group_id, create=not request.member_id).join(join, answer)
    except BrokerError as error:
        answer(Joined(error, request.member_id))


def sync_group(broker: BrokerState, request: SyncGroupRequest, version: int, reply: Reply) -> None:
    """Handle SyncGroup; the response is sent when the group's leader has sent the assignment."""

    def answer(synced: Synced) -> None:
        response = SyncGroupResponse(error_code=_code(synced.error), assignment=synced.assignment)
        if version >= 5:
            response.protocol_type, response.protocol_name = synced.protocol_type, synced.protocol
        reply(response)

    try:
        group = group_shard(broker, request.group_id).classic(request.group_id, create=False)
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            raise errors.InconsistentGroupProtocolError("a sync without protocol")
        group.sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            (request.protocol_type, request.protocol_name),
            {a.member_id: bytes(a.assignment) for a in request.assignments},
            answer,
        )
    except BrokerError as error:
        answer(Synced(error))


def heartbeat(
    broker: BrokerState, request: HeartbeatRequest, version: int, reply: Reply
) -> HeartbeatResponse:
    """Note that a member of a classic group is alive."""
    try:
        group = group_shard(broker, request.group_id).classic(request.group_id, create=False)
        group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    except BrokerError as error:
        return HeartbeatResponse(error_code=_code(error))
    return HeartbeatResponse()


def leave_group(
    broker: BrokerState, request: lg.LeaveGroupRequest, version: int, reply: Reply
) -> lg.LeaveGroupResponse:
    """Remove a member from a group, from version 3 on several members."""
    response = lg.LeaveGroupResponse()
    members = request.members if version >= 3 else [lg.MemberIdentity(request.member_id)]
    try:
        shard = group_shard(broker, request.group_id)
    except BrokerError as error:
        response.error_code = _code(error)
        return response
    for member in members:
        code = 0
        try:
            group = shard.classic(request.group_id, create=False)
            group.leave(member.member_id, member.group_instance_id)
        except BrokerError as error:
            code = _code(error)
        if version >= 3:
            response.members.append(
                lg.MemberResponse(member.member_id, member.group_instance_id, code)
            )
        else:
            response.error_code = code
    return response


# The consumer protocol


def consumer_group_heartbeat(
    broker: BrokerState, request: h.ConsumerGroupHeartbeatRequest, version: int, reply: Reply
) -> None:
    """Handle ConsumerGroupHeartbeat, by which members join, stay, acknowledge and leave."""

    def answer(beat: BeatAnswer) -> None:
        response = h.ConsumerGroupHeartbeatResponse(
            error_code=_code(beat.error), member_id=beat.member_id, member_epoch=beat.epoch
        )
        if beat.error is not None:
            response.error_message = str(beat.error)
        else:
            interval = broker.cluster.group_settings.consumer_heartbeat_interval
            response.heartbeat_interval_ms = round(interval * 1000)
        if beat.assignment is not None:
            response.assignment = h.Assignment(_by_topic(beat.assignment))
        reply(response)

    try:
        shard = group_shard(broker, request.group_id)
        _check_heartbeat(request, version)
        owned = request.topic_partitions
        beat = Beat(
            request.member_id or f"{shard.rng.getrandbits(64):016x}",
            request.member_epoch,
            request.instance_id,
            request.rebalance_timeout_ms / 1000 if request.rebalance_timeout_ms != -1 else None,
            None
            if request.subscribed_topic_names is None
            else tuple(request.subscribed_topic_names),
            request.subscribed_topic_regex,
            request.server_assignor,
            None
            if owned is None
            else frozenset((t.topic_id, p) for t in owned for p in t.partitions),
        )
        group = shard.consumer(request.group_id, create=request.member_epoch == 0)
        group.heartbeat(beat, answer)
    except BrokerError as error:
        answer(BeatAnswer(error, request.member_id))


def _check_heartbeat(request: h.ConsumerGroupHeartbeatRequest, version: int) -> None:
    epoch = request.member_epoch
    problem = ""
    if not request.member_id and (version >= 1 or epoch != 0):
        problem = "the member id is empty"
    elif epoch < STATIC_LEAVE_EPOCH:
        problem = f"a member epoch of {epoch}"
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        problem = "only static members leave for a while"
    elif request.instance_id == "" or request.rack_id == "" or request.server_assignor == "":
        problem = "an empty text where there should be a name or none"
    elif epoch == 0 and request.rebalance_timeout_ms == -1:
        problem = "a join without rebalance timeout"
    elif epoch == 0 and (request.topic_partitions is None or request.topic_partitions):
        problem = "a join must own nothing, and say so"
    elif (
        epoch == 0
        and not request.subscribed_topic_names
        and not request.subscribed_topic_regex
        and request.subscribed_topic_names is None
    ):
        problem = "a join without subscription"
    if problem and epoch != LEAVE_EPOCH:
        raise errors.InvalidRequestError(problem)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise errors.UnsupportedAssignorError(f"{request.server_assignor}: not in {[*ASSIGNORS]}")


def _by_topic(places: Places) -> list[h.ConsumerGroupHeartbeatResponseTopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return [h.ConsumerGroupHeartbeatResponseTopicPartitions(k, v) for k, v in found.items()]


GROUP_HANDLERS: dict[type[Message], Handler] = {
    FindCoordinatorRequest: find_coordinator,
    HeartbeatRequest: heartbeat,
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
    SyncGroupRequest: sync_group,
    h.ConsumerGroupHeartbeatRequest: consumer_group_heartbeat,
    j.JoinGroupRequest: join_group,
    lg.LeaveGroupRequest: leave_group,
}
