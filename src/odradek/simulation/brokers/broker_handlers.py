"""Handle requests for metadata, topics and the cluster, with one function for each API.

In: a broker, a decoded request, its version, and a callback for a later response. Out: the
response, or None if it comes later (or never, for acks=0). Errors have Kafka's codes. Simplified:
no quotas, no authorization. Must not know connections.
"""

from __future__ import annotations

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.primitives import ZERO_UUID
from odradek.simulation.brokers.admin_state import FEATURES, TOPIC
from odradek.simulation.brokers.cluster_admin_handlers import CLUSTER_ADMIN_HANDLERS
from odradek.simulation.brokers.cluster_state import BrokerState, ClusterPicture, Handler, Reply
from odradek.simulation.brokers.epoch_handlers import EPOCH_HANDLERS
from odradek.simulation.brokers.group_admin_handlers import GROUP_ADMIN_HANDLERS
from odradek.simulation.brokers.group_handlers import GROUP_HANDLERS
from odradek.simulation.brokers.produce_handler import produce
from odradek.simulation.brokers.record_handlers import fetch, list_offsets
from odradek.simulation.brokers.sasl import SASL_HANDLERS
from odradek.simulation.brokers.security_admin_handlers import SECURITY_ADMIN_HANDLERS
from odradek.simulation.brokers.telemetry_handlers import TELEMETRY_HANDLERS
from odradek.simulation.brokers.topic_admin_handlers import TOPIC_ADMIN_HANDLERS, check_option
from odradek.simulation.brokers.transaction_admin_handlers import (
    TRANSACTION_ADMIN_HANDLERS,
)
from odradek.simulation.brokers.transaction_handlers import TRANSACTION_HANDLERS
from odradek.simulation.logs.topics import NO_LEADER, SimulatedPartition, SimulatedTopic

TOPIC_NAME_LIMIT = 249
TRANSACTION_VERSION = "transaction.version"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def api_versions(
    broker: BrokerState, *, only: tuple[int, int] | None = None
) -> ApiVersionsResponse:
    """Return the versions of all APIs; with `only`, an error and the versions of ApiVersions."""
    if only is not None:
        return ApiVersionsResponse(
            errors.UnsupportedVersionError.code, [ApiVersion(ApiVersionsRequest.API_KEY, *only)]
        )
    table = sorted(broker.spoken.items())
    state, transactions = broker.cluster.admin, broker.cluster.transactions
    levels = {**state.features, TRANSACTION_VERSION: transactions.version}
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, *span) for key, span in table],
        supported_features=[SupportedFeatureKey(name, *span) for name, span in FEATURES.items()],
        finalized_features_epoch=transactions.features_epoch + state.features_epoch - 1,
        finalized_features=[FinalizedFeatureKey(name, at, at) for name, at in levels.items()],
    )


def metadata(
    broker: BrokerState, request: MetadataRequest, version: int, reply: Reply
) -> MetadataResponse:
    """Return the registered brokers and the requested topics."""
    cluster = broker.cluster
    if cluster.answers_129 and version >= 13:
        return MetadataResponse(error_code=errors.RebootstrapRequiredError.code)
    picture = broker.picture
    response = MetadataResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id if picture is None else picture.controller_id,
    )
    if not cluster.answers_empty_brokers:
        response.brokers = _brokers(broker) if picture is None else list(picture.brokers)
    if picture is not None and picture.deleted:
        response.topics = _pictured(picture, request, version)
        cluster.hits["metadata of a deleted topic"] += any(
            not t.error_code and cluster.topic_by_id(t.topic_id) is None for t in response.topics
        )
        return response
    if request.topics is None or (version == 0 and not request.topics):
        response.topics = [_topic_metadata(broker, t) for t in cluster.topics.values()]
        return response
    for asked in request.topics:
        if asked.topic_id != ZERO_UUID and not asked.name:
            found = cluster.topic_by_id(asked.topic_id)
            missing = MetadataResponseTopic(
                errors.UnknownTopicIdError.code, None if version >= 12 else "", asked.topic_id
            )
        else:
            found = cluster.topics.get(asked.name or "")
            missing = MetadataResponseTopic(errors.UnknownTopicOrPartitionError.code, asked.name)
            if found is None:
                try:
                    check_topic_name(asked.name or "")
                    if cluster.auto_create and request.allow_auto_topic_creation:
                        found = cluster.create_topic(asked.name or "")
                except errors.InvalidTopicExceptionError as error:
                    missing.error_code = error.code
        response.topics.append(missing if found is None else _topic_metadata(broker, found))
    return response


