"""Handle admin requests for replicas, leaders, log directories, features and controllers.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response. Simplified: a reassignment completes a moment later, whatever its size; the brokers are
also the controllers. Must not know connections.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.protocol.message import Message
from odradek.protocol.messages import add_raft_voter as av
from odradek.protocol.messages import alter_partition_reassignments as ar
from odradek.protocol.messages import alter_replica_log_dirs as al
from odradek.protocol.messages import describe_log_dirs as dl
from odradek.protocol.messages import describe_quorum as dq
from odradek.protocol.messages import elect_leaders as el
from odradek.protocol.messages import list_partition_reassignments as lr
from odradek.protocol.messages import remove_raft_voter as rv
from odradek.protocol.messages import unregister_broker as ub
from odradek.protocol.messages import unregister_controller as uc
from odradek.protocol.messages import update_features as uf
from odradek.simulation.brokers.admin_state import FEATURES, LOG_DIRS, each
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.record_handlers import find_topic
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition

UPGRADE = 1
PREFERRED = 0
FREE_BYTES = 1 << 40


def _partition(broker: BrokerState, topic: str, number: int) -> SimulatedPartition:
    found = find_topic(broker, topic, b"", by_id=False)
    if not 0 <= number < len(found.partitions):
        raise errors.UnknownTopicOrPartitionError(f"{topic}-{number}")
    return found.partitions[number]


# Replicas


def alter_partition_reassignments(
    broker: BrokerState,
    request: ar.AlterPartitionReassignmentsRequest,
    version: int,
    reply: Reply,
) -> ar.AlterPartitionReassignmentsResponse:
    """Begin reassignments of replicas, or cancel them."""
    cluster, state = broker.cluster, broker.cluster.admin

    def move(at: TopicPartition, replicas: list[int] | None) -> None:
        partition = _partition(broker, *at)
        if replicas is None:
            if state.reassignments.pop(at, None) is None:
                raise errors.NoReassignmentInProgressError("no reassignment is under way")
            return
        known = {b.id for b in cluster.brokers.values() if b.registered}
        if not replicas or not set(replicas) <= known or len(set(replicas)) < len(replicas):
            raise errors.InvalidReplicaAssignmentError(
                f"The manual partition assignment includes {replicas}; there are {sorted(known)}"
            )
        if not request.allow_replication_factor_change and len(replicas) != len(partition.replicas):
            raise errors.InvalidReplicationFactorError(f"{len(replicas)} replicas")
        state.reassignments[at] = (list(partition.replicas), list(replicas))
        cluster.environment.time.after(state.move_time, partial(_moved, broker, at, list(replicas)))

    return ar.AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ar.ReassignableTopicResponse(
                t.name,
                each(
                    t.partitions,
                    lambda p, t=t: move(TopicPartition(t.name, p.partition_index), p.replicas),  # type: ignore[misc]  # bound now
                    lambda p, code, why, _: ar.ReassignablePartitionResponse(
                        p.partition_index, code, why
                    ),
                ),
            )
            for t in request.topics
        ],
    )


def _moved(broker: BrokerState, at: TopicPartition, replicas: list[int]) -> None:
    state, topics = broker.cluster.admin, broker.cluster.topics
    if at in state.reassignments and state.reassignments[at][1] == replicas:
        del state.reassignments[at]
        if at.topic in topics:
            broker.cluster.reassign(at.topic, at.partition, replicas)


def list_partition_reassignments(
    broker: BrokerState,
    request: lr.ListPartitionReassignmentsRequest,
    version: int,
    reply: Reply,
) -> lr.ListPartitionReassignmentsResponse:
    """Return the reassignments in progress."""
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes}
    topics: dict[str, list[lr.OngoingPartitionReassignment]] = {}
    for at, (before, after) in broker.cluster.admin.reassignments.items():
        if wanted is None or at in wanted:
            topics.setdefault(at.topic, []).append(
                lr.OngoingPartitionReassignment(
                    at.partition,
                    [*after, *(r for r in before if r not in after)],
                    [r for r in after if r not in before],
                    [r for r in before if r not in after],
                )
            )
    return lr.ListPartitionReassignmentsResponse(
        error_message=None, topics=[lr.OngoingTopicReassignment(*t) for t in topics.items()]
    )


def elect_leaders(
    broker: BrokerState, request: el.ElectLeadersRequest, version: int, reply: Reply
) -> el.ElectLeadersResponse:
    """Elect the preferred replicas as leaders, or any replica if a partition has no leader."""
    cluster = broker.cluster

    def elect(at: TopicPartition) -> None:
        partition = _partition(broker, *at)
        live = [r for r in partition.replicas if cluster.brokers[r].registered]
        if request.election_type == PREFERRED:
            if partition.leader == partition.replicas[0]:
                raise errors.ElectionNotNeededError("it has the right leader")
            if partition.replicas[0] not in live:
                raise errors.PreferredLeaderNotAvailableError(
                    "The preferred leader isn't available."
                )
            cluster.move_leader(*at, partition.replicas[0])
        elif partition.leader != NO_LEADER:
            raise errors.ElectionNotNeededError("it has the right leader")
        else:
            raise errors.EligibleLeadersNotAvailableError("Eligible leaders aren't available.")

    asked = request.topic_partitions
    if asked is None:
        asked = [
            el.TopicPartitions(t.name, [p.index for p in t.partitions if p.leader != p.replicas[0]])
            for t in cluster.topics.values()
        ]
    return el.ElectLeadersResponse(
        replica_election_results=[
            el.ReplicaElectionResult(
                t.topic,
                each(
                    t.partitions,
                    lambda p, t=t: elect(TopicPartition(t.topic, p)),  # type: ignore[misc]  # bound now
                    lambda p, *r: el.PartitionResult(p, *r[:2]),
                ),
            )
            for t in asked
            if t.partitions
        ]
    )


# Log directories


def _place(broker: BrokerState, topic: str, partition: int) -> str:
    places = broker.cluster.admin.places
    return places.get((topic, partition, broker.id), LOG_DIRS[0])


def describe_log_dirs(
    broker: BrokerState, request: dl.DescribeLogDirsRequest, version: int, reply: Reply
) -> dl.DescribeLogDirsResponse:
    """Return the content of this broker's log directories."""
    found: dict[str, dict[str, list[dl.DescribeLogDirsPartition]]] = {d: {} for d in LOG_DIRS}
    for topic in broker.cluster.topics.values():
        for partition in topic.partitions:
            if broker.id in partition.replicas:
                size = sum(len(b.data) for b in partition.log.batches)
                there = found[_place(broker, topic.name, partition.index)]
                there.setdefault(topic.name, []).append(
                    dl.DescribeLogDirsPartition(partition.index, size, 0, False)
                )
    sizes = (FREE_BYTES, FREE_BYTES // 2) if version >= 4 else (-1, -1)
    return dl.DescribeLogDirsResponse(
        results=[
            dl.DescribeLogDirsResult(
                0, path, [dl.DescribeLogDirsTopic(*t) for t in topics.items()], *sizes
            )
            for path, topics in found.items()
        ]
    )


def alter_replica_log_dirs(
    broker: BrokerState, request: al.AlterReplicaLogDirsRequest, version: int, reply: Reply
) -> al.AlterReplicaLogDirsResponse:
    """Move replicas of this broker to other directories."""

    def move(path: str, topic: str, number: int) -> None:
        if path not in LOG_DIRS:
            raise errors.LogDirNotFoundError(path)
        if broker.id not in _partition(broker, topic, number).replicas:
            raise errors.ReplicaNotAvailableError(f"{topic}-{number} has no replica here")
        broker.cluster.admin.places[topic, number, broker.id] = path

    return al.AlterReplicaLogDirsResponse(
        results=[
            al.AlterReplicaLogDirTopicResult(
                t.name,
                each(
                    t.partitions,
                    lambda p, d=d, t=t: move(d.path, t.name, p),  # type: ignore[misc]  # bound now
                    lambda p, code, *_: al.AlterReplicaLogDirPartitionResult(p, code),
                ),
            )
            for d in request.dirs
            for t in d.topics
        ]
    )


# Features and controllers


def update_features(
    broker: BrokerState, request: uf.UpdateFeaturesRequest, version: int, reply: Reply
) -> uf.UpdateFeaturesResponse:
    """Change all of the requested feature levels or, after an error, none."""
    state, topic = broker.cluster.admin, broker.cluster.transactions

    def check(asked: uf.FeatureUpdateKey) -> None:
        low, high = FEATURES.get(asked.feature, (0, -1))
        level = asked.max_version_level
        if not low <= level <= high:
            raise errors.InvalidUpdateVersionError(
                f"Invalid update version {level} for feature {asked.feature}."
            )
        now = topic.version if asked.feature == "transaction.version" else 0
        if level < state.features.get(asked.feature, now) and asked.upgrade_type == UPGRADE:
            raise errors.InvalidUpdateVersionError(f"{asked.feature} has a higher level now.")

    results = each(
        request.feature_updates, check, lambda u, *r: uf.UpdatableFeatureResult(u.feature, *r[:2])
    )
    wrong = [r for r in results if r.error_code]
    if wrong and version >= 2:
        return uf.UpdateFeaturesResponse(0, wrong[0].error_code, wrong[0].error_message)
    if not wrong and not request.validate_only:
        for update in request.feature_updates:
            if update.feature == "transaction.version":
                topic.finalize(update.max_version_level)
            state.reach_level(update.feature, update.max_version_level)
    return uf.UpdateFeaturesResponse(error_message=None, results=results if version < 2 else [])


def describe_quorum(
    broker: BrokerState, request: dq.DescribeQuorumRequest, version: int, reply: Reply
) -> dq.DescribeQuorumResponse:
    """Return all brokers (which are also the controllers) and the added voters."""
    cluster = broker.cluster
    now = int(cluster.environment.epoch_time() * 1000)
    voters = [
        dq.ReplicaState(b.id, bytes(15) + bytes([b.id]), 100, now, now)
        for b in cluster.brokers.values()
    ]
    voters += [dq.ReplicaState(i, directory, 100) for i, directory in sorted(cluster.admin.voters)]
    if version < 2:
        voters = [dq.ReplicaState(v.replica_id, log_end_offset=v.log_end_offset) for v in voters]
    part = dq.DescribeQuorumResponsePartitionData(
        0, 0, None if version >= 2 else "", cluster.controller_id, 1, 100, voters
    )
    nodes = [
        dq.Node(b.id, [dq.Listener("CONTROLLER", b.address.host, b.address.port)])
        for b in cluster.brokers.values()
    ]
    return dq.DescribeQuorumResponse(
        error_message=None if version >= 2 else "",
        topics=[dq.DescribeQuorumResponseTopicData("__cluster_metadata", [part])],
        nodes=nodes if version >= 2 else [],
    )


def unregister_broker(
    broker: BrokerState, request: ub.UnregisterBrokerRequest, version: int, reply: Reply
) -> ub.UnregisterBrokerResponse:
    """Remove a broker's registration."""
    state = broker.cluster.admin
    if request.broker_id not in broker.cluster.brokers or request.broker_id in state.unregistered:
        why = f"Broker ID {request.broker_id} is not currently registered"
        return ub.UnregisterBrokerResponse(0, errors.BrokerIdNotRegisteredError.code, why)
    state.unregistered.add(request.broker_id)
    return ub.UnregisterBrokerResponse(error_message=None)


def unregister_controller(
    broker: BrokerState, request: uc.UnregisterControllerRequest, version: int, reply: Reply
) -> uc.UnregisterControllerResponse:
    """Refuse to unregister a controller: all controllers here are brokers."""
    why = f"Controller {request.controller_id} is not registered."
    code = errors.ControllerIdNotRegisteredError.code
    return uc.UnregisterControllerResponse(0, code, why)


def add_raft_voter(
    broker: BrokerState, request: av.AddRaftVoterRequest, version: int, reply: Reply
) -> av.AddRaftVoterResponse:
    """Add a voter to the controllers' quorum."""
    voters = broker.cluster.admin.voters
    voter = request.voter_id, bytes(request.voter_directory_id)
    if voter in voters:
        return av.AddRaftVoterResponse(
            0, errors.DuplicateVoterError.code, f"{voter[0]} votes already"
        )
    voters.add(voter)
    return av.AddRaftVoterResponse(error_message=None)


def remove_raft_voter(
    broker: BrokerState, request: rv.RemoveRaftVoterRequest, version: int, reply: Reply
) -> rv.RemoveRaftVoterResponse:
    """Remove a voter from the controllers' quorum."""
    voters = broker.cluster.admin.voters
    voter = request.voter_id, bytes(request.voter_directory_id)
    if voter not in voters:
        return rv.RemoveRaftVoterResponse(
            0, errors.VoterNotFoundError.code, f"{voter[0]} has no vote"
        )
    voters.discard(voter)
    return rv.RemoveRaftVoterResponse(error_message=None)


CLUSTER_ADMIN_HANDLERS: dict[type[Message], Handler] = {
    al.AlterReplicaLogDirsRequest: alter_replica_log_dirs,
    ar.AlterPartitionReassignmentsRequest: alter_partition_reassignments,
    av.AddRaftVoterRequest: add_raft_voter,
    dl.DescribeLogDirsRequest: describe_log_dirs,
    dq.DescribeQuorumRequest: describe_quorum,
    el.ElectLeadersRequest: elect_leaders,
    lr.ListPartitionReassignmentsRequest: list_partition_reassignments,
    rv.RemoveRaftVoterRequest: remove_raft_voter,
    ub.UnregisterBrokerRequest: unregister_broker,
    uc.UnregisterControllerRequest: unregister_controller,
    uf.UpdateFeaturesRequest: update_features,
}
CLUSTER_ADMIN_REFUSALS: dict[str, Any] = {
    "AlterReplicaLogDirs": lambda body, code: al.AlterReplicaLogDirsResponse(
        results=[
            al.AlterReplicaLogDirTopicResult(
                t.name, [al.AlterReplicaLogDirPartitionResult(p, code) for p in t.partitions]
            )
            for d in body.dirs
            for t in d.topics
        ]
    )
}
"""Responses by API that repeat an error code for each item of the request."""
