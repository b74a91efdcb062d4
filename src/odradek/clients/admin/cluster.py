"""Describe and change the cluster as a whole: brokers, features, the controllers' quorum.

In: arguments of a call. Out: `AdminCall`s. Must not: change the client's metadata (R-MD-4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.clients.admin.admin_arguments import some_of
from odradek.clients.admin.admin_call import AdminCall, by_any, one
from odradek.clients.batched_calls import ApiCall, call_any
from odradek.clients.descriptions import (
    BrokerDescription,
    EmptyAnswerError,
    ForeignAnswerError,
    authorized_operations,
    check_metadata,
)
from odradek.common.arguments import INT32_MAX, choice, flag, mapping, refusal, text, whole_number
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    BrokerIdNotRegisteredError,
    ControllerIdNotRegisteredError,
    DuplicateVoterError,
    UnsupportedVersionError,
    VoterNotFoundError,
    error_for,
)
from odradek.common.notebooks.display import Shown
from odradek.metadata.bootstrap import check_cluster_id
from odradek.network.connection import Connection
from odradek.network.flow import Flow
from odradek.network.handshake import api_versions_request
from odradek.protocol.messages import add_raft_voter as av
from odradek.protocol.messages import api_versions as v
from odradek.protocol.messages import describe_cluster as d
from odradek.protocol.messages import describe_quorum as q
from odradek.protocol.messages import remove_raft_voter as rv
from odradek.protocol.messages import unregister_broker as ub
from odradek.protocol.messages import unregister_controller as uc
from odradek.protocol.messages import update_features as f
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

METADATA_TOPIC = "__cluster_metadata"
INT16_MAX = 2**15 - 1
UPGRADE_TYPES = {"UPGRADE": 1, "SAFE_DOWNGRADE": 2, "UNSAFE_DOWNGRADE": 3}
NEVER = -1


@dataclass(frozen=True, slots=True)
class ClusterDescription(Shown):
    """The cluster's id, its brokers by id, and the controller's id (None if there is none).

    In KRaft clusters, the controller's id is that of a broker that forwards requests to the
    controller; `describe_metadata_quorum` returns the controller itself. `authorized_operations`:
    the operations on the cluster that this client may do; None if they weren't requested.
    """

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FeatureVersions:
    """The levels of one feature that a broker supports, and the active `level` (0: off)."""

    lowest: int
    highest: int
    level: int


@dataclass(frozen=True, slots=True)
class FeatureDescription(Shown):
    """The features by name; `epoch` grows with each change and is None if nothing was finalized."""

    features: Mapping[str, FeatureVersions]
    epoch: int | None


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A new level of a feature; 0 turns it off.

    `upgrade_type`: UPGRADE, SAFE_DOWNGRADE, or UNSAFE_DOWNGRADE, which may lose metadata.
    """

    level: int
    upgrade_type: str = "UPGRADE"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer of the metadata quorum.

    Times are in milliseconds since the epoch, and None if the replica never fetched or caught up.
    `directory_id` is a UUID as text.
    """

    id: int
    directory_id: str | None
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class RaftVoterEndpoint:
    """An endpoint of a controller."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumDescription(Shown):
    """The quorum of controllers that stores the cluster's metadata.

    `nodes` has the controllers' endpoints by id, from brokers that report them (KIP-853).
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: Mapping[int, tuple[RaftVoterEndpoint, ...]]


def describe(authorized: bool, include_fenced_brokers: bool) -> AdminCall[ClusterDescription]:
    """Describe the cluster's id, brokers and controller (KIP-700)."""
    operations = flag("authorized_operations", authorized)
    fenced = flag("include_fenced_brokers", include_fenced_brokers)

    def allowed(bits: int) -> frozenset[str] | None:
        return authorized_operations(bits) if operations else None  # Kafka 2.3 always sends 0

    def found(answer: d.DescribeClusterResponse) -> ClusterDescription:
        brokers = {b.broker_id: b for b in answer.brokers}
        return ClusterDescription(
            answer.cluster_id,
            answer.controller_id if answer.controller_id >= 0 else None,
            tuple(
                BrokerDescription(
                    b.broker_id, b.host, b.port, b.rack, b.is_fenced if fenced else None
                )
                for _, b in sorted(brokers.items())
            ),
            allowed(answer.cluster_authorized_operations),
        )

    def before_2_8(answer: MetadataResponse) -> ClusterDescription:
        """Describe the cluster with a Metadata request, for brokers without DescribeCluster."""
        brokers = {b.node_id: b for b in answer.brokers}
        return ClusterDescription(
            answer.cluster_id or "",
            None if answer.controller_id < 0 else answer.controller_id,
            tuple(
                BrokerDescription(b.node_id, b.host, b.port, b.rack)
                for _, b in sorted(brokers.items())
            ),
            allowed(answer.cluster_authorized_operations),
        )

    def flow(engine: AdminEngine, deadline: float) -> Flow[ClusterDescription]:
        def check(answer: d.DescribeClusterResponse, connection: Connection) -> KafkaError | None:
            if answer.error_code:
                return error_for(answer.error_code, answer.error_message)
            known = engine.metadata.cluster_id
            foreign = check_cluster_id(known, answer.cluster_id, connection.address)
            if foreign is not None:
                engine.network.fail(connection, foreign, engine.now)
                return ForeignAnswerError(str(foreign))
            return None if answer.brokers else EmptyAnswerError("the response contains no brokers")

        current: ApiCall[None, d.DescribeClusterResponse, ClusterDescription] = ApiCall(
            "the description of the cluster",
            "",
            lambda *_: d.DescribeClusterRequest(operations, include_fenced_brokers=fenced),
            d.DescribeClusterResponse,
            lambda answer: [(None, 0, None, found(answer))],
            check=check,
        )
        try:
            return (yield from call_any(engine.brokers, current, (None,), deadline)).settled()[None]
        except UnsupportedVersionError:
            if fenced:
                raise
        earlier: ApiCall[None, MetadataResponse, ClusterDescription] = ApiCall(
            "the description of the cluster",
            "",
            lambda *_: MetadataRequest([], False, operations),
            MetadataResponse,
            lambda answer: [(None, 0, None, before_2_8(answer))],
            check=check_metadata(engine.brokers),
        )
        return (yield from call_any(engine.brokers, earlier, (None,), deadline)).settled()[None]

    return AdminCall("the description of the cluster", flow)