def picture(broker: BrokerState, *, deleted: bool = False) -> ClusterPicture:
    """Return the metadata that brokers report now, so that a broker's responses can be frozen."""
    cluster = broker.cluster
    topics = {t.name: _topic_metadata(broker, t) for t in cluster.topics.values()}
    return ClusterPicture(cluster.controller_id, tuple(_brokers(broker)), topics, deleted)


def _pictured(
    picture: ClusterPicture, request: MetadataRequest, version: int
) -> list[MetadataResponseTopic]:
    """Return the requested topics as they were when the metadata was frozen."""
    if request.topics is None or (version == 0 and not request.topics):
        return list(picture.topics.values())
    by_id = {t.topic_id: t for t in picture.topics.values()}
    found = []
    for asked in request.topics:
        if asked.topic_id != ZERO_UUID and not asked.name:
            code, name = errors.UnknownTopicIdError.code, None if version >= 12 else ""
            there = by_id.get(asked.topic_id)
        else:
            code, name = errors.UnknownTopicOrPartitionError.code, asked.name
            there = picture.topics.get(asked.name or "")
        found.append(there or MetadataResponseTopic(code, name, asked.topic_id))
    return found


def _brokers(broker: BrokerState) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(b.id, b.address.host, b.address.port, b.rack)
        for b in broker.cluster.brokers.values()
        if b.registered
    ]


def _topic_metadata(broker: BrokerState, topic: SimulatedTopic) -> MetadataResponseTopic:
    old = broker.picture.topics.get(topic.name) if broker.picture is not None else None
    if old is not None and old.topic_id == topic.id:
        return old
    partitions = [_partition_metadata(broker, p) for p in topic.partitions]
    return MetadataResponseTopic(0, topic.name, topic.id, topic.internal, partitions)


def _partition_metadata(
    broker: BrokerState, partition: SimulatedPartition
) -> MetadataResponsePartition:
    brokers = broker.cluster.brokers
    there = [r for r in partition.replicas if brokers[r].registered]
    missing = partition.leader == NO_LEADER
    return MetadataResponsePartition(
        error_code=errors.LeaderNotAvailableError.code if missing else 0,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=there,
        offline_replicas=[r for r in partition.replicas if r not in there],
    )


def create_topics(
    broker: BrokerState, request: CreateTopicsRequest, version: int, reply: Reply
) -> CreateTopicsResponse:
    """Create topics on any broker; with KRaft, brokers forward this request to the controller."""
    return CreateTopicsResponse(
        topics=[
            _create(broker, asked, version, validate_only=request.validate_only)
            for asked in request.topics
        ]
    )


