"""The admin client for asyncio: `Admin`, awaited.

In: names, numbers and frozen values. Out: frozen values, errors that say what they are about.
Must not: decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from odradek.api.admin import admin_engine
from odradek.api.asyncio_admin_groups import AsyncGroupAdmin
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
from odradek.common.config import ADMIN
from odradek.runtime.hosts.host_sources import loop_host
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


class AsyncAdmin(AsyncGroupAdmin):
    """Makes, describes, changes and deletes what a cluster has; its calls are awaited.

    What `Admin` says holds here, too: options, errors, timeouts in seconds.

    >>> async with AsyncAdmin({"bootstrap.servers": "localhost:9092"}) as admin:
    ...     print(await admin.list_topics())
    ['arrivals', 'flights']
    """

    @with_settings(ADMIN)
    def __init__(self, config: Settings = None, **options: Unpack[AdminOptions]) -> None:
        """Check the configuration; nothing is opened yet. `config`: a dict, or a file's path.

        Raises `ConfigurationError`.
        """
        super().__init__(config, loop_host, admin_engine)

    # Topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, TopicDescription]:
        """Make topics; return them as they are once every partition has a leader.

        As `Admin.create_topics`.
        """
        return await self._ask(topic_calls.create(topics, validate_only), timeout)

    async def delete_topics(
        self, topics: Sequence[str | UUID] | str | UUID, timeout: float | None = None
    ) -> None:
        """Delete topics by name, or by id (a `uuid.UUID`, KIP-516); a str is one name.

        As `Admin.delete_topics`.
        """
        await self._ask(topic_calls.delete(topics), timeout)

    async def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """The names of all topics that this client may see, sorted.

        As `Admin.list_topics`.
        """
        return await self._ask(topic_calls.names(include_internal), timeout)

    async def describe_topics(
        self,
        topics: Sequence[str | UUID] | str | UUID,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas by topic's name, of topics by name or id (`uuid.UUID`).

        As `Admin.describe_topics`.
        """
        return await self._ask(topic_calls.describe(topics, authorized_operations), timeout)

    async def create_partitions(
        self,
        topics: Mapping[str, int | NewPartitions],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Give topics more partitions: the number that each shall have in all (KIP-195).

        As `Admin.create_partitions`.
        """
        await self._ask(topic_calls.add_partitions(topics, validate_only), timeout)

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; -1 means all there are (KIP-107).

        As `Admin.delete_records`.
        """
        return await self._ask(topic_calls.delete_records(before_offsets), timeout)

    # Configurations

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        timeout: float | None = None,
        *,
        names: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Options by resource and name; only those of `names`, where some are given.

        As `Admin.describe_configs`.
        """
        return await self._ask(
            configs.describe(resources, names, include_synonyms, include_documentation), timeout
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some options and leave the others as they are (KIP-339).

        As `Admin.incremental_alter_configs`.
        """
        await self._ask(configs.alter(changes, validate_only), timeout)

    async def list_config_resources(
        self, types: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[ConfigResource]:
        """What has a configuration of its own, of these types, or of all; sorted (KIP-1142).

        As `Admin.list_config_resources`.
        """
        return await self._ask(configs.resources(types), timeout)

    # The cluster

    async def describe_cluster(
        self,
        timeout: float | None = None,
        *,
        authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
    ) -> ClusterDescription:
        """The cluster's id, its brokers and its controller (KIP-700).

        As `Admin.describe_cluster`.
        """
        return await self._ask(
            cluster.describe(authorized_operations, include_fenced_brokers), timeout
        )

    async def describe_features(self, timeout: float | None = None) -> FeatureDescription:
        """The features that brokers support, and the levels that are in force (KIP-584).

        As `Admin.describe_features`.
        """
        return await self._ask(cluster.features(), timeout)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change the levels of features, all or none; with `validate_only` they are only checked.

        As `Admin.update_features`.
        """
        await self._ask(cluster.update_features(updates, validate_only), timeout)

    async def describe_metadata_quorum(self, timeout: float | None = None) -> QuorumDescription:
        """The controllers that keep the cluster's metadata, and who follows them (KIP-836).

        As `Admin.describe_metadata_quorum`.
        """
        return await self._ask(cluster.quorum(), timeout)

    async def add_raft_voter(
        self,
        voter: int,
        directory_id: UUID | str,
        endpoints: Sequence[RaftVoterEndpoint],
        timeout: float | None = None,
    ) -> None:
        """Let a controller that follows vote (KIP-853). Raises `DuplicateVoterError`.

        As `Admin.add_raft_voter`.
        """
        await self._ask(cluster.add_voter(voter, directory_id, endpoints), timeout)

    async def remove_raft_voter(
        self, voter: int, directory_id: UUID | str, timeout: float | None = None
    ) -> None:
        """Let a controller vote no more (KIP-853). Raises `VoterNotFoundError`.

        As `Admin.remove_raft_voter`.
        """
        await self._ask(cluster.remove_voter(voter, directory_id), timeout)

    async def unregister_broker(self, broker: int, timeout: float | None = None) -> None:
        """Have the cluster forget a broker that is gone for good (KIP-631).

        As `Admin.unregister_broker`.
        """
        await self._ask(cluster.unregister_broker(broker), timeout)

    async def unregister_controller(self, controller: int, timeout: float | None = None) -> None:
        """Have the cluster forget a controller that is gone for good (brokers from 4.4 on).

        As `Admin.unregister_controller`.
        """
        await self._ask(cluster.unregister_controller(controller), timeout)

    # Replicas

    async def describe_log_dirs(
        self, brokers: Sequence[int] | None = None, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The directories of these brokers' logs by broker and path, of all brokers without any.

        As `Admin.describe_log_dirs`.
        """
        return await self._ask(log_dirs.describe(brokers), timeout)

    async def describe_replica_log_dirs(
        self, replicas: Sequence[TopicPartitionReplica], timeout: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDir]:
        """In which directories replicas lie, and where they are being moved to (KIP-113).

        As `Admin.describe_replica_log_dirs`.
        """
        return await self._ask(log_dirs.describe_replicas(replicas), timeout)

    async def alter_replica_log_dirs(
        self, places: Mapping[TopicPartitionReplica, str], timeout: float | None = None
    ) -> None:
        """Move replicas to other directories of their brokers; brokers do it afterwards (KIP-113).

        As `Admin.alter_replica_log_dirs`.
        """
        await self._ask(log_dirs.alter(places), timeout)

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        timeout: float | None = None,
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        """Move partitions to these brokers, the preferred leader first; None ends a move.

        As `Admin.alter_partition_reassignments`.
        """
        await self._ask(reassignments.alter(replicas, allow_replication_factor_change), timeout)

    async def list_partition_reassignments(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are being moved, of these, or of all (KIP-455).

        As `Admin.list_partition_reassignments`.
        """
        return await self._ask(reassignments.listing(partitions), timeout)

    async def elect_leaders(
        self,
        election_type: str,
        partitions: Sequence[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> list[TopicPartition]:
        """Elect leaders: "PREFERRED", the first replica of each; "UNCLEAN", any that is there.

        As `Admin.elect_leaders`.
        """
        return await self._ask(reassignments.elect(election_type, partitions), timeout)

    # Addresses and versions

    async def describe_api_versions(
        self, timeout: float | None = None
    ) -> tuple[BrokerApiVersions, ...]:
        """Which versions of which APIs each broker speaks, by broker id (KIP-35).

        As `Admin.describe_api_versions`.
        """
        return await self._ask(api_versions.API_VERSIONS, timeout)

    async def describe_reachability(
        self, topics: Sequence[str] | str | None = None, timeout: float | None = None
    ) -> Reachability:
        """Dial every bootstrap address and every address that a broker advertises, and ask there.

        As `Admin.describe_reachability`.
        """
        return await self._ask(reachability.reachability(topics), timeout)

    async def examine(
        self,
        topics: Sequence[str] | str | None = None,
        group: str | None = None,
        timeout: float | None = None,
    ) -> Examination:
        """What a cluster is to this client: what `odradek doctor` looks at.

        As `Admin.examine`.
        """
        return await self._ask(examination.examination(topics, group), timeout)
