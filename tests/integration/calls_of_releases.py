"""Calls of an admin client to an older broker: their results, or the errors that they raise.

In: an admin client of a cluster with one broker and without security, the name of an existing topic
with three partitions. Out: calls, which raise if nothing is found; by release, the error classes of
the calls that the release doesn't support.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import odradek as o

Call = Callable[[o.Admin, str, int], Any]
"""Takes a client, a topic and a broker id; groups and transactions are named like the topic."""
UNSUPPORTED_EVERYWHERE = (
    *("describe_share_groups", "alter_share_group_offsets", "list_share_group_offsets"),
    *("delete_share_group_offsets", "describe_streams_groups", "unregister_controller"),
    *("add_raft_voter", "remove_raft_voter"),
)
"""Calls that no release supports, or that aren't enabled, as those about share groups in 4.1."""
VOTER = (7, UUID(int=7))


def _at(topic: str, partition: int = 0) -> o.TopicPartition:
    return o.TopicPartition(topic, partition)


def _replica(topic: str, broker: int) -> o.admin.TopicPartitionReplica:
    return o.admin.TopicPartitionReplica(topic, 0, broker)


def _resource(topic: str) -> o.admin.ConfigResource:
    return o.admin.ConfigResource("TOPIC", topic)


def _acl(topic: str) -> o.admin.AclBinding:
    return o.admin.AclBinding("TOPIC", topic, "User:alice", "READ")


CALLS: dict[str, Call] = {
    "create_topics": lambda a, t, _: a.create_topics([o.NewTopic(f"{t}-new", 1, 1)]),
    "list_topics": lambda a, t, _: a.list_topics()[0],
    "describe_topics": lambda a, t, _: a.describe_topics(t, authorized_operations=True)[t],
    "create_partitions": lambda a, t, _: a.create_partitions({f"{t}-new": 2}),
    "describe_configs": lambda a, t, _: a.describe_configs([_resource(t)])[_resource(t)],
    "incremental_alter_configs": lambda a, t, _: a.incremental_alter_configs(
        {_resource(t): [o.admin.AlterConfigOp("retention.ms", "9000000")]}
    ),
    "list_config_resources": lambda a, t, _: a.list_config_resources(),
    "alter_group_offsets": lambda a, t, _: a.alter_group_offsets(t, {_at(t): 0, _at(t, 1): 0}),
    "list_group_offsets": lambda a, t, _: a.list_group_offsets(t)[t][_at(t)],
    "list_groups": lambda a, t, _: next(g for g in a.list_groups() if g.group_id == t),
    "describe_consumer_groups": lambda a, t, _: a.describe_consumer_groups(t)[t],
    "describe_classic_groups": lambda a, t, _: a.describe_classic_groups(t)[t],
    "describe_share_groups": lambda a, t, _: a.describe_share_groups(t),
    "describe_streams_groups": lambda a, t, _: a.describe_streams_groups(t),
    "alter_share_group_offsets": lambda a, t, _: a.alter_share_group_offsets(
        f"{t}-share", {_at(t): 0}
    ),
    "list_share_group_offsets": lambda a, t, _: a.list_share_group_offsets(f"{t}-share"),
    "delete_share_group_offsets": lambda a, t, _: a.delete_share_group_offsets(f"{t}-share", t),
    "remove_group_members": lambda a, t, _: a.remove_group_members(t),
    "delete_group_offsets": lambda a, t, _: a.delete_group_offsets(t, [_at(t)]),
    "delete_groups": lambda a, t, _: a.delete_groups(t),
    "list_offsets": lambda a, t, _: a.list_offsets({_at(t): "LATEST"})[_at(t)],
    "delete_records": lambda a, t, _: a.delete_records({_at(t): 0})[_at(t)],
    "describe_cluster": lambda a, t, _: a.describe_cluster().brokers[0],
    "describe_features": lambda a, t, _: a.describe_features().features,
    "update_features": lambda a, t, _: a.update_features(
        {"metadata.version": o.admin.FeatureUpdate(7, "SAFE_DOWNGRADE")}, validate_only=True
    ),
    "describe_metadata_quorum": lambda a, t, _: a.describe_metadata_quorum().voters[0],
    "add_raft_voter": lambda a, t, _: a.add_raft_voter(
        *VOTER, [o.admin.RaftVoterEndpoint("CONTROLLER", "h", 1)]
    ),
    "remove_raft_voter": lambda a, t, _: a.remove_raft_voter(*VOTER),
    "unregister_broker": lambda a, t, _: a.unregister_broker(99),
    "unregister_controller": lambda a, t, _: a.unregister_controller(99),
    "describe_log_dirs": lambda a, t, b: a.describe_log_dirs([b])[b],
    "describe_replica_log_dirs": lambda a, t, b: a.describe_replica_log_dirs([_replica(t, b)]),
    "alter_replica_log_dirs": lambda a, t, b: a.alter_replica_log_dirs(
        {_replica(t, b): next(iter(a.describe_log_dirs([b])[b]))}
    ),
    "alter_partition_reassignments": lambda a, t, b: a.alter_partition_reassignments({_at(t): [b]}),
    "list_partition_reassignments": lambda a, t, _: [a.list_partition_reassignments()],
    "elect_leaders": lambda a, t, _: a.elect_leaders("PREFERRED", [_at(t)]),
    "fence_producers": lambda a, t, _: a.fence_producers(t)[t],
    "list_transactions": lambda a, t, _: a.list_transactions()[0],
    "describe_transactions": lambda a, t, _: a.describe_transactions(t)[t],
    "describe_producers": lambda a, t, _: [a.describe_producers([_at(t)])[_at(t)]],
    "abort_transaction": lambda a, t, _: a.abort_transaction(
        o.admin.AbortTransactionSpec(_at(t), 123456, 0, 0)
    ),
    "find_hanging_transactions": lambda a, t, _: [a.find_hanging_transactions(t)],
    "create_acls": lambda a, t, _: a.create_acls([_acl(t)]),
    "describe_acls": lambda a, t, _: a.describe_acls(),
    "delete_acls": lambda a, t, _: a.delete_acls([o.admin.AclBindingFilter()]),
    "alter_user_scram_credentials": lambda a, t, _: a.alter_user_scram_credentials(
        [o.admin.UserScramCredentialUpsertion(t, "SCRAM-SHA-256", "secret")]
    ),
    "describe_user_scram_credentials": lambda a, t, _: [a.describe_user_scram_credentials()],
    "alter_client_quotas": lambda a, t, _: a.alter_client_quotas(
        {o.admin.ClientQuotaEntity(user=t): {"producer_byte_rate": 1e6}}
    ),
    "describe_client_quotas": lambda a, t, _: [a.describe_client_quotas()],
    "create_delegation_token": lambda a, t, _: a.create_delegation_token(),
    "describe_delegation_tokens": lambda a, t, _: a.describe_delegation_tokens(),
    "renew_delegation_token": lambda a, t, _: a.renew_delegation_token(b"hmac"),
    "expire_delegation_token": lambda a, t, _: a.expire_delegation_token(b"hmac"),
    "describe_api_versions": lambda a, t, _: a.describe_api_versions()[0].apis,
    "describe_reachability": lambda a, t, _: a.describe_reachability(t),
    "examine": lambda a, t, _: a.examine(t, t),
    "delete_topics": lambda a, t, _: a.delete_topics(f"{t}-new"),
}