# Features


def features() -> AdminCall[FeatureDescription]:
    """Describe the features' levels as a broker reports them (KIP-584)."""
    question: ApiCall[None, v.ApiVersionsResponse, FeatureDescription] = ApiCall(
        "the description of features",
        "",
        lambda *_: api_versions_request(),
        v.ApiVersionsResponse,
        lambda answer: [(None, 0, None, _features(answer))],
    )
    return one(question)


def _features(answer: v.ApiVersionsResponse) -> FeatureDescription:
    levels = {k.name: k.max_version_level for k in answer.finalized_features}
    supported = {
        k.name: FeatureVersions(k.min_version, k.max_version, levels.pop(k.name, 0))
        for k in answer.supported_features
    }
    supported.update({name: FeatureVersions(0, 0, level) for name, level in levels.items()})
    epoch = answer.finalized_features_epoch
    return FeatureDescription(dict(sorted(supported.items())), None if epoch < 0 else epoch)


def update_features(
    updates: Mapping[str, FeatureUpdate], validate_only: bool
) -> AdminCall[dict[str, None]]:
    """Change the levels of features, all or none (KIP-584)."""
    given = mapping("updates", updates, "a dict of FeatureUpdate by feature's name")
    wanted = [_update(text("a name in updates", n), u) for n, u in given.items()]
    only_checked = flag("validate_only", validate_only)

    def read(answer: f.UpdateFeaturesResponse) -> list[tuple[str, int, str | None, None]]:
        said = {r.feature: (r.error_code, r.error_message) for r in answer.results}
        # From version 2 on a response without an error means that all updates succeeded.
        return [(n, *said.get(n, (0, None)), None) for n in given]

    question: ApiCall[str, f.UpdateFeaturesResponse, None] = ApiCall(
        "the change of features",
        "feature",
        lambda left, ms: f.UpdateFeaturesRequest(
            ms, [u for u in wanted if u.feature in left], only_checked
        ),
        f.UpdateFeaturesResponse,
        read,
        right="ALTER",
        changes=not only_checked,
    )
    return by_any(question, given)


def _update(name: str, update: Any) -> f.FeatureUpdateKey:
    if not isinstance(update, FeatureUpdate):
        raise refusal(
            f"the update of {name}", "a FeatureUpdate", update, "give FeatureUpdate(level)"
        )
    level = whole_number(f"the level of {name}", update.level, 0, INT16_MAX)
    kind = UPGRADE_TYPES[choice(f"upgrade_type of {name}", update.upgrade_type, UPGRADE_TYPES)]
    return f.FeatureUpdateKey(name, level, upgrade_type=kind)


# Controllers


