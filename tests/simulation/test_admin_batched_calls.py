"""Admin calls with retries (R-RT-1), timeouts (R-RT-2), a failed item (R-RT-4), moves (R-RT-5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.simulation.scene import Stage
from tests.simulation.test_admin_async import CALLS

from odradek import Admin, KafkaError, KafkaTimeoutError, NewTopic, TopicPartition
from odradek.admin import (
    AclBinding,
    AlterConfigOp,
    ClientQuotaEntity,
    ConfigResource,
    FeatureUpdate,
    UserScramCredentialUpsertion,
)
from odradek.errors import NonEmptyGroupError
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.simulation.brokers.injected_errors import Injection

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
TOPIC = ConfigResource("TOPIC", "t")
BINDING = AclBinding("TOPIC", "t", "User:alice", "READ")
Call = Callable[[Admin], Any]
PATIENCE, NOT_CONTROLLER, NOT_LEADER, LOADING, NOT_COORDINATOR, TIMED_OUT = 89, 41, 6, 14, 16, 7
"""Error codes of Kafka, from THROTTLING_QUOTA_EXCEEDED (KIP-599) to REQUEST_TIMED_OUT."""
ANY: dict[str, Call] = {
    "CreateTopics": lambda a: a.create_topics([NewTopic("n", 1, 1)]),
    "DeleteTopics": lambda a: a.delete_topics("t"),
    "CreatePartitions": lambda a: a.create_partitions({"t": 4}),
    "IncrementalAlterConfigs": lambda a: a.incremental_alter_configs(
        {TOPIC: [AlterConfigOp("retention.ms", "1")]}
    ),
    "DescribeConfigs": lambda a: a.describe_configs([TOPIC]),
    "ListConfigResources": lambda a: a.list_config_resources(),
    "AlterPartitionReassignments": lambda a: a.alter_partition_reassignments({T0: [1]}),
    "ListPartitionReassignments": lambda a: a.list_partition_reassignments(),
    "ElectLeaders": lambda a: a.elect_leaders("PREFERRED", [T0]),
    "UpdateFeatures": lambda a: a.update_features({"group.version": FeatureUpdate(1)}),
    "DescribeQuorum": lambda a: a.describe_metadata_quorum(),
    "UnregisterBroker": lambda a: a.unregister_broker(3),
    "CreateAcls": lambda a: a.create_acls([BINDING]),
    "DescribeAcls": lambda a: a.describe_acls(),
    "DescribeClientQuotas": lambda a: a.describe_client_quotas(),
    "AlterClientQuotas": lambda a: a.alter_client_quotas(
        {ClientQuotaEntity(user="a"): {"producer_byte_rate": 1}}
    ),
    "DescribeUserScramCredentials": lambda a: a.describe_user_scram_credentials(),
    "AlterUserScramCredentials": lambda a: a.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("u", "SCRAM-SHA-256", "secret")]
    ),
    "DescribeDelegationToken": lambda a: a.describe_delegation_tokens(),
    "CreateDelegationToken": lambda a: a.create_delegation_token(),
}
"""Calls that any broker answers, or the controller through any broker."""
LEADERS: dict[str, Call] = {
    "ListOffsets": lambda a: a.list_offsets({T0: "LATEST", T1: "LATEST", T2: "LATEST"}),
    "DeleteRecords": lambda a: a.delete_records({T0: -1, T1: -1}),
    "DescribeProducers": lambda a: a.describe_producers([T0, T2]),
}
COORDINATORS: dict[str, Call] = {
    "DescribeGroups": lambda a: a.describe_classic_groups("g"),
    "OffsetFetch": lambda a: a.list_group_offsets("g"),
    "OffsetCommit": lambda a: a.alter_group_offsets("g", {T0: 1}),
    "OffsetDelete": lambda a: a.delete_group_offsets("g", [T0]),
    "DeleteGroups": lambda a: a.delete_groups("g"),
    "AlterShareGroupOffsets": lambda a: a.alter_share_group_offsets("s", {T0: 1}),
}
EACH: dict[str, Call] = {
    "ListGroups": lambda a: a.list_groups(),
    "ListTransactions": lambda a: a.list_transactions(),
    "DescribeLogDirs": lambda a: a.describe_log_dirs(),
}


def made() -> tuple[Stage, Admin]:
    stage = Stage()
    admin = stage.client(Admin, background=False)
    admin.alter_group_offsets("g", {T0: 5})
    return stage, admin


def inject(stage: Stage, api: str, code: int, times: int = 1, **more: Any) -> Injection:
    one = Injection(api, code, times, **more)
    for broker in stage.cluster.brokers.values():
        broker.injections.append(one)
    return one


@pytest.mark.parametrize(
    ("api", "code"),
    [
        *itertools.product(ANY, (PATIENCE, NOT_CONTROLLER)),
        *itertools.product(LEADERS, (NOT_LEADER, TIMED_OUT)),
        *itertools.product(COORDINATORS, (LOADING, NOT_COORDINATOR)),
        *itertools.product(("ListGroups", "ListTransactions"), (LOADING,)),
    ],
)
def test_a_retriable_error_is_retried(api: str, code: int) -> None:
    stage, admin = made()
    once = inject(stage, api, code, times=2)
    call = {**ANY, **LEADERS, **COORDINATORS, **EACH}[api]
    begin = stage.world.now
    with admin:
        call(admin)
    assert once.left == 0
    assert 0.05 < stage.world.now - begin < 5  # at least the backoff, and little more


@pytest.mark.parametrize("api", ["IncrementalAlterConfigs", "DeleteRecords", "DeleteGroups"])
def test_a_call_that_fails_until_its_timeout_reports_the_last_error(api: str) -> None:
    stage, _ = made()
    inject(stage, api, PATIENCE, times=10_000)
    call = {**ANY, **LEADERS, **COORDINATORS}[api]
    short = stage.client(Admin, "short", background=False, default_api_timeout_ms=2000)
    begin = stage.world.now
    with pytest.raises(KafkaTimeoutError, match="THROTTLING_QUOTA_EXCEEDED"):
        call(short)
    assert 1.9 <= stage.world.now - begin <= 2.1


def test_a_call_refused_by_a_former_controller_is_sent_to_another_broker() -> None:
    """Before KRaft, a broker that isn't the controller responds NOT_CONTROLLER."""
    stage, admin = made()
    refusing = [stage.cluster.brokers[i] for i in (1, 2)]
    for broker in refusing:
        broker.injections.append(Injection("CreatePartitions", NOT_CONTROLLER, 100))
    admin.create_partitions({"t": 5}, timeout=20)
    assert len(stage.cluster.topics["t"].partitions) == 5
    assert stage.cluster.brokers[3].requests["CreatePartitions"] == 1


