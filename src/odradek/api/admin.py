"""Public admin client.

In: names, numbers and frozen values. Out: frozen values, errors that name their item. Must not:
decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

from odradek.api.admin_groups import GroupAdmin
from odradek.api.event_producer import event_producer
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.admin.lazy_imports import (
    api_versions,
    cluster,
    configs,
    examination,
    log_dirs,
    reachability,
    reassignments,
)
from odradek.clients.admin.lazy_imports import topics as topic_calls
from odradek.common.arguments import flag
from odradek.common.config import ADMIN, Config
from odradek.network.host import Host
from odradek.runtime.hosts.host_sources import usual_host
from odradek.runtime.properties import Settings, with_settings

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.api.client_options import AdminOptions
    from odradek.clients.admin.admin_arguments import NewPartitions, NewTopic
    from odradek.clients.admin.api_versions import BrokerApiVersions
    from odradek.clients.admin.cluster import (
        ClusterDescription,
        FeatureDescription,
        FeatureUpdate,
        QuorumDescription,
        RaftVoterEndpoint,
    )
    from odradek.clients.admin.configs import AlterConfigOp, ConfigEntry, ConfigResource
    from odradek.clients.admin.examination import Examination
    from odradek.clients.admin.log_dirs import (
        LogDirDescription,
        ReplicaLogDir,
        TopicPartitionReplica,
    )
    from odradek.clients.admin.reachability import Reachability
    from odradek.clients.admin.reassignments import PartitionReassignment
    from odradek.clients.descriptions import TopicDescription
    from odradek.common.types import TopicPartition


def admin_engine(config: Config, host: Host) -> AdminEngine:
    """Create the engine of an admin client."""
    return AdminEngine(config, host.rng())


class Admin(GroupAdmin):
    """Admin client: creates, describes, changes and deletes topics, configs, groups and ACLs.

    It works in the caller's thread and recovers from outages like producers and consumers
    (KIP-899). Every call takes `timeout` in seconds (default: `default.api.timeout.ms`), after
    which it raises `KafkaTimeoutError` with the address, error and time of each attempt. If a call
    has several items, all are tried. Then the error of the first failed item is raised: its
    `errors` are the errors by item, its `results` the results of the other items.

    >>> with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
    ...     made = admin.create_topics([NewTopic("departures", 6, 3)])
    ...     print(len(made["departures"].partitions), admin.list_topics())
    6 ['arrivals', 'departures', 'flights']
    """

    @with_settings(ADMIN)
    def __init__(
        self, config: Settings = None, *, background: bool = False, **options: Unpack[AdminOptions]
    ) -> None:
        """Check the configuration; no connection is opened yet.

        `config`: a dict, or the path of a properties file.
        `background`: with True a background thread does the work: it keeps connections and metadata
        fresh between calls, so `explain()` shows the current state, and several threads may call
        the client at the same time. Without it, concurrent calls raise `IllegalStateError`.

        Raises `ConfigurationError` for an unknown option or an invalid value.
        """
        make_host = partial(usual_host, in_thread=flag("background", background))
        super().__init__(config, make_host, admin_engine, event_producer)

    # Topics

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Create topics; return their descriptions once every partition has a leader.

        With `validate_only` nothing is created, and the result is empty. Raises
        `TopicAlreadyExistsError`, `InvalidReplicationFactorError`, `InvalidPartitionsError`,
        `PolicyViolationError` …, each with the topic's name and the broker's reason.
        """
        return self._ask(topic_calls.create(topics, validate_only), timeout)

    def delete_topics(
        self, topics: Sequence[str | UUID] | str | UUID, timeout: float | None = None
    ) -> None:
        """Delete topics by name, or by id (a `uuid.UUID`, KIP-516); a str is one name.

        Raises `UnknownTopicOrPartitionError` or `UnknownTopicIdError` for a topic that doesn't
        exist.
        """
        self._ask(topic_calls.delete(topics), timeout)

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """Return the names of all topics that this client may see, sorted."""
        return self._ask(topic_calls.names(include_internal), timeout)

    def describe_topics(
        self,
        topics: Sequence[str | UUID] | str | UUID,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, TopicDescription]:
        """Return partitions, leaders and replicas by topic name, for names or ids (`uuid.UUID`).

        Raises `UnknownTopicOrPartitionError` or `UnknownTopicIdError` for a topic that doesn't
        exist.
        """
        return self._ask(topic_calls.describe(topics, authorized_operations), timeout)

    def create_partitions(
        self,
        topics: Mapping[str, int | NewPartitions],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Increase the number of partitions of topics to a new total (KIP-195).

        New records of a key may go to a different partition afterwards. Raises
        `InvalidPartitionsError` if a topic already has at least as many partitions, and
        `UnknownTopicOrPartitionError`.
        """
        self._ask(topic_calls.add_partitions(topics, validate_only), timeout)

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 deletes all (KIP-107).

        Returns the first remaining offset by partition. Raises `OffsetOutOfRangeError`, and
        `PolicyViolationError` for a topic with `cleanup.policy=compact`.
        """
        return self._ask(topic_calls.delete_records(before_offsets), timeout)

    # Configurations

    def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        timeout: float | None = None,
        *,
        names: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return configuration entries by resource and name; only those in `names`, if given.

        Secrets have no value. `include_synonyms` adds the other places where a value is set,
        `include_documentation` the brokers' descriptions (KIP-226, KIP-524).
        """
        return self._ask(
            configs.describe(resources, names, include_synonyms, include_documentation), timeout
        )

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some configuration entries and keep the others (KIP-339).

        With `validate_only` the changes are only checked. Raises `InvalidConfigError` with the
        broker's reason.
        """
        self._ask(configs.alter(changes, validate_only), timeout)

    def list_config_resources(
        self, types: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[ConfigResource]:
        """Return the resources with a configuration, of these types or of all, sorted (KIP-1142).

        Brokers before 4.1 only support client metrics (KIP-714); for other types, or all, they
        raise `UnsupportedVersionError`.
        """
        return self._ask(configs.resources(types), timeout)

    # The cluster

    def describe_cluster(
        self,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
    ) -> ClusterDescription:
        """Return the cluster's id, its brokers and its controller (KIP-700).

        `include_fenced_brokers` adds brokers that are registered but fenced (KIP-1073, brokers from
        4.0 on).
        """
        return self._ask(cluster.describe(authorized_operations, include_fenced_brokers), timeout)

    def describe_features(self, timeout: float | None = None) -> FeatureDescription:
        """Return the features that brokers support, and the active levels (KIP-584)."""
        return self._ask(cluster.features(), timeout)

    def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change feature levels, all or none; with `validate_only` only check them (KIP-584).

        Raises `FeatureUpdateFailedError` or `InvalidUpdateVersionError` with the reason.
        """
        self._ask(cluster.update_features(updates, validate_only), timeout)

    def describe_metadata_quorum(self, timeout: float | None = None) -> QuorumDescription:
        """Return the voters and observers of the cluster's metadata quorum (KIP-836)."""
        return self._ask(cluster.quorum(), timeout)

    def add_raft_voter(
        self,
        voter: int,
        directory_id: UUID | str,
        endpoints: Sequence[RaftVoterEndpoint],
        timeout: float | None = None,
    ) -> None:
        """Add a voter to the metadata quorum (KIP-853). Raises `DuplicateVoterError`."""
        self._ask(cluster.add_voter(voter, directory_id, endpoints), timeout)

    def remove_raft_voter(
        self, voter: int, directory_id: UUID | str, timeout: float | None = None
    ) -> None:
        """Remove a voter from the metadata quorum (KIP-853). Raises `VoterNotFoundError`."""
        self._ask(cluster.remove_voter(voter, directory_id), timeout)

    def unregister_broker(self, broker: int, timeout: float | None = None) -> None:
        """Remove the registration of a broker that won't come back (KIP-631).

        Raises `BrokerIdNotRegisteredError`.
        """
        self._ask(cluster.unregister_broker(broker), timeout)

    def unregister_controller(self, controller: int, timeout: float | None = None) -> None:
        """Remove the registration of a controller that won't come back (brokers from 4.4 on).

        Raises `ControllerIdNotRegisteredError`.
        """
        self._ask(cluster.unregister_controller(controller), timeout)

    # Replicas

    def describe_log_dirs(
        self, brokers: Sequence[int] | None = None, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """Return log directories by broker and path, of these brokers or of all (KIP-113, KIP-827).

        A directory that its broker can't use has an `error`.
        """
        return self._ask(log_dirs.describe(brokers), timeout)

    def describe_replica_log_dirs(
        self, replicas: Sequence[TopicPartitionReplica], timeout: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDir]:
        """Return the log directories of replicas, and those they are moved to (KIP-113)."""
        return self._ask(log_dirs.describe_replicas(replicas), timeout)

    def alter_replica_log_dirs(
        self, places: Mapping[TopicPartitionReplica, str], timeout: float | None = None
    ) -> None:
        """Move replicas to other log directories of their brokers (KIP-113).

        Returns when the brokers have accepted the moves. Raises `LogDirNotFoundError` and
        `ReplicaNotAvailableError`.
        """
        self._ask(log_dirs.alter(places), timeout)

    def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        timeout: float | None = None,
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Move partitions to these brokers, preferred leader first; None cancels a move (KIP-455).

        Returns when the moves have started; `list_partition_reassignments` shows those in progress.
        Raises `InvalidReplicaAssignmentError` and `NoReassignmentInProgressError`.
        """
        self._ask(reassignments.alter(replicas, allow_replication_factor_change), timeout)

    def list_partition_reassignments(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments in progress, of these partitions or of all (KIP-455)."""
        return self._ask(reassignments.listing(partitions), timeout)

    def elect_leaders(
        self,
        election_type: str,
        partitions: Sequence[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> list[TopicPartition]:
        """Elect leaders for these partitions, or for all that need it (KIP-460).

        `election_type`: "PREFERRED" elects the first replica of each, "UNCLEAN" any live replica,
        which may lose records. Returns the partitions whose leader changed. Raises
        `PreferredLeaderNotAvailableError` and `EligibleLeadersNotAvailableError`.
        """
        return self._ask(reassignments.elect(election_type, partitions), timeout)

    # Addresses and versions

    def describe_api_versions(self, timeout: float | None = None) -> tuple[BrokerApiVersions, ...]:
        """Return the versions of each API that each broker supports, sorted by broker id (KIP-35).

        Requests to every broker are retried until it answers or the call times out. If a broker
        didn't answer, the `error` of its item says why. Raises an error only if no broker can be
        reached.
        """
        return self._ask(api_versions.API_VERSIONS, timeout)

    def describe_reachability(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> Reachability:
        """Connect to every bootstrap address and every advertised address, and send each a request.

        Also checks `topics` (None: all) for partitions without a leader. An address that has failed
        three times in a row doesn't delay the result once all others have answered. Problems are
        part of the result: its `state` is "well", "partly" or "out of reach". Raises an error only
        if no metadata can be loaded.
        """
        return self._ask(reachability.reachability(topics), timeout)

    def examine(
        self,
        topics: Sequence[str] | str | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> Examination:
        """Check the cluster as `odradek doctor` does.

        The result contains that of `describe_reachability`; for the `topics` named, this client's
        permissions; and for `group` its permissions, its committed offsets and its lag. A part that
        can't be determined is an error in the result. Raises an error only if no metadata can be
        loaded; `explain()` then shows at which stage each address fails.
        """
        return self._ask(examination.examination(topics, group), timeout)
