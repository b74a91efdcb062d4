"""Older brokers: fields that an API version doesn't define aren't interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.scene import Stage
from tests.simulation.spoilt_answers import spoil_answers

from odradek.api.admin import Admin
from odradek.clients.admin.acls import AclBinding, AclBindingFilter
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.admin.configs import ConfigResource
from odradek.clients.admin.offsets import SPECS
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.descriptions import OPERATIONS
from odradek.common.errors import BrokerError, KafkaTimeoutError, UnsupportedServerError
from odradek.common.errors.kafka import UnsupportedCompressionTypeError, UnsupportedVersionError
from odradek.common.types import TopicPartition
from odradek.network.handshake import OLDEST
from odradek.protocol.messages.create_acls import CreateAclsRequest
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.protocol.registry import request_class
from odradek.protocol.versioned_values import VALUES, VersionedValue
from odradek.simulation.brokers import broker_faults

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
KAFKA_2_3 = {
    FetchRequest.API_KEY: (4, 11),
    ListOffsetsRequest.API_KEY: (1, 5),
    MetadataRequest.API_KEY: (0, 8),
}


class Older(Stage):
    """Brokers with one partition and lower maximal versions of some APIs."""

    def __init__(self, versions: dict[int, tuple[int, int]], **more: Any) -> None:
        super().__init__(**{"partitions": 1, "versions": versions, **more})


# Leader epochs of metadata (KAFKA-9212)


@pytest.mark.parametrize("lower", [1, 3])
def test_stale_epochs_in_metadata_below_version_9_do_not_delay_reads(
    lower: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Older(KAFKA_2_3)
    log = scene.cluster.topics["t"].partitions[0]
    log.leader_epoch = 7
    scene.write(range(5))

    def stale(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_epoch -= lower

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, stale)
    scene.write(range(5, 10))
    with scene.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 10) == list(range(10))
        assert consumer.beginning_offsets([T0], 5.0) == {T0: 0}
        assert consumer.end_offsets([T0], 5.0) == {T0: 10}
        consumer.commit(timeout=5.0)
        committed = consumer.committed([T0], 5.0)[T0]
        assert committed is not None
        assert (committed.offset, committed.leader_epoch) == (10, 7)  # epoch of the record's batch
    with scene.client(Admin) as admin:
        described = admin.describe_topics(["t"], timeout=5.0)["t"]
        assert described.partitions[0].leader_epoch == -1
    scene.write(range(10, 15))
    with scene.consumer(group_id="g") as consumer:  # the position's epoch exceeds metadata's
        consumer.subscribe(["t"])
        assert scene.read(consumer, 5) == list(range(10, 15))


def ends_asked(scene: Stage) -> int:
    return sum(b.requests["OffsetForLeaderEpoch"] for b in scene.cluster.brokers.values())


def test_the_position_is_validated_once_at_a_new_leader_below_version_9() -> None:
    scene = Older(KAFKA_2_3)
    scene.write(range(5))
    with scene.consumer() as consumer:
        consumer.assign([T0])
        assert scene.read(consumer, 5) == list(range(5))
        asked = ends_asked(scene)
        scene.cluster.move_leader("t", 0)
        scene.write(range(5, 8))
        assert scene.read(consumer, 3) == list(range(5, 8))
        assert ends_asked(scene) == asked + 1
        scene.write(range(8, 10))
        assert scene.read(consumer, 2) == [8, 9]
        assert ends_asked(scene) == asked + 1


def test_positions_return_to_the_divergence_below_version_9() -> None:
    scene = Older(KAFKA_2_3)
    for n in range(4):
        scene.write(range(5 * n, 5 * n + 5))
    with scene.consumer() as consumer:
        consumer.assign([T0])
        assert scene.read(consumer, 20) == list(range(20))
        broker_faults.unclean_election(scene.cluster, "t", 0, 2)
        for n in range(4, 7):
            scene.write(range(5 * n, 5 * n + 5))  # at offsets 10 to 24
        assert scene.read(consumer, 15) == list(range(20, 35))


def test_a_leader_that_does_not_know_the_epoch_resets_no_position() -> None:
    scene = Older(KAFKA_2_3)
    scene.write(range(5))
    with scene.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 5) == list(range(5))
        at = OffsetAndMetadata(
            3, leader_epoch=4
        )  # the epoch of an election that this leader missed
        consumer.commit({T0: at}, timeout=5.0)
    with scene.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert scene.read(consumer, 2) == [3, 4]


# Values with another meaning in an earlier version (protocol/versioned_values.py)

ROWS = [(key, row) for key, rows in VALUES.items() for row in rows]
USER = AclBinding("USER", "alice", "User:bob", "DESCRIBE_TOKENS")


def use(scene: Stage, key: int, what: str) -> object:
    """Make this API's call for `what`, a value with another meaning in an earlier version."""
    if key == ProduceRequest.API_KEY:
        with scene.producer(compression_type="zstd") as producer:
            return producer.send("t", bytes(1000)).result(10.0)
    if key == FetchRequest.API_KEY:
        with scene.consumer() as consumer:
            consumer.assign([T0])
            return scene.read(consumer, 10)
    calls: dict[int, Callable[[Admin], object]] = {
        ListOffsetsRequest.API_KEY: lambda admin: admin.list_offsets({T0: what}, 10.0),
        MetadataRequest.API_KEY: lambda admin: admin.describe_topics(
            [UUID(bytes=scene.cluster.topics["t"].id)], 10.0
        ),
        CreateTopicsRequest.API_KEY: lambda admin: admin.create_topics([NewTopic("new")], 10.0),
        CreateAclsRequest.API_KEY: lambda admin: admin.create_acls([USER], 10.0),
        DescribeAclsRequest.API_KEY: lambda admin: admin.describe_acls(
            AclBindingFilter(resource_type="USER"), 10.0
        ),
        DeleteAclsRequest.API_KEY: lambda admin: admin.delete_acls(
            [AclBindingFilter(resource_type="USER")], 10.0
        ),
    }
    with scene.client(Admin) as admin:
        return calls[key](admin)