def quorum() -> AdminCall[QuorumDescription]:
    """Describe the quorum of controllers (KIP-595, KIP-836)."""

    def read(answer: q.DescribeQuorumResponse) -> list[tuple[None, int, str | None, Any]]:
        for topic in answer.topics:
            for part in topic.partitions:
                return [(None, part.error_code, part.error_message, _quorum(part, answer.nodes))]
        return []

    question: ApiCall[None, q.DescribeQuorumResponse, QuorumDescription] = ApiCall(
        "the description of the metadata quorum",
        "the metadata quorum",
        lambda *_: q.DescribeQuorumRequest(
            [
                q.DescribeQuorumRequestTopicData(
                    METADATA_TOPIC, [q.DescribeQuorumRequestPartitionData(0)]
                )
            ]
        ),
        q.DescribeQuorumResponse,
        read,
        right="DESCRIBE",
    )
    return one(question)


def _quorum(
    part: q.DescribeQuorumResponsePartitionData, nodes: Sequence[q.Node]
) -> QuorumDescription:
    return QuorumDescription(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        tuple(_replica(r) for r in part.current_voters),
        tuple(_replica(r) for r in part.observers),
        {
            n.node_id: tuple(RaftVoterEndpoint(e.name, e.host, e.port) for e in n.listeners)
            for n in nodes
        },
    )


def _replica(r: q.ReplicaState) -> QuorumReplica:
    directory = bytes(r.replica_directory_id)
    return QuorumReplica(
        r.replica_id,
        str(UUID(bytes=directory)) if any(directory) else None,
        r.log_end_offset,
        None if r.last_fetch_timestamp == NEVER else r.last_fetch_timestamp,
        None if r.last_caught_up_timestamp == NEVER else r.last_caught_up_timestamp,
    )


def unregister_broker(broker: int) -> AdminCall[None]:
    """Unregister a broker that won't come back (KIP-631)."""
    number = whole_number("broker", broker, 0, INT32_MAX)
    return _done(
        f"the unregistration of broker {number}",
        lambda _: ub.UnregisterBrokerRequest(number),
        ub.UnregisterBrokerResponse,
        (BrokerIdNotRegisteredError,),
    )


def unregister_controller(controller: int) -> AdminCall[None]:
    """Unregister a controller that won't come back."""
    number = whole_number("controller", controller, 0, INT32_MAX)
    return _done(
        f"the unregistration of controller {number}",
        lambda _: uc.UnregisterControllerRequest(number),
        uc.UnregisterControllerResponse,
        (ControllerIdNotRegisteredError,),
    )


def add_voter(
    voter: int, directory_id: UUID | str, endpoints: Sequence[RaftVoterEndpoint]
) -> AdminCall[None]:
    """Add a voter to the metadata quorum (KIP-853)."""
    number, directory = whole_number("voter", voter, 0, INT32_MAX), _directory(directory_id)
    cure = "use RaftVoterEndpoint(listener, host, port)"
    listeners = [
        av.Listener(e.listener, e.host, whole_number("port", e.port, 1, 65535))
        for e in some_of("endpoints", endpoints, RaftVoterEndpoint, cure)
    ]
    return _done(
        f"the addition of voter {number}",
        lambda ms: av.AddRaftVoterRequest(None, ms, number, directory, listeners),
        av.AddRaftVoterResponse,
        (DuplicateVoterError,),
    )


def remove_voter(voter: int, directory_id: UUID | str) -> AdminCall[None]:
    """Remove a voter from the metadata quorum (KIP-853)."""
    number, directory = whole_number("voter", voter, 0, INT32_MAX), _directory(directory_id)
    return _done(
        f"the removal of voter {number}",
        lambda _: rv.RemoveRaftVoterRequest(None, number, directory),
        rv.RemoveRaftVoterResponse,
        (VoterNotFoundError,),
    )


def _done(
    what: str,
    body: Any,
    response: Any,
    already: tuple[type[KafkaError], ...],
) -> AdminCall[None]:
    """Return a call whose response only reports success or an error."""

    def read(answer: Any) -> list[tuple[None, int, str | None, None]]:
        return [(None, answer.error_code, answer.error_message, None)]

    question: ApiCall[None, Any, None] = ApiCall(
        what, what, lambda _, ms: body(ms), response, read, "ALTER", already, True, whole=False
    )
    return one(question)


def _directory(given: Any) -> bytes:
    if isinstance(given, UUID):
        return given.bytes
    try:
        return UUID(text("directory_id", given)).bytes
    except ValueError:
        raise refusal("directory_id", "a UUID", given) from None