def test_calls_find_the_new_leader_although_metadata_is_stale() -> None:
    stage, admin = made()
    stage.write(range(9))
    admin.describe_topics("t")
    for broker in stage.cluster.brokers:  # stale metadata on all brokers for 0.3 s
        stage.cluster.stale_metadata(broker)
        stage.world.after(0.3, partial(stage.cluster.stale_metadata, broker, on=False))
    for partition in range(3):
        stage.cluster.move_leader("t", partition)
    begin = stage.world.now
    assert {o.offset for o in admin.list_offsets({T0: "LATEST", T1: "LATEST"}).values()} == {3}
    assert 0.3 < stage.world.now - begin < 1.5


def test_a_call_is_sent_to_the_new_leader_if_the_old_one_is_slow_and_loses_leadership() -> None:
    stage, admin = made()
    stage.write(range(9))
    admin.list_offsets({T0: "LATEST", T1: "LATEST", T2: "LATEST"})
    slow = stage.cluster.leader("t", 2)
    assert slow is not None
    slow.delays[ListOffsetsRequest.API_KEY] = 25.0
    stage.world.after(1.0, partial(stage.cluster.move_leader, "t", 2))
    begin = stage.world.now
    assert admin.list_offsets({T2: "LATEST", T0: "LATEST"}, timeout=30)[T2].offset == 3
    assert 1.9 < stage.world.now - begin < 3.0


def test_a_dead_leader_is_replaced_by_the_new_one() -> None:
    stage, admin = made()
    stage.write(range(9))
    admin.list_offsets({T2: "LATEST"})
    leader = stage.cluster.leader("t", 2)
    assert leader is not None
    stage.cluster.crash(leader.id)
    begin = stage.world.now
    assert admin.list_offsets({T2: "LATEST", T0: "LATEST"}, timeout=30)[T2].offset is not None
    assert stage.world.now - begin < 10