def _create(
    broker: BrokerState, asked: CreatableTopic, version: int, *, validate_only: bool
) -> CreatableTopicResult:
    cluster = broker.cluster
    try:
        assignments = {a.partition_index: list(a.broker_ids) for a in asked.assignments}
        _check_new_topic(broker, asked, assignments)
    except BrokerError as error:
        return CreatableTopicResult(
            asked.name, error_code=error.code or -1, error_message=str(error)
        )
    count = len(assignments) or (asked.num_partitions if asked.num_partitions > 0 else 1)
    replication = asked.replication_factor if asked.replication_factor > 0 else None
    result = CreatableTopicResult(asked.name, error_message=None)
    if not validate_only:
        topic = cluster.create_topic(asked.name, count, replication, assignments=assignments)
        cluster.admin.configs[TOPIC, asked.name] = {c.name: c.value or "" for c in asked.configs}
        if version >= 7:
            result.topic_id = topic.id
    if version >= 5:
        result.num_partitions = count
        result.replication_factor = (
            len(next(iter(assignments.values())))
            if assignments
            else replication or cluster.default_replication
        )
    return result


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicExceptionError` for a name that Kafka doesn't allow."""
    if not 0 < len(name) <= TOPIC_NAME_LIMIT or name in (".", "..") or set(name) - _ALLOWED:
        raise errors.InvalidTopicExceptionError(f"{name!r} isn't a topic's name")


def _check_new_topic(
    broker: BrokerState, asked: CreatableTopic, assignments: dict[int, list[int]]
) -> None:
    cluster = broker.cluster
    name = asked.name
    check_topic_name(name)
    for option in asked.configs:
        check_option(TOPIC, option.name, option.value or "")
    if name in cluster.topics:
        raise errors.TopicAlreadyExistsError(f"Topic '{name}' already exists.")
    if assignments:
        known = set(cluster.brokers)
        if sorted(assignments) != list(range(len(assignments))) or not all(
            ids and set(ids) <= known for ids in assignments.values()
        ):
            raise errors.InvalidReplicaAssignmentError(f"the assignment of {name!r} has gaps")
        return
    if asked.num_partitions != -1 and asked.num_partitions <= 0:
        raise errors.InvalidPartitionsError(
            "Number of partitions was set to an invalid non-positive value."
        )
    factor = asked.replication_factor
    registered = sum(b.registered for b in cluster.brokers.values())
    if factor > registered:
        raise errors.InvalidReplicationFactorError(
            f"Unable to replicate the partition {factor} time(s): The target replication factor of"
            f" {factor} cannot be reached because only {registered} broker(s) are registered."
        )
    if factor != -1 and factor <= 0:
        raise errors.InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )


def delete_topics(
    broker: BrokerState, request: DeleteTopicsRequest, version: int, reply: Reply
) -> DeleteTopicsResponse:
    """Delete topics by name or id."""
    cluster = broker.cluster
    response = DeleteTopicsResponse()
    for name in request.topic_names if version < 6 else []:
        response.responses.append(_delete(broker, name, cluster.topics.get(name), version))
    for state in request.topics if version >= 6 else []:
        by_id = state.name is None
        found = (
            cluster.topic_by_id(state.topic_id) if by_id else cluster.topics.get(state.name or "")
        )
        if by_id and found is None:
            code = errors.UnknownTopicIdError.code
            response.responses.append(DeletableTopicResult(None, state.topic_id, code))
        else:
            response.responses.append(_delete(broker, state.name, found, version))
    return response


def _delete(
    broker: BrokerState, name: str | None, topic: SimulatedTopic | None, version: int
) -> DeletableTopicResult:
    if topic is None:
        return DeletableTopicResult(name, error_code=errors.UnknownTopicOrPartitionError.code)
    broker.cluster.delete_topic(topic.name)
    return DeletableTopicResult(topic.name, topic.id if version >= 6 else ZERO_UUID)


def describe_cluster(
    broker: BrokerState, request: DescribeClusterRequest, version: int, reply: Reply
) -> DescribeClusterResponse:
    """Return the cluster's id, controller and registered brokers."""
    cluster = broker.cluster
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(
                b.id,
                b.address.host,
                b.address.port,
                is_fenced=version >= 2 and not b.registered,
            )
            for b in cluster.brokers.values()
            if b.registered or request.include_fenced_brokers
        ],
    )


HANDLERS: dict[type[Message], Handler] = {
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    DescribeClusterRequest: describe_cluster,
    FetchRequest: fetch,
    ListOffsetsRequest: list_offsets,
    MetadataRequest: metadata,
    ProduceRequest: produce,
    **CLUSTER_ADMIN_HANDLERS,
    **EPOCH_HANDLERS,
    **GROUP_ADMIN_HANDLERS,
    **GROUP_HANDLERS,
    **SASL_HANDLERS,
    **SECURITY_ADMIN_HANDLERS,
    **TELEMETRY_HANDLERS,
    **TOPIC_ADMIN_HANDLERS,
    **TRANSACTION_ADMIN_HANDLERS,
    **TRANSACTION_HANDLERS,
}
BY_KEY = {kind.API_KEY: handler for kind, handler in HANDLERS.items()}
"""Handlers by API key instead of class: a client may send a subclass without the latest
versions."""
