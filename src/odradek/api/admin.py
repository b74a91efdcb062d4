"""The admin client as users see it.

In: names, numbers and frozen values. Out: frozen values, errors that say what they are about.
Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Unpack

from odradek.api.admin_groups import GroupAdmin
from odradek.api.event_producer import event_producer
from odradek.clients.admin.admin_engine import AdminEngine
from odradek.clients.admin.families import (
    api_versions,
    cluster,
    configs,
    examination,
    log_dirs,
    reachability,
    reassignments,
)
from odradek.clients.admin.families import topics as topic_calls
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
    """An admin's engine."""
    return AdminEngine(config, host.rng())


class Admin(GroupAdmin):
    """Makes, describes, changes and deletes what a cluster has: topics, configurations, groups,
    offsets, transactions, rights.

    It works in the caller's thread and recovers as producer and consumer do (KIP-899; the KIP's
    text left admin out). Every call takes `timeout` in seconds (default: `default.api.timeout.ms`)
    and raises `KafkaTimeoutError` at its end, with each attempt: address, what failed, when.
    Where a call has several items, all are tried. Then the error of the first that failed is
    raised: its `errors` has each one's error, by item, its `results` what the others gave.

    >>> with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
    ...     made = admin.create_topics([NewTopic("departures", 6, 3)])
    ...     print(len(made["departures"].partitions), admin.list_topics())
    6 ['arrivals', 'departures', 'flights']
    """

    @with_settings(ADMIN)
    def __init__(
        self, config: Settings = None, *, background: bool = False, **options: Unpack[AdminOptions]
    ) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        With `background=True` a thread of its own does the work, so that connections and metadata
        are kept up between calls, `explain()` tells what is going on, and several threads may call
        it at the same time; without it that raises `IllegalStateError`.

        Raises `ConfigurationError`.
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
        """Make topics; return them as they are once every partition has a leader.

        With `validate_only` nothing is made, and the result is empty. Raises
        `TopicAlreadyExistsError`, `InvalidReplicationFactorError`, `InvalidPartitionsError`,
        `PolicyViolationError` … each with the topic's name and the broker's reason.
        """
        return self._ask(topic_calls.create(topics, validate_only), timeout)

    def delete_topics(
        self, topics: Sequence[str | UUID] | str | UUID, timeout: float | None = None
    ) -> None:
        """Delete topics by name, or by id (a `uuid.UUID`, KIP-516); a str is one name.

        Raises `UnknownTopicOrPartitionError` or `UnknownTopicIdError` for one that isn't there.
        """
        self._ask(topic_calls.delete(topics), timeout)

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """The names of all topics that this client may see, sorted."""
        return self._ask(topic_calls.names(include_internal), timeout)

    def describe_topics(
        self,
        topics: Sequence[str | UUID] | str | UUID,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas by topic's name, of topics by name or id (`uuid.UUID`).

        Raises `UnknownTopicOrPartitionError` or `UnknownTopicIdError` for one that isn't there.
        """
        return self._ask(topic_calls.describe(topics, authorized_operations), timeout)

    def create_partitions(
        self,
        topics: Mapping[str, int | NewPartitions],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Give topics more partitions: the number that each shall have in all (KIP-195).

        Keys go to other partitions from then on. Raises `InvalidPartitionsError` where it has as
        many already, `UnknownTopicOrPartitionError`.
        """
        self._ask(topic_calls.add_partitions(topics, validate_only), timeout)

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 means all there are (KIP-107).

        Gives the first offset that is left. Raises `OffsetOutOfRangeError`, and
        `PolicyViolationError` for a topic that is compacted only.
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
        """Options by resource and name; only those of `names`, where some are given.

        Secrets come without a value. `include_synonyms` adds where else a value is set,
        `include_documentation` the brokers' texts (KIP-226, KIP-524).
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
        """Change some options and leave the others as they are (KIP-339).

        With `validate_only` they are only checked. Raises `InvalidConfigError` with the broker's
        reason.
        """
        self._ask(configs.alter(changes, validate_only), timeout)

    def list_config_resources(
        self, types: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[ConfigResource]:
        """What has a configuration of its own, of these types, or of all; sorted (KIP-1142).

        Brokers before 4.1 know of client metrics (KIP-714) only: any other type, and all, are an
        `UnsupportedVersionError`.
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
        """The cluster's id, its brokers and its controller (KIP-700).

        `include_fenced_brokers` adds those that are registered but not in use (KIP-1073, brokers
        from 4.0 on).
        """
        return self._ask(cluster.describe(authorized_operations, include_fenced_brokers), timeout)

    def describe_features(self, timeout: float | None = None) -> FeatureDescription:
        """The features that brokers support, and the levels that are in force (KIP-584)."""
        return self._ask(cluster.features(), timeout)

    def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change the levels of features, all or none; with `validate_only` they are only checked.

        Raises `FeatureUpdateFailedError`, `InvalidUpdateVersionError` with the reason. (KIP-584)
        """
        self._ask(cluster.update_features(updates, validate_only), timeout)

    def describe_metadata_quorum(self, timeout: float | None = None) -> QuorumDescription:
        """The controllers that keep the cluster's metadata, and who follows them (KIP-836)."""
        return self._ask(cluster.quorum(), timeout)

    def add_raft_voter(
        self,
        voter: int,
        directory_id: UUID | str,
        endpoints: Sequence[RaftVoterEndpoint],
        timeout: float | None = None,
    ) -> None:
        """Let a controller that follows vote (KIP-853). Raises `DuplicateVoterError`."""
        self._ask(cluster.add_voter(voter, directory_id, endpoints), timeout)

    def remove_raft_voter(
        self, voter: int, directory_id: UUID | str, timeout: float | None = None
    ) -> None:
        """Let a controller vote no more (KIP-853). Raises `VoterNotFoundError`."""
        self._ask(cluster.remove_voter(voter, directory_id), timeout)

    def unregister_broker(self, broker: int, timeout: float | None = None) -> None:
        """Have the cluster forget a broker that is gone for good (KIP-631).

        Raises `BrokerIdNotRegisteredError`.
        """
        self._ask(cluster.unregister_broker(broker), timeout)

    def unregister_controller(self, controller: int, timeout: float | None = None) -> None:
        """Have the cluster forget a controller that is gone for good (brokers from 4.4 on).

        Raises `ControllerIdNotRegisteredError`.
        """
        self._ask(cluster.unregister_controller(controller), timeout)

    # Replicas

    def describe_log_dirs(
        self, brokers: Sequence[int] | None = None, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The directories of these brokers' logs by broker and path, of all brokers without any.

        A directory that its broker can't use has an `error` of its own. (KIP-113, KIP-827)
        """
        return self._ask(log_dirs.describe(brokers), timeout)

    def describe_replica_log_dirs(
        self, replicas: Sequence[TopicPartitionReplica], timeout: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDir]:
        """In which directories replicas lie, and where they are being moved to (KIP-113)."""
        return self._ask(log_dirs.describe_replicas(replicas), timeout)

    def alter_replica_log_dirs(
        self, places: Mapping[TopicPartitionReplica, str], timeout: float | None = None
    ) -> None:
        """Move replicas to other directories of their brokers; brokers do it afterwards (KIP-113).

        Raises `LogDirNotFoundError`, `ReplicaNotAvailableError`.
        """
        self._ask(log_dirs.alter(places), timeout)

    def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        timeout: float | None = None,
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Move partitions to these brokers, the preferred leader first; None ends a move.

        Brokers copy afterwards: `list_partition_reassignments` tells what is under way. Raises
        `InvalidReplicaAssignmentError`, `NoReassignmentInProgressError`. (KIP-455)
        """
        self._ask(reassignments.alter(replicas, allow_replication_factor_change), timeout)

    def list_partition_reassignments(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are being moved, of these, or of all (KIP-455)."""
        return self._ask(reassignments.listing(partitions), timeout)

    def elect_leaders(
        self,
        election_type: str,
        partitions: Sequence[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> list[TopicPartition]:
        """Elect leaders: "PREFERRED", the first replica of each; "UNCLEAN", any that is there.

        Of these partitions, or of all that need it. Gives those that have another leader now.
        An unclean election may lose records. Raises `PreferredLeaderNotAvailableError`,
        `EligibleLeadersNotAvailableError`. (KIP-460)
        """
        return self._ask(reassignments.elect(election_type, partitions), timeout)

    # Addresses and versions

    def describe_api_versions(self, timeout: float | None = None) -> tuple[BrokerApiVersions, ...]:
        """Which versions of which APIs each broker speaks, by broker id (KIP-35).

        Every broker is asked, each until it answers or the time is up: `error` of those that
        didn't says why. Raises only where no broker at all can be had.
        """
        return self._ask(api_versions.API_VERSIONS, timeout)

    def describe_reachability(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> Reachability:
        """Dial every bootstrap address and every address that a broker advertises, and ask there.

        Looks at `topics`, all of them for None, for partitions that have no leader. An address that
        fails three times in a row isn't waited for once the others have answered. What is wrong
        stands in the result, whose `state` is "well", "partly" or "out of reach"; raises only where
        no metadata at all can be had, as for other calls.
        """
        return self._ask(reachability.reachability(topics), timeout)

    def examine(
        self,
        topics: Sequence[str] | str | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> Examination:
        """What a cluster is to this client: what `odradek doctor` looks at.

        All that `describe_reachability` finds; of `topics` that are named also what this client may
        do with them; and of `group` whether it may use it, what was committed and how many records
        wait. What couldn't be found out stands in the result as an error. Raises only where no
        metadata at all can be had: `explain()` says then at which stage each address fails.
        """
        return self._ask(examination.examination(topics, group), timeout)