def test_calls_find_a_coordinator_that_moved() -> None:
    stage, admin = made()
    index = stage.cluster.groups.index("g")
    for _ in range(3):
        stage.cluster.move_leader("__consumer_offsets", index)
        assert admin.list_group_offsets("g")["g"][T0].offset == 5
    coordinator = stage.cluster.leader("__consumer_offsets", index)
    assert coordinator is not None
    stage.cluster.crash(coordinator.id)
    assert admin.list_group_offsets("g", timeout=30)["g"][T0].offset == 5


def test_calls_succeed_while_and_after_the_cluster_moves() -> None:
    stage, admin = made()
    admin.list_offsets({T0: "LATEST"})
    stage.cluster.move(after=3.0)
    for call in (*LEADERS.values(), *EACH.values(), COORDINATORS["OffsetFetch"]):
        call(admin)
    admin.create_partitions({"t": 6}, timeout=60)
    assert len(stage.cluster.topics["t"].partitions) == 6


def test_results_of_other_brokers_are_kept_if_one_broker_is_silent() -> None:
    stage, admin = made()
    admin.describe_log_dirs()
    stage.cluster.go_silent(2)
    begin = stage.world.now
    with pytest.raises(KafkaTimeoutError, match="of broker 2") as late:
        admin.describe_log_dirs(timeout=5)
    assert sorted(late.value.results) == [1, 3]
    assert 4.9 <= stage.world.now - begin <= 5.1


def test_results_of_other_leaders_are_kept_if_one_leader_is_silent() -> None:
    stage, admin = made()
    stage.write(range(9))
    leaders = [stage.cluster.topics["t"].partitions[p].leader for p in range(3)]
    assert len(set(leaders)) == 3
    admin.list_offsets({T0: "LATEST", T1: "LATEST", T2: "LATEST"})
    stage.cluster.go_silent(leaders[1])
    with pytest.raises(KafkaTimeoutError) as late:
        admin.list_offsets({T0: "LATEST", T1: "LATEST", T2: "LATEST"}, timeout=6)
    assert {p: o.offset for p, o in late.value.results.items()} == {T0: 3, T2: 3}
    assert list(late.value.errors) == [T1]


@pytest.mark.parametrize(
    ("api", "call"),
    [
        ("CreatePartitions", ANY["CreatePartitions"]),
        ("DeleteGroups", COORDINATORS["DeleteGroups"]),
        ("CreateAcls", ANY["CreateAcls"]),
    ],
)
def test_a_change_whose_response_was_lost_is_retried(api: str, call: Call) -> None:
    stage, admin = made()
    inject(stage, api, TIMED_OUT, done=True)
    if api == "CreatePartitions":
        # Another client may have added the partitions, so the retry fails.
        with pytest.raises(KafkaError):
            call(admin)
        assert len(stage.cluster.topics["t"].partitions) == 4
    else:
        call(admin)


ASKED = [one for one in CALLS if one[0] not in ("describe_reachability", "examine")]
"""Calls that fail for brokers that are down; the others list such brokers in their results."""


@pytest.mark.parametrize(("name", "given", "options"), ASKED, ids=[name for name, *_ in ASKED])
def test_no_call_outlives_its_timeout(
    name: str, given: tuple[Any, ...], options: dict[str, Any]
) -> None:
    stage, _ = made()
    admin = stage.client(Admin, "late", background=False, default_api_timeout_ms=1500)
    admin.list_topics()
    for broker in stage.cluster.brokers:
        stage.cluster.crash(broker)
    begin = stage.world.now
    with pytest.raises(KafkaTimeoutError) as late:
        getattr(admin, name)(*given, **options)
    assert 1.49 <= stage.world.now - begin <= 1.6
    assert late.value.attempts


def test_deleting_a_group_in_use_fails_immediately() -> None:
    stage, admin = made()
    with stage.consumer(group_id="busy") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(1.0)
        begin = stage.world.now
        with pytest.raises(NonEmptyGroupError, match="group busy") as refused:
            admin.delete_groups(["busy", "g"])
        assert stage.world.now - begin < 1
        assert list(refused.value.results) == ["g"]
