"""Test each family of admin calls on real brokers, with the errors that they raise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

import odradek as o
from odradek.admin import AlterConfigOp, ConfigResource
from odradek.clients.admin.configs import TYPES
from odradek.simulation.brokers.topic_options import TOPIC_OPTIONS
from odradek.testing import LocalCluster

PATIENCE = 60.0


@pytest.fixture
def cluster(mortal_cluster: LocalCluster) -> LocalCluster:
    """Return a cluster of three brokers, for replicas."""
    return mortal_cluster


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[o.Admin]:
    with o.Admin(cluster.client_config(), default_api_timeout_ms=30_000) as made:
        yield made


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition: brokers apply some changes a moment after the response."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def write(cluster: LocalCluster, topic: str, count: int, **config: Any) -> None:
    with o.Producer(cluster.client_config(), **config) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=0)
        producer.flush(timeout=PATIENCE)


# Topics


def test_topics_are_created_described_and_extended(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    by_hand = o.NewTopic(f"{topic}-b", replica_assignment={0: [2, 0], 1: [1, 2]})
    with pytest.raises(o.errors.InvalidReplicationFactorError, match=f"topic {topic}-c") as refused:
        admin.create_topics([o.NewTopic(topic, 2, 3), o.NewTopic(f"{topic}-c", 1, 9), by_hand])
    made = refused.value.results
    assert sorted(made) == [topic, f"{topic}-b"]
    assert [p.replicas for p in made[f"{topic}-b"].partitions] == [(2, 0), (1, 2)]
    topic_id, nobody = UUID(made[topic].topic_id), UUID(int=7)
    described = admin.describe_topics(topic_id, authorized_operations=True)[topic]
    assert described.authorized_operations == frozenset(
        (
            *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
            *("DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
        )
    )
    with pytest.raises(o.errors.UnknownTopicIdError, match=str(nobody)):
        admin.describe_topics([topic_id, nobody])
    admin.create_partitions({topic: 3}, validate_only=True)
    admin.create_partitions({topic: o.admin.NewPartitions(3, [[1, 2, 0]])})
    until(lambda: len(admin.describe_topics(topic)[topic].partitions) == 3)
    assert admin.describe_topics(topic)[topic].partitions[2].replicas == (1, 2, 0)
    with pytest.raises(o.errors.InvalidPartitionsError, match=f"topic {topic} .*3") as fewer:
        admin.create_partitions({topic: 2, "no-such-topic": 3, f"{topic}-b": 4})
    assert list(fewer.value.results) == [f"{topic}-b"]
    assert isinstance(fewer.value.errors["no-such-topic"], o.UnknownTopicOrPartitionError)
    with pytest.raises(o.errors.UnknownTopicIdError) as deleted:
        admin.delete_topics([topic_id, nobody])
    assert list(deleted.value.results) == [topic_id]
    admin.delete_topics(f"{topic}-b")
    until(lambda: topic not in admin.list_topics())


def test_list_offsets_finds_offsets_and_delete_records_removes_records(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    cluster.create_topic(topic, 2)
    at, other = o.TopicPartition(topic, 0), o.TopicPartition(topic, 1)
    begin = int(time.time() * 1000) - 1000
    write(cluster, topic, 10)
    found = admin.list_offsets({at: "LATEST", other: "EARLIEST"})
    assert (found[at].offset, found[at].leader_epoch) == (10, 0)
    assert (found[other].offset, found[other].timestamp_ms) == (0, None)
    assert admin.list_offsets({at: begin, other: begin}, isolation_level="read_committed") == {
        at: o.admin.OffsetListing(0, admin.list_offsets({at: begin})[at].timestamp_ms, 0),
        other: o.admin.OffsetListing(None, None, -1),
    }
    assert admin.list_offsets({at: "MAX_TIMESTAMP"})[at].offset in range(10)
    assert admin.list_offsets({at: "EARLIEST_LOCAL"})[at].offset == 0
    assert admin.list_offsets({at: "LATEST_TIERED"})[at].offset is None
    assert admin.delete_records({at: 4, other: -1}) == {at: 4, other: 0}
    with pytest.raises(o.errors.OffsetOutOfRangeError, match=f"partition {topic}-0") as refused:
        admin.delete_records({at: 99, other: 0, o.TopicPartition(topic, 7): 1})
    assert refused.value.results == {other: 0}
    assert "has 2 partitions" in str(refused.value.errors[o.TopicPartition(topic, 7)])
    assert admin.list_offsets({at: "EARLIEST"})[at].offset == 4


# Options


def test_configs_of_each_resource_type_are_altered_and_described(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    cluster.create_topic(topic, 1)
    of_topic, metrics = ConfigResource("TOPIC", topic), ConfigResource("CLIENT_METRICS", topic)
    group, broker = ConfigResource("GROUP", topic), ConfigResource("BROKER", "1")
    logger, everywhere = ConfigResource("BROKER_LOGGER", "2"), ConfigResource("BROKER", "")
    admin.incremental_alter_configs(
        {
            of_topic: [
                AlterConfigOp("retention.ms", "86400000"),
                AlterConfigOp("cleanup.policy", "compact", "APPEND"),
            ],
            metrics: [AlterConfigOp("interval.ms", "60000")],
            group: [AlterConfigOp("consumer.heartbeat.interval.ms", "6000")],
            broker: [AlterConfigOp("log.cleaner.threads", "2")],
            everywhere: [AlterConfigOp("log.cleaner.io.buffer.load.factor", "0.8")],
            logger: [AlterConfigOp("kafka.server.KafkaApis", "ERROR")],
        }
    )
    names = ["retention.ms", "cleanup.policy", "interval.ms", "consumer.heartbeat.interval.ms"]
    names += ["log.cleaner.threads", "kafka.server.KafkaApis", "log.cleaner.io.buffer.load.factor"]

    def values() -> dict[str, tuple[str | None, str]]:
        resources = [of_topic, metrics, group, broker, logger]
        found = admin.describe_configs(resources, names=names)
        return {e.name: (e.value, e.source) for of in found.values() for e in of.values()}

    expected = {
        "retention.ms": ("86400000", "DYNAMIC_TOPIC_CONFIG"),
        "cleanup.policy": ("delete,compact", "DYNAMIC_TOPIC_CONFIG"),
        "interval.ms": ("60000", "DYNAMIC_CLIENT_METRICS_CONFIG"),
        "consumer.heartbeat.interval.ms": ("6000", "DYNAMIC_GROUP_CONFIG"),
        "log.cleaner.threads": ("2", "DYNAMIC_BROKER_CONFIG"),
        "log.cleaner.io.buffer.load.factor": ("0.8", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        "kafka.server.KafkaApis": ("ERROR", "DYNAMIC_BROKER_LOGGER_CONFIG"),
    }
    until(lambda: values() == expected)
    (entry,) = admin.describe_configs(
        [of_topic], names=["retention.ms"], include_synonyms=True, include_documentation=True
    )[of_topic].values()
    assert (entry.type, entry.default, entry.read_only) == ("LONG", False, False)
    assert (entry.synonyms[0].value, entry.synonyms[0].source) == expected["retention.ms"]
    assert entry.synonyms[-1].source == "DEFAULT_CONFIG"
    assert entry.documentation
    every = admin.describe_configs([of_topic])[of_topic].values()
    simulated = {name: TYPES[number] for name, (_, number) in TOPIC_OPTIONS.items()}
    assert {e.name: e.type for e in every} == simulated
    assert set(admin.list_config_resources()) >= {of_topic, metrics, group, broker}
    assert metrics in admin.list_config_resources(["CLIENT_METRICS"])
    with pytest.raises(o.errors.InvalidConfigError, match=f"TOPIC {topic}: .*no.such") as refused:
        admin.incremental_alter_configs(
            {
                of_topic: [AlterConfigOp("no.such", "1")],
                metrics: [AlterConfigOp("interval.ms", operation="DELETE")],
                group: [AlterConfigOp("consumer.heartbeat.interval.ms", operation="DELETE")],
                broker: [AlterConfigOp("log.cleaner.threads", operation="DELETE")],
                everywhere: [
                    AlterConfigOp("log.cleaner.io.buffer.load.factor", operation="DELETE")
                ],
            }
        )
    assert set(refused.value.results) == {metrics, group, broker, everywhere}
    changes = {of_topic: [AlterConfigOp("retention.ms", "1")]}
    admin.incremental_alter_configs(changes, validate_only=True)
    assert values()["retention.ms"] == expected["retention.ms"]


# Groups


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_described_and_their_offsets_altered(
    cluster: LocalCluster, admin: o.Admin, topic: str, protocol: str
) -> None:
    cluster.create_topic(topic, 2)
    write(cluster, topic, 5)
    at, other = o.TopicPartition(topic, 0), o.TopicPartition(topic, 1)
    busy, idle = f"{topic}-busy", f"{topic}-idle"
    given = {"group.id": busy, "group.protocol": protocol, "group.instance.id": "one"}
    with o.Consumer({**cluster.client_config(), **given}) as member:
        member.subscribe([topic])
        until(lambda: member.poll(0.2) is not None and len(member.assignment()) == 2)
        admin.alter_group_offsets(idle, {at: o.OffsetAndMetadata(3, "note", 0), other: 0})
        until(lambda: admin.describe_consumer_groups(busy)[busy].state == "Stable")
        found = admin.describe_consumer_groups([busy, idle], authorized_operations=True)
        assert found[busy].type == protocol.capitalize()
        (one,) = found[busy].members
        assert (one.instance_id, one.assignment) == ("one", (at, other))
        assert one.subscribed_topics == (topic,)
        assert "DELETE" in (found[busy].authorized_operations or ())
        assert (found[idle].state, found[idle].type, found[idle].members) == (
            "Empty",
            "Classic",
            (),
        )
        listed = {g.group_id: g for g in admin.list_groups()}
        assert listed[busy] == o.admin.GroupListing(
            busy, "consumer", "Stable", protocol.capitalize()
        )
        assert idle in {g.group_id for g in admin.list_groups(states=["Empty"])}
        assert busy not in {g.group_id for g in admin.list_groups(types=["Share"])}
        with pytest.raises(o.errors.GroupIdNotFoundError, match="[Gg]roup nobody") as missing:
            admin.describe_consumer_groups(["nobody", idle])
        assert list(missing.value.results) == [idle]
        assert admin.list_group_offsets([idle]) == {
            idle: {at: o.OffsetAndMetadata(3, "note", 0), other: o.OffsetAndMetadata(0)}
        }
        assert admin.list_group_offsets({idle: [other]}, require_stable=True) == {
            idle: {other: o.OffsetAndMetadata(0)}
        }
        with pytest.raises(o.errors.UnknownMemberIdError, match=f"partition {topic}-0"):
            admin.alter_group_offsets(busy, {at: 1})
        with pytest.raises(o.errors.NonEmptyGroupError, match=f"group {busy}") as refused:
            admin.delete_groups([busy, "nobody"])
        assert isinstance(refused.value.errors["nobody"], o.errors.GroupIdNotFoundError)
        member.commit({at: 5}, timeout=PATIENCE)
        with pytest.raises(o.errors.GroupSubscribedToTopicError, match=f"partition {topic}-0"):
            admin.delete_group_offsets(busy, [at])
        admin.delete_group_offsets(idle, [at])
        assert list(admin.list_group_offsets(idle)[idle]) == [other]
        if protocol == "classic":
            with pytest.raises(o.errors.UnknownMemberIdError, match="member two") as unknown:
                admin.remove_group_members(busy, ["one", "two"], reason="a test")
            assert list(unknown.value.results) == ["one"]
            assert admin.describe_classic_groups(busy)[busy].members == ()
    admin.remove_group_members(busy)
    admin.delete_groups([busy, idle])
    assert not {busy, idle} & {g.group_id for g in admin.list_groups()}


def test_share_groups_are_listed_described_altered_and_deleted(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    cluster.create_topic(topic, 2)
    write(cluster, topic, 5)
    at, group = o.TopicPartition(topic, 0), f"{topic}-share"
    admin.alter_share_group_offsets(group, {at: 1})  # this creates the group
    described = admin.describe_share_groups([group])[group]
    assert (described.type, described.members) == ("Share", ())
    assert o.admin.GroupListing(group, "share", "Empty", "Share") in admin.list_groups(
        types=["Share"]
    )
    admin.alter_share_group_offsets(group, {at: 2})
    found = admin.list_share_group_offsets(group)[group]
    assert found[at].start_offset == 2
    assert found[at].lag == 3
    assert list(admin.list_share_group_offsets({group: [at]})[group]) == [at]
    with pytest.raises(o.UnknownTopicOrPartitionError, match="topic no-such-topic") as refused:
        admin.delete_share_group_offsets(group, ["no-such-topic", topic])
    assert list(refused.value.results) == [topic]
    assert admin.list_share_group_offsets(group) == {group: {}}
    with pytest.raises(o.errors.GroupIdNotFoundError, match="share group nobody"):
        admin.describe_share_groups(["nobody"])
    with pytest.raises(o.errors.GroupIdNotFoundError, match="Streams group nobody"):
        admin.describe_streams_groups(["nobody"])
    admin.delete_groups(group)


# The cluster


def test_cluster_features_and_quorum_are_described_and_rejected_changes_raise(
    cluster: LocalCluster, admin: o.Admin
) -> None:
    found = admin.describe_cluster(authorized_operations=True, include_fenced_brokers=True)
    assert [(b.id, b.fenced) for b in found.brokers] == [(0, False), (1, False), (2, False)]
    assert "ALTER" in (found.authorized_operations or ())
    features = admin.describe_features()
    level = features.features["transaction.version"].level
    assert 0 < level <= features.features["transaction.version"].highest
    assert features.features["metadata.version"].level > 20
    assert (features.epoch or 0) > 0
    admin.update_features({"transaction.version": o.admin.FeatureUpdate(level)}, validate_only=True)
    with pytest.raises(o.KafkaError, match=r"transaction\.version") as refused:
        admin.update_features({"transaction.version": o.admin.FeatureUpdate(99)})
    assert isinstance(refused.value, o.errors.InvalidUpdateVersionError)
    quorum = admin.describe_metadata_quorum()
    assert [v.id for v in quorum.voters] == [0, 1, 2]
    assert quorum.leader_id in (0, 1, 2)
    assert quorum.high_watermark > 0
    assert sorted(quorum.nodes) == [0, 1, 2]
    with pytest.raises(o.errors.BrokerIdNotRegisteredError, match="broker 77"):
        admin.unregister_broker(77)
    with pytest.raises(o.KafkaError, match="controller 77"):
        admin.unregister_controller(77)
    directory = UUID(int=9)
    # The voters are set in the brokers' configuration, so no request can add or remove one.
    with pytest.raises(o.errors.UnsupportedVersionError, match="voter 77"):
        admin.add_raft_voter(
            77, directory, [o.admin.RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1)]
        )
    with pytest.raises(o.errors.UnsupportedVersionError, match="voter 77"):
        admin.remove_raft_voter(77, directory)


def test_replicas_are_described_and_reassigned_and_leaders_elected(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    (made,) = admin.create_topics(
        [o.NewTopic(topic, replica_assignment={0: [0, 1], 1: [1, 2]})]
    ).values()
    assert len(made.partitions) == 2
    write(cluster, topic, 5)
    first, second = o.TopicPartition(topic, 0), o.TopicPartition(topic, 1)
    until(lambda: admin.describe_log_dirs([0]))
    directories = admin.describe_log_dirs()
    assert sorted(directories) == [0, 1, 2]
    ((path, directory),) = directories[0].items()
    assert directory.error is None
    assert directory.replicas[first].size > 0
    assert second not in directory.replicas
    assert (directory.total_bytes or 0) >= (directory.usable_bytes or 0) > 0
    here, nowhere = (
        o.admin.TopicPartitionReplica(topic, 0, 0),
        o.admin.TopicPartitionReplica(topic, 1, 0),
    )
    places = admin.describe_replica_log_dirs([here, nowhere])
    assert [p.current for p in places.values()] == [path, None]
    assert places[here].future is None
    with pytest.raises(o.errors.LogDirNotFoundError, match=f"{topic}-0 on broker 0") as refused:
        admin.alter_replica_log_dirs({here: "/no/such/place"})
    assert list(refused.value.errors) == [here]
    admin.alter_replica_log_dirs({here: path})
    admin.alter_partition_reassignments({first: [2, 1]})
    until(lambda: not admin.list_partition_reassignments([first]))
    until(lambda: admin.list_partition_reassignments() == {})  # brokers apply it one by one
    until(lambda: admin.describe_topics(topic)[topic].partitions[0].replicas == (2, 1))
    with pytest.raises(
        o.errors.NoReassignmentInProgressError, match=f"partition {topic}-0"
    ) as ended:
        admin.alter_partition_reassignments({first: None, second: [0, 2]})
    assert list(ended.value.results) == [second]
    with pytest.raises(o.errors.InvalidReplicaAssignmentError, match=f"partition {topic}-1"):
        admin.alter_partition_reassignments({second: [9]})
    until(lambda: not admin.list_partition_reassignments())
    assert admin.elect_leaders("PREFERRED", [first, second]) in ([], [first], [second])
    until(lambda: admin.elect_leaders("PREFERRED", [first, second]) == [])
    assert admin.elect_leaders("UNCLEAN", [first]) == []
    with pytest.raises(o.UnknownTopicOrPartitionError, match=f"partition {topic}-9"):
        admin.elect_leaders("PREFERRED", [o.TopicPartition(topic, 9), first])


# Transactions


def test_transactions_are_described(cluster: LocalCluster, admin: o.Admin, topic: str) -> None:
    cluster.create_topic(topic, 2)
    first, second = o.TopicPartition(topic, 0), o.TopicPartition(topic, 1)
    with o.Producer(cluster.client_config(), transactional_id=topic) as producer:
        producer.init_transactions(timeout=PATIENCE)
        producer.begin_transaction()
        producer.send(topic, b"1", partition=0).result(timeout=PATIENCE)
        found = admin.describe_transactions(topic)[topic]
        assert (found.state, found.partitions) == ("Ongoing", frozenset({first}))
        assert found.timeout_ms == 60_000
        assert found.start_ms is not None
        (state,) = admin.describe_producers([first, second])[first]
        assert (state.producer_id, state.producer_epoch) == (
            found.producer_id,
            found.producer_epoch,
        )
        assert state.transaction_start_offset == 0
        leader = admin.describe_topics(topic)[topic].partitions[0].leader
        assert admin.describe_producers([first], broker=leader)[first] == (state,)
        listed = o.admin.TransactionListing(topic, found.producer_id, "Ongoing")
        assert listed in admin.list_transactions()
        assert admin.list_transactions(states=["Ongoing"], producer_ids=[found.producer_id]) == [
            listed
        ]
        assert admin.list_transactions(pattern=f"{topic}|none") == [listed]
        # Transactions of other tests are listed too, without a start time.
        assert listed not in admin.list_transactions(running_longer_than=3600)
        with pytest.raises(o.errors.TransactionalIdNotFoundError, match="transactional id nobody"):
            admin.describe_transactions(["nobody", topic])
        assert admin.find_hanging_transactions(topic, older_than=0) == []
        fenced = admin.fence_producers(topic)[topic]
        assert fenced.producer_id == found.producer_id
        assert fenced.producer_epoch > found.producer_epoch
        with pytest.raises(o.KafkaError, match="another producer took over"):
            producer.commit_transaction(timeout=PATIENCE)
    until(lambda: admin.describe_transactions(topic)[topic].state in ("Empty", "CompleteAbort"))


def test_abort_transaction_ends_a_hanging_transaction(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    cluster.create_topic(topic, 1)
    at = o.TopicPartition(topic, 0)
    with o.Producer(cluster.client_config(), transactional_id=topic) as producer:
        producer.init_transactions(timeout=PATIENCE)
        producer.begin_transaction()
        producer.send(topic, b"1", partition=0).result(timeout=PATIENCE)
        (state,) = admin.describe_producers([at])[at]
        assert admin.list_offsets({at: "LATEST"}, isolation_level="read_committed")[at].offset == 0
        admin.abort_transaction(
            o.admin.AbortTransactionSpec(
                at, state.producer_id, state.producer_epoch, state.coordinator_epoch
            )
        )
        (ended,) = admin.describe_producers([at])[at]
        assert ended.transaction_start_offset is None
        until(
            lambda: (
                admin.list_offsets({at: "LATEST"}, isolation_level="read_committed")[at].offset == 2
            )
        )


# Quotas


def test_quotas_are_altered_and_described(
    cluster: LocalCluster, admin: o.Admin, topic: str
) -> None:
    user, client = o.admin.ClientQuotaEntity(user=topic), o.admin.ClientQuotaEntity(client_id=topic)
    both = o.admin.ClientQuotaEntity(user=topic, client_id=o.admin.ClientQuotaEntity.DEFAULT)
    address = o.admin.ClientQuotaEntity(ip="127.0.0.77")
    quotas: dict[o.admin.ClientQuotaEntity, dict[str, float | None]] = {
        user: {"producer_byte_rate": 1e6, "request_percentage": 50.5},
        client: {"consumer_byte_rate": 2e6},
        both: {"controller_mutation_rate": 10},
        address: {"connection_creation_rate": 100},
    }
    admin.alter_client_quotas(quotas, validate_only=True)
    admin.alter_client_quotas(quotas)
    until(lambda: admin.describe_client_quotas(user) == {user: quotas[user], both: quotas[both]})
    assert admin.describe_client_quotas(user, strict=True) == {user: quotas[user]}
    assert admin.describe_client_quotas(address) == {address: quotas[address]}
    anybody = o.admin.ClientQuotaEntity(client_id=o.admin.ClientQuotaEntity.ANY)
    assert set(admin.describe_client_quotas(anybody)) >= {client, both}
    with pytest.raises(o.errors.InvalidRequestError, match="bandwidth") as refused:
        admin.alter_client_quotas({user: {"bandwidth": 1}, client: {"consumer_byte_rate": None}})
    assert list(refused.value.results) == [client]
    gone = {at: dict.fromkeys(quotas[at]) for at in (user, both, address)}
    admin.alter_client_quotas(gone)
    until(lambda: admin.describe_client_quotas(o.admin.ClientQuotaEntity(user=topic)) == {})
