"""Each call of the asyncio admin client returns the result of the sync client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from tests.unit.test_admin_page import OF_ALL, public_methods

import odradek as o
from odradek.testing import KafkaSimulation

T0, T1 = (o.TopicPartition("t", p) for p in range(2))
TOPIC = o.admin.ConfigResource("TOPIC", "t")
ACL = o.admin.AclBinding("TOPIC", "t", "User:alice", "READ")
ALICE = o.admin.ClientQuotaEntity(user="alice")
VOTER = (7, UUID(int=7))
REPLICA = o.admin.TopicPartitionReplica("t", 0, 1)
SPEC = o.admin.AbortTransactionSpec(T0, 1000, 0, 0)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("create_topics", ([o.NewTopic("n", 2, 1)],), {}),
    ("create_topics", ([o.NewTopic("m", 2, 1)],), {"validate_only": True}),
    ("list_topics", (), {"include_internal": True}),
    ("describe_topics", (["t", "n"],), {"authorized_operations": True}),
    ("describe_topics", (["t", "gone"],), {}),
    ("create_partitions", ({"n": 3},), {"validate_only": False}),
    ("delete_records", ({T0: 0, T1: -1},), {}),
    ("delete_topics", ("n",), {}),
    ("describe_configs", ([TOPIC],), {"names": ["retention.ms"], "include_synonyms": True}),
    ("incremental_alter_configs", ({TOPIC: [o.admin.AlterConfigOp("retention.ms", "1")]},), {}),
    ("list_config_resources", (["TOPIC"],), {}),
    ("alter_group_offsets", ("g", {T0: 1}), {}),
    ("list_group_offsets", ("g",), {"require_stable": True}),
    ("list_groups", (), {"states": ["Empty"]}),
    ("describe_consumer_groups", ("g",), {}),
    ("describe_classic_groups", (["g", "gone"],), {}),
    ("alter_share_group_offsets", ("s", {T0: 1}), {}),
    ("list_share_group_offsets", ("s",), {}),
    ("describe_share_groups", ("s",), {"authorized_operations": True}),
    ("describe_streams_groups", ("s",), {}),
    ("delete_share_group_offsets", ("s", "t"), {}),
    ("delete_group_offsets", ("g", [T0]), {}),
    ("remove_group_members", ("g",), {"reason": "a test"}),
    ("delete_groups", (["g", "s"],), {}),
    ("list_offsets", ({T0: "LATEST"},), {"isolation_level": "read_committed"}),
    ("describe_cluster", (), {"include_fenced_brokers": True}),
    ("describe_features", (), {}),
    ("update_features", ({"group.version": o.admin.FeatureUpdate(1)},), {"validate_only": True}),
    ("describe_metadata_quorum", (), {}),
    ("add_raft_voter", (*VOTER, [o.admin.RaftVoterEndpoint("C", "h", 1)]), {}),
    ("remove_raft_voter", VOTER, {}),
    ("unregister_broker", (9,), {}),
    ("unregister_controller", (9,), {}),
    ("describe_log_dirs", ([1, 2],), {}),
    ("alter_replica_log_dirs", ({REPLICA: "/simulated/d2"},), {}),
    ("describe_replica_log_dirs", ([REPLICA],), {}),
    ("alter_partition_reassignments", ({T0: [1]},), {"allow_replication_factor_change": True}),
    ("list_partition_reassignments", (), {}),
    ("elect_leaders", ("PREFERRED", [T1]), {}),
    ("fence_producers", (["x", "y"],), {}),
    ("list_transactions", (), {"states": ["Empty"]}),
    ("describe_transactions", (["x", "gone"],), {}),
    ("describe_producers", ([T0],), {}),
    ("abort_transaction", (SPEC,), {}),
    ("find_hanging_transactions", (), {"older_than": 0}),
    ("create_acls", ([ACL],), {}),
    ("describe_acls", (o.admin.AclBindingFilter("TOPIC"),), {}),
    ("delete_acls", ([o.admin.AclBindingFilter()],), {}),
    (
        "alter_user_scram_credentials",
        ([o.admin.UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "p")],),
        {},
    ),
    ("describe_user_scram_credentials", (), {}),
    ("alter_client_quotas", ({ALICE: {"producer_byte_rate": 1}},), {"validate_only": False}),
    ("describe_client_quotas", (ALICE,), {"strict": True}),
    ("create_delegation_token", ("User:bob",), {"max_lifetime": 60}),
    ("describe_delegation_tokens", ("User:admin",), {}),
    ("renew_delegation_token", (b"hmac-0",), {"period": 5}),
    ("expire_delegation_token", (b"hmac-0",), {}),
    ("describe_api_versions", (), {}),
    ("describe_reachability", ("t",), {}),
    ("examine", ("t", "g"), {}),
]
Outcome = tuple[str, Any]


@contextmanager
def simulation() -> Iterator[KafkaSimulation]:
    with KafkaSimulation(seed=3) as made:
        made.create_topic("t", partitions=2)
        yield made


def told(error: o.KafkaError) -> Outcome:
    return type(error).__name__, (dict(error.results), [*error.errors])


def in_the_callers_thread() -> list[Outcome]:
    found: list[Outcome] = []
    with simulation() as there, o.Admin(bootstrap_servers=there.bootstrap_servers) as admin:
        for name, given, options in CALLS:
            call: Callable[..., Any] = getattr(admin, name)
            try:
                found.append((name, call(*given, timeout=20, **options)))
            except o.KafkaError as error:
                found.append(told(error))
    return found


def awaited() -> list[Outcome]:
    found: list[Outcome] = []

    async def main() -> None:
        async with o.AsyncAdmin(bootstrap_servers=there.bootstrap_servers) as admin:
            for name, given, options in CALLS:
                call: Callable[..., Any] = getattr(admin, name)
                try:
                    found.append((name, await call(*given, timeout=20, **options)))
                except o.KafkaError as error:
                    found.append(told(error))

    with simulation() as there:
        there.run(main())
    return found


def test_the_asyncio_client_returns_the_results_of_the_sync_client() -> None:
    assert {name for name, *_ in CALLS} == public_methods(o.Admin) - OF_ALL - {"close"}
    sync, loop = in_the_callers_thread(), awaited()
    for (name, *_), one, other in zip(CALLS, sync, loop, strict=True):
        if name in ("create_delegation_token", "describe_delegation_tokens"):  # contain times
            assert type(one[1]) is type(other[1])
        elif name in ("renew_delegation_token", "expire_delegation_token"):
            assert one[1] > 0
            assert other[1] > 0
        elif name == "describe_metadata_quorum":
            assert one[1].leader_id == other[1].leader_id
        else:
            assert one == other, name
    refused = [name for (name, *_), (kind, _) in zip(CALLS, sync, strict=True) if name != kind]
    assert refused == [
        *("describe_topics", "describe_classic_groups", "describe_streams_groups"),
        *("unregister_broker", "unregister_controller", "describe_transactions"),
    ]