def write_in_a_transaction(settings: dict[str, Any], topic: str) -> None:
    """Write to the topic's first partition in a transaction; the transactional id is the topic."""
    with o.Producer(settings, transactional_id=topic) as producer:
        producer.init_transactions(timeout=30)
        with producer.transaction():
            producer.send(topic, b"value", partition=0)


def refusals(version: str) -> dict[str, type[o.KafkaError]]:
    """Return the calls that a broker of this release, 3.9 to 4.3, rejects, with the errors."""
    found: dict[str, type[o.KafkaError]] = dict.fromkeys(
        UNSUPPORTED_EVERYWHERE, o.errors.UnsupportedVersionError
    )
    if version.startswith("4.3"):  # share and streams groups are enabled
        kinds = ("describe_share_groups", "describe_streams_groups")
        found |= dict.fromkeys(kinds, o.errors.GroupIdNotFoundError)
        for call in ("alter", "list", "delete"):
            del found[f"{call}_share_group_offsets"]
    if version.startswith("3."):
        found["list_config_resources"] = o.errors.UnsupportedVersionError
    found |= dict.fromkeys(
        ("create_acls", "describe_acls", "delete_acls"), o.errors.SecurityDisabledError
    )
    for call in ("create", "renew", "expire"):
        found[f"{call}_delegation_token"] = o.errors.DelegationTokenRequestNotAllowedError
    found["describe_delegation_tokens"] = o.errors.DelegationTokenRequestNotAllowedError
    found["update_features"] = o.errors.InvalidUpdateVersionError
    found["unregister_broker"] = o.errors.BrokerIdNotRegisteredError
    return found