@pytest.mark.parametrize(("key", "row"), ROWS, ids=[f"{k} {r.what}" for k, r in ROWS])
def test_a_value_with_another_meaning_for_the_broker_is_an_error(
    key: int, row: VersionedValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = request_class(key).MIN_VERSION
    refused: type[BrokerError] = UnsupportedVersionError
    scene = Older({key: (least, row.version - 1)})
    if key == FetchRequest.API_KEY:
        refused = UnsupportedCompressionTypeError

        def read_zstd(answer: FetchResponse) -> None:  # brokers reject fetches of zstd like this
            for topic in answer.responses:
                for part in topic.partitions:
                    part.error_code, part.records = refused.code, b""

        spoil_answers(monkeypatch, key, read_zstd)
    with pytest.raises(refused) as caught:
        use(scene, key, row.what)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert f"{row.what} needs version {row.version} (Kafka {row.kafka})" in text
    assert f"supports versions {least} to {row.version - 1}" in text
    assert row.instead in text
    monkeypatch.undo()
    scene = Older({key: (least, row.version)})
    scene.write(range(10))
    use(scene, key, row.what)


def test_unsupported_offset_specs_do_not_affect_supported_ones() -> None:
    scene = Older({ListOffsetsRequest.API_KEY: (1, 7)}, partitions=4)
    scene.write(range(8))
    at = [TopicPartition("t", n) for n in range(4)]
    wanted = {at[0]: "LATEST", at[1]: "EARLIEST_LOCAL", at[2]: "MAX_TIMESTAMP", at[3]: "EARLIEST"}
    with scene.client(Admin) as admin:
        with pytest.raises(UnsupportedVersionError, match="EARLIEST_LOCAL") as caught:
            admin.list_offsets(wanted, 10.0)
        assert caught.value.results.keys() == {at[0], at[2], at[3]}
        del wanted[at[1]]
        found = admin.list_offsets(wanted, 10.0)
    assert list(found) == list(wanted)
    assert [listed.offset for listed in found.values()] == [2, 0, 0]


def test_the_error_of_an_unsupported_field_names_both_versions() -> None:
    scene = Older({DescribeConfigsRequest.API_KEY: (1, 2)})
    with (
        scene.client(Admin) as admin,
        pytest.raises(
            UnsupportedVersionError, match=r"v2 can't contain .*, which needs version 3:"
        ),
    ):
        admin.describe_configs([ConfigResource("TOPIC", "t")], 10.0, include_documentation=True)


def test_the_table_of_versioned_values_is_complete() -> None:
    named = [row.what for row in VALUES[ListOffsetsRequest.API_KEY]]
    assert {*named} == {name for name, time in SPECS.items() if time < SPECS["EARLIEST"]}
    versions = {key: [row.version for row in rows] for key, rows in VALUES.items()}
    by_kafkas_messages = {0: [7], 2: [7, 8, 9, 11], 3: [12], 19: [4], 29: [3], 30: [3], 31: [3]}
    assert versions == by_kafkas_messages
    for key, row in ROWS:
        assert request_class(key).MIN_VERSION < row.version <= request_class(key).MAX_VERSION


# Brokers that send more than was requested


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_aborted_transactions_are_ignored_with_read_uncommitted(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Older({})
    with scene.producer(transactional_id="x") as producer:
        producer.init_transactions(10.0)
        for n in range(3):
            producer.begin_transaction()
            for value in range(3 * n, 3 * n + 3):
                producer.send("t", b"%d" % value)
            producer.flush(10.0)
            (producer.abort_transaction if n == 1 else producer.commit_transaction)(10.0)
    with scene.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([T0])
        assert scene.read(consumer, 6) == [0, 1, 2, 6, 7, 8]
    [(id_, first)] = scene.cluster.log("t", 0).transactions.aborted(0, 100)

    def listed(answer: FetchResponse) -> None:  # as Redpanda did for each isolation level
        for topic in answer.responses:
            for part in topic.partitions:
                part.aborted_transactions = [AbortedTransaction(id_, first)]

    spoil_answers(monkeypatch, FetchRequest.API_KEY, listed)
    with scene.consumer(isolation_level=isolation) as consumer:
        consumer.assign([T0])
        expected = range(9) if isolation == "read_uncommitted" else (0, 1, 2, 6, 7, 8)
        assert scene.read(consumer, len(expected)) == [*expected]


@pytest.mark.parametrize(("host", "port"), [("10.9.9.9", 0), ("", 9092), ("b 3", 9092)])
def test_other_brokers_are_used_if_metadata_contains_an_invalid_address(
    host: str, port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Older({}, partitions=3)
    away = scene.cluster.topics["t"].partitions[2].leader

    def impossible(answer: MetadataResponse) -> None:
        for broker in answer.brokers:
            if broker.node_id == away:
                broker.host, broker.port = host, port

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, impossible)
    with scene.producer() as producer:
        for partition in (0, 1):
            producer.send("t", b"%d" % partition, partition=partition).result(5.0)
        with pytest.raises(KafkaTimeoutError):
            producer.send("t", b"2", partition=2).result(5.0)
        producer._engine.metadata.request("again")
        scene.world.advance(5.0)
        with pytest.raises(KafkaTimeoutError):
            producer.close(0)
    with scene.consumer() as consumer:
        consumer.assign([T0, T1])
        assert scene.read(consumer, 2) == [0, 1]
    warnings = [r.getMessage() for r in caplog.records if "advertised.listeners" in r.getMessage()]
    assert len(warnings) == 2  # one warning for each client
    assert f"broker {away} advertises the invalid address {host!r}:{port}" in warnings[0]


def test_describe_cluster_uses_metadata_before_kafka_2_8(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer, older = Older({}), Older({DescribeClusterRequest.API_KEY: (0, -1), **KAFKA_2_3})
    described = []
    for scene in (newer, older):
        with scene.client(Admin) as admin:
            described.append(admin.describe_cluster(5.0))
    assert described[0] == described[1]

    def allowed(answer: MetadataResponse) -> None:
        answer.cluster_authorized_operations = 1 << OPERATIONS.index("DESCRIBE")

    spoil_answers(monkeypatch, MetadataRequest.API_KEY, allowed)
    with older.client(Admin) as admin:
        assert admin.describe_cluster(5.0).authorized_operations is None
        whole = admin.describe_cluster(5.0, authorized_operations=True)
        assert whole.authorized_operations == frozenset({"DESCRIBE"})
        with pytest.raises(UnsupportedVersionError, match="DescribeCluster"):
            admin.describe_cluster(5.0, include_fenced_brokers=True)


# A proxy that caps versions, in front of brokers with transaction.version 2


@pytest.mark.parametrize(
    ("key", "newest"),
    [
        (ProduceRequest.API_KEY, 11),
        (TxnOffsetCommitRequest.API_KEY, 4),
        (EndTxnRequest.API_KEY, 4),
    ],
)
def test_transactions_also_depend_on_the_supported_api_versions(key: int, newest: int) -> None:
    scene = Older({key: (request_class(key).MIN_VERSION, newest)})
    assert scene.cluster.transactions.version == 2
    with scene.producer(transactional_id="x") as producer:
        producer.init_transactions(10.0)
        for n in range(4):
            producer.begin_transaction()
            producer.send("t", b"%d" % n, partition=0)
            at = {T0: OffsetAndMetadata(n + 1)}
            producer.send_offsets_to_transaction(at, "g", 10.0)
            (producer.abort_transaction if n == 2 else producer.commit_transaction)(10.0)
    with scene.consumer(isolation_level="read_committed", group_id="g") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert scene.read(consumer, 3) == [0, 1, 3]
        committed = consumer.committed([T0], 5.0)[T0]
        assert committed is not None
        assert committed.offset == 4


# Servers that aren't brokers, or too old

KAFKA_0_10_2 = {
    0: (0, 2),
    1: (0, 3),
    2: (0, 1),
    3: (0, 2),
    8: (0, 2),
    9: (0, 2),
    10: (0, 0),
    11: (0, 1),
    12: (0, 0),
    13: (0, 0),
    14: (0, 0),
    15: (0, 0),
    16: (0, 0),
    17: (0, 0),
    18: (0, 0),
    19: (0, 1),
    20: (0, 1),
}
CONTROLLER = {1: (12, 17), 17: (0, 1), 18: (0, 4), 19: (2, 7), 52: (0, 1), 62: (0, 4)}
UNSUPPORTED = {
    "Kafka 0.10.2": (
        KAFKA_0_10_2,
        "Kafka 0.11: it supports Produce 0 to 2 and Fetch 0 to 3, but this client needs Produce 3",
    ),
    "a controller": (CONTROLLER, "is a Kafka controller: of 6 APIs, none is Metadata. Set boot"),
    "something else": ({18: (0, 4)}, "isn't a broker: of 1 API, none is Metadata"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
@pytest.mark.parametrize("client", ["producer", "consumer", "member", "admin"])
def test_an_unusable_server_is_named_immediately(client: str, kind: str) -> None:
    versions, text = UNSUPPORTED[kind]
    scene = Stage(partitions=1)
    scene.cluster.versions.clear()
    scene.cluster.versions.update(versions)
    began = scene.world.now
    with pytest.raises(UnsupportedServerError) as caught:
        if client == "admin":
            with scene.client(Admin) as admin:
                admin.list_topics()
        elif client == "producer":
            with scene.producer() as producer:
                producer.send("t", b"x").result()
        else:
            member = client == "member"
            with scene.consumer(**({"group_id": "g"} if member else {})) as consumer:
                consumer.subscribe(["t"]) if member else consumer.assign([T0])
                consumer.poll(60.0)
    assert scene.world.now < began + 5.0
    assert text in str(caught.value)
    assert str(caught.value).startswith(scene.cluster.bootstrap_servers)


def test_the_oldest_supported_versions_match_the_oldest_brokers() -> None:
    for key, named in OLDEST.items():
        assert named == (request_class(key).API_NAME, request_class(key).MIN_VERSION)
